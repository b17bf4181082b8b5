"""What the distribution says of itself. `make wheel` builds one and tries it."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from helpers.commands import shell

import treetop
from treetop.service.openapi import describe

ROOT = Path(__file__).parents[1]
NAME = "treetop-bandits"
TEXTS = [path for part in ("src/treetop", "tests", "docs") for path in (ROOT / part).rglob("*.*")] + [
    *ROOT.glob("*.md"),
    ROOT / "pyproject.toml",
]
OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, details: opened.append(str(details[0])) if event == "open" else None)
import treetop
print(sum(path.endswith(".npz") for path in opened))
treetop.load("debian")
print(sum(path.endswith(".npz") for path in opened))
"""


def extras(name: str) -> set[str]:
    """The requirements of an extra, those of extras that it names included."""
    found: set[str] = set()
    for line in metadata.requires(NAME) or ():
        requirement, _, marker = line.partition(";")
        if f'extra == "{name}"' in marker.replace("'", '"'):
            nested = re.match(rf"{NAME}\[(.*)\]", requirement.replace(" ", ""))
            found |= (
                {inner for part in nested[1].split(",") for inner in extras(part)} if nested else {requirement.strip()}
            )
    return found


def test_every_part_names_one_version() -> None:
    spoken = [metadata.version(NAME), shell("--version").stdout.strip(), json.loads(describe([]))["info"]["version"]]
    assert spoken == [treetop.__version__] * 3
    stated = re.findall(r'^(?:__version__|version) = "([\d.]+)"', "\n".join(read(path) for path in TEXTS), re.MULTILINE)
    assert stated == [treetop.__version__], "the version stands in src/treetop/_version.py and nowhere else"


def test_nothing_tells_to_install_another_projects_package() -> None:
    """`treetop` on the package index is not this."""
    wrong = re.compile(r"pip3? install [^`\n]*\btreetop(?!-bandits)\b|['\"]treetop\[")
    assert [str(path) for path in TEXTS if path != Path(__file__) and wrong.search(read(path))] == []


def test_extras_that_messages_name_exist_and_all_has_all_of_them() -> None:
    told = {name for path in TEXTS for name in re.findall(rf"{NAME}\[(\w+)\]", read(path))} - {"dev"}
    assert {"serve", "postgres", "parquet"} <= told
    for name in told | {"plot", "ray"}:
        assert extras(name), f"there is no extra {name}"
        assert extras(name) <= extras("all"), f"all has not all of {name}"
    assert not extras("all") & {"ruff", "mypy", "playwright"}


def test_a_demo_installs_a_part_of_what_tests_install() -> None:
    installed = dict(re.findall(r"^\$\((\w+)\): EXTRAS := (\S+)$", read(ROOT / "Makefile"), re.MULTILINE))
    assert installed["BUILT"] == "dev"
    for name in installed["LEAN"].split(","):
        assert extras(name), f"there is no extra {name}"
        assert extras(name) < extras("dev")


def test_the_wheel_is_for_the_pythons_that_it_names() -> None:
    about = metadata.metadata(NAME)
    versions = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if ":: Python :: 3." in line]
    assert about["Requires-Python"] == f">={versions[0]}"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in versions
    assert sorted(about.get_all("License-File", [])) == sorted(
        ["LICENSE", *(f"src/treetop/service/dashboard/static/{name}.LICENSE" for name in ("htmx", "uPlot"))]
    )


def test_the_bundled_data_is_read_only_when_it_is_asked_for() -> None:
    ended = subprocess.run([sys.executable, "-c", OPENED], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["0", "1"]


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="an sdist has no workflows")
def test_the_workflow_runs_commands_that_exist() -> None:
    jobs = yaml.safe_load(read(ROOT / ".github" / "workflows" / "ci.yml"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
    targets = re.findall(r"^([\w-]+):", read(ROOT / "Makefile"), re.MULTILINE)
    asked = [word for command in commands for word in re.findall(r"^make ([\w-]+)", command)]
    assert asked
    assert set(asked) <= set(targets)
    machines = {machine for job in jobs.values() for machine in job.get("strategy", {}).get("matrix", {}).get("os", [])}
    assert {"ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "macos-15-intel"} <= machines


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.suffix in (".py", ".md", ".toml", ".yml", "") else ""
