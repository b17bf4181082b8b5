"""Clusters from the tree with a correction by the reward model (OffCEM; Saito, Ren and Joachims 2023):

    sum_s  W'_{s-1} E[f | slots before]  +  W'_s (r_s - f(a_s))          W' as in `mips`

The weights are those of nodes, and the reward model says how the arms of a node differ. It is right if that
difference is, even if the level is not.
"""

from __future__ import annotations

from treetop.arrays import Floats
from treetop.evaluation.doubly_robust import doubly_robust_terms
from treetop.evaluation.judged import Judged
from treetop.evaluation.mips import node_weights


def offcem_terms(rounds: Judged, height: int) -> Floats:
    """(n,): what each round says of the value.

    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> sibling = Judged(one, 0 * one, one, np.ones(1), 0.5 * one, 0.7 * one, np.full((1, 1, 1), 1.0), one > 0)
    >>> offcem_terms(sibling, height=0)  # 0.7 + 1 - 0.5
    array([1.2])
    """
    return doubly_robust_terms(rounds, node_weights(rounds, height))
