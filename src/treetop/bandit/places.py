"""Where arms go that join a tree: to a leaf near their vector, to one of their category, or to one with room.

A full leaf is split. Where the owner's measure routes, each part has a centre of its own; elsewhere all have the score
of the whole. Each takes a place in the beam, and many parts of one leaf would leave none to other leaves: arms whose
vectors lead to one leaf make few of it as long as there is room elsewhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from treetop.arrays import Bools, Float32s, Ints, Matrix, Rows
from treetop.effort import Effort
from treetop.model.measure import measured_routing
from treetop.model.model import Model
from treetop.policy.eligibility import EVERY_ARM, Eligible
from treetop.policy.search import search_batch
from treetop.tree.tree import Tree

NEAR = 5  # beam of the search for leaves near an arm's vector
TOGETHER = 1024  # vectors that are searched for at a time
ALIKE = 2  # leaves with one score that arms make of a leaf that their vectors lead to; a beam is often 10
FAR = 1e30  # a radius that includes every context


def open_bias(geometric: bool) -> float:
    """The bias of a routing function that is 1 for every context, and has no other weight.

    >>> open_bias(geometric=False)
    1.0
    """
    return FAR if geometric else 1.0


@dataclass(eq=False)
class Places:
    """The tree while arms are being added to it."""

    model: Model
    count: int  # of new arms
    max_leaf: int
    vectors: Rows | None
    beside: Sequence[Sequence[int]] | None
    removed: Bools | None
    parents: list[int] = field(init=False)
    leaf_of: Ints = field(init=False)  # of the new arms as they get one
    size: dict[int, int] = field(init=False)  # arms that are there, and all but `max_leaf` of those that were
    whole: dict[int, int] = field(default_factory=dict)  # the node whose score each part of a leaf has
    alike: dict[int, int] = field(default_factory=dict)  # how many leaves have its score
    room: list[tuple[bool, int, int, int]] = field(init=False)  # a heap of what `_rank` says; it may be out of date
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)  # the two leaves of each leaf that was split
    joined: dict[int, list[int]] = field(default_factory=dict)  # arms of each leaf that are not there in the old tree
    found: dict[int, list[list[int]]] = field(default_factory=dict)  # leaves of the vectors that are searched for now

    def __post_init__(self) -> None:
        tree, leaves = self.model.tree, self._leaves
        sizes = tree.sizes[leaves]
        if self.removed is not None:
            gone = np.bincount(tree.leaf_of[self.removed[: self.model.n_arms]], minlength=tree.n_nodes)[leaves]
            sizes = sizes - np.minimum(gone, self.max_leaf)
        self.parents = tree.parents.tolist()
        self.leaf_of = np.concatenate([tree.leaf_of, np.full(self.count, -1, np.int32)])
        self.size = dict(zip(leaves.tolist(), sizes.tolist(), strict=True))
        for node in self._parts_before():
            self.whole[node] = self.whole.get(self.parents[node], self.parents[node])
            if node in self.size:
                self.alike[self.whole[node]] = self.alike.get(self.whole[node], 0) + 1
        self.room = [self._rank(leaf) for leaf in self.size]
        heapq.heapify(self.room)

    def put(self, arm: int) -> None:
        """Finds a place for the next arm: with its category, whatever that takes; else where there is room near its
        vector, else in a part of a leaf near it as long as that has few, else where there is room at all."""
        by_vector = self._has_vector[arm - self.model.n_arms]
        near = self._near(arm) if by_vector else self._beside(arm)
        leaf = next((leaf for leaf in near if self.size[leaf] < self.max_leaf), -1)
        if leaf < 0:
            leaf = next((leaf for leaf in near if not by_vector or self._alike(leaf) < ALIKE), -1)
        if leaf < 0:
            leaf = self._roomiest()
        self.leaf_of[arm] = leaf
        self.joined.setdefault(leaf, []).append(arm)
        if self.size[leaf] < self.max_leaf:
            self.size[leaf] += 1
        else:
            self._split(leaf)

    def current(self, leaf: int) -> list[int]:
        """The leaves that a leaf of the old tree has become, the highest first: that is the next to be split, so that
        the tree stays low."""
        nodes = [leaf]
        for node in nodes:  # level by level: the list grows while it is read
            nodes += self.parts.get(node, ())
        return [node for node in nodes if node not in self.parts]

    @cached_property
    def _has_vector(self) -> list[bool]:
        """Of the new arms; one without a vector has an empty row."""
        return [False] * self.count if self.vectors is None else (np.diff(self.vectors.start) > 0).tolist()

    def _near(self, arm: int) -> list[int]:
        """Leaves by how well a context like the arm's vector is routed to them, best first."""
        assert self.vectors is not None
        at = arm - self.model.n_arms
        first = at - at % TOGETHER
        if first not in self.found:
            rows = self.vectors.slice(first, min(first + TOGETHER, len(self.vectors)))
            self.found = {first: self._by_route(rows) if self.model.context_map is None else self._by_centre(rows)}
        return [leaf for old in self.found[first][at - first] for leaf in self.current(old)]

    def _by_route(self, rows: Rows) -> list[list[int]]:
        """For each row the old leaves that a narrow search finds, best first."""
        found = search_batch(self.model, rows, NEAR, None, 1, self._searched)
        single, counts = np.flatnonzero(~found.is_node), np.diff(found.start)
        row = np.repeat(np.arange(len(rows)), counts)[single]
        leaves = self.model.tree.leaf_of[found.id[single]][np.lexsort((-found.log_route[single], row))]
        ends = np.searchsorted(row, np.arange(len(rows) + 1)).tolist()
        return [list(dict.fromkeys(leaves[a:b].tolist())) for a, b in pairwise(ends)]

    def _by_centre(self, rows: Rows) -> list[list[int]]:
        """The same for vectors in the space of the items, where contexts have a space of their own."""
        scores = -(np.asarray(rows.csr().toarray(), np.float32) @ self._leaf_centres.T)
        few = min(NEAR, len(self._leaves))
        some = np.sort(np.argpartition(scores, few - 1, axis=1)[:, :few], axis=1)
        order = np.argsort(np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
        found: list[list[int]] = self._leaves[np.take_along_axis(some, order, axis=1)].tolist()
        return found

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
        return list(dict.fromkeys(self.leaf_of[list(others)].tolist()))

    def _parts_before(self) -> list[int]:
        """Parts that leaves were split into before, as far as nothing was learned of them: routing is 1 there, but not
        above. Where it is 1 from the root on nothing is known of any node, and all leaves are alike."""
        if self._measured:
            return []
        rows, nodes = self.model.route_rows, self.model.tree.n_nodes
        single = np.flatnonzero(np.diff(rows.start[: nodes + 1]) == 1)
        at = rows.start[single]
        is_open = (rows.index[at] == rows.columns - 1) & (rows.value[at] == np.float32(open_bias(self.model.geometric)))
        opened, parts = set(single[is_open].tolist()), dict[int, None]()
        for node in sorted(opened):
            above = self.parents[node]
            if above > 0 and (above not in opened or above in parts):
                parts[node] = None
        return list(parts)

    @property
    def _measured(self) -> bool:
        """Whether every leaf has a centre that the owner's measure compares contexts with."""
        return self.model.measure is not None and self.model.measure.routes and self.model.item_vectors is not None

    def _alike(self, leaf: int) -> int:
        """How many leaves have the score of this one, itself included."""
        return self.alike.get(self.whole.get(leaf, leaf), 1)

    def _rank(self, leaf: int) -> tuple[bool, int, int, int]:
        """Leaves with room come first, then those whose score few others have, then those with most room."""
        size = self.size[leaf]
        return size >= self.max_leaf, self._alike(leaf), size - self.max_leaf, leaf

    def _roomiest(self) -> int:
        while True:
            leaf = self.room[0][-1]
            if leaf not in self.size:
                heapq.heappop(self.room)
            elif self.room[0] != (rank := self._rank(leaf)):
                heapq.heapreplace(self.room, rank)  # a rank only rises, so no other leaf can be before its turn
            else:
                return leaf

    def _split(self, leaf: int) -> None:
        """A full leaf and one more arm become two leaves below it."""
        arms = sorted(self._arms_in(leaf), key=self._is_removed)
        there = len(arms) - self._gone(arms)
        left, right = len(self.parents), len(self.parents) + 1
        self.parents += [leaf, leaf]
        self.parts[leaf] = left, right
        if not self._measured:
            whole = self.whole.get(leaf, leaf)
            self.whole[left] = self.whole[right] = whole
            self.alike[whole] = self.alike.get(whole, 1) + 1
        del self.size[leaf]
        on_right = [*self._halves(arms[:there]), *(i % 2 == 1 for i in range(len(arms) - there))]
        for part, side in ((left, False), (right, True)):
            self.joined[part] = [arm for arm, is_right in zip(arms, on_right, strict=True) if is_right == side]
            self.size[part] = len(self.joined[part]) - min(self._gone(self.joined[part]), self.max_leaf)
            heapq.heappush(self.room, self._rank(part))
            self.leaf_of[self.joined[part]] = part

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
            return self.item_vectors(arms)
        dense = np.zeros((len(arms), self.model.n_features), np.float32)
        for i, arm in enumerate(arms):
            row = self.model.reward_rows.row(nodes + arm) if arm < n else None
            if row is None and self.vectors is not None:
                row = self.vectors.row(arm - n)
            if row is not None:
                inside = row.index < self.model.n_features
                dense[i, row.index[inside]] = row.value[inside]
        return dense

    def item_vectors(self, arms: list[int]) -> Float32s:
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
            elif beside := [other for other in self._arms_in(int(self.leaf_of[arms[i]])) if other < old]:
                out[i] = measure.item_vectors(known[beside].mean(axis=0, keepdims=True))[0]
        return out

    @cached_property
    def _given_vectors(self) -> tuple[Float32s, Bools]:
        """Of the new arms: the vectors as a model keeps them, and which arms have one."""
        measure, rows = self.model.measure, self.vectors
        if measure is None or rows is None:
            return np.zeros((0, 0), np.float32), np.zeros(self.count, np.bool_)
        mapped = self.model.context_map is not None
        dense = np.asarray(rows.csr().toarray(), np.float32) if mapped else measure.context_vectors(rows)
        return measure.item_vectors(dense), np.diff(rows.start) > 0
