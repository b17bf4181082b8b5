"""The command line as a stranger uses it: help, JSON, tables, errors in one line."""

import inspect
import json
import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from helpers.commands import SHORT, call, process, shell
from helpers.datasets import folder
from rich.text import Text

import treetop
from treetop.cli.main import COMMANDS, app
from treetop.learning.learners import DEFAULT_STRATEGY
from treetop.paper import results_folder
from treetop.policy.strategies import STRATEGIES
from treetop.report import html


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_an_example_and_json(command: str) -> None:
    text = call(command, "--help").output
    assert f"Example: treetop {command}" in re.sub(r"\s+", " ", text)
    assert "--json" in text
    undocumented = [p.name for p in typer.main.get_command(app).commands[command].params if not getattr(p, "help", "")]  # type: ignore[attr-defined]
    assert not undocumented


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_word_of_the_help_is_taken_for_markup(command: str) -> None:
    """What stands in brackets would not be shown."""
    known = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    helps = [known.help, *(getattr(p, "help", "") for p in known.params)]
    assert [text for text in helps if Text.from_markup(text).plain != text] == []


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_example_of_the_help_is_one_that_the_command_takes(command: str) -> None:
    known = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    example = re.search(rf"Example: treetop {command} (.*)", known.help)
    assert example
    assert known.make_context(command, example.group(1).split()).params


def test_demo_plays_the_papers_strategies_and_our_own_and_leaves_a_picture(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    text = call("demo", "--rounds", "6000", "--out", str(out)).output
    for name in ("treetop", "igw", "boltzmann", "epsilon", "greedy", "explored", "right", "Picture"):
        assert name in text
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((out / "result.json").read_text())
    assert [r["strategy"] for r in result["runs"]] == ["greedy", "epsilon", "boltzmann", "igw", "treetop"]
    assert result["runs"][4]["mean_reward"] > 1.2 * result["runs"][3]["mean_reward"]
    assert len(result["examples"]) == 5
    assert all(len(e["shown"]) == 5 and e["description"] for e in result["examples"])


def test_settings_are_crossed_and_distinguished(tmp_path: Path) -> None:
    words = [
        "simulate",
        str(folder(tmp_path, 400)),
        "--strategy",
        "greedy",
        "--strategy",
        "igw",
        "--beam",
        "2",
        "--beam",
        "30",
        "--k",
        "2",
        "--k",
        "5",
        "--explore",
        "1",
        *SHORT,
        "--out",
        str(tmp_path / "out"),
    ]
    runs = json.loads(call(*words, "--json").stdout)["runs"]
    found = [(r["settings"]["k"], r["settings"]["beam"], r["strategy"]) for r in runs]
    assert found == list(product((2, 5), (2, 30), ("greedy", "igw")))
    text = call(*words).stdout
    assert "at most 2 or 5 hits" in text
    for k, beam, strategy in found:
        (line,) = [
            line for line in text.splitlines() if "│" in line and re.search(rf"{strategy} .*k={k} beam={beam} ", line)
        ]
        assert ("1.00x" in line) == (strategy == "greedy"), "compared with greedy of the same settings"
    assert len(re.findall("X-IGW-topk k=. beam=", html.html(results_folder.read_results(tmp_path / "out"), None))) >= 4


def test_the_default_strategy_is_that_of_the_learner_and_cold_leaves_the_labels_out(tmp_path: Path) -> None:
    words = ["simulate", str(folder(tmp_path, 400)), "--learner", "paper", "--learner", "treetop", "--init", "100"]
    words += ["--horizon", "200", "--max-leaf", "4", "--first-epoch", "64", "--json"]
    unsaid, default, cold = (
        json.loads(call(*words, *more).stdout)["runs"] for more in ([], ["--strategy", "default"], ["--cold"])
    )
    for runs in (unsaid, default):
        assert [(r["settings"]["learner"], r["strategy"]) for r in runs] == list(DEFAULT_STRATEGY.items())
    assert [r["mean_reward"] for r in unsaid] == [r["mean_reward"] for r in default]
    assert [r["settings"]["label_samples"] for r in (*default, *cold)] == [True, True, False, False]
    assert cold[0]["mean_reward"] == default[0]["mean_reward"]
    assert cold[1]["mean_reward"] != default[1]["mean_reward"]
    both = json.loads(call(*words, "--strategy", "default", "--strategy", "igw").stdout)["runs"]
    assert len(both) == 3, "igw is the default of paper: played once"


@dataclass(frozen=True)
class Halves:
    """Half to the best, half to all alike: ten lines, and no kernel."""

    share: float = 0.5

    def probabilities(self, scores: Any, n_seen: int) -> Any:
        p = np.full(len(scores), self.share / len(scores))
        p[scores.argmax()] += 1 - self.share
        return p


def test_a_strategy_written_in_python_is_played_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "halves", Halves)
    words = [*SHORT, "--json"]
    found = json.loads(call("simulate", str(folder(tmp_path, 400)), "--strategy", "halves", *words).stdout)
    assert found["runs"][0]["settings"]["parameters"] == {"share": 0.5}
    assert found["runs"][0]["mean_reward"] > 0


def test_simulate_json_is_the_contract(tmp_path: Path) -> None:
    words = ["simulate", str(folder(tmp_path, 400)), "--strategy", "igw", "--strategy", "greedy", *SHORT]
    words += ["--seed", "0", "--seed", "7", "--json"]
    first, again = (json.loads(call(*words, "--out", str(tmp_path / "out")).stdout) for _ in range(2))
    assert first["dataset"]["arms"] == 60
    assert [(r["strategy"], r["seed"]) for r in first["runs"]] == [("igw", 0), ("greedy", 0), ("igw", 7), ("greedy", 7)]
    for run, twin in zip(first["runs"], again["runs"], strict=True):
        assert run["checkpoints"][-1][0] == 300
        assert run["mean_reward"] == twin["mean_reward"]
        assert run["settings"]["refits"] == [64, 128, 256]
        assert run["seconds"] >= 0
        rewards = {"mean_reward", "late_reward", "exploration_cost", "found_arms", "found_reward", "checkpoints"}
        assert set(run) == {"strategy", "seed", *rewards, "seconds", "settings"}
        assert run["exploration_cost"] == twin["exploration_cost"]
        assert (run["exploration_cost"] == 0) == (run["strategy"] == "greedy")
        assert (run["found_arms"] > 0) == (run["strategy"] == "igw")
        assert run["found_reward"] >= 0
    line = json.loads((tmp_path / "out" / "runs.jsonl").read_text().splitlines()[0])
    assert first["runs"][0]["late_reward"] == pytest.approx(sum(line["blocks"][-40:]) / 60), "the last fifth"
    assert json.loads((tmp_path / "out" / "result.json").read_text())["runs"][0]["strategy"] == "igw"
    assert (tmp_path / "out" / "curves.png").exists()


def test_simulate_plays_the_order_that_is_asked_for(tmp_path: Path) -> None:
    words = ["simulate", str(folder(tmp_path, 400)), "--init", "100", "--horizon", "300", "--max-leaf", "4"]
    plain, *others = (
        json.loads(call(*words, *more, "--json").stdout)["runs"][0]
        for more in ([], ["--order", "shuffled"], ["--order", "file"], ["--order", "blocks"])
    )
    assert [run["settings"]["order"] for run in (plain, *others)] == ["shuffled", "shuffled", "file", "blocks"]
    assert plain["checkpoints"] == others[0]["checkpoints"]
    assert len({str(run["checkpoints"]) for run in others}) == 3


def test_simulate_without_a_refit_says_so(tmp_path: Path) -> None:
    words = ["simulate", str(folder(tmp_path, 400)), "--learner", "treetop", "--init", "100", "--horizon", "300"]
    words += ["--max-leaf", "4", "--first-epoch", "300"]
    (run,) = json.loads(call(*words, "--json").stdout)["runs"]
    assert run["settings"]["refits"] == []
    assert run["mean_reward"] > 0, "the labels of the initialisation set are known from the start"
    says = call(*words).stderr
    assert "budgeted (treetop): nothing was refitted in 300 rounds, the first refit is after 300" in says
    assert "try --first-epoch 32" in says
    assert "refitted" not in call(*words[:-1], "32").stderr


def test_simulate_says_what_default_is_where_it_is_not_what_a_bandit_uses(tmp_path: Path) -> None:
    words = ["simulate", str(folder(tmp_path, 400)), "--init", "100", "--horizon", "300", "--max-leaf", "4"]
    note = "note: default is igw with the learner paper; Bandit and the service use budgeted with treetop"
    for more, said in (
        (["--strategy", "default"], True),
        ([], False),
        (["--strategy", "default", "--learner", "treetop"], False),
        (["--strategy", "default", "--learner", "treetop", "--learner", "paper"], False),
    ):
        done = call(*words, *more, "--json")
        assert (note in done.stderr) == said, more
        assert json.loads(done.stdout)["runs"][0]["strategy"] == ("budgeted" if "treetop" in more else "igw")


def test_the_table_has_the_cost_of_exploration(tmp_path: Path) -> None:
    words = ["simulate", str(folder(tmp_path, 400)), "--strategy", "igw", "--strategy", "greedy", *SHORT]
    igw = json.loads(call(*words, "--json").stdout)["runs"][0]
    share = f"{igw['exploration_cost'] / igw['mean_reward']:.2%}"
    lines = call(*words).stdout.splitlines()
    assert any("igw" in line and f" {share} " in line for line in lines)
    assert any("greedy" in line and " 0.00% " in line for line in lines)


def test_the_table_fits_a_terminal_and_found_arms_have_their_seeds(tmp_path: Path) -> None:
    words = ["simulate", str(folder(tmp_path, 400)), "--strategy", "igw", "--strategy", "greedy", *SHORT]
    words += ["--seed", "0", "--seed", "7"]
    text = call(*words).stdout
    assert "…" not in text
    assert "exploring" in text
    assert re.search(r"igw seed 0 \d+ \(\d+\), igw seed 7 \d+ \(\d+\)", " ".join(text.split()))


def test_simulate_learns_only_from_what_is_observed_and_refuses_another_plan(tmp_path: Path) -> None:
    words = ["simulate", str(folder(tmp_path, 400)), *SHORT, "--out", str(tmp_path / "out")]
    run = json.loads(call(*words, "--observer", "cascade", "--json").stdout)["runs"][0]
    assert run["settings"]["observer"] == "cascade"
    assert 0 < json.loads((tmp_path / "out" / "runs.jsonl").read_text())["observed"] < 1
    refused = shell(*words, "--observer", "all")
    assert refused.returncode == 2
    assert "plan.settings[0].observer is 'cascade' there, 'all' here" in re.sub(r"\s+", " ", refused.stderr)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulate", "/no/such/set"], "neither 'debian' nor a folder"),
        (["simulate", "debian", "--strategy", "magic"], "'magic'; it must be one of default, igw"),
        (["simulate", "debian", "--k", "0"], "k is 0; it must lie in [1, 65536]"),
        (["experiment", "shop"], "error: Invalid value for 'ACTION': 'shop' is not one of 'start', 'stop'"),
        (["simulate", "debian", "--explore", "9"], "explore is 9; it must lie in [0, 5]"),
        (["simulate", "debian", "--learner", "magic"], "it must be one of paper, treetop"),
        (["simulate", "debian", "--order", "backwards"], "it must be one of shuffled, file, blocks"),
        (["simulate", "debian", "--init", "99999999"], "init is 99999999"),
        (["simulate", "debian", "--observer", "each:c=2"], "c is 2.0; it must be finite and lie in [1e-12, 1]"),
        (["tune", "debian", "--grid", "magic"], "grid is 'magic'; it must be one of paper, small"),
        (["bench", "magic"], "cannot bench 'magic'"),
        (["init", "/", "debian"], "/ exists and is not an empty folder; nothing was written"),
        (["init", "shop", "debian", "--explore", "6"], "explore is 6; it must lie in [0, 5]"),
        (["serve"], "error: Missing argument 'FOLDER'; treetop serve --help says more"),
        (["simulate", "debian", "--k", "x"], "Invalid value for '--k'"),
        (["simulate", "debian", "--kk", "3"], "No such option: --kk"),
        (["magic"], "No such command 'magic'; treetop --help says more"),
        (["init", "shop", "--items", "none.csv"], "error: none.csv: No such file or directory"),
        (["serve", "/no/such/folder"], "/no/such/folder is not a bandit's folder: there is no such folder"),
        (["serve", "."], ". is not a bandit's folder: there is no 'current' in it"),
        (["serve", "/no/such/folder", "--host", "0.0.0.0"], "listening on 0.0.0.0 needs a token"),
        (["replay", "/no/such/folder", "x"], "/no/such/folder is not a bandit's folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the README's example was typed, there is a folder `shop`
    result = shell(*words)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_flags_have_no_type_and_arguments_are_in_capitals() -> None:
    text = shell("tune", "--help").stdout
    assert "Usage: treetop tune [OPTIONS] DATA " in text
    assert "Usage: treetop reproduce [OPTIONS] WHAT..." in shell("reproduce", "--help").stdout
    assert "Usage: treetop init [OPTIONS] FOLDER [DATA] " in shell("init", "--help").stdout
    assert "<bool>" not in text + call("--help").output


def test_commands_come_in_groups() -> None:
    text = call("--help").output
    at = [text.index(word) for word in ("Start", "demo", "Run", "replay", "Log", "export", "Research", "simulate")]
    assert at == sorted(at)


def test_a_malformed_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("2 5 4\n1,2 0:1\n3 x3\n")
    result = process("simulate", str(tmp_path / "data.txt"))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: {tmp_path / 'data.txt'} line 3: 'x3' is not a feature:value pair\n"


def test_init_takes_names_from_files(tmp_path: Path) -> None:
    (tmp_path / "arms").write_text("".join(f"arm-{i}\n" for i in range(60)))
    (tmp_path / "features").write_text("".join(f"word-{i}\n" for i in range(40)))
    words = [
        "init",
        str(tmp_path / "shop"),
        str(folder(tmp_path, 400)),
        "--init",
        "200",
        "--max-leaf",
        "4",
        "--arms",
        str(tmp_path / "arms"),
        "--features",
        str(tmp_path / "features"),
        "--json",
    ]
    made = json.loads(call(*words).stdout)
    assert (made["arms"], made["features"], made["model"]) == (60, 40, "000000")
    with treetop.Bandit.open(tmp_path / "shop") as bandit:
        shown = bandit.decide({"word-3": 1.0}, event_id="v")
        assert all(str(arm).startswith("arm-") for arm in shown.arms)
    assert json.loads(call("replay", str(tmp_path / "shop"), "v", "--json").stdout)["same"] is True
    assert "decided again: the same" in call("replay", str(tmp_path / "shop"), "v").output


def test_init_of_few_rows_takes_all_that_there_are(tmp_path: Path) -> None:
    rows = "".join(f"{i % 6} {i % 4}:1 {4 + i % 3}:0.5\n" for i in range(40))
    (tmp_path / "few.txt").write_text("40 7 6\n" + rows)
    assert "from 39 rows" in call("init", str(tmp_path / "shop"), str(tmp_path / "few.txt")).output
    result = shell("init", str(tmp_path / "other"), str(tmp_path / "few.txt"), "--init", "40")
    assert result.stderr == "error: init is 40; it must lie in [1, 39]\n"
    (tmp_path / "arms").write_text("tea\nmilk\n")
    result = shell("init", str(tmp_path / "other"), str(tmp_path / "few.txt"), "--arms", str(tmp_path / "arms"))
    assert result.stderr == "error: few: 2 names of arms where 6 are needed\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_commands_have_at_most_seven_parameters(name: str) -> None:
    """Options that belong together come in groups."""
    assert len(inspect.signature(inspect.unwrap(COMMANDS[name])).parameters) <= 7
