"""Feedback to the next model: the one call that every caller makes, whatever the learner. Knows no samples."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Protocol

from treetop.effort import Progress
from treetop.learning.linear import Linear
from treetop.model.model import Model
from treetop.records import Feedback


class Learner(Protocol):
    """Anything that makes the next model from the last one and all past feedback."""

    def learn(self, model: Model, feedback: Feedback, progress: Progress | None = None) -> Model: ...


def refit(model: Any, feedback: Feedback, learner: Learner | None = None, *, progress: Progress | None = None) -> Any:
    """The next epoch's model: every reward model with data fitted on all past feedback. The old model still serves.

    `feedback` is the whole history (`history + today`): what is not in it is forgotten. `n_seen` of the new model
    counts all its rounds, those without an observed reward included. A reward model whose samples have not changed is
    copied; fitting it again would give the same weights. `learner` is `Linear()`, the paper's, if none is given.
    `progress(done, total)` is called ten times a second, in samples.

    >>> import numpy as np
    >>> from treetop.tree.tree import Tree
    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> monday = Feedback(X, arms=[[0], [1], [2], [3]], nodes=None, rewards=[[1], [1], [0], [float("nan")]])
    >>> learned = refit(model, monday)
    >>> learned.epoch, learned.n_seen, np.diff(learned.reward_rows.start)[-4:].tolist()
    (1, 4, [2, 2, 0, 0])
    """
    if not isinstance(feedback, Feedback):
        raise TypeError(f"feedback must be a Feedback, not {type(feedback).__name__}")
    if not (learner is None or callable(getattr(learner, "learn", None))) or isinstance(learner, type):
        raise TypeError(f"learner must be a Linear or Pooled, not {learner!r}")
    if not callable(getattr(model, "refit", None)) and not isinstance(model, Model):
        raise TypeError(f"{type(model).__name__} is not a model that can be refitted")
    if not isinstance(model, Model):
        if learner is not None:
            raise ValueError(f"{type(model).__name__} has an oracle of its own; learner={learner!r} is not for it")
        return model.refit(feedback)
    warn_of_forgotten(model, len(feedback))
    learned: Model = (learner or Linear()).learn(model, feedback, progress)
    return learned


def warn_of_forgotten(model: Model, rounds: int) -> None:
    """Warns if a model has seen more rounds than there are to learn from.

    >>> import numpy as np
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(2, dtype=np.float32)
    >>> warn_of_forgotten(Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, X), rounds=3)  # it has seen none
    """
    if rounds < model.n_seen:
        text = f"the feedback has {rounds} rounds, the model has seen {model.n_seen}: the others are forgotten"
        warnings.warn(text, stacklevel=3)


def initial_fit(base: Model, learner: Learner) -> Model:
    """A first model with what the learner knows before there is any feedback, such as labelled rows.

    >>> import numpy as np
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(4, dtype=np.float32)
    >>> base = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> initial_fit(base, Linear()).n_seen
    0
    """
    return replace(learner.learn(base, Feedback.none(base.n_features, 1)), epoch=base.epoch)
