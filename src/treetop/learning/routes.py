"""How well each context that was logged is routed to the arms it was shown. Remembers nothing unless asked to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop import _core
from treetop.arrays import Bools, Floats, Ints, Rows, as_rows
from treetop.model.model import Model
from treetop.records import Feedback
from treetop.tree.tree import Tree


@dataclass(eq=False)
class RouteCache:
    """The routes of the last refit, for a caller that refits one history again and again, as a simulation does.

    Rounds that were routed before are not routed again, but for those with an arm that moved; the result is the same
    with or without a cache. Not for several threads at once.
    """

    last: tuple[Rows, Ints, tuple[int, ...], Floats] | None = None
    leaf_model: tuple[Rows, Ints, Model] | None = None

    def known(self, model: Model, feedback: Feedback) -> tuple[Floats, Bools]:
        """Routes of the first rounds, and which arms are in another leaf since."""
        leaf_of = model.tree.leaf_of
        if self.last is not None:
            routing, leaves, digest, routes = self.last
            if (
                routing is model.route_rows
                and len(routes) <= len(feedback)
                and len(leaves) == len(leaf_of)
                and digest == _digest(feedback, len(routes))
            ):
                return routes, leaves != leaf_of
        return np.zeros((0, feedback.arms.shape[1])), np.zeros(len(leaf_of), np.bool_)

    def leaves(self, model: Model) -> tuple[Ints, Model]:
        """All leaves, and a model that has them for arms: its layout need not be made again when arms move."""
        if self.leaf_model is None or self.leaf_model[0] is not model.route_rows:
            leaves = np.setdiff1d(np.arange(model.tree.n_nodes), model.tree.parents).astype(np.int32)
            routing = Model.unlearned(Tree(model.tree.parents, leaves), model.route_rows, model.geometric)
            self.leaf_model = model.route_rows, leaves, routing
        return self.leaf_model[1:]


def shown_routes(model: Model, feedback: Feedback, threads: int = 0, cache: RouteCache | None = None) -> Floats:
    """(rounds, slots): log of the routing score down to the leaf of each arm shown; NaN where nothing was shown.

    >>> X = Y = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> shown_routes(model, Feedback(X[:1], arms=[[0, -1]], nodes=None, rewards=[[1, float("nan")]])).shape
    (1, 2)
    """
    cache = cache or RouteCache()
    routes = np.full(feedback.arms.shape, np.nan)
    known, moved = cache.known(model, feedback)
    routes[: len(known)] = known
    again = moved[np.maximum(feedback.arms, 0)].any(axis=1)
    again[len(known) :] = True
    x, arms = as_rows(feedback.contexts.csr()[again]), feedback.arms[again]
    engine, places = (model.engine, arms) if "engine" in vars(model) else _by_leaf(model, arms, cache)
    routes[again] = engine.routes(x.start, x.index, x.value, places.reshape(-1), max(1, arms.shape[1]), threads)
    cache.last = model.route_rows, model.tree.leaf_of, _digest(feedback, len(feedback)), routes
    return routes


def _by_leaf(model: Model, arms: Ints, cache: RouteCache) -> tuple[_core.Engine, Ints]:
    """An engine that has the leaves for arms, and the leaf of each arm as its arm."""
    leaves, leaf_model = cache.leaves(model)
    places = np.searchsorted(leaves, model.tree.leaf_of[np.maximum(arms, 0)])
    return leaf_model.engine, np.where(arms < 0, -1, places).astype(np.int32)


def _digest(feedback: Feedback, rounds: int) -> tuple[int, ...]:
    """Of the contexts and arms of the first rounds."""
    x = feedback.contexts.head(rounds)
    arrays = (x.start, x.index, x.value, feedback.arms[:rounds])
    sums = (_core.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8), 0) for array in arrays)
    return rounds, feedback.arms.shape[1], *sums
