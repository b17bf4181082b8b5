"""What one replica has forgotten counts on where another takes over: models stay what they were, byte for byte."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import call
from helpers.tiny_windows import CONFIG, X, Y, files, forget, manifest, use_tiny_windows, visits

from treetop.bandit import pieces as pieces_module
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import ReplicaConfig
from treetop.bandit.erasure import erase_events, follow_erasure
from treetop.bandit.forgetting import sum_up_before
from treetop.bandit.replica import join
from treetop.bandit.sealing import segment_folder, take_over_sums
from treetop.bandit.shared_sums import PREFIX, SharedSums, SumsEntry, same_sums
from treetop.errors import ReplicaConflict
from treetop.log.segments.manifest import NormPiece, Sums

Opener = Callable[[str], Bandit]


@pytest.fixture(autouse=True)
def tiny_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    use_tiny_windows(monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `host` copies; made once."""
    place = tmp_path_factory.mktemp("made") / "first"
    place.mkdir()
    config = replace(CONFIG, replicas=ReplicaConfig(str(place / "store")))
    with pytest.MonkeyPatch.context() as patch:
        use_tiny_windows(patch)
        with Bandit.create(place / "a", X=X, Y=Y, config=config, log=place / "log.sqlite") as bandit:
            visits(bandit, 0, 600)
            bandit.refit()
            assert manifest(bandit).sums is not None
            assert forget(bandit, bandit.event("visit-333").event.time) == 333
            visits(bandit, 600, 60)
    return place / "a"


@pytest.fixture
def host(made: Path, tmp_path: Path) -> Path:
    """A replica that has learned 600 rounds, forgotten samples of them, and deleted the first 333 from the log."""
    folder = Path(shutil.copytree(made.parent, tmp_path / "first")) / "a"
    set_store(folder)
    return folder


def opened(host: Path, name: str) -> Bandit:
    """Another replica, which joins."""
    log = host.parent / "log.sqlite"
    if not (host.parent / name).exists():
        join(host.parent / name, str(host.parent / "store"), str(log))
        set_store(host.parent / name)
    return Bandit.open(host.parent / name, log)


def world(host: Path, name: str) -> Path:
    """A copy of host, log and store, in which something else happens."""
    copy = Path(shutil.copytree(host.parent, host.parent.with_name(name))) / host.name
    set_store(copy)
    return copy


def set_store(folder: Path) -> None:
    """In the settings of a folder, the store beside it."""
    text, store = (folder / "config.toml").read_text(), f'store = "{folder.parent / "store"}"'
    (folder / "config.toml").write_text(re.sub('store = ".*"', store, text))


def kept_by(bandit: Bandit) -> SharedSums:
    assert bandit.folder.shared is not None
    return bandit.folder.shared.sums


def unnoted(bandit: Bandit) -> bool:
    return not [entry for entry in bandit.folder.history() if entry["kind"] == "segments not used"]


def test_a_host_that_takes_over_learns_what_the_first_would_have_learned(host: Path) -> None:
    """Also after the next retention and refit, which go on from sums that were taken over; and back again."""
    other = world(host, "other")
    with opened(host, "a") as bandit:
        stayed = [files(bandit, bandit.refit().model)]
        visits(bandit, 660, 90)
        forget(bandit, bandit.event("visit-500").event.time)
        stayed.append(files(bandit, bandit.refit().model))
        visits(bandit, 750, 60)
        stayed.append(files(bandit, bandit.refit().model))
    with opened(other, "b") as bandit:  # the first is dead
        result = bandit.refit()
        assert (result.rounds, result.warnings) == (660, ())
        took_over = [files(bandit, result.model)]
        visits(bandit, 660, 90)
        forget(bandit, bandit.event("visit-500").event.time)
        took_over.append(files(bandit, bandit.refit().model))
        assert unnoted(bandit)
    with opened(other, "a") as bandit:  # and comes back, with segments and sums of before
        visits(bandit, 750, 60)
        took_over.append(files(bandit, bandit.refit().model))
        assert unnoted(bandit)
    assert took_over == stayed


def test_retention_right_after_a_take_over_seals_first(host: Path) -> None:
    """The new leader has nothing sealed: what it deletes would count no more."""
    other = world(host, "other")
    found = []
    for place, name in ((host, "a"), (other, "b")):
        with opened(place, name) as bandit:
            assert forget(bandit, bandit.event("visit-640").event.time) == 307
            result = bandit.refit()
            assert result.rounds == 660
            found.append(files(bandit, result.model))
    assert found[0] == found[1]


class Crash(BaseException):
    """Nothing catches it, as nothing catches the end of a process."""


@pytest.mark.parametrize("when", ["before it is shared", "before it is in the log", "before it is in the manifest"])
def test_a_host_that_dies_while_it_sums_up_leaves_all_as_before_or_after(
    host: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    other = world(host, "other")
    with opened(host, "a") as bandit:
        before = bandit.event("visit-500").event.time
        forget(bandit, before)
        wanted = files(bandit, bandit.refit().model)

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch, opened(other, "a") as bandit:
        old, now = manifest(bandit).sums, bandit.snapshot
        if when == "before it is shared":
            patch.setattr(SharedSums, "publish", crash)
        elif when == "before it is in the log":
            patch.setattr(SharedSums, "_replace", crash)
        else:
            patch.setattr("treetop.log.segments.summing.binding.store", crash)
        with pytest.raises(Crash):
            sum_up_before(bandit.folder, bandit.log, bandit.config, now.model, now.arms, before, 4e9)
        assert same_sums(manifest(bandit).sums, old)
        entry = kept_by(bandit).entry()
        assert entry is not None
        assert same_sums(entry.sums, old) == (when != "before it is in the manifest")
    copy = world(other, "copy")
    for place, name in ((other, "b"), (copy, "a")):  # another takes over, or the same comes back
        with opened(place, name) as bandit:
            forget(bandit, before)
            assert files(bandit, bandit.refit().model) == wanted
            assert unnoted(bandit)


def test_a_crash_at_any_sync_of_a_take_over_leaves_nothing_half_taken(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, sync = host.parent / "log.sqlite", os.fsync
    with opened(host, "b") as bandit:
        wanted = kept_by(bandit).entry()
        assert wanted is not None
        for n in range(0, 1000, 9):
            left = [n]

            def crash(handle: int, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Crash
                sync(handle)

            shutil.rmtree(bandit.folder.path / "segments", ignore_errors=True)
            config, tree = bandit.config.segments, bandit.snapshot.model.tree
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", crash)
                try:
                    take_over_sums(bandit.folder, bandit.log, config, tree)
                except Crash:
                    found = segment_folder(bandit.folder).manifest()
                    assert found is None or same_sums(found.sums, wanted.sums)
                    continue
            break
        else:
            pytest.fail("it never ended")
        assert n > 9
        assert same_sums(manifest(bandit).sums, wanted.sums)
        named = {path.name for path in segment_folder(bandit.folder).path.iterdir() if path.is_dir()}
        assert named == manifest(bandit).names()
        first = files(bandit, bandit.refit().model)
    shutil.rmtree(host.parent / "b" / "segments")
    with Bandit.open(host.parent / "b", log) as bandit:
        bandit.roll_back("000001")  # the next refit has another number, which is in the model's manifest
        assert {**files(bandit, bandit.refit().model), "manifest.json": b""} == {**first, "manifest.json": b""}


def test_two_hosts_that_sum_up_at_one_moment_delete_once(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that has lost its lease may still be at it: who is second deletes nothing before it has the other's."""
    with opened(host, "a") as here, opened(host, "b") as there:
        take_over_sums(there.folder, there.log, there.config.segments, there.snapshot.model.tree)
        publish, late = SharedSums.publish, [True]

        def slow(self: SharedSums, *arguments: Any) -> None:
            if late.pop() if late else False:
                forget(there, there.event("visit-400").event.time)
            publish(self, *arguments)

        monkeypatch.setattr(SharedSums, "publish", slow)
        before = here.event("visit-500").event.time
        with pytest.raises(ReplicaConflict, match="summed up rounds at the same moment"):
            forget(here, before)
        assert here.log.counts().forgotten == 400
        assert forget(here, before) == 100
        assert here.refit().rounds == 660


def test_a_refit_beside_a_retention_elsewhere_begins_anew(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it reads is deleted meanwhile: it fails rather than learn from half of it."""
    with opened(host, "a") as here, opened(host, "b") as there:
        mark, late = type(there.log).seal, [True]

        def slow(self: Any, note: str) -> Any:
            if late.pop() if late else False:
                forget(here, here.event("visit-500").event.time)
            return mark(self, note)

        monkeypatch.setattr(type(there.log), "seal", slow)
        with pytest.raises(ReplicaConflict, match="try again"):
            there.refit()
        assert there.refit().rounds == 660


def test_damaged_sums_are_fetched_again_and_lost_ones_are_an_error(host: Path) -> None:
    other = world(host, "other")
    with opened(other, "a") as bandit:
        wanted = files(bandit, bandit.refit().model)
    with opened(host, "a") as bandit:
        sums = manifest(bandit).sums
        assert sums is not None
        place = segment_folder(bandit.folder).path / sums.name / "shown.npy"
        place.write_bytes(place.read_bytes()[:-1])
        assert files(bandit, bandit.refit().model) == wanted
        visits(bandit, 660, 10)
    for path in (host.parent / "store").glob(f"{PREFIX}*"):
        path.unlink()
    with opened(host, "b") as bandit, pytest.raises(ValueError, match="the store has lost sums of the replicas"):
        bandit.refit()
    call("seal", str(host.parent / "b"), "--anew", "--log", str(host.parent / "log.sqlite"))
    with opened(host, "b") as bandit:
        assert bandit.refit().rounds == 670 - 333


def test_a_store_that_is_away_ends_retention_before_it_deletes(host: Path) -> None:
    with opened(host, "a") as bandit:
        store = host.parent / "store"
        store.rename(store.with_name("away"))
        store.write_text("no folder")
        before = bandit.log.counts()
        with pytest.raises(OSError, match="store"):
            forget(bandit, bandit.event("visit-620").event.time)
        assert bandit.log.counts().forgotten == before.forgotten
        store.unlink()
        store.with_name("away").rename(store)
        assert forget(bandit, bandit.event("visit-620").event.time) == 287


def test_pieces_of_old_sums_leave_the_store(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def there() -> set[str]:
        return {path.name for path in (host.parent / "store").glob(f"{PREFIX}*")}

    with opened(host, "a") as bandit:
        old = there()
        monkeypatch.setattr(pieces_module, "GRACE", -1.0)
        forget(bandit, bandit.event("visit-620").event.time)
        entry = kept_by(bandit).entry()
        assert entry is not None
        assert there() == pieces_module.names(entry.files)
        assert old - there()


def test_what_is_erased_on_one_host_leaves_the_sums_of_all(tmp_path: Path) -> None:
    """The log has all that is summed up: sums are made again without it, wherever they were."""
    config = replace(CONFIG, replicas=ReplicaConfig(str(tmp_path / "store")))
    with Bandit.create(tmp_path / "a", X=X, Y=Y, config=config, log=tmp_path / "log.sqlite") as here:
        visits(here, 0, 600)
        here.refit()
        assert manifest(here).sums is not None
        with opened(tmp_path / "a", "b") as there:
            take_over_sums(there.folder, there.log, there.config.segments, there.snapshot.model.tree)
            found = erase_events(there.folder, there.log, [("visitor", "7")])
            assert (found.events, found.summed) == (24, 0)
            assert not list((tmp_path / "store").glob(f"{PREFIX}*"))
            follow_erasure(here.folder, here.log)
            assert segment_folder(here.folder).manifest() is None
            assert here.refit().rounds == there.refit().rounds == 600 - 24


def test_sums_of_before_there_were_shared_ones_are_shared_by_who_has_them(host: Path) -> None:
    with opened(host, "a") as bandit:
        shared, config, tree = kept_by(bandit), bandit.config.segments, bandit.snapshot.model.tree
        shared.log.drop("sums of replicas")
        assert shared.entry() is None
        take_over_sums(bandit.folder, bandit.log, config, tree)
        entry = shared.entry()
        assert entry is not None
        assert same_sums(entry.sums, manifest(bandit).sums)
    with opened(host, "b") as bandit:
        assert bandit.refit().rounds == 660


def test_an_entry_is_read_as_it_was_written() -> None:
    norm = NormPiece("norms-00000002", 7, 80, 3)
    entry = SumsEntry(Sums("sums-00000001", ((3, 4), (5, 9)), 1.5, (norm,), 10, 11), {"a/b": [["c", 1]]}, {"d": 2.0})
    assert SumsEntry.read(entry.text()) == entry
