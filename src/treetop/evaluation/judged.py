"""Logged rounds as a candidate policy sees them: what was shown, with what chance, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from treetop.arrays import Bools, Floats

SAME = 1e-12  # how far rounding takes a ratio of chances, or a reward, beyond 1


@dataclass(frozen=True, eq=False)
class Judged:
    """n rounds of up to k slots, for one candidate; all arrays are (n, k) and hold 0 in slots without an arm.

    `logged` are the recorded propensities and `target` the candidate's chances of the same arms, each given the slots
    before it. `rewards` are those of the slots that the candidate has too; `served` (n,) is what the whole decision
    brought, in `served_slots` (n,) slots (None: as many as the candidate has). `score` and `expected` are the
    candidate's model's of the arm shown and of what the slot may show, in [0, 1]. `node_ratio` (n, k, D) are the ratios
    of the chances of the arm's node at D heights of the tree, NaN where they are not known. `covered` is how much of
    what the candidate may show in a slot the log may show too, and `largest` the largest ratio of chances that the slot
    can have, both given the slots before; None or NaN where they are not known.

    >>> one = np.ones((2, 1))
    >>> two = Judged(0.5 * one, 0.25 * one, one, np.ones(2), 0 * one, 0 * one, np.zeros((2, 1, 0)), one > 0)
    >>> two.prefix_weights().tolist(), two.slots.tolist(), len(two)
    ([[0.5], [0.5]], [1.0, 1.0], 2)
    """

    logged: Floats
    target: Floats
    rewards: Floats
    served: Floats
    score: Floats
    expected: Floats
    node_ratio: Floats
    filled: Bools
    served_slots: Floats | None = None
    covered: Floats | None = None
    largest: Floats | None = None

    def __len__(self) -> int:
        return len(self.logged)

    @property
    def slots(self) -> Floats:
        """(n,): how many slots each round has."""
        return np.asarray(self.filled.sum(axis=1), np.float64)

    @property
    def all_slots(self) -> Floats:
        """(n,): how many slots each round had as it was served."""
        if self.served_slots is not None:
            return self.served_slots
        if (self.served > self.slots + SAME * self.filled.shape[1]).any():
            raise ValueError("a round brought more than its slots can; served_slots are needed")
        return self.slots

    def prefix_weights(self) -> Floats:
        """(n, k): how much more likely the slots up to each are under the candidate; in empty slots as before them."""
        ratio = np.divide(self.target, self.logged, out=np.ones_like(self.logged), where=self.filled)
        return np.asarray(np.cumprod(ratio, axis=1))

    def unsupported(self) -> Floats:
        """(n,): the candidate's chance to show what the log cannot, estimated by this round; NaN if it is not known.

        A slot leaves the log's support with chance 1 - covered, given slots before it that the log can show:
        sum_s W_{s-1} (1 - covered_s) has the mean of that over all slots, and its first slot is exact.

        >>> one = np.ones((1, 2))
        >>> rest = 0 * one, np.zeros(1), 0 * one, 0 * one, np.zeros((1, 2, 0)), one > 0
        >>> Judged(one, 0.5 * one, *rest, covered=np.array([[0.75, 0.5]])).unsupported()  # 0.25 + 0.5 * 0.5
        array([0.5])
        """
        if self.covered is None:
            return np.full(len(self), np.nan)
        weights = self.prefix_weights()
        before = np.concatenate([np.ones((len(self), 1)), weights[:, :-1]], axis=1)
        left = np.where(self.filled, before * np.maximum(1 - self.covered, 0.0), 0.0)
        return np.asarray(left.sum(axis=1))

    def part(self, rows: Bools | slice) -> Judged:
        """Some of the rounds.

        >>> one = np.ones((2, 1))
        >>> two = Judged(one, one, one, np.ones(2), 0 * one, 0 * one, np.zeros((2, 1, 0)), one > 0)
        >>> len(two.part(np.array([True, False])))
        1
        """
        names = ("logged", "target", "rewards", "served", "score", "expected", "node_ratio", "filled")
        kept: dict[str, Any] = {name: getattr(self, name)[rows] for name in names}
        for name in ("served_slots", "covered", "largest"):
            kept[name] = None if getattr(self, name) is None else getattr(self, name)[rows]
        return Judged(**kept)
