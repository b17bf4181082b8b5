"""What a refit of a bandit should make, by its learner with all rounds in memory: the twin of refits from disk."""

import warnings
from dataclasses import replace

from treetop.arrays import Ints
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.config import Config
from treetop.bandit.promotion import _counted
from treetop.bandit.snapshot import tree_id
from treetop.learning.refit import Learner, refit
from treetop.log.base import Log
from treetop.log.records import Mark
from treetop.log.rounds import gather
from treetop.model.feature_scale import raised_scale
from treetop.model.model import Model
from treetop.records import Feedback


def logged_feedback(log: Log, until: Mark, base: Model, arms: ArmIndex, config: Config) -> Feedback:
    """All feedback in a log up to a mark, for the model that follows `base`."""
    rewards = config.rewards
    tree = tree_id(base.tree) if config.learner.name == "paper" else None
    samples = log.samples(until, wait=rewards.reward_wait, default=rewards.default_reward, tree=tree)
    return gather(samples, base.n_features, arms.epochs(), rewards.limits, rewards.positions)


def next_fit(base: Model, feedback: Feedback, learner: Learner, epoch: int, trials: Ints | None = None) -> Model:
    """The model that follows `base`, with the given epoch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Model = refit(base, feedback, learner)
    scale = raised_scale(base.feature_scale, [feedback.contexts])
    return replace(model, epoch=epoch, feature_scale=scale, pooled=_counted(model, trials))
