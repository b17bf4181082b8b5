"""An evaluation gives the same numbers from a bandit, its folder, its log and its sealed segments; what cannot answer
says what it lacks."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import settings, small_bandit

from treetop import Bandit, Evaluation, PolicyConfig, evaluate
from treetop.bandit import visits
from treetop.bandit.config import SegmentConfig
from treetop.bandit.evaluation import UNLISTED
from treetop.bandit.policy_search import search_policies
from treetop.bandit.sealing import seal_folder, segment_folder
from treetop.bandit.visits import cut
from treetop.errors import ForeignLog, SegmentError
from treetop.log.segments.manifest import SegmentFolder
from treetop.log.segments.storage import read_segment

X, Y = topics(n=900)
POLICY = PolicyConfig(k=2, explore=2, beam=4, strategy="epsilon", parameters={"epsilon": 0.5})
AT_ONCE = SegmentConfig(wait_seconds=0.0, rounds=200)
CANDIDATES = ["strategy=greedy", "beam=30", "explore=1,model=000000"]


def play(bandit: Bandit, first: int, n: int, **request: Any) -> None:
    for i in range(first, first + n):
        row = 300 + i % 600
        served = bandit.decide(X[row], f"visit-{i}", **request)
        bandit.reward(f"visit-{i}", {arm: float(Y[row, int(str(arm)[1:])]) for arm in served.arms})


def seal(bandit: Bandit) -> None:
    seal_folder(bandit.folder, bandit.log, AT_ONCE, bandit.snapshot.model.tree, rest=True)


def shop_at(path: Path, log: str | None = None) -> Bandit:
    small_bandit(path, X, Y, config=settings(policy=POLICY, segments=AT_ONCE))
    return Bandit.open(path, log)


def numbers(found: Evaluation) -> str:
    return json.dumps(found.to_dict())


def test_every_source_gives_the_same_numbers(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite and PostgreSQL, a refit between, removed arms, lists of arms, late rewards and an import without a
    model's decisions; chunks end within segments."""
    monkeypatch.setattr(visits, "CHUNK", 150)
    path = tmp_path / "shop"
    with shop_at(path, place) as shop:
        play(shop, 0, 300)
        shop.remove_arms(["a3"])
        shop.refit()
        play(shop, 300, 130, exclude=["a1", "a2"])
        for i in range(430, 450):
            shop.decide(X[300 + i], f"visit-{i}")
        seal(shop)
        for i in range(430, 450):
            shop.reward(f"visit-{i}", {shop.served(shop.event(f"visit-{i}").event).arms[0]: 1.0})
        seal(shop)  # a delta
        found = evaluate(shop, CANDIDATES)
        assert found.rounds == 450
        assert {each.rounds for each in found.candidates} == {450}
        assert numbers(evaluate((path, place), CANDIDATES)) == numbers(found)
    (path / "log.sqlite").unlink()
    without = evaluate(path / "segments", CANDIDATES)  # the log, which has the lists of arms, is elsewhere
    assert [each.left_out for each in without.candidates] == [{UNLISTED: 130}] * 3
    assert without.rounds == 320
    assert not (path / "log.sqlite").exists()


def test_segments_beside_their_log_have_its_lists_of_arms(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop") as shop:
        play(shop, 0, 250)
        play(shop, 250, 50, eligible=[f"a{i}" for i in range(30)])
        shop.remove_arms(["a5"])
        play(shop, 300, 100)
        seal(shop)
        found = evaluate(shop, CANDIDATES)
        assert not any(each.left_out for each in found.candidates)
        assert len(list((tmp_path / "shop" / "segments").glob("segment-*"))) == 2
        assert numbers(evaluate(tmp_path / "shop" / "segments", CANDIDATES)) == numbers(found)
        moved = shutil.copytree(tmp_path / "shop" / "segments", tmp_path / "copied")
        assert numbers(evaluate((tmp_path / "shop", moved), CANDIDATES)) == numbers(found)
        assert numbers(evaluate(tmp_path / "shop" / "log.sqlite", CANDIDATES)) == numbers(found)
        middle = shop.event("visit-300").event.time
        late = evaluate(tmp_path / "shop" / "segments", CANDIDATES, since=middle)
        assert numbers(late) == numbers(evaluate(shop, CANDIDATES, since=middle))
        assert late.rounds == 100


def test_what_is_not_sealed_yet_is_not_there(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop") as shop:
        play(shop, 0, 200)
        seal(shop)
        expected = numbers(evaluate(shop, CANDIDATES[:2]))
        play(shop, 200, 30)
        assert numbers(evaluate(tmp_path / "shop" / "segments", CANDIDATES[:2])) == expected


def test_a_source_without_a_folder_says_what_it_lacks(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop") as shop:
        play(shop, 0, 20)
        seal(shop)
        moved = shutil.copytree(tmp_path / "shop" / "segments", tmp_path / "copied")
        elsewhere = shutil.copy(tmp_path / "shop" / "log.sqlite", tmp_path / "other.sqlite")
        for source in (moved, elsewhere, "postgresql://localhost/nowhere"):
            with pytest.raises(ValueError, match=r"lies in no bandit's folder: name that folder, too.*models"):
                evaluate(source, ["beam=1"])
        with pytest.raises(TypeError, match="log is a tuple; it must be a Bandit"):
            evaluate((tmp_path / "shop", shop), ["beam=1"])  # type: ignore[arg-type]
        for path, why in (
            (tmp_path / "none", "there is no such file"),
            (tmp_path, "there must be its log or segments"),
        ):
            with pytest.raises(ValueError, match=why):
                evaluate((tmp_path / "shop", path), ["beam=1"])
        with pytest.raises(FileNotFoundError, match="is not a bandit's folder"):
            evaluate(tmp_path / "none", ["beam=1"])
        with pytest.raises(ValueError, match="a search needs the log"):
            search_policies(tmp_path / "shop" / "segments")
    for judged in (lambda: evaluate([1.0], ["beam=1"]), lambda: search_policies([1.0])):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="log is a list; it must be a Bandit, its folder, its log or segments"):
            judged()


def test_a_log_and_segments_of_another_bandit_are_refused(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop") as shop, shop_at(tmp_path / "other") as other:
        play(shop, 0, 20)
        play(other, 0, 20)
        seal(shop)
        with pytest.raises(ForeignLog, match="belongs to bandit"):
            evaluate((tmp_path / "other", tmp_path / "shop" / "log.sqlite"), ["beam=1"])
        with pytest.raises(SegmentError, match="has segments of another log"):
            evaluate((tmp_path / "other", tmp_path / "shop" / "segments"), ["beam=1"])


def test_segments_that_do_not_have_whole_rounds_say_so(tmp_path: Path) -> None:
    """An older treetop did not seal how rounds were decided; sums take samples away; nothing may be sealed."""
    with shop_at(tmp_path / "shop") as shop:
        play(shop, 0, 20)
        empty = SegmentFolder(tmp_path / "shop" / "segments")
        empty.path.mkdir()
        with pytest.raises(SegmentError, match="has no segments; `treetop seal` makes them"):
            evaluate(empty.path, ["beam=1"])
        seal(shop)
        path = segment_folder(shop.folder).path
        (segment,) = json.loads((path / "manifest.json").read_text())["segments"]
        facts = json.loads((path / segment["name"] / "manifest.json").read_text())
        assert {"settings", "filter", "removals"} < facts["files"].keys()
        older = visits.UNSAID.partition("{} ")[2].partition(" and")[0]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("treetop.log.segments.storage.ORIGINS", {"made up": "int32"})
            with pytest.raises(SegmentError, match=older):
                evaluate(path, ["beam=1"])


def test_rounds_that_are_summed_up_are_not_judged_by_segments(tmp_path: Path) -> None:
    """Their segments have lost samples: the log may have them, segments alone say that they do not."""
    with shop_at(tmp_path / "shop") as shop:
        play(shop, 0, 60)
        seal(shop)
        play(shop, 60, 40)
        seal(shop)
        found = segment_folder(shop.folder)
        first = found.manifest()
        assert first is not None
        summed = read_segment(found.path, first.segments[0]).positions[59]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("treetop.log.segments.manifest.Manifest.summed", property(lambda _: int(summed)))
            result = evaluate(found.path, ["beam=1"])
            patch.setattr("treetop.log.segments.manifest.Manifest.summed", property(lambda _: 10**9))
            with pytest.raises(SegmentError, match="older visits are summed up"):
                evaluate(found.path, ["beam=1"])
        assert result.rounds == 40
        assert visits.SUMMED in result.candidates[0].notes


def test_rounds_are_cut_as_a_log_gives_them(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop") as shop:
        play(shop, 0, 47)
        counts = shop.log.counts()
        blocks = list(shop.log.blocks(0, counts.position, 11))
        for size in (1, 7, 11, 20, 47, 100):
            mine = [block.decided() for block in cut(iter(blocks), size)]
            theirs = list(shop.log.decided(counts.position, size))
            assert [len(chunk) for chunk in mine] == [len(chunk) for chunk in theirs]
            for one, other in zip(mine, theirs, strict=True):
                for name, value in asdict(one).items():
                    np.testing.assert_equal(value, getattr(other, name), err_msg=name)
