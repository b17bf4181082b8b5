"""Settings x seeds on one dataset, played in order, kept in a folder and taken up again where they stopped.

Tables, plots and tests of significance read `Record`s; how a run is played is in `simulate`, how it is kept in `store`.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from treetop.arrays import Floats, Rows, whole
from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments import run_folder as store
from treetop.learning.linear import Epochs, Learner, Linear
from treetop.learning.pooled import Labelled, Pooled
from treetop.learning.refit import initial_fit
from treetop.model.model import Model
from treetop.policy.policy import Policy
from treetop.policy.strategies import STRATEGIES, Strategy
from treetop.simulation.observation import Observer, parse
from treetop.simulation.play import Building, Labels, Progress, Run, World, begin, curve, run
from treetop.simulation.scenario import SCENARIOS, Scenario

BLOCKS = 200
LEARNERS = ("paper", "treetop")
# Rounds before the first refit, and from one to the next; a service of the treetop learner has the same.
EPOCHS = {"paper": (4096, 2.0), "treetop": (256, 1.05)}
TOLD = (
    "k", "explore", "beam", "learner", "warm", "feedback", "scenario", "loss", "split", "max_leaf", "init", "horizon",
    "first_epoch", "factor",
)  # fmt: skip
Worlds = Callable[[int], World]  # a seed -> where the rewards of its runs come from
Begin = Callable[..., tuple[Stream, Model, Scenario | None]]  # sizes, tree settings, scenario, seed


class Bars(Protocol):
    """Shows runs to somebody: the name of a run, its rounds, how many were already done -> what is told the rest."""

    def __call__(self, name: str, total: int, done: int = 0) -> Progress: ...


@dataclass(frozen=True)
class Settings:
    """How one run is played. `beam=None` is wider than every level: Algorithm 1. The other None depend on the data.

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
    feedback: str = "all"
    scenario: str = "stationary"
    warm: bool = True

    def __post_init__(self) -> None:
        if self.learner not in LEARNERS:
            raise ValueError(f"learner is {self.learner!r}; it must be one of {', '.join(LEARNERS)}")
        if self.scenario not in SCENARIOS:
            raise ValueError(f"scenario is {self.scenario!r}; it must be one of {', '.join(SCENARIOS)}")
        if self.learner == "treetop" and self.loss == "absolute":
            raise ValueError(f"loss={self.loss!r} is for the learner paper, not for {self.learner}")
        self.policy(nodes=1), self.epochs(), Linear(loss=self.loss)

    def made_strategy(self) -> Strategy:
        """The strategy; the theorems' gamma gets its c from the feedback unless it is given."""
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy is {self.strategy!r}; it must be one of {', '.join(STRATEGIES)}")
        kind = STRATEGIES[self.strategy]
        known = [f.name for f in fields(kind)]
        if wrong := [name for name in self.parameters if name not in known]:
            raise ValueError(f"{self.strategy} has no {wrong[0]!r}; it has {', '.join(known) or 'no parameters'}")
        c = self.observer().c(self.k)
        implied = {"c": c} if self.parameters.get("gamma", "experiments") != "experiments" and c is not None else {}
        made: Strategy = kind(**{**implied, **self.parameters})
        return made

    def policy(self, nodes: int) -> Policy:
        """The policy, for a tree of so many nodes."""
        return Policy(self.k, self.explore, nodes if self.beam is None else self.beam, self.made_strategy())

    def observer(self) -> Observer:
        return parse(self.feedback)

    def epochs(self) -> Epochs:
        return Epochs.geometric(*self._schedule())

    def _schedule(self) -> tuple[int, float]:
        first, factor = EPOCHS[self.learner]
        return first if self.first_epoch is None else self.first_epoch, factor if self.factor is None else self.factor

    @property
    def learns_labels(self) -> bool:
        return self.learner == "treetop" and self.warm

    def regressor(self, known: Labelled | None = None) -> Learner:
        return Linear(loss=self.loss) if self.learner == "paper" else Pooled(known=known)

    def resolved(self, dataset: Dataset) -> Settings:
        """The same with what depends on the data filled in."""
        init, horizon, max_leaf = dataset.sizes(self.init, self.horizon, self.max_leaf)
        first, factor = self._schedule()
        return replace(self, init=init, horizon=horizon, max_leaf=max_leaf, first_epoch=first, factor=factor)


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


@dataclass(frozen=True)
class Record:
    """One finished run: what tables, plots and tests of significance need, and what tells whether it was the same.

    `checkpoints` are (rounds, mean reward so far), `regret_checkpoints` (rounds, regret so far in all). `blocks` are
    the rewards of 200 equal stretches, to be paired with those of another strategy with the same seed. `observed` is
    the share of slots the learner heard of; `checksum` the sha256 of arms, nodes and rewards.
    """

    dataset: dict[str, Any]
    strategy: str
    seed: int
    mean_reward: float
    checkpoints: list[tuple[int, float]]
    seconds: float
    settings: dict[str, Any]
    checksum: str
    blocks: list[float]
    observed: float
    versions: dict[str, str]
    regret_checkpoints: list[tuple[int, float]] | None = None

    @property
    def rounds(self) -> int:
        return self.checkpoints[-1][0]

    @property
    def late_reward(self) -> float:
        """Mean reward a round over the last fifth of the blocks."""
        first = len(self.blocks) - max(1, len(self.blocks) // 5)
        return sum(self.blocks[first:]) / (self.rounds - first * self.rounds // len(self.blocks))

    def summary(self) -> dict[str, Any]:
        """What `treetop simulate --json` prints."""
        names = ("strategy", "seed", "mean_reward", "checkpoints", "seconds", "settings")
        return {name: getattr(self, name) for name in names}


def versions() -> dict[str, str]:
    """What a run was played with: others may give other bytes.

    >>> sorted(versions())
    ['numpy', 'python', 'scipy', 'treetop']
    """
    names = ("treetop", "numpy", "scipy")
    return {**{name: version(name) for name in names}, "python": platform.python_version()}


def told_apart(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """For every run, by strategy and settings: the parameters that its strategy has in no other run, and the settings
    that are not the same in all runs, both in words. What follows from the learner goes without saying.

    >>> told_apart([("igw", {"beam": 10, "k": 5}), ("igw", {"beam": 30, "k": 5})])
    [('', 'beam=10'), ('', 'beam=30')]
    >>> told_apart([("igw", {"parameters": {"C": 1.0}}), ("igw", {"parameters": {"C": 2.0}}), ("greedy", {})])
    [('C=1.0', ''), ('C=2.0', ''), ('', '')]
    """
    differing = [name for name in TOLD if any(s.get(name) != runs[0][1].get(name) for _, s in runs)]
    if "learner" in differing:
        differing = [name for name in differing if name not in ("warm", "first_epoch", "factor")]
    found = []
    for strategy, settings in runs:
        twins = [s.get("parameters", {}) for name, s in runs if name == strategy]
        own = {n: v for n, v in settings.get("parameters", {}).items() if any(twin.get(n) != v for twin in twins)}
        shown = {name: "all" if settings.get(name) is None else settings[name] for name in differing}
        parts = (" ".join(f"{name}={value}" for name, value in words.items()) for words in (own, shown))
        found.append((next(parts), next(parts)))
    return found


def read(folder: str | os.PathLike[str]) -> list[Record]:
    """The finished runs of a folder, in order.

    >>> plan = Plan.of("synthetic:arms=50,features=30,rows=200,init=100", ["igw", "greedy"], max_leaf=10)
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = execute(folder, plan)
    ...     [record.strategy for record in read(folder)]
    ['igw', 'greedy']
    """
    return [msgspec.json.decode(line, type=Record) for line in store.lines(Path(folder))]


def execute(
    folder: str | os.PathLike[str] | None,
    plan: Plan,
    progress: Bars | None = None,
    *,
    dataset: Dataset | None = None,
    worlds: Worlds | None = None,
    building: Building | None = None,
    started: Begin | None = None,
) -> list[Record]:
    """Plays what of the plan is not yet finished in `folder` (None keeps nothing) and gives the records of all of it.

    Killed at any moment and called again, it goes on after the last finished epoch and ends with the same records, but
    for `seconds`. `dataset` stands in for `load(plan.data)`; `worlds` gives rewards other than labels; `building` is
    told how far trees and routing are. Calls that share one
    `started=beginning(dataset)` build the same tree once.

    >>> plan = Plan.of("synthetic:arms=50,features=30,rows=200,init=100", ["igw", "greedy"], max_leaf=10)
    >>> [(record.strategy, record.rounds) for record in execute(None, plan)]
    [('igw', 200), ('greedy', 200)]
    """
    if (plan.world == "labels") != (worlds is None):
        raise ValueError(f"the plan's world is {plan.world!r}, but worlds is {worlds!r}")
    data = dataset or load(plan.data)
    table = _Table(plan, data, started or beginning(data, building), worlds or _labels(data), progress)
    if folder is None:
        return [table.play(settings, seed) for settings, seed in plan.runs()]
    asked = {"plan": asdict(plan), "dataset": {**data.facts(), "sha256": fingerprint(data)}}
    with store.opened(Path(folder), asked) as kept:
        records = read(folder)
        for index, (settings, seed) in enumerate(plan.runs()):
            if index < len(records):
                table.show(settings, records[index])
            else:
                records.append(table.play(settings, seed, kept, index))
                kept.append(msgspec.json.encode(records[-1]))
        kept.drop()
    return records


def _labels(dataset: Dataset) -> Worlds:
    labels = Labels(dataset.Y)
    return lambda seed: labels


def beginning(dataset: Dataset, building: Building | None = None) -> Begin:
    """Streams and first models of a dataset; the last of them is remembered.

    >>> begin = beginning(load("synthetic:arms=50,features=30,rows=200,init=100"))
    >>> stream, model, _ = begin(100, 200, 10, "kmeans", False, "stationary", 0)
    >>> model is begin(100, 200, 10, "kmeans", False, "stationary", 0)[1]
    True
    """
    return lru_cache(maxsize=1)(lambda *key: _begin(dataset, building, *key))


def _begin(
    dataset: Dataset, building: Building | None, init: int, horizon: int, leaf: int, split: str, apart: bool, name: str,
    seed: int,
) -> tuple[Stream, Model, Scenario | None]:  # fmt: skip
    scenario = Scenario.of(name, dataset.n_arms, horizon, seed)
    return *begin(dataset, init, horizon, leaf, seed, building, scenario, split=split, apart=apart), scenario


def prepared(settings: Settings, stream: Stream, model: Model) -> tuple[Learner, Model]:
    """The learner, and the first model: a warm treetop learner has learned the labels of the initialisation set.

    >>> stream, model = begin(load("synthetic:arms=50,features=30,rows=200,init=100"), 100, 200, 10, seed=0)
    >>> learner, first = prepared(Settings("thrifty", learner="treetop"), stream, model)
    >>> first.epoch, bool(first.trials.sum() > 0)
    (0, True)
    """
    if not settings.learns_labels:
        useless = settings.beam is None and settings.learner == "paper"
        return settings.regressor(), _unrouted(model) if useless else model
    known = Labelled.of(model.tree, stream.X_init, stream.Y_init, beam=settings.beam or model.tree.n_nodes)
    learner = settings.regressor(known)
    return learner, initial_fit(model, learner)


def _unrouted(model: Model) -> Model:
    """The same without routing weights: a beam that prunes nothing decides the same to the bit, and reads less."""
    start = np.zeros(model.tree.n_nodes + 1, np.int64)
    blank = Rows(start, np.zeros(0, np.int32), np.zeros(0, np.float32), model.route_rows.columns)
    return replace(model, route_rows=blank)


@dataclass(frozen=True, eq=False)
class _Table:
    """What the runs of a plan share; `begin` remembers the last stream and first model."""

    plan: Plan
    dataset: Dataset
    begin: Begin
    worlds: Worlds
    progress: Bars | None

    def play(self, asked: Settings, seed: int, kept: store.Folder | None = None, index: int = 0) -> Record:
        settings = asked.resolved(self.dataset)
        stream, model, scenario = self.begin(
            settings.init, settings.horizon, settings.max_leaf, settings.split, settings.learns_labels,
            settings.scenario, seed,
        )  # fmt: skip
        regressor, model = prepared(settings, stream, model)
        world, now = self.worlds(seed), versions()
        past = kept.saved(index, now) if kept else None
        played = run(
            stream, model, settings.policy(model.tree.n_nodes), name=settings.strategy, seed=seed,
            epochs=settings.epochs(), regressor=regressor, feedback=settings.observer(), world=world,
            progress=self._bar(asked, seed, len(stream.rows), past.done if past else 0), resume=past,
            save=(lambda history: kept.save(index, history, now)) if kept else None,
            scenario=scenario,
        )  # fmt: skip
        return _record(self.dataset, settings, played, world.regret(stream.rows, played.history.arms), now)

    def show(self, asked: Settings, record: Record) -> None:
        """A full bar for what is already there."""
        if bar := self._bar(asked, record.seed, record.rounds, record.rounds):
            bar(record.rounds, record.mean_reward)

    def _bar(self, asked: Settings, seed: int, rounds: int, done: int) -> Progress | None:
        return self.progress(self.plan.title(asked, seed), rounds, done) if self.progress else None


def _record(dataset: Dataset, settings: Settings, played: Run, regret: Floats | None, now: dict[str, str]) -> Record:
    known = {name: value for name, value in asdict(settings).items() if name not in ("strategy", "parameters")}
    refits = played.settings["refits"]
    n = played.rounds
    blocks = np.add.reduceat(played.history.collected(), np.arange(min(n, BLOCKS)) * n // min(n, BLOCKS))
    return Record(
        dataset.facts(), played.strategy, played.seed, played.mean_reward, played.checkpoints, played.seconds,
        {**played.settings, **known}, played.history.checksum(), [round(float(b), 6) for b in blocks],
        round(float(played.history.observed.sum() / (played.history.arms >= 0).sum()), 6), now,
        None if regret is None else curve(np.cumsum(regret), refits),
    )  # fmt: skip


def fingerprint(dataset: Dataset) -> str:
    """sha256 of the matrices: results of other data must not be mixed in.

    >>> spec = "synthetic:arms=50,features=30,rows=20"
    >>> fingerprint(load(spec)) == fingerprint(load(spec)) != fingerprint(load(spec + ",seed=1"))
    True
    """
    digest = hashlib.sha256()
    for rows in (dataset.X, dataset.Y, dataset.X_init, dataset.Y_init):
        for array in (rows.start, rows.index, rows.value) if rows else ():
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
