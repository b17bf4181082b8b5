"""Algorithm 1: top-k decisions over a plain list of arms with any regression oracle. No tree, same strategies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from treetop.explore import IGW, Strategy, batch_keys, check, checked, choose
from treetop.learn import Linear
from treetop.policy import MAX_SLOTS
from treetop.types import (
    Bools,
    Candidates,
    Decision,
    Decisions,
    Explanation,
    Feedback,
    Ints,
    Matrix,
    Rows,
    Singles,
    as_indices,
    as_rows,
    whole,
)


@dataclass(frozen=True, eq=False)
class FlatModel:
    """What the oracle has learned about every arm. `refit` gives the next epoch's model.

    `oracle()` makes an unfitted regressor with scikit-learn's fit(X, y) and predict(X). Without `joint` there is one
    regressor per arm with data, and an arm without data scores 0. With `joint(x, arms)`, which gives one row of features
    per arm for one context x (a csr row), there is a single regressor for all.
    """

    n_arms: int
    n_features: int
    oracle: Callable[[], Any] = Linear
    joint: Callable[[Any, Ints], Matrix] | None = None
    fitted: dict[int, Any] = field(default_factory=dict)
    epoch: int = 0
    n_seen: int = 0

    def __post_init__(self) -> None:
        whole("n_arms", self.n_arms, 1)
        whole("n_features", self.n_features, 1)

    def scores(self, x: Rows) -> Singles:
        """The estimated reward of every arm for every context: (n, n_arms)."""
        out = np.zeros((len(x), self.n_arms), np.float32)
        matrix = x.csr()
        if self.joint is None:
            for arm, regressor in self.fitted.items():
                out[:, arm] = np.asarray(regressor.predict(matrix)).ravel()
        elif self.fitted:
            every = np.arange(self.n_arms, dtype=np.int32)
            for i in range(len(x)):
                out[i] = np.asarray(self.fitted[0].predict(self.joint(matrix[i], every))).ravel()
        if not np.isfinite(out).all():
            raise ValueError(f"the oracle predicted {out[~np.isfinite(out)][0]}; predictions must be finite")
        return out

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
                fitted[int(a)] = self.oracle().fit(contexts[t[mine]], reward[mine])
        elif len(t):
            rows = [as_rows(self.joint(contexts[i], arm[j : j + 1])).csr() for j, i in enumerate(t)]
            fitted[0] = self.oracle().fit(sp.vstack(rows, format="csr"), reward)
        return replace(self, fitted=fitted, epoch=self.epoch + 1, n_seen=len(feedback))


@dataclass(frozen=True)
class FlatPolicy:
    """Algorithm 1: k - r arms by score, r drawn by the strategy among the others, over all arms.

    >>> model = FlatModel(n_arms=4, n_features=2)
    >>> seen = Feedback([[1.0, 0.0]], arms=[[2]], nodes=[[-1]], rewards=[[1.0]])
    >>> FlatPolicy(k=1, explore=0).decide(model.refit(seen), [1.0, 0.0], event_id="q").arms
    array([2], dtype=int32)
    """

    k: int = 5
    explore: int = 3
    strategy: Strategy = field(default_factory=IGW)

    def __post_init__(self) -> None:
        whole("k", self.k, 1, MAX_SLOTS)
        whole("explore", self.explore, 0, self.k)
        check(self.strategy, self.explore)

    def decide(
        self,
        model: FlatModel,
        x: Matrix,
        event_id: str | int | None = None,
        eligible: ArrayLike | None = None,
        exclude: ArrayLike | None = None,
    ) -> Decision:
        """One decision; the same event id gives the same one again."""
        name = uuid.uuid4().hex if event_id is None else str(event_id)
        return self.decide_batch(model, x, event_ids=[name], eligible=eligible, exclude=exclude)[0]

    def decide_batch(
        self,
        model: FlatModel,
        X: Matrix,
        seed: int | None = None,
        event_ids: Sequence[str | int] | None = None,
        eligible: ArrayLike | None = None,
        exclude: ArrayLike | None = None,
        *,
        first_row: int = 0,
    ) -> Decisions:
        """One decision per row."""
        rows = as_rows(X, model.n_features)
        names, keys = batch_keys(len(rows), seed, event_ids, first_row)
        arms = _in_play(model, eligible, exclude)
        n, k = len(rows), self.k
        out = np.full((n, k), -1, np.int32)
        propensities, taken, drawn = np.zeros((n, k)), np.zeros((n, k), np.float32), np.zeros((n, k), np.bool_)
        scores = model.scores(rows)
        for i in range(n):
            found = _candidates(arms, scores[i])
            chosen, p, explored = choose(found, k, self.explore, self.strategy, model.n_seen, int(keys[i]))
            m = len(chosen)
            out[i, :m], propensities[i, :m], drawn[i, :m] = arms[chosen], p, explored
            taken[i, :m] = found.score[chosen]
        return Decisions(names, model.epoch, out, propensities, taken, drawn, np.full((n, k), -1, np.int32))

    def explain(
        self, model: FlatModel, x: Matrix, eligible: ArrayLike | None = None, exclude: ArrayLike | None = None
    ) -> Explanation:
        """Every arm with its score and its chance under the strategy with no slot taken yet."""
        arms = _in_play(model, eligible, exclude)
        found = _candidates(arms, model.scores(as_rows(x, model.n_features))[0])
        p = checked(self.strategy.probabilities(found.score.astype(np.float64), model.n_seen), len(found))
        return Explanation(found.is_node, found.id, found.route, found.score, p)


def _candidates(arms: Ints, scores: Singles) -> Candidates:
    single: Bools = np.zeros(len(arms), np.bool_)
    return Candidates(single, arms, np.ones(len(arms)), np.ascontiguousarray(scores[arms]))


def _in_play(model: FlatModel, eligible: ArrayLike | None, exclude: ArrayLike | None) -> Ints:
    allowed = np.ones(model.n_arms, np.bool_)
    if eligible is not None:
        allowed = _mask(model.n_arms, eligible, "eligible arm")
    if exclude is not None:
        allowed &= ~_mask(model.n_arms, exclude, "excluded arm")
    if not allowed.any():
        raise ValueError(f"none of the {model.n_arms} arms is eligible")
    return np.flatnonzero(allowed).astype(np.int32)


def _mask(n_arms: int, arms: ArrayLike, what: str) -> Bools:
    array = np.asarray(arms)
    if array.dtype == np.bool_:
        if array.shape != (n_arms,):
            raise ValueError(f"the mask has shape {array.shape}; there are {n_arms} arms")
        return array.copy()
    mask = np.zeros(n_arms, np.bool_)
    mask[as_indices(array, n_arms, what)] = True
    return mask
