"""Strategies through the public front: the paper's gammas, and the whole distribution of decisions on every path."""

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.problems import Problem
from scipy.stats import chisquare

import treetop
from treetop.arrays import Floats
from treetop.policy.draws import draw_probabilities

SCORES = np.array([0.3, 0.9, 0.1, 0.9, -0.2])


def igw(scores: Floats, gamma: float) -> Floats:
    """Section 3.2, written out once more."""
    best = int(np.argmax(scores))
    p = np.array([1 / (len(scores) + gamma * (scores[best] - s)) for s in scores])
    p[best] = 1 - (p.sum() - p[best])
    return p


def test_gamma_of_the_experiments() -> None:
    for C, n in ((1.0, 4096), (0.3, 17), (5.0, 0)):
        want = igw(SCORES, math.sqrt(C * n * len(SCORES)))
        np.testing.assert_allclose(treetop.IGW(C=C).probabilities(SCORES, n), want, rtol=1e-12)


@pytest.mark.parametrize("c", [1.0, 0.25])
def test_gamma_of_the_theorems(c: float) -> None:
    F, delta, T, epsilon, n, A = 1e5, 0.05, 20_000, 0.07, 4096, len(SCORES)
    log = math.log(F * T**3 / delta)
    first = treetop.IGW(gamma="theorem1", functions=F, delta=delta, horizon=T, c=c)
    np.testing.assert_allclose(first.probabilities(SCORES, n), igw(SCORES, math.sqrt(c * A * n / (162 * log)) / 32))
    second = treetop.IGW(gamma="theorem2", functions=F, delta=delta, horizon=T, c=c, epsilon=epsilon)
    gamma = math.sqrt(c * A) / (32 * math.sqrt(420 / n * log + 2 * epsilon**2))
    np.testing.assert_allclose(second.probabilities(SCORES, n), igw(SCORES, gamma))
    for strategy in (first, second):
        np.testing.assert_allclose(strategy.probabilities(SCORES, 0), np.full(A, 1 / A))


def test_a_prime_of_the_theorems_is_z_minus_k_plus_1(problem: Problem, learned: treetop.Model) -> None:
    strategy = treetop.IGW(gamma="theorem1", functions=10, delta=0.5, horizon=600)
    policy = treetop.Policy(k=4, explore=1, beam=2, strategy=strategy)
    for i in range(20):
        view, d = policy.explain(learned, problem.X[i]), policy.decide(learned, problem.X[i], event_id=i)
        order = np.lexsort((view.id, view.is_node, -view.score))
        left = np.sort(order[3:])
        log = math.log(10 * 600**3 / 0.5)
        p = igw(view.score[left].astype(float), math.sqrt((len(view) - 3) * 600 / (162 * log)) / 32)
        node = d.nodes[3] >= 0
        at = np.flatnonzero((view.is_node[left] == node) & (view.id[left] == (d.nodes[3] if node else d.arms[3])))
        size = problem.tree.sizes[d.nodes[3]] if node else 1
        assert d.propensities[3] == pytest.approx(p[at[0]] / size, rel=1e-6)


def test_boltzmann_before_the_first_refit_is_uniform() -> None:
    np.testing.assert_allclose(treetop.Boltzmann(3.0).probabilities(SCORES, 0), np.full(5, 0.2))
    want = np.exp(3.0 * math.log(50) * SCORES)
    np.testing.assert_allclose(treetop.Boltzmann(3.0).probabilities(SCORES, 50), want / want.sum())


class InPython:
    """A built-in strategy in disguise: it takes the path of a strategy of the user's own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        p: Floats = self.inner.probabilities(scores, n_seen)
        return p


STRATEGIES = {
    "igw": (treetop.IGW(C=0.02), reference.igw),
    "boltzmann": (treetop.Boltzmann(0.4), reference.boltzmann),
    "epsilon": (treetop.EpsilonGreedy(0.5), reference.epsilon_greedy),
}


def played(kind: str, strategy: Any, problem: Problem, learned: treetop.Model, n: int) -> tuple[Any, Any]:
    """Many decisions of one context over a few eligible arms, and the effective arms they are made of."""
    few, x = [1, 5, 9, 17, 33, 41, 57], problem.X[11]
    many = sp.vstack([x] * n, format="csr")
    model: Any = learned
    policy: Any = treetop.Policy(k=3, explore=2, beam=1, strategy=strategy)
    if kind == "flat":
        model = treetop.FlatModel(60, 40).refit(problem.feedback(600))
        policy = treetop.FlatPolicy(k=3, explore=2, strategy=strategy)
    return policy.explain(model, x, eligible=few), policy.decide_batch(model, many, seed=3, eligible=few)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("path", ["native", "python"])
@pytest.mark.parametrize("kind", ["tree", "flat"])
def test_decisions_follow_the_enumerated_distribution(
    name: str, path: str, kind: str, problem: Problem, learned: treetop.Model
) -> None:
    """Slot by slot the stated propensity is the enumerated one, and whole decisions are as frequent as enumerated."""
    strategy, twin = STRATEGIES[name]
    n = 6000 if path == "native" else 3000
    view, d = played(kind, strategy if path == "native" else InPython(strategy), problem, learned, n)
    rate = strategy.native(600)[1]  # type: ignore[attr-defined]
    every = reference.decisions(view.score.astype(float), 3, 2, twin, rate)
    place = {(bool(node), int(i)): at for at, (node, i) in enumerate(zip(view.is_node, view.id, strict=True))}
    allowed = np.isin(np.arange(60), [1, 5, 9, 17, 33, 41, 57])
    seen: Counter[tuple[int, ...]] = Counter()
    for i in range(n):
        one = d[i]
        shown = [(bool(v >= 0), int(v if v >= 0 else a)) for a, v in zip(one.arms, one.nodes, strict=True)]
        sequence = tuple(place[s] for s in shown)
        below = [int(allowed[problem.tree.arms_below(v)].sum()) if v >= 0 else 1 for v in one.nodes]
        np.testing.assert_allclose(one.propensities * below, every[sequence], rtol=1e-5)
        assert one.explored.tolist() == [False, True, True]
        seen[sequence] += 1
    chance = {sequence: float(np.prod(p)) for sequence, p in every.items()}
    likely = [s for s in chance if chance[s] * n >= 5]
    counts = np.array([seen[s] for s in likely] + [n - sum(seen[s] for s in likely)])
    expected = np.array([chance[s] * n for s in likely] + [n * (1 - sum(chance[s] for s in likely))])
    keep = expected > 1
    assert chisquare(counts[keep], expected[keep] * counts[keep].sum() / expected[keep].sum()).pvalue > 1e-4


def test_slots_of_a_strategy_in_python_are_drawn_apart(problem: Problem, learned: treetop.Model) -> None:
    """Uniform draws: the second slot does not follow from the first."""
    strategy = InPython(treetop.EpsilonGreedy(1.0))
    policy = treetop.Policy(k=2, explore=2, beam=1000, strategy=strategy)
    pairs = [
        policy.decide(learned, problem.X[0], event_id=i, eligible=list(range(8))).arms.tolist() for i in range(1600)
    ]
    follows = Counter((b - a) % 8 for a, b in pairs)
    assert chisquare([follows[gap] for gap in range(1, 8)]).pvalue > 1e-4
    assert all(a != b for a, b in pairs)
    assert len({tuple(p) for p in pairs}) == 56
    assert any(p != q for p, q in pairwise(pairs))


class Uniform(treetop.Budgeted):
    """A subclass that decides by scores alone."""

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        return np.full(len(scores), 1 / len(scores))


class ByValue(treetop.Budgeted):
    """A subclass that decides by exploration values alone."""

    def candidate_probabilities(self, candidates: treetop.Candidates, n_seen: int) -> Floats:
        value = candidates.exploration_value.astype(float)
        return np.asarray(value / value.sum())


def test_of_two_methods_that_of_the_subclass_is_asked() -> None:
    value = np.array([1, 2, 5], np.float32)
    three = treetop.Candidates(np.zeros(3, bool), np.arange(3, dtype=np.int32), np.ones(3), value, value)
    np.testing.assert_allclose(draw_probabilities(Uniform(), three, 9), np.full(3, 1 / 3))
    np.testing.assert_allclose(draw_probabilities(ByValue(), three, 9), [0.125, 0.25, 0.625])
