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
from treetop.learning.context_map import LATEST, unit_contexts, with_taught_map
from treetop.learning.history import History, Part, gathered, stacked
from treetop.learning.label_samples import LabelSamples
from treetop.learning.measured import Measured
from treetop.learning.pooled_means import interpolate, resampled, round_weights, slack
from treetop.learning.prior_scale import prior_scale
from treetop.learning.shards import renumbered
from treetop.model.measure import PAIRS
from treetop.model.model import Model
from treetop.model.prior import Prior

VECTORS = 2048  # of contexts that are dense in memory at a time


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

    def some(self, low: int, high: int) -> Piece:
        """Some of the samples, among the same contexts."""
        place = slice(low, high)
        row, arm, reward, weight = (each[place] for each in (self.row, self.arm, self.reward, self.weight))
        return replace(self, row=row, arm=arm, reward=reward, weight=weight, order=self.order[place])

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
    """All samples of a refit, piece by piece, as often as asked: those of rounds that nothing but regressors is fitted
    to any more, then the labels and the others. Rounds weigh what `pool_rounds` says beside labels."""

    labels: LabelSamples | None
    history: History
    pool_rounds: bool

    def __iter__(self) -> Iterator[Piece]:
        yield from self.old()
        yield from self.fitted()

    def old(self) -> Iterator[Piece]:
        for part in self.history.parts:
            if self.history.fitted_from(part) > 0:
                piece = self.of_part(part)
                yield piece.some(0, self.count_old(piece))

    def fitted(self) -> Iterator[Piece]:
        yield from self._of_labels()
        for part in self.history.fitted:
            piece = self.of_part(part)
            yield piece.some(self.count_old(piece), len(piece))

    def latest_first(self) -> Iterator[Piece]:
        """Those that are fitted to, from the last one on."""
        for part in reversed(self.history.fitted):
            piece = self.of_part(part)
            yield piece.some(self.count_old(piece), len(piece))
        yield from self._of_labels()

    def count_old(self, piece: Piece) -> int:
        """How many samples of a part, the first ones, are old."""
        assert piece.part is not None
        return int(np.searchsorted(piece.row, self.history.fitted_from(piece.part)))

    def _of_labels(self) -> Iterator[Piece]:
        if (known := self.labels) is not None:
            yield Piece(known.contexts, known.row, known.arm, known.reward, known.weight)

    def of_part(self, part: Part) -> Piece:
        samples = part.samples(0, len(self.history.totals.shown))
        order = np.argsort(part.arrays["place"], kind="stable")
        row = samples.row[order]
        share = None if self.labels is None else float(self.pool_rounds)
        weight = round_weights(row.astype(np.int64) + part.first, len(self.history), share)
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


def with_streamed_map(model: Model, labels: LabelSamples | None, history: History, work: Path) -> Model:
    """As `with_learned_map`: vectors of the contexts of the latest samples lie in a file.

    >>> from treetop.learning.history import ArmTotals
    >>> from treetop.records import Feedback
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, X)
    >>> history = History((), 2, ArmTotals.none(np.zeros(2, bool)), Feedback.none(2, 1))
    >>> with_streamed_map(model, None, history, Path("unused")) is model  # contexts and items are in no own spaces
    True
    """
    measure = model.measure
    if measure is None or model.context_map is None:
        return model
    rewarded = bool(history.totals.finds.any()) or (labels is not None and bool((labels.reward > 0).any()))
    latest: list[Piece] = []
    left = LATEST
    for piece in Pieces(labels, history, False).latest_first():
        latest.insert(0, piece.some(max(0, len(piece) - left), len(piece)))
        left -= len(latest[0])
        if left == 0:
            break
    counts = [len(np.unique(piece.row)) for piece in latest]
    vectors = _mapped(work, (sum(counts), measure.place[1]), np.float32)
    found: list[tuple[Any, ...]] = [(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))]
    at = 0
    for piece, count in zip(latest, counts, strict=True):
        used, place = np.unique(piece.row, return_inverse=True)
        for low in range(0, count, VECTORS):
            some = measure.context_vectors(gathered(piece.contexts, used[low : low + VECTORS]))
            vectors[at + low : at + low + len(some)] = unit_contexts(measure, some)
        found.append((at + place, piece.arm, piece.reward))
        at += count
    row, arm, reward = (np.concatenate(each) for each in zip(*found, strict=True))
    return with_taught_map(model, np.asarray(vectors), row, arm, reward, rewarded)


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
    old = sum(map(len, pieces.old()))
    count, fitted = old + sum(map(len, pieces.fitted())), slice(old, None)
    left, weight = (_mapped(work / name, (count,)) for name in ("left", "weight"))
    for some, piece in pieces.placed():
        left[some], weight[some] = piece.reward, piece.weight
    measured, prior = None, model.prior
    if by_measure:
        values = _mapped(work / "value", (count,))
        _put_values(model, pieces, values, old)
        measured = Measured.fitted(model, values[fitted], left[fitted], weight[fitted])
        for some, _ in pieces.placed():
            left[some] -= measured(values[some])
        measured = measured.saying(values[count - min(count, int(pieces.history.recent.observed.sum())) :])
    if prior is not None:
        said = _mapped(work / "said", (count,))
        for some, piece in pieces.placed():
            said[some] = _prior_said(model, prior, pieces, piece)
        prior = replace(prior, scale=prior_scale(said[fitted], left[fitted], weight[fitted]))
        for some, _ in pieces.placed():
            left[some] -= prior.scale * said[some]
    of_labels = 0 if pieces.labels is None else len(pieces.labels)
    _put_left(pieces, left, old + of_labels)
    return Told(measured, prior, np.array(left[old : old + of_labels]))


def _put_left(pieces: Pieces, left: Any, first: int) -> None:
    """Writes what is left of each reward beside its part: that of old samples comes first, of others from `first`."""
    at = 0
    for part in pieces.history.parts:
        piece = pieces.of_part(part)
        old, of_part = pieces.count_old(piece), np.empty(len(piece))
        of_part[piece.order[:old]] = left[at : at + old]
        of_part[piece.order[old:]] = left[first : first + len(piece) - old]
        at, first = at + old, first + len(piece) - old
        part.arrays.put(left=of_part)


def _mapped(path: Path, shape: tuple[int, ...], kind: type = np.float64) -> Any:
    """Numbers in a file."""
    return np.lib.format.open_memmap(path.with_suffix(".npy"), "w+", kind, shape)


def _put_values(model: Model, pieces: Pieces, out: Any, at: int) -> None:
    """The measure of every sample: of old ones alone, of the others, from place `at` on, PAIRS at a time as in memory:
    products of matrices may differ in their last bits with how many rows there are."""
    measure, items = model.measure, model.item_vectors
    assert measure is not None
    assert items is not None
    for some, piece in pieces.placed():
        if some.start == at:
            break
        out[some] = measure.values(piece.contexts, items, piece.row, piece.arm, model.context_map, alone=True)
    waiting: Piece | None = None
    for piece in pieces.fitted():
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
