"""Totals by time in bounded memory: recent stretches of time are short, older ones longer.

A stretch is about 1 / `detail` of its age long, so that the last hour, the last day and the last year have about the
same number of them. Knows nothing of what is added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Floats, Int64s

LEVELS = 56  # more than it takes to reach START
START = -(10**16)  # no time in a log is before it


class Sums(Protocol):
    """What a stretch holds."""

    def absorb(self, other: Any) -> None:
        """Adds another stretch's sums, of the same type."""


S = TypeVar("S", bound=Sums)


@dataclass(eq=False)
class Stretch(Generic[S]):
    """The sums of the times in [begin, end), in whole seconds."""

    begin: int
    end: int
    sums: S


class Timeline(Generic[S]):
    """Sums by stretch of time. Everything before `floor` is one stretch. Not thread-safe.

    Stretches never overlap. As time goes on they only become longer: each is `shortest * 2**n` seconds, aligned, with
    the largest n for which its end lies `detail` of its lengths in the past.
    """

    def __init__(self, make: Callable[[], S], shortest: int, detail: int) -> None:
        self.make, self.shortest, self.detail = make, shortest, detail
        self.now, self.floor = START, START
        self._stretches: dict[int, Stretch[S]] = {}  # by their begin

    def __len__(self) -> int:
        return len(self._stretches)

    def __iter__(self) -> Iterator[Stretch[S]]:
        """The stretches, oldest first."""
        return iter([self._stretches[begin] for begin in sorted(self._stretches)])

    def advance(self, now: float) -> None:
        """Says what time it is: stretches that are old enough become longer."""
        if int(now) > self.now:
            self.now = int(now)
            self._arrange()

    def at(self, times: Floats) -> tuple[list[S], NDArray[np.intp]]:
        """The sums to add to, and which of them is for each time. A time in the future counts as now."""
        whole = np.floor(np.minimum(times, float(self.now))).astype(np.int64)
        begins, ends = self._bounds(whole)
        _, first, which = np.unique(begins, return_index=True, return_inverse=True)
        return [self._stretch(int(begins[i]), int(ends[i])).sums for i in first], which.ravel()

    def put(self, begin: int, end: int, sums: S) -> None:
        """Adds a stretch as a timeline with the same settings had it."""
        self._stretches[begin] = Stretch(begin, end, sums)

    def between(self, begin: float, end: float) -> list[Stretch[S]]:
        """The stretches that lie in a range for the most part, oldest first."""
        return [s for s in self if begin <= (max(s.begin, self.floor) + s.end) / 2 < end or _holds(s, begin, end)]

    def coarsen(self) -> None:
        """Makes fewer and longer stretches: less detail as long as that helps, then the oldest two become one."""
        if self.detail > 1:
            self.detail //= 2
        else:
            oldest = sorted(self._stretches)[:2]
            self.floor = self._stretches[oldest[-1]].end
        self._arrange()

    def _arrange(self) -> None:
        before, self._stretches = list(self), {}
        begins, ends = self._bounds(np.array([stretch.begin for stretch in before], np.int64))
        for stretch, begin, end in zip(before, begins.tolist(), ends.tolist(), strict=True):
            if begin in self._stretches:
                self._stretches[begin].sums.absorb(stretch.sums)
            else:
                self._stretches[begin] = Stretch(begin, end, stretch.sums)

    def _stretch(self, begin: int, end: int) -> Stretch[S]:
        if begin not in self._stretches:
            self._stretches[begin] = Stretch(begin, end, self.make())
        return self._stretches[begin]

    def _bounds(self, times: Int64s) -> tuple[Int64s, Int64s]:
        """Begin and end of the stretch that each time belongs to."""
        length = np.full(len(times), self.shortest, np.int64)
        for level in range(1, LEVELS):
            longer = self.shortest << level
            if self.now - longer * self.detail < times.min(initial=self.now):
                break
            end = (times // longer + 1) * longer
            length[self.now - end >= self.detail * longer] = longer
        begins = times // length * length
        ends = begins + length
        old = times < self.floor
        begins[old], ends[old] = START, self.floor
        return begins, ends


def _holds(stretch: Stretch[S], begin: float, end: float) -> bool:
    """Whether a range lies within one stretch; it is shown then, rather than nothing."""
    return stretch.begin <= begin and end <= stretch.end
