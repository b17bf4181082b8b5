"""Folders of one bandit that share a log and a store: what one changes, the others have. Services: tests/service."""

from __future__ import annotations

import json
import re
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.running import settings

from treetop.bandit import folder as folder_module
from treetop.bandit import pieces as pieces_module
from treetop.bandit import replica as replica_module
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import ReplicaConfig
from treetop.bandit.folder import BanditFolder
from treetop.bandit.lease import Lease
from treetop.bandit.pieces import Pieces
from treetop.bandit.replica import Replica, join
from treetop.bandit.results import same_decision
from treetop.bandit.stores import FolderStore, ObjectStore, open_store
from treetop.errors import FolderInUse, ForeignLog, LogError, ModelSuperseded, ReplicaConflict
from treetop.log.open import open_log
from treetop.model.model import Model

X = Y = np.eye(12, dtype=np.float32)
Opener = Callable[[str], Bandit]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """Opens the folder of a replica by name; the first is made, the others join."""
    store, log = str(tmp_path / "store"), str(tmp_path / "log.sqlite")
    made: list[Bandit] = []

    def open_replica(name: str) -> Bandit:
        folder = tmp_path / name
        if not folder.exists() and not made:
            config = settings(replicas=ReplicaConfig(store))
            made.append(Bandit.create(folder, [f"a{i}" for i in range(12)], X, Y, config=config, log=log))
            return made[-1]
        if not folder.exists():
            join(folder, store, log)
        made.append(Bandit.open(folder, log))
        return made[-1]

    yield open_replica
    for bandit in made:
        bandit.close()


def current(bandit: Bandit) -> bytes:
    return (bandit.folder.path / "current").read_bytes()


def pieces(tmp_path: Path) -> int:
    return len(list((tmp_path / "store").iterdir()))


def contents(folder: Path) -> dict[str, bytes]:
    """What replicas have in common."""
    own = ("history.jsonl", "log.sqlite", "segments")
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in files if p.relative_to(folder).parts[0] not in own
    }


def test_who_joins_has_the_same_files_and_decides_the_same(opened: Opener) -> None:
    here, there = opened("a"), opened("b")
    assert contents(here.folder.path) == contents(there.folder.path)
    one = here.decide(X[3], "visit-1")
    assert there.decide(X[3], "visit-1") == one  # the log's answer
    event, again = there.replay("visit-1")
    assert same_decision(event, again)
    there.reward("visit-1", {one.arms[0]: 1.0})
    assert here.event("visit-1").rewards[0] == 1.0


def test_every_change_reaches_the_others(opened: Opener) -> None:
    here, there = opened("a"), opened("b")
    here.add_arms(["new"], vectors=X[:1])
    assert there.folder.follow()
    assert there.refresh()
    assert there.decide(X[0], eligible=["new"]).arms == ["new"]
    there.remove_arms(["a1"])
    there.set_attributes(["a2"], {"price": [5]}, new=True)
    there.set_arms("sale", ["a2", "a3"])
    here.folder.follow()
    here.refresh()
    assert here.snapshot.arms.is_removed[1]
    assert here.decide(X[2], k=1, where={"sets": "sale", "price": {"<": 6}}).arms == ["a2"]
    here.reward(here.decide(X[2], "visit-1").event_id, {"a2": 1.0})
    here.refit()
    there.folder.follow()
    there.refresh()
    assert there.snapshot.name == here.snapshot.name
    there.roll_back()
    here.folder.follow()
    assert contents(here.folder.path) == contents(there.folder.path)
    assert not here.folder.follow()


def test_a_change_is_made_from_what_all_serve(opened: Opener) -> None:
    """Nobody follows in between: each change begins with it."""
    here, there = opened("a"), opened("b")
    for i in range(3):
        here.add_arms([f"h{i}"])
        there.remove_arms([f"h{i}"])
        there.add_arms([f"t{i}"])
    here.folder.follow()
    here.refresh()
    assert [str(arm) for arm in here.snapshot.arms.ids[12:]] == ["h0", "t0", "h1", "t1", "h2", "t2"]
    assert int(here.snapshot.arms.is_removed.sum()) == 3
    assert current(here) == current(there)


def test_two_changes_at_one_moment_are_one_after_the_other(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = opened("a"), opened("b")
    upload, late = pieces_module.upload, [True]

    def slow(*arguments: Any) -> Pieces:
        if late.pop() if late else False:
            there.remove_arms(["a1"])
        return upload(*arguments)

    monkeypatch.setattr(replica_module, "upload", slow)
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
    upload, late = pieces_module.upload, [True]

    def slow(*arguments: Any) -> Pieces:
        if late.pop() if late else False:
            there.remove_arms(["a1"])
        return upload(*arguments)

    monkeypatch.setattr(replica_module, "upload", slow)
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


def test_a_death_between_manifest_and_folder_loses_nothing(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = opened("a"), opened("b")

    def die(path: Path, write: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "put", die)
        with pytest.raises(KeyboardInterrupt):
            here.remove_arms(["a1"])
    again = opened("a")
    there.folder.follow()
    there.refresh()
    assert again.snapshot.arms.is_removed[1]
    assert there.snapshot.arms.is_removed[1]
    assert current(again) == current(there)


def test_the_store_forgets_old_pieces_after_a_while(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = opened("a"), opened("b")
    for i in range(4):
        here.set_attributes(["a0"], {"price": [float(i)]}, new=True)
    before = pieces(tmp_path)
    monkeypatch.setattr(replica_module, "MOST_PIECES", 2)
    monkeypatch.setattr(pieces_module, "GRACE", -1.0)
    here.set_attributes(["a0"], {"price": [9.0]}, new=True)
    assert pieces(tmp_path) < before
    there.folder.follow()
    there.refresh()
    assert there.attributes("a0") == {"price": 9.0}
    assert contents(here.folder.path) == contents(there.folder.path)


def test_a_damaged_or_missing_piece_changes_nothing(opened: Opener, tmp_path: Path) -> None:
    here, there = opened("a"), opened("b")
    before = {path.name for path in (tmp_path / "store").iterdir()}
    here.remove_arms(["a1"])
    piece = next(path for path in (tmp_path / "store").iterdir() if path.name not in before)
    whole, old = piece.read_bytes(), current(there)
    piece.write_bytes(b"x" + whole[1:])
    with pytest.raises(OSError, match="is damaged"):
        there.folder.follow()
    piece.unlink()
    with pytest.raises(FileNotFoundError):
        there.folder.follow()
    assert current(there) == old
    piece.write_bytes(whole)
    assert there.folder.follow()
    assert current(there) == current(here)


def test_without_the_store_a_folder_still_opens_and_decides(opened: Opener, tmp_path: Path) -> None:
    here = opened("a")
    opened("b")
    here.set_attributes(["a0"], {"price": [1.0]}, new=True)
    shutil.move(tmp_path / "store", tmp_path / "away")
    again = opened("b")
    assert again.decide(X[0]).arms
    shutil.move(tmp_path / "away", tmp_path / "store")
    assert again.folder.follow()


def test_what_is_not_of_these_replicas_is_refused(opened: Opener, tmp_path: Path) -> None:
    here = opened("a")
    with pytest.raises(FileExistsError, match="not empty"):
        join(here.folder.path, str(tmp_path / "store"), str(tmp_path / "log.sqlite"))
    there = set(tmp_path.iterdir())
    with pytest.raises(LogError, match=r"there is no log .*other\.sqlite"):
        join(tmp_path / "c", str(tmp_path / "store"), str(tmp_path / "other.sqlite"))
    assert set(tmp_path.iterdir()) == there
    open_log(tmp_path / "other.sqlite").close()
    with pytest.raises(ValueError, match="has no replicas"):
        join(tmp_path / "c", str(tmp_path / "store"), str(tmp_path / "other.sqlite"))
    assert not (tmp_path / "c").exists()
    alone = replace(here.folder, shared=None)
    alone.extend_catalogue(lambda arms: b'{"removed": [2]}\n')
    with pytest.raises(ForeignLog, match="changed without them"):
        here.folder.follow()
    with pytest.raises(ValueError, match="absolute path or a URL"):
        ReplicaConfig("store")


def test_object_storage_by_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    for store in (open_store("memory://shop"), open_store(str(tmp_path / "shop"))):
        store.put("a", b"tea")
        assert store.get("a") == b"tea"
        store.delete("a")
        with pytest.raises(FileNotFoundError):
            store.get("a")
    assert isinstance(open_store("memory://shop"), ObjectStore)
    assert isinstance(open_store("/mnt/shop"), FolderStore)
    with pytest.raises(ValueError, match="cannot be opened"):
        open_store("nosuch://shop")


def test_replicas_share_what_they_serve_in_object_storage(tmp_path: Path) -> None:
    """Storage of fsspec's that two replicas in one process see, as those on two hosts see a bucket."""
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    store, log = f"memory://{tmp_path.name}", str(tmp_path / "log.sqlite")
    config = settings(replicas=ReplicaConfig(store))
    with Bandit.create(tmp_path / "a", [f"a{i}" for i in range(12)], X, Y, config=config, log=log) as here:
        join(tmp_path / "b", store, log)
        with Bandit.open(tmp_path / "b", log) as there:
            assert contents(here.folder.path) == contents(there.folder.path)
            for i in range(20):
                here.reward(f"visit-{i}", {here.decide(X[i % 12], f"visit-{i}").arms[0]: 1.0})
            here.add_arms(["new"])
            name = here.refit().model
            assert there.folder.follow()
            there.refresh()
            assert there.snapshot.name == name
            assert contents(here.folder.path) == contents(there.folder.path)
            assert same_decision(*there.replay("visit-7"))


def test_one_lease_is_held_by_one_at_a_time(place: str) -> None:
    now = [0.0]
    with open_log(place) as log:
        leases = [Lease(log, name, 10.0, lambda: now[0]) for name in "abc"]
        held = []
        for step in range(200):
            now[0] += 1.0
            for i, lease in enumerate(leases):
                if not (step < 60 and i == 0 and step > 20):  # the first is silent for a while
                    lease.take()
            assert sum(lease.held for lease in leases) <= 1
            held.append(next((lease.holder for lease in leases if lease.held), ""))
        assert held[:20] == ["a"] * 20
        assert held[59] == held[-1] == "b"  # taken over, and not taken back
        leases[1].release()
        assert leases[2].take()


def test_a_change_under_way_elsewhere_is_waited_for(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = opened("a"), opened("b")
    there.remove_arms(["a1"])
    monkeypatch.setattr(folder_module, "LOCK_TIMEOUT", 0.05)
    with here.folder.model_lock():
        there.remove_arms(["a2"])
        with pytest.raises(FolderInUse):
            here.folder.follow()
    assert here.folder.follow()


def test_what_another_version_wrote_in_other_words_can_be_changed(opened: Opener) -> None:
    """A version that knows one more setting reads `current` as before, and writes it with the new one."""
    here = opened("a")
    shared, path = here.folder.shared, here.folder.path / "current"
    assert isinstance(shared, Replica)
    known = json.loads(path.read_bytes())
    del known["settings"]
    older = json.dumps(known)
    found = shared.manifest()
    assert found is not None
    shared._replace(found, replace(found, current=older))
    path.write_text(older)
    here.remove_arms(["a1"])
    found = shared.manifest()
    assert found is not None
    assert found.current.encode() == current(here) != older.encode()


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


def test_a_log_of_its_own_is_refused_before_anything_is_shared(tmp_path: Path) -> None:
    """A folder with a store and its own log would be a cluster of one, which no other replica hears of."""
    config = settings(replicas=ReplicaConfig(str(tmp_path / "store")))
    with pytest.raises(ValueError, match="store needs the log that all replicas share: give it with --log"):
        Bandit.create(tmp_path / "a", ["mint"], config=config)
    assert not (tmp_path / "a").exists()
    Bandit.create(tmp_path / "a", ["mint"], config=config, log=tmp_path / "log").close()
    for own in (None, tmp_path / "a" / "log.sqlite"):
        with pytest.raises(ValueError, match="give it with --log"):
            Bandit.open(tmp_path / "a", own)
