"""What happened to a bandit's folder: refits, rollbacks and changes, a line each in history.jsonl."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from treetop.files import append, cut_unfinished_line, locked

HISTORY = "history.jsonl"
LOCK_TIMEOUT = 60.0  # seconds that another process may take to finish a change


class HistoryFile:
    """The part of a folder that adds to its history and reads it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = HistoryFile()
    ...     file.path = Path(folder)
    ...     _ = file.note("refit", model="000001")
    ...     [entry["kind"] for entry in file.recent_history(5)]
    ['refit']
    """

    path: Path

    def note(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Adds an entry to history.jsonl and returns it."""
        entry = {"time": round(time.time(), 3), "kind": kind, **facts}
        with locked(self.path / ".history.lock", LOCK_TIMEOUT):
            cut_unfinished_line(self.path / HISTORY)
            append(self.path / HISTORY, json.dumps(entry).encode() + b"\n")
        return entry

    def history(self) -> list[dict[str, Any]]:
        """All entries of history.jsonl, oldest first."""
        path = self.path / HISTORY
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def recent_history(self, count: int, reach: int = 65_536) -> list[dict[str, Any]]:
        """The last entries of the history, newest first; reads no more than its last `reach` bytes."""
        path = self.path / HISTORY
        if not path.exists():
            return []
        with path.open("rb") as file:
            begin = max(0, path.stat().st_size - reach)
            file.seek(begin)
            lines = file.read(reach).split(b"\n")[1 if begin else 0 : -1]
        return [json.loads(line) for line in reversed(lines[-count:])]
