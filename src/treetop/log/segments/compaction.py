"""Segments written again: without what was deleted from the log, with late rewards, small neighbours as one.

Files are never changed: new ones are written, the manifest is replaced, the old ones are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from treetop.arrays import Int64s
from treetop.errors import SegmentError
from treetop.log.base import Log
from treetop.log.blocks import RewardRows, join
from treetop.log.segments import binding
from treetop.log.segments.manifest import Manifest, Segment, SegmentFolder
from treetop.log.segments.storage import read_deltas, read_segment, read_shards, write_delta, write_segment

MAX_DELTAS = 16  # beyond that many they become one
FOLD = 8  # one late reward for so many samples of a segment: they are then put into it
MOST_LATE = 1 << 20  # rewards in deltas, which readers hold: beyond that, segments take them in until half are left


def follow(folder: SegmentFolder, log: Log) -> int:
    """Takes what is not in the log any more out of segments and deltas; how many of these were replaced or deleted.

    Segments that are damaged, or of another log, are deleted: nobody knows whose rounds they hold.
    """
    if not folder.path.is_dir():
        return 0
    try:
        return _follow(folder, log)
    except SegmentError:
        return folder.delete()


def _follow(folder: SegmentFolder, log: Log) -> int:
    with folder.changing() as found:
        if found is None:
            return 0
        counts = log.counts()
        manifest = binding.own_manifest(log, found, counts)
        if manifest is not found:
            binding.store(folder, log, manifest)
            return len(found.names())
        if manifest.forgotten == counts.forgotten:
            return 0
        new = follow_log(folder, log, manifest, counts.forgotten)
        return len(found.names() - new.names())


def follow_log(folder: SegmentFolder, log: Log, manifest: Manifest, forgotten: int) -> Manifest:
    """Segments and deltas without the decisions that are not in the log any more, of which it says how many."""
    kept: list[Segment] = []
    late = read_deltas(folder.path, manifest.deltas)
    gone = np.zeros(len(late), np.bool_)
    shard_of = read_shards(folder.path, manifest.shard_pieces)
    for segment in manifest.segments:
        if log.count_between(segment.first, segment.last) == segment.rounds:
            kept.append(segment)
            continue
        there = log.positions_between(segment.first, segment.last)
        inside = (late.decisions >= segment.first) & (late.decisions <= segment.last)
        gone |= inside & ~np.isin(late.decisions, there)
        if len(there):
            block = read_segment(folder.path, segment)
            name, manifest = manifest.named("segment")
            left = block.take(np.isin(block.positions, there))
            if len(left) == len(block):  # what else lay there is summed up
                kept.append(segment)
            elif len(left):
                kept.append(write_segment(folder.path, name, left, (shard_of, manifest.shards)))
    if gone.any():
        manifest = only_delta(folder, manifest, late.take(~gone))
    return binding.store(folder, log, replace(manifest, segments=tuple(kept), forgotten=forgotten))


def merged_delta(folder: SegmentFolder, manifest: Manifest, late: RewardRows) -> Manifest:
    """With one more delta; if deltas or their rewards have become many, one instead of all, without what goes into
    segments: so that reading holds at most MOST_LATE of them, however long the log is."""
    count = sum(delta.rewards for delta in manifest.deltas) + len(late)
    if len(manifest.deltas) < MAX_DELTAS and count <= MOST_LATE:
        name, manifest = manifest.named("delta")
        return replace(manifest, deltas=(*manifest.deltas, write_delta(folder.path, name, late)))
    rewards = RewardRows.join([read_deltas(folder.path, manifest.deltas), late])
    return only_delta(folder, *_folded(folder, manifest, rewards))


def _folded(folder: SegmentFolder, manifest: Manifest, rewards: RewardRows) -> tuple[Manifest, RewardRows]:
    """Segments that many of these rewards are for, written again with them; and the rewards that are left."""
    first = np.array([segment.first for segment in manifest.segments], np.int64)
    last = np.array([0, *(segment.last for segment in manifest.segments)], np.int64)
    place = np.searchsorted(first, rewards.decisions, side="right")  # 0: before the first segment
    place[rewards.decisions > last[place]] = 0
    chosen = _chosen(manifest.segments, np.bincount(place, minlength=len(last))[1:], len(rewards))
    shard_of = read_shards(folder.path, manifest.shard_pieces)
    segments = list(manifest.segments)
    for i in chosen:
        block = read_segment(folder.path, segments[i]).with_rewards(rewards.take(place == i + 1))
        name, manifest = manifest.named("segment")
        segments[i] = write_segment(folder.path, name, block, (shard_of, manifest.shards))
    return replace(manifest, segments=tuple(segments)), rewards.take(~np.isin(place, np.add(chosen, 1)))


def _chosen(segments: Sequence[Segment], counts: Int64s, rewards: int) -> list[int]:
    """Segments with a late reward for every FOLD samples, and, if there are too many rewards, those with most of them
    for their size, so that at most half of MOST_LATE are left."""
    samples = np.array([max(1, segment.samples) for segment in segments], np.int64)
    order = np.argsort(-counts / samples, kind="stable")
    left = rewards - np.cumsum(counts[order]) + counts[order]  # before each is written again
    needed = int((left > MOST_LATE // 2).sum()) if rewards > MOST_LATE else 0
    many = int((FOLD * counts >= samples).sum())
    return sorted(order[: max(needed, many)].tolist())


def only_delta(folder: SegmentFolder, manifest: Manifest, rewards: RewardRows) -> Manifest:
    if not len(rewards):
        return replace(manifest, deltas=())
    name, manifest = manifest.named("delta")
    return replace(manifest, deltas=(write_delta(folder.path, name, rewards),))


def merge_small(folder: SegmentFolder, log: Log, manifest: Manifest, rounds: int) -> Manifest:
    """The newest segments joined while the last is not much smaller than the one before it, up to `rounds` rounds.

    A round is thus written again as often as the logarithm of a segment's rounds says, however small the steps are in
    which they were sealed.
    """
    segments = list(manifest.segments)
    shard_of = None
    while len(segments) > 1 and segments[-2].first > manifest.summed and _mergeable(segments[-2], segments[-1], rounds):
        if shard_of is None:
            shard_of = read_shards(folder.path, manifest.shard_pieces)
        block = join([read_segment(folder.path, segment) for segment in segments[-2:]])
        name, manifest = manifest.named("segment")
        segments[-2:] = [write_segment(folder.path, name, block, (shard_of, manifest.shards))]
    if len(segments) == len(manifest.segments):
        return manifest
    return binding.store(folder, log, replace(manifest, segments=tuple(segments)))


def _mergeable(older: Segment, newer: Segment, rounds: int) -> bool:
    return older.rounds + newer.rounds <= rounds and 2 * newer.rounds >= older.rounds
