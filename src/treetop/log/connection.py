"""What the log needs of a database connection, whatever the database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class Connection(ABC):
    """One connection, used by one thread at a time. Parameters are written `?`; trouble comes out as LogError."""

    where: str
    types: Mapping[str, str]  # names of column types, for the tables
    among: str  # "= ANY(?)": the value is one of those that `several` packs into one parameter
    lock: str = ""  # what a SELECT of the state adds in order to be alone until the end of the transaction

    @abstractmethod
    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def run(self, sql: str, *values: Any) -> int:
        """How many rows it changed."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], known: str = "") -> int:
        """Adds rows and returns how many; with `known`, rows with a value of that column that is there are left out."""

    @abstractmethod
    def bulk(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Adds very many rows, none of which is there."""

    @abstractmethod
    def several(self, values: Sequence[Any]) -> Any: ...

    @abstractmethod
    def has_table(self, name: str) -> bool: ...

    @abstractmethod
    def begin(self, write: bool) -> None:
        """Starts a transaction; one that only reads sees the log as it was at its first look."""

    def run_last(self, sql: str, *values: Any) -> None:
        """Runs a statement at the end of the transaction, together with the commit where that saves a journey."""
        self.run(sql, *values)

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None:
        """Gives up the transaction, if the connection still lives."""

    def alive(self) -> bool:
        """False if the other end is known to have hung up while the connection was idle."""
        return True

    @abstractmethod
    def alone(self) -> None:
        """Inside a transaction: waits until no other process makes tables."""

    @abstractmethod
    def close(self) -> None: ...

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All of it, durable at the end, or nothing."""
        with self._transaction(write=True):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Several questions about one moment."""
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
