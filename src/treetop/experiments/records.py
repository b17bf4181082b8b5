"""Finished runs, as tables, plots and tests of significance read them. Plays nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treetop._version import __version__
from treetop.arrays import Floats
from treetop.data.datasets import Dataset
from treetop.experiments import run_folder
from treetop.experiments.settings import Settings
from treetop.simulation.history import curve
from treetop.simulation.play import SUMMARY, Run

COMPARED_SETTINGS = (  # that a table names where they differ
    "k",
    "explore",
    "beam",
    "learner",
    "label_samples",
    "observer",
    "scenario",
    "order",
    "loss",
    "split",
    "max_leaf",
    "init",
    "horizon",
    "first_epoch",
    "factor",
)

BLOCKS = 200


@dataclass(frozen=True)
class RunRecord:
    """One finished run: what tables, plots and tests of significance need, and what tells whether it was the same.

    `checkpoints` are (rounds, mean reward so far), `regret_checkpoints` (rounds, regret so far in all). `blocks` are
    the rewards of 200 equal stretches, to be paired with those of another strategy with the same seed. `observed` is
    the share of slots that the learner observed; `checksum` the sha256 of arms, nodes and rewards. `exploration_cost`
    is what the greedy slates of the same models would have brought more than was collected, a round; `found_arms` had
    their first reward in an explored slot, and have earned `found_reward` in later rounds.
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
    exploration_cost: float
    versions: dict[str, str]
    regret_checkpoints: list[tuple[int, float]] | None = None
    found_arms: int = 0
    found_reward: float = 0.0

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
        return {name: getattr(self, name) for name in SUMMARY}


def software_versions() -> dict[str, str]:
    """What a run was played with: others may give other bytes.

    >>> sorted(software_versions())
    ['numpy', 'python', 'scipy', 'treetop']
    """
    others = {name: version(name) for name in ("numpy", "scipy")}
    return {"treetop": __version__, **others, "python": platform.python_version()}


def distinguishing_settings(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """For every run, by strategy and settings: the parameters that its strategy has in no other run, and the settings
    that are not the same in all runs, both in words. What follows from the learner is left out.

    >>> distinguishing_settings([("igw", {"beam": 10, "k": 5}), ("igw", {"beam": 30, "k": 5})])
    [('', 'beam=10'), ('', 'beam=30')]
    >>> played = [("igw", {"parameters": {"C": 1.0}}), ("igw", {"parameters": {"C": 2.0}}), ("greedy", {})]
    >>> distinguishing_settings(played)
    [('C=1.0', ''), ('C=2.0', ''), ('', '')]
    """
    differing = [name for name in COMPARED_SETTINGS if any(s.get(name) != runs[0][1].get(name) for _, s in runs)]
    if "learner" in differing:
        differing = [name for name in differing if name not in ("label_samples", "first_epoch", "factor")]
    found = []
    for strategy, settings in runs:
        twins = [s.get("parameters", {}) for name, s in runs if name == strategy]
        own = {n: v for n, v in settings.get("parameters", {}).items() if any(twin.get(n) != v for twin in twins)}
        shown = {name: "all" if settings.get(name) is None else settings[name] for name in differing}
        parts = (" ".join(f"{name}={value}" for name, value in words.items()) for words in (own, shown))
        found.append((next(parts), next(parts)))
    return found


def read_records(folder: str | os.PathLike[str]) -> list[RunRecord]:
    """The finished runs of a folder, in order.

    >>> from treetop.experiments.execute import execute
    >>> from treetop.experiments.settings import Plan
    >>> plan = Plan.of("synthetic:arms=50,features=30,rows=200,init=100", ["igw", "greedy"], max_leaf=10)
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = execute(folder, plan)
    ...     [record.strategy for record in read_records(folder)]
    ['igw', 'greedy']
    """
    return [msgspec.json.decode(line, type=RunRecord) for line in run_folder.lines(Path(folder))]


def make_record(
    dataset: Dataset, settings: Settings, played: Run, regret: Floats | None, versions: dict[str, str]
) -> RunRecord:
    """The record of a finished run; `regret` is that of every round, where it is known.

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> from treetop.simulation.play import begin, run
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> played = run(*begin(data, init=100, horizon=200, max_leaf=10), Policy())
    >>> make_record(data, Settings("igw"), played, None, software_versions()).rounds
    200
    """
    known = {name: value for name, value in asdict(settings).items() if name not in ("strategy", "parameters")}
    refits = played.settings["refits"]
    n = played.rounds
    blocks = np.add.reduceat(played.history.collected(), np.arange(min(n, BLOCKS)) * n // min(n, BLOCKS))
    return RunRecord(
        dataset.facts(),
        played.strategy,
        played.seed,
        played.mean_reward,
        played.checkpoints,
        played.seconds,
        {**played.settings, **known},
        played.history.checksum(),
        [round(float(b), 6) for b in blocks],
        round(float(played.history.observed.sum() / (played.history.arms >= 0).sum()), 6),
        played.exploration_cost,
        versions,
        None if regret is None else curve(np.cumsum(regret), refits),
        played.found_arms,
        played.found_reward,
    )
