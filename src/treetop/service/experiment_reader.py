"""How the experiment goes, as the service answers it: running totals of the log that any request brings up to date."""

from __future__ import annotations

import math
import threading

from treetop.bandit.bandit import Bandit
from treetop.bandit.live_experiment import LiveExperiment, find_experiment
from treetop.evaluation.verdict import Estimate
from treetop.service import schema


class ExperimentReader:
    """Running totals of the last experiment that was asked for, which one caller at a time brings up to date."""

    def __init__(self, bandit: Bandit) -> None:
        self.bandit = bandit
        self._lock = threading.Lock()
        self._live: LiveExperiment | None = None

    def answer(self) -> schema.ExperimentAnswer:
        """Reads what is new in the log."""
        bandit = self.bandit
        found, defined = find_experiment(bandit.folder), list(bandit.config.experiments)
        if found is None:
            return schema.ExperimentAnswer(None, False, None, None, [], [], defined)
        experiment, running = found
        with self._lock:
            if self._live is None or self._live.experiment != experiment:
                self._live = LiveExperiment(bandit.log, experiment)
            while not self._live.update():
                pass
            result = self._live.result(running, bandit.config.rewards.reward_wait)
        history = [
            schema.ExperimentMoment(
                moment.time,
                {
                    name: None if e is None else _estimate(e)
                    for name, e in zip(result.order, moment.rewards, strict=True)
                },
            )
            for moment in result.history
        ]
        variants = [
            schema.VariantAnswer(
                v.name,
                float(experiment.variants[v.name]["share"]),
                experiment.settings(v.name),
                v.visits,
                _estimate(v.reward),
                None if v.difference is None else _estimate(v.difference),
                v.verdict,
            )
            for v in result.variants
        ]
        return schema.ExperimentAnswer(
            experiment.name, running, experiment.started, experiment.unit, variants, history, defined
        )


def _estimate(found: Estimate) -> schema.ExperimentEstimate:
    return schema.ExperimentEstimate(*(x if math.isfinite(x) else None for x in (found.value, found.low, found.high)))
