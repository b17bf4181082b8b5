"""What a linear model gets that is shown every label: the most that learning from shown arms alone can hope for."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # linalg is loaded when it is first used
import scipy.sparse as sp

from treetop.arrays import Floats, Int64s, check_int
from treetop.data.datasets import Dataset

MAX_FEATURES = 20_000  # the products of all pairs of them take 3.2 GB
TEST_ROWS = 5_000
PIECE, NUMBERS = 512, 1 << 26  # test rows at a time, and numbers that they may take in a table


def check_ceiling(dataset: Dataset, k: int) -> None:
    """Raises ValueError if `full_information` cannot be had of a dataset.

    >>> from treetop.data.datasets import load
    >>> check_ceiling(load("synthetic:arms=50,rows=400,features=100"), k=51)
    Traceback (most recent call last):
    ValueError: k is 51; it must lie in [1, 50]
    """
    columns = dataset.X.columns
    if columns > MAX_FEATURES:
        raise ValueError(f"the ceiling is for at most {MAX_FEATURES:,} features; {dataset.name} has {columns:,}")
    check_int("k", k, 1, dataset.n_arms)


def full_information(dataset: Dataset, k: int = 5, cost: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """One ridge regression an arm on all rows of the stream, tried on rows it has not seen: mean reward of its best k.

    The rows to try it on come from the part set apart for initialisation, otherwise a tenth of the stream is held out.

    >>> from treetop.data.datasets import load
    >>> sorted(full_information(load("synthetic:arms=50,rows=400,features=100"), k=3))
    ['cost', 'mean_reward', 'rows']
    """
    check_ceiling(dataset, k)
    train, test = np.arange(len(dataset.X)), np.zeros(0, np.int64)
    rng = np.random.default_rng(seed)
    if dataset.X_init is not None and dataset.Y_init is not None:
        test, X_test, Y_test = np.arange(len(dataset.X_init)), dataset.X_init.csr(), dataset.Y_init.csr()
    else:
        shuffled = rng.permutation(len(dataset.X))
        test, train = np.split(shuffled, [max(1, len(shuffled) // 10)])
        X_test, Y_test = dataset.X.csr(), dataset.Y.csr()
    test = rng.permutation(test)[:TEST_ROWS]
    X, Y = _with_one(dataset.X.csr()[train]), dataset.Y.csr()[train]
    factor = _factor(X, 0.5 / cost)
    tried, labels, arms = _with_one(X_test[test]), Y_test[test], sp.csr_matrix(Y.T)
    step = max(1, min(PIECE, NUMBERS // max(*X.shape, dataset.n_arms)))
    reward = 0.0
    for first in range(0, len(test), step):
        some = slice(first, first + step)
        # Scores of all arms are t (X'X + r I)^-1 X'Y: there are fewer test rows t than arms to solve for.
        solved = scipy.linalg.cho_solve(factor, tried[some].T.toarray().astype(np.float64), overwrite_b=True)
        best = _best((arms @ (X @ solved)).T, k)
        reward += float(labels[some][np.arange(len(best))[:, None], best].sum())
    return {"mean_reward": round(reward / len(test), 4), "rows": len(test), "cost": cost}


def _factor(X: sp.csr_matrix, ridge: float) -> tuple[Floats, bool]:
    """The Cholesky factor of X'X + ridge I, which is in memory once."""
    columns = X.shape[1]
    gram, transposed = np.zeros((columns, columns), order="F"), sp.csr_matrix(X.T)
    by_column = sp.csc_matrix(X)
    for first in range(0, columns, PIECE):
        gram[:, first : first + PIECE] = (transposed @ by_column[:, first : first + PIECE]).toarray()
    gram[np.diag_indices_from(gram)] += ridge
    factor: tuple[Floats, bool] = scipy.linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    return factor


def _best(scores: Floats, k: int) -> Int64s:
    """The k places of the highest scores of every row."""
    return np.argpartition(-scores, k - 1, axis=1)[:, :k]


def _with_one(X: sp.csr_matrix) -> sp.csr_matrix:
    one = sp.csr_matrix(np.ones((X.shape[0], 1), np.float32))
    return sp.csr_matrix(sp.hstack([X, one]))
