"""A bandit's folder on disk: the current model and arm ids, the models kept, their history. Decides nothing.

    config.toml  vocabulary.json  catalogue.jsonl  label_samples/  models/000007/  current  history.jsonl  log.sqlite

Only the file `current` says what serves. It is replaced in one step, so a reader sees the old state or the new one.
catalogue.jsonl only grows; `current` says how many of its bytes count.
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
from treetop.bandit.arm_index import ArmIndex
from treetop.errors import ModelFileError, ModelPinned, ModelSuperseded
from treetop.files import append, cut_unfinished_line, locked, put
from treetop.learning.label_samples import LabelSamples, load_label_samples
from treetop.model.model import Model

CURRENT, CATALOGUE, HISTORY, MODELS, LOG = "current", "catalogue.jsonl", "history.jsonl", "models", "log.sqlite"
LABEL_SAMPLES = "label_samples"
LOCK_TIMEOUT = 60.0  # seconds that another process may take to finish a change


@dataclass(frozen=True)
class FolderState:
    """The content of `current`. A model's name is its epoch; no name is used twice."""

    model: str
    catalogue: int  # bytes of catalogue.jsonl that count
    next_epoch: int  # of the next model
    refit_observed: int = 0  # rounds with an observed reward that the last refit saw; a rollback does not change it
    refit_time: float = 0.0
    pinned: bool = False  # whether the current model stays until it is unpinned, whatever the schedule says
    format: int = 1

    def check_not_pinned(self) -> None:
        """Raises ModelPinned if no refit may replace the current model."""
        if self.pinned:
            raise ModelPinned(f"model {self.model} is pinned; unpin it first")


@dataclass(frozen=True)
class BanditFolder:
    """Reads and changes a bandit's folder. Any number of processes may do so at once: changes take turns by locks."""

    path: Path

    def model_path(self, name: str) -> Path:
        return self.path / MODELS / name

    def signature(self) -> tuple[int, ...]:
        """A value that changes when `current` is replaced; costs one system call."""
        found = os.stat(self.path / CURRENT)
        return found.st_ino, found.st_mtime_ns, found.st_size

    def model_signature(self, name: str) -> tuple[tuple[str, int, int, int], ...]:
        """A value that changes when a file of a model is written to or replaced; empty for a model that is gone."""
        try:
            with os.scandir(self.model_path(name)) as files:
                stats = [(file.name, file.stat()) for file in files]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        return tuple(sorted((name, stat.st_ino, stat.st_mtime_ns, stat.st_size) for name, stat in stats))

    def state(self) -> FolderState:
        """What serves now. Raises FileNotFoundError or ValueError if this is not a bandit's folder."""
        try:
            state = FolderState(**json.loads((self.path / CURRENT).read_bytes()))
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path} is not a bandit's folder: there is no {CURRENT!r} in it") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path / CURRENT} cannot be read: {error}") from None
        if state.format != 1:
            raise ValueError(f"{self.path / CURRENT} has format {state.format}; this software reads 1")
        return state

    def arm_index(self, state: FolderState) -> ArmIndex:
        """The arm ids of a state."""
        with (self.path / CATALOGUE).open("rb") as file:
            lines = file.read(state.catalogue)
        if len(lines) != state.catalogue:
            raise ValueError(f"{self.path / CATALOGUE} has {len(lines)} bytes; {state.catalogue} were written")
        return ArmIndex.read(lines)

    def label_samples(self, model: Model, is_removed: Bools) -> LabelSamples:
        """The labels that the bandit was created from, as samples, without those of removed arms."""
        return load_label_samples(self.path / LABEL_SAMPLES, model.n_arms, model.n_features).without(is_removed)

    def models(self) -> list[str]:
        """The models kept, oldest first."""
        return sorted((path.name for path in (self.path / MODELS).iterdir() if path.name.isdecimal()), key=int)

    def load_model(self, state: FolderState) -> tuple[str, Model, str]:
        """Name and model that are current, and "". If that model cannot be read: the newest that can, and the reason.

        Raises ModelFileError if no model can be read.
        """
        trouble = ""
        older = [name for name in reversed(self.models()) if name != state.model]
        for name in [state.model, *older]:
            model, why = _try_load(self.model_path(name))
            trouble = trouble or why
            if model is not None:
                return name, model, trouble
        raise ModelFileError(f"no model of {self.path} can be read; {trouble}")

    @contextmanager
    def locked_state(self) -> Iterator[FolderState]:
        """The state, which no other process can change meanwhile."""
        with locked(self.path / ".lock", LOCK_TIMEOUT):
            yield self.state()

    @contextmanager
    def model_lock(self, timeout: float = 0.0) -> Iterator[None]:
        """Held while a model is made, by a refit or by adding arms. Deletes what a killed process left half-written.

        Raises FolderInUse if another process holds it for longer than `timeout` seconds.
        """
        with locked(self.path / ".refit.lock", timeout):
            for leftover in (self.path / MODELS).glob(".*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield

    def publish(self, model: Model, base: str, keep: int, catalogue: bytes = b"", **changes: Any) -> FolderState:
        """Saves a model that was made from the model `base`, and makes it current.

        `catalogue` are lines to add to catalogue.jsonl, `changes` further fields of the state; `keep` models stay.
        Raises ModelSuperseded if another model became current meanwhile, ModelPinned if `base` was pinned; a pinned
        model still takes new arms. Nothing changes if anything fails.
        """
        name = model_name(model.epoch)
        model.save(self.model_path(name))
        try:
            Model.load(self.model_path(name))  # raises if what was written cannot be read
            with self.locked_state() as state:
                if state.model != base:
                    raise ModelSuperseded(f"model {state.model} became current while one was made from {base}")
                if not catalogue:  # new arms change what a pinned model may show, not what it has learned
                    state.check_not_pinned()
                next_epoch = max(state.next_epoch, model.epoch + 1)
                state = self._write_state(state, catalogue, **changes, model=name, next_epoch=next_epoch)
        except BaseException:
            shutil.rmtree(self.model_path(name), ignore_errors=True)
            raise
        self._delete_old_models(state, keep)
        return state

    def _write_state(self, state: FolderState, catalogue: bytes, **changes: Any) -> FolderState:
        if not catalogue and not changes:
            return state
        if catalogue:
            path = self.path / CATALOGUE
            os.truncate(path, state.catalogue)  # lines that a crash left behind do not count
            append(path, catalogue)
        state = replace(state, catalogue=state.catalogue + len(catalogue), **changes)
        put(self.path / CURRENT, lambda file: file.write(json.dumps(asdict(state)).encode() + b"\n"))
        return state

    def extend_catalogue(self, lines: Callable[[ArmIndex], bytes]) -> FolderState:
        """Adds to catalogue.jsonl the lines that `lines` returns for the current arm index; the model stays."""
        with self.locked_state() as state:
            return self._write_state(state, lines(self.arm_index(state)))

    def roll_back(self, name: str | None = None, pin: bool = False) -> FolderState:
        """Makes another kept model current: the one before the current one, or the one named. With `pin` it stays."""
        with self.locked_state() as state:
            kept = self.models()
            older = [model for model in kept if int(model) < int(state.model)]
            wanted = name if name is not None else older[-1] if older else None
            if wanted is None:
                raise ValueError(f"there is no model before {state.model}")
            if wanted not in kept:
                raise ValueError(f"there is no model {wanted!r}; kept are {', '.join(kept)}")
            Model.load(self.model_path(wanted))
            return self._write_state(state, b"", model=wanted, pinned=pin)

    def unpin(self) -> FolderState:
        """Lets refits replace the current model again."""
        with self.locked_state() as state:
            return self._write_state(state, b"", pinned=False)

    def _delete_old_models(self, state: FolderState, keep: int) -> None:
        """Keeps the newest models and the current one. A process that still maps a deleted model keeps its pages."""
        for name in self.models()[:-keep]:
            if name != state.model:
                shutil.rmtree(self.model_path(name), ignore_errors=True)

    def note(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Adds an entry to history.jsonl and returns it."""
        entry = {"time": round(time.time(), 3), "kind": kind, **facts}
        with locked(self.path / ".history.lock", LOCK_TIMEOUT):
            cut_unfinished_line(self.path / HISTORY)
            append(self.path / HISTORY, json.dumps(entry).encode() + b"\n")
        return entry

    def history(self) -> list[dict[str, Any]]:
        """All entries of history.jsonl, oldest first."""
        path = self.path / HISTORY
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def recent_history(self, count: int, reach: int = 65_536) -> list[dict[str, Any]]:
        """The last entries of the history, newest first; reads no more than its last `reach` bytes."""
        path = self.path / HISTORY
        if not path.exists():
            return []
        with path.open("rb") as file:
            begin = max(0, path.stat().st_size - reach)
            file.seek(begin)
            lines = file.read(reach).split(b"\n")[1 if begin else 0 : -1]
        return [json.loads(line) for line in reversed(lines[-count:])]


def _try_load(path: Path) -> tuple[Model | None, str]:
    try:
        return Model.load(path), ""
    except (ModelFileError, OSError) as error:
        return None, str(error)


def model_name(epoch: int) -> str:
    """The name of an epoch's model, which is also that of its folder.

    >>> model_name(12)
    '000012'
    """
    return f"{epoch:06d}"
