"""treetop: top-k contextual bandits over millions of arms.

The packages read in the order of a decision's path: tree, model, policy, log, learning; data, simulation, experiments,
report, paper; evaluation, bandit, bridges, service, bench, cli. Each one's docstring says which question it answers;
docs/design.md is the map. Whatever a public function takes or returns can be named from here.
"""

from treetop._version import __version__ as __version__
from treetop.arrays import Fitted, Rows
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.bandit import Bandit
from treetop.bandit.candidates import CandidatePolicy
from treetop.bandit.caps import CapConfig
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import (
    Config,
    FeatureConfig,
    LearnerConfig,
    LimitConfig,
    PersonalizerConfig,
    PolicyConfig,
    ReplicaConfig,
    RewardConfig,
    SegmentConfig,
    TreeConfig,
)
from treetop.bandit.evaluation import Evaluation, evaluate
from treetop.bandit.experiment_config import Experiment, ExperimentConfig
from treetop.bandit.policy_search import PolicySearch, search_policies
from treetop.bandit.refit_config import RefitConfig
from treetop.bandit.results import RefitResult, ServedDecision, ServedSlot
from treetop.client.asynchronous import AsyncClient
from treetop.client.blocking import Client
from treetop.data.datasets import Dataset, Stream, load
from treetop.data.presets import Preset
from treetop.effort import Effort
from treetop.errors import (
    ArmNotShown,
    EventConflict,
    FeatureOutlier,
    FolderInUse,
    ForeignLog,
    InvalidModel,
    LogError,
    ModelFileError,
    ModelPinned,
    ModelSuperseded,
    NoEligibleArm,
    NothingToLearn,
    RewardConflict,
    SegmentError,
    ServiceError,
    ServiceUnreachable,
    TreetopError,
    UnknownArm,
    UnknownEvent,
    UnknownFeature,
)
from treetop.evaluation.verdict import CandidateResult, Estimate
from treetop.learning.flat import FlatModel
from treetop.learning.label_samples import LabelSamples
from treetop.learning.linear import Linear
from treetop.learning.pooled import Mechanisms, Pooled
from treetop.learning.refit import Learner, refit
from treetop.learning.routes import RouteCache
from treetop.learning.schedule import Epochs
from treetop.log.records import Event, Reward, StoredEvent
from treetop.model.coverage import Coverage
from treetop.model.learned_routing import LearnedRouting
from treetop.model.measure import Measure
from treetop.model.model import Model
from treetop.model.pooled_state import PooledState
from treetop.model.prior import Prior
from treetop.policy.budgeted import Budgeted
from treetop.policy.eligibility import Eligible
from treetop.policy.flat import FlatPolicy, ScoresAllArms
from treetop.policy.policy import Policy
from treetop.policy.probability import SlateProbabilities, SlateProbability
from treetop.policy.strategies import IGW, Boltzmann, CandidateStrategy, EpsilonGreedy, Greedy, Strategy
from treetop.records import Candidates, Decision, Decisions, Explanation, Feedback
from treetop.simulation.history import History
from treetop.simulation.observation import Observer
from treetop.simulation.play import Environment, Learning, Run, Tracking, TreeBuilding, begin, run
from treetop.simulation.scenario import Scenario
from treetop.simulation.worlds import World
from treetop.tree.tree import Tree

__all__ = [
    "ArmIndex",
    "ArmNotShown",
    "AsyncClient",
    "Bandit",
    "begin",
    "Boltzmann",
    "Budgeted",
    "CandidatePolicy",
    "CandidateResult",
    "Candidates",
    "CandidateStrategy",
    "CapConfig",
    "Catalogue",
    "Client",
    "Config",
    "Coverage",
    "Dataset",
    "Decision",
    "Decisions",
    "Effort",
    "Eligible",
    "Environment",
    "Epochs",
    "EpsilonGreedy",
    "Estimate",
    "evaluate",
    "Evaluation",
    "Event",
    "EventConflict",
    "Experiment",
    "ExperimentConfig",
    "Explanation",
    "FeatureConfig",
    "FeatureOutlier",
    "Feedback",
    "Fitted",
    "FlatModel",
    "FlatPolicy",
    "FolderInUse",
    "ForeignLog",
    "Greedy",
    "History",
    "IGW",
    "InvalidModel",
    "LabelSamples",
    "LearnedRouting",
    "Learner",
    "LearnerConfig",
    "Learning",
    "LimitConfig",
    "Linear",
    "load",
    "LogError",
    "Mechanisms",
    "Measure",
    "Model",
    "ModelFileError",
    "ModelPinned",
    "ModelSuperseded",
    "NoEligibleArm",
    "NothingToLearn",
    "Observer",
    "PersonalizerConfig",
    "Policy",
    "PolicyConfig",
    "PolicySearch",
    "Pooled",
    "PooledState",
    "Prior",
    "Preset",
    "refit",
    "RefitConfig",
    "ReplicaConfig",
    "RefitResult",
    "Reward",
    "RewardConfig",
    "RewardConflict",
    "RouteCache",
    "Rows",
    "Run",
    "run",
    "ScoresAllArms",
    "Scenario",
    "search_policies",
    "SegmentConfig",
    "SegmentError",
    "ServedDecision",
    "ServedSlot",
    "ServiceError",
    "ServiceUnreachable",
    "SlateProbabilities",
    "SlateProbability",
    "StoredEvent",
    "Strategy",
    "Stream",
    "Tracking",
    "Tree",
    "TreeConfig",
    "TreeBuilding",
    "TreetopError",
    "UnknownArm",
    "UnknownEvent",
    "UnknownFeature",
    "World",
]
