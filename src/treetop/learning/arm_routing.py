"""Routing learned from labels and rewards, down to the arm: what leads a context to its arms.

A node learns from labels as in the paper, one against its siblings. Of rounds it learns only the rewards that were
found below it: where nothing was found, the arms that nobody showed may still be right, so unknown is not 0. An arm
has a routing function of its own, which learns from every reward observed of it, found or not.

Routing judges rows that it was fitted on too kindly. So the contexts are in two folds, by what they contain, and each
fold also has routing that was fitted on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Bools, Float32s, Int64s, Ints, Rows, as_rows
from treetop.learning.label_samples import LabelSamples
from treetop.learning.samples import by_group
from treetop.model.learned_routing import FOLDS, LearnedRouting
from treetop.model.model import Model
from treetop.model.routing import SQUARED_HINGE, one_against_siblings
from treetop.records import Feedback
from treetop.tree.tree import Tree

GROWTH = 1.2  # routing is fitted again when labelled rows and rounds together are so many times as many
TOLERANCE = 0.1
PASSES = 1000
NEVER = -1.0  # what the routing function of an arm says, whatever the context, if nothing right is known of the arm


def with_arm_routes(
    model: Model, labels: LabelSamples, feedback: Feedback, place: Callable[[Feedback], Tree], threads: int = 0
) -> Model:
    """The model with routing down to the arm, learned from the labels and the first `rounds_for_routing` rounds.

    The model is returned as it is if its routing was fitted from the same, or if it is geometric. `place` says where
    arms belong by some rounds alone.

    >>> X, Y = np.tile(np.eye(4, dtype=np.float32), (8, 1)), np.tile(np.eye(4, dtype=np.float32), (8, 1))
    >>> tree = Tree.from_labels(X, Y, max_leaf=2)
    >>> model, labels = Model.initial(tree, X, Y), LabelSamples.of(tree, X, Y)
    >>> learned = with_arm_routes(model, labels, Feedback.none(4, 1), lambda rounds: tree)
    >>> len(learned.route_rows) == tree.n_nodes + tree.n_arms
    True
    """
    if model.geometric:
        return model
    rounds = rounds_for_routing(len(labels.contexts), len(feedback))
    first, past = feedback.head(rounds), model.learned_routing
    digest = _digest(model.tree, labels, first)
    if past is not None and past.digest == digest:
        return model
    known = _Known.of(place(first), labels, first)
    nodes = model.tree.n_nodes
    base = past.base if past is not None else model.route_rows.head(nodes)
    fold = fold_of(known.contexts)
    held_out = tuple(known.fit(base, fold != f, threads) for f in range(FOLDS))
    routing = known.fit(base, np.ones(len(fold), np.bool_), threads)
    learned = LearnedRouting(base=base, held_out=held_out, digest=digest, rounds=rounds)
    return replace(model, route_rows=routing, learned_routing=learned)


def rounds_for_routing(labelled: int, rounds: int) -> int:
    """How many of the rounds, the first ones, routing is fitted from: what is known has grown by GROWTH a step.

    It depends on nothing but how many rows and rounds there are, so that a refit from scratch is the same.

    >>> [rounds_for_routing(5000, rounds) for rounds in (999, 1000, 2199, 2200)]
    [0, 1000, 1000, 2200]
    """
    known = labelled
    while (more := max(known + 1, round(known * GROWTH))) <= labelled + rounds:
        known = more
    return known - labelled


def fold_of(contexts: Rows) -> Int64s:
    """(n,): the fold of each context, 0 or 1, by what it contains: the same context is always in the same fold.

    >>> a, b, c = fold_of(as_rows([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])).tolist()
    >>> a == c
    True
    """
    n = len(contexts)
    each = np.arange(n + 1, dtype=np.int64)
    X = contexts.start, contexts.index, contexts.value, contexts.columns
    prints = _core.fingerprints(*X, each, each[:-1].astype(np.int32), np.zeros(n, np.float32), 0, 0)
    return np.asarray(prints & (FOLDS - 1))


@dataclass(frozen=True, eq=False)
class _Known:
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
    def of(cls, tree: Tree, labels: LabelSamples, feedback: Feedback) -> _Known:
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

    def fit(self, base: Rows, keep: Bools, threads: int) -> Rows:
        """Routing fitted on some of the contexts; a row a node, then a row an arm.

        A node of which nothing right is known keeps its row of `base`; an arm then has the row of one that is never
        right: -1 whatever the context.
        """
        start, row, target = self._problems(keep)
        x = self.contexts
        fitted = _core.fit(
            x.start,
            x.index,
            x.value,
            x.columns,
            start,
            row,
            target,
            SQUARED_HINGE,
            1.0,
            TOLERANCE,
            PASSES,
            0,
            0.0,
            0,
            threads,
            None,
        )
        weights = Rows(*fitted, x.columns + 1).csr()
        return as_rows(weights + self._unknown(base, np.diff(start) == 0), what="routing")

    def _problems(self, keep: Bools) -> tuple[Int64s, Ints, Float32s]:
        """Samples of every node's and arm's classifier as (start, contexts, +1 or -1); none where nothing is right."""
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
        start, order = by_group(group[known].astype(np.int32), members)
        return start, row[known][order].astype(np.int32), target[known][order].astype(np.float32)

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

    def _unknown(self, base: Rows, unknown: Bools) -> sp.csr_matrix:
        """The rows of nodes and arms of which nothing is known; the others are empty."""
        arms = self.tree.n_arms
        never = sp.csr_matrix((np.full(arms, NEVER, np.float32), (np.arange(arms), np.full(arms, base.columns - 1))))
        rows = sp.vstack([base.csr(), never], format="csr")
        return sp.csr_matrix(sp.diags_array(unknown.astype(np.float32)) @ rows)


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


def _digest(tree: Tree, labels: LabelSamples, feedback: Feedback) -> int:
    """64 bits that tell what routing is fitted from. Where arms moved follows from the rest."""
    low = high = 0
    right, x, rounds = labels.reward > 0, labels.contexts, feedback.contexts
    labelled = x.start, x.index, x.value, labels.row[right], labels.arm[right]
    learned = rounds.start, rounds.index, rounds.value, feedback.arms, feedback.rewards
    for array in (tree.parents, np.int64(tree.n_arms), *labelled, *learned):
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        low = _core.crc32(np.concatenate([np.frombuffer(low.to_bytes(8, "little"), np.uint8), data]), 0)
        high = (high * 0x9E3779B1 + low) % 2**31
    return high << 32 | low
