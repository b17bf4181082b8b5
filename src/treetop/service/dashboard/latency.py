"""Percentiles of the latency of decisions, from cumulative counts by bucket that are read at intervals."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

READINGS = 361  # an hour, one every ten seconds
SHARES = (0.5, 0.9, 0.99)
Percentiles = tuple[float, float, float]


def percentile(share: float, counts: Sequence[int], edges: Sequence[float]) -> float:
    """The seconds below which a share of the requests lies, spread evenly within each bucket; the last has no end.

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
    """The readings of the last hour; each has the cumulative counts by bucket since the service started."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._readings: deque[tuple[float, list[int]]] = deque(maxlen=READINGS)

    def add(self, now: float, totals: Sequence[int]) -> None:
        self._readings.append((now, list(totals) or [0] * (len(self._edges) + 1)))

    def since(self) -> float | None:
        return self._readings[0][0] if self._readings else None

    def overall(self) -> Percentiles | None:
        """Of all requests between the first and the last reading; None if there were none."""
        return self._between(self._readings[0][1], self._readings[-1][1]) if self._readings else None

    def over_time(self) -> list[tuple[float, Percentiles | None]]:
        """Between each reading and the one before it."""
        return [(now, self._between(old, new)) for (_, old), (now, new) in pairwise(self._readings)]

    def _between(self, old: list[int], new: list[int]) -> Percentiles | None:
        upto = [max(0, b - a) for a, b in zip(old, new, strict=True)]
        counts = [max(0, b - a) for a, b in pairwise([0, *upto])]
        if not sum(counts):
            return None
        p50, p90, p99 = (percentile(share, counts, self._edges) for share in SHARES)
        return p50, p90, p99
