"""What the file `current` says: which model serves, which are kept, what the schedule counts from. Reads no file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from treetop.errors import ModelPinned
from treetop.log.records import Counts

FORMAT = 2  # 1 was of a development version


@dataclass(frozen=True)
class ModelOrigin:
    """Where a kept model comes from: `base` is the kept model that it was made from, empty for the oldest.

    `grown` says that it only has more arms than its base; otherwise it was fitted.
    """

    base: str = ""
    grown: bool = False


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
        state = cls(**{**found, "models": models, "schedule": ScheduleStart(**found["schedule"])})
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

    def names(self) -> list[str]:
        """The models kept, oldest first."""
        return sorted(self.models, key=int)

    def with_model(self, name: str, fitted: ScheduleStart | None, keep: int) -> FolderState:
        """With a new model, made from the current one, in its place, and without those that need not be kept.

        `fitted` is what the schedule counts from now, None for a model that only has more arms. The newest `keep`
        fitted models stay. Those that only have more arms count with the fitted one that they grew from: of these the
        newest stays. So does the model that the new one was made from, for a rollback.

        >>> state = FolderState("b1", "000000", 12, 1, {"000000": ModelOrigin()})
        >>> for epoch in range(1, 6):
        ...     state = state.with_model(f"{epoch:06d}", ScheduleStart() if epoch == 2 else None, keep=2)
        >>> state.names()
        ['000000', '000001', '000002', '000004', '000005']
        >>> state.models["000004"].base
        '000002'
        """
        models = {**self.models, name: ModelOrigin(self.model, grown=fitted is None)}
        fits = [other for other in sorted(models, key=int) if not models[other].grown][-keep:]
        newest = {_fitted(models, other): other for other in sorted(models, key=int)}
        chosen = {name, self.model, _fitted(models, name), *fits, *(newest[fit] for fit in fits)}
        kept = {
            other: replace(origin, base=_ancestor(models, origin.base, chosen))
            for other, origin in models.items()
            if other in chosen
        }
        new = replace(self, model=name, next_epoch=max(self.next_epoch, int(name) + 1), models=kept)
        if fitted is None:
            return new
        return replace(new, refit_observed=fitted.observed, refit_time=fitted.time, schedule=fitted)


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
