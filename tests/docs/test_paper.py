"""docs/paper.md names modules, headers and tests that are there."""

import re

from helpers.snippets import ROOT

PAGE = (ROOT / "docs" / "paper.md").read_text()
WHERE = {".py": ROOT / "src" / "treetop", ".hpp": ROOT / "src" / "core"}


def test_modules_and_headers_are_there() -> None:
    named = re.findall(r"`([\w/]+)(\.py|\.hpp)`", PAGE)
    assert len(named) > 40
    assert not [name + kind for name, kind in named if not (WHERE[kind] / (name + kind)).is_file()]


def test_tests_are_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 30
    assert not [(file, test) for file, test in named if f"def {test}(" not in (ROOT / "tests" / file).read_text()]


def test_every_algorithm_theorem_assumption_figure_and_table_has_a_row() -> None:
    wanted = [*(f"Algorithm {i}" for i in (1, 2, 3)), *(f"Theorem {i}" for i in (1, 2)), "Corollary 1", "Definition 1"]
    wanted += [*(f"Assumption {i}" for i in (1, 2, 3)), "Table 1", "Table 2", "Figure 3a", "Figure 3b"]
    rows = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| "))
    assert not [name for name in wanted if name not in rows]
