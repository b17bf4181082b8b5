"""Folders of one bandit that share a log and a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from helpers.running import settings
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import ReplicaConfig
from treetop.bandit.replica import join

X = Y = np.eye(12, dtype=np.float32)
Opener = Callable[[str], Bandit]


@contextmanager
def replicas(folder: Path) -> Iterator[Opener]:
    """Opens the folder of a replica by name; the first is made, the others join."""
    store, log = str(folder / "store"), str(folder / "log.sqlite")
    made: list[Bandit] = []

    def open_replica(name: str) -> Bandit:
        place = folder / name
        if not place.exists() and not made:
            config = settings(replicas=ReplicaConfig(store))
            made.append(Bandit.create(place, [f"a{i}" for i in range(12)], X, Y, config=config, log=log))
            return made[-1]
        if not place.exists():
            join(place, store, log)
        made.append(Bandit.open(place, log))
        return made[-1]

    yield open_replica
    for bandit in made:
        bandit.close()


def current(bandit: Bandit) -> bytes:
    return (bandit.folder.path / "current").read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    """What replicas have in common."""
    own = ("history.jsonl", "log.sqlite", "segments")
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in files if p.relative_to(folder).parts[0] not in own
    }
