"""What rounds have brought, arm by arm: sums that need no context, and add up over a history that is read in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from treetop.arrays import Bools, Floats, Int64s
from treetop.records import Feedback


@dataclass(eq=False)
class ArmTotals:
    """`late` (n,) are the arms that were added after the first round. Of each arm:

    - `shown`, `drawn`: rewards observed, and those of draws through a node; `finds`: rewards above 0
    - `reward`, `gain`, `drawn_reward`: sums of its rewards, of those above 0, of those of draws through a node
    - `found`: whether a draw through a node has found a reward; `first_found`: whether it found the first one
    - `draw_cost`: what the arm brought in the last slot of a round beside draws, once for each of these

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
    draw_cost: Floats
    found: Bools
    first_found: Bools

    @classmethod
    def none(cls, late: Bools) -> ArmTotals:
        """Before any round."""
        n = len(late)
        shown, drawn, finds = (np.zeros(n, np.int64) for _ in range(3))
        reward, gain, drawn_reward, draw_cost = (np.zeros(n) for _ in range(4))
        found, first_found = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        return cls(late, 0, shown, drawn, finds, reward, gain, drawn_reward, draw_cost, found, first_found)

    @classmethod
    def of(cls, feedback: Feedback, arms: int) -> ArmTotals:
        totals = cls.none(feedback.appeared_late(arms))
        totals.add(feedback.arms, feedback.nodes >= 0, feedback.rewards)
        return totals

    def add(self, arms: Any, drawn: Any, rewards: Any) -> None:
        """Adds later rounds, (n, k) each: the arms, whether each came through a node, the rewards or NaN."""
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
        self._add_cost(arms, drawn, rewards)

    def _add_cost(self, arms: Any, drawn: Any, rewards: Any) -> None:
        """Draws cost as if each had taken what the last other slot of the same round has brought.

        Arms that were added are shown at the cost of their own budget.
        """
        there = arms >= 0
        draws = (drawn & ~self.late[np.maximum(arms, 0)]).sum(axis=1)
        rows = np.flatnonzero(draws)
        if len(rows) == 0:  # there may be no slots at all
            return
        other = there[rows] & ~drawn[rows]
        other = np.where(other.any(axis=1)[:, None], other, there[rows])
        last = arms.shape[1] - 1 - np.argmax(other[:, ::-1], axis=1)
        reward = np.nan_to_num(rewards[rows, last]).astype(np.float64)
        np.add.at(self.draw_cost, arms[rows, last], draws[rows] * reward)
