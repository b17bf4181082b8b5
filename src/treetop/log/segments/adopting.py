"""Segments that go on from sums that somebody else has made of the same log: what these rounds have left in it is
sealed again, with the rewards that count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from treetop.log.base import Log
from treetop.log.blocks import Block, join
from treetop.log.segments import binding
from treetop.log.segments.manifest import SegmentFolder, Sums
from treetop.log.segments.reading import summed_blocks
from treetop.log.segments.seal import Assign, with_shards
from treetop.log.segments.storage import read_norms, read_sums, write_segment

Fetch = Callable[[str, Path], None]  # writes one of the folders of the sums, by its name there


def adopt(folder: SegmentFolder, log: Log, sums: Sums, fetch: Fetch, rounds: int, assign: Assign) -> None:
    """Replaces all that is sealed by these sums and by what the log still has of their rounds, so many in a segment.

    The manifest is replaced in one step, at the end. Raises SegmentError if what was fetched is not what was made.
    """
    with folder.changing() as found:
        counts = log.counts()
        manifest = binding.own_manifest(log, found, counts)
        last, rewards = sums.steps[-1]
        manifest = replace(manifest, segments=(), deltas=(), decisions=last, rewards=rewards)
        pieces = []
        for piece in sums.norms:
            name, manifest = manifest.named("norms")
            fetch(piece.name, folder.path / name)
            pieces.append(replace(piece, name=name))
        name, manifest = manifest.named("sums")
        fetch(sums.name, folder.path / name)
        mine = replace(sums, name=name, norms=tuple(pieces))
        read_sums(folder.path, mine)
        read_norms(folder.path, mine.norms)
        segments = []
        for block in _filled(summed_blocks(log, sums), rounds):
            manifest, shard_of = with_shards(folder, manifest, int(block.arms.max(initial=-1)) + 1, assign)
            name, manifest = manifest.named("segment")
            segments.append(write_segment(folder.path, name, block, (shard_of, manifest.shards)))
        manifest = replace(manifest, segments=tuple(segments), sums=mine, forgotten=counts.forgotten)
        binding.store(folder, log, manifest)


def _filled(blocks: Iterator[Block], rounds: int) -> Iterator[Block]:
    """Blocks joined until they have so many rounds, or little more."""
    waiting: list[Block] = []
    for block in blocks:
        if len(block):
            waiting.append(block)
        if sum(map(len, waiting)) >= rounds:
            yield join(waiting)
            waiting = []
    if waiting:
        yield join(waiting)
