"""What the owner's measure and model say of a history on disk: the bytes of `measured`, `context_map`, `prior_scale`.

Numbers of all samples lie in files in the order that samples have in memory, and are added up in the same blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Float32s, Floats, Rows
from treetop.learning.context_map import LATEST, with_learned_map
from treetop.learning.history import History, Part, gathered, stacked
from treetop.learning.label_samples import LabelSamples
from treetop.learning.measured import Measured
from treetop.learning.pooled_means import interpolate, pooled_rounds, resampled, slack
from treetop.learning.prior_scale import prior_scale
from treetop.learning.samples import Samples
from treetop.learning.shards import renumbered
from treetop.model.measure import PAIRS
from treetop.model.model import Model
from treetop.model.prior import Prior


@dataclass(frozen=True, eq=False)
class Piece:
    """Samples that follow one another: those of the labels, or of a part of the rounds, where `order` says which of the
    part's own each of them is."""

    contexts: Rows
    row: Any
    arm: Any
    reward: Any
    weight: Any
    part: Part | None = None
    order: Any = None

    def __len__(self) -> int:
        return len(self.arm)

    def cut(self, low: int, high: int) -> Piece:
        """Some of the samples, with copies of their contexts and of no others."""
        rows, place = renumbered(self.row, np.arange(low, high))
        some = slice(low, high)
        contexts, row = gathered(self.contexts, rows), place.astype(np.int32)
        return Piece(contexts, row, self.arm[some], self.reward[some], self.weight[some])

    def __add__(self, later: Piece) -> Piece:
        arm, reward, weight = (
            np.concatenate([getattr(self, name), getattr(later, name)]) for name in ("arm", "reward", "weight")
        )
        row = np.concatenate([self.row, later.row + np.int32(len(self.contexts))])
        return Piece(stacked([self.contexts, later.contexts], self.contexts.columns), row, arm, reward, weight)


@dataclass(frozen=True, eq=False)
class Pieces:
    """All samples of a refit, piece by piece, as often as asked. Rounds weigh what `pool_rounds` says beside labels."""

    labels: LabelSamples | None
    history: History
    pool_rounds: bool

    def __iter__(self) -> Iterator[Piece]:
        if self.labels is not None:
            known = self.labels
            yield Piece(known.contexts, known.row, known.arm, known.reward, known.weight)
        yield from map(self.of_part, self.history.parts)

    def __reversed__(self) -> Iterator[Piece]:
        yield from map(self.of_part, reversed(self.history.parts))
        yield from Pieces(self.labels, replace(self.history, parts=()), self.pool_rounds)

    def of_part(self, part: Part) -> Piece:
        samples = part.samples(0, len(self.history.totals.shown))
        order = np.argsort(part.arrays["place"], kind="stable")
        row = samples.row[order]
        weight = np.full(len(row), float(self.pool_rounds))
        if self.labels is None:
            weight = (row < pooled_rounds(len(self.history)) - part.first).astype(np.float64)
        return Piece(part.contexts, row, samples.arm[order], samples.reward[order], weight, part, order)

    def placed(self) -> Iterator[tuple[slice, Piece]]:
        """Each with its place among all."""
        first = 0
        for piece in self:
            yield slice(first, first + len(piece)), piece
            first += len(piece)


@dataclass(frozen=True, eq=False)
class Told:
    """What the owner's measure and model say, and what that leaves of the rewards of label samples. That of rounds is
    beside the history, as `left`, unless nothing is said at all."""

    measured: Measured | None
    prior: Prior | None
    left: Floats | Float32s


def with_streamed_map(model: Model, labels: LabelSamples | None, history: History) -> Model:
    """As `with_learned_map`: the latest samples alone are in memory.

    >>> from treetop.learning.history import ArmTotals
    >>> from treetop.records import Feedback
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, X)
    >>> history = History((), 2, ArmTotals.none(np.zeros(2, bool)), Feedback.none(2, 1))
    >>> with_streamed_map(model, None, history) is model  # contexts and items are in no spaces of their own
    True
    """
    if model.context_map is None:
        return model
    rewarded = bool(history.totals.finds.any()) or (labels is not None and bool((labels.reward > 0).any()))
    none = np.zeros(0, np.int32)
    latest = Piece(stacked([], history.columns), none, none, none, none)
    for piece in reversed(Pieces(labels, history, False)):
        if len(latest) == LATEST:
            break
        first = max(0, len(piece) - (LATEST - len(latest)))
        if first < len(piece):
            latest = piece.cut(first, len(piece)) + latest
    unused, reward = np.zeros(len(latest)), latest.reward.astype(np.float32)
    samples = Samples(latest.contexts, latest.row, latest.arm, reward, unused, unused)
    return with_learned_map(model, samples, rewarded)


def told(model: Model, pieces: Pieces, work: Path) -> Told:
    """What the owner's measure and model say of all samples; writes what is left of each reward beside the history.

    >>> from treetop.learning.history import ArmTotals
    >>> from treetop.records import Feedback
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, X)
    >>> history = History((), 2, ArmTotals.none(np.zeros(2, bool)), Feedback.none(2, 1))
    >>> told(model, Pieces(None, history, False), Path("unused")).measured is None  # there is neither
    True
    """
    by_measure = model.measure is not None and model.item_vectors is not None
    if not by_measure and model.prior is None:
        return Told(None, None, np.zeros(0, np.float32) if pieces.labels is None else pieces.labels.reward)
    work.mkdir()
    count = sum(map(len, pieces))
    left, weight = (_mapped(work / name, count) for name in ("left", "weight"))
    for some, piece in pieces.placed():
        left[some], weight[some] = piece.reward, piece.weight
    measured, prior = None, model.prior
    if by_measure:
        values = _mapped(work / "value", count)
        _put_values(model, pieces, values)
        measured = Measured.fitted(model, values, left, weight)
        for some, _ in pieces.placed():
            left[some] -= measured(values[some])
        measured = measured.saying(values[count - min(count, int(pieces.history.recent.observed.sum())) :])
    if prior is not None:
        said = _mapped(work / "said", count)
        for some, piece in pieces.placed():
            said[some] = _prior_said(model, prior, pieces, piece)
        prior = replace(prior, scale=prior_scale(said, left, weight))
        for some, _ in pieces.placed():
            left[some] -= prior.scale * said[some]
    for some, piece in pieces.placed():
        if piece.part is not None:
            of_part = np.empty(len(piece))
            of_part[piece.order] = left[some]
            piece.part.arrays.put(left=of_part)
    return Told(measured, prior, np.array(left[: 0 if pieces.labels is None else len(pieces.labels)]))


def _mapped(path: Path, count: int) -> Any:
    """Numbers in a file."""
    return np.lib.format.open_memmap(path.with_suffix(".npy"), "w+", np.float64, (count,))


def _put_values(model: Model, pieces: Pieces, out: Any) -> None:
    """The measure of every sample, PAIRS at a time from the first one on as in memory: products of matrices may differ
    in their last bits with how many rows there are."""
    measure, items, at = model.measure, model.item_vectors, 0
    assert measure is not None
    assert items is not None
    waiting: Piece | None = None
    for piece in pieces:
        first = 0
        if waiting is not None:
            first = min(len(piece), PAIRS - len(waiting))
            waiting = waiting + piece.cut(0, first)
            if len(waiting) < PAIRS:
                continue
            out[at : at + PAIRS] = measure.values(waiting.contexts, items, waiting.row, waiting.arm, model.context_map)
            at += PAIRS
        end = first + (len(piece) - first) // PAIRS * PAIRS
        whole = piece.row[first:end], piece.arm[first:end]
        out[at : at + end - first] = measure.values(piece.contexts, items, *whole, model.context_map)
        at += end - first
        waiting = piece.cut(end, len(piece)) if end < len(piece) else None
    if waiting is not None:
        out[at:] = measure.values(waiting.contexts, items, waiting.row, waiting.arm, model.context_map)


def _prior_said(model: Model, prior: Prior, pieces: Pieces, piece: Piece) -> Floats:
    said = prior.scores(piece.contexts, piece.row, model.tree.n_nodes + piece.arm)
    if prior.means is None:
        return said
    if piece.part is None:
        assert pieces.labels is not None
        return said + interpolate(resampled(prior.means), slack(pieces.labels.log_route))
    return said + interpolate(resampled(prior.means), piece.part.arrays["slack"][piece.order])
