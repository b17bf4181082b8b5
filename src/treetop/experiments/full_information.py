"""What a linear model gets that is shown every label: the most that learning from shown arms alone can hope for."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Floats, Int64s, check_float, check_int
from treetop.data.datasets import Dataset
from treetop.experiments.ridge import can_be_factored, row_weights

TEST_ROWS, FEW_TEST_ROWS = 5_000, 1_000  # the second where every one of them is solved for step by step
PIECE, NUMBERS = 512, 1 << 24  # test rows at a time, and numbers that they may take in a table


def check_ceiling(dataset: Dataset, k: int, cost: float = 1.0, seed: int = 0) -> None:
    """Raises ValueError if `full_information` cannot be had of a dataset; otherwise it can, however large that is.

    >>> from treetop.data.datasets import load
    >>> check_ceiling(load("synthetic:arms=50,rows=400,features=100"), k=51)
    Traceback (most recent call last):
    ValueError: k is 51; it must lie in [1, 50]
    """
    check_int("k", k, 1, dataset.n_arms)
    check_float("cost", cost, 1e-12, 1e12)
    check_int("seed", seed, 0, 2**64 - 1)
    train, test = len(dataset.X), dataset.X_init
    if train < (needed := 2 if test is None else 1):
        raise ValueError(f"{dataset.name}: the ceiling needs at least {needed} rows in the stream; it has {train}")
    if test is not None and len(test) == 0:
        raise ValueError(f"{dataset.name}: the ceiling is tried on the initialisation set, which has 0 rows")


def full_information(dataset: Dataset, k: int = 5, cost: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """One ridge regression an arm on all rows of the stream, tried on rows it has not seen: mean reward of its best k.

    The rows to try it on come from the part set apart for initialisation, otherwise a tenth of the stream is held out:
    at most 5,000, or 1,000 where there are more than 20,000 features and rows, which takes minutes to hours.

    >>> from treetop.data.datasets import load
    >>> sorted(full_information(load("synthetic:arms=50,rows=400,features=100"), k=3))
    ['cost', 'mean_reward', 'rows']
    """
    check_ceiling(dataset, k, cost, seed)
    train, test = np.arange(len(dataset.X)), np.zeros(0, np.int64)
    rng = np.random.default_rng(seed)
    if dataset.X_init is not None and dataset.Y_init is not None:
        test, X_test, Y_test = np.arange(len(dataset.X_init)), dataset.X_init.csr(), dataset.Y_init.csr()
    else:
        shuffled = rng.permutation(len(dataset.X))
        test, train = np.split(shuffled, [max(1, len(shuffled) // 10)])
        X_test, Y_test = dataset.X.csr(), dataset.Y.csr()
    X, Y = _with_one(dataset.X.csr()[train]), dataset.Y.csr()[train]
    test = rng.permutation(test)[: TEST_ROWS if can_be_factored(*X.shape) else FEW_TEST_ROWS]
    weights = row_weights(X, 0.5 / cost)
    tried, labels, arms = _with_one(X_test[test]), Y_test[test], sp.csr_matrix(Y.T)
    step = max(1, min(PIECE, NUMBERS // max(*X.shape, dataset.n_arms)))
    reward = 0.0
    for first in range(0, len(test), step):
        some = slice(first, first + step)
        best = _best((arms @ weights(tried[some])).T, k)
        reward += float(labels[some][np.arange(len(best))[:, None], best].sum())
    return {"mean_reward": round(reward / len(test), 4), "rows": len(test), "cost": cost}


def _best(scores: Floats, k: int) -> Int64s:
    """The k places of the highest scores of every row."""
    return np.argpartition(-scores, k - 1, axis=1)[:, :k]


def _with_one(X: sp.csr_matrix) -> sp.csr_matrix:
    one = sp.csr_matrix(np.ones((X.shape[0], 1), np.float32))
    return sp.csr_matrix(sp.hstack([X, one]))
