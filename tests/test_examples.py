"""The notebooks of examples/ run, and what is stored in them is what they give: no error, the same kinds of output."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SECONDS = 600.0  # on a busy machine


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def kinds(cell: dict[str, Any]) -> set[tuple[str, ...]]:
    """What a cell gave: streams by name, results and pictures by the forms that they have."""
    return {(out["output_type"], out.get("name", ""), *sorted(out.get("data", ()))) for out in cell["outputs"]}


def text(cell: dict[str, Any]) -> str:
    return "".join(
        part for out in cell["outputs"] for part in [*out.get("text", ()), *out.get("data", {}).get("text/plain", ())]
    )


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("nbclient", "ipykernel", "matplotlib", "pandas"):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed (pip install 'treetop-bandits[dev]')")
    folder = tmp_path_factory.mktemp("examples")
    command = [sys.executable, str(ROOT / "scripts" / "run_notebooks.py"), "--out", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


def test_there_are_three_with_pictures_and_outputs() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["1_first_steps", "2_your_own_catalogue", "3_evaluate_and_ship"]
    for path in NOTEBOOKS:
        pictures = sum("image/png" in form for cell in cells(path) for form in kinds(cell))
        assert pictures >= 1, path.name
        assert path.stat().st_size < 100_000, f"{path.name} is too large to be read as a change"
        said = "".join(text(cell) for cell in cells(path))
        assert "/tmp/" not in said
        assert str(Path.home()) not in said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_is_stored_in_it(path: Path, executed: Path) -> None:
    stored, now = cells(path), cells(executed / path.name)
    assert [cell["source"] for cell in stored] == [cell["source"] for cell in now]
    for mine, given in zip(stored, now, strict=True):
        assert mine["execution_count"] is not None, "run scripts/run_notebooks.py"
        assert not any(out["output_type"] == "error" for out in given["outputs"])
        assert kinds(mine) == kinds(given), f"run scripts/run_notebooks.py: {''.join(mine['source'])}"


def test_what_the_last_one_says_of_shipping_holds(executed: Path) -> None:
    """The candidate that is shipped was judged better, earned more, and within its interval."""
    said = "".join(text(cell) for cell in cells(executed / "3_evaluate_and_ship.ipynb"))
    assert "('epsilon=0.05',\n 'better'" in said
    before, after = (
        float(said.partition(f"'{day}': np.float64(")[2].partition(")")[0]) for day in ("tuesday", "wednesday")
    )
    low, high = (float(v) for v in said.partition("epsilon=0.05 ")[2].partition("[")[2].partition("]")[0].split(", "))
    assert after > before
    assert low <= after <= high
