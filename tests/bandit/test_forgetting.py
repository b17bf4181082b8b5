"""What windows have forgotten leaves the segments, and what retention deletes is summed up: models stay what they were,
byte for byte. The windows are tiny here, so that they bite."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tiny_windows import CONFIG, X, Y, files, forget, manifest, use_tiny_windows, visits

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import RewardConfig
from treetop.bandit.config_file import config_text
from treetop.bandit.erasure import erase_events
from treetop.bandit.forgetting import sum_up_before
from treetop.bandit.sealing import segment_folder
from treetop.errors import FolderInUse
from treetop.files import locked
from treetop.log.segments import manifest as segment_manifest
from treetop.log.segments import storage, summing


@pytest.fixture(autouse=True)
def tiny_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six samples of an arm, twelve of a routing function, and weights of components from 60 rounds."""

    use_tiny_windows(monkeypatch)


def unforgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treetop.bandit.model_changes.forget_old_samples", lambda *_: False)


def refitted(folder: Path, back_to: str | None = None) -> dict[str, bytes]:
    """The files of the next model, from the current one or from another."""
    with Bandit.open(folder) as bandit:
        if back_to is not None:
            bandit.roll_back(back_to)
        model = bandit.refit().model
        assert not [entry for entry in bandit.folder.history() if entry["kind"] == "segments not used"]
        return files(bandit, model)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `twins` copies, in one folder; made once."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        use_tiny_windows(patch)
        with Bandit.create(place / "shop", X=X, Y=Y, config=CONFIG) as bandit:
            visits(bandit, 0, 250)
            with pytest.MonkeyPatch.context() as inner:
                unforgetting(inner)
                bandit.refit()
            visits(bandit, 250, 350)
        for name in ("compact", "whole"):
            shutil.copytree(place / "shop", place / name)
        with Bandit.open(place / "compact") as bandit:
            bandit.refit()
            assert manifest(bandit).sums is not None
            visits(bandit, 600, 150)
        unforgetting(patch)
        with Bandit.open(place / "whole") as bandit:
            bandit.refit()
            visits(bandit, 600, 150)
            assert manifest(bandit).sums is None
    return place


@pytest.fixture
def shop(made: Path, tmp_path: Path) -> Path:
    """A bandit with 250 rounds that have been learned and 350 that have not; all samples are in its segments."""
    return Path(shutil.copytree(made / "shop", tmp_path / "shop"))


@pytest.fixture
def twins(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The same bandit after a refit, with all samples in its segments and with those alone that are still read."""
    whole = Path(shutil.copytree(made / "whole", tmp_path / "whole"))
    return whole, Path(shutil.copytree(made / "compact", tmp_path / "shop"))


def test_samples_that_no_window_has_leave_the_segments_and_no_model_changes(
    twins: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, shop = twins
    with Bandit.open(shop) as bandit, Bandit.open(whole) as other:
        compact, full = manifest(bandit), manifest(other)
        assert compact.summed == full.segments[9].last  # 500 of 600 rounds
        assert sum(s.samples for s in compact.segments) < 0.6 * sum(s.samples for s in full.segments)
        assert compact.rounds < full.rounds  # contexts went, too
    wanted = refitted(whole)
    assert refitted(shop) == wanted


@pytest.mark.parametrize("rewards", [RewardConfig(0, 0.0), RewardConfig(low=-1.0, high=2.0)], ids=["default", "losses"])
def test_rewards_of_any_kind_are_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewards: RewardConfig
) -> None:
    """Slots without a reward that have one by default, and rewards that are no finds."""
    found = []
    for name in ("whole", "shop"):
        with Bandit.create(tmp_path / name, X=X, Y=Y, config=replace(CONFIG, rewards=rewards)) as bandit:
            with monkeypatch.context() as patch:
                if name == "whole":
                    unforgetting(patch)
                for first in (0, 300):
                    visits(bandit, first, 300)
                    bandit.refit()
                assert (manifest(bandit).sums is None) == (name == "whole")
            visits(bandit, 600, 100)
            found.append(files(bandit, bandit.refit().model))
    assert found[0] == found[1]


def test_a_chain_of_refits_is_one_refit_from_the_first_model(twins: tuple[Path, Path], tmp_path: Path) -> None:
    _, shop = twins
    copy = Path(shutil.copytree(shop, tmp_path / "copy"))
    chain, anew = refitted(shop), refitted(copy, back_to="000000")
    assert chain == anew


def test_summing_up_again_and_again_is_as_once_though_arms_are_added(
    twins: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, shop = twins
    with monkeypatch.context() as patch:
        unforgetting(patch)
        refitted(whole)
    refitted(shop)
    for folder in (whole, shop):
        with Bandit.open(folder) as bandit:
            bandit.add_arms(["new", "newer"])
            visits(bandit, 750, 200)
    with Bandit.open(shop) as bandit:
        found = manifest(bandit).sums
        assert found is not None
        assert len(found.steps) == 2
    assert refitted(shop) == refitted(whole)


def test_damaged_segments_leave_the_log_and_the_sums(twins: tuple[Path, Path]) -> None:
    """A reward that comes after its round was summed up counts neither in segments nor in the log."""
    _, shop = twins
    copy = Path(shutil.copytree(shop, shop.parent / "copy"))
    for folder in (shop, copy):
        with Bandit.open(folder) as bandit:
            event = bandit.event("visit-3")
            unknown = int(event.event.arms[np.isnan(event.rewards)][0])
            bandit.reward("visit-3", {bandit.snapshot.arms.ids[unknown]: 1.0})
    with Bandit.open(copy) as bandit:
        damaged = segment_folder(bandit.folder).path / manifest(bandit).segments[0].name / "arm.npy"
        damaged.write_bytes(damaged.read_bytes()[:-1])
        found = files(bandit, bandit.refit().model)
        assert next(str(damaged) in e["error"] for e in bandit.folder.history() if e["kind"] == "segments not used")
    assert found == refitted(shop)


def test_what_retention_deletes_counts_on_as_sums(shop: Path) -> None:
    """Whatever windows still had of it: only samples are lost, and each once."""
    with Bandit.open(shop) as bandit:
        visits(bandit, 600, 7)
        shown = bandit.log.samples(bandit.log.seal("before"))
        rewards = sum(int((~np.isnan(chunk.rewards)).sum()) for chunk in shown)
        bandit.refit()
        before = bandit.event("visit-333").event.time
        assert forget(bandit, before) == 333
        found = manifest(bandit)
        assert found.sums is not None
        assert found.sums.before == before
        result = bandit.refit()
        assert (result.rounds, result.rewards) == (607, rewards)
        assert not result.warnings
        assert min(segment.oldest for segment in found.segments) >= before
        assert forget(bandit, before) == 0


def test_rounds_that_fill_no_segment_are_sealed_before_they_are_deleted(tmp_path: Path) -> None:
    """A shop with few visits may never fill one: what it deletes counts on all the same."""
    with Bandit.create(tmp_path / "shop", X=X, Y=Y, config=CONFIG) as bandit:
        visits(bandit, 0, 40)
        assert segment_folder(bandit.folder).manifest() is None
        assert forget(bandit, bandit.event("visit-30").event.time) == 30
        assert manifest(bandit).rounds == 10
        result = bandit.refit()
        assert (result.rounds, result.warnings) == (40, ())


def test_many_deletions_do_not_write_every_norm_again_and_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = storage.write_norms

    def counted(folder: Path, name: str, norms: Any) -> Any:
        written.append(len(norms))
        return write(folder, name, norms)

    monkeypatch.setattr(summing, "write_norms", counted)
    with Bandit.open(shop) as bandit:
        unforgetting(monkeypatch)
        bandit.refit()  # all is sealed
        for last in range(10, 600, 10):
            assert forget(bandit, bandit.event(f"visit-{last}").event.time) == 10
        sums = manifest(bandit).sums
        assert sums is not None
        assert sum(piece.rounds for piece in sums.norms) == 590
        assert len(sums.norms) <= 6
        assert len(written) == 59
        assert sum(written) < 590 * 6  # all of them each time would be 590 * 30
        assert bandit.refit().rounds == 600


def test_a_refit_while_retention_deletes_is_one_after_it(shop: Path, tmp_path: Path) -> None:
    """Sums count from before the first row is deleted; rows that are still there do not."""
    during = Path(shutil.copytree(shop, tmp_path / "during"))
    with Bandit.open(shop) as bandit:
        before = bandit.event("visit-120").event.time
        assert forget(bandit, bandit.event("visit-70").event.time) == 70
        assert forget(bandit, before) == 50
        sums = manifest(bandit).sums
        assert sums is not None
        assert len(sums.steps) == 1  # nothing is left of rounds of the first
    with Bandit.open(during) as bandit:
        now = bandit.snapshot
        assert sum_up_before(bandit.folder, bandit.log, bandit.config, now.model, now.arms, before, 4e9)
        assert bandit.log.forget(before, limit=30) == 30
    assert refitted(during) == refitted(shop)


def test_segments_that_somebody_holds_are_no_reason_to_delete_without_sums(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup may hold them for long: retention then waits, and says so."""
    monkeypatch.setattr(segment_manifest, "LOCK_TIMEOUT", 0.0)
    with Bandit.open(shop) as bandit:
        with locked(segment_folder(bandit.folder).lock_path, shared=True), pytest.raises(FolderInUse, match="segments"):
            forget(bandit, bandit.event("visit-100").event.time)
        assert bandit.log.counts().forgotten == 0


def test_a_crash_while_summing_up_leaves_all_as_it_was(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("the disk is gone")

    with Bandit.open(shop) as bandit:
        with monkeypatch.context() as patch:
            patch.setattr(summing, "write_sums", broken)
            bandit.refit()
        found = manifest(bandit)
        assert found.sums is None
        assert "the disk is gone" in [e.get("error") for e in bandit.folder.history()]
        bandit.refit()
        now = manifest(bandit)
        assert now.sums is not None
        assert {p.name for p in segment_folder(bandit.folder).path.iterdir() if p.is_dir()} == now.names()


class Crash(BaseException):
    """Nothing catches it, as nothing catches the end of a process."""


def crashes(bandit: Bandit, before: float, n: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Sums up, and crashes at the n-th sync of a file or folder, if there are so many; whether it did."""
    left, sync, now = [n], os.fsync, bandit.snapshot

    def crash(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        try:
            sum_up_before(bandit.folder, bandit.log, bandit.config, now.model, now.arms, before, 4e9)
        except Crash:
            return True
    return False


def test_a_crash_at_any_sync_leaves_the_manifest_as_before_or_after(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bandit.open(shop) as bandit:
        bandit.refit()
        before, first = bandit.event("visit-330").event.time, manifest(bandit)
    found = set()
    for n in range(0, 1000, 7):
        folder = Path(shutil.copytree(shop, tmp_path / f"crashed-{n}"))
        with Bandit.open(folder) as bandit:
            crashed = crashes(bandit, before, n, monkeypatch)
            now = manifest(bandit)
            same = now.segments == first.segments and now.sums == first.sums
            assert same or (now.sums is not None and now.sums.before == before)
            found.add(same)
            assert forget(bandit, before) == 330
            result = bandit.refit()
            assert (result.rounds, result.warnings) == (600, ())
            assert {p.name for p in segment_folder(bandit.folder).path.iterdir() if p.is_dir()} == manifest(
                bandit
            ).names()
        if not crashed:
            break
    assert not crashed
    assert found == {True, False}


def test_erased_events_leave_the_sums_while_the_log_has_the_others(shop: Path, tmp_path: Path) -> None:
    with Bandit.open(shop) as bandit:
        bandit.refit()
        assert manifest(bandit).sums is not None
        found = erase_events(bandit.folder, bandit.log, [("visitor", "7")])
        assert (found.events, found.summed) == (24, 0)
        assert found.files > 0
        result = bandit.refit()
        assert result.rounds == 600 - 24


def test_erased_events_stay_in_sums_that_cannot_be_made_again_and_it_says_so(shop: Path) -> None:
    with Bandit.open(shop) as bandit:
        bandit.refit()
        assert forget(bandit, bandit.event("visit-100").event.time) == 100
        last = manifest(bandit).summed
        mine = [i for i in range(100, 600) if i % 25 == 7]
        found = erase_events(bandit.folder, bandit.log, [("visitor", "7")])
        assert found.events == len(mine)
        left = 600 - 100 - len(mine) - bandit.log.count_between(last + 1, 1 << 60)
        assert bandit.log.count_between(1, last) == left
        assert 0 < found.summed < len(mine)
        assert bandit.refit().rounds == 600 - len(mine) + found.summed
        assert erase_events(bandit.folder, bandit.log, [("visitor", "7")]).summed == 0


def test_other_settings_of_rewards_make_sums_void(shop: Path) -> None:
    with Bandit.open(shop) as bandit:
        bandit.refit()
        forget(bandit, bandit.event("visit-100").event.time)
    (shop / "config.toml").write_text(config_text(replace(CONFIG, rewards=RewardConfig(high=2.0))))
    with Bandit.open(shop) as bandit:
        assert bandit.refit().rounds == 500
        noted = [e["error"] for e in bandit.folder.history() if e["kind"] == "segments not used"]
        assert ["'limits': [0.0, 2.0]" in error for error in noted] == [True]


def test_sums_hold_no_context_and_no_name(shop: Path) -> None:
    """The length of each context is all that is left of it."""
    with Bandit.open(shop) as bandit:
        bandit.refit()
        sums = manifest(bandit).sums
        assert sums is not None
        path = segment_folder(bandit.folder).path / sums.name
        about = json.loads((path / "manifest.json").read_bytes())
        sizes = {name: facts["shape"][0] for name, facts in about["files"].items()}
        rounds = about["numbers"]["rounds"]
        assert [name for name, size in sizes.items() if size >= rounds] == []
        assert sum(piece.rounds for piece in sums.norms) == rounds
        assert {p.name for p in (path.parent / sums.norms[0].name).iterdir()} == {"manifest.json", "norm.npy"}
        assert set(about["numbers"]) == {"first_epoch", "rounds", "draws", "settings"}
