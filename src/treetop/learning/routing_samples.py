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
from treetop.model.routing import rows_below
from treetop.records import Feedback
from treetop.tree.tree import Tree

COST, PASSES = 1.0, 1000
SOLVER = 5  # changes whenever the same samples give other routing, so that none of before is taken over
NEGLIGIBLE = 0.05  # what the weights that are dropped change a routing function's product with a context by, about
ELSEWHERE = 256  # rows from elsewhere that an arm learns against, at least; as many as those below its leaf's parent
WINDOW = 65_536  # samples of rounds, the latest ones, that a function is fitted from; labels count beside them
NEVER = -1.0  # what the routing function of an arm says, whatever the context, if nothing right is known of the arm


@dataclass(frozen=True, eq=False)
class RoutingProblems:
    """What the functions of some nodes or arms are fitted from, in little room: functions of one family share contexts.

    - the contexts of family f are shared_row[shared_start[f]:shared_start[f + 1]], which rise
    - `family` (n,): that of each function; -1: none
    - function i is right in right_row[right_start[i]:right_start[i + 1]] of its family's contexts, wrong in the others
    - its own samples are start[i]:start[i + 1] of `row`, a context, and `target`, +1 or -1
    """

    shared_start: Int64s
    shared_row: Ints
    family: Ints
    right_start: Int64s
    right_row: Ints
    start: Int64s
    row: Ints
    target: Float32s

    def arrays(self) -> tuple[Any, ...]:
        """As the core takes them."""
        return tuple(vars(self).values())


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

    def problems(self) -> RoutingProblems:
        """Samples of every node's and arm's function."""
        kept, members = self._within_window, self.tree.n_nodes + self.tree.n_arms
        return LabelledRows.of(self.tree, self.labels).problems(
            0, members, self.member[kept], self.row[kept], self.positive[kept]
        )

    @cached_property
    def _within_window(self) -> Bools:
        """Of the samples of rounds, the latest WINDOW of every node and arm."""
        start, order = by_group(self.member, self.tree.n_nodes + self.tree.n_arms)
        within = np.zeros(len(self.member), np.bool_)
        within[latest(start, order, WINDOW)[1]] = True
        return within


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """What labelled rows say of nodes and arms, in little room: a node learns against its siblings, an arm against all
    arms below the parent of its leaf, and against rows from elsewhere. So the functions that have one node `above`
    share the rows with a label below it, and arms some more.

    The rows of node p are row[start[p]:start[p + 1]], those that are right for function i, which is a node's or behind
    these an arm's, right_row[right_start[i]:right_start[i + 1]]; all of them rise. The root is no function. `mixed` has
    the rows of the root, all with a label, in random order.
    """

    above: Ints
    start: Int64s
    row: Ints
    right_start: Int64s
    right_row: Ints
    mixed: Ints

    @classmethod
    def of(cls, tree: Tree, labels: sp.csr_matrix) -> LabelledRows:
        n = labels.shape[0]
        label_row = np.repeat(np.arange(n, dtype=np.int64), np.diff(labels.indptr))
        below = rows_below(tree, label_row, labels.indices, n)
        sizes = np.bincount(below // max(1, n), minlength=tree.n_nodes)
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        row = (below % max(1, n)).astype(np.int32)
        arm_start, order = by_group(labels.indices.astype(np.int32), tree.n_arms)
        of_root = start[1]
        right_start = np.concatenate([[0], start[1:], start[-1] + arm_start[1:]]) - of_root
        right_row = np.concatenate([row[of_root:], label_row[order].astype(np.int32)])
        above = np.concatenate([tree.parents, np.maximum(tree.parents[tree.leaf_of], 0)]).astype(np.int32)
        mixed = np.random.default_rng(0).permutation(row[:of_root])
        return cls(above, start, row, np.maximum(right_start, 0), right_row, mixed)

    def counts(self) -> Int64s:
        """Of each function, how many labelled rows teach it if it is ever right."""
        below = np.diff(self.start)[np.maximum(self.above, 0)]
        of_arm = np.arange(len(below)) >= len(self.start) - 1
        return np.asarray(np.where(self.above < 0, 0, below + of_arm * self._elsewhere(below)))

    def _elsewhere(self, below: Int64s) -> Int64s:
        """How many rows from elsewhere are beside so many with a label below a node."""
        return np.minimum(np.maximum(below, ELSEWHERE), len(self.mixed) - below)

    def _shared(self, family: int) -> Ints:
        """The rows of a family: of node `family` those with a label below it; of the arms below node
        `family` - n_nodes also rows from elsewhere, others for each family."""
        nodes = len(self.start) - 1
        rows = np.asarray(self.row[self.start[family % nodes] : self.start[family % nodes + 1]])
        if family < nodes:
            return rows
        wanted = int(self._elsewhere(np.array([len(rows)]))[0])
        first = family * 40_503 % max(1, len(self.mixed))
        some = np.take(self.mixed, np.arange(first, first + len(rows) + wanted), mode="wrap")
        return np.sort(np.concatenate([rows, some[~np.isin(some, rows)][:wanted]])).astype(np.int32)

    def problems(self, low: int, high: int, member: Any, row: Any, positive: Any) -> RoutingProblems:
        """The functions from `low` to `high`, the last not included: of labelled rows, and of samples of their own.

        >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
        >>> known = LabelledRows.of(tree, sp.csr_matrix(np.eye(2, dtype=np.float32)))
        >>> found = known.problems(3, 5, np.array([4]), np.array([7]), np.array([False]))  # the arms
        >>> found.shared_row.tolist(), found.family.tolist()  # both rows have a label below the root
        ([0, 1], [0, 0])
        >>> found.right_row.tolist(), found.start.tolist(), found.target.tolist()
        ([0, 1], [0, 0, 1], [-1.0])
        """
        right_start = np.asarray(self.right_start[low : high + 1])
        right_row = np.asarray(self.right_row[right_start[0] : right_start[-1]])
        any_right = np.diff(right_start) > 0
        any_right[member[positive] - low] = True
        above, nodes = self.above[low:high], len(self.start) - 1
        own_family = above + nodes * (np.arange(low, high) >= nodes)
        fitted = any_right & (above >= 0)
        families = np.unique(own_family[fitted])
        rows = [self._shared(family) for family in families.tolist()]
        shared_start = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        family = np.where(fitted, np.searchsorted(families, own_family), -1).astype(np.int32)
        start, order = by_group((member - low).astype(np.int32), high - low)
        own = start, row[order].astype(np.int32), np.where(positive[order], np.float32(1), np.float32(-1))
        shared = np.concatenate([self.row[:0], *rows])
        return RoutingProblems(shared_start, shared, family, right_start - right_start[0], right_row, *own)


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
    return fit(samples.contexts, samples.problems(), fold, unknown_rows(base, samples.tree.n_arms), before)


@dataclass(frozen=True, eq=False)
class RoutingFit:
    """How routing functions are fitted; weights up to `thresholds`, one a feature and one for the bias, are dropped.

    `tolerances` are of the fit on all contexts, and of those without a fold.
    """

    tolerances: tuple[float, float]
    thresholds: Float32s
    threads: int = 0

    def __call__(
        self, contexts: Rows, problems: RoutingProblems, fold: Bools, unknown: Rows, before: Sequence[Rows] | None
    ) -> list[Fitted]:
        """A row a function without either fold of the contexts, and on all of them.

        One with the samples of `before`, the same three, has the rows there; where a part knows nothing right, a
        function has the row of `unknown`.
        """
        x = contexts.start, contexts.index, contexts.value, contexts.columns
        functions: Any = problems.arrays()
        fingerprints = _core.routing_fingerprints(*x, functions, self._key(), self.threads)
        known: dict[str, Any] = {}
        if before is not None and isinstance(before[-1], Fitted) and len(before[-1]) == len(fingerprints):
            keep = (before[-1].fingerprints == fingerprints) & (fingerprints != 0)
            known = {"keep": keep, "known": [(each.start, each.index, each.value) for each in before]}
        otherwise = unknown.start, unknown.index, unknown.value
        settings = COST, *self.tolerances
        fitted = _core.fit_routing(
            *x, functions, fold, settings, PASSES, self.thresholds, otherwise, self.threads, **known
        )
        return [Fitted(*weights, contexts.columns + 1, fingerprints) for weights in fitted]

    def _key(self) -> int:
        """A hash of solver version and settings: part of every row's fingerprint."""
        settings = repr((SOLVER, COST, PASSES, *map(float, self.tolerances))).encode()
        digest = hashlib.blake2b(settings + self.thresholds.tobytes(), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)


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
