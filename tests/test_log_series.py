"""Running totals for the dashboard are those of the whole log, however they were read; and old logs are migrated."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logs import check_whole, event, joined

from treetop.log import sample, schema, series
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Mark, Reward
from treetop.log.series import Series


def filled(place: str, n: int = 60) -> Log:
    log = open_log(place)
    events = [event(i, time=1000.0 + 20 * i, epoch=i // 25) for i in range(n)]
    for part in range(0, n, 20):
        log.append(events[part : part + 20])
        log.reward([Reward(e.event_id, int(e.arms[i % 3]), 0.5, 1.0) for i, e in enumerate(events[: part + 20 : 3])])
    return log


def expected(log: Log, bucket: float) -> dict[tuple[float, int], list[float]]:
    """The same by loops over all samples."""
    all_ = joined(log.samples(Mark("", log.counts().position, 0.0)))
    out: dict[tuple[float, int], list[float]] = {}
    for i in range(len(all_["times"])):
        cell = out.setdefault((all_["times"][i] // bucket * bucket, int(all_["epochs"][i])), [0.0] * 7)
        cell[0] += 1
        for s in range(3):
            how = int(all_["explored"][i, s])
            cell[1 + how] += 1
            if not np.isnan(all_["rewards"][i, s]):
                cell[3 + how] += 1
                cell[5 + how] += all_["rewards"][i, s]
    return out


def flat(totals: Series) -> dict[tuple[float, int], list[float]]:
    return {(c.time, c.epoch): [c.decisions, *c.slots, *c.observed, *c.reward] for c in totals.cells()}


@pytest.mark.parametrize("limit", [7, 1000])
def test_totals_are_those_of_the_whole_log(place: str, limit: int) -> None:
    with filled(place) as log:
        totals = Series(log, bucket=100.0)
        while not totals.update(limit):
            pass
        assert flat(totals) == expected(log, 100.0)
        all_ = joined(log.samples(Mark("", log.counts().position, 0.0)))
        assert np.array_equal(totals.exposure, np.bincount(all_["arms"].ravel()))
        assert totals.propensities.sum(axis=1).tolist() == [(~all_["explored"]).sum(), all_["explored"].sum()]


def test_totals_go_on_where_they_were_saved(place: str) -> None:
    with filled(place) as log:
        first = Series(log, bucket=100.0)
        first.update(50)
        first.save()
        log.append([event("more", time=5000.0)])
        second = Series(log)
        assert second.position == 50
        while not second.update(50):
            pass
        assert flat(second) == expected(log, 100.0)
        log.keep(series.NAME, b"not an archive")
        assert Series(log).position == 0


def test_many_cells_become_longer_buckets(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "CELLS", 10)
    with filled(place) as log:
        totals = Series(log, bucket=20.0)
        totals.update()
        assert len(totals.cells()) <= 10
        assert totals.bucket == 160.0
        assert flat(totals) == expected(log, 160.0)


def test_coverage_counts_arms_and_inequality(place: str) -> None:
    with open_log(place) as log:
        assert Series(log).coverage(10) == (0, 0.0)
        log.append([event(i, k=2, arms=np.array([0, 1], np.int32)) for i in range(3)])
        totals = Series(log)
        totals.update()
        assert totals.coverage(2) == (2, 0.0)
        shown, gini = totals.coverage(4)
        assert shown == 2
        assert gini == pytest.approx(0.5)


def version(db: Any) -> int:
    return int(db.execute("SELECT version FROM treetop_schema").fetchone()[0])


def test_a_file_of_version_1_is_brought_forward(tmp_path: Path) -> None:
    place = tmp_path / "old.sqlite"
    with sqlite3.connect(place) as db:
        db.executescript((Path(__file__).parent / "data" / "log-v1.sql").read_text())
        assert version(db) == 1
    db.close()
    with open_log(place) as log:
        check_whole(log)
        (mark,) = log.marks()
        assert (mark.name, mark.time) == ("first", 1150.0)
        (chunk,) = log.samples(mark)
        assert chunk.rewards[0, 1] == 0.75
        assert np.isnan(chunk.rewards[1]).all()
        assert log.counts().late == 1
        found = log.eligible_set("f")
        assert found is not None
        assert found.tolist() == [0, 1, 2, 3, 4]
        old = event(0, k=2, time=1000.0)
        assert log.append([old])[0] is not old
        log.append([event("new")])
        log.keep("note", b"kept")
    with sqlite3.connect(place) as db:
        assert version(db) == len(schema.VERSIONS)
    db.close()


def test_every_kind_of_log_is_brought_forward_step_by_step(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = schema.VERSIONS
    for known in range(1, len(newest) + 1):
        monkeypatch.setattr(schema, "VERSIONS", newest[:known])
        with open_log(place) as log:
            log.append([event(known)])
            assert log.counts().decisions == known
    monkeypatch.setattr(schema, "VERSIONS", [*newest, "CREATE TABLE treetop_state (position {int})"])
    with pytest.raises(OSError, match="treetop_state"):  # a step that fails leaves the log as it was
        open_log(place)
    monkeypatch.setattr(schema, "VERSIONS", newest)
    with open_log(place) as log:
        log.keep("note", b"kept")
        assert log.kept("note") == b"kept"
        assert log.counts().decisions == len(newest)


def test_what_is_new_is_found_without_reading_what_is_old(tmp_path: Path) -> None:
    """The cost of an update must not grow with the log: SQLite once chose to walk through all older decisions."""
    place = str(tmp_path / "log.sqlite")
    filled(place).close()
    with sqlite3.connect(place) as db:
        plan = db.execute(f"EXPLAIN QUERY PLAN {sample.NEWER_REWARDS}", (50, 60)).fetchall()
    db.close()
    assert [row[3] for row in plan] == [
        "SEARCH treetop_rewards USING COVERING INDEX treetop_rewards_position (position>? AND position<?)"
    ]
