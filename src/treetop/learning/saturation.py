"""How much arms of one group take from each other's rewards: learned from what slots brought below others of it.

    reward = scale of the slot * score * prod over the slots above of (1 - saturation * score), of those of its group

(`Coverage.saturation`; for arms of several groups see there.) Scores are those of the components that were logged when
the slot was decided, so by models that had not seen the reward. A scale for each slot takes up what else its position
does: saturation is told from slots at one position with and without others of their group above.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treetop.arrays import Floats, Ints
from treetop.model.coverage import Coverage
from treetop.model.model import Model
from treetop.records import Feedback

LATEST = 1 << 14  # rounds, the latest ones, that count
FORCE = 1000  # slots that say that nothing saturates
LOWEST = 0.2  # that a reward is divided by
TRIED = tuple(i / 20 for i in range(21))  # few, so that rewards of old rounds are rarely corrected anew
AT_ONCE = 1 << 12  # rounds


def with_saturation(model: Model, saturation: float) -> Model:
    """The model with another saturation; as it is where arms cover nothing.

    >>> from treetop.tree.tree import Tree
    >>> model = Model.initial(Tree(parents=[-1, 0], leaf_of=[1, 1]), np.ones((4, 1)), np.ones((4, 2)))
    >>> with_saturation(model, 0.5) is model
    True
    >>> covering = replace(model, coverage=Coverage.of_categories(["tea", "tea"]))
    >>> with_saturation(covering, 0.5).coverage.saturation
    0.5
    """
    if model.coverage is None or model.coverage.saturation == saturation:
        return model
    return replace(model, coverage=replace(model.coverage, saturation=saturation))


def learned_saturation(model: Model, feedback: Feedback) -> float:
    """By least squares over the latest rounds, in [0, 1]; 0 where no components were logged or arms cover nothing.

    >>> from treetop.model.pooled_state import PooledState
    >>> from treetop.tree.tree import Tree
    >>> X, nothing = np.ones((8000, 1), np.float32), np.zeros(3, np.int32)
    >>> state = PooledState(means=[0.0, 0.0], sample_count=nothing, trial_value=nothing)
    >>> model = Model.initial(Tree(parents=[-1, 0], leaf_of=[1, 1, 1]), X[:1], np.ones((1, 3)))
    >>> model = replace(model, pooled=state, coverage=Coverage.of_categories(["tea", "jam", "tea"]))
    >>> arms = np.stack([np.arange(8000) % 2, np.full(8000, 2)], axis=1)  # half of the second below one of its group
    >>> rewards = np.stack([np.full(8000, 0.8), np.where(arms[:, 0] == 0, 0.5 * (1 - 0.6 * 0.8), 0.5)], axis=1)
    >>> said = np.tile([[0.8, 0.0], [0.5, 0.0]], (8000, 1, 1))
    >>> round(learned_saturation(model, Feedback(X, arms, None, rewards, components=said)), 1)
    0.6
    """
    score = _said(model, feedback)
    if score is None or model.coverage is None:
        return 0.0
    last = slice(max(0, len(feedback) - LATEST), None)
    rewards, score = feedback.rewards[last].astype(np.float64), score[last]
    known = feedback.observed[last] & ~np.isnan(score)
    score = np.nan_to_num(score)
    covers, part = _covers(model.coverage, feedback.arms[last]), FORCE / max(1, int(known.sum()))

    def error(saturation: float) -> float:
        foreseen, found = score * _factors(*covers, score, saturation), 0.0
        for slot in range(score.shape[1]):
            s, f, r = (each[known[:, slot], slot] for each in (score, foreseen, rewards))
            scale = float(f @ r) / max(float(f @ f), 1e-12)
            found += float(((r - scale * f) ** 2).sum()) + part * scale**2 * float(((s - f) ** 2).sum())
        return found

    return min(TRIED, key=error)


def unsaturated(model: Model, feedback: Feedback) -> Feedback:
    """The feedback with rewards as they would be without others of their groups above, by the model's saturation.

    >>> from treetop.tree.tree import Tree
    >>> model = Model.initial(Tree(parents=[-1, 0], leaf_of=[1, 1]), np.ones((4, 1)), np.ones((4, 2)))
    >>> shown = Feedback([[1.0]], [[0, 1]], None, [[0.5, 0.25]])
    >>> unsaturated(model, shown) is shown  # nothing saturates
    True
    """
    score, coverage = _said(model, feedback), model.coverage
    if score is None or coverage is None or coverage.saturation == 0:
        return feedback
    factors = np.maximum(slot_factors(coverage, feedback.arms, np.nan_to_num(score)), LOWEST)
    rewards = np.where(np.isnan(score), feedback.rewards, feedback.rewards / factors).astype(np.float32)
    return replace(feedback, rewards=rewards, reward_range=None)


def slot_factors(coverage: Coverage, arms: Ints, score: Floats) -> Floats:
    """(n, k): which part of its score each slot has below the others; arms (n, k), -1 for none, scores in [0, 1].

    >>> teas = replace(Coverage.of_categories(["tea", "tea", "tea", "jam"]), saturation=0.5)
    >>> slot_factors(teas, np.array([[0, 3, 1, 2]]), np.array([[0.5, 1.0, 0.5, 1.0]])).tolist()
    [[1.0, 1.0, 0.75, 0.5625]]
    """
    return _factors(*_covers(coverage, arms), score, coverage.saturation)


def _said(model: Model, feedback: Feedback) -> Floats | None:
    """(n, k): scores in [0, 1] by the components that were logged, NaN where these are not known; None without any."""
    pooled, said = model.pooled, feedback.components
    if pooled is None or said is None or said.shape[2] != len(pooled.weights):
        return None
    return np.asarray(np.clip(said.astype(np.float64) @ np.array(pooled.weights), 0, 1))


def _factors(groups: Ints, shares: Floats, score: Floats, saturation: float) -> Floats:
    """Of the groups of slots and their shares of them, (n, k, m) each."""
    found = np.ones(score.shape)
    takes = saturation * shares * score[:, :, None]
    for first in range(0, len(score), AT_ONCE):
        rows = slice(first, first + AT_ONCE)
        for slot in range(1, score.shape[1]):
            free = np.ones(shares[rows, slot].shape)
            for above in range(slot):
                same = groups[rows, slot, :, None] == groups[rows, above, None, :]
                free *= np.where(same, 1 - takes[rows, above, None, :], 1.0).prod(axis=2)
            found[rows, slot] = (1 - shares[rows, slot] * (1 - free)).prod(axis=1)
    return found


def _covers(coverage: Coverage, arms: Ints) -> tuple[Ints, Floats]:
    """The groups of each arm and its shares of them, (n, k, m) each; a share is 0 where there is none."""
    first, last = coverage.start[np.maximum(arms, 0)], coverage.start[np.maximum(arms, 0) + 1]
    place = first[:, :, None] + np.arange(max(1, int((last - first).max(initial=0))))
    has = (place < last[:, :, None]) & (arms[:, :, None] >= 0)
    place = np.where(has, place, 0)
    group, share = (np.append(values, 0) for values in (coverage.group, coverage.share))  # for arms without any
    return group[place].astype(np.int32), np.where(has, share[place].astype(np.float64), 0.0)
