"""Old decisions are deleted: at the start and then on time, in small steps, never by a clock that may be wrong."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import shell
from helpers.logs import check_whole, event
from helpers.problems import topics
from helpers.running import named, running, settings, small_bandit
from helpers.sealing import seal

from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.bandit.retention import DAY, RetentionState
from treetop.bandit.sealing import segment_folder
from treetop.log.base import FORGET_STEP
from treetop.log.records import Reward
from treetop.log.retention import forget_in_steps
from treetop.service import retention
from treetop.service.retention import Retention

X, Y = topics()
NOW = 2e9  # when the tests happen, by their clock


class Clock:
    """A wall clock that can be set, and the seconds that have truly passed."""

    def __init__(self) -> None:
        self.wall, self.passed = NOW, 1000.0

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds

    def set(self, seconds: float) -> None:
        self.wall += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chosen = settings(rewards=config.RewardConfig(keep_days=10))
    return small_bandit(tmp_path / "shop", X, Y, config=chosen)


@pytest.fixture
def bandit(folder: Path, place: str) -> Iterator[Bandit]:
    with Bandit.open(folder, place) as opened:
        yield opened
        check_whole(opened.log)


def begin(bandit: Bandit, clock: Clock) -> Retention:
    return Retention(bandit, lambda: clock.wall, lambda: clock.passed)


def fill(bandit: Bandit, days: list[float], tag: str = "e", now: float = NOW) -> None:
    """Decisions so many days old, every second of them with a reward."""
    events = [event(f"{tag}{i}", time=now - age * DAY) for i, age in enumerate(days)]
    bandit.log.append(events)
    bandit.log.reward([Reward(e.event_id, int(e.arms[0]), 1.0, e.time) for e in events[::2]])


def left(bandit: Bandit) -> int:
    counts = bandit.log.counts()
    return counts.decisions - counts.forgotten


def test_the_first_run_is_at_once_and_the_others_are_on_time(bandit: Bandit, clock: Clock) -> None:
    fill(bandit, [30, 20, 11, 9.99, 1])
    kept = begin(bandit, clock)
    assert asyncio.run(kept.run_once())
    counts = bandit.log.counts()
    assert (left(bandit), counts.forgotten, counts.observed, counts.forgotten_observed) == (2, 3, 1, 2)
    clock.go(DAY)
    assert asyncio.run(kept.run_once())
    assert left(bandit) == 1
    assert not RetentionState.read(bandit.log).refused


def test_a_run_goes_on_in_small_steps_and_can_be_cancelled(
    bandit: Bandit, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bandit, [20.0] * (2 * FORGET_STEP + 1) + [0.5])
    assert [count for count, _ in forget_in_steps(bandit.log, NOW - 1e9)] == []
    steps: list[int] = []
    forget = bandit.log.forget

    def counted(*given: Any) -> int:
        steps.append(forget(*given))
        return steps[-1]

    monkeypatch.setattr(bandit.log, "forget", counted)
    monkeypatch.setattr("treetop.log.retention.SHARE", 1e-9)  # a pause that no test outlives

    async def cancelled_after_a_step() -> None:
        task = asyncio.create_task(begin(bandit, clock).run())
        while not steps:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled_after_a_step())
    assert steps == [FORGET_STEP]
    monkeypatch.setattr("treetop.log.retention.SHARE", 1.0)
    assert asyncio.run(begin(bandit, clock).run_once())
    assert steps == [FORGET_STEP, FORGET_STEP, 1, 0]
    assert left(bandit) == 1


def test_a_clock_that_jumped_ahead_deletes_nothing_until_somebody_confirms(bandit: Bandit, clock: Clock) -> None:
    fill(bandit, [5.0, 4.0, 0.5])
    kept = begin(bandit, clock)
    assert asyncio.run(kept.run_once())
    clock.go(3600)
    clock.set(30)  # as a clock that is set right does
    assert asyncio.run(kept.run_once())
    clock.go(3600)
    clock.set(7 * DAY)
    fill(bandit, [0.0], "jumped", clock.wall)
    assert not asyncio.run(kept.run_once())
    why = RetentionState.read(bandit.log).refused
    assert "jumped 604,800 s ahead" in why
    assert left(bandit) == 4
    assert bandit.folder.recent_history(1)[0]["error"] == why
    clock.set(-7 * DAY)
    assert not asyncio.run(kept.run_once())
    assert not asyncio.run(begin(bandit, clock).run_once())  # another start does not change it
    clock.set(7 * DAY)
    RetentionState(confirmed=1.0).store(bandit.log)
    assert asyncio.run(kept.run_once())
    assert left(bandit) == 2


def test_a_run_that_would_delete_everything_is_refused(bandit: Bandit, clock: Clock) -> None:
    fill(bandit, [5.0, 4.0])
    clock.go(100 * DAY)
    kept = begin(bandit, clock)  # nothing is known of the clock before the start
    fill(bandit, [0.0], "new", clock.wall)  # and what came since has its time
    assert not asyncio.run(kept.run_once())
    assert "all decisions would be deleted" in RetentionState.read(bandit.log).refused
    assert not asyncio.run(kept.run_once())
    assert left(bandit) == 3
    RetentionState(confirmed=clock.wall).store(bandit.log)
    assert asyncio.run(kept.run_once())
    assert left(bandit) == 1
    clock.go(20 * DAY)  # while it runs, and nobody asks for decisions
    assert not asyncio.run(kept.run_once())
    assert left(bandit) == 1


def test_a_log_that_is_gone_for_a_while_stops_nothing(
    bandit: Bandit, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bandit, [20.0, 0.5])
    failed: list[float] = []
    newest = bandit.log.newest_time

    def gone_once(*given: float) -> float | None:
        if not failed:
            failed.append(time.monotonic())
            raise OSError("gone")
        return newest(*given)

    monkeypatch.setattr(bandit.log, "newest_time", gone_once)
    monkeypatch.setattr(retention, "ERROR_PAUSE", 0.01)

    async def until_it_is_done() -> None:
        task = asyncio.create_task(begin(bandit, clock).run())
        while left(bandit) > 1:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(until_it_is_done(), 60))
    assert failed


def test_the_service_forgets_when_it_starts(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        fill(bandit, [20.0] * 500 + [1.0], now=time.time())
    with running(folder, "--workers", "2") as service:
        service.wait_for(lambda: service.said("forgot old decisions"))
        assert service.get("/v1/model").json["refit"]["observed"] == 1
        assert service.get("/v1/model").json["retention"] is None
        text = service.get("/metrics").content.decode()
        for line in ("treetop_observed_total 251.0", "treetop_forgotten_total 500.0", "treetop_retention_refused 0.0"):
            assert line in text
        assert service.end() == 0
    with Bandit.open(folder) as bandit:
        check_whole(bandit.log)


def test_a_refusal_is_seen_and_the_command_ends_it(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        fill(bandit, [20.0] * 3, now=time.time())
    with running(folder) as service:
        assert service.post("/v1/decide", {"features": named(X, 0), "event_id": "new"}).status == 200
        service.wait_for(lambda: service.said("old decisions are not deleted"))
        assert service.said("old decisions are not deleted")[0]["level"] == "error"
        assert "all decisions would be deleted" in service.get("/v1/model").json["retention"]
        assert "treetop_retention_refused 1.0" in service.get("/metrics").content.decode()
        dry = json.loads(shell("forget", str(folder), "--days", "10", "--json").stdout)
        assert (dry["decisions"], dry["older"], dry["deleted"]) == (4, 3, 0)
        assert dry["refused"] == service.get("/v1/model").json["retention"]
        words = shell("forget", str(folder), "--days", "10").stdout
        assert "3 of 4 decisions are from before" in words
        assert "The service refused to delete: all decisions would be deleted" in words
        assert "Nothing was deleted; --yes does it." in words
        assert service.get("/metrics").content.decode().count("treetop_retention_refused 1.0") == 1
        done = json.loads(shell("forget", str(folder), "--days", "15", "--yes", "--json").stdout)
        assert (done["older"], done["deleted"]) == (3, 3)
        assert service.get("/v1/model").json["retention"] is None
        assert service.get("/v1/events/new").status == 200
        assert service.get("/v1/events/e0").status == 404


def test_the_command_and_its_mistakes(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        fill(bandit, [0.0, 1.0, 2.0], now=1738324800.0)  # 2025-01-31T12:00 UTC
    for date, older in (("2025-01-31", 2), ("2025-01-30T12:00:01+00:00", 2), ("2025-01-30T12:00+01:00", 1)):
        found = json.loads(shell("forget", str(folder), "--before", date, "--json").stdout)
        assert (found["older"], found["newest"]) == (older, "2025-01-31T12:00:00+00:00")
    for words, error in (
        ([], "give --before or --days, one of the two"),
        (["--before", "2025-01-31", "--days", "1"], "one of the two"),
        (["--before", "yesterday"], "--before is 'yesterday'; a date such as"),
        (["--days", "-1"], "days is -1"),
        (["--days", "1", "--log", str(folder / "none.sqlite")], "there is no log"),
    ):
        done = shell("forget", str(folder), *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert error in done.stderr
    assert shell("forget", str(folder.parent), "--days", "1").returncode == 2


def test_segments_lose_what_the_log_loses(bandit: Bandit, clock: Clock) -> None:
    fill(bandit, [20.0] * 30 + [9.0] * 20)
    assert seal(segment_folder(bandit.folder), bandit.log, rest=True).sealed_rounds == 50
    assert asyncio.run(begin(bandit, clock).run_once())
    found = segment_folder(bandit.folder).manifest()
    assert found is not None
    assert found.rounds == 20
    assert found.forgotten == bandit.log.counts().forgotten == 30
    assert min(segment.oldest for segment in found.segments) >= NOW - 10 * DAY
    assert {path.name for path in segment_folder(bandit.folder).path.iterdir()} == {"manifest.json", *found.names()}
