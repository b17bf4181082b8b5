"""What intervals share: the record, the normal approximation, and bets of many sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from treetop.arrays import Floats

# Stakes as shares of what can be lost at most, from nearly all of it down. Nearly all of the capital is on those that
# are best for logs of some hundred to some million rounds; the others pay off for longer logs and heavier weights.
STAKES: Floats = 0.95 * 0.5 ** np.arange(24.0)
USUAL = 13  # of them
LOG_SHARES: Floats = np.log(
    np.where(np.arange(len(STAKES)) < USUAL, 0.95 / USUAL, 0.05 / (len(STAKES) - USUAL)).astype(np.float64)
)


@dataclass(frozen=True)
class Interval:
    """Where a mean lies.

    >>> Interval(0.1, 0.3).width, 0.2 in Interval(0.1, 0.3)
    (0.2, True)
    """

    low: float
    high: float

    @property
    def width(self) -> float:
        return round(self.high - self.low, 15)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Moments:
    """Number, sum and sum of squares; those of two stretches add up.

    >>> both = Moments.of(np.array([1.0, 0.0])) + Moments.of(np.array([1.0, 0.0]))
    >>> both.mean, round(both.interval(0.95).high, 3)
    (0.5, 1.066)
    """

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Floats) -> Moments:
        return cls(len(values), float(values.sum()), float((values**2).sum()))

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.n + other.n, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else math.nan

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        if self.n < 2:
            return math.inf
        return math.sqrt(max(0.0, self.squares / self.n - self.mean**2) / (self.n - 1))

    def interval(self, confidence: float) -> Interval:
        """The normal approximation: right for many rounds of light weights, looked at once."""
        half = float(ndtri(0.5 + confidence / 2)) * self.error
        return Interval(self.mean - half, self.mean + half)
