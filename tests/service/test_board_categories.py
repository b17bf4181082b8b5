"""The dashboard names categories by their whole paths: rewards level by level, arms, slots and groups."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.pages import Page
from helpers.running import running, settings

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.service import schema
from treetop.service.dashboard import views
from treetop.service.dashboard.board import Boards
from treetop.service.dashboard.decisions import explanation
from treetop.service.dashboard.messages import ServiceState
from treetop.service.dashboard.query import Query

SERVICE = ServiceState("shop", "000000", 0, "", False, 0, 100, False, 0, "", False)
PATHS = [f"dept {i % 3} > cat {i % 6} > <shelf {i % 12}" if i % 50 else "dept 0" for i in range(240)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    arms = Catalogue([f"a{i}" for i in range(240)], categories=PATHS)
    with Bandit.create(tmp_path / "shop", arms, features=["mobile"], config=settings()) as shop:
        for i in range(200):
            shown = shop.decide({"mobile": i % 2}, f"v{i}")
            shop.reward(f"v{i}", {arm: float(int(str(arm)[1:]) % 12 == 7) for arm in shown.arms})
    return tmp_path / "shop"


@pytest.fixture
def boards(folder: Path) -> Iterator[Boards]:
    made = Boards(folder, None)
    while not made.count():
        pass
    yield made
    made.close()


def test_rewards_are_added_up_level_by_level(boards: Boards, folder: Path) -> None:
    with Bandit.open(folder) as shop:
        shown = [str(arm) for i in range(200) for arm in shop.served(shop.event(f"v{i}").event).arms]
    paths = [PATHS[int(arm[1:])] for arm in shown]
    for within in ("", "dept 1", "dept 1 > cat 4", "dept 0"):
        board = boards.board(SERVICE, Query.parse({"category": within}))
        below = [path for path in paths if path == within or path.startswith(f"{within} > ")] if within else paths
        assert sum(row.impressions for row in board.categories) == len(below)
        for row in board.categories:
            inside = [path for path in below if path == row.name or path.startswith(f"{row.name} > ")]
            if row.name.endswith(", no deeper"):
                inside = [path for path in below if path == within]
            assert row.impressions == len(inside)
            assert row.deeper == (any(path.startswith(f"{row.name} > ") for path in PATHS))
    assert {row.name for row in boards.board(SERVICE, Query(category="dept 1")).categories} <= {
        "dept 1 > cat 1",
        "dept 1 > cat 4",
    }


def test_paths_stand_in_the_tables(boards: Boards) -> None:
    board = boards.board(SERVICE, Query(category="dept 1 > cat 4"))
    html = views.PARTS["categories"](board)
    Page(html)
    assert ">all</a> &gt; " in html
    assert "dept 1 &gt; cat 4 &gt; &lt;shelf" in html
    assert "<shelf" not in html
    assert board.logged is not None
    arms, row = views.PARTS["arms"](board), board.logged.arms.rows[0]
    path = PATHS[int(row.name[1:])].replace(">", "&gt;").replace("<", "&lt;")
    assert f"<span class='path'>{path}</span>" in arms
    assert path in views.PARTS["updates"](board).split("Recent decisions")[1]
    empty = boards.board(SERVICE, Query(category="dept 9"))
    assert ">all</a>" in views.PARTS["categories"](empty)  # a way back


def test_groups_are_named_by_the_category_that_all_of_their_arms_are_in() -> None:
    single = schema.Effective("mint", None, 1, 0.5, 0.1, 0.7, "tea > green")
    groups = [
        schema.Effective(None, 7, 12, 0.5, 0.1, 0.2, "tea > <red"),
        schema.Effective(None, 9, 3, 0.5, 0.1, 0.1, ""),
    ]
    html = explanation(schema.ExplainAnswer(0, "000000", 1, 2, "In words.", [single, *groups]))
    Page(html)
    assert "mint<span class='path'>tea &gt; green</span>" in html
    assert "any of 12 arms of tea &gt; &lt;red<" in html
    assert "any of 3 arms below node 9<" in html


CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian: apt-get install chromium)")
def test_a_click_looks_one_level_deeper(folder: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with running(folder) as service, sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(service.url)
        for link, below in (("dept 1", "dept 1 > cat "), ("dept 1 > cat ", " > <shelf ")):
            page.locator("#categories tbody a", has_text=link).first.click()
            page.locator("#categories tbody td", has_text=below).first.wait_for()
        assert "category=dept" in page.url
        page.locator("#recent details summary").first.click()
        page.locator("#recent .why .path", has_text="dept 0").first.wait_for()
        page.locator("#categories .trail a", has_text="all").click()
        page.locator("#categories .trail").wait_for(state="detached")
        assert "category" not in page.url
        browser.close()
