"""The documentation as a site: it builds without a warning, fetches nothing, leaves no public name or command out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.running import PLAIN
from helpers.scripts import script
from helpers.snippets import ROOT

import treetop
from treetop.cli.main import COMMANDS

FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site that `make docs` has built of what lies here, or one that is built as it does."""
    made = ROOT / "site" / ".built"
    sources = [ROOT / "mkdocs.yml", *(path for name in ("docs", "src/treetop") for path in (ROOT / name).rglob("*.*"))]
    if made.exists() and made.stat().st_mtime > max(path.stat().st_mtime for path in sources if path.suffix != ".pyc"):
        return made.parent
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (the extra docs)")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


class Fetches(HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if where := dict(attrs).get(FETCHED.get(tag, "")):
            self.found.append(where)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        for where in Fetches(page.read_text()).found:
            assert "//" not in where, (page.name, where)
            if page.name != "404.html":  # which stands under any address
                assert (page.parent / where.partition("#")[0]).exists(), (page.name, where)
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text()), sheet.name


def test_every_public_name_stands_in_one_place() -> None:
    text = "".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
    assert sorted(re.findall(r"^::: treetop\.(\w+)$", text, re.MULTILINE)) == sorted(treetop.__all__)


def test_every_public_name_and_command_is_on_the_site(site: Path) -> None:
    reference = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    assert not [name for name in treetop.__all__ if f'id="treetop.{name}"' not in reference]
    commands = (site / "reference" / "commands.html").read_text()
    assert not [name for name in COMMANDS if f'id="treetop-{name}"' not in commands]
    for words in ("--first-epoch", "<code>TREETOP_<wbr>FOLDER</code>", "<code>TREETOP_<wbr>PORT</code>"):
        assert words in commands
    assert "Example:" not in commands
    assert "[OPTIONS] FOLDER [DATA]" in commands


def test_examples_of_docstrings_are_code(site: Path) -> None:
    page = (site / "reference" / "bandit.html").read_text()
    assert "<blockquote>" not in page
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page


def test_the_picture_of_a_search_is_what_treetop_does() -> None:
    drawn = script("draw_search", ROOT / "scripts").draw()
    assert drawn == (ROOT / "docs" / "assets" / "search.svg").read_text(), "run scripts/draw_search.py"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium (Debian: apt-get install chromium)")
def test_it_can_be_read_and_searched_as_a_file_without_a_network(site: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"], env=PLAIN)
        page = browser.new_context(viewport={"width": 390, "height": 844}, offline=True).new_page()
        fetched: list[str] = []
        page.on("request", lambda request: fetched.append(request.url))
        for name in ("index", "concepts", "operations", "paper", "reference/commands"):
            page.goto(f"file://{site}/{name}.html")
            too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert too_wide == 0, name
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_placeholder("Search").fill("propensity")
        found = page.locator(".md-search-result__item").first
        found.wait_for(timeout=60_000)
        assert "ropensit" in found.inner_text()
        assert not [url for url in fetched if not url.startswith(("file:", "data:", "blob:"))]
        browser.close()
