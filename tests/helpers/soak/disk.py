"""A disk of a soak's own that can be full.

Where the system allows it, a small file system of its own; elsewhere limits on the sizes of a process's files, which
look the same to a process.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PIECE = 1 << 20


class Disk:
    """A folder `path`; with `own`, for root, on a file system of `size` bytes."""

    def __init__(self, path: Path, own: bool = True, size: int = 2 << 30) -> None:
        self.path, self._image, self._ballast = path, path.with_name(path.name + ".img"), path / "ballast"
        self.own = False
        path.mkdir(parents=True)
        if own and os.getuid() == 0 and shutil.which("mkfs.ext4"):
            with self._image.open("wb") as image:
                image.truncate(size)
            # Nothing is reserved for root, and all tables are made now: later they would be made in the background.
            words = ["mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self._image)]
            made = subprocess.run(words, capture_output=True).returncode == 0
            words = ["mount", "-o", "loop", str(self._image), str(path)]
            self.own = made and subprocess.run(words, capture_output=True).returncode == 0

    def fill(self, pids: Iterable[int], log: Path) -> None:
        """From now on nothing can grow: no file of the disk, or of these processes beyond the size of their log."""
        if self.own:
            self._take_all()
            return
        size = max((path.stat().st_size for path in log.parent.glob(log.name + "*")), default=PIECE)
        for pid in pids:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _take_all(self) -> None:
        with self._ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            facts = os.statvfs(self.path)
            with suppress(OSError):
                os.posix_fallocate(ballast.fileno(), 0, max(1, facts.f_bavail * facts.f_frsize - (4 << 20)))
            ballast.seek(0, os.SEEK_END)
            while True:  # until the disk is full
                ballast.write(bytes(PIECE))

    def free(self, pids: Iterable[int]) -> None:
        if self.own:
            self._ballast.unlink(missing_ok=True)
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def close(self) -> None:
        if self.own:
            subprocess.run(["umount", "-l", str(self.path)], check=True)
        self._image.unlink(missing_ok=True)
