"""Acknowledged decisions a second, beside a bare loop that commits one such row at a time, in the same run.

    python scripts/bench_log.py FOLDER [--seconds 3]

A SQLite log is made in FOLDER, and a PostgreSQL server of its own where it is installed; both sync every commit. The
bare loop inserts a row of the same bytes into a table with the same keys, and commits: what a writer without group
commit would do. Submitters are threads that wait for each answer; `window` is one thread with that many unanswered.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from treetop.bench.timing import machine
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.pack import pack_context, pack_slots
from treetop.log.records import Event, Reward

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.postgres import Server, binaries

TABLE = "CREATE TABLE bare (position {0} PRIMARY KEY, event_id TEXT UNIQUE, time {1}, context {2}, slots {2})"


def decisions(kind: str) -> Iterator[Event]:
    """Five slots, 70 features: as wide as the bundled set's rows."""
    rng = np.random.default_rng(0)
    index = np.sort(rng.choice(50_000, 70, replace=False)).astype(np.int32)
    value, arms = rng.random(70).astype(np.float32), rng.choice(10_000, 5, replace=False).astype(np.int32)
    nodes, explored = np.full(5, -1, np.int32), np.ones(5, np.bool_)
    policy = '{"k": 5, "explore": 3, "beam": 10, "strategy": "igw", "C": 1.0}'
    for i in range(10**9):
        name = f"{kind}-{rng.integers(2**63):016x}-{i}"
        yield Event(
            name,
            1,
            arms,
            value[:5].astype(np.float64),
            value[:5],
            explored,
            nodes,
            1.7e9 + i,
            b"0123456789abcdef",
            index,
            value,
            "000001",
            "tree",
            policy,
        )


def rate(work: Callable[[Callable[[], Any]], int], threads: int, kind: str, seconds: float) -> float:
    """Items a second of `work(next decision)`, called again and again by so many threads."""
    source, lock, counts, end = decisions(kind), threading.Lock(), [0] * threads, time.perf_counter() + seconds

    def take() -> Event:
        with lock:
            return next(source)

    def run(thread: int) -> None:
        while time.perf_counter() < end:
            counts[thread] += work(take)

    began = time.perf_counter()
    running = [threading.Thread(target=run, args=(t,)) for t in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def append(log: Log) -> Callable[[Callable[[], Any]], int]:
    def one(take: Callable[[], Any]) -> int:
        log.append([take()])
        return 1

    return one


def window(log: Log, size: int) -> Callable[[Callable[[], Any]], int]:
    """Keeps `size` decisions unanswered, as an event loop does."""

    def many(take: Callable[[], Any]) -> int:
        waiting = deque(log.submit_append([take()]) for _ in range(size))
        for _ in range(10 * size):
            waiting.popleft().result()
            waiting.append(log.submit_append([take()]))
        for future in waiting:
            future.result()
        return 11 * size

    return many


def both(log: Log) -> Callable[[Callable[[], Any]], int]:
    """A decision and its reward."""

    def one(take: Callable[[], Any]) -> int:
        event = take()
        log.append([event])
        log.reward([Reward(event.event_id, int(event.arms[0]), 1.0, event.time)])
        return 1

    return one


def bare_sqlite(path: Path) -> Callable[[Callable[[], Any]], int]:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(TABLE.format("INTEGER", "REAL", "BLOB"))
    return _bare(lambda row: db.execute("INSERT INTO bare VALUES (?, ?, ?, ?, ?)", row))


def bare_postgres(address: str) -> Callable[[Callable[[], Any]], int]:
    import psycopg

    db = psycopg.connect(address, autocommit=True)
    db.execute(TABLE.format("BIGINT", "DOUBLE PRECISION", "BYTEA").encode())
    return _bare(lambda row: db.execute("INSERT INTO bare VALUES (%s, %s, %s, %s, %s)", row))


def _bare(insert: Callable[[tuple[Any, ...]], object]) -> Callable[[Callable[[], Any]], int]:
    numbers = iter(range(10**9))

    def one(take: Callable[[], Any]) -> int:
        e = take()
        insert((next(numbers), e.event_id, e.time, pack_context(e), pack_slots(e)))
        return 1

    return one


def measure(name: str, log: Log, bare: Callable[[Callable[[], Any]], int], seconds: float) -> dict[str, float]:
    """Every figure between two of the bare loop, so that a machine that is busy with other things shows."""
    found = {"bare loop": rate(bare, 1, "bare", seconds)}
    for threads in (1, 16, 64):
        found[f"{threads} submitters"] = rate(append(log), threads, f"t{threads}", seconds)
    for size in (16, 64):
        found[f"window of {size}"] = rate(window(log, size), 1, f"w{size}", seconds)
    found["16 submitters, decision and reward"] = rate(both(log), 16, "r", seconds)
    found["bare loop again"] = rate(bare, 1, "again", seconds)
    for what, number in found.items():
        print(f"{name:10} {what:36} {number:9,.0f}/s   {number / found['bare loop']:6.1f} x bare", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    print(machine())
    found = {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder, open_log(Path(folder) / "log.sqlite") as log:
        found["sqlite"] = measure("sqlite", log, bare_sqlite(Path(folder) / "bare.sqlite"), asked.seconds)
    if bin := binaries():
        server = Server(bin)
        try:
            with open_log(server.address) as log:
                found["postgresql"] = measure("postgresql", log, bare_postgres(server.address), asked.seconds)
        finally:
            server.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
