"""The ceiling: what ridge regression over all arms gets, against a slow twin; refused before anything is played."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import shell

from treetop.data.datasets import load
from treetop.experiments import full_information as module
from treetop.experiments import ridge
from treetop.experiments.full_information import full_information

SMALL = "synthetic:arms=60,features=80,rows=500,init=100"


@pytest.mark.parametrize("numbers", [1, 1 << 24], ids=["row by row", "together"])
def test_it_is_one_ridge_regression_an_arm(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUMBERS", numbers)
    monkeypatch.setattr(module, "PIECE", 32)
    monkeypatch.setattr(ridge, "PIECE", 32)
    data = load(SMALL)
    assert data.X_init is not None
    assert data.Y_init is not None
    X, T = (np.hstack([rows.csr().toarray(), np.ones((len(rows), 1))]) for rows in (data.X, data.X_init))
    weights = np.linalg.solve(X.T @ X + 0.5 * np.eye(X.shape[1]), X.T @ data.Y.csr().toarray())
    best = np.argsort(-(T @ weights), axis=1)[:, :3]
    expected = np.take_along_axis(data.Y_init.csr().toarray(), best, 1).sum(axis=1).mean()
    assert full_information(data, k=3) == {"mean_reward": round(float(expected), 4), "rows": 100, "cost": 1.0}


@pytest.mark.parametrize("rows", [500, 60], ids=["more rows than features", "fewer"])
def test_conjugate_gradients_give_the_same_ceiling(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load(f"synthetic:arms=60,features=80,rows={rows},init=100")
    direct = full_information(data, k=3)
    monkeypatch.setattr(ridge, "LARGEST_FACTOR", 0)
    assert full_information(data, k=3) == direct
    monkeypatch.setattr(module, "FEW_TEST_ROWS", 40)
    assert full_information(data, k=3)["rows"] == 40


def test_a_set_of_many_features_has_a_ceiling() -> None:
    wide = "synthetic:arms=50,features=20001,rows=200,init=50"
    words = ["--ceiling", "--horizon", "60", "--max-leaf", "10", "--json"]
    found = json.loads(shell("simulate", wide, *words).stdout)["ceiling"]
    assert found == full_information(load(wide))
    assert found["rows"] == 50
    assert found["mean_reward"] > 0


def test_what_it_cannot_be_had_of_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("1 2 2\n0 0:1\n")
    one = str(tmp_path / "one.txt")
    for words, message in (
        ([SMALL, "--k", "5", "--k", "61"], "k is 61; it must lie in [1, 60]"),
        ([one, "--k", "1", "--explore", "1"], "one: the ceiling needs at least 2 rows in the stream; it has 1"),
    ):
        ended = shell("simulate", *words, "--ceiling", "--out", str(tmp_path / "runs"))
        assert ended.returncode == 2
        assert message in re.sub(r"\s+", " ", ended.stderr)
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [({"cost": 0.0}, "cost is 0.0"), ({"cost": float("nan")}, "cost is nan"), ({"seed": -1}, "seed is -1")],
)
def test_wrong_numbers_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        full_information(load(SMALL), **given)


def test_an_empty_part_is_named() -> None:
    data = load(SMALL)
    empty = data.X.head(0), data.Y.head(0)
    with pytest.raises(ValueError, match="tried on the initialisation set, which has 0 rows"):
        full_information(replace(data, X_init=empty[0], Y_init=empty[1]))
    with pytest.raises(ValueError, match="the ceiling needs at least 1 rows in the stream; it has 0"):
        full_information(replace(data, X=empty[0], Y=empty[1]))
