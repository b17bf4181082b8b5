"""What the dashboard shows, without a browser: percentiles, lines, tables, what it reads and who reads it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import Running, named, running, small_bandit

from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.bandit import Bandit
from treetop.errors import FolderInUse, Problem
from treetop.files import locked
from treetop.log.arm_counts import ARM
from treetop.log.base import Log
from treetop.log.series_file import load_series
from treetop.log.timeline import Stretch
from treetop.log.visit_totals import OTHERS, VisitTotals, added_up
from treetop.service.app import create
from treetop.service.dashboard import board as boards
from treetop.service.dashboard import charts, requests, views
from treetop.service.dashboard import process as processes
from treetop.service.dashboard.arms import PAGE, ArmTable, Names
from treetop.service.dashboard.board import Boards
from treetop.service.dashboard.latency import percentile, percentiles
from treetop.service.dashboard.messages import LOCK, Answer, Ask, ServiceState, receive, send
from treetop.service.dashboard.process import Process
from treetop.service.dashboard.query import Query
from treetop.service.dashboard.relay import Relay
from treetop.service.dashboard.requests import Recorder, RequestSeries
from treetop.service.metrics import SECONDS, Metrics
from treetop.service.service import Service
from treetop.service.tokens import Tokens

X, Y = topics()
SERVICE = ServiceState("shop", "000000", 0, "", False, 0, 100, False, 0, "", False)
READS = ("samples", "recent", "events_at", "kept", "keep", "event", "entries")


@pytest.fixture
def bandit(tmp_path: Path) -> Iterator[Bandit]:
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y)) as opened:
        for i in range(30):
            shown = opened.decide(named(X, i), event_id=i)
            opened.reward(i, {shown.arms[0]: 1.0})
        yield opened


@pytest.fixture
def made(bandit: Bandit) -> Iterator[Boards]:
    opened = Boards(bandit.folder.path, None)
    yield opened
    opened.close()


def cells(epoch: int, k: int, visits: int, reward: float) -> VisitTotals:
    """Half of the visits have a reward; of k slots one is explored."""
    row = np.array([visits, visits, visits * (k - 1), visits, visits / 2, visits / 2, reward, 0, visits, reward, 0, 0])
    return VisitTotals({(epoch, k): row})


def stretch(begin: int, length: int, totals: VisitTotals) -> Stretch[VisitTotals]:
    return Stretch(begin, begin + length, totals)


async def ask(app: Any, path: str) -> tuple[int, str]:
    """A GET request to an application, without a server."""
    sent: list[dict[str, Any]] = []
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": where,
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")],
        "scheme": "http",
        "http_version": "1.1",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "root_path": "",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:]).decode()


def count_reads(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls that read more of a log than its counts, or keep something in it."""
    calls: list[str] = []
    for name in READS:
        original = getattr(log, name)

        def counted(*given: Any, _name: str = name, _original: Any = original, **named: Any) -> Any:
            calls.append(_name)
            return _original(*given, **named)

        monkeypatch.setattr(log, name, counted)
    return calls


def test_nobody_counts_for_nobody_and_for_a_visitor_another_process_does(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting in the serving process made slow decisions slower, although nobody looked."""
    monkeypatch.setattr(requests, "INTERVAL", 0.01)
    calls = count_reads(bandit.log, monkeypatch)
    lock = bandit.folder.path / LOCK

    async def serve() -> str:
        app = create(Service(bandit, Tokens()))
        async with app.rest.router.lifespan_context(app.rest):
            await asyncio.sleep(0.5)  # many times the pause between two lines of requests.jsonl
            assert calls == []
            assert not lock.exists()
            status, html = await ask(app, "/")
            assert status == 200
            with pytest.raises(FolderInUse), locked(lock):
                pass
            assert calls == []
            return html

    html = asyncio.run(serve())
    assert "id='visits'>30<" in html
    assert calls == []
    with locked(lock):  # the process has ended with the worker that started it, and saved what it had counted
        assert (bandit.folder.path / boards.TOTALS).exists()
    assert lock.stat().st_mode & 0o777 == 0o600  # its content lets one ask for pages


def test_one_process_for_all_workers_which_ends_when_its_worker_is_killed(tmp_path: Path) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y)
    with running(folder, "--workers", "2") as service:
        with service.client() as client:
            client.decide(named(X, 0), event_id="one")
        for _ in range(12):
            assert b"id='visits'>1<" in service.get("/").content
        children = dashboards(service)
        assert len(children) == 1
        parent = int(Path(f"/proc/{children[0]}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, 9)
        service.wait_for(lambda: not Path(f"/proc/{children[0]}").exists())
        service.wait_for(lambda: service.get("/").status == 200)
        assert len(dashboards(service)) == 1
        assert dashboards(service) != children
    service.end()
    assert dashboards(service) == []


def dashboards(service: Running) -> list[int]:
    """The processes that make pages of a service."""
    wanted = ["treetop.service.dashboard.process", str(service.folder)]
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if all(word in words for word in wanted):
                found.append(int(path.name))
    return found


def test_a_stranger_on_this_machine_gets_no_page(bandit: Bandit) -> None:
    async def talk() -> None:
        process = Process(bandit.folder.path, None)
        server = await asyncio.start_server(process._connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for secret in ("", "0" * 64, process.secret):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await send(writer, Ask(secret, "updates", {}, True, SERVICE))
            if secret == process.secret:
                assert "000000" in (await receive(reader, Answer)).html
            else:
                assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\xff\xff\xff\xff and no end")
        assert await reader.read() == b""
        writer.close()
        server.close()

    asyncio.run(talk())


def test_a_minute_without_visits_ends_it_and_the_totals_are_saved(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "IDLE", 0.3)
    folder, (parent, held) = bandit.folder.path, os.pipe()

    async def run() -> None:
        await Process(folder, None).run(folder / LOCK, parent)

    asyncio.run(run())
    assert load_series(bandit.log, folder / boards.TOTALS).position == bandit.log.counts().position
    monkeypatch.setattr(processes, "IDLE", 60.0)
    os.close(held)  # the worker that started it is gone
    asyncio.run(run())
    os.close(parent)


def test_a_process_that_cannot_start_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask_twice() -> None:
        relay = Relay(tmp_path, None)
        for _ in range(2):
            with pytest.raises(Problem, match="ended with code 1"):
                await relay.ask("page", {}, False, SERVICE)

    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    asyncio.run(ask_twice())


def test_a_decision_of_many_slots_is_cut_short(bandit: Bandit, made: Boards) -> None:
    shown = bandit.decide(named(X, 0), event_id="many", k=40)
    best = sum(not slot.explored for slot in shown.slots)
    assert best < 40
    html = views.updates(made.board(SERVICE, Query()))
    assert "and 28 more" in html
    assert f"and {best - 12} more" in html  # of those taken for their scores, in words


def test_percentiles_are_those_of_the_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    took = rng.gamma(2.0, 0.003, 5000)
    metrics = Metrics(list)
    metrics.answered("/v1/decide", 200, 9.0)  # before the recorder began
    recorder, found = Recorder(tmp_path, metrics), RequestSeries(tmp_path)
    for seconds in took:
        metrics.answered("/v1/decide", 200, float(seconds))
        metrics.answered("/v1/reward", 404, 5.0)
        metrics.answered("/healthz", 200, 5.0)
    recorder.record()
    recorder.record()  # nothing new: no line
    found.update()
    total = found.total(-math.inf, math.inf)
    assert total.requests == {("/v1/decide", "200"): 5000, ("/v1/reward", "404"): 5000}
    overall = percentiles(total.took)
    assert overall is not None
    edges = np.array([0.0, *SECONDS])
    for share, here in zip((0.5, 0.9, 0.99), overall, strict=True):
        exact = float(np.quantile(took, share))
        bucket = int(np.searchsorted(edges, exact))
        assert edges[bucket - 1] <= here <= edges[bucket]
    assert percentile(0.99, [0, 0, 5], [1.0, 2.0]) == 2.0  # beyond the last bucket all that is known is its begin
    assert percentiles(np.zeros(len(SECONDS) + 1, np.int64)) is None
    found.close()


def test_the_lines_of_requests_are_bounded_and_none_is_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "LARGEST", 2000)
    metrics = Metrics(list)
    recorder, found = Recorder(tmp_path, metrics), RequestSeries(tmp_path)
    for i in range(100):
        metrics.answered("/v1/decide", 200 if i % 2 else 422, 0.001)
        metrics.unknown.inc(2)
        recorder.record()
        if i % 7 == 0:
            found.update()
    found.update()
    total = found.total(-math.inf, math.inf)
    assert total.requests == {("/v1/decide", "200"): 50, ("/v1/decide", "422"): 50}
    assert total.features == {"unknown": 200, "clipped": 0}
    sizes = [(tmp_path / name).stat().st_size for name in (requests.CURRENT, requests.BEFORE)]
    assert max(sizes) < 2 * 2000
    with (tmp_path / requests.CURRENT).open("ab") as file:
        file.write(b'{"time": 1, "requ')  # what a crash left of a line
    again = RequestSeries(tmp_path)
    again.update()
    assert 0 < sum(again.total(-math.inf, math.inf).requests.values()) < 100
    for one in (found, again):
        one.close()


def test_clipped_values_are_shown_once_the_service_counts_them(made: Boards, tmp_path: Path) -> None:
    line = {"time": time.time(), "requests": {"/v1/decide": {"200": 3, "503": 1}}, "took": [], "unknown": 7}
    path = made.folder.path / requests.CURRENT
    path.write_text(json.dumps(line) + "\n")
    html = views.updates(made.board(SERVICE, Query()))
    assert "id='unknown-features'>7<" in html
    assert "clipped-features" not in html  # the line is of a worker that does not count them
    assert "<td>4</td><td>0</td><td class=bad>1</td>" in html
    with path.open("a") as file:
        file.write(json.dumps({**line, "clipped": 5}) + "\n")
    assert "id='clipped-features'>5<" in views.updates(made.board(SERVICE, Query()))


def test_what_exploring_costs_is_shown_with_its_error_and_not_before_that_is_known(made: Boards) -> None:
    """Of 20 visits in a stretch 2 explore, worth half as much; nobody can tell from few, or without rewards."""
    row = np.array([20, 2, 98, 2, 98, 2, 19, 0, 20, 20, 0, 0])
    parts = [stretch(t, 1, VisitTotals({(0, 5): row + (t % 3 - 1) * (np.arange(12) == 9)})) for t in range(60)]
    board = made.board(SERVICE, Query())
    logged = board.logged
    assert logged is not None

    def tiles(some: list[Stretch[VisitTotals]]) -> list[tuple[str, ...]]:
        total = added_up(one.sums for one in some)
        html = views.updates(replace(board, logged=replace(logged, stretches=some, total=total)))
        names = "spent-share", "uplift-greedy"
        return [re.search(rf"id='{name}'>([^<]*)</dd><dd class='soft'>([^<]*)", html).groups() for name in names]  # type: ignore[union-attr]

    half = 1.96 * np.sqrt(60 / 59 * 40)  # what two of three stretches are off by is 1
    assert tiles(parts) == [
        ("5.0 %", f"± {100 * half / 1200:.1f} % of the reward, by the log"),
        ("-0.050", f"± {half / 1200:.3f} a visit, by the log"),
    ]
    assert tiles(parts[:9]) == tiles([stretch(0, 64, parts[0].sums)]) == 2 * [("–", "not known yet")]
    nothing = [
        stretch(t, 1, VisitTotals({(0, 5): np.array([20, 2, 98, 2, 0, 0, 0, 0, 20, 0, 0, 0])})) for t in range(60)
    ]
    assert tiles(nothing) == 2 * [("–", "not known yet")]
    wild = [stretch(t, 1, VisitTotals({(0, 5): row + 40 * (t % 3 - 1) * (np.arange(12) == 9)})) for t in range(60)]
    share, uplift = tiles(wild)
    assert share == ("–", "not known yet")
    assert uplift[1] == f"± {40 * half / 1200:.3f} a visit, by the log"
    certain = [stretch(t, 1, VisitTotals({(0, 5): row * (np.arange(12) < 8)})) for t in range(60)]
    assert tiles(certain) == 2 * [("–", "every visit explored")]


def test_lines_have_few_points_the_right_means_and_no_bridge_over_silence() -> None:
    parts = [stretch(t, 1, cells(t // 600, 5, 10, 4.0)) for t in range(1200)]
    parts += [stretch(50_000, 256, cells(7, 3, 10, 9.0))]
    points = charts.steps(parts, 12_010, (-math.inf, math.inf), 60_000.0)
    made = charts.over_time(points)
    times, reward, epochs = made["reward"]
    assert len(times) == len(reward) == len(epochs) <= charts.MAX_POINTS + 2
    assert times == sorted(times)
    assert reward[0] == pytest.approx(0.4)
    assert reward[-1] == pytest.approx(0.9)
    assert reward[-2] is None
    assert epochs[-2:] == [epochs[-3], 7]
    assert made["unlikely"][1][0] == pytest.approx(1 / 5)
    assert made["slots"][1][0] == pytest.approx(0.8)
    assert made["variants"]["labels"] == ["k = 3", "k = 5"]
    _, three, five = made["variants"]["lines"]
    assert three[-1] == pytest.approx(0.9)
    assert three[0] is None
    assert five[0] == pytest.approx(0.4)
    assert charts.over_time([])["reward"] == [[], [], []]
    _, visits, rewards = made["traffic"]
    assert visits[0] == pytest.approx(600)  # ten a second
    assert rewards[0] == pytest.approx(600)
    assert 0.0 in visits  # silence is no traffic


def test_all_visits_alike_need_no_lines_by_number_of_slots() -> None:
    points = charts.steps([stretch(t, 1, cells(0, 5, 10, 4.0)) for t in range(50)], 500, (-math.inf, math.inf), 99.0)
    assert charts.over_time(points)["variants"] is None
    many = [stretch(0, 1, cells(0, k, 100 - k, 1.0)) for k in range(1, 8)] + [stretch(0, 1, cells(0, OTHERS, 1, 1.0))]
    labels = charts.over_time(charts.steps(many, 700, (-math.inf, math.inf), 99.0))["variants"]["labels"]
    assert labels == ["k = 1", "k = 2", "k = 3", "k = 4", "k = 5", "other k"]


def test_a_line_does_not_fall_to_0_where_all_rewards_are_pending() -> None:
    """But where few visits ever have a reward, as where clicks alone are told, silence is what they brought."""
    row = np.array([100, 100, 400, 100, 50, 50, 40.0, 0, 100, 40.0, 0, 0])  # 100 slots of 100 visits have a reward
    few = np.where(np.isin(np.arange(12), [4, 5, 6, 9]), row / 10, row)
    silent = np.where(np.isin(np.arange(12), [4, 5, 6, 9]), 0, row)
    for usual, reward, wanted in ((row, 0.4, None), (few, 0.04, 0.0)):
        parts = [stretch(t, 1, VisitTotals({(0, 5): usual})) for t in range(20)]
        parts += [stretch(20, 1, VisitTotals({(0, 5): silent})), stretch(21, 1, cells(0, 3, 10, 4.0))]
        made = charts.over_time(charts.steps(parts, 10**6, (-math.inf, math.inf), 22.0))
        assert made["reward"][1][-3:] == [pytest.approx(reward), wanted, 0.4]
        assert [line[-2] for line in made["variants"]["lines"][1:]] == [None, wanted]


def test_a_step_that_has_just_begun_is_left_out() -> None:
    parts = [stretch(t, 1, cells(0, 5, 10, 4.0)) for t in range(5)]
    for now, wanted in ((4.4, [0, 1, 2, 3]), (4.6, [0, 1, 2, 3, 4])):
        assert [p.time for p in charts.steps(parts, 10**6, (-math.inf, math.inf), now)] == wanted
    assert [p.time for p in charts.steps(parts[:1], 10, (-math.inf, math.inf), 0.1)] == [0]  # better than nothing


def test_totals_that_lag_say_so_and_catch_up(made: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "SLICE", 7)
    seen = []
    for _ in range(20):
        board = made.board(SERVICE, Query())
        assert board.logged is not None
        seen.append(board.logged.counted)
        assert ("is being counted" in views.updates(board)) == (seen[-1] < 60)
    assert seen[:3] == [7, 14, 21]
    assert seen[-1] == 60


def test_a_log_that_is_away_and_a_refit_that_failed_are_told(made: Boards) -> None:
    failed = ServiceState(*(getattr(SERVICE, name) for name in SERVICE.__struct_fields__))
    failed.refit_failures, failed.refit_error = 1, "no space left on <device>"
    assert "The refit failed once: no space left on &lt;device&gt;." in views.page(made.board(failed, Query()))
    made.count()
    assert made._log is not None
    made._log.close()
    assert "The log cannot be read" in views.page(made.board(SERVICE, Query()))
    made._series = None  # there is nothing to be saved in a log that is away


def table_of(counts: dict[int, tuple[int, int, float]], ids: list[Any]) -> ArmTable:
    rows = np.zeros(len(counts), ARM)
    for row, (arm, (impressions, explored, reward)) in zip(rows, sorted(counts.items()), strict=True):
        row["arm"], row["impressions"], row["unlikely"], row["reward"] = arm, impressions, explored, reward
    return ArmTable(rows, Names(ArmIndex.of(ids)), 0.0, 1.0)


@pytest.mark.parametrize("order", ["up", "down"])
@pytest.mark.parametrize("sort", ["arm", "impressions", "unlikely", "reward", "rate"])
@pytest.mark.parametrize("search", ["", "1", "Arm", "nowhere"])
def test_every_order_search_and_page_is_that_of_a_plain_list(sort: str, order: str, search: str) -> None:
    rng = np.random.default_rng(5)
    ids = [f"ARM-{i}" for i in range(100)]
    counts = {
        int(arm): (int(rng.integers(1, 9)), int(rng.integers(0, 3)), float(rng.integers(0, 5)))
        for arm in rng.choice(100, 40, replace=False)
    }
    table = table_of(counts, ids)
    all_rows = [table._row(arm) for arm in range(100) if search.lower() in ids[arm].lower()]
    sign = 1 if order == "up" else -1
    # Arms that were never shown come last on the way down and first on the way up.
    if sort == "arm":
        wanted = sorted(all_rows, key=lambda r: r.name, reverse=order == "down")
    else:
        wanted = sorted(all_rows, key=lambda r: (sign * (r.impressions > 0), sign * (getattr(r, sort) or 0), r.arm))
    got, page = [], 1
    while True:
        found = table.page(Query(sort=sort, order=order, search=search, page=page))
        assert len(found.rows) <= PAGE
        got += found.rows
        if page >= found.pages:
            break
        page += 1
    assert [row.arm for row in got] == [row.arm for row in wanted]
    assert found.found == len(wanted)
    assert table.page(Query(search=search, page=10**9)).page == found.pages
    assert (found.shown, found.arms) == (40, 100)
    exact = np.array([counts.get(i, (0, 0, 0))[0] for i in range(100)])
    assert found.gini == pytest.approx(np.abs(exact[:, None] - exact[None, :]).mean() / (2 * exact.mean()))


def test_a_query_is_what_its_address_says_and_back() -> None:
    for given in (
        {},
        {"range": "all", "sort": "rate", "order": "up", "search": "<b>&'\"", "page": "3"},
        {"range": "custom", "from": "1700000000", "to": "1700003600", "arm": "0"},
    ):
        assert Query.parse(given).parameters() == given
    assert Query.parse({"from": "2023-11-14T22:13:20", "range": "custom"}).begin == 1_700_000_000
    assert Query.parse({"from": "2023-11-14T23:13:20+01:00"}).begin == 1_700_000_000
    assert Query.parse({"range": "hour"}).bounds(10_000.0) == (6400.0, math.inf)
    assert Query.parse({"range": "all"}).bounds(0.0) == (-math.inf, math.inf)
    for bad, why in (
        ({"range": "year"}, "'year'; it must be one of hour, day"),
        ({"sort": "name"}, "'name'; it must be one of arm"),
        ({"page": "0"}, "'0'; a whole number of 1 or more"),
        ({"page": "٣"}, "a whole number"),
        ({"arm": "-1"}, "a whole number of 0 or more"),
        ({"from": "yesterday"}, "'yesterday'; a date and time is needed"),
        ({"from": "nan"}, "between 1970 and 2100"),
        ({"from": "1e99"}, "between 1970 and 2100"),
        ({"from": "20", "to": "10"}, "the range ends before it begins"),
        ({"search": "x" * 513}, "513 characters; at most 512"),
    ):
        with pytest.raises(ValueError, match=why):
            Query.parse(bad)


def test_a_bad_address_is_told_what_is_wrong_with_it(shop: Running) -> None:
    answer = shop.get("/?range=year")
    assert answer.status == 422
    assert "one of hour, day, week, all, custom" in answer.content.decode()
    assert shop.get("/dashboard/arms?page=x").status == 422
