"""The script that measures how often intervals hold, in small."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.scripts import script

for beside in ("cells", "coverage_batch"):
    sys.modules.setdefault(beside, script(beside))
coverage = script("coverage")


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
    coverage.main(["coverage.py", "--cells", "flat,synthetic", "--reps", "2", "--out", str(out)])
    cells = json.loads(out.read_text())["cells"]
    assert len(cells) == 8 + len(coverage.PAIRS)
    for cell in cells:
        assert cell["reps"] == 2
        assert all(0 <= share <= 1 for share in cell["coverage"].values())
        assert all(np.isfinite(width) for width in cell["width"].values())
        assert sum(cell["ways"].values()) == 2
    text = coverage.printed(cells)
    assert "default, greedy" in text
    assert len(text.splitlines()) == 2 + len(cells)
