"""Algorithm 1: top-k decisions over a plain list of arms with any regression oracle. No tree, same strategies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.explore import IGW, Strategy, batch_keys, check, choose, event_name, first_draw
from treetop.learn import Linear
from treetop.policy import MAX_SLOTS, expect, one_row
from treetop.types import (
    Arms,
    Bools,
    Candidates,
    Decision,
    Decisions,
    Explanation,
    Feedback,
    Floats,
    Ints,
    Matrix,
    Rows,
    Singles,
    as_indices,
    as_numbers,
    as_rows,
    as_singles,
    whole,
)


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
        whole("n_arms", self.n_arms, 1)
        whole("n_features", self.n_features, 1)
        whole("epoch", self.epoch, 0, 2**62)
        whole("n_seen", self.n_seen, 0, 2**62)
        for name, given in (("oracle", self.oracle), ("joint", self.joint or Linear)):
            if not callable(given):
                raise TypeError(f"{name} must be a function or a class, not {given!r}")

    def scores(self, x: Rows) -> Singles:
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


def _predict(oracle: Any, X: sp.csr_matrix, n: int) -> Singles:
    found = as_numbers(oracle.predict(X), "the oracle's predictions")
    if found.shape not in ((n,), (n, 1)):
        raise ValueError(f"the oracle predicted an array of shape {found.shape} for {n} rows")
    if not np.isfinite(found).all():
        raise ValueError(f"the oracle predicted {found[~np.isfinite(found)][0]}; predictions must be finite")
    return as_singles(found.ravel(), "the oracle's predictions")


@dataclass(frozen=True)
class FlatPolicy:
    """Algorithm 1: k - r arms by score, r drawn by the strategy among the others, over all arms.

    >>> model = FlatModel(n_arms=4, n_features=2)
    >>> seen = Feedback([[1.0, 0.0]], arms=[[2]], nodes=[[-1]], rewards=[[1.0]])
    >>> FlatPolicy(k=1, explore=0).decide(model.refit(seen), [1.0, 0.0], event_id="q").arms
    array([2], dtype=int32)
    >>> FlatPolicy(k=1, explore=0).decide_batch(model, [[1.0, 0.0], [0.0, 1.0]], seed=0).arms.tolist()
    [[0], [0]]
    >>> FlatPolicy(k=1, explore=0).explain(model, [1.0, 0.0]).probability
    array([0.25, 0.25, 0.25, 0.25])
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
        eligible: Arms | None = None,
        exclude: Arms | None = None,
    ) -> Decision:
        """One decision; the same event id gives the same one again."""
        name = uuid.uuid4().hex if event_id is None else event_name(event_id)
        row = one_row(x, expect(model, FlatModel, self).n_features)
        return self.decide_batch(model, row, event_ids=[name], eligible=eligible, exclude=exclude)[0]

    def decide_batch(
        self,
        model: FlatModel,
        X: Matrix,
        seed: int | None = None,
        event_ids: Sequence[str | int] | None = None,
        eligible: Arms | None = None,
        exclude: Arms | None = None,
        *,
        first_row: int = 0,
    ) -> Decisions:
        """One decision per row."""
        rows = as_rows(X, expect(model, FlatModel, self).n_features)
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
        self, model: FlatModel, x: Matrix, eligible: Arms | None = None, exclude: Arms | None = None
    ) -> Explanation:
        """Every arm with its score and its chance under the strategy with no slot taken yet."""
        row = one_row(x, expect(model, FlatModel, self).n_features)
        arms = _in_play(model, eligible, exclude)
        found = _candidates(arms, model.scores(row)[0])
        p = first_draw(self.strategy, found, model.n_seen)
        return Explanation(found.is_node, found.id, found.route, found.score, found.promise, p)


def _candidates(arms: Ints, scores: Singles) -> Candidates:
    single: Bools = np.zeros(len(arms), np.bool_)
    nothing = np.zeros(len(arms), np.float32)
    return Candidates(single, arms, np.ones(len(arms)), np.ascontiguousarray(scores[arms]), nothing)


def _in_play(model: FlatModel, eligible: Arms | None, exclude: Arms | None) -> Ints:
    allowed = np.ones(model.n_arms, np.bool_)
    if eligible is not None:
        allowed = _mask(model.n_arms, eligible, "eligible arm")
    if exclude is not None:
        allowed &= ~_mask(model.n_arms, exclude, "excluded arm")
    if not allowed.any():
        raise ValueError(f"none of the {model.n_arms} arms is eligible")
    return np.flatnonzero(allowed).astype(np.int32)


def _mask(n_arms: int, arms: Arms, what: str) -> Bools:
    array = np.asarray(list(arms) if isinstance(arms, set | frozenset) else arms)
    if array.ndim != 1:
        raise ValueError(f"{what}s must be a list of ids or a mask, not an array of shape {array.shape}")
    if array.dtype == np.bool_:
        if array.shape != (n_arms,):
            raise ValueError(f"the mask has shape {array.shape}; there are {n_arms} arms")
        return array.copy()
    mask = np.zeros(n_arms, np.bool_)
    mask[as_indices(array, n_arms, what)] = True
    return mask
