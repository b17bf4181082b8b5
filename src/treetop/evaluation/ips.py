"""Inverse propensity scoring: rewards weighed by how much more likely the candidate is to show what was shown.

Whole slates (Horvitz and Thompson 1952), without any assumption on rewards:

    W_k sum_s r_s                     W_s = prod_{j <= s} P(a_j | a_1..a_{j-1}) of the candidate / of the log

Slot by slot (the cascade of Li et al. 2018 and McInerney et al. 2020), where the reward of a slot does not depend on
the slots below it:

    sum_s W_s r_s

Both come with their complements, weights times what was not earned, W (slots - reward). These are not negative either,
and have the mean slots - value: a lower bound of theirs is an upper bound of the value, for which no weight has to be
bounded (Waudby-Smith et al. 2022). Where the candidate shows what the log never does, both means are too low, so both
bounds still hold.
"""

from __future__ import annotations

import numpy as np

from treetop.arrays import Floats
from treetop.evaluation.judged import Judged


def slate_terms(rounds: Judged, weights: Floats) -> tuple[Floats, Floats]:
    """(n,) each: what a round says of the value, and of its complement.

    >>> one = np.ones((1, 2))
    >>> rest = np.ones(1), 0 * one, 0 * one, np.zeros((1, 2, 0)), one > 0
    >>> half = Judged(one, 0.5 * one, np.array([[1.0, 0.0]]), *rest)
    >>> slate_terms(half, half.prefix_weights())
    (array([0.25]), array([0.25]))
    """
    whole, earned = weights[:, -1], rounds.rewards.sum(axis=1)
    return whole * earned, whole * (rounds.slots - earned)


def slot_terms(rounds: Judged, weights: Floats) -> tuple[Floats, Floats]:
    """The same slot by slot.

    >>> one = np.ones((1, 2))
    >>> rest = np.ones(1), 0 * one, 0 * one, np.zeros((1, 2, 0)), one > 0
    >>> half = Judged(one, 0.5 * one, np.array([[1.0, 0.0]]), *rest)
    >>> slot_terms(half, half.prefix_weights())
    (array([0.5]), array([0.25]))
    """
    missed = np.where(rounds.filled, 1 - rounds.rewards, 0.0)
    return (weights * rounds.rewards).sum(axis=1), (weights * missed).sum(axis=1)
