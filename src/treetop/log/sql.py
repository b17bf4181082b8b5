"""The log in SQL: one writing connection with group commit, and a few reading ones. Works on any `Connection`."""

from __future__ import annotations

import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from treetop.arrays import Floats, Int64s, Ints, check_float, check_int
from treetop.errors import EventConflict, LogError
from treetop.log import write
from treetop.log.base import FORGET_STEP, NO_SETS, Log
from treetop.log.blocks import Block, RewardRows, read_block, read_late
from treetop.log.connection import Connection
from treetop.log.decided import DecidedRounds, decided_rounds
from treetop.log.entries import MAX_POSITION, all_entries, read_entries, read_marks, restore
from treetop.log.group import Group
from treetop.log.keys import check_keys
from treetop.log.ownership import claim, read_owner
from treetop.log.pack import shown_arms, unpack_set
from treetop.log.records import (
    LARGEST_REWARD,
    Counts,
    Entry,
    Event,
    LogSummary,
    Mark,
    Outcome,
    Owner,
    Restored,
    Reward,
    StoredEvent,
)
from treetop.log.retention import erase, forget
from treetop.log.rounds import LoggedRounds
from treetop.log.sample import View
from treetop.log.schema import make_tables
from treetop.log.variant_rows import VariantRows, read_variant_rows

IDLE_CONNECTIONS = 4  # reading connections kept for the next reader


class SqlLog(Log):
    """A log in a database. Readers use short transactions, so that they do not hold up writers."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        self._numbers = write.Numbers()
        self._writer: Connection | None = self.connect()
        try:
            make_tables(self._writer)
        except BaseException:
            self._writer.close()
            raise
        self._group = Group(self._commit)

    @abstractmethod
    def connect(self) -> Connection: ...

    def submit_append(
        self, events: Sequence[Event], sets: Mapping[str, Ints] = NO_SETS
    ) -> Future[list[Event | EventConflict]]:
        return self._group.submit(write.Append(events, sets))

    def submit_reward(self, rewards: Sequence[Reward]) -> Future[list[Outcome]]:
        return self._group.submit(write.Rewards(rewards))

    def alone(self, work: Any) -> Any:
        """`work(connection, state)` in a transaction of its own, between those of other writers."""
        return self._group.submit(write.Alone(work)).result()

    def seal(self, name: str) -> Mark:
        if not name or "\0" in name:
            raise ValueError(f"the name of a mark is {name!r}; text is needed")
        mark: Mark = self.alone(lambda connection, state: write.seal(connection, state, name, time.time()))
        return mark

    def owner(self) -> Owner | None:
        with self.reading() as connection:
            return read_owner(connection)

    def claim(self, new: Owner, checked: Owner | None) -> bool:
        return bool(self.alone(lambda connection, state: claim(connection, state, new, checked)))

    def forget(self, before: float, limit: int = FORGET_STEP) -> int:
        before, limit = check_float("before", before, -math.inf), check_int("limit", limit, 1)
        return int(self.alone(lambda connection, state: forget(connection, state, before, limit)))

    def erase(self, key: tuple[str, str], limit: int = FORGET_STEP) -> int:
        check_keys((key,))
        limit = check_int("limit", limit, 1)
        return int(self.alone(lambda connection, state: erase(connection, state, key, limit)))

    def scrub(self) -> None:
        connection = self.connect()
        try:
            connection.scrub()
        finally:
            connection.close()

    def count_before(self, before: float) -> int:
        with self.reading() as connection:
            return int(connection.rows("SELECT count(*) FROM treetop_decisions WHERE time < ?", before)[0][0])

    def time_of_share(self, since: float, share: float) -> float | None:
        own = (
            "FROM treetop_decisions d WHERE time >= ? AND EXISTS "
            "(SELECT 1 FROM treetop_settings s WHERE s.id = d.settings AND s.model <> '')"
        )
        with self.reading() as connection:
            first = int(share * connection.rows(f"SELECT count(*) {own}", since)[0][0])
            rows = connection.rows(f"SELECT time {own} ORDER BY time LIMIT 1 OFFSET {first}", since)
        return float(rows[0][0]) if rows else None

    def models(self) -> set[str]:
        sql = (
            "SELECT DISTINCT model FROM treetop_settings s WHERE model <> '' AND EXISTS "
            "(SELECT 1 FROM treetop_decisions d WHERE d.settings = s.id)"
        )
        with self.reading() as connection:
            return {name for (name,) in connection.rows(sql)}

    def newest_time(self, before: float = math.inf) -> float | None:
        with self.reading() as connection:
            rows = connection.rows("SELECT max(time) FROM treetop_decisions WHERE time < ?", before)
        return None if rows[0][0] is None else float(rows[0][0])

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._group.close()
            with self._lock:
                for connection in [*self._idle, *([self._writer] if self._writer else [])]:
                    connection.close()
                self._idle, self._writer = [], None

    def _commit(self, jobs: Sequence[Any]) -> list[Any]:
        """Runs in the group's thread. After a LogError the next commit uses a new connection."""
        if self._writer is not None and not self._writer.alive():
            self._drop_writer()
        if self._writer is None:
            self._writer = self.connect()
        numbers = self._numbers.copy()
        try:
            with self._writer.writing():
                answers = _write(self._writer, jobs, numbers)
        except LogError:
            self._drop_writer()
            raise
        self._numbers = numbers  # valid only now that they are committed
        return answers

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection in a reading transaction."""
        with self._lock:
            if self._closed:
                raise LogError("the log is closed")
            connection = self._idle.pop() if self._idle else None
        if connection is not None and not connection.alive():
            connection.close()
            connection = None
        connection = connection or self.connect()
        try:
            with connection.reading():
                yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def counts(self) -> Counts:
        with self.reading() as connection:
            return write.read_state(connection, alone=False).counts()

    def mark(self, name: str) -> Mark | None:
        with self.reading() as connection:
            return write.find_mark(connection, name)

    def marks(self) -> list[Mark]:
        with self.reading() as connection:
            return read_marks(connection)

    def eligible_set(self, fingerprint: str) -> Ints | None:
        with self.reading() as connection:
            rows = connection.rows("SELECT arms FROM treetop_eligible WHERE fingerprint = ?", fingerprint)
        return unpack_set(rows[0][0]) if rows else None

    def shown_to(self, key: tuple[str, str], since: float, but: str = "") -> Ints:
        sql = (
            "SELECT d.slots FROM treetop_keys k JOIN treetop_decisions d ON d.position = k.decision "
            "WHERE k.key_name = ? AND k.key_value = ? AND d.time > ? AND d.event_id <> ?"
        )
        with self.reading() as connection:
            rows = connection.rows(sql, *key, since, but)
        return np.array([arm for row in rows for arm in shown_arms(row[0])], np.int32)

    def impressions(self, after: int, size: int) -> tuple[Int64s, Floats, Int64s]:
        sql = (
            "SELECT position, time, slots FROM treetop_decisions d WHERE position > ? AND EXISTS "
            "(SELECT 1 FROM treetop_settings s WHERE s.id = d.settings AND s.model <> '') ORDER BY position LIMIT ?"
        )
        with self.reading() as connection:
            rows = connection.rows(sql, after, check_int("size", size, 1))
        arms = [shown_arms(row[2]) for row in rows]
        counts = np.array([max(1, len(shown)) for shown in arms], np.int64)  # a decision of no slots has arm -1
        positions, times = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float64)
        flat = np.array([arm for shown in arms for arm in (shown or (-1,))], np.int64)
        return np.repeat(positions, counts), np.repeat(times, counts), flat

    def position_before(self, when: float) -> int:
        sql = "SELECT position FROM treetop_decisions WHERE time >= ? ORDER BY time, position LIMIT 1"
        with self.reading() as connection:
            rows = connection.rows(sql, when)
            return int(rows[0][0]) - 1 if rows else write.read_state(connection, alone=False).position

    def keep(self, name: str, data: bytes) -> None:
        self.alone(lambda connection, state: write.keep(connection, name, data))

    def keep_changed(self, name: str, change: Callable[[bytes | None], bytes]) -> bytes:
        def work(connection: Connection, state: write.State) -> bytes:
            data = change(write.kept(connection, name))
            write.keep(connection, name, data)
            return data

        return bytes(self.alone(work))

    def has_key(self, key: tuple[str, str]) -> bool:
        with self.reading() as connection:
            sql = "SELECT 1 FROM treetop_keys WHERE key_name = ? AND key_value = ? LIMIT 1"
            return bool(connection.rows(sql, *key))

    def drop(self, name: str, data: bytes | None = None) -> bool:
        def work(connection: Connection, state: write.State) -> bool:
            if data is not None and write.kept(connection, name) not in (None, data):
                return False
            connection.run("DELETE FROM treetop_kept WHERE name = ?", name)
            return True

        return bool(self.alone(work))

    def kept(self, name: str) -> bytes | None:
        with self.reading() as connection:
            return write.kept(connection, name)

    def kept_after(self, prefix: str, after: str, size: int) -> list[tuple[str, bytes]]:
        sql = "SELECT name, data FROM treetop_kept WHERE name > ? AND substr(name, 1, ?) = ? ORDER BY name LIMIT ?"
        with self.reading() as connection:
            found = connection.rows(sql, after, len(prefix), prefix, check_int("size", size, 1))
        return [(name, bytes(data)) for name, data in found]

    def event(self, event_id: str) -> StoredEvent | None:
        found = self._stored("WHERE d.event_id = ?", event_id)
        return found[0] if found else None

    def recent(self, n: int, before: float = math.inf) -> list[StoredEvent]:
        n = check_int("n", n, 0)
        if before == math.inf:
            return self._stored("ORDER BY d.position DESC LIMIT ?", n)
        return self._stored("WHERE d.time < ? ORDER BY d.time DESC, d.position DESC LIMIT ?", before, n)

    def events_at(self, positions: Sequence[int]) -> list[StoredEvent]:
        with self.reading() as connection:
            which = f"WHERE d.position {connection.among} ORDER BY d.position DESC"
            found = read_entries(connection, MAX_POSITION, which, connection.several(positions))
            return [entry.stored for entry in found]

    def _stored(self, which: str, *values: Any) -> list[StoredEvent]:
        with self.reading() as connection:
            return [entry.stored for entry in read_entries(connection, MAX_POSITION, which, *values)]

    def summary(self) -> LogSummary:
        with self.reading() as connection:
            counts = write.read_state(connection, alone=False).counts()
            return LogSummary(counts, tuple(read_marks(connection)), read_owner(connection))

    def variant_rows(self, experiment: str, unit: str, low: int, high: int) -> tuple[VariantRows, VariantRows]:
        with self.reading() as connection:
            return read_variant_rows(connection, experiment, unit, low, high)

    def entries(self, summary: LogSummary, size: int = 1024, after: int = 0) -> Iterator[list[Entry]]:
        return all_entries(self.reading, summary.counts.position, check_int("size", size, 1), after)

    def restore(self, summary: LogSummary, chunks: Iterable[list[Entry]]) -> Restored:
        found: Restored = self.alone(lambda connection, state: restore(connection, state, summary, chunks))
        return found

    def samples(
        self,
        until: Mark,
        since: Mark | None = None,
        *,
        wait: float = 0.0,
        default: float | None = None,
        tree: str | None = None,
        size: int = 4096,
        after: int = 0,
    ) -> Iterator[LoggedRounds]:
        wait, size = check_float("wait", wait, 0.0), check_int("size", size, 1)
        if default is not None:
            check_float("default", default, -LARGEST_REWARD, LARGEST_REWARD)
        if since is not None and default is not None:
            raise ValueError("samples since a mark cannot fill in a default: a later reward would replace it")
        if since is not None and after:
            raise ValueError("samples since a mark cannot leave out older decisions, which may have got rewards since")
        overdue = until.time - wait
        view = View(since.position if since else 0, until.position, size, tree, default, overdue, after)
        return view.chunks(self.reading)

    def blocks(self, after: int, until: int, size: int) -> Iterator[Block]:
        size = check_int("size", size, 1)
        while True:
            with self.reading() as connection:
                block = read_block(connection, after, until, size)
            if not len(block):
                return
            yield block
            after = int(block.positions[-1])

    def decided(self, until: int, size: int, after: int = 0) -> Iterator[DecidedRounds]:
        return decided_rounds(self.reading, until, check_int("size", size, 1), after)

    def time_of_next(self, after: int, n: int) -> float | None:
        sql = "SELECT time FROM treetop_decisions WHERE position > ? ORDER BY position LIMIT 1 OFFSET ?"
        with self.reading() as connection:
            rows = connection.rows(sql, after, check_int("n", n, 1) - 1)
        return float(rows[0][0]) if rows else None

    def late_rewards(self, low: int, high: int, last: int) -> RewardRows:
        with self.reading() as connection:
            return read_late(connection, low, high, last)

    def count_between(self, first: int, last: int) -> int:
        sql = "SELECT count(*) FROM treetop_decisions WHERE position BETWEEN ? AND ?"
        with self.reading() as connection:
            return int(connection.rows(sql, first, last)[0][0])

    def positions_between(self, first: int, last: int) -> Int64s:
        sql = "SELECT position FROM treetop_decisions WHERE position BETWEEN ? AND ? ORDER BY position"
        with self.reading() as connection:
            return np.array([row[0] for row in connection.rows(sql, first, last)], np.int64)


def _write(connection: Connection, jobs: Sequence[Any], numbers: write.Numbers) -> list[Any]:
    """The answers to jobs, in their order. Decisions are written before rewards, which may be for them."""
    state = write.read_state(connection, alone=True)
    numbers.check(state)
    answers: dict[int, Any] = {}
    for kind, work in (
        (write.Append, lambda found: write.append(connection, state, found, numbers)),
        (write.Rewards, lambda found: write.add_rewards(connection, state, found)),
        (write.Alone, lambda found: [job.work(connection, state) for job in found]),
    ):
        chosen = [i for i, job in enumerate(jobs) if isinstance(job, kind)]
        answers |= dict(zip(chosen, work([jobs[i] for i in chosen]), strict=True))
    write.store_state(connection, state)
    return [answers[i] for i in range(len(jobs))]
