"""What routing functions are fitted from, labelled rows and rounds, and the fit of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Bools, Float32s, Int64s, Ints, Rows, as_rows
from treetop.learning.label_samples import LabelSamples
from treetop.learning.samples import by_group
from treetop.model.routing import SQUARED_HINGE, one_against_siblings
from treetop.records import Feedback
from treetop.tree.tree import Tree

COST, PASSES = 1.0, 1000
NEGLIGIBLE = 0.05  # what the weights that are dropped change a routing function's product with a context by, about
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
        pair_node, pair_row = _nodes_above(tree, arm[found], t[found])
        row = np.concatenate([pair_row, t]) + len(labels.contexts)
        member = np.concatenate([pair_node, nodes + arm])
        positive = np.concatenate([np.ones(len(pair_node), np.bool_), found])
        both = as_rows(sp.vstack([labels.contexts.csr(), feedback.contexts.csr()], format="csr"))
        return cls(tree, both, Y, row.astype(np.int32), member.astype(np.int32), positive)

    def problems(self, keep: Bools) -> Problems:
        """Samples of every node's and arm's function among the contexts kept; none where nothing is right."""
        rows = np.flatnonzero(keep[: self.labels.shape[0]])
        group, row, target = self._labelled(rows)
        kept = keep[self.row]
        group = np.concatenate([group, self.member[kept]])
        row = np.concatenate([rows[row], self.row[kept]])
        target = np.concatenate([target, np.where(self.positive[kept], np.float32(1), np.float32(-1))])
        members = self.tree.n_nodes + self.tree.n_arms
        right = np.zeros(members, np.bool_)
        right[group[target > 0]] = True
        known = right[group]
        row, target = row[known].astype(np.int32), target[known].astype(np.float32)
        start, order = by_group(group[known].astype(np.int32), members)
        return start, row[order], target[order]

    def _labelled(self, rows: Int64s) -> tuple[Int64s, Ints, Float32s]:
        """What these labelled rows say: (node or n_nodes + arm, row, +1 or -1).

        A node learns against its siblings, an arm against all arms below the parent of its leaf.
        """
        tree, labels, arms = self.tree, self.labels[rows], self._arms_with_finds
        found = [_samples_of(tree, labels, np.arange(tree.n_nodes))]
        if len(arms):
            above = np.maximum(tree.parents[tree.leaf_of[arms]], 0)
            places = (tree.n_nodes + np.arange(len(arms))).astype(np.int32)
            beside = Tree(np.concatenate([tree.parents, above]), places)
            place, row, target = _samples_of(beside, labels[:, arms], places)
            found.append((tree.n_nodes + arms[place - tree.n_nodes], row, target))
        group, row, target = (np.concatenate(part) for part in zip(*found, strict=True))
        return group, row, target

    @cached_property
    def _arms_with_finds(self) -> Int64s:
        """Arms that were right at least once; the others have no routing function, however many they are."""
        right = np.zeros(self.tree.n_arms, np.bool_)
        right[self.labels.indices] = True
        found = self.member[self.positive]
        right[found[found >= self.tree.n_nodes] - self.tree.n_nodes] = True
        return np.flatnonzero(right)

    @cached_property
    def thresholds(self) -> Float32s:
        """Weights of each feature up to these are dropped: so small that all of them in a context, with signs at
        random, change its product by about NEGLIGIBLE. Contexts of any scale have the same weights left; the bias is
        kept. Judged by the labelled rows, so that they stay the same.
        """
        x = self.contexts.head(self.labels.shape[0])
        if len(x.value) == 0:  # nobody knows how large features are
            return np.zeros(x.columns + 1, np.float32)
        count = np.bincount(x.index, minlength=x.columns)
        square = np.bincount(x.index, np.square(x.value, dtype=np.float64), x.columns)
        usual = np.sqrt(np.where(count > 0, square / np.maximum(1, count), square.sum() / max(1, count.sum())))
        limits = NEGLIGIBLE / np.maximum(usual * np.sqrt(len(x.value) / max(1, len(x))), 1e-30)
        return np.append(np.minimum(limits, 1e30), 0.0).astype(np.float32)

    def unknown(self, base: Rows, unknown: Bools) -> sp.csr_matrix:
        """The rows of nodes and arms of which nothing is known; the others are empty."""
        arms = self.tree.n_arms
        never = sp.csr_matrix((np.full(arms, NEVER, np.float32), (np.arange(arms), np.full(arms, base.columns - 1))))
        rows = sp.vstack([base.csr(), never], format="csr")
        return sp.csr_matrix(sp.diags_array(unknown.astype(np.float32)) @ rows)


@dataclass(frozen=True, eq=False)
class Before:
    """An earlier fit: from what, on which of the contexts, and the rows that came out."""

    samples: RoutingSamples
    keep: Bools
    fitted: Rows


def fit_routing_samples(
    samples: RoutingSamples, keep: Bools, base: Rows, tolerance: float, before: Before | None = None, threads: int = 0
) -> Rows:
    """Routing fitted on some of the contexts; a row a node, then a row an arm.

    A node of which nothing right is known keeps its row of `base`; an arm then has the row of one that is never right:
    -1 whatever the context. Functions whose samples are the same as `before` have the same rows, which are copied.

    >>> X, Y = np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)
    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> samples = RoutingSamples.of(tree, LabelSamples.of(tree, X, Y), Feedback.none(2, 1))
    >>> len(fit_routing_samples(samples, np.ones(2, bool), base=as_rows(np.zeros((3, 3), np.float32)), tolerance=0.1))
    5
    """
    start, rows, target = problems = samples.problems(keep)
    x = samples.contexts
    settings: Any = SQUARED_HINGE, COST, tolerance, PASSES, 0, samples.thresholds, 0, threads, None
    known = {} if before is None else _unchanged(x, problems, before, threads)
    fitted = _core.fit(x.start, x.index, x.value, x.columns, start, rows, target, *settings, **known)
    weights = Rows(*fitted, x.columns + 1).csr()
    return as_rows(weights + samples.unknown(base, np.diff(start) == 0), what="routing")


def _unchanged(contexts: Rows, problems: Problems, before: Before, threads: int) -> dict[str, Any]:
    """Which rows of an earlier fit stay, as the core takes them."""
    now, then = (
        _core.fingerprints(x.start, x.index, x.value, x.columns, *groups, 0, threads)
        for x, groups in ((contexts, problems), (before.samples.contexts, before.samples.problems(before.keep)))
    )
    rows = before.fitted
    known = {"known_start": rows.start, "known_index": rows.index, "known_value": rows.value}
    return {"keep": (now == then) & (now != 0), **known}


def _samples_of(tree: Tree, labels: sp.csr_matrix, members: Any) -> tuple[Int64s, Ints, Float32s]:
    """Those of neighbouring nodes, one against its siblings each: (node, row, +1 or -1)."""
    start, row, target = one_against_siblings(tree, labels)
    first, end = start[members[0]], start[members[-1] + 1]
    return np.repeat(members.astype(np.int64), np.diff(start)[members]), row[first:end], target[first:end]


def _nodes_above(tree: Tree, arm: Ints, row: Int64s) -> tuple[Int64s, Int64s]:
    """All pairs of a node but the root and a row that has one of its arms, each once."""
    node, found = tree.leaf_of[arm].astype(np.int64), []
    rows = int(row.max(initial=0)) + 1
    while len(node):
        pair = np.unique(node[node > 0] * rows + row[node > 0])
        found.append(pair)
        node, row = tree.parents[pair // rows].astype(np.int64), pair % rows
    pairs = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))
    return pairs // rows, pairs % rows
