"""Percentiles of the latency of decisions, from counts by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from treetop.arrays import Int64s
from treetop.service.metrics import SECONDS

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


def percentiles(took: Int64s) -> Percentiles | None:
    """Of requests counted by the buckets of SECONDS; None if there were none."""
    counts = took.tolist()
    if not sum(counts):
        return None
    p50, p90, p99 = (percentile(share, counts, SECONDS) for share in SHARES)
    return p50, p90, p99
