"""treetop: top-k contextual bandits over millions of arms.

Reading order, which is the path of a decision: files, checks, types, tree, routing, modelfile, model, search, explore,
policy; then learn, pooled, flat; log, catalogue, grow, config, live, home, next_model, answers, bandit and client, that
keep it in a folder; then read, presets, synthetic, datasets, feedback, scenario and simulate, which play the loop;
store, experiment, ceiling, truth, realizable and tune, which play it many times; evaluate, report, figures, page,
claims, story, lab, inference, regret and reproduce, which compare it with the paper; demo, bench, service, commands and
cli, which show it.
"""

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import (
    Config,
    FeatureConfig,
    LearnerConfig,
    LimitConfig,
    PolicyConfig,
    RefitConfig,
    RewardConfig,
    TreeConfig,
)
from treetop.bandit.results import RefitResult, ServedDecision, ServedSlot
from treetop.client import Client
from treetop.data.datasets import Dataset, Stream, load
from treetop.errors import ModelFileError, ServiceError
from treetop.learning.flat import FlatModel
from treetop.learning.label_samples import LabelSamples
from treetop.learning.linear import Linear
from treetop.learning.pooled import Pooled
from treetop.learning.refit import refit
from treetop.learning.schedule import Epochs
from treetop.model.model import Model
from treetop.policy.eligibility import Eligible
from treetop.policy.flat import FlatPolicy
from treetop.policy.policy import Policy
from treetop.policy.strategies import IGW, Boltzmann, CostAware, EpsilonGreedy, Greedy, Strategy
from treetop.records import Decision, Decisions, Explanation, Feedback
from treetop.simulation.play import Environment, Learning, Run, Tracking, run
from treetop.tree.tree import Tree

__all__ = [
    "Catalogue", "Config", "FeatureConfig", "LearnerConfig", "LimitConfig", "PolicyConfig", "RefitConfig",
    "RefitResult", "RewardConfig", "ServedDecision", "ServedSlot", "TreeConfig",
    "Bandit", "Boltzmann", "Client", "Dataset", "Decision", "Decisions", "Eligible", "EpsilonGreedy", "Epochs",
    "Explanation", "Feedback", "FlatModel", "FlatPolicy", "Greedy", "IGW", "LabelSamples", "Linear", "Model",
    "ModelFileError", "Policy", "Pooled", "Run", "ServiceError", "Strategy", "Stream", "CostAware",
    "Tree", "load", "refit", "run",
]  # fmt: skip
