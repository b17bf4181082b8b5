"""The ceiling: what ridge regression over all arms gets, against a slow twin; refused before anything is played."""

from pathlib import Path

import numpy as np
import pytest
from helpers.commands import shell

from treetop.data.datasets import load
from treetop.experiments import full_information as module
from treetop.experiments.full_information import full_information

SMALL = "synthetic:arms=60,features=80,rows=500,init=100"


@pytest.mark.parametrize("numbers", [1, 1 << 26], ids=["row by row", "together"])
def test_it_is_one_ridge_regression_an_arm(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUMBERS", numbers)
    monkeypatch.setattr(module, "PIECE", 32)
    data = load(SMALL)
    assert data.X_init is not None
    assert data.Y_init is not None
    X, T = (np.hstack([rows.csr().toarray(), np.ones((len(rows), 1))]) for rows in (data.X, data.X_init))
    weights = np.linalg.solve(X.T @ X + 0.5 * np.eye(X.shape[1]), X.T @ data.Y.csr().toarray())
    best = np.argsort(-(T @ weights), axis=1)[:, :3]
    expected = np.take_along_axis(data.Y_init.csr().toarray(), best, 1).sum(axis=1).mean()
    assert full_information(data, k=3) == {"mean_reward": round(float(expected), 4), "rows": 100, "cost": 1.0}


def test_a_set_that_is_too_wide_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    wide = "synthetic:arms=50,features=20001,rows=100,init=50"
    with pytest.raises(ValueError, match=r"at most 20,000 features; .* has 20,001"):
        full_information(load(wide))
    for words in ([wide], [SMALL, "--k", "5", "--k", "61"]):
        ended = shell("simulate", *words, "--ceiling", "--out", str(tmp_path / "runs"))
        assert ended.returncode == 2
        assert "ceiling" in ended.stderr or "k is 61" in ended.stderr
        assert not (tmp_path / "runs").exists()
