"""From the log into segments: rounds whose rewards have been waited for, so many at a time, each once.

Memory is that of one segment. After each segment the manifest is replaced: a process that is killed loses at most the
segment that it was writing, and the next one begins there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from treetop.arrays import Ints, check_float, check_int
from treetop.log.base import Log
from treetop.log.blocks import Block, RewardRows, join
from treetop.log.segments import binding
from treetop.log.segments.compaction import follow_log, merge_small, merged_delta
from treetop.log.segments.manifest import Manifest, SegmentFolder
from treetop.log.segments.schema import MAX_SHARDS
from treetop.log.segments.storage import read_shards, write_segment, write_shards

Assign = Callable[[Ints, int], Ints]  # the shards of the first arms, how many are needed -> those of all of them
READ_STEP = 8192  # rounds read from the log in one transaction
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Sealing:
    """How to seal: rounds that are older than `wait` seconds, `rounds` of them in a segment; `rest` seals what is left
    over in a smaller one. `now` is the time to count from."""

    wait: float = 3600.0
    rounds: int = 65_536
    rest: bool = False
    now: float | None = None

    def __post_init__(self) -> None:
        check_float("wait", self.wait, 0)
        check_int("rounds", self.rounds, 1, 1 << 24)


@dataclass(frozen=True)
class Sealed:
    """What sealing did: new segments, rounds in them, late rewards; and how much is sealed in all."""

    segments: int
    rounds: int
    late_rewards: int
    sealed_segments: int
    sealed_rounds: int
    sealed_bytes: int


def one_shard(known: Ints, needed: int) -> Ints:
    """All arms in one shard, where there is no tree to go by."""
    return np.zeros(needed, np.int32)


def seal_rounds(
    folder: SegmentFolder, log: Log, how: Sealing, assign: Assign = one_shard, progress: Progress = lambda rounds: None
) -> Sealed:
    """Seals what is complete. What was deleted from the log since the last time leaves the segments first.

    Segments of a version that is not known are deleted and made again.
    """
    folder.delete_other_version()
    with folder.changing() as found:
        counts = log.counts()
        manifest = binding.own_manifest(log, found, counts)
        if manifest.forgotten != counts.forgotten:
            manifest = follow_log(folder, log, manifest, counts.forgotten)
        before, late_rewards = len(manifest.segments), 0
        rounds = 0
        while True:
            block = next_block(log, manifest.decisions, counts.position, how)
            if block is None and not how.rest:
                break
            late = binding.newer_rewards(log, manifest, counts.position)
            if block is None and not len(late):
                break
            manifest = _add(folder, log, manifest, (block, late, counts.position), assign)
            rounds, late_rewards = rounds + (0 if block is None else len(block)), late_rewards + len(late)
            progress(rounds)
        segments = len(manifest.segments) - before
        manifest = merge_small(folder, log, manifest, how.rounds)
    size = sum(segment.bytes for segment in manifest.segments)
    return Sealed(segments, rounds, late_rewards, len(manifest.segments), manifest.rounds, size)


def next_block(log: Log, after: int, until: int, how: Sealing) -> Block | None:
    """The rounds of the next segment: complete ones without a gap; None if there are too few of them."""
    cutoff = (time.time() if how.now is None else how.now) - how.wait
    if not how.rest:
        newest = log.time_of_next(after, how.rounds)
        if newest is None or newest > cutoff:
            return None
    parts, left = [], how.rounds
    for block in log.blocks(after, until, min(READ_STEP, how.rounds)):
        young = np.flatnonzero(block.times > cutoff)
        part = block.head(min(left, int(young[0]) if len(young) else len(block)))
        if len(part):
            parts.append(part)
        left -= len(part)
        if left == 0 or len(young):
            break
    if not parts or (left and not how.rest):
        return None
    return join(parts)


def _add(
    folder: SegmentFolder, log: Log, manifest: Manifest, new: tuple[Block | None, RewardRows, int], assign: Assign
) -> Manifest:
    """Adds a segment and a delta, and makes the manifest with both the one that counts."""
    block, late, position = new
    if len(late):
        manifest = merged_delta(folder, manifest, late)
    manifest = replace(manifest, rewards=position)
    if block is not None:
        manifest, shard_of = with_shards(folder, manifest, int(block.arms.max(initial=-1)) + 1, assign)
        name, manifest = manifest.named("segment")
        written = write_segment(folder.path, name, block, (shard_of, manifest.shards))
        manifest = replace(manifest, segments=(*manifest.segments, written), decisions=written.last)
    return binding.store(folder, log, manifest)


def with_shards(folder: SegmentFolder, manifest: Manifest, arms: int, assign: Assign) -> tuple[Manifest, Ints]:
    """The shard of every arm; new arms get theirs now, and keep it for ever."""
    known = read_shards(folder.path, manifest.shard_pieces)
    if arms <= len(known):
        return manifest, known
    every = np.asarray(assign(known, arms), np.int32)
    count = max(manifest.shards, int(every.max(initial=0)) + 1)
    if len(every) < arms or (every[: len(known)] != known).any():
        raise ValueError(f"{len(every)} shards for {arms} arms, of which {len(known)} have theirs already")
    check_int("the number of shards", count, 1, MAX_SHARDS)
    name, manifest = manifest.named("shards")
    piece = write_shards(folder.path, name, every[len(known) :])
    return replace(manifest, shards=count, shard_pieces=(*manifest.shard_pieces, piece)), every
