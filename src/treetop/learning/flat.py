"""Algorithm 1's regression oracle: any regressor with fit and predict, one an arm or one for all. No tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Float32s, Floats, Ints, Matrix, Rows, as_float32s, as_indices, as_numbers, as_rows, check_int
from treetop.learning.linear import Linear
from treetop.records import Feedback


@dataclass(frozen=True, eq=False)
class FlatModel:
    """What the oracle has learned about every arm. `refit` gives the next epoch's model.

    `oracle()` makes an unfitted regressor with scikit-learn's fit(X, y) and predict(X). Without `joint` there is one
    regressor per arm with data, and an arm without data scores 0. With `joint(x, arms)`, which gives one row of
    features per arm for one context x (a csr row), there is a single regressor for all.

    >>> seen = Feedback([[1.0, 0.0]], arms=[[2]], nodes=None, rewards=[[1.0]])
    >>> FlatModel(n_arms=4, n_features=2).refit(seen).scores(as_rows([1.0, 0.0])).round(2)
    array([[0. , 0. , 0.8, 0. ]], dtype=float32)
    """

    n_arms: int
    n_features: int
    oracle: Callable[[], Any] = Linear
    joint: Callable[[Any, Ints], Matrix] | None = None
    fitted: dict[int, Any] = field(default_factory=dict)
    epoch: int = 0
    n_seen: int = 0

    def __post_init__(self) -> None:
        check_int("n_arms", self.n_arms, 1)
        check_int("n_features", self.n_features, 1)
        check_int("epoch", self.epoch, 0, 2**62)
        check_int("n_seen", self.n_seen, 0, 2**62)
        for name, given in (("oracle", self.oracle), ("joint", self.joint or Linear)):
            if not callable(given):
                raise TypeError(f"{name} must be a function or a class, not {given!r}")

    def scores(self, x: Rows) -> Float32s:
        """The estimated reward of every arm for every context: (n, n_arms)."""
        out = np.zeros((len(x), self.n_arms), np.float32)
        matrix = x.csr()
        if self.joint is None:
            for arm, regressor in self.fitted.items():
                out[:, arm] = _predict(regressor, matrix, len(x))
        elif self.fitted:
            every = np.arange(self.n_arms, dtype=np.int32)
            for i in range(len(x)):
                out[i] = _predict(self.fitted[0], self._features(matrix[i], every), self.n_arms)
        return out

    def _features(self, x: Any, arms: Ints) -> sp.csr_matrix:
        assert self.joint is not None
        rows = as_rows(self.joint(x, arms), what="joint features")
        if len(rows) != len(arms):
            raise ValueError(f"joint gave {len(rows)} rows of features for {len(arms)} arms")
        return rows.csr()

    def refit(self, feedback: Feedback) -> FlatModel:
        """The oracle fitted anew on all observed rewards (Algorithm 1, line 4)."""
        if feedback.contexts.columns != self.n_features:
            raise ValueError(f"feedback has {feedback.contexts.columns} features; the model has {self.n_features}")
        t, slot = np.nonzero(feedback.observed)
        arm = as_indices(feedback.arms[t, slot], self.n_arms, "arm")
        reward = feedback.rewards[t, slot].astype(np.float64)
        contexts = feedback.contexts.csr()
        fitted: dict[int, Any] = {}
        if self.joint is None:
            for a in np.unique(arm):
                mine = arm == a
                fitted[int(a)] = _fit(self.oracle(), contexts[t[mine]], reward[mine])
        elif len(t):
            rows = [self._features(contexts[i], arm[j : j + 1]) for j, i in enumerate(t)]
            fitted[0] = _fit(self.oracle(), sp.vstack(rows, format="csr"), reward)
        return replace(self, fitted=fitted, epoch=self.epoch + 1, n_seen=len(feedback))


def _fit(oracle: Any, X: sp.csr_matrix, y: Floats) -> Any:
    fitted = oracle.fit(X, y)
    if not callable(getattr(fitted, "predict", None)):
        raise TypeError(f"the oracle's fit gave {fitted!r}, which has no predict(X)")
    return fitted


def _predict(oracle: Any, X: sp.csr_matrix, n: int) -> Float32s:
    found = as_numbers(oracle.predict(X), "the oracle's predictions")
    if found.shape not in ((n,), (n, 1)):
        raise ValueError(f"the oracle predicted an array of shape {found.shape} for {n} rows")
    if not np.isfinite(found).all():
        raise ValueError(f"the oracle predicted {found[~np.isfinite(found)][0]}; predictions must be finite")
    return as_float32s(found.ravel(), "the oracle's predictions")
