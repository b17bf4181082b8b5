"""What one more trial of an arm is worth that nobody knows: an arm without labels, or one that was added.

Judged by what known arms earn and by what earlier draws have found. Knows nothing of contexts, routing and regressors.
docs/learner-formulas.md has the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Bools, Floats, Int64s, Ints
from treetop.learning.arm_totals import ArmTotals
from treetop.records import Feedback

ALIKE = 0.3  # part of what known arms earn that an unknown one is guessed to earn before any draw
FINDS = 3  # weight of the guess that unknown arms are like the known ones, in arms that draws have found


@dataclass(frozen=True, eq=False)
class Trials:
    """`value` (n,): the expected later gain of showing each arm once, 0 if it has labels or rewards; `new_value`: of
    an arm that is added next; `net`: what draws found has earned, less what the draws cost, as a share of all rewards;
    `new_trials` (n,): showings of arms that were added, -1 for the others; None if none was.
    """

    value: Floats
    new_value: float
    net: float
    new_trials: Ints | None

    @classmethod
    def of(cls, feedback: Feedback, labelled: Bools) -> Trials:
        """By n/2 * r^2: an arm of reward rate r is found by a draw with chance r, then earns r in each of n further
        rounds, half of which it takes from other arms; n is the number of rounds so far.

        >>> X, labelled = np.ones((4, 1), np.float32), np.array([True, True, False])
        >>> feedback = Feedback(X, arms=[[0], [0], [1], [1]], nodes=None, rewards=[[1], [1], [1], [0]])
        >>> Trials.of(feedback, labelled).value.tolist()
        [0.0, 0.0, 0.09375]
        """
        return cls.of_totals(ArmTotals.of(feedback, len(labelled)), labelled)

    @classmethod
    def of_totals(cls, totals: ArmTotals, labelled: Bools, lost: Bools | None = None) -> Trials:
        """The same from what the rounds add up to. Arms are `lost` of which nobody knows any more where they earn: what
        was found of them is to be found again."""
        late, rate = totals.late, totals.gain / max(1, totals.rounds)
        value, new_value = np.zeros(len(labelled)), 0.0
        for unknown, known in ((~labelled & ~late, labelled & ~late), (late, ~late)):
            likely = _Rates.of(rate[known]).scaled(totals, unknown)
            value[unknown] = likely.value(totals.shown[unknown])
            new_value = float(likely.value(np.zeros(1, np.int64))[0])
        value[(rate > 0) if lost is None else (rate > 0) & ~lost] = 0  # nothing is left to be found
        total = float(totals.reward.sum())
        earned = float(totals.gain[totals.first_found & (~labelled | late)].sum())  # whose first reward a draw brought
        net = (earned - totals.draw_cost()) / total if total > 0 else 0.0
        return cls(value, new_value, net, np.where(late, totals.shown, -1).astype(np.int32) if late.any() else None)


@dataclass(frozen=True, eq=False)
class _Rates:
    """Unknown arms as if each were one of the known ones: rates of reward, how many arms have each, and what a squared
    rate is worth."""

    rate: Floats
    count: Int64s
    worth: float = 0.0

    @classmethod
    def of(cls, rates: Floats) -> _Rates:
        return cls(*np.unique(np.minimum(rates, 1), return_counts=True))

    def scaled(self, totals: ArmTotals, unknown: Bools) -> _Rates:
        """With the worth n/2, times the finds so far per find that would be expected."""
        finds, expected = int((totals.found & unknown).sum()), self._expected_finds(totals.drawn[unknown])
        return _Rates(self.rate, self.count, totals.rounds / 2 * (finds + ALIKE * FINDS) / (expected + FINDS))

    def value(self, shown: Int64s) -> Floats:
        """Of one more showing, after so many without a reward."""
        some, place = np.unique(shown, return_inverse=True)
        left = self._left(some)
        return np.asarray(self.worth * (left @ self.rate**2 / np.maximum(left.sum(axis=1), 1e-9))[place])

    def _left(self, shown: Int64s) -> Floats:
        """(shown, rates): how many arms of each rate have no reward after so many showings."""
        return np.asarray(self.count * (1 - self.rate) ** shown[:, None])

    def _expected_finds(self, draws: Int64s) -> float:
        some, arms = np.unique(draws, return_counts=True)
        return float(arms @ (1 - self._left(some).sum(axis=1) / max(1, self.count.sum())))
