"""What routing functions are fitted from, labelled rows and rounds, and the fit of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Bools, Fitted, Float32s, Int64s, Ints, Rows, as_rows
from treetop.learning.label_samples import LabelSamples
from treetop.learning.samples import by_group, latest
from treetop.model.routing import one_against_siblings, rows_below
from treetop.records import Feedback
from treetop.tree.tree import Tree

COST, PASSES = 1.0, 1000
SOLVER = 3  # changes whenever the same samples give other routing, so that none of before is taken over
NEGLIGIBLE = 0.05  # what the weights that are dropped change a routing function's product with a context by, about
WINDOW = 65_536  # samples of rounds, the latest ones, that a function is fitted from; labels count beside them
NEVER = -1.0  # what the routing function of an arm says, whatever the context, if nothing right is known of the arm

Problems = tuple[Int64s, Ints, Float32s]  # of every node and arm: where its samples start, contexts, +1 or -1


@dataclass(frozen=True, eq=False)
class RoutingSamples:
    """What routing is fitted from: labelled rows, then rounds.

    `row` and `member` are pairs of a context and what is right (`positive`) or wrong there: a node, or an arm as number
    n_nodes + arm.
    """

    tree: Tree
    contexts: Rows
    labels: sp.csr_matrix
    row: Ints
    member: Ints
    positive: Bools

    @classmethod
    def of(cls, tree: Tree, labels: LabelSamples, feedback: Feedback) -> RoutingSamples:
        nodes, arms, right = tree.n_nodes, tree.n_arms, labels.reward > 0
        ones = np.ones(int(right.sum()), np.float32)
        Y = sp.csr_matrix((ones, (labels.row[right], labels.arm[right])), shape=(len(labels.contexts), arms))
        t, slot = np.nonzero(feedback.observed)
        arm, found = feedback.arms[t, slot], feedback.rewards[t, slot] > 0
        pair_node, pair_row = nodes_above(tree, arm[found], t[found])
        row = np.concatenate([pair_row, t]) + len(labels.contexts)
        member = np.concatenate([pair_node, nodes + arm])
        positive = np.concatenate([np.ones(len(pair_node), np.bool_), found])
        both = as_rows(sp.vstack([labels.contexts.csr(), feedback.contexts.csr()], format="csr"))
        return cls(tree, both, Y, row.astype(np.int32), member.astype(np.int32), positive)

    def problems(self) -> Problems:
        """Samples of every node's and arm's function; none where nothing is right."""
        group, row, target = labelled_samples(self.tree, self.labels, self._arms_with_finds)
        kept = self._within_window
        group = np.concatenate([group, self.member[kept]])
        row = np.concatenate([row, self.row[kept]])
        target = np.concatenate([target, np.where(self.positive[kept], np.float32(1), np.float32(-1))])
        return grouped(group, row, target, self.tree.n_nodes + self.tree.n_arms)

    @cached_property
    def _within_window(self) -> Bools:
        """Of the samples of rounds, the latest WINDOW of every node and arm."""
        start, order = by_group(self.member, self.tree.n_nodes + self.tree.n_arms)
        within = np.zeros(len(self.member), np.bool_)
        within[latest(start, order, WINDOW)[1]] = True
        return within

    @cached_property
    def _arms_with_finds(self) -> Int64s:
        """Arms that were right at least once; the others have no routing function, however many they are."""
        right = np.zeros(self.tree.n_arms, np.bool_)
        right[self.labels.indices] = True
        found = self.member[self.positive]
        right[found[found >= self.tree.n_nodes] - self.tree.n_nodes] = True
        return np.flatnonzero(right)


def labelled_samples(tree: Tree, labels: sp.csr_matrix, arms: Int64s) -> tuple[Int64s, Ints, Float32s]:
    """What labelled rows say of nodes and of some arms: (node or n_nodes + arm, row, +1 or -1).

    A node learns against its siblings, an arm against all arms below the parent of its leaf.

    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> group, row, target = labelled_samples(tree, sp.csr_matrix(np.eye(2, dtype=np.float32)), np.array([0]))
    >>> sorted(zip(group.tolist(), row.tolist(), target.tolist(), strict=True))[-2:]
    [(3, 0, 1.0), (3, 1, -1.0)]
    """
    group, row, target = node_samples(tree, labels)
    arm, arm_row, arm_target = LabelledArms.of(tree, labels).samples(arms, tree.n_nodes)
    return np.concatenate([group, arm]), np.concatenate([row, arm_row]), np.concatenate([target, arm_target])


def node_samples(tree: Tree, labels: sp.csr_matrix) -> tuple[Int64s, Ints, Float32s]:
    """What labelled rows say of nodes: (node, row, +1 or -1).

    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> [part.tolist() for part in node_samples(tree, sp.csr_matrix(np.eye(2, dtype=np.float32)))]
    [[1, 1, 2, 2], [0, 1, 0, 1], [1.0, -1.0, -1.0, 1.0]]
    """
    start, row, target = one_against_siblings(tree, labels)
    return np.repeat(np.arange(tree.n_nodes), np.diff(start)), row, target


@dataclass(frozen=True, eq=False)
class LabelledArms:
    """What labelled rows say of arms, in little room: an arm's samples are the rows with a label below the parent of
    its leaf, which all arms there share.

    `above` (n_arms,) is that parent; the rows of node p are row[start[p]:start[p + 1]], which rise; those with the
    label of arm a are own_row[own_start[a]:own_start[a + 1]], which rise too.
    """

    above: Ints
    start: Int64s
    row: Ints
    own_start: Int64s
    own_row: Ints

    @classmethod
    def of(cls, tree: Tree, labels: sp.csr_matrix) -> LabelledArms:
        n = labels.shape[0]
        row = np.repeat(np.arange(n, dtype=np.int64), np.diff(labels.indptr))
        below = rows_below(tree, row, labels.indices, n)
        sizes = np.bincount(below // max(1, n), minlength=tree.n_nodes)
        own_start, own = by_group(labels.indices.astype(np.int32), tree.n_arms)
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        above = np.maximum(tree.parents[tree.leaf_of], 0).astype(np.int32)
        return cls(above, start, (below % max(1, n)).astype(np.int32), own_start, row[own].astype(np.int32))

    def counts(self) -> Int64s:
        """Of each arm, how many samples it has if it is ever right."""
        return np.asarray(np.diff(self.start)[self.above])

    def samples(self, arms: Any, first: int = 0) -> tuple[Int64s, Ints, Float32s]:
        """Those of some arms: (first + arm, row, +1 or -1), arm by arm.

        >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
        >>> known = LabelledArms.of(tree, sp.csr_matrix(np.eye(2, dtype=np.float32)))
        >>> [part.tolist() for part in known.samples(np.array([1]))]
        [[1, 1], [0, 1], [-1.0, 1.0]]
        """
        above = self.above[arms]
        size, own = np.diff(self.start)[above], np.diff(self.own_start)[arms]
        begin = np.cumsum(size) - size
        place = np.arange(int(size.sum())) + np.repeat(self.start[above] - begin, size)
        target = np.full(len(place), -1, np.float32)
        mine = np.arange(int(own.sum())) + np.repeat(self.own_start[arms] - (np.cumsum(own) - own), own)
        at, many = np.repeat(np.arange(len(above)), own), int(self.row.max(initial=0)) + 1
        used, which = np.unique(above, return_inverse=True)  # the rows of their nodes, as one list that rises
        sizes = np.diff(self.start)[used]
        places = np.arange(int(sizes.sum())) + np.repeat(self.start[used] - (np.cumsum(sizes) - sizes), sizes)
        every = np.repeat(np.arange(len(used)), sizes) * many + self.row[places]
        found = np.searchsorted(every, which[at] * many + self.own_row[mine])
        target[begin[at] + found - (np.cumsum(sizes) - sizes)[which[at]]] = 1
        return first + np.repeat(np.asarray(arms, np.int64), size), self.row[place], target


def grouped(group: Any, row: Any, target: Any, members: int) -> Problems:
    """Samples as problems, one a member, each in its order; none where nothing is right.

    >>> group, row, target = np.array([1, 0, 1]), np.array([5, 6, 7]), np.array([1.0, -1.0, -1.0])
    >>> [part.tolist() for part in grouped(group, row, target, 2)]  # of 0 nothing right is known
    [[0, 0, 2], [5, 7], [1.0, -1.0]]
    """
    right = np.zeros(members, np.bool_)
    right[group[target > 0]] = True
    known = right[group]
    row, target = row[known].astype(np.int32), target[known].astype(np.float32)
    start, order = by_group(group[known].astype(np.int32), members)
    return start, row[order], target[order]


def fit_routing_samples(
    samples: RoutingSamples,
    fold: Bools,
    base: Rows,
    tolerances: tuple[float, float],
    before: Sequence[Rows] | None = None,
    threads: int = 0,
) -> list[Fitted]:
    """Routing fitted without the contexts of either fold, and on all of them; a row a node, then a row an arm.

    A node of which nothing right is known keeps its row of `base`; an arm then has the row of one that is never right:
    -1 whatever the context. Functions whose samples are the same as those of `before` have the same rows, which are
    copied. The tolerances are of the last fit and of the others; in the core they share what they read, and the last
    one starts where the others ended.

    >>> X, Y = np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)
    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> samples = RoutingSamples.of(tree, LabelSamples.of(tree, X, Y), Feedback.none(2, 1))
    >>> fold, base = np.array([False, True]), as_rows(np.zeros((3, 3), np.float32))
    >>> [len(rows) for rows in fit_routing_samples(samples, fold, base, tolerances=(0.1, 0.3))]
    [5, 5, 5]
    """
    fit = RoutingFit(tolerances, thresholds(samples.contexts.head(samples.labels.shape[0])), threads)
    unknown = unknown_rows(base, samples.tree.n_arms)
    return [filled(*part, unknown) for part in fit(samples.contexts, samples.problems(), fold, before)]


@dataclass(frozen=True, eq=False)
class RoutingFit:
    """How routing functions are fitted; weights up to `thresholds`, one a feature and one for the bias, are dropped.

    `tolerances` are of the fit on all contexts, and of those without a fold.
    """

    tolerances: tuple[float, float]
    thresholds: Float32s
    threads: int = 0

    def __call__(
        self, contexts: Rows, problems: Problems, fold: Bools, before: Sequence[Rows] | None
    ) -> list[tuple[Fitted, Bools]]:
        """A row a problem without either fold of the contexts, and on all of them; and which problems have one.

        One with the samples of `before`, the same three, has the rows there.
        """
        start, rows, target = problems
        x = contexts.start, contexts.index, contexts.value, contexts.columns
        prints = _core.fingerprints(*x, *problems, self._key(), self.threads)
        known: dict[str, Any] = {}
        keep = np.zeros(len(prints), np.bool_)
        if before is not None and isinstance(before[-1], Fitted) and len(before[-1]) == len(prints):
            keep = (before[-1].fingerprints == prints) & (prints != 0)
            known = {"keep": keep, "known": [(each.start, each.index, each.value) for each in before]}
        settings: Any = COST, *self.tolerances, PASSES, self.thresholds, 0, self.threads
        fitted = _core.fit_held_out(*x, *problems, fold, *settings, **known)
        right, of = np.repeat(np.arange(len(prints)), np.diff(start))[target > 0], fold[rows[target > 0]]
        out = []
        for weights, mine in zip(fitted, (right[of], right[~of], right), strict=True):
            has = keep.copy()
            has[mine] = True  # a part knows what is right in its contexts
            out.append((Fitted(*weights, contexts.columns + 1, prints), has))
        return out

    def _key(self) -> int:
        """A hash of solver version and settings: part of every row's fingerprint."""
        settings = repr((SOLVER, COST, PASSES, *map(float, self.tolerances))).encode()
        digest = hashlib.blake2b(settings + self.thresholds.tobytes(), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)


def filled(fitted: Fitted, has: Bools, unknown: Rows) -> Fitted:
    """The same with the row of `unknown` where there is none.

    >>> none = Fitted(np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 1, np.zeros(2, np.int64))
    >>> filled(none, np.array([True, False]), as_rows(np.ones((2, 1), np.float32))).csr().toarray().tolist()
    [[0.0], [1.0]]
    """
    empty = sp.diags_array((~has).astype(np.float32))
    rows = as_rows(fitted.csr() + sp.csr_matrix(empty @ unknown.csr()), what="routing")
    return Fitted(rows.start, rows.index, rows.value, rows.columns, fitted.fingerprints)


def thresholds(labelled: Rows, change: float = NEGLIGIBLE) -> Float32s:
    """Weights of each feature up to these are dropped: so small that all of them in a context, with signs at random,
    change its product by about `change`. Contexts of any scale have the same weights left; the bias is kept. Judged
    by the labelled rows, so that they stay the same.

    >>> thresholds(as_rows([[2.0, 0.0]]))
    array([0.025, 0.025, 0.   ], dtype=float32)
    """
    if len(labelled.value) == 0:  # nobody knows how large features are
        return np.zeros(labelled.columns + 1, np.float32)
    count = np.bincount(labelled.index, minlength=labelled.columns)
    square = np.bincount(labelled.index, np.square(labelled.value, dtype=np.float64), labelled.columns)
    usual = np.sqrt(np.where(count > 0, square / np.maximum(1, count), square.sum() / max(1, count.sum())))
    limits = change / np.maximum(usual * np.sqrt(len(labelled.value) / max(1, len(labelled))), 1e-30)
    return np.append(np.minimum(limits, 1e30), 0.0).astype(np.float32)


def unknown_rows(base: Rows, arms: int) -> Rows:
    """Routing of nodes and arms of which nothing is known: `base` of the nodes, and arms that are never right.

    >>> unknown_rows(as_rows([[0.0, 1.0]]), arms=1).csr().toarray()
    array([[ 0.,  1.],
           [ 0., -1.]], dtype=float32)
    """
    ends = int(base.start[-1]) + np.arange(1, arms + 1)
    last, never = np.full(arms, base.columns - 1, np.int32), np.full(arms, NEVER, np.float32)
    start = np.concatenate([base.start, ends]).astype(np.int64)
    return Rows(start, np.concatenate([base.index, last]), np.concatenate([base.value, never]), base.columns)


def nodes_above(tree: Tree, arm: Ints, row: Int64s) -> tuple[Int64s, Int64s]:
    """All pairs of a node but the root and a row that has one of its arms, each once.

    >>> tree = Tree(parents=[-1, 0, 1], leaf_of=[2])
    >>> [part.tolist() for part in nodes_above(tree, np.array([0, 0]), np.array([4, 4]))]
    [[1, 2], [4, 4]]
    """
    node, found = tree.leaf_of[arm].astype(np.int64), []
    rows = int(row.max(initial=0)) + 1
    while len(node):
        pair = np.unique(node[node > 0] * rows + row[node > 0])
        found.append(pair)
        node, row = tree.parents[pair // rows].astype(np.int64), pair % rows
    pairs = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))
    return pairs // rows, pairs % rows
