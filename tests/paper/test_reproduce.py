"""Every target on a small set: its files, its numbers against the runs they come from, and what is played only once."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.commands import call, shell
from helpers.pages import Page, self_contained
from helpers.problems import topics

from treetop import load
from treetop.experiments.comparison import bakeoff, verdict
from treetop.paper.claims import CLAIMS
from treetop.paper.published import dataset_title
from treetop.paper.reproduce import TARGETS, claims, reproduce
from treetop.paper.results_folder import read_results
from treetop.paper.run_cache import RunCache
from treetop.paper.sizes import DEBIAN, QUICK_INIT, QUICK_ROUNDS, Sizes, preset_of
from treetop.report.html import html
from treetop.report.sections import Section


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 arms: with leaves of 10 there are more leaves than a beam of 10 holds."""
    path = tmp_path_factory.mktemp("topics")
    X, Y = topics(n=1500, arms=400)
    for part, rows in {"trn": slice(0, 1000), "tst": slice(1000, 1500)}.items():
        sp.save_npz(path / f"X.{part}.npz", X[rows])
        sp.save_npz(path / f"Y.{part}.npz", Y[rows])
    return path


@pytest.fixture(scope="module")
def done(small: Path, tmp_path_factory: pytest.TempPathFactory) -> RunCache:
    """Everything, reproduced once."""
    cache = RunCache((str(small),), (0, 1, 2), tmp_path_factory.mktemp("out"), quick=True, horizon=900)
    reproduce(cache, ["all"])
    return cache


def section(cache: RunCache, name: str) -> Section:
    return Section.load(cache.out / f"{name}.json")


def runs(cache: RunCache) -> list[dict[str, Any]]:
    lines = [line for file in sorted(cache.out.rglob("runs.jsonl")) for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_writes_a_table_and_a_picture(done: RunCache, name: str) -> None:
    found = section(done, name)
    assert found.tables
    text = (done.out / f"{name}.md").read_text()
    for table in found.tables:
        assert table.markdown() in text
    assert (done.out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_curves_are_those_of_the_runs(done: RunCache) -> None:
    found = section(done, "curves")
    names = [line.name for line in found.panels[0].lines]
    assert names == ["X-Greedy", "X-IGW-topk", "X-Boltzmann-topk", "X-ε-greedy-topk", "IGW-topk (all arms)"]
    mine = [r for r in runs(done) if r["strategy"] == "igw" and r["settings"]["k"] == 5 and r["settings"]["beam"] == 10]
    assert [r["seed"] for r in mine] == [0, 1, 2]
    mean = float(np.mean([r["mean_reward"] for r in mine]))
    assert found.panels[0].lines[1].y[-1] == pytest.approx(mean, abs=1e-5)
    assert found.data["datasets"][0]["means"]["igw"] == pytest.approx(mean)
    assert any(f"{mean:.3f} ± " in cell for table in found.tables for row in table.rows for cell in row)


def test_win_draw_loss_follows_from_the_means(done: RunCache) -> None:
    means, cells = section(done, "curves").data["datasets"][0]["means"], section(done, "wdl").data["cells"]
    assert len(cells) == 12
    for a, b, *counts in cells:
        p, q = means[a] / 5, means[b] / 5
        outcome = verdict(bakeoff(p, q, 900), bakeoff(q, p, 900))
        assert counts == [int(outcome > 0), int(outcome == 0), int(outcome < 0)]
    titles = [table.title for table in section(done, "wdl").tables]
    assert titles[:2] == ["The paper, 6 datasets", "Ours, 1 dataset"]
    assert "Ours, every dataset and seed on its own" in titles


def test_flat_and_tree_have_both_means(done: RunCache) -> None:
    row = section(done, "flat-vs-tree").data["datasets"][0]
    assert row["mean_beam"] == section(done, "curves").data["datasets"][0]["means"]["igw"]
    assert 0 < row["mean_all"] < 5
    assert row["mean_all"] != row["mean_beam"]


def test_the_realizable_setting_has_both_variants_with_tuned_parameters(done: RunCache) -> None:
    found = section(done, "realizable")
    flat, tree = found.data["variants"]
    assert (flat["variant"], tree["variant"]) == ("all arms", "beam 10")
    for variant in (flat, tree):
        assert set(variant["regret"]) == {"greedy", "igw", "boltzmann", "epsilon"}
        assert min(variant["regret"].values()) > 0
    (tuned,) = found.settings["tuned"].values()
    assert set(tuned) == {"all arms", "beam 10"}
    assert found.panels[1].lines[0].name == "Greedy"
    assert found.panels[3].lines[0].name == "X-Greedy"
    regret = [line.y for line in found.panels[1].lines]
    assert all(np.diff(y).min() > -1e-3 for y in regret), "cumulative regret falls"


def test_parameters_are_tuned_over_the_rounds_played_and_those_runs_are_used_again(done: RunCache) -> None:
    tuned = next(iter(section(done, "realizable").settings["tuned"].values()))["all arms"]
    mine = [r for r in runs(done) if r["regret_checkpoints"] and r["settings"]["beam"] is None]
    assert len({r["settings"]["horizon"] for r in mine}) == 1
    for style, parameters in tuned.items():
        tried = [r for r in mine if r["strategy"] == style and r["seed"] == 0]
        best = max(tried, key=lambda r: r["mean_reward"])
        assert len(tried) == 3, "the whole grid, each once"
        assert {name: best["settings"]["parameters"][name] for name in parameters} == parameters


def test_sigma_is_a_flag(small: Path, tmp_path: Path) -> None:
    words = ["--quick", "--data", str(small), "--horizon", "100", "--out", str(tmp_path)]
    for more in ([], ["--sigma", "3"]):
        call("reproduce", "realizable", *words, *more)
    assert "Gaussian noise of 3." in (tmp_path / "realizable.md").read_text()
    assert "--sigma 3" in (tmp_path / "reproduce.json").read_text()
    worlds = [json.loads(file.read_text())["plan"]["world"] for file in tmp_path.rglob("plan.json")]
    assert worlds.count("realizable:sigma=3") == worlds.count("realizable:sigma=0.1") == len(worlds) / 2
    refused = shell("reproduce", "realizable", *words, "--sigma", "-1")
    assert refused.returncode == 2
    assert "sigma is -1.0; it must be finite and lie in [0, inf]" in " ".join(refused.stderr.split())


def test_inference_times_are_in_the_paper_s_layout(done: RunCache) -> None:
    rows = section(done, "inference").data["rows"]
    assert rows[0]["beam"] == "10"
    assert rows[-1]["beam"].startswith("all (")
    assert all(0 <= row["median_ms"] <= row["p99_ms"] for row in rows)
    assert rows[-1]["paper_ms"] == 799.06


def test_table_1_has_the_paper_beside_ours(done: RunCache, small: Path) -> None:
    rows = section(done, "tables").tables[0].rows
    assert len(rows) == 7
    assert rows[0][:6] == (small.name, "-", "-", "400", "-", "900")
    assert rows[-1][:3] == ("amazon-3m (not played)", "amazon-3m", "2,812,281")


def test_what_was_played_is_not_played_again(done: RunCache) -> None:
    before = {file: file.stat().st_mtime_ns for file in done.out.rglob("runs.jsonl")}
    again = RunCache(done.data, done.seeds, done.out, quick=True, horizon=900)
    reproduce(again, ["curves", "wdl", "flat-vs-tree", "realizable"])
    assert {file: file.stat().st_mtime_ns for file in done.out.rglob("runs.jsonl")} == before
    keys = [json.dumps([r["seed"], r["strategy"], r["settings"]], sort_keys=True) for r in runs(done)]
    assert len(keys) == len(set(keys)), "the same run twice"


def test_another_seed_leaves_the_others_as_they_are(small: Path, tmp_path: Path) -> None:
    for seeds in ((0,), (0, 5)):
        cache = RunCache((str(small),), seeds, tmp_path, quick=True, horizon=300)
        (found,) = reproduce(cache, ["curves"])
        assert cache.tree(str(small))[0].seeds == seeds
    assert len(runs(cache)) == 2 * 5
    assert "| 2 |" in found.markdown()


def test_claims_are_written_with_every_section(done: RunCache) -> None:
    found = claims(done.out)
    assert (done.out / "claims.md").read_text() == found.markdown() + "\n"
    rows = json.loads((done.out / "claims.json").read_text())
    assert [row["verdict"] for row in rows] == [row[3] for row in found.rows]
    assert {row["verdict"] for row in rows[:4]} <= {"holds", "does not hold"}
    verdicts = json.loads((done.out / "verdicts.json").read_text())
    assert [row["claim"] for row in verdicts] == [row["claim"] for row in rows]
    assert all(len(row) == 2 for row in verdicts), "one dataset, beside the claim"
    for row, cell in zip(rows, verdicts, strict=True):
        if row["verdict"] in ("holds", "does not hold"):
            assert cell[done.facts(done.data[0])["name"]].startswith(("holds", "does not hold", "all arms: "))


def test_the_page_of_a_reproduction_is_self_contained(done: RunCache) -> None:
    results = read_results(done.out)
    page = self_contained(html(results))
    assert {*TARGETS, "claims"} <= page.ids
    words = " ".join(page.words)
    assert f"{section(done, 'curves').data['datasets'][0]['means']['igw']:.3f}" in words
    assert "treetop reproduce all --data" in words
    assert "--quick" in words
    assert len(results.checksums) == len(TARGETS) + len(list(done.out.rglob("runs.jsonl")))


def test_the_command_line(small: Path, tmp_path: Path) -> None:
    words = ["--quick", "--data", str(small), "--horizon", "300", "--out", str(tmp_path)]
    found = json.loads(call("reproduce", "curves", "wdl", *words, "--json").stdout)
    assert set(found) == {"curves", "wdl"}
    text = call("reproduce", "curves", *words).output
    assert "X-Boltzmann-topk" in text
    assert "treetop report" in text
    markdown = call("reproduce", "claims", "--out", str(tmp_path)).output
    assert markdown.count("not measured") == 4
    assert len(json.loads(call("reproduce", "claims", "--out", str(tmp_path), "--json").stdout)) == 7
    assert (tmp_path / "claims.md").is_file()


def test_the_script_writes_the_tables_of_the_documentation(done: RunCache, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "fill_experiments.py"
    for _ in range(2):  # once more changes nothing
        subprocess.run([sys.executable, str(script), str(tmp_path), str(done.out)], check=True)
        assert {path.stem for path in tmp_path.iterdir()} == {*TARGETS, "claims"}
        for name in TARGETS:
            written = (tmp_path / f"{name}.md").read_text()
            assert all(table.markdown() in written for table in section(done, name).tables)
        assert claims(done.out).markdown() in (tmp_path / "claims.md").read_text()


def test_the_documentation_says_what_the_committed_results_say(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    results = tmp_path / "results"
    shutil.copytree(root / "docs" / "results", results)
    subprocess.run([sys.executable, str(root / "scripts" / "fill_experiments.py"), str(results)], check=True)
    for name in (*TARGETS, "claims"):
        kept = root / "docs" / "results" / f"{name}.md"
        assert (results / kept.name).read_text() == kept.read_text(), f"{name}.md is not what its JSON says"
    page, judged = (root / "docs" / "experiments.md").read_text(), (results / "claims.md").read_text()
    assert all(f"(results/{name}.md)" in page for name in (*TARGETS, "claims"))
    sets = ("eurlex57k", "debian", "like amazoncat-13k", "like wiki10-31k", "like amazon-670k")
    for claim in CLAIMS:
        (line,) = (line for line in judged.splitlines() if line.startswith(f"| {claim.text} | {claim.paper} |"))
        judgement = line.split(" | ")[-1]
        assert re.search(rf"^\| {re.escape(claim.text)} \|.*\| {re.escape(judgement)}$", page, re.M)
        if "greedy, on all" in line or "realizable" in line:
            assert all(name in line for name in sets), "a set on which the claim was not measured"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "magic"], "cannot reproduce 'magic'; it must be one of tables, realizable"),
        (["reproduce", "claims", "--out", "/no/such"], "/no/such has no reproduce.json"),
        (["reproduce", "tables", "--data", "/no/such"], "'/no/such' is neither"),
    ],
)
def test_mistakes_are_one_line(words: list[str], message: str) -> None:
    result = shell(*words)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())


def test_sizes_are_those_of_table_1_as_far_as_there_are_rows(small: Path) -> None:
    debian, made_up = load("debian"), load(small)
    assert Sizes.of("debian", debian, False, None) == Sizes(*DEBIAN, 4096)
    assert Sizes.of("debian", debian, True, None) == Sizes(QUICK_INIT, QUICK_ROUNDS, 10, 1024)
    assert Sizes.of("debian", debian, False, 77).horizon == 77
    assert Sizes.of(str(small), made_up, False, None).horizon == len(made_up.X)
    assert Sizes.of("synthetic:like=eurlex-4k", made_up, False, None).horizon == 154_490, "drawn with replacement"
    assert Sizes.of("synthetic:like=amazon-3m", made_up, False, None).horizon == len(made_up.X)


def test_presets_are_found_by_name_shape_and_arms() -> None:
    assert [
        getattr(preset_of(*at), "name", None)
        for at in (("eurlex-4k", 1), ("synthetic:like=amazon-3m,rows=5", 1), ("a/folder", 4271), ("a/folder", 7))
    ] == ["eurlex-4k", "amazon-3m", "eurlex-4k", None]


def test_synthetic_sets_are_never_named_without_the_word() -> None:
    assert dataset_title({"name": "synthetic:arms=5,rows=3", "synthetic": True, "arms": 5}) == "synthetic, 5 arms"
    assert dataset_title({"name": "shaped", "synthetic": True}) == "shaped (synthetic)"
    assert dataset_title({"name": "debian"}) == "debian"


def test_synthetic_results_say_so_everywhere(tmp_path: Path) -> None:
    spec = "synthetic:arms=300,features=200,rows=600,init=300,nonzeros=20"
    reproduce(RunCache((spec,), (0,), tmp_path, quick=True, horizon=300), ["curves", "wdl", "tables"])
    for name in ("curves", "wdl", "tables", "claims"):
        assert "synthetic, 300 arms" in (tmp_path / f"{name}.md").read_text()
    assert section(RunCache((spec,), (0,), tmp_path), "curves").panels[0].title == "synthetic, 300 arms"
    words = Page(html(read_results(tmp_path), None)).words
    assert "synthetic" in words, "the badge"


def test_a_run_cache_needs_data_and_seeds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 datasets and 1 seeds"):
        RunCache((), (0,), tmp_path)
