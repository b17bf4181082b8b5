"""What exploration has cost, by the log alone: the reward that events would have brought without any draw.

Knows neither model nor strategy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetop.arrays import Bools, Floats, Ints
from treetop.log.greedy_slates import greedy_weights, spent_share


@dataclass(frozen=True)
class ExplorationSpent:
    """`share` of the greedy reward that exploration gave up, and its standard `error`; NaN where the log cannot say."""

    share: float
    error: float
    events: int


def exploration_spent(
    rewards: Floats | Any, propensities: Floats | Any, explored: Bools | Any, nodes: Ints | Any
) -> ExplorationSpent:
    """Of logged events with a strategy that marks a slot as explored if it does not show the best (`Budgeted`).

    `greedy_slates.py` in `treetop.log` has the estimator. Events without an observed reward are left out; a slot
    without one counts as 0.

    >>> last = np.array([False, False, False, True])
    >>> p = np.array([[0.75]] * 3 + [[0.25]])
    >>> exploration_spent(np.array([[1.0]] * 3 + [[0.0]]), p, last[:, None], np.full((4, 1), -1)).share
    0.25
    """
    rewards, propensities = np.atleast_2d(rewards).astype(np.float64), np.atleast_2d(propensities).astype(np.float64)
    seen = ~np.isnan(rewards).all(axis=1)
    reward = np.nansum(rewards[seen], axis=1)
    weight = greedy_weights(np.atleast_2d(explored)[seen], propensities[seen], np.atleast_2d(nodes)[seen])
    share = spent_share(len(reward), float(reward.sum()), float(weight.sum()), float((reward * weight).sum()))
    if math.isnan(share):
        return ExplorationSpent(share, share, len(reward))
    lost = (reward - reward.mean()) * (weight - 1)
    error = float(lost.std()) / math.sqrt(len(lost)) / float(reward.mean() + lost.mean())
    return ExplorationSpent(share, error, len(reward))
