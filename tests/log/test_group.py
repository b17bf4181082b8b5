"""Group commit: one for many callers, whole or not at all, and synced."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from helpers.logs import arm, event

from treetop.errors import EventConflict, LogError
from treetop.log import group as grouping
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Outcome, Reward, Status
from treetop.log.sqlite import SqliteLog


def test_threads_that_write_the_same_and_different_ids(log: Log) -> None:
    events = [event(i) for i in range(40)]

    def write(thread: int) -> list[Any]:
        answers: list[Any] = []
        for e in events:
            answers += log.append([replace(e)])
            answers += log.append([event(f"own-{thread}-{e.event_id}")])
            answers += log.reward([Reward(e.event_id, arm(e, 0), 0.5, 1.0)])
        return answers

    with ThreadPoolExecutor(8) as pool:
        answers = [a for found in pool.map(write, range(8)) for a in found]
    counts = log.counts()
    assert (counts.decisions, counts.rewards, counts.observed) == (40 + 320, 40, 40)
    outcomes = [a.status for a in answers if isinstance(a, Outcome)]
    assert (outcomes.count(Status.STORED), outcomes.count(Status.SAME)) == (40, 280)
    assert not any(isinstance(a, EventConflict) for a in answers)


def test_one_commit_serves_many_callers(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    group: Any = log._group  # type: ignore[attr-defined]
    commit, gate = group._commit, threading.Event()

    def counted(jobs: Any) -> Any:
        gate.wait(10)
        sizes.append(len(jobs))
        return commit(jobs)

    monkeypatch.setattr(group, "_commit", counted)
    futures: list[Future[Any]] = [log.submit_append([event(i)]) for i in range(100)]
    futures += [log.submit_reward([Reward(f"event-{i}", arm(event(i), 0), 1.0, 1.0)]) for i in range(100)]
    gate.set()
    for future in futures:
        future.result(60)
    assert len(sizes) <= 2
    assert sum(sizes) == 200
    assert log.counts().rewards == 100


def test_a_job_that_fails_does_not_fail_its_neighbours() -> None:
    def commit(jobs: Any) -> Any:
        if any(job.bad for job in jobs):
            raise ZeroDivisionError("bad")
        return [job.name for job in jobs]

    class Job:
        alone, size = False, 1

        def __init__(self, name: str, bad: bool) -> None:
            self.name, self.bad = name, bad

    group = grouping.Group(commit)
    futures = [group.submit(Job(str(i), i == 3)) for i in range(6)]
    group.close()
    assert [f.exception() is None for f in futures] == [True, True, True, False, True, True]
    with pytest.raises(LogError, match="closed"):
        group.submit(Job("late", False))


def test_settings_of_a_failed_commit_are_not_relied_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: Any, state: Any) -> None:
        raise LogError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("treetop.log.write.store_state", fail)
        with pytest.raises(LogError, match="the disk is full"):
            log.append([event("a", model="new")])
    assert log.event("a") is None
    log.append([event("a", model="new")])
    stored = log.event("a")
    assert stored is not None
    assert stored.event.model == "new"


def test_every_commit_is_synced(log: Any) -> None:
    connection = log.connect()
    if isinstance(log, SqliteLog):
        assert connection.rows("PRAGMA journal_mode") == [("wal",)]
        assert connection.rows("PRAGMA synchronous") == [(2,)]  # FULL
    else:
        assert connection.rows("SHOW synchronous_commit") == [("on",)]
    connection.close()


def test_closing_finishes_what_was_submitted(place: str) -> None:
    log = open_log(place)
    futures = [log.submit_append([event(i)]) for i in range(50)]
    log.close()
    log.close()
    assert all(f.done() and f.exception() is None for f in futures)
    with pytest.raises(LogError, match="closed"):
        log.append([event("late")])
    with pytest.raises(LogError, match="closed"):
        log.counts()
    with open_log(place) as again:
        assert again.counts().decisions == 50
