"""Segments have exactly what the log has: every round once, with every reward, at every mark."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.logs import event
from helpers.sealing import START, check_same, fill, late, manifest, now, seal, three_shards
from numpy.typing import NDArray

from treetop.arrays import Int64s
from treetop.errors import SegmentError
from treetop.log.open import open_log
from treetop.log.records import Mark, Reward
from treetop.log.segments import compaction
from treetop.log.segments.binding import agrees
from treetop.log.segments.compaction import follow
from treetop.log.segments.manifest import Manifest, Segment, SegmentFolder
from treetop.log.segments.reading import sealed_samples
from treetop.log.segments.schema import SAMPLES, VERSION
from treetop.log.segments.seal import Sealing, seal_rounds
from treetop.log.segments.storage import read_segment, read_shards


@pytest.fixture
def folder(tmp_path: Path) -> SegmentFolder:
    return SegmentFolder(tmp_path / "segments")


def of_shard(folder: SegmentFolder, segment: Segment, shard: int) -> dict[str, NDArray[Any]]:
    """The samples of a shard, read as anybody would."""
    files = {name: np.load(folder.path / segment.name / f"{name}.npy") for name in ("shard_start", *SAMPLES)}
    low, high = files["shard_start"][shard : shard + 2]
    return {name: files[name][low:high] for name in SAMPLES}


def test_segments_and_the_tail_are_the_log(place: str, folder: SegmentFolder) -> None:
    with open_log(place) as log:
        check_same(folder, log)
        fill(log, range(40))
        marks = [now(log), log.seal("refit 1")]
        sealed = seal(folder, log)
        assert (sealed.segments, sealed.rounds, sealed.sealed_rounds) == (2, 32, 32)
        check_same(folder, log, marks)
        fill(log, range(40, 70))
        assert late(log, range(0, 60, 2)) > 10
        marks.append(log.seal("refit 2"))
        check_same(folder, log, marks)  # late rewards are read from the log
        assert seal(folder, log).late_rewards > 5
        check_same(folder, log, marks)  # and now from a delta
        assert len(manifest(folder).deltas) == 1
        assert late(log, range(1, 60, 2)) > 10
        assert seal(folder, log, rest=True).rounds == 6
        check_same(folder, log, marks)
        assert manifest(folder).rounds == 70
        assert seal(folder, log, rest=True) == seal(folder, log)  # nothing is left to do


def test_sealing_waits_for_rewards_and_leaves_no_gap(place: str, folder: SegmentFolder) -> None:
    with open_log(place) as log:
        fill(log, range(20))
        log.append([event("old", time=START)])  # committed late: it must not be sealed before those ahead of it
        assert seal(folder, log, rounds=4, rest=True, now=START + 9.5).rounds == 10
        check_same(folder, log)
        assert seal(folder, log, rounds=4, rest=True, now=START + 30).rounds == 11
        assert [s.last for s in manifest(folder).segments] == sorted(s.last for s in manifest(folder).segments)
        check_same(folder, log)


def test_small_steps_make_few_segments_and_deltas(tmp_path: Path, folder: SegmentFolder) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        told = 0
        for step in range(30):
            fill(log, range(step * 4, step * 4 + 4), keep=0.3)
            seal(folder, log, rounds=64, rest=True)
            told += late(log, range(step * 4, step * 4 + 2))
        seal(folder, log, rounds=64, rest=True)
        check_same(folder, log)
        found = manifest(folder)
        assert found.rounds == 120
        assert len(found.segments) <= 8
        assert 1 <= len(found.deltas) <= 16
        assert sum(delta.rewards for delta in found.deltas) < told / 2  # many are in the segments now
        on_disk = {path.name for path in folder.path.iterdir()}
        assert on_disk == {"manifest.json", *found.names()}


def test_few_late_rewards_a_segment_do_not_add_up(
    tmp_path: Path, folder: SegmentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than one for eight samples, so no segment has many; but what all readers hold is bounded."""
    monkeypatch.setattr(compaction, "MOST_LATE", 24)
    with open_log(tmp_path / "log.sqlite") as log:
        told, held = 0, []
        for step in range(12):
            fill(log, range(step * 32, step * 32 + 32), keep=0.3)
            seal(folder, log, rounds=32)
            told += late(log, range(step * 32, step * 32 + 4))
            seal(folder, log, rounds=32, rest=True)
            held.append(sum(delta.rewards for delta in manifest(folder).deltas))
            check_same(folder, log)
        assert told > 60
        assert 12 < max(held) <= 24
        assert len(manifest(folder).segments) == 12


def test_segments_with_most_late_rewards_for_their_size_take_them_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST_LATE", 100)
    segments = [Segment(f"s{i}", 10, n, 0, i, i, 0.0, 0.0, 0) for i, n in enumerate((1000, 500, 1000, 0))]
    assert compaction._chosen(segments, np.array([30, 30, 40, 0]), 100) == []  # few in each, and not too many
    assert compaction._chosen(segments, np.array([30, 30, 41, 0]), 101) == [1, 2]  # 30 are left
    assert compaction._chosen(segments, np.array([30, 30, 40, 1]), 101) == [1, 2, 3]
    assert compaction._chosen(segments, np.array([30, 63, 0, 0]), 93) == [1]  # one for eight samples


def test_samples_are_partitioned_by_shard_with_one_context_a_round(tmp_path: Path, folder: SegmentFolder) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(50))
        seal(folder, log, rounds=50)
        found = manifest(folder)
        assert found.shards == 3
        shard_of = read_shards(folder.path, found.shard_pieces)
        whole = read_segment(folder.path, found.segments[0])
        seen = []
        for shard in range(3):
            part = of_shard(folder, found.segments[0], shard)
            assert (shard_of[part["arm"]] == shard).all()
            first = np.cumsum(whole.slots) - whole.slots
            at = first[part["row"]] + part["slot"]
            assert (np.diff(at) > 0).all()  # in the order of the log
            seen.append(at)
            for name, column in (("arm", whole.arms), ("reward", whole.rewards), ("propensity", whole.propensities)):
                np.testing.assert_array_equal(part[name], column[at])
        assert sorted(np.concatenate(seen).tolist()) == list(range(len(whole.arms)))


def test_an_arm_keeps_its_shard_and_new_arms_get_one(tmp_path: Path, folder: SegmentFolder) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        few = event("few", arms=np.array([1, 2, 3], np.int32))
        log.append([few])
        seal(folder, log, rest=True)
        before = read_shards(folder.path, manifest(folder).shard_pieces)
        fill(log, range(30))
        seal(folder, log, rest=True)
        after = read_shards(folder.path, manifest(folder).shard_pieces)
        assert len(before) == 4 < len(after)
        np.testing.assert_array_equal(after[:4], before)
        assert (after.min(), after.max(), manifest(folder).shards) == (0, 2, 3)
        first = manifest(folder).segments[0]
        assert [len(of_shard(folder, first, shard)["arm"]) for shard in range(1)] == [3]
        assert len(np.load(folder.path / first.name / "shard_start.npy")) == 2  # the others came later


def test_segments_of_another_log_do_not_count(tmp_path: Path, folder: SegmentFolder) -> None:
    with open_log(tmp_path / "one.sqlite") as one, open_log(tmp_path / "two.sqlite") as two:
        fill(one, range(40))
        fill(two, range(100, 140))
        seal(folder, one)
        check_same(folder, two)
        seal(folder, two)
        assert manifest(folder).rounds == 32
        check_same(folder, two)
        check_same(folder, one)


def test_a_log_from_a_backup_makes_its_segments_anew(tmp_path: Path, folder: SegmentFolder) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(20))
        seal(folder, log)
        with open_log(tmp_path / "copy.sqlite"):
            pass
    (tmp_path / "copy.sqlite").write_bytes((tmp_path / "log.sqlite").read_bytes())
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(20, 60))
        seal(folder, log)
    with open_log(tmp_path / "copy.sqlite") as log:  # has lost rounds that are sealed, and gets others in their places
        fill(log, range(200, 260))
        check_same(folder, log)
        seal(folder, log)
        assert manifest(folder).rounds == 80
        check_same(folder, log)


def test_two_hosts_may_seal_one_log(tmp_path: Path) -> None:
    one, two = SegmentFolder(tmp_path / "one"), SegmentFolder(tmp_path / "two")
    with open_log(tmp_path / "log.sqlite") as log:
        for first in range(0, 80, 20):
            fill(log, range(first, first + 20))
            seal(one, log, rounds=4)  # in five steps, the other in one or two
            names = manifest(one).names()
            seal(two, log)
            check_same(one, log)
            check_same(two, log)
            seal(one, log, rounds=4)
            assert manifest(one).names() == names  # it still counts
        assert manifest(one).rounds == manifest(two).rounds == 80


def test_a_host_that_seals_anew_leaves_the_segments_of_others(tmp_path: Path) -> None:
    """Hosts that replaced the id of all would seal everything again in turn, for ever."""
    one, two = SegmentFolder(tmp_path / "one"), SegmentFolder(tmp_path / "two")
    with open_log(tmp_path / "log.sqlite") as log, open_log(tmp_path / "other.sqlite") as other:
        fill(log, range(12))
        fill(other, range(12))
        seal(one, other, rounds=6)
        seal(two, log, rounds=6)
        assert seal(one, log, rounds=6).rounds == 12
        for _ in range(3):
            assert [seal(folder, log, rounds=6).rounds for folder in (one, two)] == [0, 0]
            assert agrees(log, manifest(one))
            assert agrees(log, manifest(two))


def test_two_hosts_may_seal_for_the_first_time_together(place: str, tmp_path: Path) -> None:
    one, two = SegmentFolder(tmp_path / "one"), SegmentFolder(tmp_path / "two")
    with open_log(place) as log, open_log(place) as same:
        fill(log, range(12))

        def meanwhile(known: np.ndarray, needed: int) -> np.ndarray:
            seal(two, same, rounds=6)
            return three_shards(known, needed)

        assert seal_rounds(one, log, Sealing(0.0, 6, now=math.inf), meanwhile).rounds == 12
        assert [seal(folder, log, rounds=6).rounds for folder in (one, two)] == [0, 0]
        check_same(one, log)
        check_same(two, log)


def test_another_host_does_not_make_lost_rounds_count(tmp_path: Path) -> None:
    """The log is put back; what one host then seals must not let the newer segments of the other seem known."""
    one, two = SegmentFolder(tmp_path / "one"), SegmentFolder(tmp_path / "two")
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(20))
        seal(one, log)
        seal(two, log)
    backup = (tmp_path / "log.sqlite").read_bytes()
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(20, 40))
        seal(one, log)
    (tmp_path / "copy.sqlite").write_bytes(backup)
    with open_log(tmp_path / "copy.sqlite") as log:
        for first in range(200, 240, 10):  # as many manifests as the lost ones, and more
            fill(log, range(first, first + 10))
            seal(two, log, rest=True)
        assert manifest(two).rounds == 60
        assert not agrees(log, manifest(one))
        check_same(one, log)
        seal(one, log)
        check_same(one, log)
        assert seal(two, log, rest=True).rounds == 0


def test_what_a_log_keeps_is_changed_in_one_transaction(place: str) -> None:
    def add(kept: bytes | None) -> bytes:
        return str(int(kept or b"0") + 1).encode()

    with open_log(place) as one, open_log(place) as two, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda i: (one, two)[i % 2].keep_changed("number", add), range(60)))
        assert one.kept("number") == b"60"


def test_only_the_oldest_segments_are_compared_round_by_round(
    tmp_path: Path, folder: SegmentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(64))
        seal(folder, log)
        first = manifest(folder).segments[0]
        log.forget(START + 5)
        fetched: list[tuple[int, int]] = []
        whole = log.positions_between

        def positions_between(low: int, high: int) -> Int64s:
            fetched.append((low, high))
            return whole(low, high)

        monkeypatch.setattr(log, "positions_between", positions_between)
        assert follow(folder, log) == 1
        assert fetched == [(first.first, first.last)]
        check_same(folder, log)


def test_segments_of_another_version_are_made_again(tmp_path: Path, folder: SegmentFolder) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(20))
        seal(folder, log)
        path = folder.path / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "version": VERSION + 1}))
        with pytest.raises(SegmentError, match=f"is treetop-segments {VERSION + 1}; this treetop reads"):
            list(sealed_samples(folder, log, now(log)))
        assert seal(folder, log).rounds == 16
        assert {found.name for found in folder.path.iterdir()} == {"manifest.json", *manifest(folder).names()}
        check_same(folder, log)


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "manifest", "own manifest", "version"])
def test_damaged_files_are_errors(tmp_path: Path, folder: SegmentFolder, damage: str) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(20))
        seal(folder, log)
        column = folder.path / manifest(folder).segments[0].name / "arm.npy"
        wrong = {"manifest": folder.path / "manifest.json", "own manifest": column.with_name("manifest.json")}
        path = wrong.get(damage, column)
        data = path.read_bytes()
        if damage == "version":
            path = folder.path / "manifest.json"
            facts = json.loads(path.read_bytes())
            path.write_text(json.dumps({**facts, "version": VERSION + 1}))
        elif damage == "gone":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(data[:-4])
        else:
            path.write_bytes(data.replace(b"1", b"2", 1) if b"1" in data else data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(SegmentError, match="segments"):
            list(sealed_samples(folder, log, now(log)))


def test_arguments_are_checked(tmp_path: Path, folder: SegmentFolder) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(4))
        with pytest.raises(ValueError, match=r"rounds is 0; it must lie in \[1, "):
            seal(folder, log, rounds=0)
        with pytest.raises(ValueError, match="cannot leave out older decisions"):
            log.samples(now(log), Mark("x", 1, 0.0), after=1)
        log.append([event("many", arms=np.array([5000, 1, 2], np.int32))])
        with pytest.raises(ValueError, match="3 shards for 5001 arms"):
            seal_rounds(folder, log, Sealing(0.0, 16, True, math.inf), lambda known, needed: np.zeros(3, np.int32))
        assert folder.manifest() is None


def test_a_reward_that_is_corrected_counts_as_corrected(tmp_path: Path, folder: SegmentFolder) -> None:
    """Before it was sealed, after it, in a delta, and as of any mark."""
    with open_log(tmp_path / "log.sqlite") as log:
        made = [event(i) for i in range(4)]
        log.append(made)

        def tell(which: int, value: float) -> None:
            log.reward([Reward(made[which].event_id, int(made[which].arms[0]), value, START, corrects=True)])

        for which in range(3):
            tell(which, 0.0)
        tell(0, 1.0)
        first = log.seal("first")
        seal(folder, log, rest=True)
        for which in (1, 2):
            tell(which, 0.5)
        second = log.seal("second")
        seal(folder, log, rest=True)  # into a delta
        tell(2, 0.25)
        third = log.seal("third")
        for mark, expected in ((first, [1.0, 0.0, 0.0]), (second, [1.0, 0.5, 0.5]), (third, [1.0, 0.5, 0.25])):
            for read in (log.samples(mark), sealed_samples(folder, log, mark)):
                assert [float(reward) for chunk in read for reward in chunk.rewards[:3, 0]] == expected
        assert log.counts().rewards == 3


def test_the_manifest_says_what_is_there(tmp_path: Path, folder: SegmentFolder) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(20))
        seal(folder, log)
        found = manifest(folder)
        assert Manifest.read(folder.path / "manifest.json") == found
        segment = found.segments[0]
        assert (segment.rounds, segment.oldest, segment.newest) == (16, START, START + 15)
        files = list((folder.path / segment.name).glob("*.npy"))
        assert sum(path.stat().st_size for path in files) == segment.bytes
        assert np.load(folder.path / segment.name / "arm.npy").shape == (segment.samples,)
        assert three_shards(np.zeros(0, np.int32), 5).tolist() == [0] * 5
