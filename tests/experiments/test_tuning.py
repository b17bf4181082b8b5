"""The search for hyper-parameters: the paper's grids, the best of each strategy, taken up again like any plan."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import call
from helpers.datasets import folder, made_up

from treetop.experiments import tuning
from treetop.experiments.execute import execute
from treetop.experiments.records import read_records

COMMON = {"init": 100, "horizon": 1500, "max_leaf": 4, "first_epoch": 64}
WORDS = ["--init", "100", "--horizon", "1500", "--max-leaf", "4", "--first-epoch", "64", "--grid", "small"]


def test_the_papers_grids() -> None:
    for name, parameter in (("igw", "C"), ("boltzmann", "beta")):
        values = [point[parameter] for point in tuning.grid(name)]
        assert values == [10.0**e for e in range(-7, 8)]
    epsilons = [point["epsilon"] for point in tuning.grid("epsilon")]
    assert (epsilons[0], epsilons[-1]) == (1e-7, 1.0)
    np.testing.assert_allclose(np.diff(np.log10(epsilons)), 7 / 9, atol=1e-3)
    assert any(round(epsilon, 3) == 0.167 for epsilon in epsilons)
    assert tuning.grid("greedy") == [{}]


def test_the_best_of_each_strategy_is_the_best_over_all_seeds() -> None:
    plan = tuning.plan("made up", ["igw", "epsilon", "greedy"], "small", [0, 1], **COMMON)
    records = execute(None, plan, dataset=made_up())
    points = tuning.points(plan, records)
    assert len(points) == 7
    for point in points:
        mine = [
            r.mean_reward
            for r in records
            if r.strategy == point.strategy and point.parameters.items() <= r.settings["parameters"].items()
        ]
        assert len(mine) == 2
        assert (point.low, point.high) == (min(mine), max(mine))
        assert point.mean_reward == pytest.approx(np.mean(mine))
    for name in ("igw", "epsilon", "greedy"):
        mine_best = [p for p in points if p.strategy == name and p.best]
        assert len(mine_best) == 1
        assert mine_best[0].mean_reward == max(p.mean_reward for p in points if p.strategy == name)
    best = tuning.summary(points)["best"]
    assert best["greedy"].keys() == {"mean_reward", "tie"}
    assert best["epsilon"].keys() == {"epsilon", "mean_reward", "tie"}


def test_the_command_prints_a_table_and_json_and_goes_on(tmp_path: Path) -> None:
    words = ["tune", str(folder(tmp_path, 600)), "--strategy", "igw", "--strategy", "greedy", *WORDS]
    text = call(*words, "--out", str(tmp_path / "out")).output
    for word in ("igw", "C 0.01", "C 100", "greedy"):
        assert word in text
    lines = (tmp_path / "out" / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "out" / "runs.jsonl").write_bytes(b"".join(lines[:2]))  # as if it had been stopped after two
    found = json.loads(call(*words, "--out", str(tmp_path / "out"), "--json").stdout)
    assert [p["parameters"] for p in found["points"]] == [{"C": 0.01}, {"C": 1.0}, {"C": 100.0}, {}]
    assert found["dataset"]["arms"] == 60
    assert found["best"]["igw"]["mean_reward"] == max(p["mean_reward"] for p in found["points"][:3])
    assert json.loads((tmp_path / "out" / "tuned.json").read_text()) == found
    assert [r.mean_reward for r in read_records(tmp_path / "out")] == [p["mean_reward"] for p in found["points"]]


def test_a_tie_and_a_run_without_a_refit_are_named(tmp_path: Path) -> None:
    """Before the first refit no regressor has data, and every C draws alike."""
    words = ["tune", str(folder(tmp_path, 600)), "--strategy", "igw", *WORDS, "--first-epoch", "4096"]
    done = call(*words)
    assert "warning: igw (paper): nothing was refitted in" in done.stderr
    assert re.search(r"C 0\.01 .*│ tie", done.stdout)
    found = json.loads(call(*words, "--json").stdout)
    assert [(p["best"], p["tie"], p["refits"]) for p in found["points"]] == [(True, True, 0)] + 2 * [(False, False, 0)]
    assert found["best"]["igw"]["tie"] is True


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="strategy is 'magic'; it must be one of igw, boltzmann"):
        tuning.grid("magic")
    with pytest.raises(ValueError, match="grid is 'huge'; it must be one of paper, small"):
        tuning.grid("igw", "huge")


@pytest.mark.parametrize(("strategy", "peak"), [("igw", 1e5), ("igw", 1e-7), ("boltzmann", 1e7), ("epsilon", 1.0)])
def test_climbing_finds_the_peak_of_the_grid_in_few_tries(strategy: str, peak: float) -> None:
    name = tuning.PARAMETER[strategy]
    assert name
    tried: list[float] = []

    def score(point: dict[str, float]) -> float:
        tried.append(point[name])
        return -abs(math.log(point[name] / peak))

    assert tuning.climb(strategy, score) == {name: peak}
    assert len(tried) == len(set(tried)) <= 2 + abs(math.log10(peak)) + 2


@pytest.mark.parametrize(("strategy", "best"), [("igw", 1e6), ("boltzmann", 1e7), ("epsilon", tuning.SHARES[1])])
def test_climbing_looks_at_the_greedy_end_too(strategy: str, best: float) -> None:
    """A low peak near the paper's value must not hide that it pays to explore hardly at all."""
    name = tuning.PARAMETER[strategy]
    assert name
    found = tuning.FOUND[strategy]

    def score(point: dict[str, float]) -> float:
        return max(1 - abs(math.log10(point[name] / found)), 5 - abs(math.log10(point[name] / best)))

    assert tuning.climb(strategy, score) == {name: best}


def test_greedy_has_nothing_to_climb() -> None:
    assert tuning.climb("greedy", lambda point: 0.0) == {}
