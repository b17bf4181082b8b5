"""What a linear model gets that is shown every label: the most that learning from shown arms alone can hope for."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # linalg is loaded when it is first used
import scipy.sparse as sp

from treetop.arrays import check_int
from treetop.data.datasets import Dataset

MAX_FEATURES, TEST_ROWS, PIECE = 10_000, 5_000, 512


def full_information(dataset: Dataset, k: int = 5, cost: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """One ridge regression an arm on all rows of the stream, tried on rows it has not seen: mean reward of its best k.

    The rows to try it on come from the part set apart for initialisation, otherwise a tenth of the stream is held out.

    >>> from treetop.data.datasets import load
    >>> sorted(full_information(load("synthetic:arms=50,rows=400,features=100"), k=3))
    ['cost', 'mean_reward', 'rows']
    """
    if dataset.X.columns > MAX_FEATURES:
        raise ValueError(f"the ceiling is for at most {MAX_FEATURES} features; {dataset.name} has {dataset.X.columns}")
    check_int("k", k, 1, dataset.n_arms)
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
    gram = (X.T @ X).toarray().astype(np.float64)
    gram[np.diag_indices_from(gram)] += 0.5 / cost
    factor = scipy.linalg.cho_factor(gram, overwrite_a=True)
    tried, labels = _with_one(X_test[test]), Y_test[test]
    best = np.full((len(test), k), -np.inf)
    reward = np.zeros((len(test), k))
    for first in range(0, dataset.n_arms, PIECE):
        part = slice(first, min(first + PIECE, dataset.n_arms))
        score = tried @ scipy.linalg.cho_solve(factor, (X.T @ Y[:, part]).toarray().astype(np.float64))
        score, value = np.hstack([best, score]), np.hstack([reward, labels[:, part].toarray()])
        top = np.argsort(-score, axis=1, kind="stable")[:, :k]
        best, reward = np.take_along_axis(score, top, 1), np.take_along_axis(value, top, 1)
    return {"mean_reward": round(float(reward.sum(axis=1).mean()), 4), "rows": len(test), "cost": cost}


def _with_one(X: sp.csr_matrix) -> sp.csr_matrix:
    one = sp.csr_matrix(np.ones((X.shape[0], 1), np.float32))
    return sp.csr_matrix(sp.hstack([X, one]))
