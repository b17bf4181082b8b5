"""Contexts far larger than the others: they teach as much as the others, not more."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.problems import Problem

import treetop
from treetop.arrays import as_rows
from treetop.learning import samples
from treetop.learning.pooled import Mechanisms
from treetop.learning.samples import FAR, without_outliers


def brute(X: Any) -> Any:
    norms = np.linalg.norm(X, axis=1)
    median = np.median(norms[norms > 0]) if norms.any() else 0
    scale = np.where(norms > FAR * median, median / np.maximum(norms, 1e-30), 1)
    return X * scale[:, None]


@pytest.mark.parametrize("seed", range(3))
def test_far_contexts_are_scaled_to_the_median(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "BLOCK", 7)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 6)) * (rng.random((50, 6)) < 0.4)
    X[[3, 17]] *= 1e3
    X[31, 2] = 3e38
    found = without_outliers(as_rows(X)).csr().toarray()
    np.testing.assert_allclose(found, brute(X), rtol=1e-5)
    assert (found[[3, 31]] != X[[3, 31]].astype(np.float32)).any()


@pytest.mark.parametrize("X", [np.zeros((0, 3)), np.zeros((4, 3)), np.ones((4, 3)), np.diag([1.0, 2.0, 3.9, 1.0, 1.0])])
def test_ordinary_contexts_are_left_as_they_are(X: Any) -> None:
    rows = as_rows(sp.csr_matrix(X))
    assert without_outliers(rows) is rows


@pytest.mark.parametrize(
    "learner",
    [
        treetop.Linear(),
        treetop.Linear(loss="absolute"),
        treetop.Pooled(mechanisms=Mechanisms(pool=False)),  # routes to other leaves, but within [0, 1] as well
    ],
)
def test_a_sample_of_extreme_norm_moves_no_more_than_an_ordinary_one(problem: Problem, learner: Any) -> None:
    """The same weights, wherever beyond the limit a context lies; and those of one of ordinary size."""
    seen, X = problem.feedback(200), problem.X[:200].toarray()

    def learned(size: float) -> Any:
        far = X.copy()
        far[150] *= size
        feedback = treetop.Feedback(far, seen.arms, seen.nodes, seen.rewards)
        return learner.learn(problem.model, feedback).rewards.toarray()

    ordinary = learned(1.0)
    assert np.abs(learned(3.0) - ordinary).max() > 1e-3  # which is not far
    for size in (5.0, 1e3, 1e30):
        np.testing.assert_allclose(learned(size), ordinary, atol=2e-3)
