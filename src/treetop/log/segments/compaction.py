"""Segments written again: without what was deleted from the log, with many late rewards, small neighbours as one.

Files are never changed: new ones are written, the manifest is replaced, the old ones are deleted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treetop.errors import SegmentError
from treetop.log.base import Log
from treetop.log.blocks import RewardRows, join
from treetop.log.segments import binding
from treetop.log.segments.manifest import Manifest, Segment, SegmentFolder
from treetop.log.segments.storage import read_deltas, read_segment, read_shards, write_delta, write_segment

MAX_DELTAS = 16  # beyond that many they become one
FOLD = 8  # one late reward for so many samples of a segment: they are then put into it


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
    """With one more delta; if they have become many, one instead of all, without what goes into segments."""
    if len(manifest.deltas) < MAX_DELTAS:
        name, manifest = manifest.named("delta")
        return replace(manifest, deltas=(*manifest.deltas, write_delta(folder.path, name, late)))
    rewards = RewardRows.join([read_deltas(folder.path, manifest.deltas), late])
    return only_delta(folder, *_folded(folder, manifest, rewards))


def _folded(folder: SegmentFolder, manifest: Manifest, rewards: RewardRows) -> tuple[Manifest, RewardRows]:
    """Segments that many of these rewards are for, written again with them; and the rewards that are left."""
    segments, left = [], np.ones(len(rewards), np.bool_)
    shard_of = read_shards(folder.path, manifest.shard_pieces)
    for segment in manifest.segments:
        inside = (rewards.decisions >= segment.first) & (rewards.decisions <= segment.last)
        if FOLD * inside.sum() >= max(1, segment.samples):
            block = read_segment(folder.path, segment).with_rewards(rewards.take(inside))
            name, manifest = manifest.named("segment")
            segment = write_segment(folder.path, name, block, (shard_of, manifest.shards))
            left &= ~inside
        segments.append(segment)
    return replace(manifest, segments=tuple(segments)), rewards.take(left)


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
