"""`bench seal`: from the log to segments and back. A made-up log in SQLite, 5 slots a round, each with a reward.

Three passes over the same log, in one process: its rows alone, as SQLite and Python give them; these as columns; and
sealing, which also sorts, checks and syncs files. What each adds says what limits sealing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Rows
from treetop.bench.setting import Result, Setting
from treetop.bench.shape import CONTEXTS, K
from treetop.bench.timing import Row
from treetop.data.synthetic import generate
from treetop.errors import Disagreement
from treetop.log.base import Log
from treetop.log.blocks import read_rows
from treetop.log.records import Event, Mark, Reward
from treetop.log.rounds import LoggedRounds
from treetop.log.segments.manifest import SegmentFolder
from treetop.log.segments.reading import sealed_samples
from treetop.log.segments.seal import READ_STEP, Sealing, seal_rounds
from treetop.log.sqlite import SqliteLog

COMPONENTS = 4
WRITE_STEP = 1024  # rounds in a transaction while the log is made
SHARD_ARMS = 16_384


def seal(setting: Setting) -> Result:
    """Rounds a second and core: rows, columns, sealing; then reading, from segments and from the log."""
    result, rounds, arms = Result(), setting.shape.rounds, setting.shape.arms
    setting.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=setting.cache, prefix="seal-") as place:
        log, folder = SqliteLog(Path(place) / "log.sqlite"), SegmentFolder(Path(place) / "segments")
        with log:
            _fill(setting, log, rounds)
            found: list[tuple[str, float]] = []
            position = log.counts().position
            starts = _starts(log, position)
            with _timed(setting, "rows of the log", found):
                for at in starts:
                    with log.reading() as connection:
                        read_rows(connection, at, position, READ_STEP)
            with _timed(setting, "rows to columns", found):
                for _ in log.blocks(0, position, READ_STEP):
                    pass
            with _timed(setting, "log to segments", found):
                sealed = seal_rounds(folder, log, Sealing(0.0, rest=True), _assign(arms))
            until = Mark("now", position, time.time())
            reads: dict[str, Callable[[], Iterator[LoggedRounds]]] = {
                "segments read": lambda: sealed_samples(folder, log, until),
                "log read": lambda: log.samples(until),
            }
            for name, read in reads.items():
                with _timed(setting, name, found):
                    for _ in read():
                        pass
            result.checks["segments and log"] = _same(*(read() for read in reads.values()))
            size = {"segments": sealed.sealed_bytes, "log": log.path.stat().st_size}
    for name, cpu in found:
        result.rows.append(_row(name, rounds, cpu) | {"arms": arms})
    result.rows[2] |= {f"{what}_bytes_a_round": round(bytes_ / rounds) for what, bytes_ in size.items()}
    return result


def _row(name: str, rounds: int, cpu: float) -> Row:
    each = {"cpu_us_a_round": round(cpu / rounds * 1e6, 2), "rounds_per_cpu_second": round(rounds / max(cpu, 1e-9))}
    return {"name": "treetop", "what": name, "rounds": rounds, **each}


@contextmanager
def _timed(setting: Setting, name: str, found: list[tuple[str, float]]) -> Iterator[None]:
    """The time that all cores worked on it, which other work on the machine stretches less than the clock."""
    setting.say(name)
    began = time.process_time()
    yield
    found.append((name, time.process_time() - began))


def _starts(log: Log, until: int) -> list[int]:
    """Behind which positions the blocks of the log begin."""
    ends = [int(block.positions[-1]) for block in log.blocks(0, until, READ_STEP)]
    return [0, *ends[:-1]]


def _assign(arms: int) -> Callable[[Any, int], Any]:
    return lambda known, needed: (np.arange(arms) // SHARD_ARMS).astype(np.int32)


def _fill(setting: Setting, log: Log, rounds: int) -> None:
    shape, rng = setting.shape, np.random.default_rng(setting.shape.seed)
    contexts = generate(replace(shape, init=1).spec(CONTEXTS))[0]
    for first in range(0, rounds, WRITE_STEP):
        setting.say(f"a log of {first:,} rounds")
        events = [_event(rng, contexts, shape.arms, i) for i in range(first, min(first + WRITE_STEP, rounds))]
        log.append(events)
        told = [(event, arm, slot % 2) for event in events for slot, arm in enumerate(event.arms.tolist())]
        log.reward([Reward(event.event_id, arm, float(value), event.time) for event, arm, value in told])


def _event(rng: np.random.Generator, contexts: Rows, arms: int, i: int) -> Event:
    low, high = contexts.start[i % len(contexts) : i % len(contexts) + 2].tolist()
    return Event(
        f"visit-{i}",
        i >> 14,
        arms=rng.choice(arms, K, replace=False).astype(np.int32),
        propensities=rng.random(K),
        scores=rng.random(K).astype(np.float32),
        explored=rng.random(K) < 0.5,
        nodes=np.full(K, -1, np.int32),
        components=rng.random((K, COMPONENTS)).astype(np.float32),
        time=1e9 + i,
        request=bytes(16),
        index=contexts.index[low:high],
        value=contexts.value[low:high],
        model="000001",
        tree="made up",
        policy="{}",
    )


def _same(one: Iterator[LoggedRounds], two: Iterator[LoggedRounds]) -> dict[str, int]:
    """Segments give what the log gives, byte for byte; these rounds all have as many slots."""
    ours, theirs = list(one), list(two)
    for name in (f.name for f in fields(LoggedRounds) if f.name != "start"):
        a, b = (np.concatenate([getattr(chunk, name) for chunk in chunks]) for chunks in (ours, theirs))
        if a.tobytes() != b.tobytes():
            raise Disagreement(f"{name} from segments are not those of the log")
    return {"rounds": sum(map(len, ours))}
