"""Confidence sequences by betting (Waudby-Smith and Ramdas 2024; for logged bandits Waudby-Smith et al. 2022).

Whoever bets a fixed part b of what she has that values in [0, inf) have a mean above m has the capital
prod_i (1 + b (z_i - m) / m), which does not grow on average if the mean is m or less: it exceeds 1 / alpha ever with
chance alpha at most. The capital here is shared out among stakes of many sizes, and the lower bound is the smallest m
against which it has not exceeded 1 / alpha. So it holds at all times at once, however often somebody looks. Capital
falls as m grows, since 1 + b (z - m) / m = 1 - b + b z / m does. Values from another lowest one on are shifted.

Fixed stakes have three consequences. The bound holds for the mean of the conditional means of the rounds, which may
change as models and policies do, since prod (1 + c (mu_i - m)) <= exp(c sum (mu_i - m)). The order of the rounds does
not matter, so that all that is kept is how often each value came. And two stretches of a log, or two workers, are
merged by adding these counts.

Values are counted at edges 5 % apart, each shared out between the two around it in proportion. The logarithm is
concave, so this only ever makes the capital smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from treetop import _core
from treetop.arrays import Floats
from treetop.evaluation.interval import EVERY_STAKE, Stakes

RATIO, SMALLEST, LARGEST = 1.05, 1e-6, 1e9
_POSITIVE = SMALLEST * RATIO ** np.arange(math.ceil(math.log(LARGEST / SMALLEST, RATIO)) + 1)
EDGES: Floats = np.concatenate([-_POSITIVE[::-1], [0.0], _POSITIVE])
STEPS = 32  # of a bisection: to a billionth of the range


@dataclass(frozen=True, eq=False)
class Bets:
    """How often each value came. Larger values than 1e9 count as that, which keeps a lower bound right.

    >>> rng = np.random.default_rng(0)
    >>> seen = Bets.of(rng.random(500)) + Bets.of(rng.random(500))
    >>> 0.43 < seen.lower_bound(low=0.0, high=1.0, alpha=0.025) < 0.5
    True
    """

    counts: Floats = field(default_factory=lambda: np.zeros(len(EDGES)))

    @classmethod
    def of(cls, values: Floats) -> Bets:
        return cls.several(values[None, :])[0]

    @classmethod
    def several(cls, values: Floats) -> tuple[Bets, ...]:
        """Of each row.

        >>> [float(bets.counts.sum()) for bets in Bets.several(np.ones((2, 3)))]
        [3.0, 3.0]
        """
        flat = np.ascontiguousarray(values, np.float64).reshape(-1)
        return tuple(map(cls, _core.count_values(flat, len(values), EDGES)))

    def __add__(self, other: Bets) -> Bets:
        return Bets(self.counts + other.counts)

    def log_capital(self, mean: float, low: float, plan: Stakes = EVERY_STAKE) -> float:
        """The logarithm of the capital of whoever bets that the mean of values from `low` on is above `mean`.

        >>> round(Bets.of(np.zeros(3)).log_capital(mean=0.5, low=0.0), 2)
        -0.25
        """
        there = np.flatnonzero(self.counts)
        floor = lowest(low)
        if len(there) and (worst := EDGES[there[0]]) < floor:
            raise ValueError(f"a value is about {worst:g}; these bets take values from {low:g} on")
        gain = (EDGES[there] - mean) / (mean - floor)  # at least -1
        grown = np.log1p(plan.stakes[:, None] * gain[None, :]) @ self.counts[there] + plan.log_shares
        top = float(grown.max())
        return top + math.log(float(np.exp(grown - top).sum()))

    def lower_bound(self, low: float, high: float, alpha: float) -> float:
        """Below the mean of values that are at least `low`, with chance 1 - alpha, at all times at once.

        The mean must be known to lie in [low, high]; single values may be larger.
        """
        return joint_lower_bound([Wager(self, low, high)], alpha)


def lowest(low: float) -> float:
    """Below the edges around `low`: what values from there on may count as.

    >>> round(lowest(-10.0), 3)
    -10.5
    """
    return low * RATIO - 10 * SMALLEST if low < 0 else low - 2 * SMALLEST


@dataclass(frozen=True, eq=False)
class Wager:
    """Bets on values at least `low`, whose mean lies in [low, high] and is the mean in question plus `shift`.

    `plan` are the stakes, which have `share` of all capital.
    """

    bets: Bets
    low: float
    high: float
    shift: float = 0.0
    plan: Stakes = EVERY_STAKE
    share: float = 1.0


def joint_log_capital(wagers: Sequence[Wager], mean: float) -> float:
    """The logarithm of all capital of whoever bets that the mean in question is above `mean`.

    >>> round(joint_log_capital([Wager(Bets(), 0.0, 1.0, share=0.5)] * 2, 0.3), 9)
    0.0
    """
    grown = [w.bets.log_capital(mean + w.shift, w.low, w.plan) + math.log(w.share) for w in wagers]
    return float(np.logaddexp.reduce(grown))


def joint_lower_bound(wagers: Sequence[Wager], alpha: float) -> float:
    """As `Bets.lower_bound`, with the capital shared out among several kinds of values of the same mean.

    >>> few, many = (Wager(Bets.of(np.full(n, 0.5)), 0.0, 1.0, share=0.5) for n in (3, 300))
    >>> joint_lower_bound([few, many], alpha=0.05) > joint_lower_bound([few], alpha=0.05)
    True
    """
    limit = math.log(1 / alpha)

    def exceeds(mean: float) -> bool:
        return joint_log_capital(wagers, mean) > limit

    below, above = max(w.low - w.shift for w in wagers), min(w.high - w.shift for w in wagers)
    if not exceeds(below):
        return below
    for _ in range(STEPS):
        middle = (below + above) / 2
        below, above = (middle, above) if exceeds(middle) else (below, middle)
    return below
