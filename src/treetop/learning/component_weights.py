"""How much each component of a score counts: ridge regression of rewards on what the components said beforehand."""

from __future__ import annotations

import numpy as np

from treetop.arrays import Floats
from treetop.records import Feedback

# The pooled mean, the arm's own regressor; before there is any round: with labels, from which routing has learned
# nearly all that regressors could add, and without.
FIRST, UNLABELLED_FIRST = (1.0, 0.05), (1.0, 0.75)
FORCE = 1000  # slots that the first weights count as
HALF_LIFE = 5000  # rounds after which a slot counts half
RECENT = 64 * HALF_LIFE  # rounds, the latest ones, that count at all: what older ones would add is below any rounding
# What a component that says next to nothing, and happens to be right, is multiplied by at most; regressors of what the
# others leave over are right at 1, and larger weights are luck.
LARGEST = 10.0, 1.0, 10.0


def component_weights(feedback: Feedback, first: tuple[float, ...] = FIRST) -> tuple[float, ...]:
    """The weights of the components by the rounds in which they were logged, recent ones first; `first` before any.

    What a component said when the slot was decided was said by a model that had not seen the reward: a component that
    does not help gets no weight. Arms drawn through nodes are left out: their score was not theirs.

    >>> said = np.tile([[0.5, 0.0], [0.0, 0.5]], (4000, 1))[:, None, :]  # only the first is ever right
    >>> rewards = np.tile([0.5, 0.0], 4000)[:, None]
    >>> shown = Feedback(np.ones((8000, 1)), np.zeros((8000, 1), int), None, rewards, components=said)
    >>> [round(w, 2) for w in component_weights(shown, (1.0, 0.75))]
    [1.0, 0.13]
    """
    given = feedback.components
    if given is None or given.shape[2] != len(first):
        return first
    known = feedback.observed & (feedback.nodes < 0) & ~np.isnan(given).any(axis=2)
    known[: max(0, len(feedback) - RECENT)] = False
    t, slot = np.nonzero(known)
    if len(t) == 0:
        return first
    said, reward = given[t, slot].astype(np.float64), feedback.rewards[t, slot].astype(np.float64)
    count = 0.5 ** ((len(feedback) - 1 - t) / HALF_LIFE)
    return _shrunk(said, reward, count, np.array(first))


def _shrunk(said: Floats, reward: Floats, count: Floats, first: Floats) -> tuple[float, ...]:
    """Least squares, with the first weights as FORCE more slots like these. None is negative: a component that was
    wrong counts nothing, and what it has learned since is not turned against the arms that it is about."""
    products = said.T @ (count[:, None] * said)
    force = np.diag(np.diag(products) / count.sum() * FORCE + 1e-12)
    left, right = products + force, said.T @ (count * reward) + force @ first
    found, some = np.zeros(len(first)), np.arange(len(first))
    while len(some):
        found[:] = 0
        found[some] = np.linalg.solve(left[np.ix_(some, some)], right[some])
        if (found >= 0).all():
            break
        some = np.delete(some, found[some].argmin())
    return tuple(np.clip(found, 0, LARGEST[: len(found)]).tolist())
