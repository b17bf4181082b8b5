"""What the file `current` says: which model serves, which are kept, what the schedule counts from. Reads no file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from treetop.bandit.experiment_config import Experiment
from treetop.bandit.refit_config import RefitConfig
from treetop.bandit.shared_sums import SharedSums
from treetop.errors import ModelPinned
from treetop.log.records import Counts

FORMAT = 2  # 1 was of a development version
ASIDE = 2  # models that the gate refused which stay, the newest
LOGGED = 1000  # models that stay because the log has decisions of them, the newest: every worker reads `current`
WAITING = 100  # models that stay because they served within a day: so long decisions may wait to be logged
DAY = 86400.0  # seconds


@dataclass(frozen=True)
class ModelOrigin:
    """Where a kept model comes from: `base` is the kept model that it was made from, empty for the oldest.

    `grown` says that it only has more arms than its base; otherwise it was fitted. `until` is when it last served, 0 if
    it never has or still does. `aside` says why the gate did not let it serve. `time` is up to when decisions are in
    its counts of trials; None if it was fitted before that was noted.
    """

    base: str = ""
    grown: bool = False
    until: float = 0.0
    aside: str = ""
    time: float | None = None


@dataclass(frozen=True)
class ScheduleStart:
    """What the schedule of refits counts from: the last refit or rollback.

    `observed` rounds with a reward were in the log at that `time`; `ever` also counts those that retention had deleted.
    """

    observed: int = 0
    ever: int = 0
    time: float = 0.0

    @classmethod
    def of(cls, counts: Counts, time: float) -> ScheduleStart:
        """From the counts of a log and the time of now.

        >>> ScheduleStart.of(Counts(observed=70, forgotten_observed=30), 5.0)
        ScheduleStart(observed=70, ever=100, time=5.0)
        """
        return cls(counts.observed, counts.observed_ever, time)

    def new(self, counts: Counts) -> int:
        """How many rounds were observed since. A log that has seen fewer is another one: all of it is new.

        >>> start = ScheduleStart(observed=70, ever=100)
        >>> start.new(Counts(observed=60, forgotten_observed=50)), start.new(Counts(observed=7))
        (10, 7)
        """
        ever = counts.observed_ever
        return ever - self.ever if ever >= self.ever else ever


@dataclass(frozen=True)
class FolderState:
    """The content of `current`. A model's name is its epoch; no name is used twice."""

    bandit: str  # the bandit's id, made when it was created: its logs carry it
    model: str
    catalogue: int  # bytes of catalogue.jsonl that count
    next_epoch: int  # of the next model
    models: Mapping[str, ModelOrigin]  # those that are kept
    refit_observed: int = 0  # rounds with an observed reward that were in the log at the last refit
    refit_time: float = 0.0  # of the last refit
    schedule: ScheduleStart = ScheduleStart()
    pinned: bool = False  # whether the current model stays until it is unpinned, whatever the schedule says
    attributes: int = 0  # bytes of attributes.bin that count
    experiment: Experiment | None = None  # that runs
    settings: int = 0  # how often a variant became [policy] of config.toml, which running processes read again then
    policy: Mapping[str, Any] | None = None  # the [policy] that it became last
    format: int = FORMAT

    @classmethod
    def read(cls, text: bytes) -> FolderState:
        """Raises ValueError or TypeError for what is not the content of `current`.

        >>> state = FolderState("b1", "000000", 12, 1, {"000000": ModelOrigin()})
        >>> FolderState.read(state.text()) == state
        True
        """
        found: dict[str, Any] = json.loads(text)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            kind = found.get("format") if isinstance(found, dict) else None
            raise ValueError(f"it has format {kind}; this software reads {FORMAT}")
        models = {name: ModelOrigin(**origin) for name, origin in found["models"].items()}
        running = Experiment.read(found.get("experiment"))
        known = {**found, "models": models, "schedule": ScheduleStart(**found["schedule"]), "experiment": running}
        state = cls(**known)
        if state.model not in models:
            raise ValueError(f"model {state.model} is not among the models {', '.join(models)}")
        return state

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    def check_not_pinned(self) -> None:
        """Raises ModelPinned if no refit may replace the current model."""
        if self.pinned:
            raise ModelPinned(f"model {self.model} is pinned; unpin it first")

    @property
    def fitted(self) -> str:
        """The fitted model that the current one is, or grew from."""
        return _fitted(self.models, self.model)

    @property
    def counted_until(self) -> float:
        """The time from which trials of new arms are not in the current model.

        >>> models = {"000000": ModelOrigin(time=0.0), "000001": ModelOrigin("000000", time=5.0)}
        >>> [FolderState("b1", name, 12, 2, models, refit_time=5.0).counted_until for name in models]
        [0.0, 5.0]
        """
        found = self.models[self.fitted].time
        return self.refit_time if found is None else found

    def names(self) -> list[str]:
        """The models kept, oldest first."""
        return sorted(self.models, key=int)

    def needed(self, logged: Collection[str], keep: RefitConfig, now: float, sizes: Mapping[str, int]) -> set[str]:
        """The models that the log has decisions of, or may still get as they served lately: the newest, as long and as
        far as `keep` has room for them. And those of the experiment.

        >>> models = {"000000": ModelOrigin(until=5.0), "000001": ModelOrigin(until=9.0), "000002": ModelOrigin()}
        >>> state, keep = FolderState("b1", "000002", 12, 3, models), RefitConfig(keep_gb=1e-8)
        >>> [sorted(state.needed({"000000"}, keep, now, dict.fromkeys(models, 5))) for now in (10.0, 1e6)]
        [['000000', '000001'], ['000000']]
        >>> sorted(state.needed(set(models), keep, 1e6, dict.fromkeys(models, 6)))
        ['000001']
        """
        found = set() if self.experiment is None else self.experiment.models()
        since, room = now - keep.keep_days * DAY if keep.keep_days else 0.0, keep.keep_gb * 1e9
        served = [name for name, origin in self.models.items() if origin.until > since]
        served.sort(key=lambda name: (self.models[name].until, name), reverse=True)
        waiting = [name for name in served if name not in logged and self.models[name].until > now - DAY]
        for name in [name for name in served if name in logged][:LOGGED] + waiting[:WAITING]:
            room -= sizes.get(name, 0)
            if room < 0:
                break
            found.add(name)
        return found

    def with_model(
        self, name: str, fitted: ScheduleStart | None, keep: int, needed: Collection[str] = (), now: float = 0.0
    ) -> FolderState:
        """With a new model, made from the current one, in its place, and without those that need not be kept.

        `fitted` is what the schedule counts from now, None for a model that only has more arms. The newest `keep`
        fitted models stay. Those that only have more arms count with the fitted one that they grew from: of these the
        newest stays. So does the model that the new one was made from, for a rollback, and those that are `needed`.

        >>> state = FolderState("b1", "000000", 12, 1, {"000000": ModelOrigin()})
        >>> for epoch in range(1, 6):
        ...     state = state.with_model(f"{epoch:06d}", ScheduleStart() if epoch == 2 else None, keep=2)
        >>> state.names()
        ['000000', '000001', '000002', '000004', '000005']
        >>> state.models["000004"].base
        '000002'
        """
        origin = ModelOrigin(self.model, grown=fitted is None, time=None if fitted is None else fitted.time)
        models = {**self.left(now).models, name: origin}
        new = replace(self, model=name, next_epoch=max(self.next_epoch, int(name) + 1), models=models)
        new = new.cut(keep, {*needed, self.model})
        if fitted is None:
            return new
        return replace(new, refit_observed=fitted.observed, refit_time=fitted.time, schedule=fitted)

    def with_aside(
        self, name: str, why: str, schedule: ScheduleStart, keep: int, needed: Collection[str]
    ) -> FolderState:
        """With a model beside the current one, which serves on: the schedule counts from now, what was learned stays.

        >>> state = FolderState("b1", "000000", 12, 1, {"000000": ModelOrigin()})
        >>> state.with_aside("000001", "worse", ScheduleStart(7), keep=2, needed=()).models["000001"]
        ModelOrigin(base='000000', grown=False, until=0.0, aside='worse', time=0.0)
        """
        models = {**self.models, name: ModelOrigin(self.model, aside=why, time=schedule.time)}
        new = replace(self, next_epoch=max(self.next_epoch, int(name) + 1), models=models, schedule=schedule)
        return new.cut(keep, needed)

    def cut(self, keep: int, needed: Collection[str]) -> FolderState:
        """Without the models that need not be kept, as `with_model` says."""
        models, order = self.models, self.names()
        aside = [other for other in order if models[other].aside]
        fits = [other for other in order if not models[other].grown and not models[other].aside][-keep:]
        newest = {_fitted(models, other): other for other in order}
        chosen = {self.model, _fitted(models, self.model), *fits, *(newest[fit] for fit in fits), *aside[-ASIDE:]}
        chosen |= {other for other in needed if other in models}
        kept = {
            other: replace(origin, base=_ancestor(models, origin.base, chosen))
            for other, origin in models.items()
            if other in chosen
        }
        return replace(self, models=kept)

    def left(self, now: float) -> FolderState:
        """With the time at which the current model, and those of an experiment, stop serving.

        >>> FolderState("b1", "000000", 12, 1, {"000000": ModelOrigin()}).left(5.0).models["000000"].until
        5.0
        """
        served = {self.model, *(self.experiment.models() if self.experiment else ())}
        models = {n: replace(origin, until=now) if n in served else origin for n, origin in self.models.items()}
        return replace(self, models=models)


def _fitted(models: Mapping[str, ModelOrigin], name: str) -> str:
    """The fitted model that a model grew from: itself, if it was fitted, or the oldest that is known."""
    while models[name].grown and models[name].base:
        name = models[name].base
    return name


def _ancestor(models: Mapping[str, ModelOrigin], name: str, chosen: set[str]) -> str:
    """The nearest of the chosen models among a model and those that it comes from; empty if there is none."""
    while name and name not in chosen:
        name = models[name].base
    return name


class Shared(Protocol):
    """What several folders of one bandit share: `replica.Replica`."""

    @property
    def sums(self) -> SharedSums: ...
    def manifest(self) -> Any: ...
    def push(self, folder: Path, old: FolderState, new: FolderState) -> None: ...
    def reserved(self) -> AbstractContextManager[None]: ...
    def fetch_models(self, folder: Path, found: Any) -> None: ...
    def fetch_arms(self, folder: Path, here: FolderState, found: Any) -> None: ...
