"""Self-normalised inverse propensity scoring (Swaminathan and Joachims 2015): weights divided by their own sum.

It stays within the range of the rewards, and errs less than the plain mean where weights vary; its bias falls with the
number of rounds. Sums only: those of two stretches of a log add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Floats
from treetop.evaluation.judged import SAME, Judged


@dataclass(frozen=True, eq=False)
class WeightSums:
    """Of each slot over rounds: how many, weights, squared weights, weights times rewards, weights above 0.

    >>> one = np.ones((2, 1))
    >>> two = Judged(one, one, np.array([[1.0], [0.0]]), np.ones(2), 0 * one, 0 * one, np.zeros((2, 1, 0)), one > 0)
    >>> sums = WeightSums.of(two, two.prefix_weights(), whole=False)
    >>> sums.value, (sums + sums).effective, sums.share
    (0.5, 4.0, 1.0)
    """

    rounds: int
    sums: Floats  # (5, slots)

    @classmethod
    def of(cls, judged: Judged, weights: Floats, whole: bool) -> WeightSums:
        """Slot by slot, or with the decision as one slot that brings all its rewards."""
        rewards, filled = judged.rewards, judged.filled
        if whole:
            weights, rewards, filled = weights[:, -1:], rewards.sum(axis=1, keepdims=True), judged.slots[:, None] > 0
        w = np.where(filled, weights, 0.0)
        columns = (
            filled.sum(axis=0),
            w.sum(axis=0),
            (w**2).sum(axis=0),
            (w * rewards).sum(axis=0),
            (w > 0).sum(axis=0),
        )
        return cls(len(judged), np.array(columns, np.float64))

    def __add__(self, other: WeightSums) -> WeightSums:
        width = max(self.sums.shape[1], other.sums.shape[1])
        padded = [np.pad(s.sums, ((0, 0), (0, width - s.sums.shape[1]))) for s in (self, other)]
        return WeightSums(self.rounds + other.rounds, padded[0] + padded[1])

    @property
    def by_slot(self) -> Floats:
        """(slots,): the self-normalised reward of each slot, NaN where no weight is above 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.sums[3] / self.sums[1])

    @property
    def value(self) -> float:
        """The self-normalised reward of a round; a slot that nothing is known of counts as 0."""
        if self.rounds == 0:
            return float("nan")
        return float(np.nansum(self.by_slot * self.sums[0]) / self.rounds)

    @property
    def unknown(self) -> float:
        """The share of slots that nothing is known of: no round with a weight above 0 has one at their place.

        >>> WeightSums(3, np.array([[3.0, 3.0], [2.0, 0.0], [2.0, 0.0], [1.0, 0.0], [2.0, 0.0]])).unknown
        0.5
        """
        return float(self.sums[0][self.sums[1] == 0].sum()) / max(float(self.sums[0].sum()), 1.0)

    @property
    def effective(self) -> float:
        """The effective sample size, (sum of weights)^2 / (sum of squares): in rounds, as a mean over all slots."""
        with np.errstate(invalid="ignore", divide="ignore"):
            sizes = np.nan_to_num(self.sums[1] ** 2 / self.sums[2])
        return self.rounds * float(sizes.sum()) / max(float(self.sums[0].sum()), 1.0)

    @property
    def share(self) -> float:
        """The share of rounds that say anything: those with a weight above 0, in the slot that has most."""
        return float(self.sums[4].max(initial=0)) / max(self.rounds, 1)

    @property
    def mean_weight(self) -> float:
        """1 on average, less where the candidate shows what the log never does; of the last slot."""
        known = self.sums[0] > 0
        return float((self.sums[1][known] / self.sums[0][known])[-1]) if known.any() else float("nan")

    @property
    def lacking(self) -> float:
        """How far the mean weight of the last slot is below 1, or 0 if that may be chance: by two standard errors.

        >>> few, many = (WeightSums(n, np.array([[n], [0.8 * n], [1.6 * n], [0.0], [n]])) for n in (40, 4000))
        >>> few.lacking, round(many.lacking, 3)  # weights of 0 and 2
        (0.0, 0.2)
        """
        known = self.sums[0] > 0
        if not known.any():
            return 0.0
        n, total, squares = (float(self.sums[i][known][-1]) for i in range(3))
        error = np.sqrt(max(squares / n - (total / n) ** 2, 0.0) / n)
        return 1 - total / n if 1 - total / n > 2 * error else 0.0

    @property
    def all_one(self) -> bool:
        """Whether every weight is 1, up to rounding.

        >>> WeightSums(3, np.array([[3.0], [3.0], [3.0], [1.0], [3.0]])).all_one
        True
        """
        n, total, squares = self.sums[:3]
        return bool((np.abs(squares - 2 * total + n) <= SAME * np.maximum(n, 1)).all())

    @property
    def excess(self) -> float:
        """The evidence that weights are above 1 on average: the logarithm of what bets on it gained, in the last slot.

        Whoever bets a part c <= 1/2 of the capital on each weight w has 1 + c (w - 1) times as much after it, which is
        no gain on average while weights have a mean of 1; its logarithm is at least c (w - 1) - c^2 (w - 1)^2. So a
        million is gained in at most one of a million logs, however skewed the weights are (but that c is chosen
        afterwards, which is worth a small factor).

        >>> none_rare = WeightSums(4000, np.array([[4000.0], [4000 * 1.0001], [4000 * 1.0001**2], [0.0], [4000.0]]))
        >>> round(none_rare.excess, 2)  # all are a little above 1: the rare one that is far below did not come yet
        0.2
        """
        known = self.sums[0] > 0
        if not known.any():
            return 0.0
        n, total, squares = (float(self.sums[i][known][-1]) for i in range(3))
        above, spread = total - n, max(squares - 2 * total + n, 0.0)
        if above <= 0:
            return 0.0
        part = min(0.5, above / (2 * spread)) if spread > 0 else 0.5
        return part * above - part**2 * spread
