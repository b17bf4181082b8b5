"""Empirical Bernstein confidence sequences (Howard et al. 2021; Waudby-Smith et al. 2022), as sums that add up.

    sum_j share_j exp(b_j (sum z - n m) - psi(b_j) V) <= 1 / alpha     psi(b) = -log(1 - b) - b,  V = sum (z_i - c_i)^2

for values z in [0, inf), in units in which c_i, the mean of the values before the i-th, counts as 1 at most. It is what
betting (`bets.py`) is bounded by from below: wider, but three numbers are all that it keeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treetop.arrays import Floats
from treetop.evaluation.bets import STEPS
from treetop.evaluation.interval import EVERY_STAKE

STAKES, LOG_SHARES = EVERY_STAKE.stakes, EVERY_STAKE.log_shares
PSI: Floats = -np.log1p(-STAKES) - STAKES


@dataclass(frozen=True)
class BernsteinSums:
    """Values at least `low`, in units of `high - low`: their number, scaled sum, and squares around predictions.

    >>> rng = np.random.default_rng(0)
    >>> seen = BernsteinSums(0.0, 1.0).after(rng.random(500)) + BernsteinSums(0.0, 1.0).after(rng.random(500))
    >>> 0.41 < seen.lower_bound(alpha=0.025) < 0.5
    True
    """

    low: float
    high: float
    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def after(self, values: Floats) -> BernsteinSums:
        """With more values, in their order."""
        z = (values - self.low) / (self.high - self.low)
        if len(z) and z.min() < -1e-9:
            raise ValueError(f"a value is {float(values.min()):g}; it must be at least {self.low:g}")
        before = self.total + np.concatenate([[0.0], np.cumsum(z)[:-1]])
        centre = np.minimum(1.0, (0.5 + before) / (1.0 + self.n + np.arange(len(z))))
        squares = self.squares + float(((z - centre) ** 2).sum())
        return BernsteinSums(self.low, self.high, self.n + len(z), self.total + float(z.sum()), squares)

    def __add__(self, other: BernsteinSums) -> BernsteinSums:
        if (self.low, self.high) != (other.low, other.high):
            raise ValueError(
                f"sums over [{self.low:g}, {self.high:g}] and [{other.low:g}, {other.high:g}] do not add up"
            )
        sums = self.n + other.n, self.total + other.total, self.squares + other.squares
        return BernsteinSums(self.low, self.high, *sums)

    def log_capital(self, mean: float) -> float:
        """As that of `Bets`, of a mean from `low` on.

        >>> BernsteinSums(0.0, 1.0).log_capital(0.5) <= 1e-9
        True
        """
        m = (mean - self.low) / (self.high - self.low)
        grown = STAKES * (self.total - self.n * m) - PSI * self.squares + LOG_SHARES
        top = float(grown.max())
        return top + math.log(float(np.exp(grown - top).sum()))

    def lower_bound(self, alpha: float, most: float | None = None) -> float:
        """Below the mean, which is known to be at most `most` (`high` if not given), with chance 1 - alpha, at all
        times at once."""
        below, above, limit = self.low, self.high if most is None else most, math.log(1 / alpha)
        if self.log_capital(below) <= limit:
            return below
        for _ in range(STEPS):
            middle = (below + above) / 2
            below, above = (middle, above) if self.log_capital(middle) > limit else (below, middle)
        return below
