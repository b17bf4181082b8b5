"""The expected later gain of showing an arm once, whatever its score: an arm without labels, or one that was added.

Judged by what arms earn and by what earlier draws have brought. Knows nothing of contexts, routing and regressors.
docs/learner.md has the formulas and the reason for every constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Bools, Floats, Int64s
from treetop.records import Feedback

DRAWS = 3000  # weight of the first guess, in draws
UNLABELLED, NEW = 0.3, 0.25  # first guesses for an arm without labels and for a new one, as parts of n/2 * r^2
BEST = 100  # the best 1 in so many labelled arms is left out of the average
FINDS = 3  # weight of the guess that added arms are like the old ones, in added arms whose draw was rewarded
SOME = 32  # showings without a reward after which an arm without labels is worth a quarter


@dataclass(frozen=True, eq=False)
class TrialValues:
    """`of_arm` (n,): 0 for arms with labels or rewards; `new_arm`: of an arm that is added next."""

    of_arm: Floats
    new_arm: float

    @classmethod
    def of(cls, feedback: Feedback, labelled: Bools, new_arms_alike: bool = True) -> TrialValues:
        """By n/2 * r^2: an arm of reward rate r is found by a draw with chance r, then earns r in each of n further
        rounds, half of which it takes from other arms; n is the number of rounds so far.

        With `new_arms_alike`, arms that appeared late are judged as if they were like the old ones; otherwise as arms
        without labels.

        >>> X, labelled = np.ones((4, 1), np.float32), np.array([True, True, False])
        >>> feedback = Feedback(X, arms=[[0], [0], [1], [1]], nodes=None, rewards=[[1], [1], [1], [0]])
        >>> TrialValues.of(feedback, labelled).of_arm.round(4).tolist()
        [0.0, 0.0, 0.0938]
        """
        n, arms = max(1, len(feedback)), len(labelled)
        new = feedback.appeared_late(arms) if new_arms_alike else np.zeros(arms, np.bool_)
        reward = np.where(feedback.observed, feedback.rewards, 0)
        shown = np.maximum(feedback.arms, 0)
        rate = np.bincount(shown.ravel(), weights=np.maximum(reward, 0).ravel(), minlength=arms) / n
        showings = np.bincount(shown[feedback.observed], minlength=arms)
        drawn = feedback.observed & (feedback.nodes >= 0)
        of_new = new[shown]
        found = reward[(feedback.nodes < 0) & ~labelled[shown] & ~of_new].sum()
        first = UNLABELLED * n / 2 * _mean_without_best(rate[labelled & ~new] ** 2)
        unlabelled = (DRAWS * first + found / 2) / (DRAWS + (drawn & ~of_new).sum())
        value = unlabelled / (1.0 + showings // SOME) ** 2
        old = _OldArms.of(rate[~new])
        draws = np.bincount(shown[drawn & of_new], minlength=arms)[new]
        hits = np.unique(shown[drawn & of_new & (reward > 0)])
        scale = NEW * n / 2 * (len(hits) + FINDS) / (old.expected_finds(draws) + FINDS)
        value[new] = scale * old.mean_square(showings[new])
        value[labelled | (rate > 0)] = 0  # nothing is left to be found
        return cls(value, scale * float(old.mean_square(np.zeros(1, np.int64))[0]))


@dataclass(frozen=True, eq=False)
class _OldArms:
    """New arms as if each were one of the old ones: rates of reward, and how many arms have each."""

    rate: Floats
    count: Int64s

    @classmethod
    def of(cls, rates: Floats) -> _OldArms:
        return cls(*np.unique(np.minimum(rates, 1), return_counts=True))

    def _left(self, draws: Int64s) -> Floats:
        """(draws, rates): how many arms of each rate have no reward after so many draws."""
        return np.asarray(self.count * (1 - self.rate) ** draws[:, None])

    def mean_square(self, draws: Int64s) -> Floats:
        """Of the rate, after so many draws without a reward."""
        some, place = np.unique(draws, return_inverse=True)
        left = self._left(some)
        return np.asarray((left @ self.rate**2 / np.maximum(left.sum(axis=1), 1e-9))[place])

    def expected_finds(self, draws: Int64s) -> float:
        """How many arms should have been found by so many draws of each."""
        some, counts = np.unique(draws, return_counts=True)
        return float(counts @ (1 - self._left(some).sum(axis=1) / max(1, self.count.sum())))


def _mean_without_best(values: Floats) -> float:
    """Without the best 1 %: reward rates have heavy tails, and a few arms would be all of the mean."""
    usual = np.sort(values)[: len(values) - len(values) // BEST]
    return float(usual.mean()) if len(usual) else 0.0
