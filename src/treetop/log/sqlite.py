"""The log in a SQLite file: write-ahead log, every commit synced. Several processes may use one file."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from treetop.log.connection import Connection
from treetop.log.records import LogError
from treetop.log.sql import SqlLog

PATIENCE = 30.0  # seconds to wait for another process that writes
CHECKPOINT = 4096  # pages of the write-ahead log before they are moved into the file


class SqliteLog(SqlLog):
    """A log in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(str(path))

    def connect(self) -> Connection:
        return _Connection(self.path)


class _Connection(Connection):
    types = MappingProxyType({"int": "INTEGER", "real": "REAL", "bytes": "BLOB", "clustered": "WITHOUT ROWID"})
    among = "IN (SELECT value FROM json_each(?))"

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        if not path.parent.is_dir():
            raise LogError(f"the log {path} cannot be opened: there is no folder {path.parent}")
        with self._trouble():
            self._db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:  # the change to WAL does not wait for other processes, so this does
            try:
                self.rows("PRAGMA journal_mode = WAL")
                break
            except LogError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        self.rows("PRAGMA synchronous = FULL")
        self.rows(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._trouble():
            return self._db.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Any) -> int:
        with self._trouble():
            return self._db.execute(sql, values).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], known: str = "") -> int:
        places = ", ".join("?" * len(columns))
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"
        if known:
            sql += f" ON CONFLICT ({known}) DO NOTHING"
        with self._trouble():
            return self._db.executemany(sql, rows).rowcount

    def bulk(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        self.insert(table, columns, rows)  # type: ignore[arg-type]

    def several(self, values: Sequence[Any]) -> Any:
        return json.dumps(list(values))

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", name))

    def begin(self, write: bool) -> None:
        self.run("BEGIN IMMEDIATE" if write else "BEGIN")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def alone(self) -> None:
        """BEGIN IMMEDIATE was enough."""

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._db.close()

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.InternalError) as error:
            raise LogError(f"the log {self.where}: {error}") from error
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError:  # malformed, or no database at all
                raise LogError(f"the log {self.where}: {error}") from error
            raise
