"""The dashboard in a real browser: its numbers are the log's, charts are drawn, buttons work, it fits a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from helpers.browser import Tab, X, Y, play, refit
from helpers.logs import joined
from helpers.running import Running, named, running, settings, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import PolicyConfig
from treetop.log.records import Mark

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (pip install 'treetop-bandits[dev]')"
)
pytestmark = pytest.mark.usefixtures("browser")  # before anything is made to be looked at
DRAWN = """name => {
  const canvas = document.querySelector(`#chart-${name} canvas`);
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) seen.add(pixels.slice(i, i + 3).join());
  return [...seen];
}"""  # the colours on a chart
LABELS = """
  window.labels = [];
  const fill = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.labels.push(text);
    fill.call(this, text, ...rest);
  };
"""  # keeps every text that charts write


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with two refits behind it, and an arm whose name would be markup if it were not escaped."""
    folder = tmp_path_factory.mktemp("board") / "shop"
    policy = PolicyConfig(k=4, explore=2, beam=5, strategy="igw")  # explores more than the default
    with running(small_bandit(folder, X, Y, config=settings(policy=policy))) as service:
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
        told = {"event_id": "odd", "rewards": {"<script>alert(1)</script>": 0.5}}  # else k = 1 has no line
        assert service.post("/v1/reward", told).status == 200
        yield service


def test_the_numbers_are_the_logs(busy: Running, tab: Tab) -> None:
    tab.page.goto(f"{busy.url}/?range=all")
    with Bandit.open(busy.folder) as bandit:
        counts, n_arms, ids = bandit.log.counts(), len(bandit.snapshot.arms), bandit.snapshot.arms.ids
        chunks = list(bandit.log.samples(Mark("", counts.position, 0.0)))
        recent = bandit.log.recent(6)
    all_ = joined(chunks)
    real, known = all_["arms"] >= 0, ~np.isnan(all_["rewards"])
    explored = all_["explored"] & (all_["propensities"] <= 0.5) & real
    assert tab.page.locator("#behind").count() == 0
    assert tab.number("#visits") == counts.decisions == 231
    assert tab.number("#rewards") == counts.rewards == known.sum()
    assert tab.number("#pending") == counts.pending
    assert tab.number("#reward-per-visit") == pytest.approx(np.nansum(all_["rewards"]) / 231, abs=0.0006)
    assert explored.sum() > 20
    assert tab.number("#unlikely-share") == pytest.approx(100 * explored.sum() / real.sum(), abs=0.06)
    shown = np.bincount(all_["arms"][real], minlength=n_arms)
    assert tab.number("#arms-shown") == (shown > 0).sum()
    apart = np.abs(shown[:, None] - shown[None, :]).mean() / (2 * shown.mean())  # Gini by its definition
    assert tab.number("#gini") == pytest.approx(apart, abs=0.0006)
    for row in tab.page.locator("#arms tbody tr").all():
        mine = all_["arms"] == ids.index(row.get_attribute("data-arm"))
        got = [float(cell.replace(",", "")) for cell in row.locator("td").all_inner_texts()]
        reward = np.nansum(all_["rewards"][mine])
        wanted = [mine.sum(), (mine & explored).sum(), reward, reward / mine.sum()]
        assert got == pytest.approx(wanted, abs=0.006)
    events = [item.get_attribute("data-event") for item in tab.page.locator("#recent li[data-event]").all()]
    assert events == [stored.event.event_id for stored in recent]
    for epoch in np.unique(all_["epochs"]).tolist():
        served = all_["epochs"] == epoch
        row = f"tr[data-model='{epoch:06d}']"
        assert tab.number(f"{row} td[data-head=Visits]") == served.sum()
        per_visit = np.nansum(all_["rewards"][served]) / served.sum()
        assert tab.number(f"{row} td[data-head='Reward per visit']") == pytest.approx(per_visit, abs=0.0006)
    assert tab.number("tr[data-route='/v1/decide'] td") >= 231
    assert tab.complaints == []


def test_arms_are_sorted_searched_and_paged_in_place(busy: Running, tab: Tab) -> None:
    tab.page.goto(f"{busy.url}/?range=all")
    names = tab.page.locator("#arms tbody tr")

    def column(number: int) -> list[float]:
        return [float(text.replace(",", "")) for text in names.locator(f"td:nth-of-type({number})").all_inner_texts()]

    assert column(1) == sorted(column(1), reverse=True)
    for name, number in (("unlikely", 2), ("reward", 3), ("impressions", 1)):
        tab.page.locator(f"#sort-{name}").click()
        tab.page.wait_for_url(f"**sort={name}**" if name != "impressions" else "**/?range=all")
        sync_api.expect(tab.page.locator(f"#arms th[aria-sort=descending] #sort-{name}")).to_be_visible()
        assert column(number) == sorted(column(number), reverse=True)
    tab.page.locator("#sort-arm").focus()
    tab.page.keyboard.press("Enter")
    sync_api.expect(tab.page.locator("#arms th[aria-sort=ascending] #sort-arm")).to_be_focused()
    first = [row.get_attribute("data-arm") for row in names.all()]
    assert first == sorted(first)
    tab.page.locator("#page-after").click()
    tab.becomes("#arms .pages span", "page 2 of 5, 61 arms")
    assert names.first.get_attribute("data-arm") > first[-1]
    tab.page.get_by_label("Search by id").fill("A5")
    sync_api.expect(names).to_have_count(11)
    assert all("a5" in str(row.get_attribute("data-arm")) for row in names.all())
    with tab.page.expect_response("**/dashboard/updates?**search=A5**"):  # updates ask for what the page shows
        pass
    assert names.count() == 11
    assert tab.page.get_by_label("Search by id").input_value() == "A5"
    tab.page.reload()  # the address has it all
    assert names.count() == 11
    assert tab.page.get_by_label("Search by id").input_value() == "A5"
    tab.page.get_by_label("Search by id").fill("nothing like it")
    sync_api.expect(names).to_have_count(1)
    assert tab.text("#arms tbody") == "No arm has this in its id."
    assert tab.complaints == []


def test_why_an_arm_was_shown(busy: Running, tab: Tab) -> None:
    tab.page.goto(f"{busy.url}/?search=script")
    tab.page.get_by_role("link", name="Why was <script>alert(1)</script> shown?").click()
    sync_api.expect(tab.page.get_by_role("heading", name="Why was <script>alert(1)</script> shown?")).to_be_focused()
    assert "odd" in [item.get_attribute("data-event") for item in tab.page.locator("#arm-why li").all()]
    assert re.search(r"Place 1 of 1: (taken for its score of|drawn by)", tab.text("#arm-why"))
    tab.page.locator("#arm-why summary").first.click()
    tab.page.locator("#arm-why .why table").first.wait_for()
    assert "effective arms" in tab.text("#arm-why .why:has(table)")
    assert tab.complaints == []


def test_a_range_applies_to_the_whole_page_and_is_in_its_address(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    assert tab.text("nav.range a[aria-current]") == "Last day"
    for name, label in (("hour", "Last hour"), ("week", "Last week"), ("all", "All")):
        tab.page.get_by_role("link", name=label, exact=True).click()
        tab.page.wait_for_url(f"**/?range={name}")
        assert tab.text("nav.range a[aria-current]") == label
        assert tab.number("#visits") >= 231
    year = datetime.now().year - 1
    tab.page.get_by_label("from").fill(f"{year}-01-01T00:00")
    tab.page.get_by_label("to", exact=True).fill(f"{year}-02-01T12:30")
    tab.page.get_by_role("button", name="Show").click()
    tab.page.wait_for_url("**range=custom**")
    assert tab.number("#visits") == 0
    assert tab.text("#reward-per-visit") == "–"
    assert tab.number("#arms-shown") == 0
    assert tab.page.locator(".chart.empty").count() >= 6
    assert "None in this range" in tab.text("#recent")
    assert "nothing in this range" in tab.text(".history")
    assert tab.page.get_by_label("from").input_value() == f"{year}-01-01T00:00"  # in the reader's time zone
    with tab.page.expect_response("**/dashboard/updates?range=custom**"):
        pass
    tab.page.locator("#sort-reward").click()
    tab.page.wait_for_url("**range=custom**sort=reward**")
    tab.page.go_back()
    sync_api.expect(tab.page.locator("#arms th[aria-sort] #sort-impressions")).to_be_visible()
    assert tab.complaints == []


def test_the_page_moves_and_stays_where_it_is_read(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    before = tab.number("#visits")
    tab.page.locator("#recent summary").nth(1).click()
    tab.page.locator("#recent .why table").first.wait_for()
    assert "effective arms" in tab.text("#recent .why:has(table)")
    reading = tab.text("#recent")
    with tab.page.expect_response("**/dashboard/updates"):
        assert busy.post("/v1/decide", {"features": named(X, 1)}).status == 200
    tab.becomes("#visits", str(int(before) + 1))
    assert tab.text("#recent") == reading
    tab.page.locator("#recent summary").nth(1).click()
    tab.page.locator("#recent .why table").wait_for(state="detached")  # closed: it goes on
    assert tab.complaints == []


def test_the_charts_are_drawn(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    greedy, explored, third, bad = "0,114,178", "198,83,0", "123,94,167", "179,38,30"
    for name, wanted in (
        ("reward", {greedy}),
        ("variants", {greedy, explored}),
        ("unlikely", {explored}),
        ("slots", {greedy}),
        ("propensity", {greedy, explored}),
        ("traffic", {greedy, third}),
        ("latency", {greedy, third, explored}),
        ("errors", {bad}),
    ):
        tab.page.locator(f"#chart-{name} canvas").wait_for(timeout=40_000)
        colours = set(tab.page.evaluate(DRAWN, name))
        assert wanted <= colours, (name, sorted(colours)[:20])
    assert re.fullmatch(r"[\d.]+ ms", tab.text("#latency"))
    assert tab.complaints == []


def test_errors_and_odd_features_are_counted(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    refused = tab.number("tr[data-route='/v1/reward'] td:nth-of-type(2)")
    assert busy.post("/v1/reward", {"event_id": "nobody", "rewards": {"a1": 1}}).status == 404
    assert busy.post("/v1/decide", {"features": {"f1": 1.0, "never heard of": 1.0}}).status == 200
    tab.becomes("tr[data-route='/v1/reward'] td:nth-of-type(2)", f"{refused + 1:.0f}")
    assert tab.page.locator("tr[data-route='/v1/reward']").get_attribute("title").endswith("x 404")
    tab.becomes("#unknown-features", "1")
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
    assert re.search(r"Taken for their scores: a\d+ \(.*Drawn by inverse gap weighting: .*No reward yet", words)
    assert tab.complaints == []


@pytest.mark.parametrize("tab", [{"viewport": {"width": 390, "height": 844}}], indirect=True)
def test_a_phone_needs_no_sideways_scroll(busy: Running, tab: Tab) -> None:
    tab.page.goto(busy.url)
    tab.drawn()
    tab.page.locator("#recent summary").first.click()
    tab.page.locator("#recent .why table").first.wait_for()
    tab.page.locator("#arms .ask").first.click()
    tab.page.locator("#arm-why summary").first.click()
    tab.page.locator("#arm-why .why table").first.wait_for()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    outside = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 391).length"
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


def test_an_empty_log_and_a_service_that_is_gone(tmp_path: Path, tab: Tab) -> None:
    with running(small_bandit(tmp_path / "shop", X, Y)) as service:
        tab.page.goto(service.url)
        assert "None in this range" in tab.text("#recent")
        assert tab.page.locator(".chart.empty").count() >= 6
        assert tab.complaints == []
        service.end()
        tab.becomes("#pulse", "no connection")


@pytest.mark.parametrize("tab", [{"locale": "en-US"}], indirect=True)
def test_one_visit_is_drawn_in_its_minute_by_a_clock_of_24_hours(tmp_path: Path, tab: Tab) -> None:
    tab.page.add_init_script(LABELS)
    with running(small_bandit(tmp_path / "shop", X, Y)) as service:
        play(service, 0, 1)
        tab.page.goto(service.url)
        tab.page.locator("#chart-reward canvas").wait_for()
        times = [text for text in tab.page.evaluate("window.labels") if re.fullmatch(r"\d\d:\d\d:\d\d", text)]
        assert len(times) > 4
        written = " ".join(tab.page.evaluate("window.labels"))
        assert not re.search(r"\b(Jan|Feb|May|Aug|Nov) \d", written)  # as charts of years have
        assert re.match(r"\d\d:\d\d:\d\d$", tab.text("#recent time"))
        assert not re.search(r"\b[AP]M\b", tab.text("main"))
        assert tab.text("#uplift-greedy") == tab.text("#spent-share") == "–"
        outside = "h => [...document.querySelectorAll('main h2')].filter(h => h.closest('.card')).length"
        assert tab.page.evaluate(outside) == 0  # above its cards, in every section
        assert tab.complaints == []


def test_years_are_named_where_a_chart_is_of_years(busy: Running, tab: Tab) -> None:
    tab.page.add_init_script(LABELS)
    tab.page.goto(busy.url)
    tab.drawn()
    tab.page.evaluate(
        """() => {
          const data = document.getElementById("data"), charts = JSON.parse(data.dataset.charts);
          charts.reward = [[0, 1e8], [1, 1], [0, 0]];
          data.dataset.charts = JSON.stringify(charts);
          window.labels = [];
        }"""
    )
    tab.page.emulate_media(color_scheme="dark")  # draws anew
    tab.page.evaluate(  # `wait_for_function` would need `eval` in the page, which its policy forbids
        """() => new Promise((found, failed) => {
          setTimeout(() => failed(new Error(`no year among ${window.labels}`)), 10000);
          const look = () =>
            window.labels.some((text) => /^[A-Z][a-z]+ 197[0-3]$/.test(text)) ? found() : setTimeout(look, 50);
          look();
        })"""
    )


def test_a_point_alone_is_drawn_where_points_are_too_close_to_be(busy: Running, tab: Tab) -> None:
    """Between two gaps no line shows it."""
    tab.page.goto(busy.url)
    tab.drawn()
    tab.page.evaluate(
        """() => {
          const data = document.getElementById("data"), charts = JSON.parse(data.dataset.charts);
          const times = [...Array(2000).keys()];
          charts.slots = [times, times.map((t) => (t == 1000 ? 1 : null)), times.map(() => null)];
          data.dataset.charts = JSON.stringify(charts);
        }"""
    )
    tab.page.emulate_media(color_scheme="dark")  # draws anew
    tab.page.evaluate(
        """() => new Promise((found, failed) => {
          setTimeout(() => failed(new Error("nothing is drawn in the colour of the line")), 10000);
          const look = () => {
            const canvas = document.querySelector("#chart-slots canvas");
            const name = getComputedStyle(document.documentElement).getPropertyValue("--greedy").trim();
            const wanted = name.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
            const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            for (let i = 0; i < all.length; i += 4)
              if (all[i + 3] === 255 && wanted.every((part, j) => Math.abs(all[i + j] - part) < 3)) return found();
            setTimeout(look, 50);
          };
          look();
        })"""
    )
