"""Opens a log: a path is SQLite, a postgresql:// address PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from treetop.log.base import Log


def is_address(where: str) -> bool:
    """Whether this is the address of a PostgreSQL server, and not a path.

    >>> is_address("postgresql://localhost/shop"), is_address("shop/log.sqlite")
    (True, False)
    """
    return where.startswith(("postgresql://", "postgres://"))


def open_log(where: str | Path) -> Log:
    """The log at a path (SQLite) or a postgresql:// address; created if there is none.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_log(f"{folder}/log.sqlite") as log:
    ...     log.counts().observed
    0
    """
    if is_address(str(where)):
        from treetop.log.postgres import PostgresLog

        return PostgresLog(str(where))
    from treetop.log.sqlite import SqliteLog

    return SqliteLog(Path(where))
