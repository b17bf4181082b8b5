"""What the tests of segments share: logs with all kinds of rounds, and comparisons with what the log itself gives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from helpers.logs import event, same_samples
from treetop.log.base import Log
from treetop.log.records import Mark, Reward
from treetop.log.rounds import gather
from treetop.log.segments.manifest import Manifest, SegmentFolder
from treetop.log.segments.reading import sealed_samples
from treetop.log.segments.seal import Sealed, Sealing, seal_rounds
from treetop.records import Feedback

FEATURES = 500
START = 1e9  # time of the first round


def fill(log: Log, names: Iterable[int], keep: float = 0.6) -> None:
    """Rounds of 0 to 5 slots with 0 to 3 components, of two trees and several epochs, some of their slots rewarded."""
    for i in names:
        rng = np.random.default_rng(i)
        k = int(rng.integers(0, 6))
        facts: dict[str, Any] = {"tree": "tree-a" if i % 3 else "tree-b", "model_epoch": i // 10}
        made = event(i, k=k, time=START + i, components=int(rng.integers(0, 4)), **facts)
        log.append([made])
        chosen = [arm for arm in made.arms.tolist() if rng.random() < keep]
        if chosen:
            log.reward([Reward(made.event_id, arm, float(rng.random()), START + i) for arm in chosen])


def late(log: Log, names: Iterable[int]) -> int:
    """Rewards for slots of these rounds that have none yet; how many."""
    count = 0
    for i in names:
        stored = log.event(f"event-{i}")
        assert stored is not None
        open_slots = stored.event.arms[np.isnan(stored.rewards)].tolist()[:2]
        if open_slots:
            log.reward([Reward(stored.event.event_id, arm, i % 7 / 7, START + 1e6) for arm in open_slots])
        count += len(open_slots)
    return count


def three_shards(known: np.ndarray, needed: int) -> np.ndarray:
    return (np.arange(needed) // 400).clip(max=2).astype(np.int32) if not len(known) else _more(known, needed)


def _more(known: np.ndarray, needed: int) -> np.ndarray:
    return np.concatenate([known, np.arange(len(known), needed) % 3]).astype(np.int32)


def seal(folder: SegmentFolder, log: Log, rounds: int = 16, rest: bool = False, now: float = math.inf) -> Sealed:
    how = Sealing(wait=0.0, rounds=rounds, rest=rest, now=now)
    return seal_rounds(folder, log, how, three_shards)


def manifest(folder: SegmentFolder) -> Manifest:
    found = folder.manifest()
    assert found is not None
    return found


def now(log: Log) -> Mark:
    return Mark("now", log.counts().position, START + 500)


def check_same(folder: SegmentFolder, log: Log, marks: Iterable[Mark] = ()) -> None:
    """Segments and the rest of the log give what the log gives, at every mark and however it is asked."""
    for until in (*marks, now(log)):
        for asked in ({}, {"tree": "tree-b"}, {"default": 0.25, "wait": 450.0}):
            ours, theirs = sealed_samples(folder, log, until, **asked), log.samples(until, **asked)
            assert same_samples(ours, theirs)
        check_feedback(gather(sealed_samples(folder, log, until), FEATURES), gather(log.samples(until), FEATURES))


def check_feedback(one: Feedback, two: Feedback) -> None:
    for a, b in ((one.arms, two.arms), (one.nodes, two.nodes), (one.rewards, two.rewards)):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    for name in ("start", "index", "value"):
        assert getattr(one.contexts, name).tobytes() == getattr(two.contexts, name).tobytes()
    assert (one.components is None) == (two.components is None)
    assert one.components is None or one.components.tobytes() == two.components.tobytes()
