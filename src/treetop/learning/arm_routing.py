"""Routing learned from labels and rewards, down to the arm: what leads a context to its arms.

A node learns from labels as in the paper, one against its siblings. Of rounds it learns only the rewards that were
found below it: where nothing was found, the arms that nobody showed may still be right, so unknown is not 0. An arm
has a routing function of its own, which learns from every reward observed of it, found or not.

Routing judges rows that it was fitted on too kindly. So the contexts are in two folds, by what they contain, and each
fold also has routing that was fitted on the other.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from treetop.arrays import Int64s, Rows
from treetop.learning.label_samples import LabelSamples
from treetop.learning.routing_samples import SOLVER, RoutingSamples, fit_routing_samples
from treetop.learning.samples import context_fingerprints
from treetop.model.learned_routing import FOLDS, LearnedRouting
from treetop.model.model import Model
from treetop.records import Feedback
from treetop.tree.tree import Tree

GROWTH = 1.2  # routing is fitted again when labelled rows and rounds together are so many times as many
# Of the fits that serve, and of those that only judge contexts that the others were fitted on.
TOLERANCE, HELD_OUT_TOLERANCE = 0.1, 0.3
TOLERANCES = TOLERANCE, HELD_OUT_TOLERANCE
# Of the path to the parent of an arm's leaf, in the arm's route: the arm's own function, which learns against rows from
# elsewhere too, has told a part of it.
PATH_WEIGHT = 0.5
NO_ROUNDS = (0,) * 6  # what `rounds_checksums` begins with


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
    known = RoutingSamples.of(place(first), labels, first)
    base = past.base if past is not None else model.route_rows.head(model.tree.n_nodes)
    fold, before = fold_of(known.contexts) == 1, None if past is None else (*past.held_out, model.route_rows)
    fitted = fit_routing_samples(known, fold, base, TOLERANCES, before, threads)
    return with_learned(model, base, fitted, digest, rounds)


def with_learned(model: Model, base: Rows, fitted: Sequence[Rows], digest: int, rounds: int) -> Model:
    """The model with routing that was fitted without each of the folds, and on all contexts.

    >>> X = Y = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
    >>> from treetop.learning.routing_samples import unknown_rows
    >>> of_arms = unknown_rows(model.route_rows, arms=2)
    >>> with_learned(model, model.route_rows, [of_arms] * 3, digest=1, rounds=0).path_weight
    0.5
    """
    *held_out, routing = fitted
    learned = LearnedRouting(base=base, held_out=tuple(held_out), digest=digest, rounds=rounds, path_weight=PATH_WEIGHT)
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

    >>> from treetop.arrays import as_rows
    >>> a, b, c = fold_of(as_rows([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])).tolist()
    >>> a == c
    True
    """
    return np.asarray(context_fingerprints(contexts) & (FOLDS - 1))


class RoutingDigest:
    """64 bits that tell what routing is fitted from, out of a history in pieces. Where arms moved follows from it.

    `before` are the checksums of rounds before these, and `more` what else there is to tell apart.
    """

    def __init__(
        self, tree: Tree, labels: LabelSamples, before: tuple[int, ...] = NO_ROUNDS, more: tuple[int, ...] = ()
    ) -> None:
        right, x = labels.reward > 0, labels.contexts
        labelled = x.start, x.index, x.value, labels.row[right], labels.arm[right]
        known = np.int64(SOLVER), tree.parents, np.int64(tree.n_arms), *labelled, *map(np.int64, more)
        self._known = tuple(_crc(np.asarray(array), 0) for array in known)
        self._rounds = before

    def add(self, contexts: Rows, row: Any, arm: Any, reward: Any) -> None:
        """Later rounds, with the rewards that were observed in them: of which context, of which arm, and how much."""
        self._rounds = rounds_checksums(self._rounds, contexts, row, arm, reward)

    def value(self) -> int:
        every = np.array([*self._known, *self._rounds], np.uint32).tobytes()
        return int.from_bytes(hashlib.blake2b(every, digest_size=8).digest(), "little") >> 1


def rounds_checksums(before: tuple[int, ...], contexts: Rows, row: Any, arm: Any, reward: Any) -> tuple[int, ...]:
    """Checksums of rounds, continued: of contexts, and of the rewards observed in them.

    >>> from treetop.arrays import as_rows
    >>> x, one = as_rows([[1.0], [2.0]]), np.ones(1)
    >>> first = rounds_checksums(NO_ROUNDS, x.slice(0, 1), np.zeros(1, int), one, one)
    >>> second = rounds_checksums(first, x.slice(1, 2), np.zeros(1, int), one, one)
    >>> second == rounds_checksums(NO_ROUNDS, x, np.arange(2), np.ones(2), np.ones(2))
    True
    """
    told = np.bincount(row, minlength=len(contexts)), arm.astype(np.int32), reward.astype(np.float32)
    parts = np.diff(contexts.start), contexts.index, contexts.value, *told
    return tuple(_crc(part, crc) for part, crc in zip(parts, before, strict=True))


def _digest(tree: Tree, labels: LabelSamples, feedback: Feedback) -> int:
    digest = RoutingDigest(tree, labels)
    t, slot = np.nonzero(feedback.observed)
    digest.add(feedback.contexts, t, feedback.arms[t, slot], feedback.rewards[t, slot])
    return digest.value()


def _crc(array: Any, crc: int) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data, crc)
