"""Percentiles of how long decisions took, from counts by bucket that are looked at now and then. Knows no requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

LOOKS = 361  # an hour, one every ten seconds
ASKED = (0.5, 0.9, 0.99)
Percentiles = tuple[float, float, float]


def percentile(share: float, counts: Sequence[int], edges: Sequence[float]) -> float:
    """Counts of each bucket to seconds, as if a bucket's requests were spread evenly in it; the last has no end.

    >>> percentile(0.5, [0, 10, 0], [1.0, 3.0])
    2.0
    """
    wanted, below = share * sum(counts), 0
    for count, (low, high) in zip(counts, pairwise([0.0, *edges]), strict=False):
        if count and below + count >= wanted:
            return low + (high - low) * (wanted - below) / count
        below += count
    return edges[-1]


class Latencies:
    """The looks of the last hour; each has counts up to and with each bucket since the service began."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._looks: deque[tuple[float, list[int]]] = deque(maxlen=LOOKS)

    def look(self, now: float, totals: Sequence[int]) -> None:
        self._looks.append((now, list(totals) or [0] * (len(self._edges) + 1)))

    def since(self) -> float | None:
        return self._looks[0][0] if self._looks else None

    def overall(self) -> Percentiles | None:
        """Of all requests between the first look and the last; None if there was none."""
        return self._between(self._looks[0][1], self._looks[-1][1]) if self._looks else None

    def over_time(self) -> list[tuple[float, Percentiles | None]]:
        """Between each look and the one before it."""
        return [(now, self._between(old, new)) for (_, old), (now, new) in pairwise(self._looks)]

    def _between(self, old: list[int], new: list[int]) -> Percentiles | None:
        upto = [max(0, b - a) for a, b in zip(old, new, strict=True)]
        counts = [max(0, b - a) for a, b in pairwise([0, *upto])]
        if not sum(counts):
            return None
        p50, p90, p99 = (percentile(share, counts, self._edges) for share in ASKED)
        return p50, p90, p99
