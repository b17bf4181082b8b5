"""Segments and the rest of the log as one history: what `Log.samples` gives, without reading sealed rounds from it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Floats
from treetop.log.base import Log
from treetop.log.blocks import Block, RewardRows
from treetop.log.records import Mark
from treetop.log.rounds import LoggedRounds
from treetop.log.segments.binding import agrees, belongs, newer_rewards
from treetop.log.segments.manifest import Manifest, SegmentFolder, Sums
from treetop.log.segments.storage import read_deltas, read_norms, read_segment, read_sums

READ_STEP = 8192  # rounds read from the log at a time
SealedRounds = Generator[tuple[LoggedRounds, Path | None, bool], None, None]


@dataclass(frozen=True)
class SealedLog:
    """A log and what is sealed of it. `sums` are those of its first rounds, None if there are none; `alone`: the rounds
    themselves are all read from the log, as far as it has them."""

    folder: SegmentFolder
    log: Log
    manifest: Manifest | None
    sums: Sums | None
    alone: bool

    def read_sums(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any], tuple[Floats, ...]] | None:
        """Arrays and numbers that were stored of rounds that are summed up, and the lengths of their contexts."""
        if self.sums is None:
            return None
        return *read_sums(self.folder.path, self.sums), read_norms(self.folder.path, self.sums.norms)

    def rounds(self, until: Mark, wait: float, default: float | None, tree: str | None = None) -> SealedRounds:
        """Every decision up to a mark with the rewards known at it, as `Log.samples` gives them, in larger chunks. With
        each chunk the folder of the segment that has these rounds and no others, if there is one, and whether they are
        summed up: then only what is still read of them is there for sure."""
        overdue, after = until.time - wait, 0 if self.sums is None else self.sums.steps[-1][0]
        if self.alone and self.sums is not None:
            for block in summed_blocks(self.log, self.sums):
                if len(chunk := block.logged(until, overdue, default, tree)):
                    yield chunk, None, True
        elif not self.alone and self.manifest is not None:
            after = self.manifest.decisions
            read = blocks(self.folder, self.log, self.manifest, until.position)
            for segment, block in zip(self.manifest.segments, read, strict=False):
                if len(chunk := block.logged(until, overdue, default, tree)):
                    own = self.folder.path / segment.name if len(chunk) == segment.rounds else None
                    yield chunk, own, segment.last <= self.manifest.summed
        for chunk in self.log.samples(until, wait=wait, default=default, tree=tree, after=after):
            yield chunk, None, False


@contextmanager
def sealed_log(folder: SegmentFolder, log: Log, until: int, alone: bool = False) -> Iterator[SealedLog]:
    """What is sealed of a log, for one who reads up to a position; nobody changes it meanwhile. `alone` reads rounds
    from the log; so does who finds nothing sealed, or segments that do not agree with the log."""
    with folder.reading() as manifest:
        if manifest is None or not belongs(log, manifest, log.counts()):
            yield SealedLog(folder, log, None, None, True)
            return
        sums = manifest.sums if manifest.summed <= until else None
        beyond = manifest.summed > until
        yield SealedLog(folder, log, manifest, sums, alone or beyond or not agrees(log, manifest))


def sealed_samples(
    folder: SegmentFolder,
    log: Log,
    until: Mark,
    *,
    wait: float = 0.0,
    default: float | None = None,
    tree: str | None = None,
) -> Iterator[LoggedRounds]:
    """Every decision up to a mark with the rewards known at it, as `Log.samples` gives them, in larger chunks.

    Reads the log alone if nothing is sealed, if segments do not agree with it, or if some have been summed up and are
    not whole any more. Raises SegmentError for files that cannot be trusted; the log then has all that they held.
    """
    with sealed_log(folder, log, until.position) as found:
        whole = found if found.sums is None else SealedLog(folder, log, None, None, alone=True)
        for chunk, _, _ in whole.rounds(until, wait, default, tree):
            yield chunk


def all_blocks(folder: SegmentFolder, log: Log, until: int, size: int) -> Iterator[Block]:
    """Every round up to a position with the rewards known at it: those of segments, then the rest of the log. Of the
    log alone where segments are not whole."""
    with folder.reading() as manifest:
        after = 0
        if manifest is not None and manifest.sums is None and agrees(log, manifest):
            after = manifest.decisions
            for block in blocks(folder, log, manifest, until):
                yield block.head(int(np.searchsorted(block.positions, until, side="right")))
        yield from log.blocks(after, until, size)


def blocks(folder: SegmentFolder, log: Log, manifest: Manifest, until: int) -> Iterator[Block]:
    """The sealed rounds, a segment at a time, with every reward that was committed up to a position."""
    late = RewardRows.join([read_deltas(folder.path, manifest.deltas), newer_rewards(log, manifest, until)])
    late = late.take(late.positions <= until)
    for segment in manifest.segments:
        if segment.first > until:
            return
        yield read_segment(folder.path, segment).with_rewards(late)


def summed_blocks(log: Log, sums: Sums) -> Iterator[Block]:
    """The rounds that are summed up, as far as the log has them and will, with the rewards that count."""
    first = 0
    for last, rewards in sums.steps:
        late = log.late_rewards(last, rewards, last)
        for block in log.blocks(first, last, READ_STEP):
            yield block.with_rewards(late).take(block.times >= sums.before)
        first = last
