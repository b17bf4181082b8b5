"""Doubly robust (Dudik et al. 2011), slot by slot (for cascades Kiyohara et al. 2022):

    sum_s  W_{s-1} E[f | slots before]  +  W_s (r_s - f(a_s))

and for whole slates, whatever a reward depends on (the recursion of Jiang and Li 2016 with the slots as steps):

    W_k sum_s r_s  -  sum_s (W_s q_s(a_s) - W_{s-1} E[q_s | slots before])      q_s = f of slots 1..s, means of the rest

f is the candidate's own reward model: `score` of the effective arm that stands for the arm shown, `expected` its mean
over what the candidate may show in the slot. Right if the weights are, whatever f says; the better f, the less it
varies. f never saw the rounds it is judged on: a model that serves is older than its rounds, and a model that is named
is judged only on rounds that were decided with its epoch or later ones.
"""

from __future__ import annotations

import numpy as np

from treetop.arrays import Floats
from treetop.evaluation.control import Lines, controlled_terms
from treetop.evaluation.judged import Judged


def doubly_robust_terms(rounds: Judged, weights: Floats) -> Floats:
    """(n,): what each round says of the value. It is never below -(largest weight) times the number of slots.

    >>> one = np.ones((1, 1))
    >>> known = Judged(one, 2 * one, one, np.ones(1), 0.75 * one, 0.5 * one, np.zeros((1, 1, 0)), one > 0)
    >>> doubly_robust_terms(known, known.prefix_weights())  # 0.5 + 2 (1 - 0.75)
    array([1.])
    """
    before = np.concatenate([np.ones((len(rounds), 1)), weights[:, :-1]], axis=1)
    terms = before * rounds.expected + weights * (rounds.rewards - rounds.score)
    return np.asarray(np.where(rounds.filled, terms, 0.0).sum(axis=1))


def doubly_robust_slate_terms(rounds: Judged, weights: Floats, means: Floats) -> Floats:
    """The same of whole slates; `means` (k,) are the rewards of each slot on average, by other rounds.

    >>> one = np.ones((1, 1))
    >>> known = Judged(one, 2 * one, one, np.ones(1), 0.75 * one, 0.5 * one, np.zeros((1, 1, 0)), one > 0)
    >>> doubly_robust_slate_terms(known, known.prefix_weights(), np.zeros(1))
    array([1.])
    """
    lines = Lines.identity(rounds.rewards.shape[1], means)
    return np.asarray(controlled_terms(rounds, weights, lines, True, [np.inf])[0][0])
