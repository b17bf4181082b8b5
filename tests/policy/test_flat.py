"""Algorithm 1 over a plain list of arms, and its equality with Algorithm 3 under a beam that prunes nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import reference
from helpers.problems import Problem
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import treetop


@pytest.mark.parametrize("strategy", [treetop.IGW(C=0.1), treetop.Boltzmann(0.7), treetop.EpsilonGreedy(0.3)])
def test_a_beam_wider_than_every_level_is_algorithm_1(problem: Problem, strategy: treetop.Strategy) -> None:
    """The whole distribution over decisions, enumerated: same effective arms, same first draw, same sequences."""
    feedback, tight = problem.feedback(600), treetop.Linear(tolerance=1e-9)
    flat_model = treetop.FlatModel(60, 40, oracle=lambda: tight).refit(feedback)
    learned = treetop.refit(problem.model, feedback, tight)
    tree_policy = treetop.Policy(k=3, explore=2, beam=10_000, strategy=strategy)
    flat_policy = treetop.FlatPolicy(k=3, explore=2, strategy=strategy)
    for i in (0, 11, 42):
        few = np.random.default_rng(i).choice(60, 7, replace=False)  # few enough to enumerate
        x = problem.X[i]
        views = [tree_policy.explain(learned, x, eligible=few), flat_policy.explain(flat_model, x, eligible=few)]
        np.testing.assert_array_equal(views[0].id, views[1].id)
        assert not views[0].is_node.any()
        np.testing.assert_allclose(views[0].score, views[1].score, atol=1e-6)
        np.testing.assert_allclose(views[0].probability, views[1].probability, atol=1e-6)
        rate = strategy.native(600)[1]  # type: ignore[attr-defined]
        twin = {treetop.IGW: reference.igw, treetop.Boltzmann: reference.boltzmann}.get(
            type(strategy), reference.epsilon_greedy
        )
        whole = [reference.decisions(v.score.astype(float), 3, 2, twin, rate) for v in views]
        assert whole[0].keys() == whole[1].keys()
        for sequence, chances in whole[0].items():
            np.testing.assert_allclose(chances, whole[1][sequence], atol=1e-6)
    everything, flat = tree_policy.explain(learned, problem.X[0]), flat_policy.explain(flat_model, problem.X[0])
    np.testing.assert_allclose(everything.probability, flat.probability, atol=1e-6)
    assert len(everything) == 60


@pytest.mark.parametrize(
    "oracle", [lambda: Ridge(alpha=0.5), lambda: DecisionTreeRegressor(max_depth=3, random_state=0)]
)
def test_any_scikit_learn_regressor_learns_by_epochs(problem: Problem, oracle: Callable[[], Any]) -> None:
    model: Any = treetop.FlatModel(60, 40, oracle=oracle)
    policy = treetop.FlatPolicy(k=5, explore=3)
    first = policy.decide_batch(model, problem.X, seed=0)
    hits = problem.hits(first.arms)
    model = treetop.refit(model, treetop.Feedback(problem.X, first.arms, first.nodes, hits))
    assert (model.epoch, model.n_seen) == (1, 600)
    second = policy.decide_batch(model, problem.X, seed=1)
    assert problem.hits(second.arms).sum() > 1.5 * hits.sum()


def test_one_regressor_on_joint_features(problem: Problem) -> None:
    def joint(x: Any, arms: Any) -> Any:
        row = x.toarray()[0]
        one_hot = np.eye(60)[arms]
        return np.hstack([np.repeat(row[None], len(one_hot), axis=0), one_hot])

    model = treetop.FlatModel(60, 40, oracle=lambda: Ridge(alpha=1.0), joint=joint)
    f = problem.feedback(150)
    model = treetop.refit(model, f)
    assert list(model.fitted) == [0]
    mean = np.array([f.rewards[f.arms == a].mean() if (f.arms == a).any() else np.nan for a in range(60)])
    scores = model.scores(f.contexts.head(30)).mean(axis=0)
    seen = ~np.isnan(mean)
    assert np.corrcoef(mean[seen], scores[seen])[0, 1] > 0.5


def test_arms_without_data_score_zero_and_the_same_event_replays(problem: Problem) -> None:
    model = treetop.FlatModel(60, 40).refit(problem.feedback(20))
    scores = model.scores(problem.feedback(20).contexts)
    unseen = np.setdiff1d(np.arange(60), np.unique(problem.feedback(20).arms))
    assert (scores[:, unseen] == 0).all()
    policy = treetop.FlatPolicy()
    a, b = (policy.decide(model, problem.X[4], event_id="again", exclude=[1]) for _ in range(2))
    np.testing.assert_array_equal(a.arms, b.arms)
    assert 1 not in a.arms


def test_budgeted_is_explained_as_it_draws() -> None:
    """Over all arms no samples are counted: all are alike."""
    rng = np.random.default_rng(0)
    X = rng.random((40, 3))
    model = treetop.FlatModel(6, 3)
    policy = treetop.FlatPolicy(k=1, explore=1, strategy=treetop.Budgeted())
    chance = policy.explain(model, X[0]).probability
    drawn = policy.decide_batch(model, X[[0] * 40], seed=0)
    np.testing.assert_allclose(drawn.propensities[:, 0], chance[drawn.arms[:, 0]])
