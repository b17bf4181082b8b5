"""What the owner of a model knew when it was handed in: its scores, to which refits add what rewards say. Frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Fitted, Float32s, Floats, Int64s, Ints, Rows, as_float32s, as_rows, check_float
from treetop.model.learned_routing import PARTS, load_rows
from treetop.model.pooled_state import PooledState

BLOCK = 65_536  # samples whose products are in memory at a time


@dataclass(frozen=True, eq=False)
class Prior:
    """Scores as they were before any round of this bandit: `rows` . [x; 1], and `means` by routing score if there are.

    `rows` has the shape of a model's `reward_rows`. Scores of a model have `scale` times it in them: its `reward_rows`
    `scale * rows`, its pooled means `scale * means`.

    >>> Prior(as_rows([[2.0, 1.0]])).scores(as_rows([[3.0], [4.0]]), np.array([0, 1]), np.array([0, 0]))
    array([7., 9.])
    """

    rows: Rows
    means: Float32s | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_float("the scale of the owner's scores", self.scale, 0, 1e6)
        if self.means is not None:
            means = as_float32s(self.means, "the owner's means")
            if means.ndim != 1 or len(means) < 2 or not np.isfinite(means).all():
                raise ValueError("the owner's means must be a list of at least 2 finite numbers")
            object.__setattr__(self, "means", means)

    @classmethod
    def of(cls, rewards: Rows, pooled: PooledState | None) -> Prior | None:
        """Of a model's reward models and its learner's state; None if no reward model has a weight.

        >>> Prior.of(as_rows([[0.0, 0.0]]), None) is None
        True
        """
        if not rewards.value.any():
            return None
        mean, own = (1.0, 1.0) if pooled is None else pooled.weights[:2]
        rows = Rows(rewards.start, rewards.index, rewards.value * np.float32(own), rewards.columns)
        return cls(rows, None if pooled is None else pooled.means * np.float32(mean))

    def scores(self, contexts: Rows, row: Ints | Int64s, group: Ints | Int64s) -> Floats:
        """What the reward models of `group` say of these contexts, sample by sample; not scaled."""
        X, W, out = contexts.csr().astype(np.float64), self.rows.csr(), np.empty(len(row))
        for first in range(0, len(row), BLOCK):
            some = slice(first, first + BLOCK)
            w = W[group[some]]
            out[some] = np.asarray(X[row[some]].multiply(w[:, :-1]).sum(axis=1) + w[:, [-1]].toarray()).ravel()
        return out

    def added(self, fitted: Fitted, there: Rows | None) -> Fitted:
        """Reward models: what was fitted, and the owner's. Those that were copied from `there` have that in them.

        >>> fitted = Fitted(*vars(as_rows([[0.5, 0.0], [0.0, 0.0]])).values(), np.array([7, 0]))
        >>> Prior(as_rows([[1.0, 1.0], [0.0, 2.0]]), scale=0.5).added(fitted, None).csr().toarray()
        array([[1. , 0.5],
               [0. , 1. ]], dtype=float32)
        """
        share = np.full(len(fitted), self.scale, np.float32)
        if isinstance(there, Fitted):
            share[there.fingerprints == fitted.fingerprints] = 0
        total = as_rows(fitted.csr() + sp.diags(share) @ self.rows.csr())
        return Fitted(total.start, total.index, total.value, total.columns, fitted.fingerprints)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is saved as files."""
        found = {f"prior_{part}": getattr(self.rows, part) for part in PARTS}
        return found if self.means is None else {**found, "prior_means": self.means}


def copyable(rows: Rows, before: Prior | None, now: Prior | None) -> Rows | None:
    """The reward models of before, if what they have of the owner's is the same now; None if nothing is to be copied.

    >>> rows = as_rows([[1.0]])
    >>> copyable(rows, Prior(rows), Prior(rows, scale=0.5)) is None
    True
    """
    return rows if before is None or now is None or before.scale == now.scale else None


def load_prior(arrays: dict[str, Any], scale: float | None, columns: int) -> Prior | None:
    """What a saved model has of its owner's; None if nothing.

    >>> load_prior({}, None, columns=3) is None
    True
    """
    if (scale is None) != ("prior_start" not in arrays):
        raise ValueError("the owner's scores are their files and their scale; there is one of them")
    return None if scale is None else Prior(load_rows(arrays, "prior", columns), arrays.get("prior_means"), scale)
