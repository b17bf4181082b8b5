"""The settings of a bandit folder, as config.toml says them. Knows what they may be, not what they do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from treetop.arrays import real, whole
from treetop.learning.label_samples import LabelSamples
from treetop.learning.linear import Linear
from treetop.learning.pooled import Pooled
from treetop.learning.refit import Learner
from treetop.learning.schedule import Epochs
from treetop.policy.policy import MAX_SLOTS, Policy
from treetop.policy.strategies import STRATEGIES, Strategy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG = "config.toml"
YEAR = 366 * 86400.0
T = TypeVar("T")


@dataclass(frozen=True)
class Deciding:
    """What a request may leave out, and what it cannot say."""

    k: int = 5
    explore: int = 3
    beam: int = 10
    beta: float | None = None
    strategy: str = "cost-aware"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policy(self.k, self.explore)

    def made_strategy(self) -> Strategy:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy is {self.strategy!r}; it must be one of {', '.join(STRATEGIES)}")
        kind = STRATEGIES[self.strategy]
        known = [f.name for f in fields(kind)]
        if wrong := [name for name in self.parameters if name not in known]:
            raise ValueError(f"{self.strategy} has no {wrong[0]!r}; it has {', '.join(known) or 'no parameters'}")
        made: Strategy = kind(**self.parameters)
        return made

    def policy(self, k: int | None = None, explore: int | None = None) -> Policy:
        """The policy of a request; fewer slots than usual explore as many as there are, at most the usual number."""
        slots = self.k if k is None else k
        drawn = min(self.explore, slots) if explore is None else explore
        return Policy(slots, drawn, self.beam, self.made_strategy(), self.beta)


@dataclass(frozen=True)
class Leaves:
    """What the tree was built with, and what new arms have to respect."""

    max_leaf: int = 100

    def __post_init__(self) -> None:
        whole("max_leaf", self.max_leaf, 1)


@dataclass(frozen=True)
class Naming:
    strict_features: bool = False  # whether a feature that is not in the vocabulary is refused, or counted and ignored

    def __post_init__(self) -> None:
        if not isinstance(self.strict_features, bool):
            raise TypeError(f"strict_features must be true or false, not {self.strict_features!r}")


@dataclass(frozen=True)
class Learning:
    """`treetop` is the learner that shares strength (squared loss only), `paper` the faithful one.

    `warm`: the labels that the bandit was made from, if any were kept, are samples of every refit of `treetop`.
    """

    name: str = "treetop"
    loss: str = "squared"
    cost: float = 1.0
    warm: bool = True

    def __post_init__(self) -> None:
        if self.name not in ("paper", "treetop"):
            raise ValueError(f"the learner's name is {self.name!r}; it must be paper or treetop")
        if self.name == "treetop" and self.loss != "squared":
            raise ValueError(f"loss={self.loss!r} is for the learner paper, not for treetop")
        if not isinstance(self.warm, bool):
            raise TypeError(f"warm must be true or false, not {self.warm!r}")
        self.regressor()

    @property
    def takes_labels(self) -> bool:
        return self.warm and self.name == "treetop"

    def regressor(self, known: LabelSamples | None = None) -> Learner:
        return Linear(self.loss, self.cost) if self.name == "paper" else Pooled(self.cost, label_samples=known)


@dataclass(frozen=True)
class Refitting:
    """When to refit: after `first` rounds with an observed reward, then at every `factor` times as many; by the clock
    `every` so many seconds if there is anything new (0: never by the clock)."""

    first: int = 1024
    factor: float = 1.2
    every: float = 0.0
    retry: float = 10.0  # seconds after a failure; twice as many after the next
    retry_most: float = 3600.0
    keep: int = 5  # models

    def __post_init__(self) -> None:
        Epochs.geometric(self.first, real("factor", self.factor, 1.01, 1e6))
        real("every", self.every, 0, YEAR)
        real("retry", self.retry, 0.01, YEAR)
        real("retry_most", self.retry_most, self.retry, YEAR)
        whole("keep", self.keep, 2, 10_000)

    def due(self, then: int, now: int) -> bool:
        """Whether the schedule asks for a refit, if the last one saw `then` observed rounds and there are `now`.

        >>> Refitting(first=100).due(0, 99), Refitting(first=100).due(100, 119), Refitting(first=100).due(100, 120)
        (False, False, True)
        """
        return any(n > then for n in Epochs.geometric(self.first, self.factor).until(now + 1))

    def following(self, then: int) -> int:
        """How many observed rounds the schedule waits for, if the last refit saw `then`.

        >>> Refitting(first=100, factor=2).following(0), Refitting(first=100, factor=2).following(250)
        (100, 400)
        """
        reach = max(self.first, then + 1, int(then * self.factor) + 1) + 1
        return next(n for n in Epochs.geometric(self.first, self.factor).until(reach) if n > then)

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.retry_most, self.retry * 2.0 ** min(60, max(0, failures - 1)))


@dataclass(frozen=True)
class Rewards:
    """`default_reward` is what an unobserved slot counts as after `reward_wait` seconds; without it, it stays so.

    Decisions older than `keep_days` are forgotten (0: never).
    """

    reward_wait: float = 0.0
    default_reward: float | None = None
    keep_days: float = 0.0

    def __post_init__(self) -> None:
        real("reward_wait", self.reward_wait, 0, YEAR)
        real("keep_days", self.keep_days, 0, 1e6)
        if self.default_reward is not None:
            real("default_reward", self.default_reward, 0, 1)


@dataclass(frozen=True)
class Limits:
    """What the service accepts; everything above is refused with a status that says which limit it was."""

    body: int = 1 << 20  # bytes of a request; a batch may have `batch_body`
    batch_body: int = 16 << 20
    features: int = 10_000  # of one context
    k: int = 100
    arms: int = 100_000  # listed as eligible or excluded
    batch: int = 1000
    in_flight: int = 256  # requests at a time, per worker
    seconds: float = 30.0  # for a request's body to arrive

    def __post_init__(self) -> None:
        for name in ("body", "batch_body", "features", "arms", "batch", "in_flight"):
            whole(name, getattr(self, name), 1, 2**40)
        whole("k", self.k, 1, MAX_SLOTS)
        real("seconds", self.seconds, 0.1, 3600)


@dataclass(frozen=True)
class Config:
    """All settings; by default those of a new folder. `Config.of("paper")` has the faithful algorithm's."""

    policy: Deciding = field(default_factory=Deciding)
    tree: Leaves = field(default_factory=Leaves)
    features: Naming = field(default_factory=Naming)
    learner: Learning = field(default_factory=Learning)
    refit: Refitting = field(default_factory=Refitting)
    rewards: Rewards = field(default_factory=Rewards)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.limits.k < self.policy.k:
            raise ValueError(f"limits.k is {self.limits.k}, below policy.k, {self.policy.k}")

    @classmethod
    def of(cls, learner: str) -> Config:
        """The defaults that go with a learner: its strategy and its schedule.

        >>> Config.of("paper").policy.strategy, Config.of("treetop").policy.strategy
        ('igw', 'cost-aware')
        """
        if learner != "paper":
            return cls(learner=Learning(learner))
        return cls(Deciding(strategy="igw"), learner=Learning("paper", warm=False), refit=Refitting(1000, 2.0))


TABLES: dict[str, type[Any]] = {
    "policy": Deciding, "tree": Leaves, "features": Naming, "learner": Learning, "refit": Refitting,
    "rewards": Rewards, "limits": Limits,
}  # fmt: skip


def read(path: Path) -> Config:
    """The settings of a file; what is not there has its default, what is not known is an error.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, CONFIG).write_text("[policy]\\nbeam = 30")
    ...     read(Path(folder, CONFIG)).policy.beam
    30
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def parse(text: str) -> Config:
    """The settings of a text.

    >>> parse("[policy]\\nk = 3").policy.k
    3
    """
    tables = tomllib.loads(text)
    if wrong := next((name for name in tables if name not in TABLES), None):
        raise ValueError(f"there is no table [{wrong}]; the tables are {', '.join(TABLES)}")
    return Config(**{name: _made(kind, tables.get(name, {}), name) for name, kind in TABLES.items()})


def _made(kind: type[T], table: object, name: str) -> T:
    if not isinstance(table, dict):
        raise ValueError(f"{name} is {table!r}; it must be a table, [{name}]")
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    if wrong := next((key for key in table if key not in known), None):
        raise ValueError(f"[{name}] has no {wrong!r}; it has {', '.join(known)}")
    try:
        return kind(**table)
    except (ValueError, TypeError) as error:
        raise ValueError(f"[{name}] {error}") from None


def text_of(config: Config) -> str:
    """The settings as a file, with a word on each table.

    >>> print(text_of(Config()).splitlines()[2])
    [policy]  # slots of a decision, how many of them explore, nodes that survive each level of the search
    >>> parse(text_of(Config())) == Config()
    True
    """
    out = ["# The settings of this bandit; the service reads them when it starts. docs/service.md explains them.\n"]
    about = {
        "policy": "slots of a decision, how many of them explore, nodes that survive each level of the search",
        "tree": "arms in a leaf at most; new arms respect it",
        "features": "strict_features = true refuses features that are not in the vocabulary",
        "learner": 'name = "treetop" shares strength between arms, "paper" does not; warm = true: labels are samples',
        "refit": "after `first` observed rounds, then at every `factor` times as many; `every` seconds; models kept",
        "rewards": "default_reward = 0.0 counts a slot without a reward as 0 after `reward_wait` seconds",
        "limits": "what a request may ask for",
    }
    for name in TABLES:
        table = getattr(config, name)
        values = ((f.name, getattr(table, f.name)) for f in fields(table))
        lines = [f"{key} = {_toml(value)}" for key, value in values if value is not None]
        out.append(f"[{name}]  # {about[name]}\n" + "\n".join(lines) + "\n")
    return "\n".join(out)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items() if item is not None) + "}"
    return repr(value)
