"""How much each component of a score counts: ridge regression of rewards on what the components said beforehand."""

from __future__ import annotations

import numpy as np

from treetop.arrays import Floats
from treetop.records import Feedback

# The pooled mean, the arm's own regressor; before there is any round: with labels, from which routing has learned what
# regressors could add, and without.
FIRST, UNLABELLED_FIRST = (1.0, 0.0), (1.0, 0.75)
FORCE = 1000  # slots that the first weights count as
HALF_LIFE = 5000  # rounds after which a slot counts half
RECENT = 64 * HALF_LIFE  # rounds, the latest ones, that count at all: what older ones would add is below any rounding
LARGEST = 10.0  # what a component that says next to nothing, and happens to be right, is multiplied by at most


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
    """Least squares, with the first weights as FORCE more slots like these."""
    products = said.T @ (count[:, None] * said)
    force = np.diag(np.diag(products) / count.sum() * FORCE + 1e-12)
    found = np.linalg.solve(products + force, said.T @ (count * reward) + force @ first)
    return tuple(np.clip(found, -LARGEST, LARGEST).tolist())
