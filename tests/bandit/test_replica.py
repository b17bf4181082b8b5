"""Folders of one bandit that share a log and a store: what one changes, the others have. Services: tests/service."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.replicas import Opener, X, Y, contents, current, replicas
from helpers.running import settings

from treetop.bandit import folder as folder_module
from treetop.bandit import pieces as pieces_module
from treetop.bandit import replica as replica_module
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import ReplicaConfig
from treetop.bandit.replica import Replica, join
from treetop.bandit.results import same_decision
from treetop.errors import ForeignLog, LogError
from treetop.log.open import open_log


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    with replicas(tmp_path) as open_replica:
        yield open_replica


def pieces(tmp_path: Path) -> int:
    return len(list((tmp_path / "store").iterdir()))


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
