"""The owner's measure as a component of the learner: calibrated by rewards, weighed, and never forgotten."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from treetop import Feedback, Greedy, LabelSamples, Measure, Model, Policy, Pooled, Tree
from treetop.arrays import Floats
from treetop.learning.component_weights import FIRST, component_weights
from treetop.learning.measured import SPREAD, fitted_curve
from treetop.learning.pooled import Mechanisms
from treetop.model.pooled_state import MEASURED_WEIGHTS

ITEMS, DIMS = 300, 6
GREEDY = Policy(k=5, explore=0, beam=500, strategy=Greedy())


def sigmoid(z: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-z)))


def unit(rows: Any) -> Any:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


V = unit(np.random.default_rng(0).normal(size=(ITEMS, DIMS)))
COLD = Model.from_vectors(Tree.from_vectors(V, 20, metric="cosine"), V, "cosine", n_features=DIMS + 2)


def visits(n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    X = np.zeros((n, DIMS + 2), np.float32)
    X[:, :DIMS] = unit(V[rng.integers(0, ITEMS, n)] + 0.3 * rng.normal(size=(n, DIMS)))
    X[np.arange(n), DIMS + rng.integers(0, 2, n)] = 1.0
    return X


def round_of(model: Model, n: int, seed: int, truth: Any) -> Feedback:
    X, rng = visits(n, seed), np.random.default_rng([seed, 1])
    d = replace(GREEDY, beam=10).decide_batch(model, X, seed=seed)
    p = truth(np.einsum("nd,nkd->nk", X[:, :DIMS], V[d.arms]), d.arms)
    return Feedback.of(X, d, (rng.random(p.shape) < p).astype(np.float32))


def test_the_curve_is_logistic_regression_with_a_prior() -> None:
    rng, first = np.random.default_rng(2), np.array([8.0, 8.0])
    for scale in (1.0, 30.0):
        measure = Measure(metric="euclidean", dims=2, scale=scale)
        values = -scale * rng.uniform(0, 3, 400)
        reward = (rng.random(400) < sigmoid(3 + 2 * values / scale)).astype(float)
        weight = rng.integers(0, 2, 400).astype(float)

        def loss(at: Floats, m: Floats = values / scale, y: Floats = reward, w: Floats = weight) -> float:
            score = at[0] * m + at[1]
            prior = (((at - first) / (8.0 * np.array(SPREAD))) ** 2).sum() / 2
            return float(w @ (np.logaddexp(0, score) - y * score) + prior)

        want = minimize(loss, first, tol=1e-12).x
        slope, offset = fitted_curve(measure, values, reward, weight)
        np.testing.assert_allclose([slope * scale, offset], want, rtol=1e-3)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_the_curve_rises_whatever_was_seen(reward: float) -> None:
    """Also where rewards fall with the measure, or are all alike."""
    measure, values = Measure(metric="cosine", dims=2), np.linspace(-1, 1, 500)
    for y in (np.full(500, reward), (values < 0).astype(float)):
        slope, offset = fitted_curve(measure, values, y, np.ones(500))
        assert slope > 0
        assert np.isfinite(offset)


def test_rewards_calibrate_the_measure() -> None:
    """What the score says of items that nobody showed is what they would bring."""

    def truth(m: Floats, arms: Any) -> Floats:
        return sigmoid(6 * m - 5)

    model = Pooled().learn(COLD, round_of(COLD, 2000, 1, truth))
    assert model.pooled is not None
    assert model.pooled.measure_means is not None
    m = np.linspace(0.3, 0.95, 20)
    said = np.interp(m, np.linspace(*model.pooled.measure_range, 65), model.pooled.measure_means)
    np.testing.assert_allclose(said, truth(m, None), atol=0.06)
    assert model.pooled.weights[2] == pytest.approx(1.0, abs=0.1)


def test_a_refit_does_not_forget_what_the_owner_knew() -> None:
    """After a few rounds that tell next to nothing, its choice earns nearly what the measure's own earns."""

    def truth(m: Floats, arms: Any) -> Floats:
        return sigmoid(8 * m - 6)

    X = visits(500, 9)
    top = np.argsort(-(X[:, :DIMS] @ V.T), axis=1)[:, :5]
    assert (GREEDY.decide_batch(COLD, X, seed=0).arms == top).mean() > 0.99

    def earned(arms: Any) -> float:
        return float(truth(np.einsum("nd,nkd->nk", X[:, :DIMS], V[arms]), arms).mean())

    for rounds in (1, 30, 300):
        model = Pooled().learn(COLD, round_of(COLD, rounds, 3, truth))
        assert earned(GREEDY.decide_batch(model, X, seed=0).arms) > 0.98 * earned(top)


def test_item_quality_is_learned_on_top() -> None:
    quality = np.where(np.arange(ITEMS) % 2, 1.5, -1.5)

    def truth(m: Floats, arms: Any) -> Floats:
        return sigmoid(8 * m - 6 + quality[arms])

    feedback = round_of(COLD, 500, 0, truth)
    model = Pooled().learn(COLD, feedback)
    for seed in range(1, 12):
        feedback = feedback + round_of(model, 500, seed, truth)
        model = Pooled().learn(model, feedback)
    X = visits(500, 99)

    def earned(by: Model) -> float:
        arms = GREEDY.decide_batch(by, X, seed=0).arms
        return float(truth(np.einsum("nd,nkd->nk", X[:, :DIMS], V[arms]), arms).mean())

    assert earned(model) > 1.1 * earned(COLD)
    assert model.pooled is not None
    assert model.pooled.weights[1] > 0.3


def test_the_weights_of_three_components_are_ridge_regression() -> None:
    rng = np.random.default_rng(5)
    said = rng.random((20_000, 1, 3)) / 3
    reward = (rng.random((20_000, 1)) < said.sum(axis=2)).astype(np.float32)
    feedback = Feedback(np.ones((20_000, 1)), np.zeros((20_000, 1), int), None, reward, components=said)
    assert component_weights(feedback, MEASURED_WEIGHTS) == pytest.approx((1.0, 1.0, 1.0), abs=0.12)
    assert component_weights(feedback) == FIRST  # of a model without vectors: it has logged others
    two = replace(feedback, components=said[:, :, :2])
    assert component_weights(two, MEASURED_WEIGHTS) == MEASURED_WEIGHTS


def test_a_measure_that_knows_nothing_loses_its_slope() -> None:
    """Rewards that do not depend on it: the curve becomes flat, and the items that earn come first."""
    good = np.arange(ITEMS) < 150
    feedback = round_of(COLD, 3000, 7, lambda m, arms: np.where(good[arms], 0.5, 0.1))
    model = Pooled().learn(COLD, feedback)
    assert model.pooled is not None
    assert model.pooled.measure_means is not None
    flat = np.interp([0.3, 0.9], np.linspace(*model.pooled.measure_range, 65), model.pooled.measure_means)
    assert flat[1] - flat[0] < 0.1
    shown = GREEDY.decide_batch(model, visits(200, 8), seed=0).arms
    assert good[shown].mean() > 0.8


def test_mechanisms_can_be_switched_off() -> None:
    feedback = round_of(COLD, 200, 1, lambda m, arms: sigmoid(8 * m - 6))
    for change in ({"weigh": False}, {"own": False}, {"pool": False}):
        model = Pooled(mechanisms=Mechanisms(**change)).learn(COLD, feedback)
        assert model.pooled is not None
        assert len(model.pooled.weights) == 3
        if "weigh" in change:
            assert model.pooled.weights == MEASURED_WEIGHTS
        if "own" in change:
            assert model.pooled.weights[1] == 0.0


def test_a_refit_from_scratch_is_the_same() -> None:
    feedback = round_of(COLD, 700, 1, lambda m, arms: sigmoid(8 * m - 6))
    step = Pooled().learn(Pooled().learn(COLD, feedback.head(500)), feedback)
    once = Pooled().learn(COLD, feedback)
    assert step.pooled is not None
    assert once.pooled is not None
    assert np.array_equal(step.pooled.measure_means, once.pooled.measure_means)  # type: ignore[arg-type]
    assert step.pooled.weights == once.pooled.weights
    np.testing.assert_allclose(step.rewards.toarray(), once.rewards.toarray(), atol=1e-5)


def test_labels_move_no_arm_of_a_model_that_the_measure_routes() -> None:
    """Routing says where vectors are: an arm elsewhere would not be found."""
    X, Y = visits(40, seed=3), np.zeros((40, ITEMS), np.float32)
    Y[np.arange(40), np.arange(40) % 20] = 1.0  # most arms have no label
    samples = LabelSamples.of(Tree(COLD.tree.parents, COLD.tree.leaf_of), X, Y)
    learned = Pooled(label_samples=samples).learn(COLD, round_of(COLD, 50, 4, lambda dots, arms: sigmoid(4 * dots)))
    np.testing.assert_array_equal(learned.tree.leaf_of, COLD.tree.leaf_of)
