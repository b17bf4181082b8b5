"""The chance of given slots: what `decide` records, what the twin enumerates, and how often it is drawn."""

from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from helpers.budgeted import Twin
from helpers.frequencies import fits
from helpers.problems import Halving, Problem
from helpers.reference import STRATEGIES, Floats, search
from helpers.reference_probability import budgeted_slates, slates, slot_by_slot
from helpers.strategies import Case, cases, csr, engine, few, seeds
from hypothesis import given
from hypothesis import strategies as st

import treetop
from treetop import Budgeted, Policy, _core
from treetop.arrays import as_rows
from treetop.bandit.growth import grow
from treetop.policy.eligibility import EVERY_ARM, Eligible
from treetop.policy.probability import shared_chances, slot_chances
from treetop.policy.search import search as search_model

NO_LIST, NO_ROWS = np.zeros(0, np.int32), np.zeros(0, np.int64)
LARGE = Budgeted(budget=0.3, evaluation_share=0.2, evaluation_floor=0.6, new_arms_budget=0.1)
HOW = [
    treetop.Greedy(),
    treetop.IGW(C=0.05),
    treetop.Boltzmann(0.5),
    treetop.EpsilonGreedy(0.4),
    LARGE,
    replace(LARGE, evaluation_share=0.0),
    Budgeted(),
]


@pytest.fixture(scope="module")
def pooled(problem: Problem) -> treetop.Model:
    """A model of treetop's learner, with added arms and values of exploring."""
    learned = treetop.refit(problem.model, problem.feedback(600), treetop.Pooled())
    assert learned.pooled is not None
    value = np.where(np.arange(60) % 2, 0, 1 / (1 + np.arange(60))).astype(np.float32)
    return grow(replace(learned, pooled=replace(learned.pooled, trial_value=value)), 4, max_leaf=8)


def allowed_sets(n: int, arms: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "all": {},
        "few": {"eligible": [1, 5, 9, 17, 33, 41, 57]},
        "less": {"exclude": list(range(0, arms, 3))},
        "rows": {"eligible": rng.random((n, arms)) < 0.3},
    }


# -------------------- against `decide`


@pytest.mark.parametrize("which", ["all", "few", "less", "rows"])
@pytest.mark.parametrize(("k", "explore"), [(1, 1), (3, 2), (3, 0), (5, 5)])
@pytest.mark.parametrize("strategy", HOW, ids=str)
def test_it_is_what_decide_records(
    problem: Problem, learned: treetop.Model, pooled: treetop.Model, strategy: Any, k: int, explore: int, which: str
) -> None:
    """To the last bit, through nodes too, by beam and by adaptive search, on any number of threads."""
    through = 0
    for model in (learned, pooled):
        given_sets = allowed_sets(200, model.n_arms)[which]
        for policy in (Policy(k, explore, 2, strategy), Policy(k, explore, 2, strategy, beta=0.3, threads=3)):
            shown = policy.decide_batch(model, problem.X[:200], seed=1, **given_sets)
            found = policy.probability_batch(model, problem.X[:200], shown.arms, **given_sets)
            np.testing.assert_array_equal(found.slots, shown.propensities)
            chance = np.where(shown.arms < 0, 1, shown.propensities).prod(axis=1)
            np.testing.assert_allclose(found.whole, chance, rtol=1e-12)
            through += int((shown.nodes >= 0).sum())
    assert through > 0 or isinstance(strategy, treetop.Greedy | Budgeted) or explore == 0


def test_a_strategy_written_in_python(problem: Problem, learned: treetop.Model) -> None:
    policy = Policy(3, 2, 2, Halving())
    for name, sets in allowed_sets(40, 60).items():
        shown = policy.decide_batch(learned, problem.X[:40], seed=1, **sets)
        found = policy.probability_batch(learned, problem.X[:40], shown.arms, **sets)
        np.testing.assert_allclose(found.slots, shown.propensities, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("strategy", [treetop.Greedy(), treetop.IGW(C=0.05), treetop.EpsilonGreedy(0.4)], ids=str)
def test_the_slow_path_is_a_twin_of_the_native_one(
    problem: Problem, learned: treetop.Model, strategy: treetop.Strategy
) -> None:
    """Also where the given arms are not what the policy would show, and for groups of arms."""

    class Slow:
        def probabilities(self, scores: Floats, n_seen: int) -> Floats:
            return strategy.probabilities(scores, n_seen)

    rng, x = np.random.default_rng(2), as_rows(problem.X[:60])
    arms = np.array([rng.permutation(60)[:3] for _ in range(60)], np.int32)
    arms[::7, 2] = -1
    cuts = np.stack([problem.tree.leaf_of, problem.tree.parents[problem.tree.leaf_of]])
    for eligible in (EVERY_ARM, Eligible.of(problem.tree, exclude=[0, 1, 2, 30])):
        fast, slow = (
            slot_chances(Policy(3, 2, 2, how), learned, x, arms, eligible, cuts) for how in (strategy, Slow())
        )
        for name in ("probability", "nodes", "score", "expected", "grouped"):
            np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-5, atol=1e-9, err_msg=name)


def test_policies_that_search_alike_share_it(problem: Problem, pooled: treetop.Model) -> None:
    rng, x = np.random.default_rng(3), as_rows(problem.X[:60])
    arms = np.array([rng.permutation(64)[:3] for _ in range(60)], np.int32)
    cut = pooled.tree.leaf_of[None]
    ways: list[Any] = [*HOW, Halving()]
    policies = [Policy(3, e, beam, how) for how in ways for e in (1, 3) for beam in (1, 4)]
    together = shared_chances(policies, pooled, x, arms, EVERY_ARM, cut)
    for policy, found in zip(policies, together, strict=True):
        alone = slot_chances(policy, pooled, x, arms, EVERY_ARM, cut)
        for name in ("probability", "nodes", "score", "expected", "grouped"):
            np.testing.assert_array_equal(getattr(found, name), getattr(alone, name))


@pytest.mark.parametrize("which", ["all", "few", "less"])
@pytest.mark.parametrize("served", [treetop.EpsilonGreedy(0.4), treetop.Greedy(), LARGE], ids=str)
def test_what_the_served_policy_may_show_is_summed_arm_by_arm(
    problem: Problem, learned: treetop.Model, served: Any, which: str
) -> None:
    """Given the same slot before: over all arms that both may show, their chance, scores and largest ratio of chances.

    The two policies search with other beams, so that an arm of one is below a node of the other.
    """
    allowed = Eligible.listed(problem.tree, **allowed_sets(1, 60)[which])
    logged = Policy(2, 2, 1, served)
    first = int(logged.decide(learned, problem.X[3], "visit", allowed).arms[0])
    others = [a for a in range(60) if a != first]
    arms = np.array([[first, a] for a in others], np.int32)
    x = as_rows(problem.X[np.full(len(arms), 3)])
    for other in (Policy(2, 2, 4, treetop.IGW(C=0.05)), Policy(2, 0, 1, treetop.Greedy())):
        found = shared_chances([other], learned, x, arms, allowed, served=(logged, learned))[0]
        p = slot_chances(logged, learned, x, arms, allowed).probability[:, 1]
        q, score = found.probability[:, 1], found.score[:, 1]
        both = (p > 0) & (q > 0)
        np.testing.assert_allclose(found.covered[:, 1], q[both].sum(), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(found.expected[:, 1], (q * score)[both].sum(), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(found.largest[:, 1], (q[both] / p[both]).max(initial=0), rtol=1e-9)


# -------------------- against the enumerated twin


def native(case: Case, arms: Any, k: int, explore: int, how: tuple[int, Any], beam: int) -> Any:
    """Slot probabilities of sequences of arms for one context, straight from the core."""
    _, index, value = csr(case.x)
    n, width = arms.shape
    rows = np.arange(n + 1, dtype=np.int64) * len(index), np.tile(index, n), np.tile(value, n)
    positions = case.eligible.positions(case.model.tree)
    asked = [(k, explore, beam, -1.0, *how, 0.0)]
    ask: Any = asked, case.eligible.kind, positions, NO_ROWS, 1, None, NO_LIST, None, []
    return _core.slot_probabilities(engine(case.model), *rows, arms.reshape(-1).astype(np.int32), width, *ask)[0][0]


RATES = [(0, 0.0), (1, 0.0), (1, 3.0), (1, 1e4), (2, 2.0), (3, 0.3), (3, 1.0)]


@few
@given(cases, st.integers(1, 2), st.integers(0, 2), st.sampled_from(RATES), st.integers(1, 3))
def test_every_sequence_has_the_chance_of_the_twin(
    case: Case, k: int, explore: int, how: tuple[int, float], beam: int
) -> None:
    """Also those that cannot be shown; together they are certain."""
    explore, tree = min(k, explore), case.model.tree
    found = search(case.model, case.x, case.eligible_arms, k, beam)
    arms_of = [[a for a in tree.arms_below(e.id) if a in case.eligible_arms] if e.is_node else [e.id] for e in found]
    twin = slates(np.array([e.score for e in found]), arms_of, k, explore, STRATEGIES[how[0]], how[1])
    slots = min(k, len(found))
    arms = np.array(list(permutations(range(tree.n_arms), slots)))
    p = native(case, arms, k, explore, how, beam)
    whole = p.prod(axis=1)
    assert whole.sum() == pytest.approx(1)
    expected = np.array([twin.get(tuple(a), 0.0) for a in arms.tolist()])
    np.testing.assert_allclose(whole, expected, rtol=1e-9, atol=1e-15)
    for sequence in list(twin)[:20]:
        row = int(np.flatnonzero((arms == sequence).all(axis=1))[0])
        assert p[row].tolist() == pytest.approx(slot_by_slot(twin, sequence), rel=1e-9)


def twin_of(strategy: Budgeted, model: treetop.Model, row: Any, k: int, explore: int) -> tuple[Twin, list[list[int]]]:
    found = search_model(model, row, 1, None, k, EVERY_ARM, trials=strategy.trials)
    new = np.zeros(len(found)) if found.new_share is None else found.new_share.astype(float)
    columns = found.score.astype(float), found.exploration_value.astype(float), new
    net = model.pooled.exploration_net if model.pooled else 0.0
    s = strategy.after(net)
    budgets = s.budget, s.evaluation_share, s.evaluation_floor, s.new_arms_budget, s.paying_budget, s.largest_chance
    arms_of = [
        model.tree.arms_below(z).tolist() if node else [int(z)] for node, z in zip(found.is_node, found.id, strict=True)
    ]
    return Twin(*columns, k, explore, *budgets, found.prior.astype(float)), arms_of


@few
@given(seeds, st.sampled_from([(1, 1), (2, 1), (2, 2), (2, 0)]), st.sampled_from([0.0, 0.1, 0.4]))
def test_budgeted_sequences_have_the_chance_of_the_twin(seed: int, slots: tuple[int, int], evaluation: float) -> None:
    rng = np.random.default_rng(seed)
    X = np.eye(6, dtype=np.float32)
    model = treetop.Model.initial(treetop.Tree.from_labels(X, X, max_leaf=2), X, X)
    arms = np.array([rng.permutation(6)[:2] for _ in range(40)])
    feedback = treetop.Feedback(X[rng.integers(0, 6, 40)], arms, None, rng.integers(0, 2, (40, 2)))
    model = treetop.refit(model, feedback, treetop.Pooled())
    k, explore = slots
    strategy = replace(LARGE, evaluation_share=evaluation)
    row = as_rows(rng.random((1, 6)).astype(np.float32))
    expected = budgeted_slates(*twin_of(strategy, model, row, k, explore))
    every = np.array(list(permutations(range(6), k)))
    found = Policy(k, explore, 1, strategy).probability_batch(
        model, np.repeat(row.csr().toarray(), len(every), 0), every
    )
    assert found.whole.sum() == pytest.approx(1)
    np.testing.assert_allclose(found.whole, [expected.get(tuple(a), 0.0) for a in every.tolist()], rtol=1e-5, atol=1e-9)


def test_what_draws_have_found_decides_how_much_may_be_spent(problem: Problem, pooled: treetop.Model) -> None:
    """Served, stated and explained alike: the better draws have paid, the rarer is the best arm."""
    assert pooled.pooled is not None
    values = np.full(pooled.n_arms, 50.0, np.float32)  # every draw is worth it, whatever it costs
    policy = Policy(1, 1, 1, Budgeted(evaluation_share=0.0, new_arms_budget=0.0))
    best_chance = []
    for net in (0.02, 0.0, -0.003, -0.006):
        state = replace(pooled.pooled, trial_value=values, exploration_net=net)
        model = replace(pooled, pooled=state)
        view = policy.explain(model, problem.X[0])
        single = np.flatnonzero(~view.is_node)
        at = int(single[np.argmax(view.score[single])])
        chance = policy.probability(model, problem.X[0], [int(view.id[at])]).whole
        assert chance == pytest.approx(view.probability[at], rel=1e-5)
        shown = policy.decide_batch(model, problem.X[np.zeros(4000, int)], seed=1)
        assert (shown.arms[:, 0] == view.id[at]).mean() == pytest.approx(chance, abs=0.03)
        best_chance.append(chance)
    assert (np.diff(best_chance) > 0).all()


# -------------------- against draws


@pytest.mark.parametrize("strategy", HOW, ids=str)
def test_sequences_are_drawn_as_often_as_stated(problem: Problem, pooled: treetop.Model, strategy: Any) -> None:
    draws, eligible = 20_000, [1, 5, 9, 17, 33, 41, 57, 60, 62]
    policy = Policy(2, 2, 1, strategy)
    X = problem.X[np.zeros(draws, int)]
    shown = policy.decide_batch(pooled, X, seed=4, eligible=eligible)
    every = np.array(list(permutations(eligible, 2)))
    found = policy.probability_batch(pooled, problem.X[np.zeros(len(every), int)], every, eligible=eligible)
    counts: Counter[tuple[int, ...]] = Counter(map(tuple, shown.arms.tolist()))
    chance = zip(map(tuple, every.tolist()), found.whole.tolist(), strict=True)
    assert fits(counts, {arms: p for arms, p in chance if p > 0})


def test_the_chance_of_a_group_is_the_sum_over_its_arms(problem: Problem, learned: treetop.Model) -> None:
    """Given the same slot before, at any depth of the tree and with arms left out."""
    allowed = Eligible.of(problem.tree, exclude=[3, 8, 20, 21])
    levels, tree = problem.tree.levels(), problem.tree
    policy, x = Policy(2, 2, 2, treetop.IGW(C=0.05)), problem.X[3]
    first = int(policy.decide(learned, x, "visit", allowed).arms[0])
    arms = np.array([[first, a] for a in range(60) if a != first], np.int32)
    for depth in range(1, tree.depth + 1):
        cut = tree.leaf_of.copy()
        while (levels[cut] > depth).any():
            cut = np.where(levels[cut] > depth, tree.parents[cut], cut)
        rows = as_rows(problem.X[np.full(len(arms), 3)])
        found = slot_chances(policy, learned, rows, arms, allowed, cut[None].astype(np.int32))
        p, group = found.probability[:, 1], cut[arms[:, 1]]
        expected = [p[group == g].sum() for g in group]
        np.testing.assert_allclose(found.grouped[:, 1, 0], expected, rtol=1e-9, atol=1e-15)


# -------------------- the front


def test_what_comes_after_the_impossible_is_impossible(problem: Problem, learned: treetop.Model) -> None:
    policy = Policy(3, 0)
    best = policy.decide(learned, problem.X[0], "visit").arms.tolist()
    assert policy.probability(learned, problem.X[0], best).slots.tolist() == [1, 1, 1]
    found = policy.probability(learned, problem.X[0], [best[1], best[0], best[2]])
    assert (found.slots.tolist(), found.whole) == ([0, 0, 0], 0)
    assert policy.probability(learned, problem.X[0], best[:2]).whole == 1
    assert policy.probability(learned, problem.X[0], [best[0], best[0]]).slots.tolist() == [1, 0]
    assert policy.probability(learned, problem.X[0], best, exclude=[best[0]]).whole == 0


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ([0, 1, 2, 3], "there are 4 arms a context; a decision of this policy has 1 to 3"),
        ([0, 99], "99"),
        ([[0, 1], [2, 3]], r"arms have shape \(2, 2\); 1 contexts need \(1, slots\)"),
        ([-1, 2], "row 0: an arm after -1"),
    ],
)
def test_wrong_arms_are_refused(problem: Problem, learned: treetop.Model, arms: Any, says: str) -> None:
    with pytest.raises((ValueError, IndexError), match=says):
        Policy(3, 1).probability(learned, problem.X[0], arms)


def test_the_core_refuses_what_does_not_fit(problem: Problem, learned: treetop.Model) -> None:
    def ask(arms: Any, groups: Any = NO_LIST) -> None:
        x = as_rows(problem.X[:1])
        rest: Any = [(3, 1, 10, -1.0, 0, 0.0, 0.0)], 0, NO_LIST, NO_ROWS, 1, None, groups, None, []
        _core.slot_probabilities(learned.engine, x.start, x.index, x.value, np.array(arms, np.int32), 1, *rest)

    with pytest.raises(ValueError, match="2 arms for 1 contexts"):
        ask([0, 0])
    with pytest.raises(ValueError, match="1 groups for 60 arms"):
        ask([0], np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="an arm is 60"):
        ask([60])
    with pytest.raises(ValueError, match="a group is 999"):
        ask([0], np.full(60, 999, np.int32))
