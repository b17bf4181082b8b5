"""A bandit's folder on disk: the current model and arm ids, the models kept, their history. Decides nothing.

    config.toml  vocabulary.json  catalogue.jsonl  attributes.bin  label_samples/  models/000007/  current
    history.jsonl  log.sqlite

Only the file `current` says what serves. It is replaced in one step, so a reader sees the old state or the new one.
catalogue.jsonl and attributes.bin only grow; `current` says how many of their bytes count.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Bools, Rows
from treetop.bandit.added_rows import added_rows, last_of_each
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.attributes import AttributeTable
from treetop.bandit.config_file import CONFIG, put_policy
from treetop.bandit.history_file import LOCK_TIMEOUT, HistoryFile
from treetop.bandit.refit_config import RefitConfig
from treetop.bandit.state import FolderState, ScheduleStart, Shared
from treetop.errors import FolderInUse, ModelFileError, ModelSuperseded
from treetop.files import append, locked, put, sync_folder
from treetop.learning.history import stacked
from treetop.learning.label_samples import LabelSamples, load_label_samples
from treetop.model.model import Model

CURRENT, CATALOGUE, MODELS, LOG = "current", "catalogue.jsonl", "models", "log.sqlite"
LABEL_SAMPLES, VOCABULARY, ATTRIBUTES = "label_samples", "vocabulary.json", "attributes.bin"
REFIT_LOCK = ".refit.lock"


@dataclass(frozen=True)
class BanditFolder(HistoryFile):
    """Reads and changes a bandit's folder. Any number of processes may do so at once: changes take turns by locks.

    With `shared`, a change is one of all replicas: it is made from what they serve, and is theirs before it is here.
    """

    path: Path
    shared: Shared | None = None

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
            return FolderState.read((self.path / CURRENT).read_bytes())
        except FileNotFoundError:
            why = f"there is no {CURRENT!r} in it" if self.path.is_dir() else "there is no such folder"
            raise FileNotFoundError(f"{self.path} is not a bandit's folder: {why}") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{self.path / CURRENT} cannot be read: {error}") from None

    def catalogue(self, state: FolderState) -> bytes:
        """The lines of catalogue.jsonl that count."""
        with (self.path / CATALOGUE).open("rb") as file:
            lines = file.read(state.catalogue)
        if len(lines) != state.catalogue:
            raise ValueError(f"{self.path / CATALOGUE} has {len(lines)} bytes; {state.catalogue} were written")
        return lines

    def arm_index(self, state: FolderState, before: tuple[int, ArmIndex] | None = None) -> ArmIndex:
        """The arm ids of a state, read on from those of fewer bytes of catalogue.jsonl, if these are given."""
        if before is None or before[0] > state.catalogue:
            return ArmIndex.read(self.catalogue(state))
        size, known = before
        with (self.path / CATALOGUE).open("rb") as file:
            file.seek(size)
            lines = file.read(state.catalogue - size)
        if len(lines) != state.catalogue - size:
            raise ValueError(f"{self.path / CATALOGUE} has {size + len(lines)} bytes; {state.catalogue} were written")
        return ArmIndex.read(lines, known)

    def attributes(self, size: int, before: AttributeTable | None = None) -> AttributeTable:
        """The attributes that the first `size` bytes of attributes.bin say, read on from those of fewer bytes."""
        before = before if before is not None and before.size <= size else AttributeTable()
        if size == before.size:
            return before
        with (self.path / ATTRIBUTES).open("rb") as file:
            file.seek(before.size)
            records = file.read(size - before.size)
        if len(records) != size - before.size:
            raise ValueError(f"{self.path / ATTRIBUTES} has {before.size + len(records)} bytes; {size} were written")
        try:
            return before.with_records(records)
        except ValueError as error:
            raise ValueError(f"{self.path / ATTRIBUTES}: {error}") from None

    def added_vectors(self, table: AttributeTable, first: int, n_arms: int, columns: int) -> Rows | None:
        """The vectors that the arms from `first` on were added with, a row each, empty where there was none; None if
        there was none at all. They are those of contexts with so many `columns`."""
        added = added_rows(self.path / ATTRIBUTES, table.vectors, columns)
        return last_of_each(added, first, n_arms, columns)

    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features; None if they have none but their numbers."""
        path = self.path / VOCABULARY
        return tuple(json.loads(path.read_bytes())) if path.exists() else None

    def add_features(self, names: list[str], most: int) -> list[str]:
        """Adds names to the vocabulary, behind those that it has, up to `most` in all; returns those that joined."""
        if not names:
            return []
        with self.locked_state():
            known = self.feature_names() or ()
            there = set(known)
            new = [name for name in names if name not in there][: max(0, most - len(known))]
            put(self.path / VOCABULARY, lambda file: file.write(json.dumps([*known, *new]).encode() + b"\n"))
        return new

    def label_samples(self, model: Model, is_removed: Bools, table: AttributeTable) -> LabelSamples:
        """The labels that the bandit was created from, as samples, and the examples that arms of the model were added
        with, without those of removed arms."""
        samples = load_label_samples(self.path / LABEL_SAMPLES, model.n_arms, model.n_features)
        examples = added_rows(self.path / ATTRIBUTES, table.examples, model.n_features)
        if known := [(arms, rows) for arms, rows in examples if arms.max(initial=-1) < model.n_arms]:  # not added since
            arms, rows = zip(*known, strict=True)
            samples = samples.with_examples(stacked(rows, model.n_features), np.concatenate(arms))
        return samples.without(is_removed)

    def models(self) -> list[str]:
        """The models kept, oldest first."""
        return self.state().names()

    def has_model(self) -> bool:
        """Whether any of the models kept is there."""
        return any(self.model_path(name).is_dir() for name in self.models())

    def load_model(self, state: FolderState) -> tuple[str, Model, str]:
        """Name and model that are current, and "". If that model cannot be read: the newest that can, and the reason.

        If none can, the current one is made from its arrays alone. Raises ModelFileError if that is not possible.
        """
        trouble = ""
        older = [name for name in reversed(state.names()) if name != state.model and not state.models[name].aside]
        for name, layout in [(state.model, True), *((name, True) for name in older), (state.model, False)]:
            model, why = _try_load(self.model_path(name), layout)
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
    def refit_lock(self, timeout: float = 0.0) -> Iterator[None]:
        """Held while a refit runs, so that there is one at a time; arms may be added meanwhile."""
        with locked(self.path / REFIT_LOCK, timeout):
            yield

    @contextmanager
    def model_lock(self, timeout: float = 0.0) -> Iterator[None]:
        """Held while a model is written, by a refit or by adding arms. Deletes what a killed process left half-written,
        and takes over what other replicas made current.

        Raises FolderInUse if another process holds it for longer than `timeout` seconds.
        """
        with locked(self.path / ".model.lock", timeout):
            self._delete_unlisted_models()
            self._take_over()
            yield

    def follow(self) -> bool:
        """Takes over what another replica made current; returns whether there was anything. Costs a look at the log."""
        if self.shared is None or not self._behind(self.shared.manifest()):
            return False
        with self.model_lock(LOCK_TIMEOUT):
            return True

    def _behind(self, manifest: Any) -> bool:
        return manifest is not None and manifest.current.encode() != (self.path / CURRENT).read_bytes()

    def _take_over(self) -> None:
        """Only for who holds the model lock: brings models first, then arms and `current` while nothing changes here.

        If another replica changes the bandit meanwhile, it begins anew.
        """
        if self.shared is None:
            return
        while self._behind(manifest := self.shared.manifest()):
            self.shared.fetch_models(self.path, manifest)
            with self.locked_state() as state:
                if self.shared.manifest() == manifest:
                    self.shared.fetch_arms(self.path, state, manifest)
                    self._put_current(state, manifest.current.encode())

    def _put_current(self, old: FolderState, text: bytes) -> None:
        """Replaces `current`, after [policy] of config.toml if another one was promoted: processes then read it.

        A file that cannot take it keeps its own, and the host follows all the same.
        """
        if (new := FolderState.read(text)).settings != old.settings and new.policy is not None:
            try:
                put_policy(self.path / CONFIG, new.policy)
            except (ValueError, OSError) as error:
                message = f"{CONFIG} keeps its [policy], another was promoted: {error}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
        put(self.path / CURRENT, lambda file: file.write(text))

    def clear_leftovers(self) -> None:
        """Deletes what killed processes left half-written; what another process is writing now stays."""
        with suppress(FolderInUse, OSError), self.model_lock():
            pass
        with suppress(FolderInUse, OSError), locked(self.path / ".lock"):
            for part in self.path.glob("*.part"):
                part.unlink()

    def publish(
        self,
        model: Model,
        base: FolderState,
        keep: RefitConfig,
        fitted: ScheduleStart | None,
        catalogue: bytes = b"",
        attributes: bytes = b"",
        aside: str = "",
        logged: Collection[str] = (),
    ) -> Model:
        """Saves a model that was made from the current one of the state `base`, and makes it current; returns it as it
        was read again.

        `keep` says which other models stay, `logged` are those that the log has decisions of, and `fitted` is as in
        FolderState.with_model; `catalogue` are lines to add to catalogue.jsonl, and `attributes` records to add to
        attributes.bin. With `aside`, a reason, the model is only kept beside the current one. Raises ModelSuperseded if
        another model became current meanwhile, or if there was a rollback, and ModelPinned if `base` was pinned; a
        pinned model still takes new arms. Nothing changes if anything fails.
        """
        name = model_name(model.epoch)
        try:
            model.save(self.model_path(name))
            written = Model.load(self.model_path(name))  # raises if what was written cannot be read
            with self.locked_state() as state:
                if fitted is not None:  # new arms change what a pinned model may show, not what it has learned
                    state.check_not_pinned()
                if (state.model, state.schedule) != (base.model, base.schedule):
                    raise ModelSuperseded(f"model {state.model} became current while one was made from {base.model}")
                if attributes:
                    self.attributes(state.attributes).with_records(attributes)  # raises if they do not fit
                now, sizes = time.time(), {each: self.model_size(each) for each in state.models}
                needed = state.left(now).needed(logged, keep, now, sizes)
                if aside and fitted is not None:
                    self._write_state(state, state.with_aside(name, aside, fitted, keep.keep, needed))
                else:
                    new = state.with_model(name, fitted, keep.keep, needed, now)
                    self._write_state(state, new, catalogue, attributes)
            return written
        finally:
            with suppress(OSError, ValueError):
                self._delete_unlisted_models()

    def model_size(self, name: str) -> int:
        """Bytes of a model's files."""
        return sum(size for _, _, _, size in self.model_signature(name))

    def _delete_unlisted_models(self) -> None:
        """Deletes models that `current`, as it is on the disk, does not list. Only for who holds the model lock.

        Whatever failed before this, it is `current` alone that says what may be deleted. A process that still maps a
        deleted model keeps its pages.
        """
        sync_folder(self.path)
        kept = self.state().models
        for path in (self.path / MODELS).iterdir():
            if path.name not in kept and (path.name.isdecimal() or path.name.startswith(".")):
                shutil.rmtree(path, ignore_errors=True)

    def _write_state(
        self, old: FolderState, new: FolderState, catalogue: bytes = b"", attributes: bytes = b""
    ) -> FolderState:
        """Replaces `current`, after lines were added to catalogue.jsonl and records to attributes.bin."""
        if catalogue:
            new = replace(new, catalogue=_grown(self.path / CATALOGUE, old.catalogue, catalogue))
        if attributes:
            new = replace(new, attributes=_grown(self.path / ATTRIBUTES, old.attributes, attributes))
        if new != old:
            if self.shared is not None:
                self.shared.push(self.path, old, new)
            self._put_current(old, new.text())
        return new

    def extend_catalogue(
        self, lines: Callable[[ArmIndex], bytes], before: tuple[int, ArmIndex] | None = None
    ) -> FolderState:
        """Adds to catalogue.jsonl the lines that `lines` returns for the current arm index; the model stays.

        `before` is as for `arm_index`.
        """
        self.follow()
        with self.locked_state() as state:
            return self._write_state(state, state, lines(self.arm_index(state, before)))

    def extend_attributes(self, records: bytes, known: AttributeTable, catalogue: bytes = b"") -> FolderState:
        """Adds records to attributes.bin, and lines to catalogue.jsonl; the model stays.

        `known` are the attributes of an earlier moment. Raises ValueError if the records do not fit those of now.
        """
        if catalogue == b"":  # otherwise arms return, and who adds them holds the model lock
            self.follow()
        with self.locked_state() as state:
            self.attributes(state.attributes, known).with_records(records)
            return self._write_state(state, state, catalogue, records)

    def roll_back(self, name: str | None, schedule: ScheduleStart, pin: bool = False) -> FolderState:
        """Makes another kept model current: the one named, or the one that the current one was made from.

        The schedule of refits counts from `schedule` on. With `pin` the model stays until `unpin`.
        """
        self.follow()
        with self.locked_state() as state:
            wanted = state.models[state.model].base if name is None else name
            if not wanted:
                raise ValueError(f"there is no model before {state.model}")
            if wanted not in state.models:
                raise ValueError(f"there is no model {wanted!r}; kept are {', '.join(state.names())}")
            Model.load(self.model_path(wanted))
            models = {**state.left(schedule.time).models}
            models[wanted] = replace(models[wanted], aside="")
            return self._write_state(state, replace(state, model=wanted, models=models, schedule=schedule, pinned=pin))

    def unpin(self) -> FolderState:
        """Lets refits replace the current model again."""
        self.follow()
        with self.locked_state() as state:
            return self._write_state(state, replace(state, pinned=False))

    def change(self, new: Callable[[FolderState], FolderState]) -> FolderState:
        """Replaces what `current` says by what `new` makes of it; running processes notice."""
        self.follow()
        with self.locked_state() as state:
            return self._write_state(state, new(state))


def _grown(path: Path, size: int, more: bytes) -> int:
    """Adds to the bytes of a file that count; returns how many these are then."""
    if path.exists():
        os.truncate(path, size)  # what a crash left behind does not count
    append(path, more)
    return size + len(more)


def _try_load(path: Path, layout: bool) -> tuple[Model | None, str]:
    try:
        return Model.load(path, layout=layout), ""
    except (ModelFileError, OSError) as error:
        return None, str(error)


def model_name(epoch: int) -> str:
    """The name of an epoch's model, which is also that of its folder.

    >>> model_name(12)
    '000012'
    """
    return f"{epoch:06d}"
