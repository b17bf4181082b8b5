"""Budgeted exploration: stated propensities against the enumerating twin, drawn frequencies, and what is spent."""

import math
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from helpers.budgeted import Twin
from helpers.frequencies import fits
from helpers.problems import Problem, check_drawn_as_explained
from helpers.strategies import many, seeds
from hypothesis import given
from hypothesis import strategies as st

import treetop
from treetop import Budgeted, Candidates, Model, Pooled, _core
from treetop.bandit.growth import grow
from treetop.policy.draws import choose
from treetop.policy.eligibility import Eligible
from treetop.policy.search import search
from treetop.policy.strategies import make_strategy
from treetop.policy.trial_counts import packed_counts, trial_counts, unpacked_counts

DRAWS = 30_000
NOTHING: dict[str, Any] = {"budget": 0.0, "evaluation_share": 0.0, "new_arms_budget": 0.0, "paying_budget": 0.0}


def candidates(rng: np.random.Generator, n: int, new: bool = True) -> Candidates:
    """Three arms in five single, scores of many ties, some below 0."""
    is_node = np.sort(rng.random(n) < 0.4)
    ids = np.concatenate([np.sort(rng.choice(50, size=m, replace=False)) for m in ((~is_node).sum(), is_node.sum())])
    score = (rng.integers(-2, 9, size=n) / 8).astype(np.float32)
    value = np.where(rng.random(n) < 0.3, 0, rng.random(n)).astype(np.float32)
    share = np.where(rng.random(n) < 0.5, 0, rng.random(n)).astype(np.float32) if new else None
    prior = np.where(rng.random(n) < 0.5, score, rng.integers(-2, 9, size=n) / 8).astype(np.float32)
    return Candidates(is_node, ids.astype(np.int32), np.ones(n), score, value, new_share=share, prior=prior)


def candidates_of(score: list[float], value: list[float]) -> Candidates:
    """Single arms."""
    n = len(score)
    ids, scores, values = np.arange(n, dtype=np.int32), np.array(score, np.float32), np.array(value, np.float32)
    return Candidates(np.zeros(n, np.bool_), ids, np.ones(n), scores, values)


def twin_of(strategy: Budgeted, found: Candidates, k: int, explore: int) -> Twin:
    new = np.zeros(len(found)) if found.new_share is None else found.new_share.astype(float)
    return Twin(
        found.score.astype(float),
        found.exploration_value.astype(float),
        new,
        k,
        explore,
        strategy.budget,
        strategy.evaluation_share,
        strategy.evaluation_floor,
        strategy.new_arms_budget,
        strategy.paying_budget,
        strategy.largest_chance,
        found.prior.astype(float),
    )


LARGE = Budgeted(budget=0.3, evaluation_share=0.2, evaluation_floor=0.6, new_arms_budget=0.1)


@pytest.mark.parametrize(("k", "explore"), [(1, 1), (1, 0), (3, 2), (3, 0), (3, 3), (6, 2)])
@pytest.mark.parametrize(
    "strategy", [LARGE, replace(LARGE, evaluation_share=0.0), replace(LARGE, evaluation_share=0.5)]
)
def test_draws_follow_the_enumerated_distribution(strategy: Budgeted, k: int, explore: int) -> None:
    """Also which slots of evaluation events were drawn: the propensities of all of them are marginal."""
    found = candidates(np.random.default_rng(3), 5)
    twin = twin_of(strategy, found, k, explore)
    possible = twin.decisions()
    counts: Counter[tuple[int, ...]] = Counter()
    stated: dict[tuple[int, ...], list[float]] = {}
    for key in _core.row_keys(2024, 0, DRAWS).tolist():
        chosen, probability, explored = choose(found, k, explore, strategy, 9, key)
        decision = tuple(chosen.tolist())
        counts[decision] += 1
        stated[decision] = probability.tolist()
        assert explored.tolist() == [i != twin.ranked(decision[:s])[0] for s, i in enumerate(decision)]
    assert fits(counts, {d: sum(p) for d, p in possible.items() if len(d) == twin.slots})
    for decision, slots in stated.items():
        assert slots == pytest.approx(twin.propensities(possible, decision), rel=1e-9)


budgets = st.tuples(*[st.sampled_from([0.0, 0.003, 0.2, 1.0])] * 4)


@many
@given(seeds, st.integers(1, 6), st.integers(1, 5), st.integers(0, 5), budgets, st.booleans())
def test_stated_probabilities_are_those_of_both_twins(
    seed: int, n: int, k: int, explore: int, shares: tuple[float, float, float, float], new: bool
) -> None:
    found, explore = candidates(np.random.default_rng(seed), n, new), min(k, explore)
    budget, evaluation, new_arms, paying = shares
    strategy = Budgeted(
        budget, min(1.0, budget / 0.7) * evaluation, new_arms, evaluation_floor=0.7, paying_budget=paying
    )
    twin = twin_of(strategy, found, k, explore)
    for key in range(5):
        chosen, stated, _ = choose(found, k, explore, strategy, 9, key)
        places = tuple(chosen.tolist())
        assert len(places) == len(set(places)) == min(k, n)
        for slot, place in enumerate(places):
            p = strategy.slot_probabilities(found, places[:slot], k, explore)
            assert p.sum() == pytest.approx(1)
            assert p.min() >= -1e-12
            assert not p[list(places[:slot])].any()
            assert stated[slot] == pytest.approx(p[place], rel=1e-9)
        possible = twin.decisions()
        assert stated.tolist() == pytest.approx(twin.propensities(possible, places), rel=1e-9)


@many
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.integers(0, 3), budgets)
def test_what_is_spent_is_within_the_budget(
    seed: int, n: int, k: int, explore: int, shares: tuple[float, float, float, float]
) -> None:
    """By the scores, evaluation included; and every slot of an evaluation event keeps its floor. A new arm is charged
    by what is known without its own rewards: here they say nothing."""
    found, (budget, evaluation, new_arms, paying) = candidates(np.random.default_rng(seed), n), shares
    found = replace(found, prior=found.score)
    strategy = Budgeted(
        budget, min(1.0, budget / 0.7) * evaluation, new_arms, evaluation_floor=0.7, paying_budget=paying
    )
    twin = twin_of(strategy, found, k, min(k, explore))
    possible = twin.decisions()
    assert sum(sum(p) for d, p in possible.items() if len(d) == twin.slots) == pytest.approx(1)
    assert twin.cost(possible) <= (max(budget, paying) + new_arms) * twin.expected() + 1e-9
    floor = strategy.evaluation_share * 0.7 / n
    assert strategy.slot_probabilities(found, (), k, min(k, explore)).min() >= floor - 1e-12


def test_cheap_slots_explore_more() -> None:
    cheap, dear = (candidates_of(score, [1.0] * 3) for score in ([0.3, 0.29, 0.28], [0.3, 0.1, 0.0]))
    strategy = Budgeted(budget=0.01, evaluation_share=0, paying_budget=0)
    first, second = (strategy.candidate_probabilities(c, 9) for c in (cheap, dear))
    assert first[0] < second[0]
    assert float(second @ (0.3 - dear.score)) == pytest.approx(0.01 * 0.3)


def test_a_decision_without_slots_to_draw_still_evaluates() -> None:
    found = candidates(np.random.default_rng(1), 5, new=False)
    strategy = Budgeted(budget=0.5, evaluation_share=0.3)
    drawn = [choose(found, 2, 0, strategy, 9, key)[2] for key in _core.row_keys(1, 0, 4000).tolist()]
    other = np.mean([explored[0] for explored in drawn])
    assert other == pytest.approx(0.3 * 0.5 * 4 / 5, abs=4 * math.sqrt(0.12 * 0.88 / 4000))


def test_whether_an_event_evaluates_follows_from_its_key() -> None:
    found = candidates(np.random.default_rng(1), 5)
    keys = _core.row_keys(5, 0, 2000).tolist()
    for key in keys:
        again = [choose(found, 3, 2, LARGE, 9, key) for _ in range(2)]
        assert [part.tobytes() for part in again[0]] == [part.tobytes() for part in again[1]]


def test_nothing_to_spend_is_greedy_where_it_would_cost() -> None:
    found = candidates_of([0.1, 0.5, 0.3, 0.2], [1.0] * 4)
    for key in range(200):
        chosen, stated, explored = choose(found, 2, 1, Budgeted(**NOTHING), 9, key)
        assert (chosen.tolist(), stated.tolist(), explored.tolist()) == ([1, 2], [1, 1], [False, False])


# -------------------- over a tree


@pytest.fixture(scope="module")
def grown(problem: Problem) -> Model:
    """A learned model to which arms were added, and of which half of the arms are worth a trial."""
    learned = treetop.refit(problem.model, problem.feedback(600), Pooled())
    assert learned.pooled is not None
    value = np.where(np.arange(60) % 2, 0, 1 / (1 + np.arange(60))).astype(np.float32)
    return grow(replace(learned, pooled=replace(learned.pooled, trial_value=value)), 4, max_leaf=8)


FEW = [1, 5, 9, 17, 33, 41, 57, 60, 62]


@pytest.mark.parametrize("eligible", [None, FEW], ids=["all", "few"])
@pytest.mark.parametrize(("k", "explore"), [(1, 1), (3, 2), (3, 0), (3, 3)])
def test_decisions_over_a_tree_state_their_propensities(
    problem: Problem, grown: Model, eligible: list[int] | None, k: int, explore: int
) -> None:
    """A node's chance is shared out among the eligible arms below it, and new arms are drawn where they are."""
    policy = treetop.Policy(k, explore, beam=1, strategy=LARGE)
    allowed = np.isin(np.arange(64), np.arange(64) if eligible is None else eligible)
    one = Eligible.of(grown.tree, allowed)
    for i in range(30):
        row = problem.feedback(600).contexts.row(i)
        found = search(grown, row, 1, None, k, one, trials=(20, None))
        place = {(bool(v), int(a)): at for at, (v, a) in enumerate(zip(found.is_node, found.id, strict=True))}
        decided = policy.decide(grown, row.csr(), event_id=f"visit {i}", eligible=eligible)
        taken: list[int] = []
        for arm, node, stated in zip(decided.arms, decided.nodes, decided.propensities, strict=True):
            p = LARGE.slot_probabilities(found, taken, k, explore)
            taken.append(place[bool(node >= 0), int(node if node >= 0 else arm)])
            below = int(allowed[grown.tree.arms_below(int(node))].sum()) if node >= 0 else 1
            assert stated == pytest.approx(p[taken[-1]] / below, rel=1e-6)


def test_draws_over_a_tree_are_as_explained(problem: Problem, grown: Model) -> None:
    row = problem.feedback(600).contexts.csr()[5]
    check_drawn_as_explained(treetop.Policy(k=1, explore=1, beam=2, strategy=LARGE), grown, row)


def test_new_shares_are_of_trials_that_arms_miss(problem: Problem, grown: Model) -> None:
    row = problem.feedback(600).contexts.row(0)
    assert grown.pooled is not None
    assert grown.pooled.new_trials is not None
    tried = np.where(np.arange(64) == 61, 20, np.where(np.arange(64) == 63, 5, grown.pooled.new_trials))
    model = replace(grown, pooled=replace(grown.pooled, new_trials=tried))
    allowed = np.arange(64) != 62
    found = search(model, row, 64, None, 1, Eligible.of(model.tree, allowed), trials=(20, None))
    assert found.new_share is not None
    for node, arm, share in zip(found.is_node, found.id, found.new_share, strict=True):
        assert share == (0 if node else {60: 1, 63: 0.75}.get(int(arm), 0))
    assert (found.new_share > 0).any()
    assert search(model, row, 1, None, 1, Eligible.of(model.tree, allowed)).new_share is None


def test_an_added_arm_is_shown_at_most_by_its_own_budget(problem: Problem, grown: Model) -> None:
    """With a budget for new arms they are shown, without one by exploration alone; after their trials like others."""
    X = problem.feedback(600).contexts.csr()
    assert grown.pooled is not None
    assert grown.pooled.new_trials is not None
    done = replace(grown, pooled=replace(grown.pooled, new_trials=np.where(grown.pooled.new_trials >= 0, 20, -1)))
    shown = []
    for model, share in ((grown, 0.1), (grown, 0.0), (done, 0.1)):
        strategy = Budgeted(budget=0.0, evaluation_share=0.0, new_arms_budget=share, paying_budget=0.0)
        arms = treetop.Policy(strategy=strategy, beam=2).decide_batch(model, X, seed=1).arms
        shown.append(int((arms >= 60).sum()))
    assert shown[0] > shown[1] + 50
    assert shown[1] == shown[2]


def test_more_is_spent_where_a_draw_brings_more_than_it_costs() -> None:
    score = [0.3, 0.1, 0.0]
    strategy = Budgeted(budget=0.01, evaluation_share=0.0, paying_budget=0.1)
    for value, spent in ((0.0, 0.01), (0.05, 0.002), (0.25, 0.01), (0.5, 0.05), (5.0, 0.095)):
        found = candidates_of(score, [0.0, value, value])
        p = strategy.candidate_probabilities(found, 9)
        assert float(p @ (0.3 - found.score)) == pytest.approx(0.3 * spent, rel=1e-6)


def test_less_is_spent_on_new_arms_where_they_are_dear() -> None:
    strategy = Budgeted(**{**NOTHING, "new_arms_budget": 0.01})
    for gap, spent in ((0.05, 0.01), (0.2, 0.01), (0.4, 0.005), (0.8, 0.0025)):
        score = np.array([1.0, 1 - gap], np.float32)
        ids, share, nothing = np.arange(2, dtype=np.int32), np.array([0, 1], np.float32), np.zeros(2, np.float32)
        found = Candidates(np.zeros(2, bool), ids, np.ones(2), score, nothing, new_share=share, prior=score)
        p = strategy.slot_probabilities(found, (), k=1, explore=1)
        assert p[1] * gap == pytest.approx(spent, rel=1e-5)


# -------------------- settings


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"budget": 1.5}, "budget is 1.5"),
        ({"budget": -0.1}, "budget is -0.1"),
        ({"evaluation_share": 2}, "evaluation_share is 2"),
        ({"evaluation_floor": -1}, "evaluation_floor is -1"),
        ({"new_arms_budget": float("nan")}, "new_arms_budget is nan"),
        ({"new_arm_trials": -1}, "new_arm_trials is -1"),
        ({"paying_budget": 3}, "paying_budget is 3"),
        ({"largest_chance": 1.1}, "largest_chance is 1.1"),
        (
            {"evaluation_share": 0.1},
            "evaluation_share 0.1 times evaluation_floor 0.5 is 0.05; it is paid from budget, 0.005",
        ),
    ],
)
def test_settings_are_checked(bad: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Budgeted(**bad)  # type: ignore[arg-type]


def test_by_name_it_is_the_same() -> None:
    assert make_strategy("budgeted", asdict(LARGE)) == LARGE


@pytest.mark.parametrize(
    ("kind", "rate", "why"),
    [
        (4, 0.1, "strategy 4 takes a list"),
        (1, [0.1] * 7, "strategy 1 takes one number"),
        (4, [0.1] * 6, "a budget has 7 numbers, not 6"),
        (4, [0.1] * 6 + [1.9], "largest_chance"),
    ],
)
def test_the_core_refuses_what_is_no_budget(kind: int, rate: Any, why: str) -> None:
    found = candidates(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match=why):
        _core.choose(found.score, found.is_node, found.id, 1, 1, kind, rate, 0)
    with pytest.raises(ValueError, match="must have one length"):
        _core.choose(found.score, found.is_node, found.id, 1, 1, 0, 0.0, 0, found.score[:2])


# -------------------- counts of trials that are newer than the model's


def test_newer_counts_of_trials_decide_as_a_model_that_has_them(problem: Problem, grown: Model) -> None:
    X = problem.feedback(600).contexts.csr()
    assert grown.pooled is not None
    assert grown.pooled.new_trials is not None
    arms, counts = np.array([60, 61, 63], np.int32), np.array([3, 20, 19], np.int32)
    tried = grown.pooled.new_trials.copy()
    tried[arms] = counts
    counted = replace(grown, pooled=replace(grown.pooled, new_trials=tried))
    now = replace(LARGE, trial_counts=packed_counts(arms, counts))
    live, model = treetop.Policy(k=3, explore=2, beam=1, strategy=now), treetop.Policy(3, 2, 1, LARGE)
    expected, found = model.decide_batch(counted, X, seed=1), live.decide_batch(grown, X, seed=1)
    before = model.decide_batch(grown, X, seed=1)
    assert (found.arms == expected.arms).all()
    assert (found.propensities == expected.propensities).all()
    assert (before.propensities != expected.propensities).any()
    stated = live.probability_batch(grown, X, found.arms).slots
    assert (stated == found.propensities).all()
    for i in range(5):
        one, other = live.decide(grown, X[i], f"visit {i}"), model.decide(counted, X[i], f"visit {i}")
        assert (one.arms == other.arms).all()
        assert (one.propensities == other.propensities).all()
        told = live.explain(grown, X[i]), model.explain(counted, X[i])
        shares = [None if each.new_share is None else each.new_share.tolist() for each in told]
        assert shares[0] == shares[1]


@given(st.dictionaries(st.integers(0, 2**31 - 2), st.integers(0, 10**9)))
def test_counts_of_trials_come_back_from_text(counts: dict[int, int]) -> None:
    arms = np.array(sorted(counts), np.int32)
    numbers = np.array([counts[arm] for arm in sorted(counts)], np.int32)
    text = packed_counts(arms, numbers)
    found, known = unpacked_counts(text)
    assert found.tolist() == arms.tolist()
    assert known.tolist() == numbers.tolist()
    assert (trial_counts(text) is None) == (not counts)


@pytest.mark.parametrize("text", ["counts", "c$}", packed_counts(np.array([3, 2]), np.array([1, 1]))])
def test_text_that_is_no_counts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="trial"):
        Budgeted(trial_counts=text)
