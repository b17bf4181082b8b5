"""One battery for every kind of log: what is acknowledged is there, once, and marks hold still."""

import contextlib
import math
import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.logs import check_whole, event, joined, same, same_samples

from treetop.errors import EventConflict, LogError
from treetop.log import group as grouping
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Counts, Event, Outcome, Reward, Status
from treetop.log.rounds import gather
from treetop.log.sqlite import SqliteLog


@pytest.fixture
def log(place: str) -> Any:
    with open_log(place) as opened:
        yield opened
        check_whole(opened)


def arm(e: Event, slot: int) -> int:
    return int(e.arms[slot])


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [o.status.value for o in outcomes]


def test_a_decision_comes_back_as_it_was(log: Log, place: str) -> None:
    e = event("a", k=5, time=1234.5678901234)
    assert log.append([e])[0] is e
    for opened in (log, open_log(place)):
        stored = opened.event("a")
        assert stored is not None
        assert same(stored.event, e)
        assert np.isnan(stored.rewards).all()
        assert stored.rewards.shape == (5,)
    opened.close()
    assert log.event("b") is None


@pytest.mark.parametrize("k", [0, 1, 200])
def test_any_number_of_slots_and_an_empty_context(log: Log, k: int) -> None:
    e = event("wide", k=k, index=np.zeros(0, np.int32), value=np.zeros(0, np.float32))
    log.append([e])
    stored = log.event("wide")
    assert stored is not None
    assert same(stored.event, e)
    (chunk,) = log.samples(log.seal("m"))
    assert chunk.arms.shape == (1, k)


def test_the_same_id_again_gives_the_stored_decision(log: Log) -> None:
    first = event("a")
    log.append([first])
    again = replace(event("a"), time=5.0, arms=first.arms + 1)
    answer = log.append([again, event("b")])
    assert isinstance(answer[0], Event)
    assert same(answer[0], first)
    assert answer[1] is not answer[0]
    assert log.counts().decisions == 2


def test_the_same_id_for_another_request_is_a_conflict_and_the_rest_is_written(log: Log) -> None:
    first = event("a")
    log.append([first])
    other, b = event("a", request="other"), event("b")
    conflict, written = log.append([other, b])
    assert isinstance(conflict, EventConflict)
    assert same(conflict.stored, first)
    assert "'a'" in str(conflict)
    assert written is b
    assert log.event("b") is not None


def test_the_same_id_twice_in_one_call(log: Log) -> None:
    first, again, other = event("a"), event("a"), event("a", request="other")
    answers = log.append([first, again, other])
    assert answers[0] is first
    assert answers[1] is first
    assert isinstance(answers[2], EventConflict)
    assert log.counts().decisions == 1


def test_rewards_come_late_in_parts_again_and_in_any_order(log: Log) -> None:
    a, b = event("a"), event("b")
    log.append([a, b])
    assert statuses(log.reward([Reward("b", arm(b, 2), 0.25, 7.0)])) == ["stored"]
    assert statuses(log.reward([Reward("a", arm(a, 1), 1.0, 8.0), Reward("b", arm(b, 0), 0.0, 9.0)])) == ["stored"] * 2
    assert statuses(log.reward([Reward("b", arm(b, 2), 0.25, 99.0)])) == ["same"]
    stored = log.event("b")
    assert stored is not None
    assert stored.rewards.tolist()[::2] == [0.0, 0.25]
    assert math.isnan(stored.rewards[1])
    assert stored.times.tolist()[::2] == [9.0, 7.0]
    counts = log.counts()
    assert (counts.rewards, counts.observed, counts.pending) == (3, 2, 3)


def test_what_is_wrong_with_a_reward_is_said_and_its_siblings_are_held_back(log: Log) -> None:
    a, b = event("a"), event("b")
    log.append([a, b])
    log.reward([Reward("a", arm(a, 0), 1.0, 1.0)])
    strange = next(n for n in range(1000) if n not in a.arms)
    found = log.reward(
        [
            Reward("a", arm(a, 0), 0.5, 2.0),
            Reward("a", arm(a, 1), 0.5, 2.0),
            Reward("b", arm(b, 0), 0.5, 2.0),
            Reward("c", 1, 0.5, 2.0),
            Reward("a", arm(a, 0), 1.0, 2.0),
            Reward("a", strange, 1.0, 2.0),
        ]
    )
    assert statuses(found) == ["conflict", "withheld", "stored", "unknown", "same", "not_shown"]
    assert found[0].stored == 1.0
    assert log.counts().rewards == 2


def test_a_reward_is_corrected_where_that_is_allowed_and_both_stay(log: Log) -> None:
    a = event("a")
    log.append([a])

    def tell(value: float, time: float, corrects: bool = True) -> list[str]:
        return statuses(log.reward([Reward("a", arm(a, 0), value, time, corrects)]))

    assert [tell(0.0, 1.0), tell(1.0, 2.0), tell(0.5, 3.0, corrects=False)] == [["stored"], ["corrected"], ["conflict"]]
    assert tell(0.0, 4.0) == ["same"]  # told again by who was not answered: it does not undo the correction
    stored = log.event("a")
    assert stored is not None
    assert (stored.rewards[0], stored.times[0]) == (1.0, 2.0)
    assert [(r.slot, r.value, r.time) for r in stored.replaced] == [(0, 0.0, 1.0)]
    counts = log.counts()
    assert (counts.rewards, counts.observed, counts.pending) == (1, 1, 2)
    assert log.forget(2e9) == 1
    assert log.counts().pending == 0


def test_a_call_that_contradicts_itself_stores_nothing(log: Log) -> None:
    a = event("a")
    log.append([a])
    twice = [Reward("a", arm(a, 0), v, 1.0) for v in (0.5, 0.5, 0.75)]
    assert statuses(log.reward(twice)) == ["withheld", "withheld", "conflict"]
    assert statuses(log.reward(twice[:2])) == ["stored", "same"]


def test_bad_arguments_are_refused_before_anything_is_written(log: Log) -> None:
    good = event("good")
    for bad, error in [
        (event(""), "0 bytes"),
        (event("x" * 513), "513 bytes"),
        (event("zero\0"), "none of them zero"),
        (replace(event("r"), request=b"short"), "5 bytes; 16"),
        (replace(event("s"), scores=np.zeros(2, np.float32)), "3 arms and 2 scores"),
        (replace(event("v"), value=np.zeros(99, np.float32)), "99 values"),
        (replace(event("t"), time=math.nan), "time is nan"),
        (replace(event("e"), eligible="unknown"), "'unknown', not among"),
    ]:
        with pytest.raises(ValueError, match=error):
            log.append([good, bad])
    with pytest.raises(TypeError, match="arms of event 'wide' hold int64; int32"):
        log.append([event("wide", arms=np.arange(3) + 2**40)])
    for value in (-2e9, 2e9, math.nan):
        with pytest.raises(ValueError, match="reward is"):
            log.reward([Reward("good", 1, value, 1.0)])
    with pytest.raises(ValueError, match="arm is -1"):
        log.reward([Reward("good", -1, 1.0, 1.0)])
    with pytest.raises(TypeError, match="must be text"):
        log.reward([Reward(7, 1, 1.0, 1.0)])  # type: ignore[arg-type]
    assert log.counts() == Counts()


def test_eligible_sets_are_stored_once_under_their_fingerprint(log: Log) -> None:
    some = np.array([5, 2, 900_000], np.int32)
    for name in ("a", "b"):
        log.append([event(name, eligible="f1")], {"f1": some})
    log.append([event("c", eligible="all")], {"all": np.arange(1_000_000, dtype=np.int32), "f1": some})
    found = log.eligible_set("f1")
    assert found is not None
    assert found.tolist() == [2, 5, 900_000]
    every = log.eligible_set("all")
    assert every is not None
    assert every.dtype == np.int32
    assert len(every) == 1_000_000
    assert log.eligible_set("none") is None
    log.append([event("a", "another request", eligible="f2")], {"f2": some})
    assert log.eligible_set("f2") is None  # nothing that was written names it


def test_a_mark_gives_the_same_samples_for_ever(log: Log) -> None:
    events = [event(i, k=1 + i % 4) for i in range(50)]
    log.append(events)
    log.reward([Reward(e.event_id, arm(e, 0), 1.0, 1.0) for e in events[::2]])
    mark = log.seal("first")
    then = list(log.samples(mark, size=7))
    log.append([event(i) for i in range(50, 80)])
    log.reward([Reward(e.event_id, arm(e, 0), 0.5, 2.0) for e in events[1::2]])
    assert log.seal("first") == mark
    assert log.mark("first") == mark
    assert log.mark("second") is None
    assert same_samples(then, log.samples(mark))
    assert len(joined(then)["positions"]) == 50
    assert int((~np.isnan(joined(then)["rewards"])).sum()) == 25
    assert log.counts().late == 25
    assert [m.name for m in log.marks()] == ["first"]


def test_from_mark_to_mark_every_reward_is_read_once(log: Log) -> None:
    events = [event(i) for i in range(30)]
    marks, seen = [log.seal("m0")], {}
    for part in range(3):
        log.append(events[10 * part : 10 * part + 10])
        log.reward([Reward(e.event_id, arm(e, part), 0.5, 1.0) for e in events[: 10 * part + 10 : 2]])
        marks.append(log.seal(f"m{part + 1}"))
    for since, until in pairwise(marks):
        for chunk in log.samples(until, since, size=3):
            assert (np.diff(chunk.positions) > 0).all()
            for row, slot in np.argwhere(~np.isnan(chunk.rewards)):
                key = (int(chunk.positions[row]), int(slot))
                assert key not in seen
                seen[key] = bool(chunk.new[row])
    whole = joined(log.samples(marks[-1]))
    assert len(seen) == int((~np.isnan(whole["rewards"])).sum()) == 5 + 10 + 15
    assert sum(seen.values()) == 15


def test_samples_are_what_refit_takes(log: Log) -> None:
    a, b = event("a", k=2), event("b", k=4)
    log.append([a, b])
    log.reward([Reward("b", arm(b, 3), 0.75, 1.0)])
    feedback = gather(log.samples(log.seal("m"), size=1), 500)
    assert feedback.arms.tolist() == [[*a.arms, -1, -1], b.arms.tolist()]
    assert feedback.nodes.tolist() == [[*a.nodes, -1, -1], b.nodes.tolist()]
    assert feedback.rewards[1, 3] == 0.75
    assert feedback.observed.sum() == 1
    assert feedback.contexts.row(1).index.tolist() == b.index.tolist()
    (chunk,) = log.samples(log.seal("m"))
    assert np.array_equal(chunk.feedback(500).rewards, feedback.rewards, equal_nan=True)
    if len(b.index):
        with pytest.raises(ValueError, match="there are 1 features"):
            gather(log.samples(log.seal("m")), 1)
    assert len(gather([], 500)) == 0


def test_nodes_of_another_tree_are_lost_and_its_arms_kept(log: Log) -> None:
    old, new = event("old", tree="t1", model_epoch=3), event("new", tree="t2", model_epoch=4)
    log.append([old, new])
    (chunk,) = log.samples(log.seal("m"), tree="t2")
    assert chunk.nodes.tolist() == [[-1, -1, -1], new.nodes.tolist()]
    assert chunk.arms.tolist() == [old.arms.tolist(), new.arms.tolist()]
    assert chunk.epochs.tolist() == [3, 4]


def test_a_default_reward_counts_once_the_wait_is_over(log: Log) -> None:
    mark = log.seal("now")
    old, young = event("old", k=2, time=mark.time - 100), event("young", k=3, time=mark.time - 10)
    log.append([old, young])
    log.reward([Reward("old", arm(old, 1), 1.0, mark.time)])
    mark = replace(log.seal("later"), time=mark.time)
    (plain,) = log.samples(mark)
    assert np.isnan(plain.rewards).sum() == 5
    (filled,) = log.samples(mark, wait=60, default=0.0)
    assert filled.rewards[0].tolist()[:2] == [0.0, 1.0]
    assert np.isnan(filled.rewards[0, 2])  # padding is no slot
    assert np.isnan(filled.rewards[1]).all()
    with pytest.raises(ValueError, match="since a mark"):
        log.samples(mark, mark, default=0.0)
    with pytest.raises(ValueError, match="default is 2"):
        log.samples(mark, default=2e9)


def test_retention_takes_decisions_with_their_rewards_and_sets(log: Log) -> None:
    events = [event(i, time=100.0 + i, eligible="old" if i < 10 else "") for i in range(20)]
    log.append(events, {"old": np.arange(3, dtype=np.int32)})
    log.reward([Reward(e.event_id, arm(e, 0), 1.0, 1.0) for e in events[5:15]])
    mark = log.seal("m")
    assert log.forget(110.0) == 10
    assert log.forget(110.0) == 0
    assert log.event("event-9") is None
    assert log.event("event-10") is not None
    assert log.eligible_set("old") is None
    counts = log.counts()
    assert (counts.decisions, counts.forgotten, counts.rewards) == (20, 10, 10)
    assert (counts.observed, counts.forgotten_observed, counts.observed_ever) == (5, 5, 10)
    assert counts.pending == 30 - 5
    assert len(joined(log.samples(mark))["positions"]) == 10
    assert log.append([events[0]], {"old": np.arange(3, dtype=np.int32)})[0] is events[0]


def test_retention_takes_settings_with_their_last_decision(log: Log, place: str) -> None:
    """Another writer that knows their numbers stores them again; a number that was given is never given again."""
    events = [replace(event(i, time=100.0 + i), policy=f'{{"k": {i // 2}}}') for i in range(10)]

    def stored() -> dict[int, str]:
        with log.reading() as connection:  # type: ignore[attr-defined]
            return dict(connection.rows("SELECT id, policy FROM treetop_settings"))

    with open_log(place) as other:
        other.append(events)
        before = stored()
        assert len(before) == 5
        assert log.forget(103.0) == 3  # the second settings have a decision left
        assert sorted(stored().values()) == sorted(set(before.values()) - {events[0].policy})
        again = replace(events[0], event_id="again", time=200.0)
        other.append([again])
        assert log.forget(150.0) == 7
        after = stored()
        assert list(after.values()) == [again.policy]
        assert not set(after) & set(before)
        found = log.event("again")
        assert found is not None
        assert found.event.policy == again.policy
        assert log.forget(1e9) == 1
        assert stored() == after  # the highest number
        other.append([replace(again, event_id="other", policy="{}")])
        assert max(stored()) > max(after)


def test_retention_goes_step_by_step_oldest_first(log: Log) -> None:
    assert (log.newest_time(), log.count_before(math.inf)) == (None, 0)
    times = [105.0, 101.0, 104.0, 102.0, 103.0]
    sets = {name: np.arange(3, dtype=np.int32) for name in ("old", "both")}
    events = [event(i, time=at, eligible="old" if at < 102 else "both") for i, at in enumerate(times)]
    log.append(events, sets)
    assert (log.newest_time(), log.newest_time(104.0), log.newest_time(1.0)) == (105.0, 103.0, None)
    assert (log.count_before(103.0), log.count_before(1e9)) == (2, 5)
    assert log.forget(200.0, limit=2) == 2
    assert [s.event.time for s in log.recent(9)] == [103.0, 104.0, 105.0]
    assert (log.eligible_set("old") is None, log.eligible_set("both") is None) == (True, False)
    assert [log.forget(200.0, limit=2) for _ in range(3)] == [2, 1, 0]
    assert log.eligible_set("both") is None
    with pytest.raises(ValueError, match="limit is 0"):
        log.forget(200.0, limit=0)


def test_models_are_those_of_the_decisions_that_are_there(log: Log) -> None:
    assert log.models() == set()
    models = ["000001", "000002", "", "000002"]  # "": of another system
    log.append([replace(event(i, time=100.0 + i), model=model) for i, model in enumerate(models)])
    assert log.models() == {"000001", "000002"}
    assert log.forget(100.5) == 1
    assert log.models() == {"000002"}
    assert log.forget(1e9) == 3
    assert log.models() == set(), "whose settings are kept for their number"


def test_recent_decisions_come_newest_first(log: Log) -> None:
    events = [event(i) for i in range(10)]
    log.append(events)
    log.reward([Reward("event-9", arm(events[9], 1), 0.5, 3.0)])
    found = log.recent(3)
    assert [s.event.event_id for s in found] == ["event-9", "event-8", "event-7"]
    assert found[0].rewards[1] == 0.5
    assert log.recent(0) == []


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


def test_a_log_without_the_index_of_settings_gets_it_when_it_is_opened(tmp_path: Path) -> None:
    """Development versions made it while they deleted; now deletions change no table's shape."""
    path = tmp_path / "log.sqlite"

    def indices() -> set[str]:
        with contextlib.closing(sqlite3.connect(path)) as raw:
            return {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}

    open_log(path).close()
    assert "treetop_decisions_settings" in indices()
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.execute("DROP INDEX treetop_decisions_settings")
    with open_log(path) as log:
        assert "treetop_decisions_settings" in indices()
        log.append([event("visit-1", time=1.0)])
        with contextlib.closing(sqlite3.connect(path)) as raw:
            raw.execute("DROP INDEX treetop_decisions_settings")
        assert log.forget(2.0) == 1
        assert "treetop_decisions_settings" not in indices()
