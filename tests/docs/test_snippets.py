"""Every example of the README and of docs/ runs as printed, but for ports and addresses, which may be taken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.postgres import free_port, new_database
from helpers.snippets import ROOT, RUN, blocks, indented_commands, pages

PAGES = [page for page in pages() if any(block.language in RUN and not block.not_run for block in blocks(page))]
PORTS = ("8700", "8701")
TOOLS = ("curl", "sqlite3", "openssl", "pg_dump")
DATABASES = ("postgresql://shop@127.0.0.1/shop", "postgresql://shop@127.0.0.2/shop")
# Blocks that are not run, each with its reason in the page. A new one is a decision: count it here.
NOT_RUN = {
    "README.md": 1,
    "docs/bridges.md": 3,
    "docs/diversity.md": 1,
    "docs/experiments.md": 2,
    "docs/performance.md": 2,
    "docs/results/constants.md": 1,
    "docs/results/coverage.md": 1,
    "docs/scale.md": 2,
    "docs/start.md": 1,
}
# What the README's commands print, which would take too much room there.
PRINTED = {
    "README.md": (
        '{"status":"ready"}',
        '"arm":"python3"',
        '"stored":1',
        '{"status":"done","model":"000001"}',
        '"model":"000001","epoch":1,',
        "the same",
    )
}
KNOWN = {*RUN, "output", "text", "json", "yaml", "ini"}
SECONDS = 300.0  # that a page may take on a busy machine


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run_page(page: Path, folder: Path, replacements: dict[str, str]) -> tuple[int, str]:
    """Runs the examples of a page in a process of their own; returns its exit code and what it printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TREETOP_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "helpers.snippets", str(page), json.dumps(replacements)]
    out = folder.with_suffix(".out")
    with out.open("w") as file:
        environment = {
            **clean,
            "PATH": path,
            "PYTHONPATH": str(ROOT / "tests"),
            "TREETOP_PORT": replacements.get("8700", "0"),
        }
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
    try:
        process.wait(SECONDS)
    finally:
        process.terminate()
        process.wait()
    return process.returncode, out.read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    replacements = {port: str(free_port()) for port in PORTS}
    text = page.read_text()
    if missing := [tool for tool in TOOLS if tool in text and shutil.which(tool) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    for address in DATABASES:
        if address in text:
            replacements[address] = new_database(request.getfixturevalue("server"))
    code, printed = run_page(page, tmp_path, replacements)
    assert code == 0, printed
    assert not [words for words in PRINTED.get(name(page), ()) if words not in printed], printed


def test_serving_takes_few_lines_of_the_readme() -> None:
    section = (ROOT / "README.md").read_text().partition("## Serve it\n")[2].partition("\n## ")[0]
    assert 10 < len(section.strip().splitlines()) < 25


WRONG = {
    "a command that fails": "```sh\nsleep 100 &\ntrue\nfalse\necho never\n```\n",
    "other output": "```sh\necho tea\n```\n```output\ncoffee\n```\n",
    "a wrong line of a session": "```python\n>>> 1 + 1\n3\n```\n",
    "an exception": "```python\nx = 1\n```\n\n```python\nx / 0\n```\n",
    "a setting that there is not": "```toml\n[policy]\nbean = 3\n```\n",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_example_is_found(wrong: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\necho right\n```\n```output\nright\n```\n" + WRONG[wrong])
    code, printed = run_page(page, tmp_path, {})
    assert code != 0
    assert "page.md:7" in printed or "page.md:11" in printed, printed


def test_what_is_not_run_is_counted() -> None:
    found = {name(page): sum(bool(block.not_run) for block in blocks(page)) for page in pages()}
    assert {page: count for page, count in found.items() if count} == NOT_RUN


def test_every_block_says_what_it_is() -> None:
    """A block without a language, or with one that nobody runs by mistake (bash, console), would rot unseen."""
    unknown = [(name(page), b.line, b.language) for page in pages() for b in blocks(page) if b.language not in KNOWN]
    assert not unknown


def test_commands_stand_in_blocks_that_are_run() -> None:
    assert not {name(page): found for page in pages() if (found := list(indented_commands(page)))}
