"""Replicas that change the same at one moment, or while another is half done: each change is whole or refused."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.replicas import Opener, X, contents, current, replicas

from treetop.bandit import folder as folder_module
from treetop.bandit import pieces as pieces_module
from treetop.bandit import replica as replica_module
from treetop.bandit.folder import BanditFolder
from treetop.bandit.pieces import Pieces
from treetop.bandit.replica import Replica
from treetop.errors import FolderInUse, ModelSuperseded, ReplicaConflict
from treetop.model.model import Model


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    with replicas(tmp_path) as open_replica:
        yield open_replica


def before_upload(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Just before pieces are uploaded for the first time, something changes."""
    upload, changes = pieces_module.upload, [change]

    def slow(*arguments: Any) -> Pieces:
        while changes:
            changes.pop()()
        return upload(*arguments)

    monkeypatch.setattr(replica_module, "upload", slow)


def test_two_changes_at_one_moment_are_one_after_the_other(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = opened("a"), opened("b")
    before_upload(monkeypatch, lambda: there.remove_arms(["a1"]))
    before = contents(here.folder.path)
    with pytest.raises(ReplicaConflict, match="at the same moment: try again"):
        here.add_arms(["new"])
    assert contents(here.folder.path)["current"] == before["current"]
    assert sorted(path.name for path in (here.folder.path / "models").iterdir()) == ["000000"]
    here.add_arms(["new"])
    there.folder.follow()
    assert contents(here.folder.path) == contents(there.folder.path)


def test_pieces_of_a_change_that_conflicted_are_deleted_later(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = opened("a"), opened("b")
    before_upload(monkeypatch, lambda: there.remove_arms(["a1"]))
    with pytest.raises(ReplicaConflict):
        here.set_attributes(["a0"], {"price": [1.0]}, new=True)
    manifest = Replica.manifest(there.folder.shared)  # type: ignore[arg-type]
    assert manifest is not None
    assert {path.name for path in (tmp_path / "store").iterdir()} == manifest.names() | manifest.retired.keys()
    assert manifest.retired
    monkeypatch.setattr(pieces_module, "GRACE", -1.0)
    there.remove_arms(["a2"])
    assert not any((tmp_path / "store" / name).exists() for name in manifest.retired)
    here.folder.follow()
    assert current(here) == current(there)


def test_a_refit_outlives_arms_that_another_adds_meanwhile(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = opened("a"), opened("b")
    served = here.decide(X[0], "visit-1")
    here.reward("visit-1", {served.arms[0]: 1.0})
    save, late = Model.save, [True]

    def slow(self: Model, *arguments: object) -> object:
        saved = save(self, *arguments)  # type: ignore[arg-type]
        if late:
            late.clear()
            there.add_arms(["new"])
        return saved

    monkeypatch.setattr(Model, "save", slow)
    made = here.refit()
    assert made.model == "000002"
    assert here.snapshot.model.n_arms == 13
    there.folder.follow()
    assert contents(here.folder.path) == contents(there.folder.path)


def test_a_refit_wins_although_another_adds_arms_again_and_again(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = opened("a"), opened("b")
    served = here.decide(X[0], "visit-1")
    here.reward("visit-1", {served.arms[0]: 1.0})
    save, names, refused = Model.save, iter(range(100)), []

    def slow(self: Model, folder: Path) -> None:
        save(self, folder)
        if here.folder.path in folder.parents:
            try:
                there.add_arms([f"new-{next(names)}"])
            except ReplicaConflict as error:
                refused.append(str(error))

    monkeypatch.setattr(Model, "save", slow)
    here.refit()
    assert len(refused) == 1
    assert re.fullmatch(r"another replica has been publishing a refit for \d+ s: try again", refused[0])
    there.add_arms(["later"])  # which nobody holds up any more
    here.folder.follow()
    assert contents(here.folder.path) == contents(there.folder.path)


def test_a_reservation_of_the_dead_is_heeded_for_a_while(opened: Opener) -> None:
    """By its age, not by when somebody first saw it: every command is a new process."""
    here = opened("a")

    def reserved(seconds_ago: float) -> None:
        token = struct.pack("<d", time.time() - seconds_ago) + b"of a process that was killed"
        here.log.keep(replica_module.RESERVED, token)

    for age in (0, replica_module.PATIENCE - 60):
        reserved(age)
        with pytest.raises(ReplicaConflict, match=r"publishing a refit for \d+ s"):
            here.add_arms(["new"])
    reserved(replica_module.PATIENCE + 60)
    here.add_arms(["new"])
    assert here.snapshot.model.n_arms == 13
    assert here.log.kept(replica_module.RESERVED) is None


def test_a_refit_that_another_has_overtaken_changes_nothing(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = opened("a"), opened("b")
    served = here.decide(X[0], "visit-1")
    here.reward("visit-1", {served.arms[0]: 1.0})
    fit, late = folder_module.BanditFolder.label_samples, [True]

    def slow(self: BanditFolder, *arguments: object) -> object:
        if late:
            late.clear()
            there.refit()
        return fit(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(BanditFolder, "label_samples", slow)
    with pytest.raises(ModelSuperseded):
        here.refit()
    assert contents(here.folder.path) == contents(there.folder.path)


def test_a_change_under_way_elsewhere_is_waited_for(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = opened("a"), opened("b")
    there.remove_arms(["a1"])
    monkeypatch.setattr(folder_module, "LOCK_TIMEOUT", 0.05)
    with here.folder.model_lock():
        there.remove_arms(["a2"])
        with pytest.raises(FolderInUse):
            here.folder.follow()
    assert here.folder.follow()


def test_a_change_here_waits_while_one_from_elsewhere_is_written(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write catalogue.jsonl: at once, they would leave lines that no replica has."""
    here, there = opened("a"), opened("b")
    there.remove_arms(["a1"])
    extend, refused = pieces_module.extend, []

    def meanwhile(*arguments: Any) -> None:
        extend(*arguments)
        try:
            with here.folder.locked_state() as state:
                here.folder._write_state(state, state, b'{"removed": [5]}\n')
        except (FolderInUse, ReplicaConflict) as error:
            refused.append(type(error))

    monkeypatch.setattr(folder_module, "LOCK_TIMEOUT", 0.05)
    monkeypatch.setattr(replica_module, "extend", meanwhile)
    assert here.folder.follow()
    assert refused == [FolderInUse]
    assert contents(here.folder.path) == contents(there.folder.path)
    assert here.refresh()


def test_an_older_manifest_does_not_undo_a_change_made_here(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = opened("a"), opened("b")
    read, old = Replica.manifest, there.folder.shared.manifest()  # type: ignore[union-attr]
    here.roll_back("000000", pin=True)
    pinned, late = current(here), [old, old]

    def stale(self: Replica) -> object:
        return late.pop() if late else read(self)

    monkeypatch.setattr(Replica, "manifest", stale)
    here.folder.follow()
    assert current(here) == pinned
