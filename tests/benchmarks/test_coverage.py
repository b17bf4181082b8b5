"""The script that measures how often intervals hold, in small."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.scripts import script

from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import chosen_way, intervals

for beside in ("cells", "coverage_batch"):
    sys.modules.setdefault(beside, script(beside))
coverage = script("coverage")
HALVES = ((0.4, 0.5), (0.6, 1.0))  # truths and exploration of two stretches


def test_a_flat_cell_knows_its_truth() -> None:
    world = coverage.Flat(10, 0.5)
    judged = world.play(40_000, seed=1)
    weights = judged.prefix_weights()[:, 0]
    assert (weights <= judged.largest[:, 0] + 1e-9).all()
    assert weights.mean() == pytest.approx(1, abs=0.05)
    assert (weights * judged.rewards[:, 0]).mean() == pytest.approx(world.truth, abs=0.02)


def test_cells_of_both_kinds_and_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = "synthetic:arms=200,features=100,rows=1500,init=300"
    monkeypatch.setattr(coverage, "POOL", 200)
    monkeypatch.setattr(coverage, "DRAWS", 20)
    monkeypatch.setattr(coverage, "LOGGED", 2_000)
    monkeypatch.setitem(coverage.WORLDS, "synthetic", lambda _: coverage.labelled_world(small, 300, 10))
    out = tmp_path / "coverage.json"
    coverage.main(["coverage.py", "--cells", "flat,synthetic,refitted", "--reps", "2", "--out", str(out)])
    cells = json.loads(out.read_text())["cells"]
    assert len(cells) == 8 + len(coverage.PAIRS) + len(coverage.REFITTED)
    for cell in cells:
        assert cell["reps"] == 2
        assert all(0 <= share <= 1 for share in cell["coverage"].values())
        assert all(np.isfinite(width) for width in cell["width"].values())
        assert sum(cell["ways"].values()) == 2
        for kind in ("", " controlled"):
            rule, slate, slots = (cell["width"][f"normal, {name}{kind}"] for name in ("rule", "slate", "slots"))
            if len(cell["ways"]) == 1:
                assert rule == pytest.approx(slate if "slate" in cell["ways"] else slots)
    text = coverage.printed(cells)
    assert "default, greedy" in text
    assert len(text.splitlines()) == 2 + len(cells)


def test_many_at_once_are_what_the_package_says_one_by_one() -> None:
    """Of 30 logs at a confidence at which many miss. Only where capital is within a few percent of the limit may the
    batch, which counts a little more of it, call an interval wrong that the package calls right."""
    batch, worlds = sys.modules["coverage_batch"], (coverage.Flat(10, 0.5), coverage.Flat(10, 1.0))
    confidence, n, missed = 0.55, 400, 0
    for world in worlds:
        plays = [world.play(n, seed) for seed in range(30)]
        for truth in (world.truth, world.truth + 0.06, world.truth - 0.06):
            held = batch.held(plays, truth, world.slots, confidence, looks=2)[:, -1]
            mine = []
            for play in plays:
                tally = Tally().after(play.part(slice(0, n // 2))).after(play.part(slice(n // 2, n)))
                found, _ = intervals(tally, chosen_way(tally)[0], confidence, by_rule=True)
                mine.append(found.low <= truth <= found.high)
            assert not (held & ~np.array(mine)).any(), "never calls right what the package calls wrong"
            assert (held != np.array(mine)).mean() <= 0.05
            missed += int((~held).sum())
    assert missed > 30, "both see intervals miss"


def test_a_refit_midway_has_the_truth_of_both_halves() -> None:
    one, two = (SimpleNamespace(slots=1, truth=t, true_gap=t / 2, play=coverage.Flat(10, e).play) for t, e in HALVES)
    both = coverage.Refitted(one, two)
    assert (both.truth, both.true_gap) == (0.5, 0.25)
    assert both.truths(4) == pytest.approx([0.4, 0.4, (2 * 0.4 + 0.6) / 3, 0.5])
    played = both.play(100, seed=1)
    assert len(played) == 100
    assert played.logged[:50].tolist() == coverage.Flat(10, 0.5).play(50, 1).logged.tolist()


def test_the_gap_is_known() -> None:
    """Weights on the log's own rounds bring what the candidate earns, less what the log did."""
    world = coverage.Flat(10, 0.5)
    judged = world.play(40_000, seed=2)
    terms = judged.prefix_weights()[:, 0] * judged.rewards[:, 0] - judged.served
    assert terms.mean() == pytest.approx(world.true_gap, abs=0.02)


def test_widths_are_compared_by_the_way_that_the_rule_took_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it takes slates once and slots once, the normal approximation's width is the mean of one of each."""
    world, found = coverage.Flat(10, 0.5), {}
    for name in ("slate", "slots"):
        monkeypatch.setattr(coverage, "chosen_way", lambda _, name=name: (name, True))
        found[name] = [coverage.measure(world, 500, reps)["width"] for reps in (1, 2)]
    taken = iter(["slate", "slots"])
    monkeypatch.setattr(coverage, "chosen_way", lambda _: (next(taken), True))
    mixed = coverage.measure(world, 500, 2)
    assert mixed["ways"] == {"slate": 1, "slots": 1}
    first = found["slate"][0]["normal, rule"]
    second = 2 * found["slots"][1]["normal, rule"] - found["slots"][0]["normal, rule"]
    assert mixed["width"]["normal, rule"] == pytest.approx((first + second) / 2)


def test_cells_that_were_played_before_are_still_printed() -> None:
    width: dict[str, float] = {"betting, one by one": 3.0, "normal, slate": 2.0, "normal, slate controlled": 1.5}
    cell: dict[str, Any] = {
        "cell": "debian",
        "arms": 5,
        "pair": "p",
        "n": 9,
        "ways": {"slate": 60, "slots": 40},
        "anytime": 0.0,
    }
    cell |= {"coverage": {"betting, rule": 1.0, "normal, slate": 0.9}, "width": width}
    assert "1.50 | 2.00" in coverage.printed([cell])
    width |= {"normal, rule": 1.0, "normal, rule controlled": 1.0}
    cell["coverage"]["normal, rule"] = 0.9
    assert "3.00 | 3.00" in coverage.printed([cell])
