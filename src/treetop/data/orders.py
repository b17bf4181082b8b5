"""In which order do the rows of a stream come? Shuffled, as in the file, or two kinds of contexts in turns. Knows no
labels."""

from __future__ import annotations

from math import ceil

import numpy as np
import scipy  # sparse.linalg is loaded when it is first used
import scipy.sparse as sp

from treetop.arrays import Bools, Floats, Int64s

ORDERS = ("shuffled", "file", "blocks")
BLOCK_ROUNDS = 2_000  # that one kind of contexts has before the other takes its turn
DENSE = 32  # features up to which the covariance is decomposed as a whole; ARPACK wants more of them than it iterates


def check_order(order: str) -> None:
    """Raises ValueError for an order that is not one of ORDERS.

    >>> check_order("backwards")
    Traceback (most recent call last):
    ValueError: order is 'backwards'; it must be one of shuffled, file, blocks
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; it must be one of {', '.join(ORDERS)}")


def arrange(order: str, rows: Int64s, horizon: int, contexts: sp.csr_matrix, rng: np.random.Generator) -> Int64s:
    """The row of every round: of `rows`, whose contexts are those rows of `contexts`, in one of ORDERS.

    - shuffled: in random order, with replacement if the horizon exceeds them
    - file: as they stand, and from the first again after the last
    - blocks: the two sides of the first principal component in turns of BLOCK_ROUNDS; a side is shuffled, and shuffled
      anew when all of it has come

    >>> rows, contexts = np.arange(2, 5), sp.csr_matrix(np.eye(5))
    >>> arrange("file", rows, 5, contexts, np.random.default_rng(0))
    array([2, 3, 4, 2, 3])
    """
    check_order(order)
    if order == "file":
        return np.resize(rows, horizon)
    if order == "blocks":
        return _in_turns(rows, principal_sides(contexts[rows]), horizon, rng)
    return rng.permutation(rows)[:horizon] if horizon <= len(rows) else rng.choice(rows, horizon, replace=True)


def _in_turns(rows: Int64s, above: Bools, horizon: int, rng: np.random.Generator) -> Int64s:
    first = np.arange(horizon) // BLOCK_ROUNDS % 2 == 0
    arranged = np.zeros(horizon, np.int64)
    for turn, side in ((first, rows[above]), (~first, rows[~above])):
        rounds = int(turn.sum())
        shuffled = [rng.permutation(side) for _ in range(ceil(rounds / len(side)))]
        arranged[turn] = np.concatenate([side[:0], *shuffled])[:rounds]
    return arranged


def principal_sides(X: sp.csr_matrix) -> Bools:
    """Which rows lie above the mean along the first principal component, whose largest entry is positive.

    >>> principal_sides(sp.csr_matrix([[1.0, 0.1], [1.1, 0.0], [9.0, 0.1], [9.1, 0.0]]))
    array([False, False,  True,  True])
    """
    X = X.astype(np.float64)
    mean = np.asarray(X.mean(axis=0)).ravel()
    size = float(X.multiply(X).sum())
    if size - X.shape[0] * float(mean @ mean) <= 1e-6 * size:  # float32 has 24 bits
        raise ValueError(
            f"the {X.shape[0]} contexts of the stream are all the same; order 'blocks' needs two kinds of them"
        )
    direction = _first_component(X, mean)
    direction = direction * np.sign(direction[np.abs(direction).argmax()])
    return np.asarray(X @ direction > mean @ direction)


def _first_component(X: sp.csr_matrix, mean: Floats) -> Floats:
    """The eigenvector of X'X - n mean mean' with the largest eigenvalue."""
    n, columns = X.shape
    if columns <= DENSE:
        return np.asarray(np.linalg.eigh((X.T @ X).toarray() - n * np.outer(mean, mean))[1][:, -1])
    scatter = scipy.sparse.linalg.LinearOperator(
        (columns, columns), matvec=lambda v: X.T @ (X @ v) - n * mean * (mean @ v), dtype=np.float64
    )
    start = np.random.default_rng(0).normal(size=columns)
    return np.asarray(scipy.sparse.linalg.eigsh(scatter, k=1, v0=start)[1][:, 0])
