"""Segments and the rest of the log as one history: what `Log.samples` gives, without reading sealed rounds from it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np

from treetop.log.base import Log
from treetop.log.blocks import Block, RewardRows
from treetop.log.records import Mark
from treetop.log.rounds import LoggedRounds
from treetop.log.segments.binding import agrees
from treetop.log.segments.manifest import Manifest, SegmentFolder
from treetop.log.segments.storage import read_deltas, read_segment


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

    Reads the log alone if nothing is sealed, or if segments do not agree with it. Raises SegmentError for files that
    cannot be trusted; the log then has all that they held.
    """
    for chunk, _ in sealed_rounds(folder, log, until, wait=wait, default=default, tree=tree):
        yield chunk


def sealed_rounds(
    folder: SegmentFolder,
    log: Log,
    until: Mark,
    *,
    wait: float = 0.0,
    default: float | None = None,
    tree: str | None = None,
) -> Generator[tuple[LoggedRounds, Path | None], None, None]:
    """The same with the folder of the segment that has these rounds and no others, if there is one."""
    with folder.reading() as manifest:
        after = 0
        if manifest is not None and agrees(log, manifest):
            after = manifest.decisions
            for segment, block in zip(manifest.segments, blocks(folder, log, manifest, until.position), strict=False):
                chunk = block.logged(until, until.time - wait, default, tree)
                if len(chunk):
                    yield chunk, folder.path / segment.name if len(chunk) == segment.rounds else None
        for chunk in log.samples(until, wait=wait, default=default, tree=tree, after=after):
            yield chunk, None


def all_blocks(folder: SegmentFolder, log: Log, until: int, size: int) -> Iterator[Block]:
    """Every round up to a position with the rewards known at it: those of segments, then the rest of the log."""
    with folder.reading() as manifest:
        after = 0
        if manifest is not None and agrees(log, manifest):
            after = manifest.decisions
            for block in blocks(folder, log, manifest, until):
                yield block.head(int(np.searchsorted(block.positions, until, side="right")))
        yield from log.blocks(after, until, size)


def blocks(folder: SegmentFolder, log: Log, manifest: Manifest, until: int) -> Iterator[Block]:
    """The sealed rounds, a segment at a time, with every reward that was committed up to a position."""
    newer = log.late_rewards(manifest.rewards, max(until, manifest.rewards), manifest.decisions)
    late = RewardRows.join([read_deltas(folder.path, manifest.deltas), newer])
    late = late.take(late.positions <= until)
    for segment in manifest.segments:
        if segment.first > until:
            return
        yield read_segment(folder.path, segment).with_rewards(late)
