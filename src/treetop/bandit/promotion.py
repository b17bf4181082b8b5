"""From feedback to the next model of a bandit: the fit, and the checks that a model must pass before it serves."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from treetop.arrays import Floats, Ints, as_rows
from treetop.errors import InvalidModel
from treetop.learning.history import History
from treetop.learning.linear import Linear
from treetop.learning.pooled import Pooled
from treetop.learning.refit import Learner, warn_of_forgotten
from treetop.learning.shards import Resources
from treetop.learning.streamed import learn_streamed
from treetop.learning.streamed_linear import learn_linear_streamed
from treetop.model.feature_scale import raised_scale
from treetop.model.model import Model
from treetop.model.pooled_state import PooledState
from treetop.policy.policy import Policy
from treetop.records import Feedback

VALIDATION_CONTEXTS = 256  # decided by a new model before it serves


def streamed_fit(
    base: Model,
    history: History,
    learner: Learner,
    epoch: int,
    work: Path,
    resources: Resources,
    trials: Ints | None = None,
) -> tuple[Model, tuple[str, ...]]:
    """The model that follows `base`, with the given epoch, and the learner's warnings; its weights and its serving
    layout are in the folder `work`.

    `trials` (n_arms,) is how often new arms were shown (`trials_until`), whether or not a reward was observed.

    >>> import tempfile
    >>> from treetop.learning.history import HistoryWriter
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(4, dtype=np.float32)
    >>> base = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> shown = Feedback(X, arms=[[0], [1], [2], [3]], nodes=None, rewards=[[1], [0], [1], [0]])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     writer = HistoryWriter(Path(place, "history"), columns=4, late=np.zeros(4, bool))
    ...     writer.add(shown)
    ...     model, warned = streamed_fit(base, writer.done(shown), Pooled(), 7, Path(place), Resources())
    ...     model.epoch, model.n_seen, warned
    (7, 4, ())
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_forgotten(base, len(history))
        if isinstance(learner, Linear):
            model = learn_linear_streamed(learner, base, history, work, resources)
        else:
            assert isinstance(learner, Pooled)
            model = learn_streamed(learner, base, history, work, resources)
    past = None if history.past is None else history.past.values
    scale = raised_scale(base.feature_scale, history.new_contexts, past)
    model = replace(model, epoch=epoch, feature_scale=scale, pooled=_counted(model, trials)).backed_by(work)
    return model, tuple(str(warning.message) for warning in caught)


def _counted(model: Model, trials: Ints | None) -> PooledState | None:
    """What the model's learner added to it, with these counts of trials of the arms that are new."""
    pooled = model.pooled
    if pooled is None or pooled.new_trials is None or trials is None:
        return pooled
    return replace(pooled, new_trials=np.where(pooled.new_trials >= 0, trials, -1).astype(np.int32))


def validate(model: Model, base: Model, feedback: Feedback | History, policy: Policy) -> None:
    """Raises InvalidModel unless a new model has the shape of `base` and decides contexts of the feedback properly.

    >>> from treetop.learning.refit import refit
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(4, dtype=np.float32)
    >>> base = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> shown = Policy(k=2, explore=1).decide_batch(base, X, seed=0)
    >>> feedback = Feedback.of(X, shown, X[np.arange(4)[:, None], shown.arms])
    >>> model = refit(base, feedback)
    >>> validate(model, base, feedback, Policy(k=2, explore=1))
    >>> smaller = Model.initial(Tree.from_labels(X, X[:, :3], max_leaf=2), X, X[:, :3])
    >>> validate(smaller, base, feedback, Policy(k=2, explore=1))
    Traceback (most recent call last):
    treetop.errors.InvalidModel: the new model has 3 arms and 4 features; 4 and 4 are needed
    """
    if (model.n_arms, model.n_features) != (base.n_arms, base.n_features):
        raise InvalidModel(
            f"the new model has {model.n_arms} arms and {model.n_features} features; "
            f"{base.n_arms} and {base.n_features} are needed"
        )
    rows = np.unique(np.linspace(0, len(feedback) - 1, VALIDATION_CONTEXTS).astype(int))
    some = feedback.rows(rows) if isinstance(feedback, History) else as_rows(feedback.contexts.csr()[rows])
    shown = policy.decide_batch(model, some, seed=0)
    filled = shown.arms >= 0
    propensities: Floats = shown.propensities[filled]
    if filled.sum() != len(some) * min(policy.k, model.n_arms):
        raise InvalidModel(f"the new model fills {int(filled.sum())} slots of {len(some)} decisions")
    if not (np.isfinite(shown.scores[filled]).all() and (propensities > 0).all() and (propensities <= 1).all()):
        raise InvalidModel("the new model gives scores that are not finite or propensities outside (0, 1]")
