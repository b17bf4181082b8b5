"""What one more trial of an arm is worth that nobody knows: an arm without labels, or one that was added.

Judged by what known arms earn and by what earlier draws have found. Knows nothing of contexts, routing and regressors.
docs/learner.md has the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Bools, Floats, Int64s, Ints
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
        arms = len(labelled)
        late, counts = feedback.appeared_late(arms), _Counts.of(feedback, arms)
        value, new_value = np.zeros(arms), 0.0
        for unknown, known in ((~labelled & ~late, labelled & ~late), (late, ~late)):
            likely = _Rates.of(counts.rate[known]).scaled(counts, unknown, len(feedback))
            value[unknown] = likely.value(counts.shown[unknown])
            new_value = float(likely.value(np.zeros(1, np.int64))[0])
        value[counts.rate > 0] = 0  # nothing is left to be found
        total = float(np.nan_to_num(feedback.rewards).sum())
        net = (_earned(feedback, ~labelled | late) - _cost(feedback, late)) / total if total > 0 else 0.0
        return cls(value, new_value, net, np.where(late, counts.shown, -1).astype(np.int32) if late.any() else None)


def _earned(feedback: Feedback, unknown: Bools) -> float:
    """The rewards of unknown arms whose first one a draw through a node has brought."""
    reward = np.nan_to_num(feedback.rewards)
    t, slot = np.nonzero(reward > 0)
    arm = feedback.arms[t, slot]
    known, first = np.unique(arm, return_index=True)  # rewards are in the order of the rounds
    found = np.zeros(len(unknown), np.bool_)
    found[known] = feedback.nodes[t[first], slot[first]] >= 0
    return float(reward[t, slot][(found & unknown)[arm]].sum())


def _cost(feedback: Feedback, late: Bools) -> float:
    """Of the draws through nodes, as if each had taken what the last other slot of the same round has brought.

    Arms that were added are shown at the cost of their own budget.
    """
    drawn = feedback.nodes >= 0
    reward, draws = np.nan_to_num(feedback.rewards), (drawn & ~late[np.maximum(feedback.arms, 0)]).sum(axis=1)
    last = drawn.shape[1] - 1 - np.argmax(~drawn[:, ::-1], axis=1)
    return float((draws * reward[np.arange(len(draws)), last]).sum())


@dataclass(frozen=True, eq=False)
class _Counts:
    """Of each arm: rewards per round, how often it was shown, how often it was drawn through a node, whether found."""

    rate: Floats
    shown: Int64s
    drawn: Int64s
    found: Bools

    @classmethod
    def of(cls, feedback: Feedback, arms: int) -> _Counts:
        seen = feedback.observed
        arm, reward, through = feedback.arms[seen], feedback.rewards[seen], feedback.nodes[seen] >= 0
        rate = np.bincount(arm, weights=np.maximum(reward, 0), minlength=arms) / max(1, len(feedback))
        found = np.bincount(arm[through & (reward > 0)], minlength=arms) > 0
        return cls(rate, np.bincount(arm, minlength=arms), np.bincount(arm[through], minlength=arms), found)


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

    def scaled(self, counts: _Counts, unknown: Bools, rounds: int) -> _Rates:
        """With the worth n/2, times the finds so far per find that would be expected."""
        finds, expected = int((counts.found & unknown).sum()), self._expected_finds(counts.drawn[unknown])
        return _Rates(self.rate, self.count, rounds / 2 * (finds + ALIKE * FINDS) / (expected + FINDS))

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
