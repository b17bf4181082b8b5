"""What rounds have brought, arm by arm: sums that need no context, and add up over a history that is read in pieces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Bools, Floats, Int64s
from treetop.records import Feedback

OF_ARMS = ("shown", "drawn", "finds", "reward", "gain", "drawn_reward", "found", "first_found")
SMALLEST = 0.1  # propensity of the best arm in play, where draws have their largest chance


@dataclass(eq=False)
class ArmTotals:
    """`late` (n,) are the arms that were added after the first round. Of each arm:

    - `shown`, `drawn`: rewards observed, and those of draws through a node; `finds`: rewards above 0
    - `reward`, `gain`, `drawn_reward`: sums of its rewards, of those above 0, of those of draws through a node
    - `found`: whether a draw through a node has found a reward; `first_found`: whether it found the first one
    Of all rounds:

    - `draws`: draws through a node that did not show an added arm
    - `last`: of the last slots, those beside draws: how many, what they brought, and both once more, each slot counting
      (1 - p) / p with p its propensity: as often as its like was given up for a draw

    Numbers are added one by one, so that sums are the same whatever the pieces.

    >>> shown = Feedback([[1.0], [1.0]], arms=[[0], [1]], nodes=None, rewards=[[1], [0]])
    >>> totals = ArmTotals.of(shown, arms=3)
    >>> totals.rounds, totals.shown.tolist(), totals.reward.tolist()
    (2, [1, 1, 0], [1.0, 0.0, 0.0])
    """

    late: Bools
    rounds: int
    shown: Int64s
    drawn: Int64s
    finds: Int64s
    reward: Floats
    gain: Floats
    drawn_reward: Floats
    found: Bools
    first_found: Bools
    draws: int
    last: Floats

    @classmethod
    def none(cls, late: Bools) -> ArmTotals:
        """Before any round."""
        n = len(late)
        shown, drawn, finds = (np.zeros(n, np.int64) for _ in range(3))
        reward, gain, drawn_reward = (np.zeros(n) for _ in range(3))
        found, first_found = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        return cls(late, 0, shown, drawn, finds, reward, gain, drawn_reward, found, first_found, 0, np.zeros(4))

    @classmethod
    def of(cls, feedback: Feedback, arms: int) -> ArmTotals:
        totals = cls.none(feedback.appeared_late(arms))
        totals.add(feedback)
        return totals

    def continued(self, late: Bools) -> ArmTotals:
        """A copy to add later rounds to, in which more arms may be."""
        more = len(late) - len(self.late)
        each = {name: np.append(getattr(self, name), np.zeros(more, getattr(self, name).dtype)) for name in OF_ARMS}
        return ArmTotals(late=late, rounds=self.rounds, draws=self.draws, last=self.last.copy(), **each)

    def add(self, later: Feedback) -> None:
        """Adds later rounds."""
        arms, drawn, rewards = later.arms, later.nodes >= 0, later.rewards
        seen = ~np.isnan(rewards)
        arm, reward, through = arms[seen], rewards[seen].astype(np.float64), drawn[seen]
        n = len(self.late)
        self.rounds += len(arms)
        self.shown += np.bincount(arm, minlength=n)
        self.drawn += np.bincount(arm[through], minlength=n)
        np.add.at(self.reward, arm, reward)
        np.add.at(self.gain, arm, np.maximum(reward, 0))
        np.add.at(self.drawn_reward, arm[through], reward[through])
        right = reward > 0
        some, first = np.unique(arm[right], return_index=True)  # in the order of the rounds
        self.first_found[some] = np.where(self.finds[some] > 0, self.first_found[some], through[right][first])
        self.finds += np.bincount(arm[right], minlength=n)
        self.found[arm[right & through]] = True
        self.draws += int((drawn & (arms >= 0) & ~self.late[np.maximum(arms, 0)]).sum())
        self._add_last(later)

    def draw_cost(self) -> float:
        """What all these draws cost: what they showed took the place of the arm that would have been last.

        A slot that was drawn with chance 1 - p shows that arm with chance p, so the slots that show it tell what it
        brings where it was given up. The mean over all last slots counts as one draw beside them, and is all that is
        known where no propensity is.

        >>> X, arms, nodes = np.ones((3, 1)), [[0], [0], [1]], [[-1], [-1], [4]]
        >>> cheap = Feedback(X, arms, nodes, [[0], [1], [0]], propensities=[[0.1], [1.0], [0.9]])
        >>> round(ArmTotals.of(cheap, arms=2).draw_cost(), 4)  # the first stands for nine draws, the second for none
        0.05
        """
        count, reward, weight, weighed = self.last.tolist()
        return float(self.draws * (weighed + reward / max(1.0, count)) / (weight + 1))

    def _add_last(self, later: Feedback) -> None:
        """Of rounds whose last slot was not drawn through a node, and its reward observed."""
        last = (later.arms >= 0).sum(axis=1) - 1
        row = np.flatnonzero(last >= 0)
        row = row[(later.nodes[row, last[row]] < 0) & ~np.isnan(later.rewards[row, last[row]])]
        reward = later.rewards[row, last[row]].astype(np.float64)
        p = np.full(len(row), np.nan) if later.propensities is None else later.propensities[row, last[row]]
        p = np.asarray(p, np.float64)
        best = p >= SMALLEST  # less likely slots show what was drawn, and NaN is no chance
        weight = np.where(best, (1 - p) / np.maximum(p, SMALLEST), 0.0)
        for place, value in enumerate((np.ones(len(row)), reward, weight, np.where(best, weight * reward, 0.0))):
            np.add.at(self.last, np.full(len(row), place), value)
