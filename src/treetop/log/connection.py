"""The interface of a database connection, which SQLite and PostgreSQL implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class Connection(ABC):
    """One connection, used by one thread at a time. Parameters are written `?`; database errors become LogError."""

    where: str
    types: Mapping[str, str]  # column types of this database, for the tables
    among: str  # such as "= ANY(?)": the value is one of those that `several` packs into one parameter
    lock: str = ""  # added to the SELECT of the state, to lock it until the end of the transaction

    @abstractmethod
    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    @abstractmethod
    def run(self, sql: str, *values: Any) -> int:
        """Runs a statement; returns how many rows it changed."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], known: str = "") -> int:
        """Adds rows and returns how many; with `known`, rows whose value of that column exists already are left out."""

    @abstractmethod
    def bulk(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Adds many rows, none of which is in the table yet."""

    @abstractmethod
    def several(self, values: Sequence[Any]) -> Any:
        """Values as one parameter for `among`."""

    @abstractmethod
    def has_table(self, name: str) -> bool: ...

    @abstractmethod
    def has_index(self, name: str) -> bool: ...

    @abstractmethod
    def begin(self, write: bool) -> None:
        """Starts a transaction; one that only reads sees the log as it was at its first query."""

    def run_last(self, sql: str, *values: Any) -> None:
        """Runs a statement at the end of the transaction, in one round trip with the commit where possible."""
        self.run(sql, *values)

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None:
        """Ends the transaction without its changes, if the connection still works."""

    def alive(self) -> bool:
        """False if the other end is known to have closed the connection while it was idle."""
        return True

    @abstractmethod
    def alone(self) -> None:
        """Inside a transaction: waits until no other process creates tables."""

    @abstractmethod
    def scrub(self) -> None:
        """Outside a transaction: rewrites the tables, so that nothing of deleted rows is left in them."""

    @abstractmethod
    def close(self) -> None: ...

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that writes: everything is durable at the end, or nothing is."""
        with self._transaction(write=True):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A transaction that reads: all its queries see the same moment."""
        with self._transaction(write=False):
            yield

    @contextmanager
    def _transaction(self, write: bool) -> Iterator[None]:
        self.begin(write)
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise
