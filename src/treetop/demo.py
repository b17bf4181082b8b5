"""The bundled data played as the paper does and as treetop does: what a newcomer sees first. Knows no terminals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treetop.bandit.refit_config import RefitConfig
from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments.execute import prepare_learner
from treetop.experiments.settings import Settings
from treetop.learning.learners import DEFAULT_STRATEGY
from treetop.model.model import Model
from treetop.report.examples import example_decisions
from treetop.report.pictures import plot
from treetop.simulation.play import Learning, Run, RunProgress, Tracking, TreeBuilding, begin, run

OURS = "treetop"  # the default learner of Bandit and the service, with its default strategy and schedule
NAMES = ("greedy", "epsilon", "boltzmann", "igw", OURS)  # the paper's strategies with its learner, then ours
INIT, ROUNDS, MAX_LEAF = 3_413, 50_000, 10


@dataclass(frozen=True, eq=False)
class Demo:
    """A demo ready to play: all strategies on the same stream. `model` is the first one of the paper's learner; that of
    treetop's has another tree, in which arms without a label have leaves of their own."""

    dataset: Dataset
    stream: Stream
    model: Model
    seed: int = 0

    @classmethod
    def prepare(cls, rounds: int = ROUNDS, seed: int = 0) -> Demo:
        dataset = load("debian")
        return cls(dataset, *begin(dataset, INIT, rounds, MAX_LEAF, seed), seed)

    def play(self, name: str, seed: int = 0, progress: RunProgress | None = None) -> Run:
        schedule = RefitConfig()  # as a bandit refits
        settings = (
            Settings(DEFAULT_STRATEGY["treetop"], learner="treetop", first_epoch=schedule.first, factor=schedule.factor)
            if name == OURS
            else Settings(name)
        )
        model = self.model
        if settings.uses_label_samples:
            tree = TreeBuilding(separate_unlabelled=True)
            _, model = begin(self.dataset, INIT, len(self.stream.rows), MAX_LEAF, self.seed, tree=tree)
        learner, first = prepare_learner(settings, self.stream, model)
        return run(
            self.stream,
            first,
            settings.policy(model.tree.n_nodes),
            seed=seed,
            learning=Learning(learner, settings.epochs()),
            tracking=Tracking(name, progress),
        )

    def attainable(self) -> float:
        """Mean reward of a policy that knows every label: no more than 5 of them can be shown."""
        return float(np.minimum(np.diff(self.dataset.Y.start)[self.stream.rows], 5).mean())

    def by_chance(self) -> float:
        """Mean reward of showing 5 arms at random."""
        return float(5 * np.diff(self.dataset.Y.start)[self.stream.rows].mean() / self.dataset.n_arms)

    def examples(self, runs: list[Run]) -> list[dict[str, Any]]:
        """Five late decisions of the best run."""
        return example_decisions(max(runs, key=lambda r: r.mean_reward), self.stream)

    def picture(self, runs: list[Run], path: Path) -> None:
        title = f"{self.dataset.name}: {self.dataset.n_arms:,} arms, 5 shown a round, 3 of them explored"
        plot(runs, path, title)
