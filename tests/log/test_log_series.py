"""Running totals for the dashboard are those of the whole log, however they were read."""

import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.logs import event, joined

from treetop.log import sample, series, series_file, visit_totals
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Mark, Reward
from treetop.log.series import LogSeries
from treetop.log.series_file import load_series, save_series
from treetop.log.visit_totals import EDGES, OTHERS, VisitTotals

START = 1_700_000_000.0


def filled(place: str, n: int = 60) -> Log:
    """Decisions of three models and two numbers of slots, 20 s apart; a third of the draws leave no choice."""
    log = open_log(place)
    events = [event(i, k=3 + i % 2, time=START + 20 * i, model_epoch=i // 25) for i in range(n)]
    for e in events:
        e.propensities[e.propensities > 2 / 3] = 1.0
    for part in range(0, n, 20):
        log.append(events[part : part + 20])
        log.reward([Reward(e.event_id, int(e.arms[i % 3]), 0.5, 1.0) for i, e in enumerate(events[: part + 20 : 3])])
    return log


def counted(log: Log, limit: int = 1000) -> LogSeries:
    made = LogSeries(log)
    while not made.update(limit):
        pass
    return made


def all_of(log: Log) -> dict[str, np.ndarray]:
    return joined(log.samples(Mark("", log.counts().position, 0.0)))


def by_loops(log: Log) -> dict[tuple[int, int], list[float]]:
    """The totals of each model and number of slots, by loops over all samples."""
    all_ = all_of(log)
    out: dict[tuple[int, int], list[float]] = {}
    for i in range(len(all_["times"])):
        slots = [s for s in range(4) if all_["arms"][i, s] >= 0]
        row = out.setdefault((int(all_["epochs"][i]), len(slots)), [0.0] * 8)
        row[0] += 1
        for s in slots:
            drawn = bool(all_["explored"][i, s])
            explored = drawn and all_["propensities"][i, s] <= 0.5
            row[1] += drawn and all_["propensities"][i, s] < 1
            row[2 + explored] += 1
            if not np.isnan(all_["rewards"][i, s]):
                row[4 + explored] += 1
                row[6 + explored] += all_["rewards"][i, s]
    return out


def flat(totals: VisitTotals) -> dict[tuple[int, int], list[float]]:
    return {
        (c.epoch, c.k): [c.visits, c.drawn, *c.slots, *c.observed, *(float(r) for r in c.reward)]
        for c in totals.cells()
    }


@pytest.mark.parametrize("limit", [7, 1000])
def test_totals_are_those_of_the_whole_log(place: str, limit: int) -> None:
    with filled(place) as log:
        made, all_ = counted(log, limit), all_of(log)
        total = made.total(0, 2 * START)
        assert flat(total) == by_loops(log)
        explored = all_["explored"] & (all_["propensities"] <= 0.5)
        real = all_["arms"] >= 0
        for how, slots in enumerate((real & ~explored, real & explored)):
            assert total.propensities[how].tolist() == np.histogram(all_["propensities"][slots], EDGES)[0].tolist()
        table = made.arm_table(0, 2 * START)
        known = ~np.isnan(all_["rewards"])
        assert table["arm"].tolist() == np.unique(all_["arms"][real]).tolist()
        for row in table:
            mine = all_["arms"] == row["arm"]
            assert row["impressions"] == mine.sum()
            assert row["unlikely"] == (mine & explored).sum()
            assert row["observed"] == (mine & known).sum()
            assert row["reward"] == pytest.approx(np.nansum(all_["rewards"][mine]))
            assert row["last"] == all_["positions"][mine.any(axis=1)].max()


def test_a_range_has_the_decisions_of_its_time(place: str) -> None:
    with filled(place) as log:
        now = time.time()
        log.append([event(f"now {i}", time=now - i) for i in range(100)])
        made = counted(log)
        assert sum(c.visits for c in made.total(now - 49.5, now + 1).cells()) == pytest.approx(50, abs=1)
        assert made.total(0, START - 10**8).cells() == []
        before = made.decisions_with(int(log.event("now 70").event.arms[0]), now - 80, now - 60, 5)  # type: ignore[union-attr]
        assert log.event("now 70").position in before  # type: ignore[union-attr]


def test_decisions_that_showed_an_arm_are_found_long_after(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "NEWEST", 5)
    with filled(place) as log:
        made = counted(log, 7)
        all_ = all_of(log)
        for arm in all_["arms"][0, :3].tolist():
            shown = all_["positions"][(all_["arms"] == arm).any(axis=1)]
            found = made.decisions_with(arm, 0, 2 * START, 3)
            assert found
            assert found[0] == shown.max()
            assert set(found) <= set(shown.tolist())
        newest = all_["positions"][-3:]
        assert [stored.position for stored in log.events_at(newest.tolist())] == newest[::-1].tolist()
        assert made.decisions_with(10**6, 0, 2 * START, 3) == []


def test_totals_go_on_where_they_were_saved(place: str, tmp_path: Path) -> None:
    file = tmp_path / "totals.npz"
    with filled(place) as log:
        assert load_series(log, file).position == 0
        first = LogSeries(log)
        first.update(50)
        save_series(first, file)
        log.append([event("more", time=START + 5000)])
        second = load_series(log, file)
        assert second.position == 50
        while not second.update(50):
            pass
        assert flat(second.total(0, 2 * START)) == by_loops(log)
        assert second.arm_table(0, 2 * START).tobytes() == counted(log).arm_table(0, 2 * START).tobytes()
        log.keep(series_file.NAME, b"of another log")
        assert load_series(log, file).position == 0
        file.write_bytes(b"not an archive")
        assert load_series(log, file).position == 0


def test_totals_of_more_than_the_log_holds_are_not_taken(tmp_path: Path) -> None:
    """A log that was restored from a backup has the same tag, and other decisions at the same positions."""
    place, file = str(tmp_path / "log.sqlite"), tmp_path / "totals.npz"
    with filled(place) as log:
        save_series(LogSeries(log), file)  # the tag is in the backup
        log.append([event("one", time=START + 5000)])
        save_series(counted(log), file)
        assert load_series(log, file).position > 0
    with sqlite3.connect(place) as db:
        db.execute("UPDATE treetop_decisions SET time = time + 1 WHERE event_id = 'one'")
    db.close()
    with open_log(place) as log:
        assert load_series(log, file).position == 0


def test_arms_that_exploration_found_and_what_they_brought(tmp_path: Path) -> None:
    """An arm is found by the slot that brought its first reward; what it brings later counts, however it is shown."""
    with open_log(tmp_path / "log.sqlite") as log:
        shown = [([1, 2], [0, 1]), ([2, 1], [0, 0]), ([3, 4], [0, 1]), ([4, 3], [0, 1]), ([2, 4], [0, 0])]
        values = [[1.0, 1.0], [0.5, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
        for i, (arms, explored) in enumerate(shown):
            made = event(i, k=2, time=START + i, model_epoch=0)
            made.arms[:], made.explored[:], made.propensities[:] = arms, explored, 0.25
            log.append([made])
            log.reward([Reward(made.event_id, arm, v, 1.0) for arm, v in zip(arms, values[i], strict=True)])
        for limit in (2, 1000):
            made_totals = counted(log, limit)
            (cell,) = made_totals.total(0, 2 * START).cells()
            assert (cell.found_arms, cell.found_reward) == (2, 1.0 + 0.5 + 1.0 + 1.0)  # arms 2 and 3
            assert made_totals.found_by.tolist() == [0, 1, 2, 2, 1]
        save_series(made_totals, tmp_path / "totals.npz")
        assert load_series(log, tmp_path / "totals.npz").found_by.tolist() == [0, 1, 2, 2, 1]


def test_many_models_and_numbers_of_slots_are_counted_together() -> None:
    totals = VisitTotals()
    row = np.ones(visit_totals.COLUMNS)
    for i in range(40):
        totals.add(i, 100 - i, row * (i + 1))
    assert len(totals.rows) <= (visit_totals.GROUPS + 1) ** 2
    assert sum(cell.visits for cell in totals.cells()) == 40 * 41 / 2
    assert {OTHERS, 39} <= {cell.epoch for cell in totals.cells()}
    assert {OTHERS, 61} <= {cell.k for cell in totals.cells()}


def test_the_rows_of_arms_are_bounded(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(place, 600) as log:
        exact = counted(log).arm_table(0, 2 * START)
        monkeypatch.setattr(series, "ARM_ROWS", len(exact) + 10)
        made = counted(log, 50)
        assert sum(stretch.sums.size for stretch in made.arms) <= 1.5 * series.ARM_ROWS
        assert made.arms.detail < series.ARM_DETAIL
        assert made.arm_table(0, 2 * START).tobytes() == exact.tobytes()


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
