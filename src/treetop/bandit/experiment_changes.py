"""What starts, stops and ends an experiment on live traffic. Every process that has the folder open goes by it at once.

The definition stands in config.toml; starting copies it into `current`, so that nothing changes it while it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from treetop.bandit.candidates import CandidatePolicy
from treetop.bandit.config import Config, PolicyConfig
from treetop.bandit.config_file import CONFIG, read_config, with_policy
from treetop.bandit.experiment_config import Experiment
from treetop.bandit.folder import BanditFolder
from treetop.bandit.snapshot import Snapshot
from treetop.bandit.state import FolderState, ScheduleStart
from treetop.log.base import Log
from treetop.model.model import Model
from treetop.policy.policy import MAX_SLOTS


class ExperimentChanges:
    """The part of `Bandit` that changes its experiment."""

    if TYPE_CHECKING:  # what `Bandit` has
        folder: BanditFolder
        config: Config
        log: Log
        snapshot: Snapshot
        refresh: Callable[[], bool]

    def start_experiment(self, name: str) -> Experiment:
        """Starts an experiment of config.toml, which is read again for it. One runs at a time.

        >>> import tempfile
        >>> import numpy as np
        >>> from treetop.bandit.bandit import Bandit
        >>> from treetop.bandit.experiment_config import ExperimentConfig
        >>> beams = ExperimentConfig({"now": {"share": 0.5}, "wide": {"share": 0.5, "beam": 30}})
        >>> config = Config(experiments={"beams": beams})
        >>> folder = tempfile.TemporaryDirectory()
        >>> with Bandit.create(f"{folder.name}/tea", X=np.eye(4), Y=np.eye(4), config=config) as tea:
        ...     started = tea.start_experiment("beams")
        ...     {tea.decide(np.ones(4), keys={"visitor": 7}).variant for _ in range(9)}  # one visitor, one variant
        ...     tea.stop_experiment().name, tea.decide(np.ones(4), keys={"visitor": 7}).variant
        {'wide'}
        ('beams', None)
        >>> folder.cleanup()
        """
        config = read_config(self.folder.path / CONFIG)
        known = config.experiments
        if name in config.bad_experiments:
            raise ValueError(f"{CONFIG}: {config.bad_experiments[name]}")
        if name not in known:
            there = ", ".join(known) or "none"
            raise ValueError(f"there is no experiment {name!r} in {CONFIG}; there are: {there}")
        chosen = known[name]
        running = Experiment(dict(chosen.variants), chosen.unit, chosen.compared_with, name, time.time())

        def begun(state: FolderState) -> FolderState:
            if state.experiment is not None:
                raise ValueError(f"experiment {state.experiment.name!r} runs; stop it or promote one of its variants")
            for variant in running.variants:
                self._check(running, variant, state)
            return replace(state, experiment=running)

        self.folder.change(begun)
        self.folder.note("experiment started", model=self.snapshot.name, **running.plain())
        self.refresh()
        return running

    def _check(self, running: Experiment, variant: str, state: FolderState) -> None:
        try:
            candidate = CandidatePolicy.of(running.settings(variant))
            candidate.check_explore(self.config.policy.k)
            made = candidate.applied(self.config.policy)
        except (ValueError, TypeError) as error:
            raise ValueError(f"variant {variant!r} of experiment {running.name!r}: {error}") from None
        if candidate.model is not None and candidate.model not in state.models:
            kept = ", ".join(state.names())
            raise ValueError(f"variant {variant!r} names model {candidate.model!r}; kept are {kept}")
        if made.k > min(self.config.limits.k, MAX_SLOTS):
            raise ValueError(f"variant {variant!r} has k = {made.k}; limits.k is {self.config.limits.k}")

    def stop_experiment(self) -> Experiment:
        """Ends the experiment that runs: every visit is decided by the ordinary settings again. Its log stays."""
        stopped: list[Experiment] = []

        def ended(state: FolderState) -> FolderState:
            stopped.append(_running(state))
            left = state.left(time.time()).models if stopped[0].models() else state.models
            return replace(state, experiment=None, models=left)

        self.folder.change(ended)
        self.folder.note("experiment stopped", model=self.snapshot.name, name=stopped[0].name)
        self.refresh()
        return stopped[0]

    def promote_variant(self, variant: str) -> PolicyConfig:
        """Ends the experiment that runs, and lets a variant decide all visits from now on.

        Its settings become those of [policy] in config.toml, which is written anew; its model, if it names one, becomes
        current as by a rollback. Returns the settings. All replicas take them over, each into its own config.toml.

        >>> import tempfile
        >>> from treetop.bandit.bandit import Bandit
        >>> from treetop.bandit.experiment_config import ExperimentConfig
        >>> beams = ExperimentConfig({"now": {"share": 0.5}, "wide": {"share": 0.5, "beam": 30}})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Bandit.create(f"{folder}/tea", ["mint"], config=Config(experiments={"beams": beams})) as tea:
        ...         _ = tea.start_experiment("beams")
        ...         tea.promote_variant("wide").beam, tea.snapshot.policy_config.beam
        (30, 30)
        """
        running = _running(self.folder.state())
        candidate = CandidatePolicy.of(running.settings(variant))
        schedule = ScheduleStart.of(self.log.counts(), time.time())
        path = self.folder.path / CONFIG
        policy = candidate.applied(read_config(path).policy)
        with_policy(path.read_text(encoding="utf-8"), policy)  # raises if it cannot be written there

        def promoted(state: FolderState) -> FolderState:
            if _running(state) != running:
                raise ValueError(f"experiment {running.name!r} does not run any more")
            new = replace(
                state.left(schedule.time), experiment=None, settings=state.settings + 1, policy=asdict(policy)
            )
            if candidate.model is not None and candidate.model != state.model:
                Model.load(self.folder.model_path(candidate.model))  # raises if it cannot be read
                models = {**new.models, candidate.model: replace(new.models[candidate.model], aside="")}
                new = replace(new, model=candidate.model, models=models, schedule=schedule)
            return new

        self.folder.change(promoted)
        self.folder.note("experiment promoted", model=self.folder.state().model, name=running.name, variant=variant)
        self.refresh()
        return policy


def _running(state: FolderState) -> Experiment:
    if state.experiment is None:
        raise ValueError("no experiment runs")
    return state.experiment
