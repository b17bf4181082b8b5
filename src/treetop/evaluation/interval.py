"""What intervals share: the record, the normal approximation, and bets of many sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from treetop.arrays import Floats


@dataclass(frozen=True, eq=False)
class Stakes:
    """Stakes as parts of what can be lost at most, and the logarithm of the share of the capital that is on each."""

    stakes: Floats
    log_shares: Floats

    @classmethod
    def single(cls, stake: float) -> Stakes:
        """All capital on one.

        >>> Stakes.single(0.9).stakes.tolist(), np.exp(Stakes.single(0.9).log_shares).tolist()
        ([0.9], [1.0])
        """
        return cls(np.array([stake]), np.zeros(1))

    @classmethod
    def halved(cls, usual: int, last: int, others: float = 0.05) -> Stakes:
        """From nearly all down, each half of the one before; those beyond the usual ones share `others` of the capital.

        >>> Stakes.halved(2, 4).stakes.tolist(), np.exp(Stakes.halved(2, 4).log_shares).tolist()
        ([0.95, 0.475, 0.2375, 0.11875], [0.475, 0.475, 0.025, 0.025])
        """
        stakes = 0.95 * 0.5 ** np.arange(float(last))
        rest = others if last > usual else 0.0
        shares = np.where(np.arange(last) < usual, (1 - rest) / usual, rest / max(last - usual, 1))
        return cls(stakes, np.log(shares))


# Nearly all of the capital is on stakes that are best for logs of some hundred to some million rounds; the others pay
# off for longer logs and heavier weights.
EVERY_STAKE = Stakes.halved(13, 24)


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
        half = float(NormalDist().inv_cdf(0.5 + confidence / 2)) * self.error
        return Interval(self.mean - half, self.mean + half)
