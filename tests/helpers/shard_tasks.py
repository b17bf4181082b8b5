"""Tasks for `map_shards`: functions of a module, as the workers of a cluster need them."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from treetop.bandit.logged_history import WORK
from treetop.learning.shards import Shard
from treetop.learning.streamed import _solve_shard
from treetop.parallel import write_piece

SOLVING, GATE = "solving-", "open"  # beginning of the names of signs of life, and the gate, in the folder of a bandit


def digest(shard: str) -> str:
    """Writes the checksum of a file beside it."""
    source = Path(shard)
    text = hashlib.sha256(source.read_bytes()).hexdigest().encode()
    return str(write_piece(source.with_suffix(".sha256"), lambda file: file.write(text)))


def digest_after_failures(shard: tuple[str, int]) -> str:
    """The same, after so many attempts that fail."""
    path, failures = shard
    if _count(Path(path)) <= failures:
        raise OSError(30, "Read-only file system", path)
    return digest(path)


def digest_after_deaths(shard: tuple[str, int]) -> str:
    """The same, after so many attempts that end their process."""
    path, deaths = shard
    if _count(Path(path)) <= deaths:
        os._exit(1)
    return digest(path)


def digest_when_open(shard: tuple[str, str]) -> str:
    """The same, with a sign of life first, once a gate is there: a file, waited for as long as a test may take."""
    path, gate = shard
    _count(Path(path))
    _wait_for(Path(gate))
    return digest(path)


def solve_when_open(shard: Shard) -> str:
    """A refit's own task on a shard of regressors, with a sign of life first, once the gate in the bandit's folder is
    open."""
    shop = Path(shard.folder.partition(f"/{WORK}/")[0])
    _count(shop / f"{SOLVING}{shard.low:010d}")
    _wait_for(shop / GATE)
    return _solve_shard(shard)


def _wait_for(gate: Path) -> None:
    until = time.monotonic() + 60.0
    while not gate.exists() and time.monotonic() < until:
        time.sleep(0.02)


def large(shard: str) -> bytes:
    return bytes(1_000_000)


def attempts(path: Path) -> int:
    """How often a task was begun for a file."""
    return len(list(path.parent.glob(f"{path.name}.attempt*")))


def pids(path: Path) -> list[int]:
    """Which processes began a task for a file, in turn."""
    return [int(found.name.rpartition("-")[2]) for found in sorted(path.parent.glob(f"{path.name}.attempt*"))]


def _count(path: Path) -> int:
    path.with_name(f"{path.name}.attempt{time.time_ns()}-{os.getpid()}").touch()
    return attempts(path)
