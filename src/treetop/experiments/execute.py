"""Settings x seeds on one dataset, played in order, kept in a folder and taken up again where they stopped.

Tables, plots and tests of significance read `Record`s; how a run is played is in `simulate`, how it is kept in `store`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from treetop.arrays import Rows
from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments import run_folder
from treetop.experiments.records import RunRecord, read_records, record_of, versions
from treetop.experiments.settings import Plan, Settings
from treetop.learning.linear import Learner
from treetop.learning.pooled import Labelled
from treetop.learning.refit import initial_fit
from treetop.model.model import Model
from treetop.simulation.play import Building, Labels, Progress, World, begin, run
from treetop.simulation.scenario import Scenario

Worlds = Callable[[int], World]  # a seed -> where the rewards of its runs come from
Begin = Callable[..., tuple[Stream, Model, Scenario | None]]  # sizes, tree settings, scenario, seed


class Bars(Protocol):
    """Shows runs to somebody: the name of a run, its rounds, how many were already done -> what is told the rest."""

    def __call__(self, name: str, total: int, done: int = 0) -> Progress: ...


def execute(
    folder: str | os.PathLike[str] | None,
    plan: Plan,
    progress: Bars | None = None,
    *,
    dataset: Dataset | None = None,
    worlds: Worlds | None = None,
    building: Building | None = None,
    started: Begin | None = None,
) -> list[RunRecord]:
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
    with run_folder.opened(Path(folder), asked) as kept:
        records = read_records(folder)
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
    dataset: Dataset,
    building: Building | None,
    init: int,
    horizon: int,
    leaf: int,
    split: str,
    apart: bool,
    name: str,
    seed: int,
) -> tuple[Stream, Model, Scenario | None]:
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

    def play(self, asked: Settings, seed: int, kept: run_folder.Folder | None = None, index: int = 0) -> RunRecord:
        settings = asked.resolved(self.dataset)
        stream, model, scenario = self.begin(
            settings.init,
            settings.horizon,
            settings.max_leaf,
            settings.split,
            settings.learns_labels,
            settings.scenario,
            seed,
        )
        regressor, model = prepared(settings, stream, model)
        world, now = self.worlds(seed), versions()
        past = kept.saved(index, now) if kept else None
        played = run(
            stream,
            model,
            settings.policy(model.tree.n_nodes),
            name=settings.strategy,
            seed=seed,
            epochs=settings.epochs(),
            regressor=regressor,
            feedback=settings.observer(),
            world=world,
            progress=self._bar(asked, seed, len(stream.rows), past.done if past else 0),
            resume=past,
            save=(lambda history: kept.save(index, history, now)) if kept else None,
            scenario=scenario,
        )
        return record_of(self.dataset, settings, played, world.regret(stream.rows, played.history.arms), now)

    def show(self, asked: Settings, record: RunRecord) -> None:
        """A full bar for what is already there."""
        if bar := self._bar(asked, record.seed, record.rounds, record.rounds):
            bar(record.rounds, record.mean_reward)

    def _bar(self, asked: Settings, seed: int, rounds: int, done: int) -> Progress | None:
        return self.progress(self.plan.title(asked, seed), rounds, done) if self.progress else None


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
