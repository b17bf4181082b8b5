"""Mean rewards that are linear and sparse, for datasets whose dense matrix of weights is too large to have.

An arm's weights are its ridge regression over the whole dataset on at most `KEPT` features of its own and a bias: the
features that each alone would explain most of its labels, among those of the rows that have it. What is kept is the
truth, so rewards are exactly linear. The work is in `src/core/truth.hpp`. Knows nothing of policies or noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from treetop import _core
from treetop.arrays import Floats, Int64s, Ints, Rows, as_rows, check_float, check_int
from treetop.data.datasets import Dataset
from treetop.simulation.worlds import Labels

KEPT = 50  # weights of an arm, beside its bias
LARGEST_FIT = 4 * 2**30  # bytes of the matrices of a fit, dense or sparse
BLOCK = 4096
COMPARED_ROWS = 2_000  # rows on which a truth is compared with the labels
BEST_ARMS = 5  # best arms of each that are looked at


class Truth(Protocol):
    """Who knows the mean reward of every arm for every row of a dataset."""

    @property
    def dataset(self) -> Dataset: ...

    def means(self, rows: Int64s, arms: Ints) -> Floats:
        """(n, k): the mean rewards of arms for rows of the dataset; NaN where there is no arm."""
        ...

    def best_arms(self, rows: Int64s, k: int) -> Ints:
        """(n, k): the arms with the highest mean rewards, the best first."""
        ...

    def best(self, k: int) -> Floats:
        """The mean reward of the best k arms together, for every row of the dataset."""
        ...

    def arrays(self) -> dict[str, Any]:
        """What a file must hold to have it again."""
        ...


@dataclass(frozen=True, eq=False)
class SparseTruth:
    """A dataset whose arms have the mean rewards [x; 1] . weights[arm], with few weights an arm.

    >>> data = Dataset("two rows", as_rows([[1.0], [2.0]]), as_rows([[0.0, 1.0], [1.0, 0.0]], what="labels"))
    >>> truth = SparseTruth.fit(data)
    >>> truth.best_arms(np.array([0, 1]), k=1)
    array([[1],
           [0]], dtype=int32)
    """

    dataset: Dataset
    weights: Rows

    @classmethod
    def fit(
        cls,
        dataset: Dataset,
        ridge: float = 0.5,
        kept: int = KEPT,
        threads: int = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> SparseTruth:
        """The truth nearest to the labels on `kept` features an arm. An arm without labels has no weights."""
        check_float("ridge", ridge, 1e-12)
        check_int("kept", kept, 1, 4096)
        if (needed := 8 * dataset.n_arms * (kept + 1)) > LARGEST_FIT:
            raise ValueError(
                f"{dataset.n_arms} arms of {kept} weights and a bias are {needed:,} bytes; at most {LARGEST_FIT:,} are "
                "allowed"
            )
        X, columns, arms = dataset.X, transposed(dataset.X), transposed(dataset.Y)
        found = _core.fit_truth(
            X.start,
            X.index,
            X.value,
            X.columns,
            columns.start,
            columns.index,
            columns.value,
            arms.start,
            arms.index,
            arms.value,
            ridge,
            kept,
            threads,
            progress,
        )
        return cls(dataset, Rows(*found, X.columns + 1))

    def means(self, rows: Int64s, arms: Ints) -> Floats:
        X, w = self.dataset.X, self.weights
        asked = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(arms, np.int32).ravel()
        found = _core.means(X.start, X.index, X.value, X.columns, w.start, w.index, w.value, *asked, 0)
        return found.reshape(arms.shape)

    def best_arms(self, rows: Int64s, k: int) -> Ints:
        """Ranked by scores in float32: arms that differ by rounding alone may come in either order."""
        check_int("k", k, 1, self.dataset.n_arms)
        parts = [self._some_best(rows[a : a + BLOCK], k) for a in range(0, len(rows), BLOCK)]
        return np.concatenate([np.zeros((0, k), np.int32), *parts])

    def _some_best(self, rows: Int64s, k: int) -> Ints:
        x = as_rows(self.dataset.X.csr()[rows])
        arms, *_ = self._by_feature.top(x.start, x.index, x.value, k)
        return np.asarray(arms)

    @cached_property
    def _by_feature(self) -> _core.Flat:
        w = self.weights
        return _core.Flat(w.start, w.index, w.value, w.columns, 0)

    def best(self, k: int) -> Floats:
        rows = np.arange(len(self.dataset.X))
        return np.asarray(self.means(rows, self.best_arms(rows, k)).sum(axis=1))

    def arrays(self) -> dict[str, Any]:
        return {"start": self.weights.start, "index": self.weights.index, "value": self.weights.value}


def transposed(matrix: Rows) -> Rows:
    """The transposed matrix, its rows in order.

    >>> transposed(as_rows([[1.0, 2.0], [0.0, 3.0]])).csr().toarray()
    array([[1., 0.],
           [2., 3.]], dtype=float32)
    """
    by_column = matrix.csr().tocsc()
    return Rows(by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32), by_column.data, len(matrix))


def label_hits(truth: Truth, k: int = BEST_ARMS, most: int = COMPARED_ROWS) -> float:
    """How many of a row's k best arms by the truth are labels of it, on average over evenly spaced rows.

    >>> data = Dataset("two rows", as_rows([[1.0], [2.0]]), as_rows([[0.0, 1.0], [1.0, 0.0]], what="labels"))
    >>> label_hits(SparseTruth.fit(data), k=1)
    1.0
    """
    n = len(truth.dataset.X)
    rows = np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))
    best = truth.best_arms(rows, min(k, truth.dataset.n_arms))
    return float((Labels(truth.dataset.Y).rewards(rows, best) > 0).sum() / len(rows))
