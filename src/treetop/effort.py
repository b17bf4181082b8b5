"""How a computation is run, never what comes out of it: on how many threads, on which machines, who hears how far."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from treetop.arrays import check_int

Progress: TypeAlias = Callable[[int, int], object]  # (done, total), called about ten times a second; may raise to stop


@dataclass(frozen=True)
class Effort:
    """`threads`: 0 for all cores; `progress(done, total)` is called about ten times a second.

    `ray` is a cluster as `Machines` takes it, for what can be spread; files go there through `folder`, which all
    machines see under one path.

    >>> Effort(threads=-1)
    Traceback (most recent call last):
    ValueError: threads is -1; it must lie in [0, 4096]
    """

    threads: int = 0
    progress: Progress | None = None
    ray: str = ""
    folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_int("threads", self.threads, 0, 4096)
