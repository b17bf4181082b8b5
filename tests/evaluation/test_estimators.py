"""Estimators against their slow twins, and against the truth: their exact mean over all that a log can show."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from helpers import reference_evaluation as slow
from helpers.problems import Problem
from helpers.strategies import few, seeds
from hypothesis import given

import treetop
from treetop.arrays import as_rows
from treetop.evaluation.control import Lines, controlled_terms
from treetop.evaluation.doubly_robust import doubly_robust_slate_terms, doubly_robust_terms
from treetop.evaluation.estimators import SLATE, SLOTS
from treetop.evaluation.ips import slate_terms, slot_terms
from treetop.evaluation.judged import Judged
from treetop.evaluation.mips import node_weights
from treetop.evaluation.offcem import offcem_terms
from treetop.evaluation.snips import WeightSums
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import judge
from treetop.policy.eligibility import Eligible
from treetop.policy.probability import shared_chances, slot_chances


def random_rounds(seed: int) -> Judged:
    """Up to 30 rounds of up to 4 slots, some of them shorter, some with slots that the candidate never shows."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 30)), int(rng.integers(1, 5))
    filled = np.arange(k) < rng.integers(1, k + 1, n)[:, None]

    def some(array: Any) -> Any:
        return np.where(filled, array, 0.0)

    rewards = some(rng.integers(0, 2, (n, k)).astype(float))
    target = some(rng.random((n, k)) * (rng.random((n, k)) < 0.8))
    ratio = rng.random((n, k, 2)) * 2
    chances = some(0.05 + 0.95 * rng.random((n, k))), target, rewards, rewards.sum(axis=1)
    return Judged(*chances, some(rng.random((n, k))), some(rng.random((n, k))), ratio, filled)


def as_slots(judged: Judged, height: int = 0) -> list[list[slow.Slot]]:
    known = (judged.logged, judged.target, judged.rewards, judged.score, judged.expected)
    arrays = [*known, judged.node_ratio[:, :, height]]
    return [[slow.Slot(*[float(a[i, s]) for a in arrays]) for s in range(int(m))] for i, m in enumerate(judged.slots)]


@few
@given(seeds)
def test_they_are_their_twins(seed: int) -> None:
    judged = random_rounds(seed)
    rounds, weights = as_slots(judged), judged.prefix_weights()
    slots, slate = (WeightSums.of(judged, weights, whole) for whole in (False, True))
    assert slate_terms(judged, weights)[0].mean() == pytest.approx(slow.ips_slate(rounds))
    assert slot_terms(judged, weights)[0].mean() == pytest.approx(slow.ips_slots(rounds))
    assert slots.value == pytest.approx(slow.snips_slots(rounds))
    if any(slow.weight(r) > 0 for r in rounds):
        assert slate.value == pytest.approx(slow.snips_slate(rounds))
        assert slate.effective == pytest.approx(slow.effective_size([slow.weight(r) for r in rounds]))
    assert doubly_robust_terms(judged, weights).mean() == pytest.approx(slow.doubly_robust(rounds))
    means = np.linspace(0.1, 0.4, judged.rewards.shape[1])
    expected = slow.doubly_robust_slate(rounds, means.tolist())
    assert doubly_robust_slate_terms(judged, weights, means).mean() == pytest.approx(expected)
    for height in (0, 1):
        rounds = as_slots(judged, height)
        assert slot_terms(judged, node_weights(judged, height))[0].mean() == pytest.approx(
            slow.ips_slots(rounds, nodes=True)
        )
        assert offcem_terms(judged, height).mean() == pytest.approx(slow.doubly_robust(rounds, nodes=True))


@few
@given(seeds)
def test_control_variates_are_their_twins(seed: int) -> None:
    judged, rng = random_rounds(seed), np.random.default_rng([seed, 1])
    n, k = judged.rewards.shape
    covered, largest = rng.random((n, k)), 1 + 3 * rng.random((n, k))
    judged = replace(judged, covered=covered, largest=largest)
    shape = (n, k) if rng.random() < 0.5 else (k,)  # lines of each round, or the same for all
    lines = Lines(*(rng.random(shape) * most for most in (0.5, 0.5, 1.0)))
    caps = [0.0, 0.5, 3.0, np.inf]
    for whole in (True, False):
        values, complements = controlled_terms(judged, judged.prefix_weights(), lines, whole, caps)
        for i, slots in enumerate(as_slots(judged)):
            by = np.stack([np.broadcast_to(a, (n, k))[i] for a in (lines.level, lines.slope, lines.mean)], axis=1)
            support = list(zip(covered[i].tolist(), largest[i].tolist(), strict=True))
            for c, cap in enumerate(caps):
                expected = slow.controlled(slots, [slow.Line(*line) for line in by.tolist()], support, whole, cap)
                assert (values[c, i], complements[c, i]) == pytest.approx(expected, abs=1e-9)


def test_unknown_support_takes_nothing_off() -> None:
    """Without the largest weight of a slot, and without a bound, nothing may be taken off; with a bound, something."""
    judged = random_rounds(3)
    lines = Lines.identity(judged.rewards.shape[1])
    weights = judged.prefix_weights()
    unknown, bounded = (controlled_terms(judged, weights, lines, False, [0.0, 3.0], bound) for bound in (None, 20.0))
    for side in (0, 1):
        np.testing.assert_array_equal(unknown[side][0], unknown[side][1])
        assert (bounded[side][0] != bounded[side][1]).any()


@few
@given(seeds)
def test_parts_of_a_log_add_up(seed: int) -> None:
    judged = random_rounds(seed)
    first = np.random.default_rng(seed).random(len(judged)) < 0.5
    whole, parts = Tally.of(judged), Tally.of(judged.part(first)) + Tally.of(judged.part(~first))
    assert parts.rounds == whole.rounds
    assert parts.served == pytest.approx(whole.served)
    for name, way in whole.ways.items():
        other = parts.ways[name]
        np.testing.assert_allclose(other.value[0].counts, way.value[0].counts, atol=1e-9)
        np.testing.assert_allclose(other.worse[0].counts, way.worse[0].counts, atol=1e-9)
        assert other.sums.value == pytest.approx(way.sums.value)


# -------------------- the truth, by enumeration


class World:
    """All sequences of two of eight arms in one context, with their chances under the log's policy and another."""

    def __init__(self, problem: Problem, learned: treetop.Model, logged: Any, other: Any, k: int = 2) -> None:
        allowed = self.allowed = Eligible.of(problem.tree, [1, 5, 9, 17, 33, 41, 57, 59])
        self.arms = np.array(list(permutations([1, 5, 9, 17, 33, 41, 57, 59], k)), np.int32)
        rows = as_rows(problem.X[np.zeros(len(self.arms), int)])
        tree = problem.tree
        groups = np.stack([tree.leaf_of, tree.parents[tree.leaf_of]]).astype(np.int32)
        self.mu, self.pi = (slot_chances(p, learned, rows, self.arms, allowed, groups) for p in (logged, other))
        self.p, self.q = self.mu.probability.prod(axis=1), self.pi.probability.prod(axis=1)
        self.groups = groups[:, self.arms]

    def judged(self, rewards: Any) -> Judged:
        pi, mu = self.pi, self.mu
        ratio = np.divide(pi.grouped, mu.grouped, out=np.zeros_like(mu.grouped), where=mu.grouped > 0)
        logged = np.where(mu.probability > 0, mu.probability, 1.0)  # what has no chance is never logged
        chances = logged, pi.probability, rewards, rewards.sum(axis=1)
        return Judged(*chances, pi.score, pi.expected, ratio, mu.probability > -1)

    def mean(self, terms: Any) -> float:
        shown = self.p > 0
        return float(self.p[shown] @ terms[shown])


LOGGED = treetop.Policy(2, 2, 60, treetop.EpsilonGreedy(0.6))  # no arm is below a node: every slate has a chance
OTHERS = [
    treetop.Policy(2, 0, 1, treetop.Greedy()),
    treetop.Policy(2, 2, 3, treetop.IGW(C=0.05)),
    treetop.Policy(2, 1, 2, treetop.Budgeted(budget=0.3, evaluation_share=0.2)),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda p: type(p.strategy).__name__)
def test_they_are_unbiased(problem: Problem, learned: treetop.Model, other: treetop.Policy) -> None:
    """Whole slates whatever rewards depend on; slots where a reward depends on the slots up to its own."""
    world, rng = World(problem, learned, LOGGED, other), np.random.default_rng(0)
    assert world.p.sum() == pytest.approx(1)
    assert world.q.sum() == pytest.approx(1)
    anything = rng.random(world.arms.shape)
    judged = world.judged(anything)
    weights, truth = judged.prefix_weights(), float(world.q @ anything.sum(axis=1))
    value, complement = slate_terms(judged, weights)
    assert world.mean(value) == pytest.approx(truth)
    assert world.mean(complement) == pytest.approx(2 - truth)
    assert world.mean(doubly_robust_slate_terms(judged, weights, np.array([0.2, 0.7]))) == pytest.approx(truth)

    first = rng.random(60)
    cascade = np.stack([first[world.arms[:, 0]], rng.random((60, 60))[world.arms[:, 0], world.arms[:, 1]]], axis=1)
    judged, truth = world.judged(cascade), float(world.q @ cascade.sum(axis=1))
    value, complement = slot_terms(judged, weights)
    assert world.mean(value) == pytest.approx(truth)
    assert world.mean(complement) == pytest.approx(2 - truth)
    assert world.mean(doubly_robust_terms(judged, weights)) == pytest.approx(truth)


@pytest.mark.parametrize("height", [0, 1])
def test_tree_aware_ones_are_unbiased_where_their_assumptions_hold(
    problem: Problem, learned: treetop.Model, height: int
) -> None:
    other = treetop.Policy(1, 1, 2, treetop.IGW(C=0.05))
    logged = treetop.Policy(1, 1, 1, treetop.EpsilonGreedy(0.6))
    world, rng = World(problem, learned, logged, other, k=1), np.random.default_rng(0)
    alike = rng.random(200)[world.groups[height]]
    judged = world.judged(alike)
    assert world.mean(slot_terms(judged, node_weights(judged, height))[0]) == pytest.approx(
        float(world.q @ alike[:, 0])
    )
    different = 0.1 * alike + world.pi.score  # the model is wrong by what the node decides
    judged = world.judged(different)
    assert world.mean(offcem_terms(judged, height)) == pytest.approx(float(world.q @ different[:, 0]), rel=1e-5)
    spread, arms = node_weights(judged, height).max(), judged.prefix_weights().max()
    assert spread <= arms + 1e-9, "a node's weight is a mean of those of its arms"


def test_without_support_the_bounds_still_hold(problem: Problem, learned: treetop.Model) -> None:
    """A log that is greedy but for its last slot says nothing about other first slots: value and complement fall."""
    world = World(problem, learned, treetop.Policy(2, 1, 1, treetop.EpsilonGreedy(0.6)), OTHERS[1])
    rewards = np.random.default_rng(0).random(world.arms.shape)
    judged = world.judged(rewards)
    value, complement = slate_terms(judged, judged.prefix_weights())
    truth = float(world.q @ rewards.sum(axis=1))
    assert world.mean(value) < truth < 2 - world.mean(complement)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("cap", [0.3, 3.0])
def test_control_variates_change_no_mean_and_keep_to_their_cap(
    problem: Problem, learned: treetop.Model, whole: bool, cap: float
) -> None:
    """Whatever the lines are, with all support and with little; terms never fall below the cap."""
    for logged in (LOGGED, treetop.Policy(2, 1, 1, treetop.EpsilonGreedy(0.6))):
        world, rng = World(problem, learned, logged, OTHERS[1]), np.random.default_rng(0)
        rows = as_rows(problem.X[np.zeros(len(world.arms), int)])
        served = logged, learned
        beside = shared_chances([OTHERS[1]], learned, rows, world.arms, world.allowed, served=served)[0]
        known: dict[str, Any] = {"covered": beside.covered, "largest": beside.largest, "expected": beside.expected}
        judged = replace(world.judged(rng.random(world.arms.shape)), **known)
        weights, lines = judged.prefix_weights(), Lines(np.array([0.3, 0.1]), np.array([0.2, 0.5]), np.full(2, 0.4))
        terms = slate_terms(judged, weights) if whole else slot_terms(judged, weights)
        for term, found in zip(terms, controlled_terms(judged, weights, lines, whole, [0.0, cap]), strict=True):
            np.testing.assert_allclose(found[0], term, atol=1e-12)
            assert world.mean(found[1]) == pytest.approx(world.mean(term), abs=1e-9)
            assert found[1][world.p > 0].min() >= -cap - 1e-9
            assert np.abs(found[1] - term).max() > 0


def test_huge_weights_are_judged() -> None:
    """A weight of 1e11, beside lines fitted on earlier rounds: nothing is known, and nothing fails."""
    n = 300
    one, hits = np.ones((n, 1)), (np.arange(n) % 2)[:, None].astype(float)
    logged = np.where(np.arange(n)[:, None] == n - 1, 1e-11, 1.0)
    rest = 0.5 * one, 0.5 * one, np.zeros((n, 1, 0)), one > 0
    judged = Judged(logged, one, hits, hits[:, 0], *rest, covered=one, largest=one / logged)
    for known in (judged, replace(judged, covered=None, largest=None)):
        found = judge("rare", Tally.of(known), {}, estimator="snips-slots")
        assert 0 <= found.per_visit.low <= found.per_visit.high <= 1
        assert found.effective == pytest.approx(1, abs=0.01)


def test_served_as_it_was_weighs_one(problem: Problem, learned: treetop.Model) -> None:
    shown = LOGGED.decide_batch(learned, problem.X, seed=3)
    p = LOGGED.probability_batch(learned, problem.X, shown.arms).slots
    rewards = problem.hits(shown.arms).astype(float)
    nothing = np.zeros_like(rewards)
    judged = Judged(
        shown.propensities, p, rewards, rewards.sum(axis=1), nothing, nothing, nothing[:, :, None], nothing == 0
    )
    tally = Tally.of(judged)
    for name in (SLATE, SLOTS):
        way = tally.ways[name]
        assert way.sums.effective == pytest.approx(600)
        assert way.sums.value == pytest.approx(rewards.sum(axis=1).mean())
        assert way.difference.error == pytest.approx(0, abs=1e-12)
