"""Feedback to the next model: the one call that every caller makes, whatever the learner. Knows no samples."""

from __future__ import annotations

from dataclasses import replace

from treetop.learning.linear import Learner
from treetop.model.model import Model
from treetop.records import Feedback


def initial_fit(base: Model, learner: Learner) -> Model:
    """A first model with what the learner knows before there is any feedback, such as labelled rows.

    >>> from treetop.learning.linear import Linear
    >>> from treetop.tree.tree import Tree
    >>> import numpy as np
    >>> X = np.eye(4, dtype=np.float32)
    >>> base = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> initial_fit(base, Linear()).n_seen
    0
    """
    return replace(learner.learn(base, Feedback.none(base.n_features, 1)), epoch=base.epoch)
