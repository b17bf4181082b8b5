"""Settings x seeds on one dataset, played in order, kept in a folder and taken up again where they stopped.

How a run is played is in `simulation.play`, how its folder is kept in `run_folder`; tables, pictures and tests of
significance read the records that come out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from treetop.arrays import Rows
from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments import run_folder
from treetop.experiments.records import RunRecord, make_record, read_records, software_versions
from treetop.experiments.settings import Plan, Settings
from treetop.learning.label_samples import LabelSamples
from treetop.learning.refit import Learner, initial_fit
from treetop.model.model import Model
from treetop.simulation.play import (
    BuildProgress,
    Environment,
    Learning,
    RunProgress,
    Tracking,
    TreeBuilding,
    first_model,
    run,
)
from treetop.simulation.scenario import Scenario
from treetop.simulation.worlds import Labels, World

Worlds = Callable[[int], World]  # a seed -> where the rewards of its runs come from


class ProgressBars(Protocol):
    """Makes the progress of a run from its name, its rounds, and how many of them are already done."""

    def __call__(self, name: str, total: int, done: int = 0) -> RunProgress: ...


def execute(
    folder: str | os.PathLike[str] | None,
    plan: Plan,
    progress: ProgressBars | None = None,
    *,
    dataset: Dataset | None = None,
    worlds: Worlds | None = None,
    building: BuildProgress | None = None,
    starter: Starter | None = None,
) -> list[RunRecord]:
    """Plays what of the plan is not yet finished in `folder` (None keeps nothing) and gives the records of all of it.

    Killed at any moment and called again, it goes on after the last finished epoch and ends with the same records, but
    for `seconds`. `dataset` stands in for `load(plan.data)`; `worlds` gives rewards other than labels; `building` gets
    the progress of trees and routing. Calls that share one `starter` of the dataset build the same tree once.

    >>> plan = Plan.of("synthetic:arms=50,features=30,rows=200,init=100", ["igw", "greedy"], max_leaf=10)
    >>> [(record.strategy, record.rounds) for record in execute(None, plan)]
    [('igw', 200), ('greedy', 200)]
    """
    if (plan.world == "labels") != (worlds is None):
        raise ValueError(f"the plan's world is {plan.world!r}, but worlds is {worlds!r}")
    data = dataset or load(plan.data)
    runner = Runner(plan, data, starter or Starter(data, building), worlds or labels_of(data), progress)
    if folder is None:
        return [runner.play(settings, seed) for settings, seed in plan.runs()]
    asked = {"plan": asdict(plan), "dataset": {**data.facts(), "sha256": fingerprint(data)}}
    with run_folder.opened(Path(folder), asked) as kept:
        records = read_records(folder)
        for index, (settings, seed) in enumerate(plan.runs()):
            if index < len(records):
                runner.show(settings, records[index])
            else:
                records.append(runner.play(settings, seed, kept, index))
                kept.append(msgspec.json.encode(records[-1]), index)
        kept.drop()
    return records


def labels_of(dataset: Dataset) -> Worlds:
    """Rewards that are the labels, whatever the seed.

    >>> labels_of(load("synthetic:arms=50,features=30,rows=20"))(0).reward_range
    (0.0, 1.0)
    """
    labels = Labels(dataset.Y)
    return lambda seed: labels


class Starter:
    """Streams and first models of a dataset. The last one is kept, for runs that differ in other things than these.

    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> starter, settings = Starter(data), Settings("igw").resolved(data)
    >>> stream, model, scenario = starter(settings, seed=0)
    >>> model is starter(replace(settings, strategy="greedy"), seed=0)[1]
    True
    """

    def __init__(self, dataset: Dataset, progress: BuildProgress | None = None) -> None:
        self._dataset, self._progress = dataset, progress
        self._last: tuple[tuple[Any, ...], tuple[Stream, Model, Scenario | None]] | None = None

    def __call__(self, settings: Settings, seed: int) -> tuple[Stream, Model, Scenario | None]:
        """For settings that are resolved (`Settings.resolved`)."""
        separate = settings.uses_label_samples and settings.separate_unlabelled
        tree = TreeBuilding(settings.split, separate, settings.learner == "treetop", self._progress)
        key = (settings.init, settings.horizon, settings.max_leaf, tree, settings.scenario, settings.order, seed)
        last = self._last
        if last is None or last[0] != key:
            self._last = None  # two of them need not fit into memory
            last = self._last = key, self._started(settings, tree, seed)
        return last[1]

    def _started(self, settings: Settings, tree: TreeBuilding, seed: int) -> tuple[Stream, Model, Scenario | None]:
        sizes = settings.init, settings.horizon, settings.max_leaf, settings.order
        init, horizon, max_leaf = self._dataset.sizes(*sizes)
        scenario = Scenario.of(settings.scenario, self._dataset.n_arms, horizon, seed)
        stream = Stream.draw(self._dataset, init, horizon, seed, settings.order)
        if scenario:
            stream = scenario.initial(stream)
        return stream, first_model(stream, max_leaf, seed, tree), scenario


def prepare_learner(settings: Settings, stream: Stream, model: Model) -> tuple[Learner, Model]:
    """The learner and the first model, which has learned the label samples of the initialisation set if asked to.

    >>> from treetop.simulation.play import begin
    >>> stream, model = begin(load("synthetic:arms=50,features=30,rows=200,init=100"), 100, 200, 10)
    >>> learner, first = prepare_learner(Settings("greedy", learner="treetop"), stream, model)
    >>> first.epoch, bool(first.pooled.sample_count.sum() > 0)
    (0, True)
    """
    if not settings.uses_label_samples:
        prunes_nothing = settings.beam is None and settings.learner == "paper"
        return settings.make_learner(), _without_routing(model) if prunes_nothing else model
    samples = LabelSamples.of(model.tree, stream.X_init, stream.Y_init, settings.beam or model.tree.n_nodes)
    learner = settings.make_learner(samples)
    return learner, initial_fit(model, learner)


def _without_routing(model: Model) -> Model:
    """The same without routing weights: a beam that prunes nothing decides the same to the bit, and reads less."""
    start = np.zeros(model.tree.n_nodes + 1, np.int64)
    blank = Rows(start, np.zeros(0, np.int32), np.zeros(0, np.float32), model.route_rows.columns)
    return replace(model, route_rows=blank)


@dataclass(frozen=True, eq=False)
class Runner:
    """What the runs of a plan share: `play` plays one, from where its folder has it.

    >>> plan = Plan.of("synthetic:arms=50,features=30,rows=200,init=100", ["greedy"], max_leaf=10)
    >>> data = load(plan.data)
    >>> runner = Runner(plan, data, Starter(data), labels_of(data), None)
    >>> runner.play(*plan.runs()[0]).rounds
    200
    """

    plan: Plan
    dataset: Dataset
    starter: Starter
    worlds: Worlds
    progress: ProgressBars | None

    def play(self, asked: Settings, seed: int, kept: run_folder.Folder | None = None, index: int = 0) -> RunRecord:
        settings = asked.resolved(self.dataset)
        stream, model, scenario = self.starter(settings, seed)
        learner, model = prepare_learner(settings, stream, model)
        world, now = self.worlds(seed), software_versions()
        past = kept.saved(index, now) if kept else None
        played = run(
            stream,
            model,
            settings.policy(model.tree.n_nodes),
            seed=seed,
            learning=Learning(learner, settings.epochs()),
            environment=Environment(settings.make_observer(), world, scenario),
            tracking=Tracking(
                settings.strategy,
                self._bar(asked, seed, len(stream.rows), past.done if past else 0),
                past,
                (lambda history: kept.save(index, history, now)) if kept else None,
            ),
        )
        return make_record(self.dataset, settings, played, world.regret(stream.rows, played.history.arms), now)

    def show(self, asked: Settings, record: RunRecord) -> None:
        """A full bar for what is already there."""
        if bar := self._bar(asked, record.seed, record.rounds, record.rounds):
            bar(record.rounds, record.mean_reward)

    def _bar(self, asked: Settings, seed: int, rounds: int, done: int) -> RunProgress | None:
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
