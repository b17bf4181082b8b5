"""What decisions would have brought without exploration, by inverse propensity weighting. Knows no strategy.

A decision counts by w = 1 / (product of its slots' propensities) if none of its slots was explored, and not at all
otherwise: on average w is 1, and w times the reward is the reward of the best of every slot. This holds for a
strategy that marks a slot as explored if it does not show the best (`Budgeted`).
"""

from __future__ import annotations

import math

import numpy as np

from treetop.arrays import Bools, Floats, Ints


def greedy_weights(explored: Bools, propensities: Floats, nodes: Ints) -> Floats:
    """(n,): w of each decision. An arm of a node that was the best was drawn without exploring: it counts as certain.

    >>> none = np.array([[False, False], [False, True]])
    >>> greedy_weights(none, np.full((2, 2), 0.5), np.full((2, 2), -1))
    array([4., 0.])
    """
    chance = np.where((nodes >= 0) | (propensities <= 0), 1.0, propensities)
    return np.where(explored.any(axis=1), 0.0, 1 / np.where(explored, 1.0, chance).prod(axis=1))


def spent_reward(decisions: float, reward: float, weight: float, weighted_reward: float) -> float:
    """The reward that exploration gave up in all, by the same sums; it may be negative, as rewards may.

    The sum of R w - R - mean(R) (w - 1) has the expectation of that of R w - R, and varies less. NaN if no decision was
    free of exploration.

    >>> spent_reward(decisions=4, reward=-3.0, weight=4.0, weighted_reward=-2.0)
    1.0
    """
    if decisions <= 0 or weight <= 0:
        return math.nan
    return weighted_reward - reward - reward / decisions * (weight - decisions)


def spent_error(batches: Floats) -> float:
    """The standard error of `spent_reward`, by how it varies between batches of decisions: a row of its sums for each.

    NaN if there are fewer than two.

    >>> spent_error(np.array([[10, 5.0, 11, 5.5], [10, 5.0, 11, 5.5]]))
    0.0
    >>> round(spent_error(np.array([[10, 5.0, 11, 6.5], [10, 5.0, 11, 5.5]])), 9)
    1.0
    """
    if len(batches) < 2:
        return math.nan
    decisions, reward, weight, weighted_reward = batches.T
    share = decisions / decisions.sum()
    spent = weighted_reward - reward - reward.sum() / decisions.sum() * (weight - decisions)
    apart = spent - share * spent.sum()
    return math.sqrt(len(batches) / (len(batches) - 1) * float(apart @ apart))


def spent_share(decisions: float, reward: float, weight: float, weighted_reward: float) -> float:
    """The share of the greedy reward that exploration gave up, by sums over decisions of 1, R, w and R w.

    NaN if no decision was free of exploration, or if the greedy reward is not positive: then there is no such share.

    >>> round(spent_share(decisions=4, reward=3.0, weight=4.0, weighted_reward=4.0), 9)
    0.25
    """
    lost = spent_reward(decisions, reward, weight, weighted_reward)
    return lost / (reward + lost) if reward + lost > 0 else math.nan
