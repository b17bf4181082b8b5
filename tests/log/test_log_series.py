"""Running totals for the dashboard are those of the whole log, however they were read."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from helpers.logs import event, joined

from treetop.log import sample, series
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Mark, Reward
from treetop.log.series import LogSeries


def filled(place: str, n: int = 60) -> Log:
    log = open_log(place)
    events = [event(i, time=1000.0 + 20 * i, model_epoch=i // 25) for i in range(n)]
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


def flat(totals: LogSeries) -> dict[tuple[float, int], list[float]]:
    return {(c.time, c.epoch): [c.decisions, *c.slots, *c.observed, *c.reward] for c in totals.cells()}


@pytest.mark.parametrize("limit", [7, 1000])
def test_totals_are_those_of_the_whole_log(place: str, limit: int) -> None:
    with filled(place) as log:
        totals = LogSeries(log, bucket=100.0)
        while not totals.update(limit):
            pass
        assert flat(totals) == expected(log, 100.0)
        all_ = joined(log.samples(Mark("", log.counts().position, 0.0)))
        assert np.array_equal(totals.exposure, np.bincount(all_["arms"].ravel()))
        assert totals.propensities.sum(axis=1).tolist() == [(~all_["explored"]).sum(), all_["explored"].sum()]


def test_totals_go_on_where_they_were_saved(place: str) -> None:
    with filled(place) as log:
        first = LogSeries(log, bucket=100.0)
        first.update(50)
        first.save()
        log.append([event("more", time=5000.0)])
        second = LogSeries(log)
        assert second.position == 50
        while not second.update(50):
            pass
        assert flat(second) == expected(log, 100.0)
        log.keep(series.NAME, b"not an archive")
        assert LogSeries(log).position == 0


def test_many_cells_become_longer_buckets(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "CELLS", 10)
    with filled(place) as log:
        totals = LogSeries(log, bucket=20.0)
        totals.update()
        assert len(totals.cells()) <= 10
        assert totals.bucket == 160.0
        assert flat(totals) == expected(log, 160.0)


def test_coverage_counts_arms_and_inequality(place: str) -> None:
    with open_log(place) as log:
        assert LogSeries(log).coverage(10) == (0, 0.0)
        log.append([event(i, k=2, arms=np.array([0, 1], np.int32)) for i in range(3)])
        totals = LogSeries(log)
        totals.update()
        assert totals.coverage(2) == (2, 0.0)
        shown, gini = totals.coverage(4)
        assert shown == 2
        assert gini == pytest.approx(0.5)


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
