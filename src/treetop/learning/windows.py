"""Which samples of old rounds a refit still reads, or a later one ever will. Knows no tree, no labels and no files.

An arm's regressor reads its latest samples, its routing function more of them. A node's reads the latest finds below
it: at most as many of each arm, whatever tree the arm is in. Where an arm belongs is told by its first finds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treetop.arrays import Bools, Int64s
from treetop.learning.arm_totals import ArmTotals
from treetop.learning.placement import VOTES
from treetop.learning.pooled import Pooled
from treetop.learning.routing_samples import WINDOW
from treetop.learning.samples import reached_step


def samples_read(learner: Pooled, summed: Int64s, now: ArmTotals) -> Int64s:
    """(arms,): how many samples of each arm, the latest of the rounds that are summed up, a refit may still read.

    `summed` is how many the arm has in these rounds, `now` what all rounds add up to. Samples beyond an arm's step
    wait, so that its window ends there.

    >>> now = ArmTotals.none(np.zeros(2, bool))
    >>> now.shown[:] = 1_000_000, 10
    >>> samples_read(Pooled(), now.shown, now).tolist()
    [95033, 65536]
    """
    step = reached_step(now.shown, learner.mechanisms.growth)
    return np.asarray(np.maximum(WINDOW, learner.window + summed - step))


class Windows:
    """Says of samples, in the order of rounds, whether they are still read.

    - `samples`, `finds` (arms,): how many of each arm there are in all
    - `read` (arms,): how many of its samples, the latest ones, are read

    >>> windows = Windows(samples=np.array([3]), finds=np.array([0]), read=np.array([2]))
    >>> windows.needed(np.zeros(3, int), np.zeros(3)).tolist()
    [False, True, True]
    """

    def __init__(self, samples: Int64s, finds: Int64s, read: Int64s) -> None:
        self._left, self._finds_left, self._read = samples.copy(), finds.copy(), read
        self._given: Int64s = np.zeros(len(finds), np.int64)

    def needed(self, arm: Any, reward: Any) -> Bools:
        """Of some more samples."""
        found = reward > 0
        needed = np.asarray(self._left[arm] - _earlier(arm) <= self._read[arm])
        its, before = arm[found], _earlier(arm[found])
        needed[found] |= self._finds_left[its] - before <= WINDOW
        needed[found] |= self._given[its] + before < VOTES
        n = len(self._left)
        finds = np.bincount(its, minlength=n)
        self._left -= np.bincount(arm, minlength=n)
        self._finds_left -= finds
        self._given += finds
        return needed


def _earlier(group: Any) -> Int64s:
    """How many of the same group stand before each."""
    order = np.argsort(group, kind="stable")
    its = group[order]
    out = np.empty(len(group), np.int64)
    out[order] = np.arange(len(group)) - np.searchsorted(its, its)
    return out
