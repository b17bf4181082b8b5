"""The dashboard in a real browser: its numbers are the log's, charts are drawn, buttons work, it fits a phone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import PLAIN, Running, named, running, settings, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.log.series import LogSeries

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (pip install 'treetop-bandits[dev]')"
)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian: apt-get install chromium)")
X, Y = topics()
REWARDS = Y.toarray()
TOKENS = {"read": "r" * 20, "read,admin": "a" * 20, "write": "w" * 20}
DRAWN = """name => {
  const canvas = document.querySelector(`#chart-${name} canvas`);
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) seen.add(pixels.slice(i, i + 3).join());
  return [...seen];
}"""  # the colours on a chart


def play(service: Running, begin: int, end: int) -> None:
    """Decisions, three of four with all their rewards."""
    with service.client() as client:
        for i in range(begin, end):
            shown = client.decide(named(X, i % 600), event_id=f"visit {i}/<b>&'\"")
            if i % 4:
                client.reward(shown.event_id, {arm: label(i, str(arm)) for arm in shown.arms})


def label(i: int, arm: str) -> float:
    return float(REWARDS[i % 600, int(arm[1:])]) if arm.startswith("a") else 0.0


def refit(service: Running, model: str) -> None:
    service.wait_for(lambda: service.post("/v1/refit", {}).status == 202)
    service.wait_for(lambda: service.model_is(model))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playing:
        launched = playing.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], env=PLAIN)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with two refits behind it, and an arm whose name would be markup if it were not escaped."""
    folder = tmp_path_factory.mktemp("board") / "shop"
    with running(small_bandit(folder, X, Y)) as service:
        play(service, 0, 120)
        refit(service, "000001")
        play(service, 120, 200)
        refit(service, "000002")
        arms = {"add": ["<script>alert(1)</script>"], "remove": ["a0"]}
        assert service.post("/v1/arms", arms).status == 200
        service.wait_for(lambda: service.model_is("000003"))
        play(service, 200, 230)
        eligible = {"features": named(X, 0), "event_id": "odd", "eligible": ["<script>alert(1)</script>"], "k": 1}
        assert service.post("/v1/decide", eligible).status == 200
        yield service


class Tab:
    """A page of the browser that keeps every complaint."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def becomes(self, selector: str, text: str) -> None:
        sync_api.expect(self.page.locator(selector)).to_have_text(text, timeout=20_000)

    def drawn(self) -> None:
        for name in ("reward", "explored", "propensity"):
            self.page.locator(f"#chart-{name} canvas").wait_for()

    def number(self, selector: str) -> float:
        return float(self.text(selector).replace(",", "").rstrip(" %"))


@pytest.fixture
def tab(browser: Any, request: pytest.FixtureRequest) -> Iterator[Tab]:
    made = Tab(browser, **getattr(request, "param", {}))
    yield made
    made.context.close()


def test_the_numbers_are_the_logs(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    with Bandit.open(busy.folder) as bandit:
        counts, n_arms = bandit.log.counts(), len(bandit.snapshot.arms)
        totals = LogSeries(bandit.log)
        while not totals.update():
            pass
        mark = bandit.log.seal("test")
        chunks = list(bandit.log.samples(mark))
        recent = bandit.log.recent(6)
    assert tab.page.locator("#behind").count() == 0
    assert tab.number("#decisions") == counts.decisions == 231
    assert tab.number("#rewards") == counts.rewards
    assert tab.number("#pending") == counts.pending
    assert tab.number("#late") == counts.late
    slots = np.concatenate([chunk.arms[chunk.arms >= 0] for chunk in chunks])
    rewards = np.concatenate([chunk.rewards[~np.isnan(chunk.rewards)] for chunk in chunks])
    explored = sum(int((chunk.explored & (chunk.arms >= 0)).sum()) for chunk in chunks)
    assert tab.number("#mean-reward") == pytest.approx(rewards.mean(), abs=0.0006)
    assert tab.number("#explored-share") == pytest.approx(100 * explored / len(slots), abs=0.06)
    assert tab.number("#arms-shown") == len(np.unique(slots))
    shown = np.bincount(slots, minlength=n_arms)
    apart = np.abs(shown[:, None] - shown[None, :]).mean() / (2 * shown.mean())  # Gini by its definition
    assert tab.number("#gini") == pytest.approx(apart, abs=0.0006)
    events = [item.get_attribute("data-event") for item in tab.page.locator("#recent li[data-event]").all()]
    assert events == [stored.event.event_id for stored in recent]
    by_epoch = {cell.epoch: 0 for cell in totals.cells()}
    for cell in totals.cells():
        by_epoch[cell.epoch] += cell.decisions
    for epoch, decisions in by_epoch.items():
        assert tab.number(f"tr[data-model='{epoch:06d}'] td[data-head=Decisions]") == decisions
    assert tab.complaints == []


def test_the_page_moves_and_stays_where_it_is_read(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    before = tab.number("#decisions")
    tab.page.locator("#recent summary").nth(1).click()
    tab.page.locator("#recent .why table").first.wait_for()
    assert "effective arms" in tab.text("#recent .why:has(table)")
    reading = tab.text("#recent")
    with tab.page.expect_response("**/dashboard/updates"):
        assert busy.post("/v1/decide", {"features": named(X, 1)}).status == 200
    tab.becomes("#decisions", str(int(before) + 1))
    assert tab.text("#recent") == reading
    tab.page.locator("#recent summary").nth(1).click()
    tab.page.locator("#recent .why table").wait_for(state="detached")  # closed: it goes on
    assert tab.complaints == []


def test_the_charts_are_drawn(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    tab.drawn()
    greedy, explored = "0,114,178", "198,83,0"
    for name, wanted in (("reward", {greedy, explored}), ("explored", {explored}), ("propensity", {greedy, explored})):
        colours = set(tab.page.evaluate(DRAWN, name))
        assert wanted <= colours, (name, sorted(colours)[:20])
    tab.page.locator("#chart-latency canvas").wait_for(timeout=40_000)
    assert greedy in tab.page.evaluate(DRAWN, "latency")
    assert re.fullmatch(r"[\d.]+ ms", tab.text("#latency"))
    assert tab.complaints == []


def test_names_are_text_and_decisions_have_words(busy: Running, tab: Tab) -> None:
    assert (
        busy.post(
            "/v1/decide", {"features": named(X, 0), "eligible": ["<script>alert(1)</script>"], "k": 1, "explore": 1}
        ).status
        == 200
    )
    play(busy, 300, 301)
    tab.page.goto(busy.url)
    assert "<script>alert(1)</script> (100 %" in tab.text("#recent")
    words = tab.text("#recent .words")
    assert re.search(r"Taken for their scores: a\d+ \(.*Drawn by cost-aware exploration: .*No reward yet", words)
    assert tab.complaints == []


@pytest.mark.parametrize("tab", [{"viewport": {"width": 360, "height": 740}}], indirect=True)
def test_a_phone_needs_no_sideways_scroll(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    tab.drawn()
    tab.page.locator("#recent summary").first.click()
    tab.page.locator("#recent .why table").first.wait_for()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
    outside = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 361).length"
    assert tab.page.evaluate(outside) == 0


def test_dark_and_light_follow_the_system_at_once(busy: Running, tab: Tab) -> None:
    tab.page.emulate_media(color_scheme="light")
    tab.page.goto(busy.url)
    tab.drawn()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert tab.page.evaluate(ground) == "rgb(243, 245, 247)"
    tab.page.emulate_media(color_scheme="dark")
    assert tab.page.evaluate(ground) == "rgb(17, 20, 23)"
    tab.page.wait_for_timeout(300)
    assert "86,180,233" in tab.page.evaluate(DRAWN, "reward")
    assert tab.complaints == []


def test_rollback_asks_first_and_another_site_cannot(tmp_path: Path, tab: Tab) -> None:
    with running(small_bandit(tmp_path / "shop", X, Y)) as service:
        play(service, 0, 20)
        refit(service, "000001")
        tab.page.goto(service.url)
        assert tab.text("tr[data-model='000001']").count("serves") == 1
        button = tab.page.locator("tr[data-model='000000'] button")
        tab.page.once("dialog", lambda dialog: dialog.dismiss())
        button.click()
        assert service.model_is("000001")
        tab.page.once("dialog", lambda dialog: dialog.accept())
        button.click()
        tab.page.wait_for_url("**/?done")
        assert service.model_is("000000")
        assert "Model 000000 serves now" in tab.text(".banner.good")
        assert tab.text("tr[data-model='000001'] button") == "Use again"
        assert "Rollback: model 000000 in place of 000001." in tab.text(".history")
        assert tab.complaints == []
        form = {"content-type": "application/x-www-form-urlencoded"}
        for origin in ({}, {"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            forged = service.ask("POST", "/dashboard/rollback", b"model=000001", {**form, **origin})
            assert forged.status == 403
        ours = {**form, "origin": service.url}
        assert service.ask("POST", "/dashboard/rollback", b"model=000009", ours).status == 409
        assert service.ask("POST", "/dashboard/rollback", b"model=../../etc", ours).status == 422
        assert service.ask("POST", "/dashboard/rollback", b"x=" + b"y" * 5000, ours).status == 413
        assert (
            service.ask("POST", "/dashboard/rollback", b"{}", {**ours, "content-type": "application/json"}).status
            == 415
        )
        assert service.ask("GET", "/", headers={"host": "evil.example"}).status == 403
        assert service.model_is("000000")


def test_tokens_log_in_and_what_they_allow(tmp_path: Path, browser: Any, tab: Tab) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y)
    (tmp_path / "tokens").write_text("".join(f"{scopes} {token}\n" for scopes, token in TOKENS.items()))
    (tmp_path / "tokens").chmod(0o600)
    with running(folder, "--tokens", str(tmp_path / "tokens"), token=TOKENS["write"]) as service:
        play(service, 0, 20)
        service.token = TOKENS["read,admin"]
        refit(service, "000001")
        service.token = None
        for path in ("/", "/dashboard/updates", "/dashboard/why/visit"):
            closed = service.get(path)
            assert closed.status == 401
            assert b"000001" not in closed.content

        def log_in(here: Tab, token: str) -> None:
            here.page.goto(service.url)
            here.page.get_by_label("Token").fill(token)
            here.page.get_by_role("button", name="Log in").click()

        log_in(tab, "x" * 20)
        assert tab.text(".bad") == "This token is not known here."
        log_in(tab, TOKENS["write"])
        assert tab.text(".bad") == "This token does not allow reading."
        assert tab.context.cookies() == []
        log_in(tab, TOKENS["read"])
        tab.page.locator("#tiles").wait_for()
        assert tab.page.locator("#models button").count() == 0
        cookie = tab.context.cookies()[0]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert TOKENS["read"] not in cookie["value"]
        mine = {"cookie": f"{cookie['name']}={cookie['value']}"}
        form = {**mine, "content-type": "application/x-www-form-urlencoded", "origin": service.url}
        assert service.ask("POST", "/dashboard/rollback", b"model=000000", form).status == 403
        assert service.ask("GET", "/v1/model", headers=mine).status == 401  # a session is for pages only
        until, _, signature = cookie["value"].partition(".")
        for forged in (f"{int(until) + 1}.{signature}", f"1.{signature}", f"{until}.", "x", f"{until}.ä"):
            sent = {"cookie": f"{cookie['name']}={forged}"}
            assert service.ask("GET", "/", headers=sent).status == 401
        tab.page.get_by_role("button", name="Log out").click()
        tab.page.get_by_label("Token").wait_for()
        assert tab.context.cookies() == []

        admin = Tab(browser)
        log_in(admin, TOKENS["read,admin"])
        admin.page.on("dialog", lambda dialog: dialog.accept())
        admin.page.locator("tr[data-model='000000'] button").click()
        admin.page.wait_for_url("**/?done")
        service.token = TOKENS["read"]
        assert service.model_is("000000")
        assert service.get("/").status == 200  # a header will do as well
        admin.context.close()
        lines = service.lines.read_text()
        assert not any(token in lines for token in TOKENS.values())


def test_an_empty_log_and_a_service_that_is_gone(tmp_path: Path, tab: Tab) -> None:
    with running(small_bandit(tmp_path / "shop", X, Y)) as service:
        tab.page.goto(service.url)
        assert "None yet" in tab.text("#recent")
        assert tab.page.locator(".chart.empty").count() >= 2
        assert tab.complaints == []
        service.end()
        tab.becomes("#pulse", "no connection")


def test_the_totals_outlive_a_restart_and_two_workers_agree(tmp_path: Path) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y, config=settings())
    with running(folder) as service:
        play(service, 0, 60)
        service.end()
    with Bandit.open(folder) as bandit:
        kept = LogSeries(bandit.log)
        assert kept.position == bandit.log.counts().position > 0
    with running(folder, "--workers", "2") as service:
        play(service, 60, 90)
        pages = [service.get("/").content.decode() for _ in range(12)]
        found = {
            re.search(r"id='(decisions)'>([\d,]+)<.*id='(arms-shown)'>([\d,]+)<", page).group(2, 4)  # type: ignore[union-attr]
            for page in pages
        }
        assert len(found) == 1
        assert found.pop()[0] == "90"
