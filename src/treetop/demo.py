"""The bundled data played as the paper does and as treetop does: what a newcomer sees first. Knows no terminals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treetop.bandit.config import RefitConfig
from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments.execute import prepared
from treetop.experiments.settings import Settings
from treetop.model.model import Model
from treetop.report.pictures import plot
from treetop.report.tables import in_words
from treetop.simulation.play import Progress, Run, begin, run

BETTER = "treetop"  # the learner that is the default of Bandit and the service, with its own strategy and schedule
NAMES = ("greedy", "epsilon", "boltzmann", "igw", BETTER)  # the paper's strategies with its learner, then that
INIT, ROUNDS, MAX_LEAF = 3_413, 50_000, 10


@dataclass(frozen=True, eq=False)
class Demo:
    """A demo ready to play: all from the same stream; treetop's tree sets arms apart that have no label."""

    dataset: Dataset
    stream: Stream
    model: Model
    seed: int = 0

    @classmethod
    def prepare(cls, rounds: int = ROUNDS, seed: int = 0) -> Demo:
        dataset = load("debian")
        return cls(dataset, *begin(dataset, INIT, rounds, MAX_LEAF, seed), seed)

    def play(self, name: str, seed: int = 0, progress: Progress | None = None) -> Run:
        often = RefitConfig()  # as a bandit refits
        settings = (
            Settings("thrifty", learner="treetop", first_epoch=often.first, factor=often.factor)
            if name == BETTER
            else Settings(name)
        )
        model = self.model
        if settings.learns_labels:
            _, model = begin(self.dataset, INIT, len(self.stream.rows), MAX_LEAF, self.seed, apart=True)
        learner, first = prepared(settings, self.stream, model)
        return run(
            self.stream, first, settings.policy(model.tree.n_nodes), name=name, seed=seed, progress=progress,
            epochs=settings.epochs(), regressor=learner,
        )  # fmt: skip

    def attainable(self) -> float:
        """Mean reward of a policy that knows every label: no more than 5 of them can be shown."""
        return float(np.minimum(np.diff(self.dataset.Y.start)[self.stream.rows], 5).mean())

    def by_chance(self) -> float:
        """Mean reward of showing 5 arms at random."""
        return float(5 * np.diff(self.dataset.Y.start)[self.stream.rows].mean() / self.dataset.n_arms)

    def examples(self, runs: list[Run]) -> list[dict[str, Any]]:
        """Five late decisions of the best run."""
        return in_words(max(runs, key=lambda r: r.mean_reward), self.stream)

    def picture(self, runs: list[Run], path: Path) -> None:
        title = f"{self.dataset.name}: {self.dataset.n_arms:,} arms, 5 shown a round, 3 of them explored"
        plot(runs, path, title)
