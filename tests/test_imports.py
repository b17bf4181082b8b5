"""Imports point one way: a module imports only what comes before it in the reading order."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "treetop"

ORDER = [
    "files",
    "checks",
    "rows",
    "types",
    "tree",
    "routing",
    "modelfile",
    "model",
    "search",
    "explore",
    "policy",
    "log",
    "learn",
    "settle",
    "hope",
    "pooled",
    "labels",
    "flat",
    "catalogue",
    "grow",
    "config",
    "live",
    "home",
    "next_model",
    "answers",
    "making",
    "bandit",
    "client",
    "debian",
    "read",
    "presets",
    "synthetic",
    "datasets",
    "feedback",
    "scenario",
    "simulate",
    "store",
    "experiment",
    "ceiling",
    "truth",
    "realizable",
    "tune",
    "evaluate",
    "report",
    "figures",
    "page",
    "claims",
    "story",
    "lab",
    "inference",
    "regret",
    "reproduce",
    "demo",
    "service",
    "bench",
    "bars",
    "commands",
    "commands_log",
    "cli",
]
FREE = ["_core"]  # may be imported by anything
LAST = ["__init__", "__main__"]
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ["typer", "rich", "msgspec", "matplotlib", "sklearn", "psycopg", "pyarrow"]


def part(file: Path) -> str:
    """The top-level module or folder that a file belongs to: `tree` for tree.py, `service` for service/app.py."""
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """(line, top-level part) of every import of treetop in a file, those under TYPE_CHECKING or in functions too."""
    package = ["treetop", *file.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "treetop":
                yield node.lineno, name[1] if len(name) > 1 else "__init__"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_one_way(file: Path) -> None:
    here = part(file)
    if here in LAST:
        return
    assert here in ORDER, f"{here} has no place in the reading order: add it to ORDER in {Path(__file__).name}"
    earlier = ORDER[: ORDER.index(here)] + FREE
    for line, name in imported(file):
        where = f"{file.name}:{line}"
        assert name in ORDER + FREE, f"{where}: import from the module that defines it, not {name!r} from treetop"
        assert name == here or name in earlier, f"{where}: {here} imports {name}, which comes later in ORDER"


def test_import_treetop_is_light() -> None:
    code = f"import sys, treetop; print(*[name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not loaded, f"import treetop loads {', '.join(loaded)}"
