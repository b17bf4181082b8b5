"""What is played: the settings of a run, and a plan of settings times seeds. Plays nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from typing import Any

from treetop.arrays import whole
from treetop.data.datasets import Dataset
from treetop.learning.linear import Epochs, Learner, Linear
from treetop.learning.pooled import Labelled, Pooled
from treetop.policy.policy import Policy
from treetop.policy.strategies import STRATEGIES, Strategy
from treetop.simulation.observation import Observer, make_observer
from treetop.simulation.scenario import SCENARIOS

LEARNERS = ("paper", "treetop")
DEFAULT_STRATEGY = {"paper": "igw", "treetop": "thrifty"}  # what Bandit and the service use with each learner

# Rounds before the first refit, and how the rounds seen grow from one refit to the next. These are for simulations; a
# service of the treetop learner refits seldomer, after 1,024 observed rounds and then at every 1.2-fold of them.
EPOCHS = {"paper": (4096, 2.0), "treetop": (256, 1.05)}


@dataclass(frozen=True)
class Settings:
    """How one run is played. `beam=None` is wider than every level: Algorithm 1. The other None depend on the data.

    `observer` says which slots the learner observes, as `make_observer` reads it. With `label_samples` the treetop
    learner learns from the labels of the initialisation set too; the paper's never does.

    >>> Settings("igw", {"C": 2.0}).policy(nodes=7).strategy.C
    2.0
    """

    strategy: str = "igw"
    parameters: dict[str, Any] = field(default_factory=dict)
    k: int = 5
    explore: int = 3
    beam: int | None = 10
    max_leaf: int | None = None
    init: int | None = None
    horizon: int | None = None
    first_epoch: int | None = None
    factor: float | None = None
    loss: str = "squared"
    split: str = "kmeans"
    learner: str = "paper"
    observer: str = "all"
    scenario: str = "stationary"
    label_samples: bool = True

    def __post_init__(self) -> None:
        if self.learner not in LEARNERS:
            raise ValueError(f"learner is {self.learner!r}; it must be one of {', '.join(LEARNERS)}")
        if self.scenario not in SCENARIOS:
            raise ValueError(f"scenario is {self.scenario!r}; it must be one of {', '.join(SCENARIOS)}")
        if self.learner == "treetop" and self.loss == "absolute":
            raise ValueError(f"loss={self.loss!r} is for the learner paper, not for {self.learner}")
        self.policy(nodes=1), self.epochs(), Linear(loss=self.loss)

    def policy(self, nodes: int) -> Policy:
        """The policy, for a tree of so many nodes."""
        return Policy(self.k, self.explore, nodes if self.beam is None else self.beam, self.make_strategy())

    def make_strategy(self) -> Strategy:
        """The strategy; the theorems' gamma gets its c from the observer unless it is given."""
        c = self.make_observer().c(self.k)
        implied = {"c": c} if self.parameters.get("gamma", "experiments") != "experiments" and c is not None else {}
        return _make_strategy(self.strategy, {**implied, **self.parameters})

    def make_learner(self, label_samples: Labelled | None = None) -> Learner:
        """The learner; `label_samples` are those of the initialisation set, where it uses them."""
        return _make_learner(self.learner, loss=self.loss, label_samples=label_samples)

    def make_observer(self) -> Observer:
        return make_observer(self.observer)

    @property
    def uses_label_samples(self) -> bool:
        return self.learner == "treetop" and self.label_samples

    def epochs(self) -> Epochs:
        return Epochs.geometric(*self._schedule())

    def _schedule(self) -> tuple[int, float]:
        first, factor = EPOCHS[self.learner]
        return first if self.first_epoch is None else self.first_epoch, factor if self.factor is None else self.factor

    def resolved(self, dataset: Dataset) -> Settings:
        """The same with what depends on the data filled in."""
        init, horizon, max_leaf = dataset.sizes(self.init, self.horizon, self.max_leaf)
        first, factor = self._schedule()
        return replace(self, init=init, horizon=horizon, max_leaf=max_leaf, first_epoch=first, factor=factor)


def _make_strategy(name: str, parameters: dict[str, Any]) -> Strategy:
    if name not in STRATEGIES:
        raise ValueError(f"strategy is {name!r}; it must be one of {', '.join(STRATEGIES)}")
    known = [f.name for f in fields(STRATEGIES[name])]
    if wrong := [parameter for parameter in parameters if parameter not in known]:
        raise ValueError(f"{name} has no {wrong[0]!r}; it has {', '.join(known) or 'no parameters'}")
    made: Strategy = STRATEGIES[name](**parameters)
    return made


def _make_learner(name: str, *, loss: str, label_samples: Labelled | None) -> Learner:
    return Linear(loss=loss) if name == "paper" else Pooled(known=label_samples)


def strategies_for(learner: str, names: Sequence[str]) -> list[str]:
    """The strategies to play with a learner, each once: `default` is what Bandit and the service use with it.

    >>> strategies_for("paper", ["default", "greedy", "igw"])
    ['igw', 'greedy']
    """
    default = DEFAULT_STRATEGY.get(learner, DEFAULT_STRATEGY["paper"])  # Settings refuses another learner
    return list(dict.fromkeys(default if name == "default" else name for name in names))


@dataclass(frozen=True)
class Plan:
    """What is asked: every one of `settings` with every one of `seeds` on the dataset that `load(data)` gives.

    >>> plan = Plan.of("debian", ["igw", "greedy"], seeds=[0, 7], horizon=1000)
    >>> [(settings.strategy, seed) for settings, seed in plan.runs()]
    [('igw', 0), ('greedy', 0), ('igw', 7), ('greedy', 7)]
    """

    data: str
    settings: tuple[Settings, ...]
    seeds: tuple[int, ...] = (0,)
    world: str = "labels"

    def __post_init__(self) -> None:
        if not self.settings or not self.seeds:
            raise ValueError(f"a plan needs settings and seeds; it has {len(self.settings)} and {len(self.seeds)}")
        for seed in self.seeds:
            whole("seed", seed, 0, 2**64 - 1)

    @classmethod
    def of(cls, data: str, strategies: Sequence[str], seeds: Sequence[int] = (0,), **common: Any) -> Plan:
        """Strategies with settings in common."""
        return cls(data, tuple(Settings(name, **common) for name in strategies), tuple(seeds))

    def runs(self) -> list[tuple[Settings, int]]:
        return [(settings, seed) for seed, settings in product(self.seeds, self.settings)]

    def title(self, settings: Settings, seed: int) -> str:
        """A run in few words: the strategy, and what tells it from the others of the plan."""
        twins = [asdict(other) for other in self.settings if other.strategy == settings.strategy]
        own = {name: v for name, v in asdict(settings).items() if any(twin[name] != v for twin in twins)}
        own = {**own.pop("parameters", {}), **own}
        words = " ".join([settings.strategy, *(f"{name}={value}" for name, value in own.items())])
        return f"{words}, seed {seed}" if len(self.seeds) > 1 else words
