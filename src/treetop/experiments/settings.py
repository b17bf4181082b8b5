"""What is played: the settings of a run, and a plan of settings times seeds. Plays nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

from treetop.arrays import check_int
from treetop.data.datasets import Dataset
from treetop.data.orders import check_order
from treetop.learning.label_samples import LabelSamples
from treetop.learning.learners import DEFAULT_STRATEGY, make_learner
from treetop.learning.pooled import Mechanisms
from treetop.learning.refit import Learner
from treetop.learning.routes import RouteCache
from treetop.learning.schedule import Epochs
from treetop.policy.policy import Policy
from treetop.policy.strategies import STRATEGIES, Strategy, make_strategy
from treetop.simulation.observation import Observer, make_observer
from treetop.simulation.scenario import SCENARIOS

# Rounds before the first refit, and how the rounds seen grow from one refit to the next. These are for simulations; a
# service of the treetop learner refits seldomer, after 1,024 observed rounds and then at every 1.2-fold of them.
EPOCHS = {"paper": (4096, 2.0), "treetop": (256, 1.05)}
DEFAULT = "default"  # the name of the strategy that goes with a learner


@dataclass(frozen=True)
class Settings:
    """How one run is played. `beam=None` is wider than every level: Algorithm 1. The other None depend on the data.

    `observer` says which slots the learner observes, as `make_observer` reads it. With `label_samples` the treetop
    learner learns from the labels of the initialisation set too; the paper's never does. Then the tree keeps arms
    without labels separate, unless `separate_unlabelled` is off. `mechanisms` switches parts of the treetop learner off
    (see `Mechanisms`). `order` is that of the rows: shuffled, file or blocks (`treetop.data.orders`).

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
    order: str = "shuffled"
    label_samples: bool = True
    separate_unlabelled: bool = True
    mechanisms: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_order(self.order)
        if self.scenario not in SCENARIOS:
            raise ValueError(f"scenario is {self.scenario!r}; it must be one of {', '.join(SCENARIOS)}")
        self.policy(nodes=1), self.make_learner(), self.epochs()

    def policy(self, nodes: int) -> Policy:
        """The policy, for a tree of so many nodes."""
        return Policy(self.k, self.explore, nodes if self.beam is None else self.beam, self.make_strategy())

    def make_strategy(self) -> Strategy:
        """The strategy; the theorems' gamma gets its c from the observer unless it is given."""
        c = self.make_observer().c(self.k)
        implied = {"c": c} if self.parameters.get("gamma", "experiments") != "experiments" and c is not None else {}
        return make_strategy(self.strategy, {**implied, **self.parameters})

    def make_learner(self, label_samples: LabelSamples | None = None) -> Learner:
        """The learner; `label_samples` are those of the initialisation set, where it uses them."""
        return make_learner(
            self.learner,
            loss=self.loss,
            label_samples=label_samples,
            mechanisms=Mechanisms(**self.mechanisms),
            route_cache=RouteCache(),
        )

    def make_observer(self) -> Observer:
        return make_observer(self.observer)

    @property
    def uses_label_samples(self) -> bool:
        return self.learner == "treetop" and self.label_samples

    def epochs(self) -> Epochs:
        return Epochs.geometric(*self._schedule())

    def _schedule(self) -> tuple[int, float]:
        first, factor = EPOCHS[self.learner]
        asked = None if self.first_epoch is None else check_int("first_epoch", self.first_epoch, 1, 1 << 62)
        return first if asked is None else asked, factor if self.factor is None else self.factor

    def resolved(self, dataset: Dataset) -> Settings:
        """The same with what depends on the data filled in."""
        init, horizon, max_leaf = dataset.sizes(self.init, self.horizon, self.max_leaf, self.order)
        first, factor = self._schedule()
        return replace(self, init=init, horizon=horizon, max_leaf=max_leaf, first_epoch=first, factor=factor)


def strategies_for(learner: str, names: Sequence[str]) -> list[str]:
    """The strategies to play with a learner, each once: `default` is what Bandit and the service use with it.

    >>> strategies_for("paper", ["default", "greedy", "igw"])
    ['igw', 'greedy']
    """
    if wrong := next((name for name in names if name not in (DEFAULT, *STRATEGIES)), None):
        raise ValueError(f"strategy is {wrong!r}; it must be one of {DEFAULT}, {', '.join(STRATEGIES)}")
    default = DEFAULT_STRATEGY.get(learner, DEFAULT_STRATEGY["paper"])  # Settings refuses another learner
    return list(dict.fromkeys(default if name == DEFAULT else name for name in names))


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
            check_int("seed", seed, 0, 2**64 - 1)

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
