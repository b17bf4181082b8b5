"""Variants of a live experiment compared, at any time and as often as somebody looks. Reads no log.

Units (visitors) are assigned to variants at random and stay there, so that the visits of one are no independent trials.
All that is kept is therefore by bucket of units: how many visits, and what they brought. The reward a visit of a
variant is a ratio of two sums, its variance that of the buckets' deviations from it, and the interval an asymptotic
confidence sequence (Waudby-Smith et al. 2024: Robbins' normal mixture with an estimated variance), which holds at all
times at once for many units. Each variant is given one more unit, as far from its mean as the farthest of any variant:
without it, a variant that has brought nothing yet would be thought to bring nothing for certain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Floats
from treetop.evaluation.interval import Interval
from treetop.evaluation.verdict import Estimate, verdict

BINS = 128  # stretches of time that are kept apart
POINTS = 40  # of the intervals over time
TUNED = 5_000  # visits at which intervals are narrowest in relation to what can be known
Places: TypeAlias = NDArray[np.integer[Any]]
ENOUGH = 50  # buckets of units of a variant: with fewer, nothing is concluded


def mixture_factor(visits: float, alpha: float) -> float:
    """How many standard errors wide an interval is to each side, to hold at all times at once.

    >>> round(mixture_factor(5_000, 0.05), 2), mixture_factor(100, 0.05) > mixture_factor(5_000, 0.05)
    (3.04, True)
    """
    tuned = (2 * math.log(1 / alpha) + math.log(1 + 2 * math.log(1 / alpha))) / TUNED
    known = visits * tuned
    return math.sqrt((known + 1) / known * (2 * math.log(1 / alpha) + math.log(known + 1)))


@dataclass(frozen=True)
class VariantResult:
    """A variant: visits, reward a visit, and the difference to the baseline, None for the baseline itself."""

    name: str
    visits: int
    reward: Estimate
    difference: Estimate | None
    verdict: str


@dataclass(frozen=True)
class Moment:
    """The reward a visit of each variant by all visits up to a time; None before its first interval."""

    time: float
    rewards: tuple[Estimate | None, ...]


@dataclass
class LiveTotals:
    """Visits and rewards by stretch of time, variant and bucket of units. Stretches become longer as time goes on.

    >>> totals = LiveTotals(("now", "wide"), begin=0.0, buckets=4)
    >>> ones = np.ones(3)
    >>> totals.add_visits(np.array([1.0, 2.0, 300.0]), np.array([0, 0, 1]), np.array([1, 2, 3]), ones)
    >>> totals.add_rewards(np.array([1.0]), np.array([0]), np.array([1]), ones[:1])
    >>> [result.visits for result in totals.results("now", until=400.0)], totals.width
    ([2, 1], 4.0)
    """

    names: tuple[str, ...]
    begin: float
    buckets: int
    width: float = 1.0  # seconds of a stretch
    sums: Floats = field(init=False)  # (BINS, variants, buckets, 2): visits, rewards

    def __post_init__(self) -> None:
        self.sums = np.zeros((BINS, len(self.names), self.buckets, 2))

    def add_visits(self, times: Floats, variants: Places, buckets: Places, values: Floats) -> None:
        """Adds visits; `values` are how many each row stands for."""
        self._add(0, times, variants, buckets, values)

    def add_rewards(self, times: Floats, variants: Places, buckets: Places, values: Floats) -> None:
        """Adds rewards, by the times of their visits."""
        self._add(1, times, variants, buckets, values)

    def _add(self, what: int, times: Floats, variants: Places, buckets: Places, values: Floats) -> None:
        if len(times) == 0:
            return
        while (times.max() - self.begin) // self.width >= BINS:
            self.sums = np.concatenate([self.sums[0::2] + self.sums[1::2], np.zeros_like(self.sums[: BINS // 2])])
            self.width *= 2
        bins = np.maximum((times - self.begin) // self.width, 0).astype(np.int64)
        flat = (bins * len(self.names) + variants) * self.buckets + buckets
        added = np.bincount(flat, values, BINS * len(self.names) * self.buckets)
        self.sums[..., what] += added.reshape(self.sums.shape[:3])

    def results(self, baseline: str, until: float, confidence: float = 0.95) -> list[VariantResult]:
        """What the visits before a time say, the baseline first."""
        total = self.sums[: self._bins(until)].sum(axis=0)
        spare, base = _farthest(total), self.names.index(baseline)
        found = []
        for i in sorted(range(len(self.names)), key=lambda i: (i != base, i)):
            visits = int(total[i, :, 0].sum())
            reward, error = _ratio(total[i], spare)
            estimate = _estimate(reward, error, visits, confidence)
            if i == base:
                found.append(VariantResult(self.names[i], visits, estimate, None, "baseline"))
            else:
                found.append(self._compared(i, base, total, spare, estimate, confidence))
        return found

    def _compared(
        self, i: int, base: int, total: Floats, spare: float, estimate: Estimate, confidence: float
    ) -> VariantResult:
        rewards, errors = zip(*(_ratio(total[j], spare) for j in (i, base)), strict=True)
        visits, both = int(total[i, :, 0].sum()), int(total[[i, base], :, 0].sum())
        gap = _estimate(rewards[0] - rewards[1], math.hypot(*errors), both, confidence)
        few = min(int((total[j, :, 0] > 0).sum()) for j in (i, base))
        if few < min(ENOUGH, self.buckets // 2):
            said = f"cannot tell yet: only {few} groups of visitors"
        else:
            said = verdict(both, gap.value, Interval(gap.low, gap.high))
        return VariantResult(self.names[i], visits, estimate, gap, said)

    def history(self, until: float, confidence: float = 0.95) -> list[Moment]:
        """The intervals as they were over time, by all visits up to each moment and what is known of them now."""
        last = self._bins(until)
        added = np.cumsum(self.sums[:last], axis=0)
        filled = [i for i in range(last) if self.sums[i].any()]
        chosen = [filled[i] for i in np.unique(np.linspace(0, len(filled) - 1, POINTS).astype(int))] if filled else []
        found = []
        for i in chosen:
            spare = _farthest(added[i])
            rewards = []
            for v in range(len(self.names)):
                visits = int(added[i, v, :, 0].sum())
                enough = (added[i, v, :, 0] > 0).sum() >= min(ENOUGH, self.buckets // 2)
                rewards.append(_estimate(*_ratio(added[i, v], spare), visits, confidence) if enough else None)
            found.append(Moment(min(self.begin + (i + 1) * self.width, until), tuple(rewards)))
        return found

    def _bins(self, until: float) -> int:
        return max(0, min(BINS, math.ceil((until - self.begin) / self.width)))


def _farthest(total: Floats) -> float:
    """The largest deviation of a bucket from what its variant brings a visit, of all variants; squared."""
    visits = np.maximum(total[:, :, 0].sum(axis=1), 1)
    means = total[:, :, 1].sum(axis=1) / visits
    return float(((total[:, :, 1] - means[:, None] * total[:, :, 0]) ** 2).max(initial=0.0))


def _ratio(sums: Floats, spare: float) -> tuple[float, float]:
    """Reward a visit of a variant and its standard error, from visits and rewards by bucket."""
    visits, there = float(sums[:, 0].sum()), int((sums[:, 0] > 0).sum())
    if there < 2:
        return (float(sums[:, 1].sum()) / visits if visits else math.nan), math.inf
    mean = float(sums[:, 1].sum()) / visits
    squares = float(((sums[:, 1] - mean * sums[:, 0]) ** 2).sum()) + spare
    return mean, math.sqrt(there / (there - 1) * squares) / visits


def _estimate(value: float, error: float, visits: int, confidence: float) -> Estimate:
    half = error * mixture_factor(max(visits, 1), 1 - confidence)
    return Estimate(value, value - half, value + half)
