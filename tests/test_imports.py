"""The order of the packages is the path of a decision: a package imports only what comes before it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "treetop"

ORDER = [
    "_version",
    "errors",
    "arrays",
    "effort",
    "files",
    "parallel",
    "display",
    "records",
    "tree",
    "model",
    "policy",
    "log",
    "learning",
    "data",
    "simulation",
    "experiments",
    "report",
    "paper",
    "evaluation",
    "bandit",
    "bridges",
    "client",
    "demo",
    "service",
    "bench",
    "cli",
]
# What serves must not depend on what studies.
NEVER = {"bandit": {"experiments", "report", "paper", "demo"}, "service": {"experiments", "report", "paper", "demo"}}
LAST = {"__init__", "__main__"}  # the front doors
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ["typer", "rich", "msgspec", "matplotlib", "sklearn", "psycopg", "pyarrow", "pandas", "ray"]


def module(file: Path) -> str:
    """The dotted name of a file below treetop; a package's own for its `__init__.py`."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def exists(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def imported(file: Path) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of every import of treetop in a file, those in functions too; no name for a module."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "treetop":
                    yield node.lineno, alias.name.partition(".")[2], ""
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}:{node.lineno}: imports are absolute"
            if (node.module or "").split(".")[0] != "treetop":
                continue
            base = (node.module or "").partition(".")[2]
            for alias in node.names:
                whole = f"{base}.{alias.name}".lstrip(".")
                yield (node.lineno, whole, "") if whole == "_core" or exists(whole) else (node.lineno, base, alias.name)


@cache
def defined(name: str) -> set[str]:
    """What a module defines itself."""
    tree = ast.parse(PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_one_way_and_to_the_definition(file: Path) -> None:
    here = module(file).split(".")[0]
    if here in LAST:
        return
    assert here in ORDER, f"{here} has no place in the order of packages: add it to ORDER in {Path(__file__).name}"
    earlier = set(ORDER[: ORDER.index(here) + 1])
    for line, name, what in imported(file):
        where, package = f"{file.name}:{line}", name.split(".")[0]
        if name == "_core":
            continue
        assert package in ORDER, f"{where}: import from the module that defines it, not {what!r} from treetop"
        assert package in earlier, f"{where}: {here} imports {package}, which comes later in ORDER"
        assert package not in NEVER.get(here, ()), f"{where}: {here} must not know {package}"
        if what and name != "experiments":
            assert what in defined(name), f"{where}: {what} is not defined in {name} but imported there"


def test_no_two_modules_import_each_other() -> None:
    graph = {module(f): {name for _, name, _ in imported(f) if name != "_core"} - {module(f)} for f in FILES}
    del graph["__init__"]
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError with the circle


def test_the_top_shows_the_architecture() -> None:
    flat = [path.name for path in PACKAGE.glob("*.py")]
    assert len(flat) <= 12, f"{len(flat)} modules lie flat in treetop: {flat}"
    for package in (path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()):
        text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
        assert text.splitlines()[0].endswith("?"), f"{package.name}: its docstring begins with the question it answers"


def test_import_treetop_is_light() -> None:
    code = f"import sys, treetop; print(*[name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not loaded, f"import treetop loads {', '.join(loaded)}"
