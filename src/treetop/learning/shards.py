"""A refit in shards: neighbouring nodes or arms whose samples fit into memory together, one shard after the other."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Floats, Int64s
from treetop.learning.array_folder import ArrayFolder
from treetop.parallel import Machines, map_shards


def release_freed() -> None:
    """Gives memory back to the system that was freed, where the C library can: glibc keeps much of it, a share for each
    thread that allocated it, so that what threads have used one after the other adds up.

    >>> release_freed()
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def split(sizes: Floats, limit: float) -> list[tuple[int, int]]:
    """Neighbours whose sizes add up to the limit at most, or to one that is larger.

    >>> split(np.array([1.0, 1.0, 1.0, 9.0, 1.0]), 2.0)
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    ends = np.cumsum(sizes)
    shards, first = [], 0
    while first < len(sizes):
        before = ends[first - 1] if first else 0.0
        end = max(first + 1, int(np.searchsorted(ends, before + limit, side="right")))
        shards.append((first, end))
        first = end
    return shards


SAMPLE_BYTES = 64  # of a sample beside its context, while its shard is fitted
# Of a labelled row in each routing function that it teaches: the functions of a family have it together, so that little
# but the weights that it brings is left, measured at 5 (10 features a context) and guessed for denser ones.
SHARED_BYTES = 24


@dataclass(frozen=True)
class Shard:
    """Nodes or arms from `low` to `high`, the last not included; what is known of them is in a folder."""

    folder: str
    low: int
    high: int
    threads: int

    @property
    def stage(self) -> ArrayFolder:
        return ArrayFolder(Path(self.folder))

    def write(self, fill: Callable[[ArrayFolder], None]) -> str:
        """The folder of what was made of this shard, whole or not there: another attempt may write it too."""
        target = Path(self.folder) / f"shard-{self.low:010d}"
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            fill(ArrayFolder(part))
            part.rename(target)
        except OSError:
            if not target.is_dir():  # another attempt was faster: the same bytes
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)  # what a failure left of it
        return str(target)


@dataclass(frozen=True)
class Resources:
    """How much a refit may take: `memory` in bytes beside the models, on these machines."""

    memory: float = 2e9
    machines: Machines = field(default_factory=Machines)

    @property
    def shard_bytes(self) -> float:
        """Of the contexts of a shard: they are there twice, and what is solved beside them; so many at a time.

        A sixteenth for all that are worked on together takes about a tenth, measured. It is small beside what every
        refit holds, so that the peak does not depend on which shards meet.

        >>> Resources(memory=1.6e9, machines=Machines(workers=4)).shard_bytes
        25000000.0
        """
        return self.memory / 16 / (1 if self.machines.ray else self.machines.width)

    def sizes(
        self, rounds: Any, labels: Any, context: float, labelled: int, of_a_label: int = SAMPLE_BYTES, family: Any = 1
    ) -> Floats:
        """Bytes of the samples of each function, of rounds and of labels, with contexts of so many bytes.

        Labelled rows are shared by many samples: they are counted once if all of them fit into a shard with ease, else
        once for all functions of a `family`, which have the same rows; it says how many these are.

        >>> Resources(memory=8e9).sizes(0, np.array([10, 10]), 100.0, 5, 24).tolist()  # five rows fit with ease
        [240.0, 240.0]
        >>> Resources(memory=8e3).sizes(0, np.array([10, 10]), 100.0, 5, 24, np.array([1, 2])).tolist()
        [1240.0, 740.0]
        """
        shared = labelled * context < self.shard_bytes / 4
        of_labels = labels * (of_a_label + (0.0 if shared else context / family))
        return np.asarray(rounds * (context + SAMPLE_BYTES) + of_labels)

    def map(self, task: Callable[[Shard], str], folder: Path, ends: Sequence[tuple[int, int]]) -> list[Path]:
        """What a task made of each shard, in their order."""
        shards = [Shard(str(folder), low, high, self.machines.threads) for low, high in ends]
        release_freed()
        found = [Path(found) for found in map_shards(task, shards, self.machines)]
        release_freed()
        return found


def ranks(group: Any, seen: Int64s) -> Int64s:
    """How many of the same group come before each sample, in this part of a history and, as `seen` says, before it.

    The groups rise. `seen` then counts these too.

    >>> seen = np.array([3, 0])
    >>> ranks(np.array([0, 0, 1]), seen).tolist(), seen.tolist()
    ([3, 4, 0], [5, 1])
    """
    if len(group) == 0:
        return np.zeros(0, np.int64)
    new = np.concatenate([[True], group[1:] != group[:-1]])
    first = np.flatnonzero(new)
    within = np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))
    rank = within + seen[group]
    seen += np.bincount(group, minlength=len(seen))
    return np.asarray(rank)


def renumbered(row: Any, used: Any) -> tuple[Int64s, Int64s]:
    """The rows that some samples use, each once and in order, and the place of each sample's row among them.

    >>> [found.tolist() for found in renumbered(np.array([7, 2, 7, 5]), np.array([True, True, True, False]))]
    [[2, 7], [1, 0, 1]]
    """
    rows, place = np.unique(row[used], return_inverse=True)
    return rows, place
