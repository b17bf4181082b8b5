"""`treetop experiment` as it is typed: readable at 80 columns, and a bad table hinders nothing else."""

import json
from pathlib import Path

import pytest
from helpers.commands import shell
from helpers.problems import topics
from helpers.running import settings, small_bandit
from rich.console import Console

from treetop import Bandit
from treetop.bandit.experiment_config import ExperimentConfig

X, Y = topics(n=900)
LONG = "a-wider-beam-and-less-exploration-than-what-serves-at-the-moment"
VARIANTS = {"now": {"share": 0.5}, LONG: {"share": 0.5, "beam": 30}}
BAD = "\n[experiments.broken]\n[experiments.broken.variants]\nonly = {share = 0.5}\n"
WHY = "[experiments.broken] variants are {'only': {'share': 0.5}}; two or more are needed"


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """400 visits of an experiment that runs; another one has a mistake, and its own table was spoilt since."""
    config = settings(experiments={"beams": ExperimentConfig(VARIANTS)})
    path = small_bandit(tmp_path / "shop", X, Y, config=config)
    with Bandit.open(path) as bandit:
        bandit.start_experiment("beams")
        for i in range(400):
            served = bandit.decide(X[300 + i], f"visit-{i}", keys={"visitor": i})
            bandit.reward(f"visit-{i}", dict.fromkeys(served.arms, float(i % 3 == 0)))
    with (path / "config.toml").open("a") as file:
        file.write(BAD)
    return str(path)


def test_80_columns_are_enough(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treetop.cli.experiment.console", Console(width=80))
    text = shell("experiment", "show", shop).stdout
    assert max(map(len, text.splitlines())) <= 80
    for part in ("variant", "visits", "against", "baseline", "cannot tell yet", "more"):
        assert part in text
    cells = [line.split("│")[-1].strip() for line in text.splitlines() if "│" in line]
    assert {*filter(None, cells)} <= {"baseline", "cannot tell yet"}  # how many more visits is said below
    assert "…" not in text
    said = "".join(line.split("│")[0].strip() for line in text.splitlines())
    assert LONG in said


def test_a_bad_experiment_is_shown_and_hinders_nothing(shop: str) -> None:
    text = " ".join(shell("experiment", "show", shop).stdout.split())
    assert "Experiment beams runs" in text
    assert f"bad, cannot be started: {WHY}" in text
    assert WHY in json.loads(shell("experiment", "show", shop, "--json").stdout)["bad"]["broken"]
    assert shell("evaluate", shop, "--experiment", "beams").returncode == 0
    for words in (("start", shop, "broken"), ("show", shop, "broken")):
        done = shell("experiment", *words)
        assert done.returncode == 2
        assert WHY in done.stderr
    done = shell("experiment", "stop", shop)
    assert (done.returncode, "Experiment beams is stopped" in done.stdout) == (0, True)
    assert "beams has ended" in shell("experiment", "show", shop).stdout


def test_one_that_runs_is_stopped_though_its_table_was_spoilt(shop: str) -> None:
    path = Path(shop) / "config.toml"
    path.write_text(path.read_text().replace("now = {share = 0.5}", "now = {share = 5}"))
    assert "[experiments.beams] the share of variant 'now' is 5" in " ".join(
        shell("experiment", "show", shop).stdout.split()
    )
    assert "Experiment beams is stopped" in shell("experiment", "stop", shop).stdout


def test_none_was_started_and_one_is_bad(tmp_path: Path) -> None:
    path = small_bandit(tmp_path / "shop", X, Y)
    with (path / "config.toml").open("a") as file:
        file.write(BAD)
    done = shell("experiment", "show", str(path))
    assert done.returncode == 2
    assert f"no experiment was ever started; config.toml: {WHY}" in done.stderr
