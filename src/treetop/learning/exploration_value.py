"""What drawing an arm unseen would bring later: an arm that no label tells of, or one that has just appeared.

Judged by what arms earn and by what earlier draws have brought. Knows nothing of contexts, routing and regressors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Bools, Floats, Longs
from treetop.records import Feedback

DRAWS = 3000  # the first guess counts as if so many draws had shown it
UNTOLD, NEW = 0.3, 0.25  # parts of what an arm earns on average that are hoped of one without labels, and of a new one
BEST = 100  # one arm in so many is too good to expect the like of one without labels
FINDS = 3  # that new arms are like the old ones counts as if so many finds had shown it
SOME = 32  # trials without a reward after which an arm without labels is worth a quarter


@dataclass(frozen=True, eq=False)
class Hope:
    """`of_arm` that no label tells of; `new` is that of an arm which has not been drawn yet since it appeared."""

    of_arm: Floats
    new: float

    @classmethod
    def of(cls, feedback: Feedback, told: Bools) -> Hope:
        """An arm is worth what it earns in as many rounds as there were so far, halved since it takes others' places.

        >>> X, told = np.ones((4, 1), np.float32), np.array([True, True, False])
        >>> feedback = Feedback(X, arms=[[0], [0], [1], [1]], nodes=None, rewards=[[1], [1], [1], [0]])
        >>> Hope.of(feedback, told).of_arm.round(4).tolist()
        [0.0, 0.0, 0.0938]
        """
        n, arms = max(1, len(feedback)), len(told)
        new = feedback.late(arms)
        paid = np.where(feedback.observed, feedback.rewards, 0)
        shown = np.maximum(feedback.arms, 0)
        rate = np.bincount(shown.ravel(), weights=np.maximum(paid, 0).ravel(), minlength=arms) / n
        trials = np.bincount(shown[feedback.observed], minlength=arms)
        drawn = feedback.observed & (feedback.nodes >= 0)
        of_new = new[shown]
        found = paid[(feedback.nodes < 0) & ~told[shown] & ~of_new].sum()
        first = UNTOLD * n / 2 * _usual(rate[told & ~new] ** 2)
        worth = (DRAWS * first + found / 2) / (DRAWS + (drawn & ~of_new).sum())
        hope = worth / (1.0 + trials // SOME) ** 2
        alike = _Alike.of(rate[~new])
        draws = np.bincount(shown[drawn & of_new], minlength=arms)[new]
        hits = np.unique(shown[drawn & of_new & (paid > 0)])
        scale = NEW * n / 2 * (len(hits) + FINDS) / (alike.finds(draws) + FINDS)
        hope[new] = scale * alike.worth(trials[new])
        hope[told | (rate > 0)] = 0  # nothing is left to be found
        return cls(hope, scale * float(alike.worth(np.zeros(1, np.int64))[0]))


@dataclass(frozen=True, eq=False)
class _Alike:
    """New arms as if each were one of the old ones: rates of reward and how many arms have each."""

    rate: Floats
    many: Longs

    @classmethod
    def of(cls, rates: Floats) -> _Alike:
        return cls(*np.unique(np.minimum(rates, 1), return_counts=True))

    def _left(self, draws: Longs) -> Floats:
        """(draws, rates): how many arms of each rate have no reward after so many draws."""
        return np.asarray(self.many * (1 - self.rate) ** draws[:, None])

    def worth(self, draws: Longs) -> Floats:
        """The mean square of the rate, after so many draws without a reward."""
        some, place = np.unique(draws, return_inverse=True)
        left = self._left(some)
        return np.asarray((left @ self.rate**2 / np.maximum(left.sum(axis=1), 1e-9))[place])

    def finds(self, draws: Longs) -> float:
        """How many arms should have been found by so many draws of each."""
        some, counts = np.unique(draws, return_counts=True)
        return float(counts @ (1 - self._left(some).sum(axis=1) / max(1, self.many.sum())))


def _usual(values: Floats) -> float:
    """The mean without the best: with heavy tails these would be all of it."""
    usual = np.sort(values)[: len(values) - len(values) // BEST]
    return float(usual.mean()) if len(usual) else 0.0
