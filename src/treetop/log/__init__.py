"""The decision log: one small interface, SQLite by default, PostgreSQL beside it.

Reading order: records, base (the interface), group (many writers, one commit), sql (the log in SQL), sqlite and
postgres (what the two databases do differently), series (figures for the dashboard), transfer (export and import).
"""

from __future__ import annotations

from pathlib import Path

from treetop.log.base import Log
from treetop.log.records import (
    Conflict,
    Counts,
    Event,
    LogError,
    Mark,
    Outcome,
    Reward,
    Samples,
    Status,
    Stored,
    gather,
)  # fmt: skip

__all__ = [
    "Conflict", "Counts", "Event", "Log", "LogError", "Mark", "Outcome", "Reward", "Samples", "Status", "Stored",
    "gather", "open_log",
]  # fmt: skip


def open_log(where: str | Path) -> Log:
    """The log at a path (SQLite) or a postgresql:// address; made if there is none yet.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_log(f"{folder}/log.sqlite") as log:
    ...     log.counts().observed
    0
    """
    if str(where).startswith(("postgresql://", "postgres://")):
        from treetop.log.postgres import PostgresLog

        return PostgresLog(str(where))
    from treetop.log.sqlite import SqliteLog

    return SqliteLog(Path(where))
