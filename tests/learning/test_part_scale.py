"""Parts of contexts on one scale: a number of any size beside a vector changes no regressor."""

from typing import Any

import numpy as np
import pytest

from treetop import Feedback, Greedy, Model, Policy, Pooled, Tree

ITEMS, DIMS = 100, 6


def unit(rows: Any) -> Any:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


V = unit(np.random.default_rng(0).normal(size=(ITEMS, DIMS)))


def learned(length: float, age: float, vectors: tuple[tuple[int, int], ...], refits: int = 1) -> tuple[Model, Any]:
    rng = np.random.default_rng(1)
    X = np.zeros((600, DIMS + 3), np.float32)
    X[:, :DIMS] = length * unit(V[rng.integers(0, ITEMS, 600)] + 0.2 * rng.normal(size=(600, DIMS)))
    X[np.arange(600), DIMS + rng.integers(0, 2, 600)] = 1.0
    X[:, -1] = age * rng.uniform(0.5, 1.5, 600).astype(np.float32)
    model = Model.from_vectors(Tree.from_vectors(V, 20, metric="cosine"), V, "cosine", n_features=DIMS + 3)
    d = Policy(k=5, explore=0, beam=10, strategy=Greedy()).decide_batch(model, X, seed=0)
    feedback = Feedback.of(X, d, (rng.random(d.arms.shape) < 0.3).astype(np.float32))
    for _ in range(refits):
        model = Pooled(vectors=vectors).learn(model, feedback)
    return model, X


@pytest.mark.parametrize(("length", "age"), [(1.0, 64.0), (16.0, 1.0), (0.125, 2.0**20)])
def test_what_regressors_say_does_not_depend_on_sizes(length: float, age: float) -> None:
    """Sizes that are powers of 2 apart: to the bit."""
    (a, X), (b, Z) = learned(1.0, 1.0, ((0, DIMS),)), learned(length, age, ((0, DIMS),))
    ones = np.ones((len(X), 1), np.float32)
    said, same = (np.hstack([x, ones]) @ m.rewards.toarray().T for m, x in ((a, X), (b, Z)))
    np.testing.assert_allclose(same, said, atol=1e-5)
    assert np.abs(said).max() > 0.01


def test_without_parts_they_do() -> None:
    (a, X), (b, Z) = learned(1.0, 1.0, ()), learned(1.0, 64.0, ())
    ones = np.ones((len(X), 1), np.float32)
    said, other = (np.hstack([x, ones]) @ m.rewards.toarray().T for m, x in ((a, X), (b, Z)))
    assert np.abs(said - other).max() > 0.05


def test_regressors_without_new_samples_are_kept_to_the_bit() -> None:
    once, twice = learned(1.0, 64.0, ((0, DIMS),))[0], learned(1.0, 64.0, ((0, DIMS),), refits=2)[0]
    np.testing.assert_array_equal(once.reward_rows.value, twice.reward_rows.value)
    np.testing.assert_array_equal(once.reward_rows.fingerprints, twice.reward_rows.fingerprints)  # type: ignore[attr-defined]
