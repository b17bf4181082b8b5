"""Files that outlive kill -9 and power cuts: whole replacements, appended lines, locks. Knows no contents."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from treetop.errors import FolderInUse


def sync_folder(path: Path) -> None:
    """What was renamed in a folder stays renamed after a power cut.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "old").mkdir()
    ...     _ = Path(folder, "old").rename(Path(folder, "new"))
    ...     sync_folder(Path(folder))
    ...     [path.name for path in Path(folder).iterdir()]
    ['new']
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file beside its place, syncs it and renames it: a reader sees the old one or the new one.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     put(Path(folder, "greeting"), lambda file: file.write(b"hello"))
    ...     [(path.name, path.read_bytes()) for path in Path(folder).iterdir()]
    [('greeting', b'hello')]
    """
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        write(file)
        sync(file)
    part.replace(path)
    sync_folder(path.parent)


def append(path: Path, line: bytes) -> None:
    """Adds a line (or several) and syncs; what a crash leaves of it is without its end.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for line in (b"one\\n", b"two\\n"):
    ...         append(Path(folder, "lines"), line)
    ...     Path(folder, "lines").read_bytes()
    b'one\\ntwo\\n'
    """
    with path.open("ab") as file:
        file.write(line)
        sync(file)
    sync_folder(path.parent)


def cut_unfinished_line(path: Path) -> None:
    """Takes away what a crash left of a line; a file that is not there needs nothing.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     append(Path(folder, "lines"), b"one\\ntw")
    ...     cut_unfinished_line(Path(folder, "lines"))
    ...     Path(folder, "lines").read_bytes()
    b'one\\n'
    """
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        if whole < path.stat().st_size:
            os.truncate(path, whole)


def sync(file: BinaryIO) -> None:
    """What was written to an open file is on the disk when this returns.

    >>> from tempfile import TemporaryFile
    >>> with TemporaryFile() as file:
    ...     _ = file.write(b"hello")
    ...     sync(file)
    ...     os.fstat(file.fileno()).st_size
    5
    """
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def locked(path: Path, timeout: float = 0.0, shared: bool = False) -> Iterator[None]:
    """Holds a file or folder until the end, whatever the end: the system lets go of it when the process dies.

    Waits `timeout` seconds at most for another process to let go of it. Those who hold it `shared` do so together.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, locked(Path(folder)):
    ...     try:
    ...         with locked(Path(folder)):
    ...             pass
    ...     except FolderInUse as error:
    ...         print(str(error).removeprefix(folder))
     is in use by another process
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: two processes in one folder are the user's own lookout
        yield
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + timeout
    try:
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise FolderInUse(f"{path} is in use by another process") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)
