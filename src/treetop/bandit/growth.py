"""Adds arms to a model that is in use: each gets a place in a leaf, and a full leaf is split. Learns nothing.

What the model knows of the old arms stays. New arms start with the score 0, or with the pooled mean at their routing
score if the model has one, and with a positive chance, like every effective arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from treetop.arrays import Bools, Ints, Matrix, Rows, as_rows, check_int
from treetop.bandit.places import Places, open_bias
from treetop.learning.routing_samples import NEVER
from treetop.model.learned_routing import LearnedRouting
from treetop.model.measure import measured_routing
from treetop.model.model import Model
from treetop.tree.tree import Tree
from treetop.tree.vectors import check_magnitude


def grow(
    model: Model,
    count: int,
    max_leaf: int,
    vectors: Matrix | None = None,
    beside: Sequence[Sequence[int]] | None = None,
    removed: Bools | None = None,
) -> Model:
    """The model with `count` more arms, numbered on from the old ones.

    `vectors` has one row per new arm, in the space of the contexts; an empty row means that nothing is known of the
    arm. An arm with a vector goes to the leaf that such a context is routed to, or to the next best one with room.
    `beside` has for each new arm the old ones that it belongs to, such as those of its category: it goes to a leaf of
    theirs. If there is no room, one of these leaves is split; `places` says how often. The others go to the leaves with
    most room, or if all are full to one that was split least. No leaf gets more than `max_leaf` arms that are there, or
    twice as many with those that are `removed` (a flag an arm): they leave their room to others, or leaves would be
    split again and again while as many arms go as come, and a beam would see ever fewer of them.

    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> grow(model, 3, max_leaf=2).tree.sizes.tolist()
    [7, 4, 3, 2, 2, 2, 1]
    """
    count, max_leaf = check_int("count", count, 1), check_int("max_leaf", max_leaf, 1)
    rows = None if vectors is None else vector_rows(model, vectors)
    if rows is not None and len(rows) != count:
        raise ValueError(f"there are {len(rows)} vectors for {count} new arms")
    if beside is not None and len(beside) != count:
        raise ValueError(f"there are {len(beside)} lists of arms to stand beside for {count} new arms")
    if removed is not None and len(removed) < model.n_arms:
        raise ValueError(f"{len(removed)} flags say which of {model.n_arms} arms are removed")
    places = Places(model, count, max_leaf, rows, beside, removed)
    for arm in range(model.n_arms, model.n_arms + count):
        places.put(arm)
    return _grown(places)


def vector_rows(model: Model, vectors: Matrix) -> Rows:
    """Vectors of new arms: where contexts lie in a space of their own, in that of the items; otherwise as contexts.

    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> vector_rows(Model.from_vectors(tree, np.eye(2), "cosine", context_dims=3), [[1.0, 2.0, 3.0]])
    Traceback (most recent call last):
    ValueError: arm vectors have 3 numbers; the items' have 2
    """
    rows, dims = as_rows(vectors, what="arm vectors"), vector_columns(model)
    if model.measure is not None:
        check_magnitude(rows.value, model.measure.metric)
    if model.context_map is None:
        return as_rows(as_contexts(model, rows), model.n_features, "arm vectors")
    if rows.columns != dims:
        raise ValueError(f"arm vectors have {rows.columns} numbers; the items' have {dims}")
    return rows


def vector_columns(model: Model) -> int:
    """How many columns `vector_rows` have.

    >>> vector_columns(Model.from_vectors(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), np.eye(2), "cosine", n_features=4))
    4
    """
    return model.n_features if model.context_map is None or model.measure is None else model.measure.dims


def as_contexts(model: Model, vectors: Matrix) -> Matrix:
    """Item vectors in the columns that contexts of the model have theirs in; whatever is as wide as contexts stays.

    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> model = Model.from_vectors(tree, np.eye(2), "cosine", n_features=4, first=1)
    >>> as_contexts(model, [[3.0, 4.0]]).toarray()
    array([[0., 3., 4., 0.]], dtype=float32)
    """
    rows, measure = as_rows(vectors, what="arm vectors"), model.measure
    if measure is None or rows.columns != measure.dims or rows.columns == model.n_features:
        return rows
    return Rows(rows.start, rows.index + np.int32(measure.first), rows.value, model.n_features).csr()


def grown_to(
    model: Model,
    n_arms: int,
    max_leaf: int,
    vectors: Matrix | None = None,
    beside: Sequence[Sequence[int]] | None = None,
    removed: Bools | None = None,
) -> Model:
    """The model with `n_arms` arms: after a rollback to before arms were added, it does not know all of them. `vectors`
    and `beside` are of those that it does not know; `removed` as for `grow`.

    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> grown_to(model, 6, max_leaf=2).n_arms, grown_to(model, 4, max_leaf=2) is model
    (6, True)
    """
    return grow(model, n_arms - model.n_arms, max_leaf, vectors, beside, removed) if n_arms > model.n_arms else model


def _grown(places: Places) -> Model:
    """The model of the tree that has them all."""
    old = places.model
    tree = Tree(np.array(places.parents, np.int32), places.leaf_of)
    nodes, arms = tree.n_nodes - old.tree.n_nodes, tree.n_arms - old.n_arms
    items, measure = old.item_vectors, old.measure
    if items is not None:
        items = np.concatenate([items, places.item_vectors(list(range(old.n_arms, tree.n_arms)))])
    if items is not None and measure is not None and measure.routes:
        route_rows = measured_routing(tree, items, measure, old.n_features, old.context_map)
    else:
        route_rows = _with_open_nodes(old.route_rows, old, nodes, arms)
    return replace(
        old,
        tree=tree,
        item_vectors=items,
        route_rows=route_rows,
        reward_rows=_with_empty_rows(old.reward_rows, old, nodes, arms),
        prior=old.prior and replace(old.prior, rows=_with_empty_rows(old.prior.rows, old, nodes, arms)),
        learned_routing=_grown_routing(old, nodes, arms),
        pooled=old.pooled.grown(arms, _initial_leaf(places, tree)) if old.pooled else None,
        coverage=old.coverage.grown(tree, places.beside) if old.coverage else None,
    )


def _initial_leaf(places: Places, tree: Tree) -> Ints | None:
    """Where arms were before they moved. One whose leaf was split meanwhile has the first part of it."""
    model = places.model
    old = model.pooled.initial_leaf if model.pooled else None
    if old is None:
        return None
    now = np.arange(tree.n_nodes, dtype=np.int32)
    for leaf in places.parts:
        now[leaf] = places.current(leaf)[0]
    stayed = old == model.tree.leaf_of
    return np.concatenate([np.where(stayed, tree.leaf_of[: len(old)], now[old]), tree.leaf_of[len(old) :]])


def _with_open_nodes(rows: Rows, model: Model, nodes: int, arms: int) -> Rows:
    """Routing with more nodes whose score is 1 for every context: both parts of a split leaf keep its score.

    Where arms have routing functions of their own, a new one has that of an arm which is never right: nobody knows.
    """
    n = model.tree.n_nodes
    opened = constant_rows(nodes, open_bias(model.geometric), rows.columns)
    parts = [rows.head(n), opened]
    if len(rows) > n:
        parts += [rows.slice(n, len(rows)), constant_rows(arms, NEVER, rows.columns)]
    ends = np.cumsum([0, *(part.start[-1] for part in parts)])
    start = np.concatenate([[0], *(part.start[1:] + end for part, end in zip(parts, ends[:-1], strict=True))])
    index, value = (np.concatenate([getattr(part, name) for part in parts]) for name in ("index", "value"))
    return Rows(start.astype(np.int64), index, value, rows.columns)


def constant_rows(count: int, value: float, columns: int) -> Rows:
    """Rows with a bias alone.

    >>> constant_rows(2, 1.0, columns=3).csr().toarray().tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """
    last = np.full(count, columns - 1, np.int32)
    return Rows(np.arange(count + 1, dtype=np.int64), last, np.full(count, value, np.float32), columns)


def _grown_routing(model: Model, nodes: int, arms: int) -> LearnedRouting | None:
    learned = model.learned_routing
    if learned is None:
        return None
    base = _with_open_nodes(learned.base, model, nodes, arms)
    held_out = tuple(_with_open_nodes(rows, model, nodes, arms) for rows in learned.held_out)
    return replace(learned, base=base, held_out=held_out)


def _with_empty_rows(rows: Rows, model: Model, nodes: int, arms: int) -> Rows:
    """Reward models, with empty ones for new nodes (after the old nodes) and new arms (after the old arms)."""
    n = model.tree.n_nodes
    start = np.concatenate(
        [rows.start[: n + 1], np.full(nodes, rows.start[n]), rows.start[n + 1 :], np.full(arms, rows.start[-1])]
    )
    return Rows(start, rows.index, rows.value, rows.columns)
