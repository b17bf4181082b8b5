"""Adds arms to a model that is in use: each gets a place in a leaf, and a full leaf is split. Learns nothing.

What the model knows of the old arms stays. New arms start with the score 0, or with the pooled mean at their routing
score if the model has one, and with a positive chance, like every effective arm.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from treetop.arrays import Bools, Float32s, Ints, Matrix, Rows, as_rows, check_int
from treetop.effort import Effort
from treetop.learning.routing_samples import NEVER
from treetop.model.learned_routing import LearnedRouting
from treetop.model.measure import measured_routing
from treetop.model.model import Model
from treetop.policy.eligibility import EVERY_ARM, Eligible
from treetop.policy.search import search_batch
from treetop.tree.tree import Tree

NEAR = 5  # beam of the search for leaves near an arm's vector
TOGETHER = 1024  # vectors that are searched for at a time
FAR = 1e30  # a radius that includes every context


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
    theirs. The others go to the leaves with most room. If there is no room, the first of these leaves is split. No leaf
    gets more than `max_leaf` arms that are there, or twice as many with those that are `removed` (a flag an arm): they
    leave their room to others, or leaves would be split again and again while as many arms go as come, and a beam would
    see ever fewer of them.

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
    places = _Places.of(model, max_leaf, rows, beside, removed)
    for arm in range(model.n_arms, model.n_arms + count):
        places.put(arm)
    return places.grown()


def vector_rows(model: Model, vectors: Matrix) -> Rows:
    """Vectors of new arms: where contexts lie in a space of their own, in that of the items; otherwise as contexts.

    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> vector_rows(Model.from_vectors(tree, np.eye(2), "cosine", context_dims=3), [[1.0, 2.0, 3.0]])
    Traceback (most recent call last):
    ValueError: arm vectors have 3 numbers; the items' have 2
    """
    if model.context_map is None:
        return as_rows(as_contexts(model, vectors), model.n_features, "arm vectors")
    rows, dims = as_rows(vectors, what="arm vectors"), vector_columns(model)
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


@dataclass(eq=False)
class _Places:
    """The tree while arms are being added to it."""

    model: Model
    max_leaf: int
    vectors: Rows | None
    parents: list[int]
    leaf_of: list[int]
    size: dict[int, int]  # arms that are there, and all but `max_leaf` of those that were
    room: list[tuple[int, int]]  # a heap of (-room, leaf); an entry may be out of date
    beside: Sequence[Sequence[int]] | None = None
    removed: Bools | None = None
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)  # the two leaves of each leaf that was split
    joined: dict[int, list[int]] = field(default_factory=dict)  # arms of each leaf that are not there in the old tree
    found: dict[int, list[list[int]]] = field(default_factory=dict)  # leaves of the vectors that are searched for now

    @classmethod
    def of(
        cls,
        model: Model,
        max_leaf: int,
        vectors: Rows | None,
        beside: Sequence[Sequence[int]] | None,
        removed: Bools | None,
    ) -> _Places:
        tree = model.tree
        inner = np.zeros(tree.n_nodes, np.bool_)
        inner[tree.parents[1:]] = True
        leaves = np.flatnonzero(~inner)
        sizes = tree.sizes[leaves]
        if removed is not None:
            gone = np.bincount(tree.leaf_of[removed[: model.n_arms]], minlength=tree.n_nodes)[leaves]
            sizes = sizes - np.minimum(gone, max_leaf)
        size = dict(zip(leaves.tolist(), sizes.tolist(), strict=True))
        room = [(n - max_leaf, leaf) for leaf, n in size.items()]
        heapq.heapify(room)
        return cls(model, max_leaf, vectors, tree.parents.tolist(), tree.leaf_of.tolist(), size, room, beside, removed)

    def put(self, arm: int) -> None:
        row = self._vector(arm)
        near = self._near(arm) if row is not None and len(row.index) else self._beside(arm) or [self._roomiest()]
        free = next((leaf for leaf in near if self.size[leaf] < self.max_leaf), None)
        leaf = near[0] if free is None else free
        self.leaf_of.append(leaf)
        self.joined.setdefault(leaf, []).append(arm)
        if free is None:
            self._split(leaf)
        else:
            self._resize(leaf, self.size[leaf] + 1)

    def _vector(self, arm: int) -> Rows | None:
        at = arm - self.model.n_arms
        return self.vectors.row(at) if self.vectors is not None and at >= 0 else None

    def _near(self, arm: int) -> list[int]:
        """Leaves by how well a context like the arm's vector is routed to them, best first."""
        assert self.vectors is not None
        at = arm - self.model.n_arms
        if self.model.context_map is not None:
            vector = self.vectors.row(at).csr().toarray()[0]
            order = np.argsort(-(self._leaf_centres @ vector), kind="stable")[:NEAR]
            return [leaf for old in self._leaves[order].tolist() for leaf in self._current(old)]
        first = at - at % TOGETHER
        if first not in self.found:
            rows = self.vectors.slice(first, min(first + TOGETHER, len(self.vectors)))
            self.found = {first: self._by_route(rows)}
        return [leaf for old in self.found[first][at - first] for leaf in self._current(old)]

    def _by_route(self, rows: Rows) -> list[list[int]]:
        """For each row the old leaves that a narrow search finds, best first."""
        found = search_batch(self.model, rows, NEAR, None, 1, self._searched)
        single, counts = np.flatnonzero(~found.is_node), np.diff(found.start)
        row = np.repeat(np.arange(len(rows)), counts)[single]
        leaves = self.model.tree.leaf_of[found.id[single]][np.lexsort((-found.log_route[single], row))]
        ends = np.searchsorted(row, np.arange(len(rows) + 1)).tolist()
        return [list(dict.fromkeys(leaves[a:b].tolist())) for a, b in pairwise(ends)]

    @cached_property
    def _searched(self) -> Eligible:
        """An arm of each leaf, where all of its arms have one route: the first."""
        tree = self.model.tree
        return EVERY_ARM if self.model.has_arm_routes else Eligible.of(tree, tree.arm_at[tree.begin[self._leaves]])

    @cached_property
    def _leaves(self) -> Ints:
        tree = self.model.tree
        return np.setdiff1d(np.arange(tree.n_nodes), tree.parents).astype(np.int32)

    @cached_property
    def _leaf_centres(self) -> Float32s:
        """(leaves, dims): in the space of the items."""
        items, measure = self.model.item_vectors, self.model.measure
        if items is None or measure is None:
            raise TypeError("the model has no item vectors")
        plain = replace(measure, first=0, context_dims=0)
        centres = measured_routing(self.model.tree, items, plain, measure.dims).csr()[self._leaves, :-1]
        return np.asarray(centres.toarray(), np.float32)

    def _beside(self, arm: int) -> list[int]:
        """The leaves of the arms that a new one belongs to."""
        others = () if self.beside is None else self.beside[arm - self.model.n_arms]
        return list(dict.fromkeys(self.leaf_of[other] for other in others))

    def _current(self, leaf: int) -> list[int]:
        return [part for child in self.parts[leaf] for part in self._current(child)] if leaf in self.parts else [leaf]

    def _roomiest(self) -> int:
        while self.size.get(self.room[0][1]) != self.room[0][0] + self.max_leaf:  # the entry is out of date
            heapq.heappop(self.room)
        return self.room[0][1]

    def _resize(self, leaf: int, size: int) -> None:
        self.size[leaf] = size
        heapq.heappush(self.room, (size - self.max_leaf, leaf))

    def _split(self, leaf: int) -> None:
        """A full leaf and one more arm become two leaves below it."""
        arms = sorted(self._arms_in(leaf), key=self._is_removed)
        there = len(arms) - self._gone(arms)
        left, right = len(self.parents), len(self.parents) + 1
        self.parents += [leaf, leaf]
        self.parts[leaf] = left, right
        del self.size[leaf]
        on_right = [*self._halves(arms[:there]), *(i % 2 == 1 for i in range(len(arms) - there))]
        for part, side in ((left, False), (right, True)):
            self.joined[part] = [arm for arm, is_right in zip(arms, on_right, strict=True) if is_right == side]
            self._resize(part, len(self.joined[part]) - min(self._gone(self.joined[part]), self.max_leaf))
            for arm in self.joined[part]:
                self.leaf_of[arm] = part

    def _gone(self, arms: list[int]) -> int:
        """How many of some arms are removed."""
        return sum(map(self._is_removed, arms))

    def _is_removed(self, arm: int) -> bool:
        return self.removed is not None and arm < self.model.n_arms and bool(self.removed[arm])

    def _arms_in(self, leaf: int) -> list[int]:
        tree = self.model.tree
        old = tree.arms_below(leaf).tolist() if leaf < tree.n_nodes else []
        return old + self.joined.get(leaf, [])

    def _halves(self, arms: list[int]) -> list[bool]:
        """Which arms go to the right half: arms with similar reward models stay together, and the halves are equal."""
        half = (len(arms) + 1) // 2
        if half < 2:
            return [i >= half for i in range(len(arms))]
        halves = Tree.from_vectors(self._descriptions(arms), max_leaf=half, effort=Effort(threads=1))
        return [leaf == 2 for leaf in halves.leaf_of.tolist()]

    def _descriptions(self, arms: list[int]) -> Matrix:
        """A vector for each arm in the space of contexts: the weights of its reward model, or the vector given."""
        n, nodes = self.model.n_arms, self.model.tree.n_nodes
        if self.model.item_vectors is not None:
            return self._item_vectors(arms)
        dense = np.zeros((len(arms), self.model.n_features), np.float32)
        for i, arm in enumerate(arms):
            row = self.model.reward_rows.row(nodes + arm) if arm < n else self._vector(arm)
            if row is not None:
                inside = row.index < self.model.n_features
                dense[i, row.index[inside]] = row.value[inside]
        return dense

    def grown(self) -> Model:
        old = self.model
        tree = Tree(np.array(self.parents, np.int32), np.array(self.leaf_of, np.int32))
        nodes, arms = tree.n_nodes - old.tree.n_nodes, tree.n_arms - old.n_arms
        items, measure = self._all_item_vectors(), old.measure
        if items is not None and measure is not None and measure.routes:
            route_rows = measured_routing(tree, items, measure, old.n_features, old.context_map)
        else:
            route_rows = _with_open_nodes(old.route_rows, old, nodes, arms)
        return replace(
            old,
            tree=tree,
            item_vectors=items,
            route_rows=route_rows,
            reward_rows=_with_empty_rows(old, nodes, arms),
            learned_routing=_grown_routing(old, nodes, arms),
            pooled=old.pooled.grown(arms, self._initial_leaf(tree)) if old.pooled else None,
            coverage=old.coverage.grown(tree, self.beside) if old.coverage else None,
        )

    def _all_item_vectors(self) -> Float32s | None:
        """Those of the old arms, then of the new ones; None if the model has none."""
        if (known := self.model.item_vectors) is None:
            return None
        new = list(range(self.model.n_arms, len(self.leaf_of)))
        return np.concatenate([known, self._item_vectors(new)])

    def _item_vectors(self, arms: list[int]) -> Float32s:
        """The vectors of some arms. A new one of which nothing is known has the mean of the old ones in its leaf."""
        known, measure = self.model.item_vectors, self.model.measure
        if known is None or measure is None:
            raise TypeError("the model has no item vectors")
        which, old = np.array(arms, np.int64), len(known)
        out = np.zeros((len(arms), measure.dims), np.float32)
        out[which < old] = known[which[which < old]]
        given, is_given = self._given_vectors
        for i in np.flatnonzero(which >= old).tolist():
            if is_given[arms[i] - old]:
                out[i] = given[arms[i] - old]
            elif beside := [other for other in self._arms_in(self.leaf_of[arms[i]]) if other < old]:
                out[i] = measure.item_vectors(known[beside].mean(axis=0, keepdims=True))[0]
        return out

    @cached_property
    def _given_vectors(self) -> tuple[Float32s, Bools]:
        """Of the new arms: the vectors as a model keeps them, and which arms have one."""
        measure, rows, count = self.model.measure, self.vectors, len(self.leaf_of) - self.model.n_arms
        if measure is None or rows is None:
            return np.zeros((0, 0), np.float32), np.zeros(max(count, 1), np.bool_)
        mapped = self.model.context_map is not None
        dense = np.asarray(rows.csr().toarray(), np.float32) if mapped else measure.context_vectors(rows)
        return measure.item_vectors(dense), np.diff(rows.start) > 0

    def _initial_leaf(self, tree: Tree) -> Ints | None:
        """Where arms were before they moved. One whose leaf was split meanwhile has the first part of it."""
        old = self.model.pooled.initial_leaf if self.model.pooled else None
        if old is None:
            return None
        now = np.arange(tree.n_nodes, dtype=np.int32)
        for leaf in self.parts:
            now[leaf] = self._current(leaf)[0]
        stayed = old == self.model.tree.leaf_of
        return np.concatenate([np.where(stayed, tree.leaf_of[: len(old)], now[old]), tree.leaf_of[len(old) :]])


def _with_open_nodes(rows: Rows, model: Model, nodes: int, arms: int) -> Rows:
    """Routing with more nodes whose score is 1 for every context: both parts of a split leaf keep its score.

    Where arms have routing functions of their own, a new one has that of an arm which is never right: nobody knows.
    """
    n = model.tree.n_nodes
    opened = constant_rows(nodes, FAR if model.geometric else 1.0, rows.columns)
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


def _with_empty_rows(model: Model, nodes: int, arms: int) -> Rows:
    """Reward models, with empty ones for new nodes (after the old nodes) and new arms (after the old arms)."""
    rows, n = model.reward_rows, model.tree.n_nodes
    start = np.concatenate(
        [rows.start[: n + 1], np.full(nodes, rows.start[n]), rows.start[n + 1 :], np.full(arms, rows.start[-1])]
    )
    return Rows(start, rows.index, rows.value, rows.columns)
