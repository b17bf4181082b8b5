"""Ridge regression of very many targets on the same rows: what every row weighs in a prediction. Knows no arms.

With the rows X, the ridge r and the targets Y, the predictions for new rows t are t (X'X + r I)^-1 X'Y = W'Y, where
W = X (X'X + r I)^-1 t' = (XX' + r I)^-1 X t'. W is solved for, since there are fewer new rows than targets: with a
factor of whichever matrix is smaller, or by conjugate gradients where both are large.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy  # linalg is loaded when it is first used
import scipy.sparse as sp

from treetop.arrays import Floats

RowWeights: TypeAlias = Callable[[sp.csr_matrix], Floats]  # m new rows -> (n, m): what each of n rows weighs in them

LARGEST_FACTOR = 20_000  # rows of a matrix that is factored; it takes 3.2 GB
PIECE = 512  # columns of it at a time
TOLERANCE, STEPS = 1e-6, 2_000  # of conjugate gradients: the residual against the right side, and how many at most


def can_be_factored(rows: int, columns: int) -> bool:
    """Whether one of X'X and XX' is small enough for a factor.

    >>> can_be_factored(500_000, 5_001), can_be_factored(60_000, 135_910)
    (True, False)
    """
    return min(rows, columns) <= LARGEST_FACTOR


def row_weights(X: sp.csr_matrix, ridge: float) -> RowWeights:
    """What each row of X weighs in the predictions for new rows, as a function of these.

    >>> X, targets = sp.csr_matrix([[1.0, 0.0], [0.0, 1.0]]), np.array([[3.0], [1.0]])
    >>> weights = row_weights(X, ridge=0.5)
    >>> (weights(sp.csr_matrix([[1.0, 0.0]])).T @ targets).round(6)
    array([[2.]])
    """
    X = sp.csr_matrix(X, dtype=np.float64)
    rows, columns = X.shape
    smaller = X if columns <= rows else sp.csr_matrix(X.T)
    direct = can_be_factored(rows, columns)
    solve = _factored(smaller, ridge) if direct else partial(conjugate_gradients, smaller, ridge)
    if columns <= rows:
        return lambda new: X @ solve(_dense(new.T))
    return lambda new: solve(_dense(X @ new.T))


def conjugate_gradients(X: sp.csr_matrix, ridge: float, right: Floats) -> Floats:
    """(X'X + ridge I)^-1 right, for all columns together, without that matrix; columns of X are scaled by its diagonal.

    Ends when every residual is below TOLERANCE of its right side, or after STEPS.

    >>> X = sp.csr_matrix([[1.0, 0.0], [1.0, 2.0]])
    >>> conjugate_gradients(X, 0.5, np.array([[4.5], [6.5]])).round(6)
    array([[1.],
           [1.]])
    """
    scale = 1 / (np.asarray(X.multiply(X).sum(axis=0)).reshape(-1, 1) + ridge)
    solution, residual = np.zeros_like(right), right.copy()
    direction = scale * residual
    size = (residual * direction).sum(axis=0)
    enough = TOLERANCE**2 * size
    for _ in range(STEPS):
        if (size <= enough).all():
            break
        image = X.T @ (X @ direction) + ridge * direction
        step = _ratio(size, (direction * image).sum(axis=0))
        solution += step * direction
        residual -= step * image
        scaled = scale * residual
        size, before = (residual * scaled).sum(axis=0), size
        direction = scaled + _ratio(size, before) * direction
    return solution


def _ratio(a: Floats, b: Floats) -> Floats:
    """a / b, and 0 where a column is solved and both are."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def _factored(X: sp.csr_matrix, ridge: float) -> Callable[[Floats], Floats]:
    """(X'X + ridge I)^-1 as a function, by the Cholesky factor, which is in memory once."""
    columns = X.shape[1]
    gram, transposed = np.zeros((columns, columns), order="F"), sp.csr_matrix(X.T)
    by_column = sp.csc_matrix(X)
    for first in range(0, columns, PIECE):
        gram[:, first : first + PIECE] = (transposed @ by_column[:, first : first + PIECE]).toarray()
    gram[np.diag_indices_from(gram)] += ridge
    factor = scipy.linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    return lambda right: np.asarray(scipy.linalg.cho_solve(factor, right, overwrite_b=True))


def _dense(columns: Any) -> Floats:
    return np.ascontiguousarray(columns.toarray(), np.float64)
