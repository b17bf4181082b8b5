"""The settings of a bandit's folder, as config.toml has them. Checks values and makes policies and learners of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treetop.arrays import check_float, check_int
from treetop.bandit.caps import CapConfig
from treetop.bandit.experiment_config import ExperimentConfig
from treetop.bandit.refit_config import YEAR
from treetop.bandit.refit_config import RefitConfig as RefitConfig
from treetop.learning.label_samples import LabelSamples
from treetop.learning.learners import DEFAULT_STRATEGY, make_learner
from treetop.learning.refit import Learner
from treetop.log.records import LARGEST_REWARD
from treetop.policy.policy import MAX_SLOTS, Policy
from treetop.policy.strategies import make_strategy
from treetop.tree.tree import usual_max_leaf

PAPER_WINDOW = 65_536  # samples, the latest ones, that the paper's learner fits a node or an arm on
OUTLIERS = ("clip", "refuse", "accept")


@dataclass(frozen=True)
class PolicyConfig:
    """How decisions are made. A request may override `k` and `explore`; the rest is the operator's choice.

    `beta` replaces the beam; `parameters` are the strategy's; `diversity`: what covering a category more is worth.

    >>> PolicyConfig(k=3, explore=1, strategy="igw", parameters={"C": 0.5}).make_policy().strategy.C
    0.5
    """

    k: int = 5
    explore: int = 3
    beam: int = 10
    beta: float | None = None
    strategy: str = DEFAULT_STRATEGY["treetop"]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    diversity: float = 0.0

    def __post_init__(self) -> None:
        self.make_policy(self.k, self.explore)

    def make_policy(self, k: int | None = None, explore: int | None = None) -> Policy:
        """The policy of a request."""
        slots = self.k if k is None else k
        explored = self.explored(slots) if explore is None else explore
        strategy = make_strategy(self.strategy, self.parameters)
        return Policy(slots, explored, self.beam, strategy, self.beta, diversity=self.diversity)

    def explored(self, k: int) -> int:
        """How many of k slots explore that say no number of their own: the configured number, but where the settings
        leave the first slot to the best, so do fewer slots, unless there is one alone.

        >>> served = PolicyConfig(k=5, explore=3)
        >>> [served.explored(k) for k in (5, 4, 3, 2, 1)], PolicyConfig(k=3, explore=3).explored(2)
        ([3, 3, 2, 1, 1], 2)
        """
        return min(self.explore, max(1, k - 1) if self.explore < self.k else k)


@dataclass(frozen=True)
class TreeConfig:
    """How the tree is built: at most `max_leaf` arms in a leaf; after changes twice as many, with removed ones that are
    there still or have returned. Without it `usual_max_leaf` says it when the bandit is created.

    >>> TreeConfig(max_leaf=0)
    Traceback (most recent call last):
    ValueError: max_leaf is 0; it must lie in [1, 2147483647]
    """

    max_leaf: int | None = None
    branching: int = 2
    seed: int = 0

    @property
    def leaf_limit(self) -> int:
        """Arms in a leaf at most, also where the settings do not say it.

        >>> TreeConfig(12).leaf_limit, TreeConfig().leaf_limit
        (12, 100)
        """
        return usual_max_leaf(0, labelled=False) if self.max_leaf is None else self.max_leaf

    def __post_init__(self) -> None:
        if self.max_leaf is not None:
            check_int("max_leaf", self.max_leaf, 1)
        check_int("branching", self.branching, 2)
        check_int("seed", self.seed, -(2**63), 2**63 - 1)


@dataclass(frozen=True)
class FeatureConfig:
    """`strict_features`: whether an unknown feature name is refused, or counted and ignored.

    `outliers`: what is done with a value beyond `outlier_factor` times what its feature has shown: `clip` takes the
    limit instead, `refuse` refuses the request, `accept` takes the value as it is. `grow_features`: so many names that
    the vocabulary has never seen may join it, those asked for most at each refit; columns are kept for them when the
    folder is made, so that it cannot be changed later.

    >>> Config(features=FeatureConfig(strict_features=True)).features.strict_features
    True
    """

    strict_features: bool = False
    outliers: str = "clip"
    outlier_factor: float = 10.0
    grow_features: int = 0

    def __post_init__(self) -> None:
        check_int("grow_features", self.grow_features, 0, 10_000_000)
        if self.grow_features and self.strict_features is True:
            raise ValueError("strict_features refuses unknown names, so that none could join: grow_features must be 0")
        if not isinstance(self.strict_features, bool):
            raise TypeError(f"strict_features must be true or false, not {self.strict_features!r}")
        if self.outliers not in OUTLIERS:
            raise ValueError(f"outliers is {self.outliers!r}; it must be one of {', '.join(OUTLIERS)}")
        check_float("outlier_factor", self.outlier_factor, 1, 1e30)


@dataclass(frozen=True)
class LearnerConfig:
    """`name` is `treetop`, which shares strength between arms (squared loss only), or `paper`, the faithful learner.

    `cost` is how strongly samples pull on a regressor; 0 is the learner's own: 1, or 0.1 for `treetop` with labels.
    `label_samples`: whether every refit of `treetop` also learns the labels that the bandit was created from. `paper`
    reads the latest 65,536 samples of each node and arm.
    """

    name: str = "treetop"
    loss: str = "squared"
    cost: float = 0.0
    label_samples: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.label_samples, bool):
            raise TypeError(f"label_samples must be true or false, not {self.label_samples!r}")
        self.make_learner()

    @property
    def uses_label_samples(self) -> bool:
        """Whether the learner takes label samples at all, and the settings ask for them."""
        return self.label_samples and self.name == "treetop"

    def make_learner(self, samples: LabelSamples | None = None, vectors: tuple[tuple[int, int], ...] = ()) -> Learner:
        """The learner; `samples` are the label samples that it learns beside the feedback, `vectors` where contexts
        have theirs.

        >>> type(LearnerConfig("paper").make_learner()).__name__
        'Linear'
        """
        how = {"label_samples": samples, "vectors": vectors, "window": PAPER_WINDOW}
        return make_learner(self.name, loss=self.loss, cost=self.cost or None, **how)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ReplicaConfig:
    """`store` is where the replicas of a bandit share models: a folder that all hosts see, or object storage such as
    `s3://bucket/shop`. Without it the folder is the only one of its bandit. One replica does the refits; after `lease`
    seconds without a sign of it another takes over.

    >>> Config(replicas=ReplicaConfig("/mnt/shop")).replicas.store
    '/mnt/shop'
    """

    store: str = ""
    lease: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.store, str):
            raise TypeError(f"store must be a path or URL, not {self.store!r}")
        check_float("lease", self.lease, 0.5, 3600)
        if self.store and "://" not in self.store and not Path(self.store).is_absolute():
            raise ValueError(f"store is {self.store!r}; it must be an absolute path or a URL, the same on all hosts")


@dataclass(frozen=True)
class RewardConfig:
    """`default_reward` is the reward of a slot that has none `reward_wait` seconds after its decision; without it
    such a slot stays unobserved.

    Rewards lie in [`low`, `high`], such as a revenue; others are refused. The log keeps them as they are, evaluations
    answer in them, and learning scales them to [0, 1]. Decisions older than `keep_days` are deleted from the log (0:
    never). `corrections`: whether another reward for the same slot replaces the first (a zero, then the click) or is
    refused.
    `positions`: whether the slots of a decision are shown one after the other, so that later ones may be looked at less
    often; learning then estimates how often, and corrects for it. `saturates`: whether arms of one category that are
    shown together take from each other's rewards; refits then learn how much, and decisions go by it.

    >>> RewardConfig(reward_wait=3600, default_reward=0.0).default_reward  # no click within an hour is a reward of 0
    0.0
    """

    reward_wait: float = 0.0
    default_reward: float | None = None
    keep_days: float = 0.0
    low: float = 0.0
    high: float = 1.0
    corrections: bool = False
    positions: bool = False
    saturates: bool = False

    def __post_init__(self) -> None:
        for name in ("corrections", "positions", "saturates"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be true or false, not {getattr(self, name)!r}")
        check_float("reward_wait", self.reward_wait, 0, YEAR)
        check_float("keep_days", self.keep_days, 0, 1e6)
        check_float("low", self.low, -LARGEST_REWARD, LARGEST_REWARD)
        check_float("high", self.high, -LARGEST_REWARD, LARGEST_REWARD)
        if not self.low < self.high:
            raise ValueError(f"low is {self.low:g} and high {self.high:g}; rewards need a range")
        if self.default_reward is not None:
            check_float("default_reward", self.default_reward, self.low, self.high)

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest reward.

        >>> RewardConfig(low=-5, high=20).limits
        (-5.0, 20.0)
        """
        return float(self.low), float(self.high)

    @property
    def nothing(self) -> float:
        """What a slot brings that brings nothing, as [low, high] is scaled to [0, 1].

        >>> RewardConfig(low=-5, high=20).nothing, RewardConfig(low=1, high=2).nothing
        (0.2, 0.0)
        """
        return (min(max(0.0, self.low), self.high) - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class SegmentConfig:
    """`seal`: whether a refit first seals complete rounds into segments, and reads these instead of the log.

    A round is complete `wait_seconds` after its decision; rewards that come later are kept in deltas. A segment has
    `rounds` rounds; its samples are sorted by shards of about `shard_arms` arms.

    >>> SegmentConfig(wait_seconds=-1)
    Traceback (most recent call last):
    ValueError: wait_seconds is -1; it must be finite and lie in [0, 31622400]
    """

    seal: bool = True
    wait_seconds: float = 3600.0
    rounds: int = 65_536
    shard_arms: int = 16_384

    def __post_init__(self) -> None:
        if not isinstance(self.seal, bool):
            raise TypeError(f"seal must be true or false, not {self.seal!r}")
        check_float("wait_seconds", self.wait_seconds, 0, YEAR)
        check_int("rounds", self.rounds, 1, 1 << 24)
        check_int("shard_arms", self.shard_arms, 1)


@dataclass(frozen=True)
class LimitConfig:
    """What the service accepts. A request above a limit is refused with an error that names the limit.

    >>> LimitConfig(k=20).in_flight
    256
    """

    body: int = 1 << 20  # bytes of a request's body
    batch_body: int = 16 << 20  # the same for a batch
    features: int = 10_000  # in one context
    k: int = 100
    arms: int = 100_000  # listed in one request as eligible or excluded, added or removed
    changed_arms: int = 1_000_000  # whose attributes or set one request says: half of a large catalogue on sale
    batch: int = 1000  # requests in a batch
    in_flight: int = 256  # requests at a time, per worker
    seconds: float = 30.0  # until a request's body must have arrived
    head_seconds: float = 10.0  # the same for its head, from its first byte or from the connection's beginning
    connections: int = 1024  # per worker; fewer if the system allows fewer open files
    bodies: int = 64 << 20  # bytes of all bodies at a time, per worker; one alone is always accepted

    def __post_init__(self) -> None:
        for name in (
            "body",
            "batch_body",
            "features",
            "arms",
            "changed_arms",
            "batch",
            "in_flight",
            "connections",
            "bodies",
        ):
            check_int(name, getattr(self, name), 1, 2**40)
        check_int("k", self.k, 1, MAX_SLOTS)
        check_float("seconds", self.seconds, 0.1, 3600)
        check_float("head_seconds", self.head_seconds, 0.1, 3600)


@dataclass(frozen=True)
class PersonalizerConfig:
    """`enabled`: whether the service also answers as Azure Personalizer does; then callers may add arms by using them.

    >>> PersonalizerConfig().enabled
    False
    """

    enabled: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise TypeError(f"enabled must be true or false, not {self.enabled!r}")


@dataclass(frozen=True)
class Config:
    """All settings of a bandit, one group for each table of config.toml. `bad_experiments` has what is wrong with
    those that cannot be started.

    >>> Config(policy=PolicyConfig(k=3), tree=TreeConfig(max_leaf=50)).policy.k
    3
    """

    policy: PolicyConfig = field(default_factory=PolicyConfig)
    tree: TreeConfig = field(default_factory=TreeConfig)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    refit: RefitConfig = field(default_factory=RefitConfig)
    rewards: RewardConfig = field(default_factory=RewardConfig)
    segments: SegmentConfig = field(default_factory=SegmentConfig)
    caps: CapConfig = field(default_factory=CapConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    replicas: ReplicaConfig = field(default_factory=ReplicaConfig)
    personalizer: PersonalizerConfig = field(default_factory=PersonalizerConfig)
    experiments: Mapping[str, ExperimentConfig] = field(default_factory=dict)
    bad_experiments: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.limits.k < self.policy.k:
            raise ValueError(f"limits.k is {self.limits.k}, below policy.k, {self.policy.k}")
        if self.replicas.store and (more := self.features.grow_features):
            raise ValueError(
                f"grow_features is {more}; replicas share no vocabulary that grows: it must be 0 with a store"
            )

    @classmethod
    def of(cls, learner: str) -> Config:
        """The defaults for a learner: `paper` has the faithful algorithm's strategy and refit schedule.

        >>> Config.of("paper").policy.strategy, Config.of("treetop").policy.strategy
        ('igw', 'budgeted')
        """
        if learner != "paper":
            return cls(learner=LearnerConfig(learner))
        learner_config = LearnerConfig("paper", label_samples=False)
        return cls(
            PolicyConfig(strategy=DEFAULT_STRATEGY["paper"]), learner=learner_config, refit=RefitConfig(1000, 2.0)
        )
