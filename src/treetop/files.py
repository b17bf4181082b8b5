"""Files that outlive kill -9 and power cuts: whole replacements, appended lines, locks. Knows no contents."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class InUse(ValueError):
    """Another process holds the lock."""


def sync_folder(path: Path) -> None:
    """What was renamed in a folder stays renamed after a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file beside its place, syncs it and renames it: a reader sees the old one or the new one."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        write(file)
        sync(file)
    part.replace(path)
    sync_folder(path.parent)


def append(path: Path, line: bytes) -> None:
    """Adds a line (or several) and syncs; what a crash leaves of it is without its end."""
    with path.open("ab") as file:
        file.write(line)
        sync(file)
    sync_folder(path.parent)


def cut_unfinished_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        if whole < path.stat().st_size:
            os.truncate(path, whole)


def sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def locked(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Holds a file or folder until the end, whatever the end: the system lets go of it when the process dies.

    Waits `patience` seconds at most for another process to let go of it.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: two processes in one folder are the user's own lookout
        yield
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise InUse(f"{path} is in use by another process") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)
