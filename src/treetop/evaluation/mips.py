"""Marginalised inverse propensity scoring with the tree as the embedding (Saito and Joachims 2022).

The weight of a slot is not that of the arm but of the node that it is below, at some height of the tree: the chance
that the slot shows any arm of that node, under the candidate and under the log, both exact. Weights are smaller and
rounds that showed a sibling say something too. The price is an assumption: arms of one node earn alike in one context.
Over several slots the next draw is also taken to depend on the slots before by their nodes only.
"""

from __future__ import annotations

import numpy as np

from treetop.arrays import Floats
from treetop.evaluation.judged import Judged


def node_weights(rounds: Judged, height: int) -> Floats:
    """(n, k): how much more likely the nodes of the slots up to each are; `height` counts the cuts of `node_ratio`.

    >>> one = np.ones((1, 1))
    >>> sibling = Judged(one, 0 * one, one, np.ones(1), 0 * one, 0 * one, np.full((1, 1, 1), 0.5), one > 0)
    >>> node_weights(sibling, height=0)
    array([[0.5]])
    """
    return np.asarray(np.cumprod(np.where(rounds.filled, rounds.node_ratio[:, :, height], 1.0), axis=1))
