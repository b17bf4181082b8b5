"""The realizable experiment (Section 5, Figure 3a): rewards that are truly linear, plus noise, and regret against them.

One ridge regression an arm over the whole dataset becomes the truth. Its loss is that of `Linear()`, so the learner's
class contains the truth; it is solved for all arms at once, (Z'Z + ridge I)^-1 Z'Y with Z = [X, 1] and one dense
Cholesky factor, since every row is a sample of every arm. Where those matrices are too large, the truth is that of
`truth.py`, with few weights an arm. Knows nothing of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # linalg and special are loaded when they are first used
import scipy.sparse as sp

from treetop.arrays import Float32s, Floats, Int64s, Ints, Rows, check_float, check_int
from treetop.data.datasets import Dataset
from treetop.experiments import run_folder
from treetop.experiments.truth import LARGEST_FIT, SparseTruth, Truth
from treetop.files import put
from treetop.simulation.observation import uniforms

BLOCK = 512


@dataclass(frozen=True, eq=False)
class DenseTruth:
    """A dataset whose arms have the mean rewards [x; 1] . weights[:, arm].

    >>> from treetop.arrays import as_rows
    >>> data = Dataset("two rows", as_rows([[1.0], [2.0]]), as_rows([[0.0, 1.0], [1.0, 0.0]], what="labels"))
    >>> truth = DenseTruth.fit(data)
    >>> truth.best_arms(np.array([0, 1]), k=1)
    array([[1],
           [0]], dtype=int32)
    """

    dataset: Dataset
    weights: Floats

    @classmethod
    def fit(cls, dataset: Dataset, ridge: float = 0.5) -> DenseTruth:
        """The truth nearest to the labels of the dataset; ridge 0.5 is what `Linear(cost=1)` has."""
        check_float("ridge", ridge, 1e-12)
        d, A = dataset.X.columns + 1, dataset.n_arms
        if (needed := dense_bytes(dataset)) > LARGEST_FIT:
            raise ValueError(
                f"{d} x {d} and {d} x {A} numbers are {needed:,} bytes; at most {LARGEST_FIT:,} are allowed"
            )
        ones = sp.csr_matrix(np.ones((len(dataset.X), 1)))
        Z = sp.hstack([dataset.X.csr().astype(np.float64), ones], format="csr")
        gram = (Z.T @ Z).toarray()
        gram[np.diag_indices(d)] += ridge
        factor = scipy.linalg.cho_factor(gram, overwrite_a=True)
        target = (Z.T @ dataset.Y.csr().astype(np.float64)).toarray()
        return cls(dataset, np.ascontiguousarray(scipy.linalg.cho_solve(factor, target, overwrite_b=True)))

    def means(self, rows: Int64s, arms: Ints) -> Floats:
        """(n, k): the mean rewards of arms for rows of the dataset; NaN where there is no arm."""
        parts = [self._some_means(rows[a : a + BLOCK], arms[a : a + BLOCK]) for a in range(0, len(rows), BLOCK)]
        return np.concatenate([np.zeros((0, arms.shape[1])), *parts])

    def _some_means(self, rows: Int64s, arms: Ints) -> Floats:
        """Only the weights that meet a feature of the row are read."""
        x = self.dataset.X.csr()[rows].astype(np.float64)
        row = np.repeat(np.arange(len(rows)), np.diff(x.indptr))
        met = self.weights[x.indices[:, None], arms[row]]
        every = sp.csr_matrix((x.data, np.arange(len(met)), x.indptr), shape=(len(rows), len(met)))
        return np.where(arms >= 0, every @ met + self.weights[-1, arms], np.nan)

    def best_arms(self, rows: Int64s, k: int) -> Ints:
        """(n, k): the arms with the highest mean rewards, the best first."""
        check_int("k", k, 1, self.dataset.n_arms)
        return np.concatenate(
            [np.zeros((0, k), np.int32), *(self._some_best(rows[a : a + BLOCK], k) for a in range(0, len(rows), BLOCK))]
        )

    def _some_best(self, rows: Int64s, k: int) -> Ints:
        means = self.dataset.X.csr()[rows].astype(np.float64) @ self.weights[:-1] + self.weights[-1]
        top = np.argpartition(-means, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(means, top, axis=1), axis=1, kind="stable")
        return np.take_along_axis(top, order, axis=1).astype(np.int32)

    def best(self, k: int) -> Floats:
        """The mean reward of the best k arms together, for every row of the dataset."""
        rows = np.arange(len(self.dataset.X))
        return np.asarray(self.means(rows, self.best_arms(rows, k)).sum(axis=1))

    def arrays(self) -> dict[str, Any]:
        return {"weights": self.weights}


def dense_bytes(dataset: Dataset) -> int:
    """What the dense matrices of a fit take: features x features, and features x arms.

    >>> from treetop.data.datasets import load
    >>> dense_bytes(load("synthetic:arms=50,features=30,rows=20"))
    20088
    """
    d = dataset.X.columns + 1
    return 8 * d * (d + dataset.n_arms)


def fit_truth(dataset: Dataset, ridge: float = 0.5) -> Truth:
    """The dense truth where its matrices can be had, the sparse one where they cannot.

    >>> from treetop.data.datasets import load
    >>> type(fit_truth(load("synthetic:arms=50,features=30,rows=20"))).__name__
    'DenseTruth'
    """
    return (SparseTruth if dense_bytes(dataset) > LARGEST_FIT else DenseTruth).fit(dataset, ridge)


@dataclass(frozen=True, eq=False)
class NoisyRewards:
    """The rewards of one seed: the truth plus Gaussian noise that has (seed, round, arm) for a key. No limits."""

    truth: Truth
    best: Floats
    sigma: float = 0.1
    seed: int = 0
    reward_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_float("sigma", self.sigma, 0)

    def rewards(self, rows: Int64s, arms: Ints, first: int) -> Float32s:
        noise = self.sigma * scipy.special.ndtri(uniforms("noise", self.seed, first, arms))
        return (self.truth.means(rows, arms) + noise).astype(np.float32)

    def regret(self, rows: Int64s, arms: Ints) -> Floats | None:
        """By mean rewards, not by those that came: never negative but for rounding."""
        return np.asarray(self.best[rows] - np.nansum(self.truth.means(rows, arms), axis=1))


def load_or_fit(path: Path | None, dataset: Dataset, fit: Callable[[], Truth], k: int) -> tuple[Truth, Floats]:
    """The truth and what its best k arms bring, row by row: from the file if it is whole, else fitted and kept in it.

    >>> from treetop.data.datasets import load
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> truth, best = load_or_fit(None, data, lambda: DenseTruth.fit(data), k=5)
    >>> best.shape
    (200,)
    """
    if path and (kept := run_folder.load_arrays(path)):
        return _of(kept, dataset), kept["best"]
    truth = fit()
    best = truth.best(k)
    if path:
        put(path, lambda file: np.savez(file, **truth.arrays(), best=best))
    return truth, best


def _of(arrays: Mapping[str, Any], dataset: Dataset) -> Truth:
    if "weights" in arrays:
        return DenseTruth(dataset, arrays["weights"])
    return SparseTruth(dataset, Rows(arrays["start"], arrays["index"], arrays["value"], dataset.X.columns + 1))
