"""The log in a SQLite file: write-ahead log, every commit synced to disk. Several processes may use one file."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from treetop.errors import LogError
from treetop.log.connection import Connection
from treetop.log.sql import SqlLog

try:
    import fcntl
except ModuleNotFoundError:  # Windows: SQLite's own waiting has to do
    fcntl = None  # type: ignore[assignment]

WRITE_TIMEOUT = 30.0  # seconds to wait for another process that writes
ROWS_PER_STATEMENT = 64
CHECKPOINT_PAGES = 4096  # of the write-ahead log before they are moved into the file


@lru_cache(256)
def _insert(table: str, columns: tuple[str, ...], rows: int, known: str) -> str:
    places = f"({', '.join('?' * len(columns))})"
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([places] * rows)}"
    return f"{sql} ON CONFLICT ({known}) DO NOTHING" if known else sql


class SqliteLog(SqlLog):
    """A log in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(str(path))

    def connect(self) -> Connection:
        return _Connection(self.path)


class _WriteLock:
    """A lock on a file beside the log, by which the writers of several processes take turns.

    SQLite's own lock makes writers sleep and try again, and one that tries often starves the others. The operating
    system wakes the next in line at once, and releases the lock of a process that dies.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path.with_name(path.name + "-turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def take(self) -> None:
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def give(self) -> None:
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)


class _Connection(Connection):
    types = MappingProxyType({"int": "INTEGER", "real": "REAL", "bytes": "BLOB", "clustered": "WITHOUT ROWID"})
    among = "IN (SELECT value FROM json_each(?))"

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        if not path.parent.is_dir():
            raise LogError(f"the log {path} cannot be opened: there is no folder {path.parent}")
        try:
            self._write_lock = _WriteLock(path)
        except OSError as error:
            raise LogError(f"the log {path} cannot be written: {error.strerror}") from error
        with self._errors():
            self._db = sqlite3.connect(path, timeout=WRITE_TIMEOUT, isolation_level=None, check_same_thread=False)
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        until = time.monotonic() + WRITE_TIMEOUT
        while True:  # the change to WAL mode does not wait for other processes, so this does
            try:
                self.rows("PRAGMA journal_mode = WAL")
                break
            except LogError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        self.rows("PRAGMA synchronous = FULL")
        self.rows(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._errors():
            return self._db.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Any) -> int:
        with self._errors():
            return self._db.execute(sql, values).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], known: str = "") -> int:
        """Several rows in a statement: Python's lock is released at each, and the threads of requests need it too."""
        written = done = 0
        with self._errors():
            while left := len(rows) - done:
                count = min(
                    ROWS_PER_STATEMENT, 1 << left.bit_length() - 1
                )  # few different statements, so all stay prepared
                values = [value for row in rows[done : done + count] for value in row]
                written += self._db.execute(_insert(table, tuple(columns), count, known), values).rowcount
                done += count
        return written

    def bulk(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        with self._errors():
            self._db.executemany(_insert(table, tuple(columns), 1, ""), rows)

    def several(self, values: Sequence[Any]) -> Any:
        return json.dumps(list(values))

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", name))

    def has_index(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?", name))

    def begin(self, write: bool) -> None:
        if not write:
            self.run("BEGIN")
            return
        self._write_lock.take()
        try:
            self.run("BEGIN IMMEDIATE")
        except BaseException:
            self._write_lock.give()
            raise

    def commit(self) -> None:
        self.run("COMMIT")
        self._write_lock.give()

    def rollback(self) -> None:
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        self._write_lock.give()

    def alone(self) -> None:
        """Nothing to do: BEGIN IMMEDIATE has locked the file."""

    def scrub(self) -> None:
        """Deleted rows, and copies of rows that moved, stay in free space of pages and in old pages of the write-ahead
        log: both are written anew."""
        self._write_lock.take()
        try:
            self.run("PRAGMA secure_delete = ON")
            self.run("VACUUM")
            until = time.monotonic() + WRITE_TIMEOUT
            while self.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:  # a reader still needs the old pages
                if time.monotonic() > until:
                    raise LogError(f"the log {self.where} is being read; what was deleted is still in {self.where}-wal")
                time.sleep(0.05)
        finally:
            self._write_lock.give()

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._db.close()
        self._write_lock.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.InternalError) as error:
            raise LogError(f"the log {self.where}: {error}") from error
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError:  # malformed, or not a database
                raise LogError(f"the log {self.where}: {error}") from error
            raise
