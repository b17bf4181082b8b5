"""Decisions through the Python front: replay, batches, eligibility, explanations, strategies of the user's own."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.problems import Halving, Problem
from scipy.stats import chisquare

import treetop
from treetop.arrays import Floats

ALL_STRATEGIES = [
    treetop.Greedy(),
    treetop.IGW(C=0.05),
    treetop.Boltzmann(0.5),
    treetop.EpsilonGreedy(0.4),
    treetop.Budgeted(budget=0.3, evaluation_share=0.1),
    treetop.IGW(gamma="theorem1", horizon=600, functions=100, delta=0.1),
    treetop.IGW(gamma="theorem2", horizon=600, functions=100, delta=0.1, epsilon=0.05),
]


def test_the_same_event_replays_and_batches_agree(problem: Problem, learned: treetop.Model) -> None:
    policy = treetop.Policy()
    names = [f"event {i}" for i in range(50)]
    batch = policy.decide_batch(learned, problem.X[:50], event_ids=names)
    for i, name in enumerate(names):
        d = policy.decide(learned, problem.X[i], event_id=name)
        for field in ("arms", "nodes", "propensities", "scores", "explored"):
            np.testing.assert_array_equal(getattr(d, field), getattr(batch[i], field))
        assert d.event_id == name == batch[i].event_id
        assert len(set(d.arms.tolist())) == 5
    assert policy.decide(learned, problem.X[0]).event_id != policy.decide(learned, problem.X[0]).event_id


def test_a_batch_cut_in_two_decides_the_same_on_any_number_of_threads(problem: Problem, learned: treetop.Model) -> None:
    policy, three = treetop.Policy(threads=1), treetop.Policy(threads=3)
    whole = policy.decide_batch(learned, problem.X, seed=9)
    parts = [three.decide_batch(learned, problem.X[a:b], seed=9, first_row=a) for a, b in pairwise([0, 251, 600])]
    np.testing.assert_array_equal(whole.arms, np.concatenate([p.arms for p in parts]))
    np.testing.assert_array_equal(whole.propensities, np.concatenate([p.propensities for p in parts]))
    assert (policy.decide_batch(learned, problem.X, seed=10).arms != whole.arms).any()


@pytest.mark.parametrize("strategy", [*ALL_STRATEGIES, Halving()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("masked", [False, True])
def test_first_drawn_slot_matches_the_explanation(
    problem: Problem, learned: treetop.Model, strategy: treetop.Strategy, masked: bool
) -> None:
    """k = explore = 1: frequencies and propensities follow explain's probabilities, spread evenly below nodes."""
    policy = treetop.Policy(k=1, explore=1, beam=3, strategy=strategy)
    eligible = np.arange(60) % 3 > 0 if masked else None
    x, n = problem.X[7], 4000
    view = policy.explain(learned, x, eligible=eligible)
    assert view.probability.sum() == pytest.approx(1, abs=1e-12)
    want = np.zeros(60)
    for is_node, i, p in zip(view.is_node, view.id, view.probability, strict=True):
        arms = problem.tree.arms_below(i) if is_node else np.array([i])
        arms = arms if eligible is None else arms[eligible[arms]]
        want[arms] += p / len(arms)
    events = list(range(n))
    d = policy.decide_batch(learned, _repeat(x, n), event_ids=events, eligible=eligible)
    np.testing.assert_allclose(d.propensities[:, 0], want[d.arms[:, 0]], rtol=1e-9)
    drawn = np.bincount(d.arms[:, 0], minlength=60)
    assert (drawn[want == 0] == 0).all()
    enough = want * n >= 5
    seen, expected = np.append(drawn[enough], drawn[~enough].sum()), np.append(want[enough], want[~enough].sum()) * n
    keep = expected > 1e-9
    if keep.sum() > 1:
        assert chisquare(seen[keep], expected[keep] * seen[keep].sum() / expected[keep].sum()).pvalue > 1e-4


def _repeat(x: Any, n: int) -> Any:
    return sp.vstack([x] * n, format="csr")


def test_a_strategy_of_the_users_own_works_everywhere(problem: Problem, learned: treetop.Model) -> None:
    policy = treetop.Policy(k=4, explore=2, beam=2, strategy=Halving())
    d = policy.decide(learned, problem.X[3], event_id="q", exclude=[0, 1, 2])
    assert len(set(d.arms.tolist())) == 4
    assert not {0, 1, 2} & set(d.arms.tolist())
    assert d.explored.tolist() == [False, False, True, True]
    again = policy.decide_batch(learned, problem.X[3], event_ids=["q"], exclude=[0, 1, 2])[0]
    np.testing.assert_array_equal(d.arms, again.arms)
    flat = treetop.FlatPolicy(k=4, explore=2, strategy=Halving())
    model = treetop.FlatModel(60, 40).refit(problem.feedback(200))
    assert len(set(flat.decide(model, problem.X[3], event_id="q").arms.tolist())) == 4


def test_a_user_strategy_that_copies_igw_has_igws_propensities(problem: Problem, learned: treetop.Model) -> None:
    class Copy:
        def probabilities(self, scores: Floats, n_seen: int) -> Floats:
            return treetop.IGW(C=0.05).probabilities(scores, n_seen)

    for strategy in (Copy(), treetop.IGW(C=0.05)):
        policy = treetop.Policy(k=1, explore=1, beam=2, strategy=strategy)
        view = policy.explain(learned, problem.X[5])
        chance = {(bool(n), int(i)): p for n, i, p in zip(view.is_node, view.id, view.probability, strict=True)}
        for event in range(50):
            d = policy.decide(learned, problem.X[5], event_id=event)
            node = int(d.nodes[0])
            size = 1 if node < 0 else int(problem.tree.sizes[node])
            key = (node >= 0, int(d.arms[0]) if node < 0 else node)
            assert d.propensities[0] == pytest.approx(chance[key] / size, rel=1e-9)


@pytest.mark.parametrize("beam", [1, 2, 100])
@pytest.mark.parametrize("n", [1, 3, 5, 20])
def test_any_eligible_set_fills_as_many_slots_as_it_can(
    problem: Problem, learned: treetop.Model, beam: int, n: int
) -> None:
    rng = np.random.default_rng(n)
    policy = treetop.Policy(k=5, explore=3, beam=beam)
    for i in range(30):
        ids = rng.choice(60, n, replace=False)
        mask = np.isin(np.arange(60), ids)
        views = [
            policy.decide(learned, problem.X[i], event_id=i, **how)
            for how in ({"eligible": ids}, {"eligible": mask}, {"exclude": np.flatnonzero(~mask)})
        ]
        for d in views:
            assert len(d) == min(5, n) == len(set(d.arms.tolist()))
            assert set(d.arms.tolist()) <= set(ids.tolist())
            assert (d.propensities > 0).all()
        for d in views[1:]:
            np.testing.assert_array_equal(d.arms, views[0].arms)
            np.testing.assert_array_equal(d.propensities, views[0].propensities)


def test_eligible_and_exclude_together_and_a_mask_per_row(problem: Problem, learned: treetop.Model) -> None:
    policy = treetop.Policy()
    rows = np.random.default_rng(0).random((40, 60)) < 0.4
    d = policy.decide_batch(learned, problem.X[:40], seed=1, eligible=rows, exclude=[7])
    assert all(rows[i, a] and a != 7 for i in range(40) for a in d[i].arms)
    one = policy.decide_batch(learned, problem.X[:40], seed=1, eligible=rows[0], exclude=[7])
    prepared = treetop.Eligible.of(problem.tree, rows[0], [7])
    np.testing.assert_array_equal(
        one.arms, policy.decide_batch(learned, problem.X[:40], seed=1, eligible=prepared).arms
    )
    with pytest.raises(ValueError, match="none of the 60 arms is eligible"):
        policy.decide(learned, problem.X[0], eligible=[3, 4], exclude=[3, 4])


def test_a_batch_without_seed_or_ids_draws_anew_and_can_be_replayed(problem: Problem, learned: treetop.Model) -> None:
    policy = treetop.Policy()
    a, b = (policy.decide_batch(learned, problem.X[:50]) for _ in range(2))
    assert (a.arms != b.arms).any()
    assert a.event_ids is not None
    np.testing.assert_array_equal(policy.decide_batch(learned, problem.X[:50], event_ids=a.event_ids).arms, a.arms)


def test_sets_of_arms_and_models_of_the_wrong_kind(problem: Problem, learned: treetop.Model) -> None:
    policy, flat = treetop.Policy(), treetop.FlatPolicy()
    in_stock = {3, 8, 21, 40, 41, 59}
    a = policy.decide(learned, problem.X[0], event_id=1, eligible=in_stock, exclude={8})
    b = policy.decide(learned, problem.X[0], event_id=1, eligible=sorted(in_stock - {8}))
    np.testing.assert_array_equal(a.arms, b.arms)
    with pytest.raises(TypeError, match="Policy decides with a Model, not with a FlatModel"):
        policy.decide(treetop.FlatModel(60, 40), problem.X[0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="FlatPolicy decides with a FlatModel, not with a Model"):
        flat.decide(learned, problem.X[0])  # type: ignore[arg-type]


def test_greedy_takes_the_best_and_says_so(problem: Problem, learned: treetop.Model) -> None:
    policy = treetop.Policy(strategy=treetop.Greedy(), beam=4)
    for i in range(20):
        d, view = policy.decide(learned, problem.X[i], event_id=i), policy.explain(learned, problem.X[i])
        assert not d.explored.any()
        best = np.lexsort((view.id, view.is_node, -view.score))[:5]
        np.testing.assert_array_equal(d.scores, view.score[best])
        size = [1 if n < 0 else problem.tree.sizes[n] for n in d.nodes]
        np.testing.assert_allclose(d.propensities, 1 / np.array(size))


def test_printing_is_readable(problem: Problem, learned: treetop.Model) -> None:
    policy = treetop.Policy(beam=2)
    text = str(policy.decide(learned, problem.X[0], event_id="visit 7"))
    assert text.startswith("decision visit 7 (epoch 1)")
    assert text.count("\n") == 5
    assert "explored" in text
    view = str(policy.explain(learned, problem.X[0]))
    assert "effective arms" in view
    assert "chance" in view
    assert "epoch 1" in repr(learned)
