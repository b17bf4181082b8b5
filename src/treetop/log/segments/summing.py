"""The first rounds, summed up: their segments then have only the samples that are still read.

What is summed up, and which samples are read, is for the caller to say (`Summing`). The sums are one more folder beside
the segments, and count from the moment in which the manifest lists them and the segments without the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Floats
from treetop.log.base import Log
from treetop.log.blocks import Block, RewardRows, join
from treetop.log.segments import binding
from treetop.log.segments.compaction import merged_delta, only_delta
from treetop.log.segments.manifest import Manifest, NormPiece, Segment, SegmentFolder, Sums
from treetop.log.segments.storage import (
    read_deltas,
    read_norms,
    read_segment,
    read_shards,
    write_norms,
    write_segment,
    write_sums,
)

PAYS = 4  # a segment is written again if one in so many of its samples goes
MOST_NORMS = 1 << 24  # in one piece


class Summing(Protocol):
    """What is done with rounds that are summed up; `selects` says whether any of their samples may be read no more."""

    selects: bool

    def begin(self, past: Sums | None, folder: Path) -> bool:
        """Goes on from these sums; False if it cannot."""

    def see(self, block: Block, new: bool) -> bool:
        """The rounds of a segment, which are `new` or were summed up before; False if they cannot be summed up."""

    def kept(self, block: Block) -> Bools:
        """Which slots of a segment are still read, if it selects; asked after all were seen, in the same order."""

    def sums(self) -> tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]:
        """Arrays and numbers to store."""

    def norms(self) -> Floats:
        """The lengths of the contexts of the rounds that were new."""


Share = Callable[[Path, Sums | None, Sums], None]


def keep_to_itself(folder: Path, before: Sums | None, after: Sums) -> None:
    """Shares sums with nobody."""


def sum_up(
    folder: SegmentFolder, log: Log, until: int, before: float, summing: Summing, share: Share = keep_to_itself
) -> bool:
    """Sums up the sealed rounds up to a position, and those before a time that no younger one stands before: which are
    to be deleted, and leave the segments. Returns whether there was anything to do, and all could be summed up.

    `share` gets the folder, the sums of before and the new ones before these count; if it fails, nothing changes.
    """
    if not folder.path.is_dir():
        return False
    with folder.changing() as found:
        if found is None or not binding.agrees(log, found):
            return False
        until = max(until, found.summed, _last_before(folder, found, before))
        old = [segment for segment in found.segments if segment.first <= until]
        if until == found.summed and not any(segment.oldest < before for segment in old):
            return False
        counts = log.counts()
        late = binding.newer_rewards(log, found, counts.position)
        manifest = replace(merged_delta(folder, found, late) if len(late) else found, rewards=counts.position)
        old = list(manifest.segments[: len(old)])  # late rewards may have gone into some
        rewards = read_deltas(folder.path, manifest.deltas)
        can = summing.begin(found.sums, folder.path)
        asked = [segment for segment in old if summing.selects or segment.first > found.summed]
        for segment, block in _blocks(folder, asked, rewards, until):
            can = can and summing.see(block, new=segment.first > found.summed)
        if not can:
            return False
        manifest = _rewritten(folder, manifest, (old, rewards, until, before), summing)
        name, manifest = manifest.named("sums")
        size = write_sums(folder.path, name, *summing.sums())
        past = found.sums or Sums("", (), 0.0, (), 0, 0)
        manifest, norms = _with_norms(folder, manifest, past.norms, summing.norms())
        steps = [*past.steps, *([(until, counts.position)] if until > found.summed else [])]
        first = manifest.segments[0].first if manifest.segments else until  # nothing is left of rounds before
        steps = [step for step in steps[:-1] if step[0] >= first] + steps[-1:]
        sums = Sums(name, tuple(steps), max(before, past.before), norms, *size)
        share(folder.path, found.sums, sums)
        binding.store(folder, log, replace(manifest, sums=sums))
        return True


def _with_norms(
    folder: SegmentFolder, manifest: Manifest, pieces: tuple[NormPiece, ...], norms: Floats
) -> tuple[Manifest, tuple[NormPiece, ...]]:
    """With a piece of more norms. Pieces that are not much larger become one with it: a norm is thus written again as
    often as the logarithm of a piece's rounds says, however small the steps are in which rounds are summed up."""
    if not len(norms):
        return manifest, pieces
    while pieces and pieces[-1].rounds <= min(2 * len(norms), MOST_NORMS - len(norms)):
        norms = np.concatenate([*read_norms(folder.path, pieces[-1:]), norms])
        pieces = pieces[:-1]
    name, manifest = manifest.named("norms")
    return manifest, (*pieces, write_norms(folder.path, name, norms))


def _last_before(folder: SegmentFolder, manifest: Manifest, before: float) -> int:
    """The position up to which all sealed rounds are older than a time; 0 if the first is not."""
    last = manifest.summed
    for segment in manifest.segments:
        if segment.first <= manifest.summed:
            continue
        if segment.newest >= before:
            block = read_segment(folder.path, segment)
            young = int(np.flatnonzero(block.times >= before)[0])
            return int(block.positions[young - 1]) if young else last
        last = segment.last
    return last


def _blocks(
    folder: SegmentFolder, segments: list[Segment], rewards: RewardRows, until: int
) -> Iterator[tuple[Segment, Block]]:
    """The rounds of segments up to a position, with these rewards."""
    for segment in segments:
        block = read_segment(folder.path, segment).with_rewards(rewards)
        yield segment, block.head(int(np.searchsorted(block.positions, until, side="right")))


def _rewritten(
    folder: SegmentFolder, manifest: Manifest, what: tuple[list[Segment], RewardRows, int, float], summing: Summing
) -> Manifest:
    """The manifest with old segments that have little but what is still read; neighbours that shrink become one."""
    old, rewards, until, before = what
    shards = read_shards(folder.path, manifest.shard_pieces), manifest.shards
    most = max((segment.rounds for segment in old), default=1)
    segments: list[Segment] = []
    waiting: list[Block] = []
    done = np.zeros(len(rewards), np.bool_)

    def write() -> None:
        nonlocal manifest
        if waiting:
            name, manifest = manifest.named("segment")
            segments.append(write_segment(folder.path, name, join(waiting), shards))
            waiting.clear()

    for segment in old:
        whole = segment.last <= until and segment.oldest >= before
        if whole and not summing.selects:
            write()
            segments.append(segment)
            continue
        block = next(_blocks(folder, [segment], rewards, until))[1]
        kept = summing.kept(block) if summing.selects else np.ones(len(block.arms), np.bool_)
        stay = block.times >= before
        pays = PAYS * int((~kept).sum()) >= max(1, len(kept))
        if whole and not pays:
            write()
            segments.append(segment)
            continue
        left = block.with_slots((kept if pays else np.ones_like(kept)) & np.repeat(stay, block.slots))
        done |= (rewards.decisions >= segment.first) & (rewards.decisions <= segment.last)
        if len(left):
            if sum(map(len, waiting)) + len(left) > most:
                write()
            waiting.append(left)
        if segment.last > until:  # the rounds behind stay as they are
            write()
            block = read_segment(folder.path, segment).with_rewards(rewards)
            waiting.append(block.take(block.positions > until))
            write()
    write()
    manifest = replace(manifest, segments=(*segments, *manifest.segments[len(old) :]))
    return only_delta(folder, manifest, rewards.take(~done)) if done.any() else manifest
