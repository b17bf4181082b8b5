"""How well contexts are routed to arms: labelled rows and logged rounds. Remembers nothing unless asked to.

Contexts that routing was fitted on are judged by routing that has not seen them (`LearnedRouting.held_out`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop import _core
from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints, Rows, as_rows
from treetop.learning.arm_routing import fold_of
from treetop.learning.label_samples import LabelSamples, pair_routes
from treetop.model.measure import Measure
from treetop.model.model import Model
from treetop.records import Feedback
from treetop.tree.tree import Tree


@dataclass(frozen=True, eq=False)
class Router:
    """Routing scores of contexts and arms, wherever the arms stand: arms may move between leaves without anything being
    made anew. Linear functions are read as they are; for geometry there is a model of the leaves alone.
    """

    tree: Tree
    rows: Rows
    leaves: Ints
    leaf_model: Model | None
    path_weight: float = 1.0

    @classmethod
    def of(
        cls,
        tree: Tree,
        rows: Rows,
        geometric: bool = False,
        measure: Measure | None = None,
        context_map: Float32s | None = None,
        folder: Path | None = None,
        path_weight: float = 1.0,
    ) -> Router:
        """With `folder`, an empty one, what is made to route leaves lies there instead of in memory."""
        by_measure = measure is not None and measure.routes
        if not (geometric or by_measure):
            return cls(tree, rows, np.zeros(0, np.int32), None, path_weight)
        leaves = np.setdiff1d(np.arange(tree.n_nodes), tree.parents).astype(np.int32)
        model = Model.unlearned(Tree(tree.parents, leaves), rows.head(tree.n_nodes), geometric)
        if by_measure:
            model = replace(model, measure=measure, context_map=context_map)
        return cls(tree, rows, leaves, model if folder is None else model.backed_by(folder))

    def __call__(self, x: Rows, row: Ints | Int64s, arm: Ints, leaf_of: Ints) -> Floats:
        """The log routing score of each pair of a row of x and an arm; the rows rise."""
        if self.leaf_model is not None:
            rows: Any
            rows, place = np.unique(row, return_inverse=True)
            leaf = np.searchsorted(self.leaves, leaf_of[arm]).astype(np.int32)
            return pair_routes(self.leaf_model, as_rows(x.csr()[rows]), place, leaf)
        weights = self.rows.start, self.rows.index, self.rows.value
        pairs = np.asarray(row, np.int64), np.asarray(arm, np.int32)
        return _core.pair_routes(
            x.start,
            x.index,
            x.value,
            x.columns,
            weights,
            self.tree.parents,
            np.asarray(leaf_of),
            *pairs,
            self.path_weight,
            0,
        )


@dataclass(eq=False)
class RouteCache:
    """The routes of the last refit, for a caller that refits one history again and again, as a simulation does.

    What was routed before is not routed again, but for arms that moved; the result is the same with or without a
    cache. Not for several threads at once. With `folder`, an empty one, what is made to route lies there.
    """

    routing: Rows | None = None
    routers: tuple[Router, ...] = ()
    leaf_of: Ints | None = None
    rounds: tuple[tuple[int, ...], Floats] | None = None
    labels: tuple[LabelSamples, LabelSamples] | None = None
    folder: Path | None = None

    def prepared(self, model: Model) -> tuple[Router, ...]:
        """The routers of the folds, then that of the routing that serves; what other routing gave is forgotten."""
        known = self.leaf_of is not None and len(self.leaf_of) == model.n_arms
        if self.routing is not model.route_rows or not known:
            folds = model.learned_routing.held_out if model.learned_routing else ()
            self.routing, self.rounds, self.labels = model.route_rows, None, None
            how = model.geometric, model.measure, model.context_map
            every = (*folds, model.route_rows)
            self.routers = tuple(
                Router.of(model.tree, rows, *how, self._own(i), model.path_weight) for i, rows in enumerate(every)
            )
        return self.routers

    def _own(self, i: int) -> Path | None:
        if self.folder is None:
            return None
        (own := self.folder / f"router-{i}").mkdir(parents=True)
        return own

    def moved(self, model: Model) -> Bools:
        """Which arms are in another leaf than when this was last asked."""
        before, self.leaf_of = self.leaf_of, model.tree.leaf_of
        if before is None or len(before) != model.n_arms:
            return np.zeros(model.n_arms, np.bool_)
        return np.asarray(before != self.leaf_of)


def routed_samples(
    model: Model, labels: LabelSamples | None, feedback: Feedback, cache: RouteCache | None = None
) -> tuple[LabelSamples | None, Floats]:
    """The label samples with their routes in this model, and (rounds, slots) the routes of what was shown.

    A route is the log of the routing score down to the arm; NaN where nothing was shown.

    >>> X = Y = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> shown = Feedback(X[:1], arms=[[0, -1]], nodes=None, rewards=[[1, float("nan")]])
    >>> routed_samples(model, None, shown)[1].shape
    (1, 2)
    """
    cache = cache or RouteCache()
    routers = cache.prepared(model)
    moved = cache.moved(model)
    return _labels(model, labels, cache, routers, moved), _rounds(model, feedback, cache, routers, moved)


def _rounds(model: Model, feedback: Feedback, cache: RouteCache, routers: tuple[Router, ...], moved: Bools) -> Floats:
    arms = feedback.arms
    routes = np.full(arms.shape, np.nan)
    again = np.ones(len(feedback), np.bool_)
    if (past := cache.rounds) is not None and past[0] == _digest(feedback, known := min(len(past[1]), len(feedback))):
        routes[:known] = past[1]
        again[:known] = (moved[np.maximum(arms[:known], 0)] & (arms[:known] >= 0)).any(axis=1)
    fold = np.full(len(feedback), len(routers) - 1)
    if model.learned_routing and (fitted := min(model.learned_routing.rounds, len(feedback))):
        fold[:fitted] = fold_of(feedback.contexts.head(fitted))
    row, slot = np.nonzero((arms >= 0) & again[:, None])
    routes[row, slot] = fold_routes(routers, model.tree.leaf_of, feedback.contexts, fold, row, arms[row, slot])
    cache.rounds = _digest(feedback, len(feedback)), routes
    return routes


def fold_routes(routers: Sequence[Router], leaf_of: Ints, contexts: Rows, fold: Any, row: Any, arm: Any) -> Floats:
    """The routes of pairs of a context and an arm, whose rows rise, each by the router of the context's fold.

    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, X)
    >>> row, arm = np.array([0, 1]), np.array([0, 0], np.int32)
    >>> routers = [Router.of(model.tree, model.route_rows)]
    >>> mine, other = fold_routes(routers, model.tree.leaf_of, as_rows(X), np.zeros(2, int), row, arm)
    >>> bool(mine > other)
    True
    """
    routes, fold_of_row = np.empty(len(row)), fold.astype(np.int8)[row]
    for f, router in enumerate(routers):
        mine = np.flatnonzero(fold_of_row == f)
        if len(mine):
            routes[mine] = router(contexts, row[mine], arm[mine], leaf_of)
    return routes


def _labels(
    model: Model, labels: LabelSamples | None, cache: RouteCache, routers: tuple[Router, ...], moved: Bools
) -> LabelSamples | None:
    if labels is None or model.learned_routing is None:
        return labels
    known = cache.labels[1] if cache.labels is not None and cache.labels[0] is labels else None
    again = np.flatnonzero(np.ones(len(labels), np.bool_) if known is None else moved[labels.arm])
    again = again[np.argsort(labels.row[again], kind="stable")]
    log_route = (known or labels).log_route.copy()
    pairs = labels.row[again], labels.arm[again]
    log_route[again] = fold_routes(routers, model.tree.leaf_of, labels.contexts, fold_of(labels.contexts), *pairs)
    cache.labels = labels, replace(labels, log_route=log_route)
    return cache.labels[1]


def _digest(feedback: Feedback, rounds: int) -> tuple[int, ...]:
    """Of the contexts and arms of the first rounds."""
    x = feedback.contexts.head(rounds)
    arrays = (x.start, x.index, x.value, feedback.arms[:rounds])
    sums = (_core.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8), 0) for array in arrays)
    return rounds, feedback.arms.shape[1], *sums
