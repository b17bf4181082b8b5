"""How often what stands at each position is looked at, and rewards as they would be if all were.

    reward at position p = examined[p] * reward if looked at,    examined[1] = 1

What was expected of slots is compared with what they brought, position by position; what all positions have in common
cancels out. The best stand first, so that what was expected has to be right: with item vectors it is a curve over the
owner's measure times what each arm brings at all positions, and curve, arms and factors are fitted in turn until all
explain the rewards (the position-based click model; Richardson, Dominowska, Ragno 2007). Else the deciding models' word
counts, and of slots that no model has decided, those of a past log, the arms and factors are fitted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treetop.arrays import Floats, Int64s
from treetop.learning.measured import fitted_curve
from treetop.model.model import Model
from treetop.records import Feedback

FORCE = 10.0  # rewards that say that a position is looked at like the first, and the first like all
LOWEST, HIGHEST = 0.05, 2.0  # of a position's factor
ROUNDS = 20  # of curve and factors
LATEST = 1 << 16  # slots, the latest ones, that factors are learned from
LEAST = 1e-3  # that is expected of any slot
ARM_FORCE = 5.0  # rewards that say that an arm brings what was expected
POSITIONS = 100  # that have a factor of their own; those behind have that of the last


def examined_factors(position: Floats, reward: Floats, expected: Floats) -> tuple[float, ...]:
    """The factors of positions 1, 2, ..., by slots with a known position, what they brought and what was expected.

    None where rewards are negative: sums of gains and losses say nothing about how often either was looked at.

    >>> position, expected = np.tile([1, 2], 1000), np.ones(2000)
    >>> [round(f, 2) for f in examined_factors(position, np.tile([0.8, 0.4], 1000), expected)]
    [1.0, 0.51]
    """
    if not len(position) or (reward < 0).any():
        return ()
    at = np.minimum(position, POSITIONS).astype(np.int64)
    brought, wanted = np.bincount(at, reward)[1:], np.bincount(at, expected)[1:]
    if not (wanted[0] > 0 and brought[0] > 0):
        return ()
    first = (brought[0] + FORCE) / (wanted[0] + FORCE * wanted.sum() / brought.sum())
    factors = (brought + FORCE) / (wanted * first + FORCE)
    return 1.0, *np.clip(factors[1:], LOWEST, HIGHEST).tolist()


def if_examined(model: Model, feedback: Feedback) -> tuple[Feedback, tuple[float, ...]]:
    """The feedback with rewards divided by the factors of their positions, and these factors; as it is and none where
    nothing says position.

    >>> from treetop.tree.tree import Tree
    >>> X = np.ones((2000, 1), np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X[:2], np.eye(2))
    >>> arms, rewards = np.tile([[0, 1], [1, 0]], (1000, 1)), np.tile([1.0, 0.5], (2000, 1))  # each at both positions
    >>> shown = Feedback(X, arms, None, rewards, positions=np.tile([1, 2], (2000, 1)))
    >>> if_examined(model, shown)[0].rewards.mean(axis=0).round(2)
    array([1.  , 0.99], dtype=float32)
    """
    if feedback.positions is None or not (known := feedback.observed & (feedback.positions > 0)).any():
        return feedback, ()
    factors = _factors(model, feedback, *np.nonzero(known))
    return corrected(feedback, factors), factors


def corrected(feedback: Feedback, factors: tuple[float, ...]) -> Feedback:
    """The feedback with rewards divided by the factors of their positions; as it is without any.

    >>> shown = Feedback([[1.0]], [[4, 2]], None, [[0.5, 0.25]], positions=[[1, 2]])
    >>> corrected(shown, (1.0, 0.5)).rewards
    array([[0.5, 0.5]], dtype=float32)
    """
    if not factors or feedback.positions is None:
        return feedback
    t, slot = np.nonzero(feedback.observed & (feedback.positions > 0))
    rewards = feedback.rewards.copy()
    rewards[t, slot] /= np.array(factors)[np.minimum(feedback.positions[t, slot], len(factors)) - 1]
    return replace(feedback, rewards=rewards, reward_range=None)


def _factors(model: Model, feedback: Feedback, t: Int64s, slot: Int64s) -> tuple[float, ...]:
    """The factors of positions, by the latest of these slots: they and what is expected of slots are fitted in turn."""
    t, slot = t[-LATEST:], slot[-LATEST:]
    position, arm = np.minimum(feedback.positions[t, slot], POSITIONS), feedback.arms[t, slot]
    reward, said = feedback.rewards[t, slot].astype(np.float64), _said(model, feedback)[t, slot]
    values = None
    if model.item_vectors is not None and model.measure is not None:
        values = model.measure.values(feedback.contexts, model.item_vectors, t, arm, model.context_map)
    factors: tuple[float, ...] = (1.0,) * int(position.max())
    effect = np.ones(len(reward))
    for _ in range(ROUNDS):
        looked = np.array(factors)[position - 1]
        if values is not None and model.measure is not None:
            slope, offset = fitted_curve(model.measure, values, reward / (looked * effect), looked * effect)
            expected = 1 / (1 + np.exp(-np.clip(slope * values + offset, -500, 500)))
            effect = _arm_effect(arm, reward, looked * expected)
        else:
            expected = np.where(np.isnan(said), max(reward.sum() / looked.sum(), LEAST), said)
            effect = np.where(np.isnan(said), _arm_effect(arm, reward, looked * expected), 1.0)
        factors = examined_factors(position, reward, np.maximum(expected * effect, LEAST))
        if not factors:
            break
    return factors


def _arm_effect(arm: Int64s, reward: Floats, expected: Floats) -> Floats:
    """How many times what was expected of their slots the arms of slots have brought, by all of an arm's slots."""
    brought, wanted = np.bincount(arm, reward), np.bincount(arm, expected)
    return np.asarray(((brought + ARM_FORCE) / (wanted + ARM_FORCE))[arm])


def _said(model: Model, feedback: Feedback) -> Floats:
    """(rounds, slots): what all components but the owner's measure said when slots were decided; NaN if unknown."""
    pooled, said = model.pooled, feedback.components
    if said is None or pooled is None or said.shape[2] != len(pooled.weights):
        return np.full(feedback.arms.shape, np.nan)
    pool, own = (said[:, :, i].astype(np.float64) * pooled.weights[i] for i in range(2))
    return np.asarray(pool + own)
