"""Ridge regression by a factor, by the dual and by conjugate gradients: all are the same as the textbook's."""

import numpy as np
import pytest
import scipy.sparse as sp

from treetop.arrays import Floats
from treetop.experiments import ridge as module
from treetop.experiments.ridge import conjugate_gradients, row_weights


def random_rows(rng: np.random.Generator, shape: tuple[int, int], scale: float = 1.0) -> sp.csr_matrix:
    """Features of very different sizes and frequencies, rows without features, and a bias."""
    often = np.linspace(0.02, 0.7, shape[1])
    X = np.where(rng.random(shape) < often, rng.normal(size=shape), 0) * np.logspace(0, 2, shape[1]) * scale
    X[:2], X[:, -1] = 0, 1
    return sp.csr_matrix(X.astype(np.float32))


def textbook(X: sp.csr_matrix, ridge: float, new: sp.csr_matrix) -> Floats:
    dense = X.toarray().astype(np.float64)
    right = new.toarray().T.astype(np.float64)
    return np.asarray(dense @ np.linalg.solve(dense.T @ dense + ridge * np.eye(dense.shape[1]), right))


@pytest.mark.parametrize("limit", [0, 20_000], ids=["conjugate gradients", "factor"])
@pytest.mark.parametrize("shape", [(60, 25), (25, 60), (40, 40), (1, 3)])
@pytest.mark.parametrize(("ridge", "scale"), [(0.5, 1.0), (1e-3, 0.1), (100.0, 10.0)])
def test_all_ways_are_the_textbooks(
    limit: int, shape: tuple[int, int], ridge: float, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_FACTOR", limit)
    monkeypatch.setattr(module, "PIECE", 16)
    rng = np.random.default_rng(0)
    X, new = random_rows(rng, shape, scale), random_rows(rng, (7, shape[1]), scale)
    found, expected = row_weights(X, ridge)(new), textbook(X, ridge, new)
    assert found.shape == (shape[0], 7)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_many_rows_and_columns_are_solved_without_their_products() -> None:
    """Neither X'X nor XX' is made: each would take 7 GB."""
    rng = np.random.default_rng(0)
    rows = columns = 30_000
    X = sp.csr_matrix(sp.random(rows, columns, 5 / columns, rng=rng, dtype=np.float64))
    right = np.zeros((columns, 3))
    right[[5, 17, 29_999], [0, 1, 2]] = 1
    found = conjugate_gradients(X, 0.5, right)
    np.testing.assert_allclose(X.T @ (X @ found) + 0.5 * found, right, atol=1e-6)


def test_a_column_that_is_nothing_stays_nothing() -> None:
    X = random_rows(np.random.default_rng(0), (20, 6))
    right = np.zeros((6, 2))
    right[3, 1] = 1
    found = conjugate_gradients(X.astype(np.float64), 0.5, right)
    assert (found[:, 0] == 0).all()
    assert np.isfinite(found).all()
