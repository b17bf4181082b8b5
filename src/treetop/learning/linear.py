"""The paper's learner: a linear regressor a node and an arm, each on its own samples. Also a plain oracle."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treetop import _core
from treetop.arrays import (
    Fitted,
    Float32s,
    Floats,
    Int64s,
    Ints,
    Matrix,
    Rows,
    as_float32s,
    as_rows,
    check_float,
    check_int,
)
from treetop.effort import Progress
from treetop.learning.samples import latest, paper_samples, without_outliers
from treetop.model.model import Model
from treetop.model.prior import copyable
from treetop.records import Feedback

LOSSES = {"squared": 0, "absolute": 2}
PASSES, EXACT_UP_TO = 1000, 64  # of coordinate descent, at most; samples of least squares that are solved exactly
NO_THRESHOLDS = np.zeros(0, np.float32)  # of weights: none is dropped
SOLVER = 1  # changes with src/core/solve.hpp whenever that gives other weights, to the bit


@dataclass(frozen=True)
class Linear:
    """l2-regularised linear regression on [x; 1]: min 1/2 |w|^2 + cost * sum of losses, bias penalised like the rest.

    `loss="squared"` is least squares (what the theory asks), `"absolute"` the paper's LinearSVR with epsilon 0. It is
    also a regression oracle in scikit-learn's shape, for FlatPolicy. As a learner it fits each node and arm on its
    latest `window` samples, or on all if that is 0.

    >>> model = Linear().fit([[1.0], [2.0]], [1.0, 2.0])
    >>> model.predict([[3.0]]).round(2)
    array([2.53])
    """

    loss: str = "squared"
    cost: float = 1.0
    tolerance: float = 1e-3
    threads: int = 0
    weights: Rows | None = None
    window: int = 0

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss is {self.loss!r}; it must be one of {', '.join(LOSSES)}")
        check_float("cost", self.cost, 1e-12, 1e12)
        check_float("tolerance", self.tolerance, 1e-12, 1e3)
        check_int("threads", self.threads, 0, 4096)
        check_int("window", self.window, 0)

    def solve(
        self,
        contexts: Rows,
        start: Int64s,
        rows: Ints,
        target: Float32s,
        before: Rows | None = None,
        progress: Progress | None = None,
        thresholds: Float32s = NO_THRESHOLDS,
        first: int = 0,
    ) -> Fitted:
        """One regressor per group: samples start[g]:start[g + 1] are contexts `rows` with their targets.

        Where row g of `before` was fitted from the same samples with the same settings, it is taken as it is. Weights
        up to `thresholds`, one a feature and one for the bias, are dropped. Groups that are `first` and the following
        ones of all groups are solved as they would be among these.

        >>> contexts = as_rows([[1.0], [2.0]])
        >>> start, rows = np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32)  # two groups of one sample each
        >>> Linear().solve(contexts, start, rows, np.array([1, 2], np.float32)).csr().shape
        (2, 2)
        """
        X = contexts.start, contexts.index, contexts.value, contexts.columns
        fingerprints = _core.fingerprints(*X, start, rows, target, self._key(thresholds), self.threads)
        found = _core.fit(
            *X,
            start,
            rows,
            target,
            LOSSES[self.loss],
            self.cost,
            self.tolerance,
            PASSES,
            EXACT_UP_TO,
            thresholds,
            0,
            self.threads,
            progress,
            **_known(before, fingerprints),
            first=first,
        )
        return Fitted(*found, contexts.columns + 1, fingerprints)

    def _key(self, thresholds: Float32s) -> int:
        """A hash of solver version and settings: part of every row's fingerprint."""
        settings = (SOLVER, self.loss, float(self.cost), float(self.tolerance), PASSES, EXACT_UP_TO)
        told = repr(settings).encode() + thresholds.tobytes()
        return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little", signed=True)

    def learn(self, model: Model, feedback: Feedback, progress: Progress | None = None) -> Model:
        """The faithful learner: a regressor per node and per arm, each on its own samples; contexts far larger than the
        others are scaled down. Where the owner's model has a say, it is what that leaves over that is fitted.

        >>> from treetop.tree.tree import Tree
        >>> X = Y = np.eye(2, dtype=np.float32)
        >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
        >>> Linear().learn(model, Feedback(X, arms=[[0], [0]], nodes=None, rewards=[[1], [0]])).epoch
        1
        """
        start, rows, target = paper_samples(feedback, model)
        if self.window:
            start, some = latest(start, np.arange(len(rows), dtype=np.int32), self.window)
            rows, target = rows[some], target[some]
        contexts, prior = without_outliers(feedback.contexts), model.prior
        if prior is not None:
            prior = replace(prior, scale=1.0)
            said = prior.scores(feedback.contexts, rows, np.repeat(np.arange(len(start) - 1), np.diff(start)))
            target = (target - said).astype(np.float32)
        before = copyable(model.reward_rows, model.prior, prior)
        rewards = self.solve(contexts, start, rows, target, before=before, progress=progress)
        rewards = rewards if prior is None else prior.added(rewards, before)
        return replace(
            model, reward_rows=rewards, prior=prior, epoch=model.epoch + 1, n_seen=len(feedback), pooled=None
        )

    def fit(self, X: Matrix, y: Any) -> Linear:
        """The same with weights: one regressor for all rows."""
        contexts = as_rows(X)
        target = as_float32s(y, "targets")
        if target.shape != (len(contexts),):
            raise ValueError(f"{len(contexts)} contexts, but targets of shape {target.shape}")
        if not np.isfinite(target).all():
            raise ValueError(f"target {target[~np.isfinite(target)][0]} is not finite")
        start = np.array([0, len(contexts)], np.int64)
        rows = np.arange(len(contexts), dtype=np.int32)
        return replace(self, weights=self.solve(contexts, start, rows, target))

    def predict(self, X: Matrix) -> Floats:
        """[x; 1] . w for every row."""
        if self.weights is None:
            raise ValueError("this regressor has not been fitted yet")
        w = self.weights.csr().toarray().ravel().astype(np.float64)
        contexts = as_rows(X, len(w) - 1)
        return np.asarray(contexts.csr().astype(np.float64) @ w[:-1] + w[-1])


def _known(before: Rows | None, fingerprints: Int64s) -> dict[str, Any]:
    """Which rows of `before` have these fingerprints, and all its rows; nothing if it was never fitted."""
    if not isinstance(before, Fitted) or len(before) != len(fingerprints):
        return {}
    same = before.fingerprints == fingerprints
    return {"keep": same, "known_start": before.start, "known_index": before.index, "known_value": before.value}
