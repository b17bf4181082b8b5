"""The components of scores: their twin, the same on every way to a decision, and none where a model has none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem

import treetop
from treetop import _core
from treetop.arrays import Floats, as_rows
from treetop.learning.pooled import Pooled
from treetop.learning.pooled_means import WIDEST, interpolate
from treetop.policy.eligibility import EVERY_ARM
from treetop.policy.search import search, search_batch


class Uniform:
    """A strategy written in Python."""

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        return np.full(len(scores), 1 / len(scores))


@pytest.fixture(scope="module")
def pooled(problem: Problem) -> treetop.Model:
    return Pooled().learn(problem.model, problem.feedback(600))


@pytest.fixture(scope="module")
def node_regressors(problem: Problem, pooled: treetop.Model) -> treetop.Model:
    """Pooled means above the paper's reward models, where nodes have regressors, too."""
    assert pooled.pooled is not None
    learned = treetop.Linear().learn(problem.model, problem.feedback(600, treetop.Policy(beam=1)))
    assert learned.rewards[: learned.tree.n_nodes].nnz
    return replace(learned, pooled=replace(pooled.pooled, node_mean=0.25))


@pytest.mark.parametrize("beam", [1, 3, 50])
@pytest.mark.parametrize("name", ["pooled", "node_regressors"])
def test_components_are_pooled_mean_and_regressor(
    problem: Problem, name: str, beam: int, request: pytest.FixtureRequest
) -> None:
    """The twin of the core, in float64: a table over the cube root of -log route, and a dot product."""
    model: treetop.Model = request.getfixturevalue(name)
    assert model.pooled is not None
    nodes = 0
    for i in range(20):
        c = search(model, as_rows(problem.X[i]), beam, None, 1, EVERY_ARM)
        with np.errstate(divide="ignore"):
            slack = np.minimum(np.cbrt(-np.log(c.route)), WIDEST)
        means = interpolate(model.pooled.means.astype(float), slack)
        base = np.where(c.is_node, model.pooled.node_mean, means)
        rows = np.where(c.is_node, c.id, model.tree.n_nodes + c.id)
        own = model.rewards[rows] @ np.append(problem.X[i].toarray().ravel(), 1.0)
        assert c.components.shape == (len(c), 2)
        np.testing.assert_allclose(c.components, np.stack([base, own], axis=1), atol=1e-5)
        weights = np.where(c.is_node[:, None], 1.0, model.pooled.weights)
        np.testing.assert_allclose((c.components * weights).sum(axis=1), c.score, atol=1e-6)
        nodes += int(c.is_node.sum())
    assert nodes or beam == 50


def test_every_way_to_a_decision_gives_the_same_components(problem: Problem, node_regressors: treetop.Model) -> None:
    model, X = node_regressors, problem.X[:60]
    policy = treetop.Policy(k=5, explore=3, beam=2, strategy=treetop.EpsilonGreedy(0.9))
    ids = [f"visit-{i}" for i in range(60)]
    many, ahead = policy.decide_batch(model, X, event_ids=ids), _core.Ahead()
    assert many.components.shape == (60, 5, 2)
    assert (many.nodes >= 0).any()
    assert model.pooled is not None
    weights = np.where(many.nodes[:, :, None] >= 0, 1.0, model.pooled.weights)
    np.testing.assert_allclose((many.components * weights).sum(axis=2), many.scores, atol=1e-6)
    for i, name in enumerate(ids):
        begun = policy.begin(model, as_rows(X[i]), name, EVERY_ARM, ahead)()
        dense = policy.decide(model, X[i].toarray(), name)
        for one in (policy.decide(model, X[i], name), begun, dense, many[i]):
            assert one.components.dtype == np.float32
            assert np.array_equal(one.components, many.components[i])


def test_slots_have_the_components_of_what_was_chosen(problem: Problem, node_regressors: treetop.Model) -> None:
    """Also those of a strategy written in Python, which draws from the search's candidates."""
    model = node_regressors
    for strategy in (treetop.Budgeted(), Uniform()):
        policy = treetop.Policy(k=5, explore=3, beam=2, strategy=strategy)
        shown = policy.decide_batch(model, problem.X[:30], seed=3)
        assert shown.components.shape == (30, 5, 2)
        for i in range(30):
            view = policy.explain(model, problem.X[i])
            known = {(bool(n), int(j)): c for n, j, c in zip(view.is_node, view.id, view.components, strict=True)}
            for arm, node, parts in zip(shown.arms[i], shown.nodes[i], shown.components[i], strict=True):
                assert np.array_equal(parts, known[node >= 0, int(node if node >= 0 else arm)])


@pytest.mark.parametrize("strategy", [treetop.Budgeted(), Uniform()])
def test_slots_without_an_arm_have_zeros(problem: Problem, pooled: treetop.Model, strategy: Any) -> None:
    policy = treetop.Policy(k=5, explore=3, strategy=strategy)
    shown = policy.decide_batch(pooled, problem.X[:4], seed=0, eligible=[3, 7])
    assert not shown.components[:, 2:].any()
    assert shown.components[:, :2].any(axis=2).all()
    assert shown[0].components.shape == (2, 2)
    assert policy.decide(pooled, problem.X[0], "q", eligible=[3, 7]).components.shape == (2, 2)
    assert policy.decide_batch(pooled, problem.X[:0], seed=0).components.shape == (0, 5, 2)


@pytest.mark.parametrize("strategy", [treetop.IGW(), Uniform()])
def test_the_papers_model_has_none(problem: Problem, learned: treetop.Model, strategy: Any) -> None:
    policy = treetop.Policy(k=5, explore=3, beam=3, strategy=strategy)
    assert learned.engine.n_components == 0
    assert policy.decide_batch(learned, problem.X[:4], seed=0).components.shape == (4, 5, 0)
    assert policy.decide(learned, problem.X[0], "q").components.shape == (5, 0)
    view = policy.explain(learned, problem.X[0])
    assert view.components.shape == (len(view), 0)
    flat = treetop.FlatPolicy(k=4, explore=2).decide_batch(treetop.FlatModel(60, 40), problem.X[:3], seed=0)
    assert flat.components.shape == (3, 4, 0)


def test_a_batch_of_searches_has_them_row_by_row(problem: Problem, pooled: treetop.Model) -> None:
    rows = as_rows(problem.X[:20])
    found = search_batch(pooled, rows, 3, None, 2, EVERY_ARM, threads=2)
    assert found.components.shape == (len(found.id), pooled.engine.n_components)
    for i in range(20):
        alone = search(pooled, rows.row(i), 3, None, 2, EVERY_ARM)
        assert np.array_equal(alone.components, found.components[slice(*found.start[i : i + 2])])
