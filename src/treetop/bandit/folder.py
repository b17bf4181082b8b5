"""A bandit's folder: which model and catalogue are current, the models kept, what happened to them. Decides nothing.

    config.toml  vocabulary.json  catalogue.jsonl  labelled/  models/000007/  current  history.jsonl  log.sqlite

`current` is the one file that says what serves. It is replaced in one step, so a reader sees one state or the next. The
catalogue only grows, and `current` says how much of it counts.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from treetop.arrays import Bools
from treetop.bandit.catalogue import Catalogue
from treetop.errors import ModelFileError, ModelSuperseded
from treetop.files import append, cut_unfinished_line, locked, put
from treetop.learning.label_samples import LabelSamples, load_label_samples
from treetop.model.model import Model

CURRENT, CATALOGUE, HISTORY, MODELS, LOG = "current", "catalogue.jsonl", "history.jsonl", "models", "log.sqlite"
LABELLED = "labelled"
PATIENCE = 60.0  # seconds for another process to finish a change


@dataclass(frozen=True)
class State:
    """What `current` says. A model's name is its epoch, and no name is used twice."""

    model: str
    catalogue: int  # bytes of catalogue.jsonl
    following: int  # the epoch of the next model
    refit_observed: int = 0  # rounds with an observed reward that the last refit saw; a rollback does not change it
    refit_time: float = 0.0
    format: int = 1


@dataclass(frozen=True)
class Home:
    path: Path

    def model_path(self, name: str) -> Path:
        return self.path / MODELS / name

    def signature(self) -> tuple[int, ...]:
        """Changes when `current` is replaced; costs one call of the system."""
        facts = os.stat(self.path / CURRENT)
        return facts.st_ino, facts.st_mtime_ns, facts.st_size

    def state(self) -> State:
        try:
            said = json.loads((self.path / CURRENT).read_bytes())
            state = State(**said)
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path} is not a bandit's folder: there is no {CURRENT!r} in it") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path / CURRENT} cannot be read: {error}") from None
        if state.format != 1:
            raise ValueError(f"{self.path / CURRENT} has format {state.format}; this software reads 1")
        return state

    def catalogue(self, state: State) -> Catalogue:
        with (self.path / CATALOGUE).open("rb") as file:
            lines = file.read(state.catalogue)
        if len(lines) != state.catalogue:
            raise ValueError(f"{self.path / CATALOGUE} has {len(lines)} bytes; {state.catalogue} were written")
        return Catalogue.read(lines)

    def labelled(self, model: Model, gone: Bools) -> LabelSamples:
        """The labels that the bandit was made from, without those of arms that are gone."""
        return load_label_samples(self.path / LABELLED, model.n_arms, model.n_features).without(gone)

    def models(self) -> list[str]:
        """The models kept, oldest first."""
        return sorted((path.name for path in (self.path / MODELS).iterdir() if path.name.isdecimal()), key=int)

    def load(self, state: State) -> tuple[str, Model, str]:
        """The current model, or if it cannot be read the newest that can, and then why."""
        trouble = ""
        older = [name for name in reversed(self.models()) if name != state.model]
        for name in [state.model, *older]:
            model, why = _opened(self.model_path(name))
            trouble = trouble or why
            if model is not None:
                return name, model, trouble
        raise ModelFileError(f"no model of {self.path} can be read; {trouble}")

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state, while no other process changes it."""
        with locked(self.path / ".lock", PATIENCE):
            yield self.state()

    @contextmanager
    def making_a_model(self, patience: float = 0.0) -> Iterator[None]:
        """Refits and new arms come one after the other. What a killed one left half-written is cleared away."""
        with locked(self.path / ".refit.lock", patience):
            for left in (self.path / MODELS).glob(".*"):
                shutil.rmtree(left, ignore_errors=True)
            yield

    def publish(self, model: Model, base: str, keep: int, catalogue: bytes = b"", **facts: Any) -> State:
        """Saves a model made from the model `base` and makes it current, with lines for the catalogue.

        Nothing changes if another model became current meanwhile, or if anything fails.
        """
        name = name_of(model.epoch)
        model.save(self.model_path(name))
        Model.load(self.model_path(name))  # what was written can be read
        try:
            with self.changing() as state:
                if state.model != base:
                    raise ModelSuperseded(f"model {state.model} became current while one was made from {base}")
                following = max(state.following, model.epoch + 1)
                state = self._written(state, catalogue, **facts, model=name, following=following)
        except BaseException:
            shutil.rmtree(self.model_path(name), ignore_errors=True)
            raise
        self._tidy(state, keep)
        return state

    def _written(self, state: State, catalogue: bytes, **facts: Any) -> State:
        if not catalogue and not facts:
            return state
        if catalogue:
            path = self.path / CATALOGUE
            os.truncate(path, state.catalogue)  # what a crash left behind was never part of it
            append(path, catalogue)
        state = replace(state, catalogue=state.catalogue + len(catalogue), **facts)
        put(self.path / CURRENT, lambda file: file.write(json.dumps(asdict(state)).encode() + b"\n"))
        return state

    def extend(self, lines: Callable[[Catalogue], bytes]) -> State:
        """Adds lines to the catalogue, made from what it is at that moment; the model stays."""
        with self.changing() as state:
            return self._written(state, lines(self.catalogue(state)))

    def roll_back(self, name: str | None = None) -> State:
        """Makes an older model current: the one before the current one, or the one named."""
        with self.changing() as state:
            kept = self.models()
            older = [model for model in kept if int(model) < int(state.model)]
            wanted = name if name is not None else older[-1] if older else None
            if wanted is None:
                raise ValueError(f"there is no model before {state.model}")
            if wanted not in kept:
                raise ValueError(f"there is no model {wanted!r}; kept are {', '.join(kept)}")
            Model.load(self.model_path(wanted))
            return self._written(state, b"", model=wanted)

    def _tidy(self, state: State, keep: int) -> None:
        """Keeps the newest models and the current one. Processes that still read a deleted one keep its pages."""
        for name in self.models()[:-keep]:
            if name != state.model:
                shutil.rmtree(self.model_path(name), ignore_errors=True)

    def note(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Adds to the history of models."""
        entry = {"time": round(time.time(), 3), "kind": kind, **facts}
        with locked(self.path / ".history.lock", PATIENCE):
            cut_unfinished_line(self.path / HISTORY)
            append(self.path / HISTORY, json.dumps(entry).encode() + b"\n")
        return entry

    def history(self) -> list[dict[str, Any]]:
        """What happened to the models, oldest first."""
        path = self.path / HISTORY
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def latest(self, count: int, reach: int = 65_536) -> list[dict[str, Any]]:
        """The last entries of the history, newest first; reads no more than its last `reach` bytes."""
        path = self.path / HISTORY
        if not path.exists():
            return []
        with path.open("rb") as file:
            begin = max(0, path.stat().st_size - reach)
            file.seek(begin)
            lines = file.read(reach).split(b"\n")[1 if begin else 0 : -1]
        return [json.loads(line) for line in reversed(lines[-count:])]


def _opened(path: Path) -> tuple[Model | None, str]:
    try:
        return Model.load(path), ""
    except (ModelFileError, OSError) as error:
        return None, str(error)


def name_of(epoch: int) -> str:
    """The folder of an epoch's model.

    >>> name_of(12)
    '000012'
    """
    return f"{epoch:06d}"
