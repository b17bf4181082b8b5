"""The log in PostgreSQL, by psycopg 3. Several machines may use one database; lost connections are opened again."""

from __future__ import annotations

import selectors
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from treetop.errors import LogError
from treetop.log.connection import Connection
from treetop.log.sql import SqlLog

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ModuleNotFoundError:
    raise LogError("a log in PostgreSQL needs psycopg: pip install 'treetop-bandits[postgres]'") from None

# A lost server is noticed within about half a minute, unless the address says otherwise.
NETWORK = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
TABLES_LOCK = 0x7472_6565_746F_70  # "treetop": held while tables are created
KINDS = MappingProxyType(
    {
        "position": "int8",
        "event_id": "text",
        "time": "float8",
        "request": "bytea",
        "settings": "int8",
        "eligible": "text",
        "removals": "int8",
        "context": "bytea",
        "slots": "bytea",
        "components": "bytea",
        "decision": "int8",
        "slot": "int8",
        "value": "float8",
        "name": "text",
        "key_name": "text",
        "key_value": "text",
        "fingerprint": "text",
        "arms": "bytea",
        "id": "int8",
        "digest": "bytea",
        "epoch": "int8",
        "model": "text",
        "tree": "text",
        "policy": "text",
        "data": "bytea",
        "bandit": "text",
        "size": "int8",
    }
)


class PostgresLog(SqlLog):
    """A log in the tables `treetop_*` of one database, in the schema that its address or user chooses."""

    def __init__(self, address: str) -> None:
        parts = _read_address(address)
        self._parts: dict[str, Any] = NETWORK | parts
        host, port = parts.get("host") or "localhost", parts.get("port") or 5432
        super().__init__(f"postgresql://{host}:{port}/{parts.get('dbname') or ''}")  # without user and password

    def connect(self) -> Connection:
        return _Connection(self.where, self._parts)


class _Connection(Connection):
    types = MappingProxyType({"int": "BIGINT", "real": "DOUBLE PRECISION", "bytes": "BYTEA", "clustered": ""})
    among = "= ANY(?)"
    lock = " FOR UPDATE"

    def __init__(self, where: str, parts: dict[str, Any]) -> None:
        self.where = where
        self._unsent = ""  # BEGIN is sent with the first query of a transaction
        self._last: tuple[str, tuple[Any, ...]] | None = None
        with self._errors():
            self._db = psycopg.connect(autocommit=True, prepare_threshold=2, **parts)
        try:
            self.run("SET synchronous_commit = on")
        except BaseException:
            self.close()
            raise

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._errors():
            if self._unsent and not values:
                both, self._unsent = f"{self._unsent}; {sql}", ""
                cursor = self._db.execute(both.encode())
                cursor.nextset()
                return cursor.fetchall()
            self._send()
            return self._db.execute(_own(sql), values, binary=True).fetchall()

    def run(self, sql: str, *values: Any) -> int:
        with self._errors():
            self._send()
            return self._db.execute(_own(sql), values).rowcount

    def _send(self) -> None:
        if self._unsent:
            begin, self._unsent = self._unsent, ""
            self._db.execute(begin.encode())

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], known: str = "") -> int:
        arrays = ", ".join(f"%b::{KINDS[column]}[]" for column in columns)
        sql = f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({arrays})"
        if known:
            sql += f" ON CONFLICT ({known}) DO NOTHING"
        with self._errors():
            self._send()
            return self._db.execute(sql.encode(), [list(column) for column in zip(*rows, strict=True)]).rowcount

    def bulk(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        sql = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        with self._errors():
            self._send()
            with self._db.cursor() as cursor, cursor.copy(sql.encode()) as copy:
                copy.set_types([KINDS[column] for column in columns])
                for row in rows:
                    copy.write_row(row)

    def several(self, values: Sequence[Any]) -> Any:
        return list(values)

    def has_table(self, name: str) -> bool:
        # Not to_regclass: it may cache a name as unknown while another process creates the table.
        return bool(self.rows("SELECT 1 FROM pg_tables WHERE tablename = ? AND schemaname = current_schema()", name))

    def has_index(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM pg_indexes WHERE indexname = ? AND schemaname = current_schema()", name))

    def begin(self, write: bool) -> None:
        self._unsent = "BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

    def run_last(self, sql: str, *values: Any) -> None:
        self._last = (sql, values)

    def commit(self) -> None:
        last, self._last = self._last, None
        with self._errors():
            self._send()
            if last is None:
                self._db.execute("COMMIT")
                return
            with self._db.pipeline():
                self._db.execute(_own(last[0]), last[1])
                self._db.execute("COMMIT")

    def rollback(self) -> None:
        self._unsent, self._last = "", None
        with suppress(psycopg.Error):
            self._db.execute("ROLLBACK")

    def alive(self) -> bool:
        """The only thing that a server sends to an idle connection is that it closes it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._db.fileno(), selectors.EVENT_READ)
            return not selector.select(0)

    def alone(self) -> None:
        self.rows("SELECT pg_advisory_xact_lock(?)::text", TABLES_LOCK)

    def scrub(self) -> None:
        """Rewrites the files of the tables; what the server archives of its own log is its operator's."""
        for table in ("treetop_decisions", "treetop_rewards", "treetop_keys", "treetop_eligible"):
            self.run(f"VACUUM (FULL, ANALYZE) {table}")  # frequent values stand in the planner's statistics, too

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._db.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.DataError, psycopg.IntegrityError):
            raise
        except psycopg.Error as error:
            why = " ".join(str(error).split()) or type(error).__name__  # in one line
            raise LogError(f"the log {self.where}: {why}") from error


def _read_address(address: str) -> dict[str, Any]:
    """The parts of an address. An error shows nothing of it: a part of the password may be in another place."""
    with suppress(psycopg.Error):
        parts = conninfo_to_dict(address)
        where = f"{parts.get('host', '')} {parts.get('dbname', '')}"
        if "@" not in where and str(parts.get("port") or 5432).replace(",", "").isdecimal():
            return parts
    raise ValueError(
        "the log's address is not one that PostgreSQL understands; it has the form "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with : / @ # ? % in a password as %3A %2F %40 %23 %3F %25"
    )


@lru_cache(maxsize=256)
def _own(sql: str) -> bytes:
    """With psycopg's placeholders, %s instead of ?."""
    return sql.replace("?", "%s").encode()
