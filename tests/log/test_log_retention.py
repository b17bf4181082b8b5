"""What retention deletes from a log, and what it leaves."""

import contextlib
import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.logs import arm, event, joined

from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Reward


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
