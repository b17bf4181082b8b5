"""Feedback to the next model: samples, refit, and when to refit. Knows nothing of how decisions are drawn."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Fitted, Floats, Ints, Longs, Matrix, Rows, Singles, as_rows, as_singles, real, whole
from treetop.model.model import Model
from treetop.records import Feedback

LOSSES = {"squared": 0, "absolute": 2}
PASSES, EXACT_UP_TO = 1000, 64  # of coordinate descent, at most; samples of least squares that are solved exactly
SOLVER = 1  # changes with src/core/solve.hpp whenever that gives other weights, to the bit


class Learner(Protocol):
    """Anything that makes the next model from the last one and all past feedback."""

    def learn(
        self, model: Model, feedback: Feedback, progress: Callable[[int, int], object] | None = None
    ) -> Model: ...


@dataclass(frozen=True)
class Linear:
    """l2-regularised linear regression on [x; 1]: min 1/2 |w|^2 + cost * sum of losses, bias penalised like the rest.

    `loss="squared"` is least squares (what the theory asks), `"absolute"` the paper's LinearSVR with epsilon 0. It is
    also a regression oracle in scikit-learn's shape, for FlatPolicy.

    >>> model = Linear().fit([[1.0], [2.0]], [1.0, 2.0])
    >>> model.predict([[3.0]]).round(2)
    array([2.53])
    """

    loss: str = "squared"
    cost: float = 1.0
    tolerance: float = 1e-3
    threads: int = 0
    weights: Rows | None = None

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss is {self.loss!r}; it must be one of {', '.join(LOSSES)}")
        real("cost", self.cost, 1e-12, 1e12)
        real("tolerance", self.tolerance, 1e-12, 1e3)
        whole("threads", self.threads, 0, 4096)

    def solve(
        self, contexts: Rows, start: Longs, rows: Ints, target: Singles, before: Rows | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Fitted:  # fmt: skip
        """One regressor per group: samples start[g]:start[g + 1] are contexts `rows` with their targets.

        Where row g of `before` was fitted from the same samples with the same settings, it is taken as it is.

        >>> contexts = as_rows([[1.0], [2.0]])
        >>> start, rows = np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32)  # two groups of one sample each
        >>> Linear().solve(contexts, start, rows, np.array([1, 2], np.float32)).csr().shape
        (2, 2)
        """
        X = contexts.start, contexts.index, contexts.value, contexts.columns
        prints = _core.fingerprints(*X, start, rows, target, self._key(), self.threads)
        found = _core.fit(
            *X, start, rows, target, LOSSES[self.loss], self.cost, self.tolerance, PASSES, EXACT_UP_TO, 0.0, 0,
            self.threads, progress, **_known(before, prints),
        )  # fmt: skip
        return Fitted(*found, contexts.columns + 1, prints)

    def _key(self) -> int:
        """What decides the weights beside samples and row, as a number."""
        settings = (SOLVER, self.loss, float(self.cost), float(self.tolerance), PASSES, EXACT_UP_TO)
        return int.from_bytes(hashlib.blake2b(repr(settings).encode(), digest_size=8).digest(), "little", signed=True)

    def learn(self, model: Model, feedback: Feedback, progress: Callable[[int, int], object] | None = None) -> Model:
        """The faithful learner: a regressor per node and per arm, each on its own samples.

        >>> from treetop.tree.tree import Tree
        >>> X = Y = np.eye(2, dtype=np.float32)
        >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
        >>> Linear().learn(model, Feedback(X, arms=[[0], [0]], nodes=None, rewards=[[1], [0]])).epoch
        1
        """
        found = samples(feedback, model)
        rewards = self.solve(feedback.contexts, *found, before=model.reward_rows, progress=progress)
        return Model(
            model.tree, model.route_rows, rewards, model.epoch + 1, len(feedback), model.geometric, home=model.home
        )

    def fit(self, X: Matrix, y: Any) -> Linear:
        """The same with weights: one regressor for all rows."""
        contexts = as_rows(X)
        target = as_singles(y, "targets")
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


def _known(before: Rows | None, prints: Longs) -> dict[str, Any]:
    """Which rows of `before` were fitted from what has these prints, and all its rows; nothing if they are others'."""
    if not isinstance(before, Fitted) or len(before) != len(prints):
        return {}
    same = before.prints == prints
    return {"keep": same, "known_start": before.start, "known_index": before.index, "known_value": before.value}


def samples(feedback: Feedback, model: Model) -> tuple[Longs, Ints, Singles]:
    """Observed rewards by reward model, as (start, contexts, rewards): a node's own choices, every showing of an arm.

    Row g of the model's `rewards` owns samples start[g]:start[g + 1].

    >>> from treetop.tree.tree import Tree
    >>> X = Y = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
    >>> samples(Feedback(X, arms=[[0], [0]], nodes=[[-1], [1]], rewards=[[1], [0]]), model)[0]  # nodes 0-2, arms 0-1
    array([0, 0, 1, 1, 3, 3])
    """
    tree = model.tree
    check_fits(feedback, model)
    t, slot = np.nonzero(feedback.observed)
    arm, node, reward = (a[t, slot] for a in (feedback.arms, feedback.nodes, feedback.rewards))
    through = node >= 0
    group = np.concatenate([node[through], tree.n_nodes + arm])
    start, order = by_group(group, tree.n_nodes + tree.n_arms)
    context = np.concatenate([t[through], t]).astype(np.int32)
    return start, context[order], np.concatenate([reward[through], reward])[order]


def by_group(group: Ints, groups: int) -> tuple[Longs, Ints]:
    """Where each group begins, and the samples group by group, each in its order: a counting sort, as scipy does it.

    >>> by_group(np.array([2, 0, 2], np.int32), 3)
    (array([0, 1, 1, 3]), array([1, 0, 2], dtype=int32))
    """
    n = len(group)
    one_a_row = sp.csr_matrix((np.ones(n, np.int8), group, np.arange(n + 1)), shape=(n, groups))
    sorted_ = one_a_row.tocsc()
    return sorted_.indptr.astype(np.int64), sorted_.indices.astype(np.int32)


def check_fits(feedback: Feedback, model: Model, moving: bool = False) -> None:
    """Refuses feedback on arms, nodes or features that the model does not have; nodes may be others' where arms move.

    >>> from treetop.tree.tree import Tree
    >>> X = Y = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
    >>> check_fits(Feedback(X, arms=[[7], [0]], nodes=None, rewards=[[1], [0]]), model)
    Traceback (most recent call last):
    ValueError: feedback on arm 7, outside [0, 2)
    """
    tree, arms, nodes = model.tree, feedback.arms, feedback.nodes
    if feedback.contexts.columns != model.n_features:
        raise ValueError(f"feedback has {feedback.contexts.columns} features; the model has {model.n_features}")
    for name, ids, limit in (("arm", arms, tree.n_arms), *([] if moving else [("node", nodes, tree.n_nodes)])):
        if ids.size and ids.max() >= limit:
            raise ValueError(f"feedback on {name} {ids.max()}, outside [0, {limit})")
    if feedback.appeared is not None and len(feedback.appeared) > tree.n_arms:
        raise ValueError(f"feedback says when {len(feedback.appeared)} arms appeared; the model has {tree.n_arms}")
    if moving:
        return
    place = tree.position_of[np.maximum(arms, 0)]
    above = np.maximum(nodes, 0)
    lost = (nodes >= 0) & (arms >= 0) & ((place < tree.begin[above]) | (place >= tree.end[above]))
    if lost.any():
        r, s = np.argwhere(lost)[0]
        raise ValueError(f"round {r}, slot {s}: arm {arms[r, s]} is not below node {nodes[r, s]}")


def refit(
    model: Any,
    feedback: Feedback,
    regressor: Learner | None = None,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """The next epoch's model: every reward model with data fitted on all past feedback. The old model still serves.

    `feedback` is the whole history (`history + today`): what is not in it is forgotten. `n_seen` of the new model
    counts all its rounds, those without an observed reward included. Reward models whose samples are those that the
    old model's were fitted from are taken over, which gives the same as to fit them again. `progress(done, total)` is
    called ten times a second, in samples.

    >>> from treetop.tree.tree import Tree
    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> monday = Feedback(X, arms=[[0], [1], [2], [3]], nodes=None, rewards=[[1], [1], [0], [float("nan")]])
    >>> learned = refit(model, monday)
    >>> learned.epoch, learned.n_seen, np.diff(learned.reward_rows.start)[-4:].tolist()
    (1, 4, [2, 2, 0, 0])
    """
    if not isinstance(feedback, Feedback):
        raise TypeError(f"feedback must be a Feedback, not {type(feedback).__name__}")
    if not (regressor is None or callable(getattr(regressor, "learn", None))) or isinstance(regressor, type):
        raise TypeError(f"regressor must be a Linear or Pooled, not {regressor!r}")
    if not callable(getattr(model, "refit", None)) and not isinstance(model, Model):
        raise TypeError(f"{type(model).__name__} is not a model that can be refitted")
    if not isinstance(model, Model):
        if regressor is not None:
            raise ValueError(f"{type(model).__name__} has an oracle of its own; regressor={regressor!r} is not for it")
        return model.refit(feedback)
    if len(feedback) < model.n_seen:
        warnings.warn(
            f"the feedback has {len(feedback)} rounds, the model has seen {model.n_seen}: the others are forgotten",
            stacklevel=2,
        )
    learned: Model = (regressor or Linear()).learn(model, feedback, progress)
    return learned


@dataclass(frozen=True)
class Epochs:
    """When to refit: after how many rounds in all.

    >>> Epochs.doubling(4096).until(20_000)
    [4096, 8192, 16384]
    >>> Epochs.geometric(100, 1.5).until(400)
    [100, 150, 225, 338]
    >>> Epochs.linear(1000).until(3000), Epochs.explicit([5, 50]).until(100)
    ([1000, 2000], [5, 50])
    """

    first: int
    following: Callable[[int], float]

    @classmethod
    def doubling(cls, first: int = 2) -> Epochs:
        """After first, 2 first, 4 first, ... rounds; by default N_l = 2^l as in the theorems."""
        return cls.geometric(first, 2.0)

    @classmethod
    def geometric(cls, first: int, factor: float) -> Epochs:
        """After first, first factor, first factor^2, ... rounds, rounded up."""
        factor = real("factor", factor, 1 + 1e-9, 1e100)
        return cls(whole("first", first, 1, 2**62), lambda n: max(n + 1, math.ceil(n * factor)))

    @classmethod
    def linear(cls, every: int) -> Epochs:
        """After so many rounds again and again."""
        every = whole("every", every, 1, 2**62)
        return cls(every, lambda n: n + every)

    @classmethod
    def explicit(cls, rounds: Sequence[int]) -> Epochs:
        """After exactly these rounds."""
        chosen = [whole("round", n, 1, 2**62) for n in rounds]
        if not chosen or any(b <= a for a, b in pairwise(chosen)):
            raise ValueError(f"rounds must rise strictly and not be empty: {list(rounds)[:10]}")
        return cls(chosen[0], lambda n: next((c for c in chosen if c > n), math.inf))

    def until(self, horizon: int) -> list[int]:
        """The refits that come before round `horizon` is over."""
        whole("horizon", horizon, 0, 2**62)
        found: list[int] = []
        n = float(self.first)
        while n < horizon:
            if found and int(n) <= found[-1]:
                raise ValueError(f"after the refit at round {found[-1]} follows one at round {n}; rounds must rise")
            found.append(int(n))
            n = self.following(int(n))
        return found
