"""The realizable experiment (Section 5, Figure 3a): rewards that are truly linear, plus noise, and regret against them.

One ridge regression an arm over the whole dataset becomes the truth. Its loss is that of `Linear()`, so the learner's
class holds the truth; it is solved for all arms at once, (Z'Z + ridge I)^-1 Z'Y with Z = [X, 1] and one dense Cholesky
factor, since every row is a sample of every arm. Where those matrices are too large, the truth of `truth.py` is taken,
which has few weights an arm. Knows nothing of policies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # linalg and special are loaded when they are first used
import scipy.sparse as sp

from treetop.arrays import Floats, Ints, Longs, Rows, Singles, real, whole
from treetop.data.datasets import Dataset, load
from treetop.experiments import run_folder
from treetop.experiments.execute import Bars, execute
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings
from treetop.experiments.truth import LARGEST, Sparse, Truth
from treetop.files import put
from treetop.policy.strategies import STRATEGIES
from treetop.simulation.observation import uniforms

BLOCK = 512
TRUTH = "truth.npz"


@dataclass(frozen=True, eq=False)
class Realizable:
    """A dataset whose arms have the mean rewards [x; 1] . weights[:, arm].

    >>> from treetop.arrays import as_rows
    >>> data = Dataset("two rows", as_rows([[1.0], [2.0]]), as_rows([[0.0, 1.0], [1.0, 0.0]], what="labels"))
    >>> truth = Realizable.fit(data)
    >>> truth.best_arms(np.array([0, 1]), k=1)
    array([[1],
           [0]], dtype=int32)
    """

    dataset: Dataset
    weights: Floats

    @classmethod
    def fit(cls, dataset: Dataset, ridge: float = 0.5) -> Realizable:
        """The truth nearest to the labels of the dataset; ridge 0.5 is what `Linear(cost=1)` has."""
        real("ridge", ridge, 1e-12)
        d, A = dataset.X.columns + 1, dataset.n_arms
        if (needed := dense_bytes(dataset)) > LARGEST:
            raise ValueError(f"{d} x {d} and {d} x {A} numbers are {needed:,} bytes; at most {LARGEST:,} are allowed")
        ones = sp.csr_matrix(np.ones((len(dataset.X), 1)))
        Z = sp.hstack([dataset.X.csr().astype(np.float64), ones], format="csr")
        gram = (Z.T @ Z).toarray()
        gram[np.diag_indices(d)] += ridge
        factor = scipy.linalg.cho_factor(gram, overwrite_a=True)
        target = (Z.T @ dataset.Y.csr().astype(np.float64)).toarray()
        return cls(dataset, np.ascontiguousarray(scipy.linalg.cho_solve(factor, target, overwrite_b=True)))

    def means(self, rows: Longs, arms: Ints) -> Floats:
        """(n, k): the mean rewards of arms for rows of the dataset; NaN where there is no arm."""
        parts = [self._some_means(rows[a : a + BLOCK], arms[a : a + BLOCK]) for a in range(0, len(rows), BLOCK)]
        return np.concatenate([np.zeros((0, arms.shape[1])), *parts])

    def _some_means(self, rows: Longs, arms: Ints) -> Floats:
        """Only the weights that meet a feature of the row are read."""
        x = self.dataset.X.csr()[rows].astype(np.float64)
        row = np.repeat(np.arange(len(rows)), np.diff(x.indptr))
        met = self.weights[x.indices[:, None], arms[row]]
        every = sp.csr_matrix((x.data, np.arange(len(met)), x.indptr), shape=(len(rows), len(met)))
        return np.where(arms >= 0, every @ met + self.weights[-1, arms], np.nan)

    def best_arms(self, rows: Longs, k: int) -> Ints:
        """(n, k): the arms with the highest mean rewards, the best first."""
        whole("k", k, 1, self.dataset.n_arms)
        return np.concatenate(
            [np.zeros((0, k), np.int32), *(self._some_best(rows[a : a + BLOCK], k) for a in range(0, len(rows), BLOCK))]
        )

    def _some_best(self, rows: Longs, k: int) -> Ints:
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

    >>> dense_bytes(load("synthetic:arms=50,features=30,rows=20"))
    20088
    """
    d = dataset.X.columns + 1
    return 8 * d * (d + dataset.n_arms)


def fitted(dataset: Dataset, ridge: float = 0.5) -> Truth:
    """The dense truth where its matrices can be had, the sparse one where they cannot.

    >>> type(fitted(load("synthetic:arms=50,features=30,rows=20"))).__name__
    'Realizable'
    """
    return (Sparse if dense_bytes(dataset) > LARGEST else Realizable).fit(dataset, ridge)


@dataclass(frozen=True, eq=False)
class Noisy:
    """The rewards of one seed: the truth plus Gaussian noise that has (seed, round, arm) for a key. No limits."""

    truth: Truth
    best: Floats
    sigma: float = 0.1
    seed: int = 0
    reward_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        real("sigma", self.sigma, 0)

    def rewards(self, rows: Longs, arms: Ints, first: int) -> Singles:
        noise = self.sigma * scipy.special.ndtri(uniforms("noise", self.seed, first, arms))
        return (self.truth.means(rows, arms) + noise).astype(np.float32)

    def regret(self, rows: Longs, arms: Ints) -> Floats | None:
        """By mean rewards, not by those that came: never negative but for rounding."""
        return np.asarray(self.best[rows] - np.nansum(self.truth.means(rows, arms), axis=1))


def play(
    data: str,
    strategies: Sequence[str] = tuple(STRATEGIES),
    seeds: Sequence[int] = (0,),
    *,
    folder: str | os.PathLike[str] | None = None,
    beams: Sequence[int | None] = (None, 10),
    sigma: float = 0.1,
    ridge: float = 0.5,
    k: int = 50,
    explore: int = 25,
    parameters: Mapping[str, dict[str, Any]] | None = None,
    progress: Bars | None = None,
    dataset: Dataset | None = None,
    **settings: Any,
) -> list[RunRecord]:
    """Every strategy with every beam; None is wider than every level, which is Algorithm 1 itself.

    `parameters` are those of strategies by name. With `folder` it goes on where it was killed, as `execute` does; the
    truth is kept there too until all is done, since a threaded solver need not give the same bytes twice.

    >>> spec = "synthetic:arms=50,features=30,rows=200,init=100"
    >>> (record,) = play(spec, ["igw"], beams=[None], k=5, explore=2, sigma=0.2, max_leaf=10)
    >>> rounds, regret = record.regret_checkpoints[-1]
    >>> rounds, regret > 0
    (200, True)
    """
    real("sigma", sigma, 0)
    given = parameters or {}
    asked = tuple(
        Settings(name, given.get(name, {}), k, explore, beam, **settings) for beam in beams for name in strategies
    )
    plan = Plan(data, asked, tuple(seeds), world=f"realizable:sigma={sigma:g},ridge={ridge:g}")
    found = dataset or load(data)
    kept = None if folder is None else Path(folder) / TRUTH

    @cache
    def truth() -> tuple[Truth, Floats]:
        return remembered(kept, found, lambda: fitted(found, ridge), k)

    records = execute(folder, plan, progress, dataset=found, worlds=lambda seed: Noisy(*truth(), sigma, seed))
    if kept:
        kept.unlink(missing_ok=True)
    return records


def remembered(path: Path | None, dataset: Dataset, fit: Callable[[], Truth], k: int) -> tuple[Truth, Floats]:
    """The truth and its best k, from the file if it is whole.

    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> truth, best = remembered(None, data, lambda: Realizable.fit(data), k=5)
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
        return Realizable(dataset, arrays["weights"])
    return Sparse(dataset, Rows(arrays["start"], arrays["index"], arrays["value"], dataset.X.columns + 1))
