"""Slates that cover much: exact chances by the twin, the greedy bound by brute force, a bandit from end to end."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import reference_diversity as slow
from helpers.problems import Problem
from helpers.reference_probability import budgeted_slates
from helpers.strategies import few, seeds
from hypothesis import assume, given
from hypothesis import strategies as st

import treetop
from treetop import Bandit, Budgeted, Catalogue, Policy, evaluate
from treetop.arrays import Floats
from treetop.bandit.results import same_decision
from treetop.learning.saturation import with_saturation
from treetop.model.coverage import Coverage
from treetop.policy.budgeted import EXACT
from treetop.policy.eligibility import EVERY_ARM
from treetop.policy.search import search

STRATEGIES: dict[str, Any] = {
    "greedy": treetop.Greedy(),
    "epsilon": treetop.EpsilonGreedy(0.4),
    "igw": treetop.IGW(C=0.05),
    "boltzmann": treetop.Boltzmann(0.5),
}


weights, saturations = st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([0.0, 0.5, 1.0])


def feedback_of(seed: int, arms: int = 7) -> treetop.Feedback:
    rng, X = np.random.default_rng([seed, 1]), np.eye(arms, dtype=np.float32)
    shown = np.array([rng.permutation(arms)[:2] for _ in range(60)])
    return treetop.Feedback(X[rng.integers(0, arms, 60)], shown, None, rng.integers(0, 2, (60, 2)))


def small_model(seed: int, arms: int = 7) -> treetop.Model:
    """Arms with made-up coverage and learned scores; a beam of 1 leaves nodes among the effective arms."""
    rng = np.random.default_rng(seed)
    X = np.eye(arms, dtype=np.float32)
    model = treetop.Model.initial(treetop.Tree.from_labels(X, X, max_leaf=2), X, X)
    share = (rng.random((arms, 3)) * (rng.random((arms, 3)) < 0.6)).astype(np.float32)
    start, group = 3 * np.arange(arms + 1, dtype=np.int64), np.tile(np.arange(3, dtype=np.int32), arms)
    learned: treetop.Model = treetop.refit(model, feedback_of(seed, arms))
    return replace(learned, coverage=Coverage(start, group, share.ravel(), 3))


def effective(model: treetop.Model, x: Any, beam: int, k: int) -> tuple[Floats, Floats, list[list[int]]]:
    """Scores, what each covers (a node the mean of its arms), and the arms that each may show."""
    found = search(model, treetop.arrays.as_rows(x), beam, None, k, EVERY_ARM)
    assert model.coverage is not None
    table, tree = model.coverage.shares(), model.tree
    arms = [tree.arms_below(z).tolist() if node else [int(z)] for node, z in zip(found.is_node, found.id, strict=True)]
    return found.score.astype(float), np.array([table[below].mean(axis=0) for below in arms]), arms


@few
@given(seeds, st.sampled_from(sorted(STRATEGIES)), st.integers(0, 3), weights, saturations)
def test_every_sequence_has_the_chance_of_the_twin(
    seed: int, name: str, explore: int, weight: float, saturation: float
) -> None:
    model, k = with_saturation(small_model(seed), saturation), 3
    x = np.random.default_rng(seed).random((1, 7)).astype(np.float32)
    for beam in (1, 4):
        scores, shares, arms_of = effective(model, x, beam, k)
        strategy = STRATEGIES[name]
        rate = strategy.native(model.n_seen)[1]
        twin = slow.slates(scores, shares, k, explore, name, rate, weight, saturation)
        policy = Policy(k, explore, beam, strategy, diversity=weight)
        every = np.array(list(permutations(range(7), k)))
        found = policy.probability_batch(model, np.repeat(x, len(every), 0), every)
        assert found.whole.sum() == pytest.approx(1)
        standing = {arm: i for i, below in enumerate(arms_of) for arm in below}
        ways = [tuple(standing[a] for a in arms) for arms in every.tolist()]
        expected = [twin.get(w, 0.0) / np.prod([len(arms_of[i]) for i in w]) for w in ways]
        np.testing.assert_allclose(found.whole, expected, rtol=1e-4, atol=1e-7)


LARGE = Budgeted(budget=0.3, evaluation_share=0.2, evaluation_floor=0.6, new_arms_budget=0.1)


def covering_twin(
    strategy: Budgeted, found: treetop.Candidates, shares: Floats, slots: tuple[int, int], *worth: float
) -> slow.CoveringTwin:
    new = np.zeros(len(found)) if found.new_share is None else found.new_share.astype(float)
    return slow.CoveringTwin(
        found.score.astype(float),
        found.exploration_value.astype(float),
        new,
        *slots,
        strategy.budget,
        strategy.evaluation_share,
        strategy.evaluation_floor,
        strategy.new_arms_budget,
        strategy.paying_budget,
        strategy.largest_chance,
        found.prior.astype(float),
        shares,
        *worth,
    )


@few
@given(seeds, st.integers(0, 3), st.sampled_from([0.0, 0.2, 0.5]), weights, saturations, st.booleans())
def test_every_sequence_within_a_budget_has_the_chance_of_the_twin(
    seed: int, explore: int, evaluation: float, weight: float, saturation: float, valued: bool
) -> None:
    """Of both kinds of events, with new arms and exploration values; what decide records and explain says too."""
    model, k, strategy = small_model(seed), 3, replace(LARGE, evaluation_share=evaluation)
    rng = np.random.default_rng(seed)
    x, rows = rng.random((1, 7)).astype(np.float32), treetop.arrays.as_rows
    if valued:
        trials = np.where(rng.random(7) < 0.3, rng.integers(0, 20, 7), -1).astype(np.int32)
        learned = treetop.refit(model, feedback_of(seed), treetop.Pooled())
        assert learned.pooled is not None
        value = np.where(rng.random(7) < 0.5, 0, rng.random(7)).astype(np.float32)
        model = replace(learned, pooled=replace(learned.pooled, trial_value=value, new_trials=trials))
    model = with_saturation(model, saturation)
    for beam in (1, 4):
        _, shares, arms_of = effective(model, x, beam, k)
        found = search(model, rows(x), beam, None, k, EVERY_ARM, trials=strategy.trials)
        net = model.pooled.exploration_net if model.pooled else 0.0
        twin = covering_twin(strategy.after(net), found, shares, (k, explore), weight, saturation)
        expected = budgeted_slates(twin, arms_of)
        policy = Policy(k, explore, beam, strategy, diversity=weight)
        every = np.array(list(permutations(range(7), k)))
        said = policy.probability_batch(model, np.repeat(x, len(every), 0), every)
        assert said.whole.sum() == pytest.approx(1)
        np.testing.assert_allclose(said.whole, [expected.get(tuple(a), 0) for a in every.tolist()], 1e-4, 1e-7)
        shown = policy.decide_batch(model, np.repeat(x, 300, 0), seed=seed)
        again = policy.probability_batch(model, np.repeat(x, 300, 0), shown.arms)
        np.testing.assert_array_equal(again.slots, shown.propensities)
        first = covering_twin(strategy.after(net), found, shares, (k, k), weight, saturation).decisions()
        stated = [sum(first.get((i,), (0.0,))) for i in range(len(found))]
        np.testing.assert_allclose(policy.explain(model, x).probability, stated, 1e-4, 1e-7)


@few
@given(seeds, st.integers(0, 3), weights, saturations)
def test_what_is_spent_of_scores_and_bonus_is_within_the_budget(
    seed: int, explore: int, weight: float, saturation: float
) -> None:
    """Against the slate that greedy slots would make, which is not the best of all: a draw may even gain. What draws
    are charged adds up to what the decision loses, wherever they stand and whatever they take from others."""
    model, x = small_model(seed), np.random.default_rng(seed).random((1, 7)).astype(np.float32)
    for beam, evaluation in ((1, 0.0), (4, 0.0), (4, 0.05)):
        strategy = Budgeted(budget=0.1, evaluation_share=evaluation)
        found = search(model, treetop.arrays.as_rows(x), beam, None, 3, EVERY_ARM)
        shares = effective(model, x, beam, 3)[1]
        twin = covering_twin(strategy, found, shares, (3, explore), weight, saturation)
        assert twin.cost(twin.decisions()) <= 0.1 * twin.expected() + 1e-9


@few
@given(seeds, st.floats(0, 1), weights)
def test_greedy_slots_come_within_the_bound_where_arms_saturate(seed: int, saturation: float, weight: float) -> None:
    """Arms of one category each, scores up to 1: what a slate earns does not depend on the order then, and is
    submodular."""
    rng = np.random.default_rng(seed)
    model = with_saturation(
        replace(small_model(seed), coverage=Coverage.of_categories(rng.integers(0, 3, 7).tolist())), saturation
    )
    x = rng.random((1, 7)).astype(np.float32)
    if (largest := float(effective(model, x, 60, 3)[0].max())) > 1:
        x /= largest
    scores, shares, _ = effective(model, x, 60, 3)
    assume(scores.max() <= 1)  # the bias of regressors is not scaled
    order = [int(i) for i in search(model, treetop.arrays.as_rows(x), 60, None, 3, EVERY_ARM).id]
    shown = Policy(3, 0, 60, treetop.Greedy(), diversity=weight).decide(model, x, "visit").arms.tolist()
    slate = tuple(order.index(a) for a in shown)
    earned = [slow.value(np.maximum(scores, 0), shares, way, weight, saturation) for way in permutations(slate)]
    assert min(earned) == pytest.approx(max(earned))
    best = slow.best_value(np.maximum(scores, 0), shares, 3, weight, saturation)
    assert max(earned) >= (1 - 1 / np.e) * best - 1e-6


@few
@given(seeds, st.floats(0, 3))
def test_greedy_slots_come_within_the_bound_of_the_best_slate(seed: int, weight: float) -> None:
    """1 - 1/e of what the best of all slates has (Nemhauser et al. 1978). That is of scores that are not negative; what
    is added to all of them alike changes no choice."""
    model = small_model(seed)
    x = np.random.default_rng(seed).random((1, 7)).astype(np.float32)
    scores, shares, _ = effective(model, x, 60, 3)
    chosen = tuple(Policy(3, 0, 60, treetop.Greedy(), diversity=weight).decide(model, x, "visit").arms.tolist())
    scores = scores - min(0.0, float(scores.min()))
    order = [int(i) for i in search(model, treetop.arrays.as_rows(x), 60, None, 3, EVERY_ARM).id]
    slate = tuple(order.index(a) for a in chosen)
    best = slow.best_value(scores, shares, 3, weight)
    assert slow.value(scores, shares, slate, weight) >= (1 - 1 / np.e) * best - 1e-6


@pytest.mark.parametrize("strategy", [*STRATEGIES.values(), Budgeted(budget=0.3, evaluation_share=0.2)], ids=str)
def test_decide_records_it_and_draws_so(problem: Problem, learned: treetop.Model, strategy: Any) -> None:
    """To the last bit; sequences together are certain; explain has the first draw of it."""
    groups = [int(leaf) for leaf in problem.tree.leaf_of]
    model = replace(learned, coverage=Coverage.of_categories(groups))
    policy = Policy(3, 2, 2, strategy, diversity=0.4)
    shown = policy.decide_batch(model, problem.X[:200], seed=1)
    np.testing.assert_array_equal(
        policy.probability_batch(model, problem.X[:200], shown.arms).slots, shown.propensities
    )
    plain = Policy(3, 2, 2, strategy).decide_batch(model, problem.X[:200], seed=1)
    spread, narrow = (np.mean([len({groups[a] for a in row}) for row in d.arms.tolist()]) for d in (shown, plain))
    assert spread > narrow
    view = Policy(1, 1, 2, strategy, diversity=0.4).explain(model, problem.X[0])
    single = np.flatnonzero(~view.is_node)[:5]
    for i in single.tolist():
        chance = Policy(1, 1, 2, strategy, diversity=0.4).probability(model, problem.X[0], [int(view.id[i])]).whole
        assert chance == pytest.approx(view.probability[i], rel=1e-4, abs=1e-9)


def test_a_bandit_keeps_what_arms_cover(tmp_path: Path) -> None:
    """Through files, refits, added arms and replay; candidates are judged by it."""
    rng = np.random.default_rng(0)
    arms = [f"a{i}" for i in range(24)]
    catalogue = Catalogue(arms, rng.normal(size=(24, 6)), [f"shelf {i % 4}" for i in range(24)])
    config = treetop.Config(
        policy=treetop.PolicyConfig(k=3, explore=2, strategy="epsilon", parameters={"epsilon": 0.3}, diversity=0.5)
    )
    with Bandit.create(tmp_path / "shop", catalogue, config=config) as shop:
        for i in range(60):
            served = shop.decide(rng.normal(size=6), f"visit-{i}")
            shop.reward(f"visit-{i}", {arm: float(rng.random() < 0.3) for arm in served.arms})
        shop.refit()
        shop.add_arms(["new"], vectors=rng.normal(size=(1, 6)))
        shop.decide(rng.normal(size=6), "last")
        model = shop.snapshot.model
        assert model.coverage is not None
        assert (len(model.coverage), model.coverage.groups) == (25, 4)
        shop.add_arms(["like a2", "like a7"], vectors=rng.normal(size=(2, 6)), categories=["shelf 2", "shelf 3"])
        grown = shop.snapshot.model.coverage
        assert grown is not None
        np.testing.assert_array_equal(grown.shares()[25:], grown.shares()[[2, 7]])
        for name in ("visit-3", "last"):
            assert same_decision(*shop.replay(name))
        found = evaluate(shop, ["diversity=0", "diversity=2"])
        assert (found.rounds, found.differing) == (60, 0)
        assert found.candidates[0].rounds == 60


def test_what_does_not_fit_is_refused(learned: treetop.Model, problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="diversity is -1"):
        Policy(diversity=-1.0)
    with pytest.raises(ValueError, match="diversity needs a model that knows what its arms cover"):
        Policy(diversity=0.5).decide(learned, problem.X[0], "visit")
    with pytest.raises(ValueError, match="coverage of 3 arms does not fit a model of 60"):
        replace(learned, coverage=Coverage.of_categories(["a", "b", "c"]))
    config = treetop.Config(policy=treetop.PolicyConfig(diversity=0.5))
    with pytest.raises(ValueError, match="it needs a catalogue with categories or vectors"):
        Bandit.create(tmp_path / "shop", X=np.eye(4), Y=np.eye(4), config=config)


def test_explain_has_the_chances_of_a_large_weight() -> None:
    """Scores beside a weight of 1e5 are lost in single precision."""
    model, x = small_model(3), np.random.default_rng(3).random((1, 7)).astype(np.float32)
    policy = Policy(1, 1, 50, treetop.Boltzmann(0.5), diversity=1e5)
    assert model.coverage is not None
    share = model.coverage.share.reshape(7, 3).copy()
    share[:] = share[0]
    alike = replace(model, coverage=replace(model.coverage, share=share.ravel()))
    view = policy.explain(alike, x)
    arms = view.id[~view.is_node]
    found = policy.probability_batch(alike, np.repeat(x, len(arms), 0), arms[:, None]).whole
    np.testing.assert_allclose(view.probability[~view.is_node], found, rtol=1e-6)


def test_new_arms_of_several_leaves_cover_what_their_leaves_do() -> None:
    parents, leaf_of = np.array([-1, 0, 0, 0], np.int32), np.array([2, 1, 2, 1, 3, 1, 2, 3, 2], np.int32)
    tree = treetop.Tree(parents, leaf_of)
    grown = Coverage.of_categories(["tea", "cup", "cup", "cup", None]).grown(tree).shares()
    leaves = [1, 3], [0, 2], [4], [0, 2]
    np.testing.assert_allclose(grown[5:], [grown[arms].mean(axis=0) for arms in leaves])


def test_rewards_that_saturate_need_arms_that_are_alike(tmp_path: Path) -> None:
    """Set in config.toml of a bandit that has neither categories nor directions: a refit could learn nothing of it."""
    Bandit.create(tmp_path / "tea", ["mint", "rose"]).close()
    path = tmp_path / "tea" / "config.toml"
    assert "saturates = false" in path.read_text()
    path.write_text(path.read_text().replace("saturates = false", "saturates = true"))
    with pytest.raises(ValueError, match=r"saturates is true .* does not know which arms are alike"):
        Bandit.open(tmp_path / "tea")
    with Bandit.create(tmp_path / "jam", Catalogue(["plum", "fig"], categories=["sour", "sweet"])) as jam:
        path = jam.folder.path / "config.toml"
    path.write_text(path.read_text().replace("saturates = false", "saturates = true"))
    with Bandit.open(path.parent) as jam:
        assert jam.config.rewards.saturates


@pytest.mark.parametrize("saturation", [0.0, 0.7])
def test_where_many_arms_take_from_the_slate_chances_are_still_exact(saturation: float) -> None:
    """More than slates are completed for: what is recorded is what the assessor and explain say."""
    arms = 3 * EXACT
    model = replace(small_model(1, arms), coverage=Coverage.of_categories((np.arange(arms) % 2).tolist()))
    model, x = with_saturation(model, saturation), np.random.default_rng(0).random((1, arms)).astype(np.float32)
    policy = Policy(3, 3, 400, LARGE, diversity=0.3)
    shown = policy.decide_batch(model, np.repeat(x, 200, 0), seed=3)
    again = policy.probability_batch(model, np.repeat(x, 200, 0), shown.arms)
    np.testing.assert_array_equal(again.slots, shown.propensities)
    view = policy.explain(model, x)
    first = {int(arm): float(p) for arm, p in zip(view.id, view.probability, strict=True)}
    stated = [first[arm] for arm in shown.arms[:, 0].tolist()]
    np.testing.assert_allclose(stated, shown.propensities[:, 0], rtol=1e-4)
