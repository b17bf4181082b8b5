"""Tables, pictures and the page: everything inside, nothing outside, all numbers there."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import SHORT, call, shell
from helpers.datasets import folder
from helpers.pages import self_contained

from treetop.experiments.comparison import Series, Tally, tally, votes
from treetop.paper import results_folder
from treetop.paper.claims import claims_table, verdicts_table
from treetop.paper.published import TABLE2, legend_name
from treetop.report import pictures
from treetop.report.html import Results, html
from treetop.report.sections import Line, Panel, Section, Table, number
from treetop.report.tables import curves, grid, grid_table, last_fifth, means


def series(name: str, style: str, *totals: float) -> Series:
    """Runs of 100 rounds whose mean reward rises evenly to the totals."""
    drawn = tuple(tuple((t, total * t / 100) for t in range(10, 101, 10)) for total in totals)
    blocks = tuple(tuple(total * (1 + i / 10) for i in range(10)) for total in totals)
    return Series(name, style, 5, 100, tuple(range(len(totals))), totals, drawn, blocks)


PLAYED = [
    series("X-Greedy", "greedy", 1.0, 1.1),
    series("X-IGW-topk", "igw", 2.0, 2.3),
    series("mine", "mine", 1.5, 1.6),
]


def section() -> Section:
    pairs = [(s.name, s.style) for s in PLAYED]
    matrix = grid("Ours", pairs, tally([votes(PLAYED), votes(PLAYED, "paired")]))
    bars = Panel("times", (Line("ours", "ours", (0.03, 1.4), texts=("0.03", "1.4")),), "ms", "bars", ("10", "all"))
    return Section(
        "curves",
        "Curves (Figure 3)",
        "Words & <tags>.",
        (means("Means", PLAYED), grid_table(matrix)),
        (curves("debian", PLAYED), matrix, bars),
        {"a": 1},
        {"k": 5},
    )


def test_a_table_is_markdown_and_bars_in_cells_are_escaped() -> None:
    text = Table("T", ("a|b", "n"), (("x|y", "1"),), "note").markdown()
    assert text == "**T**\n\n| a\\|b | n |\n|:---|---:|\n| x\\|y | 1 |\n\nnote"


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="T: 1 cells for 2 columns"):
        Table("T", ("a", "b"), (("x",),))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234567, "1,234,567"), (0.1, "0.100"), (12.345, "12.3"), (-0.5, "-0.500"), (float("inf"), "-")],
)
def test_numbers_as_tables_show_them(value: float, text: str) -> None:
    assert number(value) == text


def test_means_are_ranked_with_intervals_and_ratios() -> None:
    rows = means("", PLAYED).rows
    assert [row[0] for row in rows] == ["X-IGW-topk", "mine", "X-Greedy"]
    assert rows[0][1:] == ("1", "2.150 ± 1.906", f"{2.15 * 1.8:.3f}", "2.05x", "2")


def test_the_last_fifth_is_read_off_the_curve() -> None:
    """The progressive mean m t / T collects m (2t/T), which over the last fifth is m (1 - 0.8^2) / 0.2 = 1.8 m."""
    assert last_fifth(series("a", "a", 3.0)) == pytest.approx(5.4)


def test_the_last_fifth_is_the_stored_one_where_there_is_one() -> None:
    """Curves have few points: between them the last fifth is guessed, five times as far off as the curve is."""
    assert last_fifth(replace(series("a", "a", 3.0, 3.0), late=(4.0, 5.0))) == 4.5


def test_a_draw_is_told_beside_who_collected_most_and_a_band_only_where_one_is_drawn(tmp_path: Path) -> None:
    def lead_and_text(seeds: int, **means: float) -> tuple[str, str]:
        runs = [
            {"strategy": name, "seed": seed, "mean_reward": mean, "settings": {"k": 5}, "checkpoints": [[1000, mean]]}
            for seed in range(seeds)
            for name, mean in means.items()
        ]
        result = {"dataset": {"name": "debian", "arms": 34773}, "runs": runs}
        (tmp_path / "result.json").write_text(json.dumps(result))
        found = results_folder.read_results(tmp_path)
        return found.lead, found.sections[0].text

    lead, text = lead_and_text(1, igw=0.50, greedy=0.51, treetop=0.1)
    assert lead.endswith("X-Greedy collected most, 0.510 a round. By the bake-off rule it is a draw with X-IGW-topk.")
    assert "band" not in text
    lead, text = lead_and_text(3, igw=0.9, greedy=0.5, treetop=0.1)
    assert lead.endswith("X-IGW-topk collected most, 0.900 a round.")
    assert "A band (from three seeds on) is" in text


def test_a_wide_grid_has_all_columns_of_the_page() -> None:
    for count, wide in ((2, False), (5, True)):
        names = [(f"s{i}", "igw") for i in range(count)]
        page = html(Results("t", "", sections=(Section("a", "", "", panels=(grid("G", names, {}),)),)), None)
        assert ("<figure class='wide'>" in page) == wide


def test_a_section_survives_its_file(tmp_path: Path) -> None:
    written = section()
    assert [path.name for path in written.save(tmp_path)] == ["curves.json", "curves.md"]
    assert Section.load(tmp_path / "curves.json") == written
    assert "| X-IGW-topk | 1 | 2.150 ± 1.906 |" in (tmp_path / "curves.md").read_text()
    (tmp_path / "curves.json").write_text('{"name": 3}')
    with pytest.raises(ValueError, match=r"curves\.json is not a section of results"):
        Section.load(tmp_path / "curves.json")


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_panels_are_drawn_side_by_side(tmp_path: Path, kind: str) -> None:
    path = pictures.draw(section().panels, tmp_path / "sub" / f"a.{kind}")
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_a_picture_is_the_same_bytes_again() -> None:
    panel = section().panels[0]
    assert pictures.svg(panel, "dark") == pictures.svg(panel, "dark") != pictures.svg(panel, "light")


def test_a_dark_picture_has_no_white_ground() -> None:
    """Axes are white by default, and so is the text of the dark theme."""
    for panel in section().panels:
        assert b"fill: #ffffff" not in pictures.svg(panel, "dark")


def test_pictures_of_nothing_and_of_unknown_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 panels"):
        pictures.draw([], tmp_path / "a.png")
    with pytest.raises(ValueError, match="kind 'pie'"):
        pictures.svg(Panel("", (), "", "pie"), "light")


def test_the_page_has_everything_inside() -> None:
    claims = Table("Claims", ("claim", "verdict"), (("IGW wins", "holds"), ("b=10 wins", "not measured")), left=2)
    facts: dict[str, Any] = {"name": "synthetic:arms=<x>", "arms": 34773, "rows": 9, "synthetic": True}
    text = html(
        Results(
            "A & B",
            "lead",
            (facts,),
            claims,
            (section(),),
            (),
            {"curves": "treetop"},
            {"numpy": "2.0"},
            {"f": "ab" * 32},
        )
    )
    page = self_contained(text)
    words = " ".join(page.words)
    for wanted in (
        "A & B",
        "34,773",
        "synthetic",
        "Words & <tags>.",
        "2.150 ± 1.906",
        "2.05x",
        "holds",
        "2W/0D/0L",
        "not measured",
        "numpy",
        "ab" * 32,
    ):
        assert wanted in words
    assert len([link for link in page.links if link.startswith("data:")]) == 4  # 2 panels, light and dark
    assert "prefers-color-scheme" in text
    assert "width=device-width" in text


def test_the_page_without_matplotlib_has_the_tables() -> None:
    def broken(panel: Panel, theme: str) -> bytes:
        raise ModuleNotFoundError(panel.title + theme)

    for picture in (broken, None):
        page = self_contained(html(Results("t", "l", sections=(section(),)), picture))
        assert "img" not in page.tags
        assert "2.150 ± 1.906" in page.words


def test_report_of_a_simulation(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["simulate", str(folder(tmp_path, 400)), "--strategy", "igw", "--strategy", "greedy", *SHORT]
    words += ["--seed", "0", "--seed", "7", "--json"]
    result = json.loads(call(*words, "--out", str(out)).stdout)
    made = json.loads(call("report", str(out), "--json").stdout)
    assert Path(made["page"]) == out / "report.html"
    text = Path(made["page"]).read_text()
    assert made["bytes"] == len(text.encode())
    page = self_contained(text)
    igw = [run["mean_reward"] for run in result["runs"] if run["strategy"] == "igw"]
    late = [run["late_reward"] for run in result["runs"] if run["strategy"] == "igw"]
    assert any(word == f"{sum(late) / 2:.3f}" for word in page.words), "as the table of the run has it"
    assert any(f"{sum(igw) / 2:.3f}" in word for word in page.words)
    assert results_folder.checksum(out / "result.json") in page.words
    assert "report.html" in call("report", str(out)).output


def test_report_of_a_demo_shows_decisions_in_words(tmp_path: Path) -> None:
    call("demo", "--rounds", "1000", "--out", str(tmp_path), "--json")
    page = self_contained(html(results_folder.read_results(tmp_path), None))
    example = json.loads((tmp_path / "result.json").read_text())["examples"][0]
    assert example["context"] in page.words
    assert {"explored" if slot["explored"] else "greedy" for slot in example["shown"]} <= set(page.words)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("", "", "is not a folder of results"),
        ("else.txt", "", "has neither reproduce.json"),
        ("result.json", "{", "result.json is not JSON"),
    ],
)
def test_folders_that_hold_no_run(tmp_path: Path, name: str, content: str, message: str) -> None:
    at = tmp_path / "run"
    if name:
        at.mkdir()
        (at / name).write_text(content)
    result = shell("report", str(at))
    assert result.returncode == 2
    assert message in re.sub(r"\s+", " ", result.stderr)


def test_table_2_of_the_paper_is_antisymmetric() -> None:
    for (a, b), cell in TABLE2.items():
        assert TABLE2[b, a] == Tally(cell.losses, cell.draws, cell.wins)
        assert cell.wins + cell.draws + cell.losses == 6


MEANS = {"greedy": 1.0, "igw": 1.5, "boltzmann": 1.6, "epsilon": 1.2}
TABLE2_CELLS = [[a, b, c.wins, c.draws, c.losses] for (a, b), c in TABLE2.items()]


def played(**means: float) -> dict[str, Any]:
    return {"datasets": [{"name": "d", "means": MEANS | means}]}


def flat_and_tree(name: str, tree: float, **more: Any) -> dict[str, Any]:
    return {"datasets": [{"name": name, "mean_beam": tree, "mean_all": 1.0, "all": "512"} | more]}


def realizable(slope: float = 0.5, **regret: float) -> dict[str, Any]:
    row = {"name": "d", "prefix": "", "exponent": {"igw": slope}}
    other = {"greedy": 1.0, "igw": 2.0}
    return {"variants": [{**row, "variant": "all arms", "regret": regret}, {**row, "variant": "b", "regret": other}]}


def alone(found: dict[str, Any]) -> dict[str, Any]:
    return {"variants": found["variants"][:1]}


def times(*ms: float) -> dict[str, Any]:
    return {"name": "d", "arms": 9, "rows": [{"beam": str(i), "median_ms": m} for i, m in enumerate(ms)]}


@pytest.mark.parametrize(
    ("name", "data", "row", "verdict", "words"),
    [
        ("curves", played(), 0, "holds", "1.20x"),
        ("curves", played(epsilon=0.9), 0, "does not hold", "X-ε-greedy-topk, collects 0.90x"),
        ("curves", played(), 2, "holds", "d: place 2"),
        ("curves", played(igw=1.1), 2, "does not hold", "d: place 3"),
        ("wdl", {"cells": TABLE2_CELLS}, 1, "holds", "X-IGW-topk 16 of 18"),
        ("wdl", {"cells": []}, 1, "not measured", "-"),
        ("flat-vs-tree", flat_and_tree("eurlex", 1.29), 3, "holds", "+29 %"),
        ("flat-vs-tree", flat_and_tree("eurlex", 0.9), 3, "does not hold", "-10 %"),
        ("flat-vs-tree", flat_and_tree("x", 2, synthetic=True), 3, "holds", "x (synthetic): 2.000 against"),
        ("flat-vs-tree", flat_and_tree("x", 2, mean_all=0.0), 3, "holds", "nothing found among all arms"),
        ("realizable", alone(realizable(igw=1, greedy=2)), 4, "holds", "IGW-topk 1, Greedy 2"),
        ("realizable", realizable(igw=1, greedy=2), 4, "holds for all arms, not otherwise", "Greedy 1, IGW-topk 2"),
        ("realizable", realizable(igw=3, greedy=2), 4, "does not hold", "Greedy 2, IGW-topk 3"),
        ("realizable", realizable(0.7, igw=3), 5, "holds", "all arms, d: t to the power of 0.70; b, d: t"),
        ("realizable", realizable(1.01, igw=3), 5, "does not hold", "all arms, d: t to the power of 1.01"),
        ("inference", times(1.0, 20.0), 6, "holds", "all arms take 20x"),
        ("inference", times(1.0, 0.9, 20.0), 6, "holds", "all arms take 20x"),
        ("inference", times(1.0, 0.8, 20.0), 6, "does not hold", "all arms take 20x"),
        ("inference", times(1.0, 0.9), 6, "does not hold", "all arms take 1x"),
        ("inference", times(1.0, 0.5), 6, "does not hold", "all arms take"),
    ],
)
def test_claims(name: str, data: dict[str, Any], row: int, verdict: str, words: str) -> None:
    found = claims_table([Section(name, "", "", data=data)]).rows[row]
    assert found[3] == verdict
    assert words in found[2]


def test_claims_dataset_by_dataset() -> None:
    curves = {
        "datasets": [
            {"name": "d", "means": MEANS, "rounds": 10_000},
            {"name": "e", "means": MEANS | {"igw": 0.9}, "rounds": 10_000},
        ]
    }
    sections = [Section("curves", "", "", data=curves)]
    sections.append(Section("flat-vs-tree", "", "", data=flat_and_tree("e", 0.9)))
    sections.append(Section("realizable", "", "", data=realizable(igw=1, greedy=2)))
    found = verdicts_table(sections)
    assert found.columns == ("claim", "d", "e")
    cells = [row[1:] for row in found.rows]
    assert cells[0] == ("holds: 1.20x at least", "does not hold: 0.90x at least")
    assert cells[1] == ("does not hold: 2W/0D/1L", "does not hold: 0W/0D/3L"), "most wins: by the rule, on each alone"
    assert cells[2] == ("holds: place 2", "does not hold: place 4")
    assert cells[3] == ("not measured", "does not hold: -10 %")
    assert cells[4][0] == (
        "all arms: holds: place 1, +50.0 % against the best other; "
        "b: does not hold: place 2, -100.0 % against the best other"
    )
    assert cells[6] == ("not measured", "not measured")


def test_without_results_no_claim_is_decided() -> None:
    assert {row[3] for row in claims_table([]).rows} == {"not measured"}
    assert legend_name("mine") == "mine"
