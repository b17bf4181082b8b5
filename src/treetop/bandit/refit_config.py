"""When a bandit refits, what a refit must prove before it serves, and which models stay on disk. Reads no file."""

from __future__ import annotations

import math
from dataclasses import dataclass

from treetop.arrays import check_float, check_int
from treetop.learning.shards import Resources
from treetop.parallel import Machines, check_ray_address

YEAR = 366 * 86400.0  # seconds
NOT_WORSE = "not-worse"
GATES = ("", NOT_WORSE)


@dataclass(frozen=True)
class RefitConfig:
    """When to refit: after `first` rounds with an observed reward, then at every `factor` times as many; also `every`
    so many seconds, if there are new rewards (0: never by the clock).

    A failed refit is tried again after `retry` seconds, then after twice as many each time, up to `retry_most`.

    With `gate = "not-worse"` a refit is first fitted without the newest stretch of rounds and judged on it; if it is
    clearly worse than the model that serves, that one serves on, and the other is kept aside.

    The newest `keep` fitted models stay on disk. So does every model, whatever made it, as long as the log has
    decisions of it, so that they can be evaluated and replayed: the newest first, `keep_gb` gigabytes of them, and only
    those that served within the last `keep_days` days (0: however long ago).

    With `rebuild`, a number n, every n-th model has a tree and routing made anew, if the newest rounds do not speak
    against it (0: never by itself).

    `ray` is the cluster that refits by shard run on, as `Machines` takes it. `memory`, in GB, is what shards are sized
    by: with less there are more of them. It is no limit that ends a refit: the models, mapped, labels, about 250 bytes
    an arm and one segment are held whatever it says; a refit warns if these alone are more.
    """

    first: int = 1024
    factor: float = 1.2
    every: float = 0.0
    retry: float = 10.0
    retry_most: float = 3600.0
    keep: int = 5
    gate: str = ""
    keep_days: float = 0.0
    keep_gb: float = 10.0
    ray: str = ""
    memory: float = 2.0
    rebuild: int = 0

    def __post_init__(self) -> None:
        check_int("first", self.first, 1, 2**62)
        check_float("factor", self.factor, 1.01, 1e6)
        check_float("every", self.every, 0, YEAR)
        check_float("retry", self.retry, 0.01, YEAR)
        check_float("retry_most", self.retry_most, self.retry, YEAR)
        check_int("keep", self.keep, 2, 10_000)
        if self.gate not in GATES:
            raise ValueError(f"gate is {self.gate!r}; it must be one of {', '.join(map(repr, GATES))}")
        check_float("keep_days", self.keep_days, 0, 1e6)
        check_float("keep_gb", self.keep_gb, 0, 1e6)
        check_ray_address(self.ray)
        check_float("memory", self.memory, 0.01, 1e6)
        check_int("rebuild", self.rebuild, 0, 10**9)

    def due(self, then: int, now: int) -> bool:
        """Whether a refit is due, if there were `then` observed rounds at the last refit or rollback and `now` with
        all new ones: those that retention deleted since count, so that a log that stays as large is still learned from.

        >>> schedule = RefitConfig(first=100)
        >>> schedule.due(0, 99), schedule.due(100, 119), schedule.due(100, 120)
        (False, False, True)
        """
        return now >= self.next_at(then)

    def next_at(self, then: int) -> int:
        """The `now` at which the next refit is due: `factor` times as many rounds as there were, and `first` at least.

        >>> RefitConfig(first=100, factor=2).next_at(0), RefitConfig(first=100, factor=2).next_at(250)
        (100, 500)
        """
        return max(self.first, math.ceil(then * self.factor), then + 1)

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row.

        >>> RefitConfig(retry=10).pause(1), RefitConfig(retry=10).pause(3)
        (10.0, 40.0)
        """
        return min(self.retry_most, self.retry * 2.0 ** min(60, max(0, failures - 1)))


def refit_resources(config: RefitConfig) -> Resources:
    """What a refit may take.

    >>> refit_resources(RefitConfig(memory=0.5)).memory
    500000000.0
    """
    machines = Machines(config.ray) if config.ray else Machines(pauses=())  # here trying again would not help
    return Resources(config.memory * 1e9, machines)


def more_than_memory(config: RefitConfig, held: float) -> tuple[str, ...]:
    """A warning if a refit held so many bytes whatever the settings, and these are more than `memory`.

    >>> more_than_memory(RefitConfig(memory=0.5), 0.4e9)
    ()
    >>> more_than_memory(RefitConfig(memory=0.5), 0.6e9)[0].split(":")[0]
    '[refit] memory = 0.5 is less than the 0.60 GB that every refit of this bandit holds'
    """
    if held <= config.memory * 1e9:
        return ()
    what = "labels, about 250 bytes an arm, one segment, what a map between two spaces is learned from"
    return (
        f"[refit] memory = {config.memory} is less than the {held / 1e9:.2f} GB that every refit of this bandit holds: "
        f"{what}. It sizes shards, and is no limit",
    )
