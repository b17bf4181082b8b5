"""The parts of the dashboard by themselves: percentiles, lines, tables of arms, addresses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetop.bandit.arm_index import ArmIndex
from treetop.log.arm_counts import ARM
from treetop.log.timeline import Stretch
from treetop.log.visit_totals import OTHERS, VisitTotals
from treetop.service.dashboard import charts, requests
from treetop.service.dashboard.arms import PAGE, ArmTable, Names
from treetop.service.dashboard.latency import percentile, percentiles
from treetop.service.dashboard.query import Query
from treetop.service.dashboard.requests import Recorder, RequestSeries
from treetop.service.metrics import SECONDS, Metrics


def cells(epoch: int, k: int, visits: int, reward: float) -> VisitTotals:
    """Half of the visits have a reward; of k slots one is explored."""
    row = np.array([visits, visits, visits * (k - 1), visits, visits / 2, visits / 2, reward, 0, visits, reward, 0, 0])
    return VisitTotals({(epoch, k): row})


def stretch(begin: int, length: int, totals: VisitTotals) -> Stretch[VisitTotals]:
    return Stretch(begin, begin + length, totals)


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
