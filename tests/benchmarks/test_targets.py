"""The scripts beside the package that measure everything and fill the tables."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp
from helpers.problems import Problem
from helpers.scripts import BENCHMARKS, script

import treetop
from treetop import _core
from treetop.arrays import as_rows
from treetop.bandit.config import Config, LearnerConfig, PolicyConfig, RefitConfig
from treetop.bench.shape import BenchModel
from treetop.bench.timing import Taken, turns

targets = script("targets")
run_all = script("run_all")
lines = script("lines")
causes = script("causes")
serve_large = script("serve_large")


def document(rows: list[dict[str, Any]], bench: str) -> dict[str, Any]:
    return {
        "rows": [{"bench": bench, **row} for row in rows],
        "checks": {bench: {}},
        "left_out": ["vw: not set up"],
        "shape": {"arms": 9},
        "command": f"treetop bench {bench}",
        "commit": "abc1234",
        "machine": "a machine",
        "load_average": [0.1, 1.2],
    }


def decided(ours: float, pecos: float, half: float) -> dict[str, Any]:
    row = {"name": "treetop", "arms": 9, "beam": 10, "median_ms": ours}
    return document(
        [
            row,
            row | {"eligible": "half", "times_treetop": half, "prepare_ms": 3.0},
            {"name": "pecos", "arms": 9, "beam": 10, "how": "predict", "times_treetop": pecos},
            {"name": "pecos", "arms": 9, "beam": 10, "how": "C call", "times_treetop": pecos / 2},
            {"name": "flat", "arms": 9, "median_ms": 5.0, "times_treetop": 41.0, "g_per_second": 1.1},
        ],
        "decide",
    )


def verdicts(found: dict[str, Any]) -> list[str]:
    return [line.split("|")[-2].strip() for line in targets.table(found).splitlines()[2:]]


def test_targets_are_met_missed_or_not_measured() -> None:
    assert verdicts({}) == ["not measured"] * len(targets.TARGETS)
    good = verdicts({"decide": decided(0.1, 5.0, 1.29)})
    assert [good[i] for i in (0, 3, 5)] == ["met"] * 3
    bad = verdicts({"decide": decided(0.13, 5.0, 1.31)})
    assert [bad[i] for i in (0, 3, 5)] == ["missed", "met", "missed"]
    assert verdicts({"decide": decided(0.1, 4.9, 1.0)})[0] == "missed"


@pytest.mark.parametrize(
    ("name", "place", "rows", "verdict"),
    [
        ("batch", 1, [{"name": "pecos", "beam": b, "threads": 1, "times_treetop": 2.0} for b in (10, 30, 100)], "met"),
        ("replay", 2, [{"name": "treetop", "beam": 10, "times_replay": 2.9, "lines": 2701.0}], "missed"),
        ("scale", 4, [{"name": "treetop", "arms": a, "beam": 10, "times_smallest": a} for a in (1, 2)], "missed"),
        (
            "build",
            8,
            [{"name": "treetop", "what": "tree and routing", "seconds": 600, "cpu_seconds": 9, "peak_gb": 1.0}],
            "met",
        ),
        ("load", 9, [{"name": "treetop", "bytes_per_weight": 9.1, "first_decision_seconds": 0.5}], "missed"),
    ],
)
def test_each_target_reads_its_own_run(name: str, place: int, rows: list[dict[str, Any]], verdict: str) -> None:
    assert verdicts({name: document(rows, name)})[place] == verdict


def test_refit_has_two_targets() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "treetop", "samples": "5-50", "threads": 1, "arms_per_second": 20_000.0},
        {"name": "pecos", "samples": "5-50", "threads": 1, "times_treetop": 4.9},
        {"name": "treetop", "what": "whole refit", "seconds": 300, "cpu_seconds": 9, "peak_gb": 11.0},
    ]
    assert verdicts({"refit": document(rows, "refit")})[6:8] == ["missed", "met"]


def test_the_tables_are_written_from_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "decide.json").write_text(json.dumps(decided(0.1, 6.0, 1.2)))
    for name, other in {"coverage": {"machine": "m", "cells": []}, "churn": {"machine": "m", "rows": []}}.items():
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(other))  # of other scripts: left alone
    page = tmp_path / "performance.md"
    page.write_text("before\n<!-- targets -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(run_all, "HERE", tmp_path)
    monkeypatch.setattr(run_all, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run_all, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["run_all.py", "--fill"])
    run_all.main()
    text = page.read_text()
    assert text.startswith("before\n<!-- targets -->\n| what | target | measured | |\n")
    assert text.endswith("Commit abc1234; a machine; load average 0.1 to 1.2.\n<!-- end -->\nafter\n")
    assert "old" not in text
    results = (tmp_path / "results.md").read_text()
    for part in ("treetop bench decide", "Commit abc1234", "| pecos | C call |", "Left out: vw: not set up."):
        assert part in results
    monkeypatch.setattr(sys, "argv", ["run_all.py", "magic"])
    with pytest.raises(SystemExit):
        run_all.main()


def test_committed_results_make_the_tables() -> None:
    found = targets.read(BENCHMARKS / "results")
    assert run_all._facts(found).startswith("Commit ")
    assert "## decide" in run_all.page(found)


def test_lines_and_their_replay(
    learned: treetop.Model, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    learned.save(tmp_path / "model")
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(problem.X[:4]))
    words = ["--model", str(tmp_path / "model"), "--contexts", str(tmp_path / "x.npz"), "--beam", "2", "--beam", "4"]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "lines.py"), *words, "--json"])
    monkeypatch.setattr(lines, "TURNS", 1)
    lines.main()
    found = json.loads(capsys.readouterr().out)
    rows, sets = found["rows"], _core.instruction_sets()[::-1]
    assert [(row["simd"], row["beam"]) for row in rows] == [(name, beam) for name in sets for beam in (2, 4)]
    assert len({row["lines"] for row in rows if row["beam"] == 4}) == 1
    assert all(row["contexts"] == 4 and row["times_replay"] >= 0 and row["lines"] > 1 for row in rows)
    assert targets.replay({"replay": {"rows": [rows[0] | {"beam": 10}]}})[0]


def test_the_page_has_a_place_for_the_table() -> None:
    text = (BENCHMARKS.parent / "docs" / "performance.md").read_text()
    assert text.count("<!-- targets -->") == 1
    assert "<!-- end -->" in text.split("<!-- targets -->")[1]


def test_a_turn_begins_with_calls_that_are_not_timed() -> None:
    """On contexts of another turn, so that what is timed is not in the cache; and every context is timed once."""
    calls: list[tuple[int, int]] = []

    def call(first: int, n: int) -> list[Taken]:
        calls.append((first, n))
        return [(float(i), 0.0) for i in range(first, first + n)]

    assert [wall for wall, _ in turns({"one": call}, {"one": 12})["one"]] == list(range(12))
    assert calls == [(4, 2), (0, 4), (8, 2), (4, 4), (0, 2), (8, 4)]
    assert turns({"few": call}, {"few": 1})["few"] == [(0.0, 0.0)]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about pages")
def test_where_the_time_of_a_decision_goes(learned: treetop.Model, problem: Problem, tmp_path: Path) -> None:
    learned.save(tmp_path / "model")
    found = BenchModel(treetop.Model.load(tmp_path / "model"), as_rows(problem.X), {})
    subject = causes.Subject(found, beam=3)
    cold, near = causes.stages(subject, n=6)
    assert cold.keys() == near.keys() >= {"whole", "core", "python", "tree", "leaves", "choice"}
    assert all(row[part] >= 0 for row in (cold, near) for part in ("whole", "core", "tree", "leaves", "choice"))
    assert [row["decision"] >= 0 and row["replay"] >= 0 for row in causes.pages(subject, turns=1, n=6)] == [True] * 3
    by_speed = causes.speed(subject, n=400)
    assert 0 < sum(row["share"] for row in by_speed) <= 1.01
    assert all(row["decision"] >= 0 for row in by_speed)
    (row,) = causes.idle(subject, waits=(0,), size=1 << 22)
    assert row["0-10"] >= 0
    assert found.model.engine.layout().ctypes.data == found.model.__dict__["layout"].ctypes.data, "the file's again"


def test_a_large_model_is_served_and_served_again(
    learned: treetop.Model, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_large, "SECONDS", 0.1)
    paper = Config(PolicyConfig(beam=3, strategy="igw"), learner=LearnerConfig("paper"), refit=RefitConfig(first=10**9))
    with treetop.Bandit.create(tmp_path / "bandit", model=learned, config=paper) as bandit:
        serve_large.fill(bandit, problem.feedback(60))
        assert bandit.log.counts().observed == 60
    rows, checks = serve_large.served(tmp_path / "bandit", as_rows(problem.X), 4)
    assert [row["what"] for row in rows][::2] == ["start", "refit, and decisions meanwhile", "start again"]
    assert checks["same after the restart"] == checks["decided again by their model"] == 4
    assert checks["decisions in the log"] > 64
