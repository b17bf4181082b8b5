"""An experiment as its log says it goes: reads what is new, compares the variants. Changes nothing."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treetop.bandit.experiment_config import Experiment
from treetop.bandit.folder import BanditFolder
from treetop.display import as_json
from treetop.evaluation.live import LiveTotals, Moment, VariantResult
from treetop.log.base import Log
from treetop.log.variant_rows import BUCKETS

STEP = 50_000  # entries of the log that are read at a time


@dataclass(frozen=True)
class ExperimentResult:
    """How an experiment goes: its variants, the baseline first, and their intervals over time.

    >>> ExperimentResult("beams", True, 0.0, 0.95, (), (), ()).to_dict()["name"]
    'beams'
    """

    name: str
    running: bool
    started: float
    confidence: float
    variants: tuple[VariantResult, ...]
    order: tuple[str, ...]  # of the estimates in `history`
    history: tuple[Moment, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it; what is not known is None."""
        found: dict[str, Any] = as_json(asdict(self))
        return found


class LiveExperiment:
    """Running totals of an experiment. `update` reads only what is new. Not thread-safe."""

    def __init__(self, log: Log, experiment: Experiment) -> None:
        self.log, self.experiment = log, experiment
        self.position = 0
        self.totals = LiveTotals(tuple(experiment.variants), experiment.started, BUCKETS)

    def update(self, limit: int = STEP) -> bool:
        """Reads up to `limit` more entries of the log; returns True when there is nothing more to read."""
        newest = self.log.counts().position
        until = min(newest, self.position + limit)
        if until > self.position:
            visits, rewards = self.log.variant_rows(self.experiment.name, self.experiment.unit, self.position, until)
            for rows, add in ((visits, self.totals.add_visits), (rewards, self.totals.add_rewards)):
                known = self.totals.names  # an earlier experiment of this name may have had other variants
                place = np.array([known.index(name) if name in known else -1 for name in (*rows.names, "")], np.int32)
                variants = place[rows.variants]
                mine = (variants >= 0) & (rows.times >= self.experiment.started)
                add(rows.times[mine], variants[mine], rows.buckets[mine], rows.values[mine])
        self.position = until
        return until == newest

    def result(self, running: bool, reward_wait: float, confidence: float = 0.95) -> ExperimentResult:
        """What is known: visits whose rewards may still come (`reward_wait`) are left out."""
        until, experiment = time.time() - reward_wait, self.experiment
        return ExperimentResult(
            experiment.name,
            running,
            experiment.started,
            confidence,
            tuple(self.totals.results(experiment.compared_with, until, confidence)),
            self.totals.names,
            tuple(self.totals.history(until, confidence)),
        )


def find_experiment(folder: BanditFolder, name: str | None = None) -> tuple[Experiment, bool] | None:
    """An experiment as it was last started, and whether it runs; the one that runs, or else the last, without a name.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint", "rose"]) as tea:
    ...     find_experiment(tea.folder) is None
    True
    """
    running = folder.state().experiment
    if running is not None and name in (None, running.name):
        return running, True
    for entry in reversed(folder.history()):
        if entry["kind"] == "experiment started" and name in (None, entry["name"]):
            facts = {key: entry[key] for key in ("variants", "unit", "baseline", "name", "started")}
            return Experiment(**facts), False
    return None
