"""What the dashboard shows, without a browser: what it says, what it reads for that, and who reads it."""

from __future__ import annotations

import asyncio
import json
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

from treetop.bandit.bandit import Bandit
from treetop.errors import FolderInUse, Problem
from treetop.files import locked
from treetop.log.base import Log
from treetop.log.series_file import load_series
from treetop.log.timeline import Stretch
from treetop.log.visit_totals import VisitTotals, added_up
from treetop.service.app import create
from treetop.service.dashboard import board as boards
from treetop.service.dashboard import process as processes
from treetop.service.dashboard import requests, views
from treetop.service.dashboard.board import Boards
from treetop.service.dashboard.messages import LOCK, Answer, Ask, ServiceState, receive, send
from treetop.service.dashboard.process import Process
from treetop.service.dashboard.query import Query
from treetop.service.dashboard.relay import Relay
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


def test_a_bad_address_is_told_what_is_wrong_with_it(shop: Running) -> None:
    answer = shop.get("/?range=year")
    assert answer.status == 422
    assert "one of hour, day, week, all, custom" in answer.content.decode()
    assert shop.get("/dashboard/arms?page=x").status == 422
