"""The scripts that switch parts of the learner off and play unseen shapes, in small: switches do what they say."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scripts import script

import treetop
from treetop.bench.timing import commit as treetop_commit
from treetop.data.synthetic import parse_spec
from treetop.experiments.execute import execute
from treetop.experiments.settings import EPOCHS, Plan, Settings

cells = script("cells")
ablate = script("ablate")
shapes = script("shapes")

SMALL = "synthetic:arms=400,features=300,rows=1300,init=300,nonzeros=20,labels=3"
TINY = "synthetic:arms=100,features=80,rows=500,init=100,nonzeros=15,labels=3"
ROWS = {row.name: row for row in ablate.ROWS}


@pytest.fixture(scope="module")
def ground() -> Any:
    return ablate.Ground(treetop.load(SMALL))


@pytest.mark.parametrize("scenario", ["stationary", "drift"])
def test_with_everything_on_a_run_is_that_of_simulate(ground: Any, scenario: str) -> None:
    settings = Settings("budgeted", learner="treetop", scenario=scenario)
    record = execute(None, Plan(SMALL, (settings,)), dataset=ground.dataset)[0]
    same = ablate.Ground(ground.dataset, scenario=scenario).play(ROWS["none"], "budgeted", 0)
    assert same.checksum == record.checksum
    assert same.settings["refits"] == record.settings["refits"] != []


def test_refits_often_are_the_default(ground: Any) -> None:
    assert EPOCHS["treetop"] == (256, 1.05)
    coarse = ablate.Ground(ground.dataset, None, "stationary", 1024, 1.2)
    runs = [coarse.play(ROWS[name], "greedy", 0).settings["refits"] for name in ("none", "seldom", "paper")]
    assert runs == [[1024, 1229], ground.play(ROWS["seldom"], "greedy", 0).settings["refits"], []]
    assert len(ground.play(ROWS["none"], "greedy", 0).settings["refits"]) > 20


def test_the_last_row_is_the_papers(ground: Any) -> None:
    record = execute(None, Plan.of(SMALL, ["igw"]), dataset=ground.dataset)[0]
    assert ground.play(ROWS["paper"], "igw", 0).checksum == record.checksum


def test_a_row_changes_what_is_played(ground: Any) -> None:
    names = ("none", "start", "labels", "both", "separate", "means", "steps", "doubling", "paper")
    played = {name: ground.play(ROWS[name], "greedy", 0).checksum for name in names}
    assert len(set(played.values())) == len(names)


def call(module: Any, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    monkeypatch.setattr(sys, "argv", [module.__file__, *words])
    module.main()
    return str(capsys.readouterr().out)


def test_ablation_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    out = tmp_path / "made" / "cells.json"
    words = [TINY, "--seed", "0", "--seed", "1", "--only", "doubling", "--out", str(out)]
    text = call(ablate, words, monkeypatch, capsys)
    document = json.loads(out.read_text())
    assert [(cell["seed"], cell["off"], cell["strategy"]) for cell in document["cells"]] == [
        (seed, off, strategy) for seed in (0, 1) for off in ("none", "doubling") for strategy in ("budgeted", "greedy")
    ]
    assert document["commands"] == [f"python benchmarks/ablate.py {' '.join(words)}"]
    assert document["machine"]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    means = [
        np.mean(
            [
                cell["mean_reward"]
                for cell in document["cells"]
                if cell["off"] == "doubling" and cell["strategy"] == strategy
            ]
        )
        for strategy in ("budgeted", "greedy")
    ]
    assert f"| {means[0]:.3f} / {means[1]:.3f} |" in lines[-1]

    out.write_text(
        out.read_text().replace(f'"mean_reward": {document["cells"][0]["mean_reward"]}', '"mean_reward": 9.5')
    )
    monkeypatch.setattr(ablate, "execute", None)  # nothing is played again
    assert "9.5" in out.read_text()
    call(ablate, words, monkeypatch, capsys)
    assert json.loads(out.read_text())["cells"][0]["mean_reward"] == 9.5


def test_a_mean_over_fewer_seeds_says_so() -> None:
    stream = {"data": "mine", "scenario": "stationary", "rounds": 1000}
    played = [
        ("none", "budgeted", 0, 2.0),
        ("none", "budgeted", 1, 4.0),
        ("none", "greedy", 0, 2.0),
        ("none", "greedy", 1, 4.0),
        ("moves", "budgeted", 1, 3.0),
    ]
    names = ("off", "strategy", "seed", "mean_reward")
    made = [stream | dict(zip(names, cell, strict=True)) for cell in played]
    lines = ablate.report(cells.Cells(Path("none"), [], made)).splitlines()
    assert lines[2].endswith("| 3.000 / 3.000 |  |")
    assert lines[3].endswith("| 3.000 (seeds 1) / not played | -25.00 % (-25.00 to -25.00) |")


def test_a_cell_says_what_commit_it_was_played_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cells.Cells.opened(tmp_path / "cells.json", ["x/shapes.py", str(tmp_path), "--seeds", "1"])
    monkeypatch.setattr(cells, "commit", lambda: "later")
    kept.play({"seed": 0}, lambda: {"mean_reward": 1.0})
    kept.play({"seed": 0}, lambda: pytest.fail("played again"))
    assert [cell["commit"] for cell in kept.cells] == [treetop_commit()]
    assert f"python benchmarks/shapes.py {tmp_path.name} --seeds 1" in kept.about()


def test_another_file_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for text in ('{"rows": []}', "not JSON", "[]"):
        (tmp_path / "mine").write_text(text)
        for module, words in ((ablate, [SMALL]), (shapes, [])):
            with pytest.raises(SystemExit, match=r"mine does not hold cells .* nothing was played"):
                call(module, [*words, "--out", str(tmp_path / "mine")], monkeypatch, capsys)
        assert (tmp_path / "mine").read_text() == text


@pytest.mark.parametrize("name", ["SEEN", "UNSEEN"])
def test_shapes_are_of_all_kinds(name: str) -> None:
    specs = [parse_spec(text) for text in getattr(shapes, name).values()]
    assert min(spec.arms for spec in specs) == 6_000
    assert max(spec.arms for spec in specs) == 120_000
    assert {(spec.nonzeros, spec.zipf) for spec in specs} == {(n, z) for n in (8, 200) for z in (0.3, 1.3)}


def test_no_shape_is_seen_and_unseen() -> None:
    assert not set(shapes.SEEN) & set(shapes.UNSEEN)
    assert not set(shapes.SEEN.values()) & set(shapes.UNSEEN.values())
    assert set(shapes.CHANGING) <= set(shapes.SHAPES)


def test_shapes_are_played_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for name in ("SHAPES", "UNSEEN"):
        monkeypatch.setattr(shapes, name, {"small": TINY, "other": TINY + ",seed=1"})
    monkeypatch.setattr(shapes, "CHANGING", ("small",))
    out = tmp_path / "cells.json"
    text = call(shapes, ["--out", str(out)], monkeypatch, capsys)
    found = json.loads(out.read_text())["cells"]
    assert len(found) == 4 + 3 * 2 + 4
    assert all(sum(cell["blocks"]) == pytest.approx(cell["mean_reward"] * 500, abs=1e-3) for cell in found)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [
        "small",
        "small, new-arms",
        "small, drift",
        "small, half-init",
        "other",
    ]
    again = call(shapes, ["other", "--out", str(out)], monkeypatch, capsys)
    assert lines[-1] in again
    assert json.loads(out.read_text())["cells"] == found
    with pytest.raises(SystemExit):
        call(shapes, ["none", "--out", str(out)], monkeypatch, capsys)


def test_the_standard_error_is_of_paired_blocks() -> None:
    """Differences 1, -1, 3, 1 in four blocks: 4 in all, with a standard deviation of sqrt(8 / 3)."""
    blocks = {"budgeted": [11, 9, 13, 11], "greedy": [10, 10, 10, 10]}
    made = [
        {
            "shape": "a",
            "data": "b",
            "scenario": "drift",
            "player": name,
            "seed": 0,
            "rounds": 100,
            "blocks": found,
            "mean_reward": sum(found) / 100,
        }
        for name, found in blocks.items()
    ]
    line = shapes.report(cells.Cells(Path("none"), [], made), {"a": "b"}).splitlines()[-1]
    error = 100 * np.sqrt(8 / 3) * 2 / 40
    assert line == f"| a, drift |  |  | 0.440 | 0.400 |  | +10.00 % | {error:.2f} % |"
