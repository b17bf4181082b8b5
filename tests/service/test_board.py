"""What the dashboard shows, without a browser: percentiles, lines, totals that lag, logs that are away."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import named, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.log.series import Cell
from treetop.service.dashboard import board as boards
from treetop.service.dashboard import charts, totals, views
from treetop.service.dashboard.board import Watch
from treetop.service.dashboard.latency import Latencies, percentile
from treetop.service.metrics import SECONDS, Metrics
from treetop.service.service import Service
from treetop.service.tokens import Tokens

X, Y = topics()


@pytest.fixture
def bandit(tmp_path: Path) -> Iterator[Bandit]:
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y)) as opened:
        for i in range(30):
            shown = opened.decide(named(X, i), event_id=i)
            opened.reward(i, {shown.arms[0]: 1.0})
        yield opened


def cell(at: float, epoch: int, decisions: int, reward: float) -> Cell:
    return Cell(at, epoch, decisions, (2 * decisions, decisions), (decisions, 0), (reward, 0.0))


def test_percentiles_are_those_of_the_numbers() -> None:
    rng = np.random.default_rng(0)
    took = rng.gamma(2.0, 0.003, 5000)
    metrics = Metrics(list)
    looks = Latencies(SECONDS)
    metrics.answered("/v1/decide", 200, 9.0)  # before the first look: not of this hour
    looks.add(0.0, metrics.latency_counts("/v1/decide"))
    for seconds in took:
        metrics.answered("/v1/decide", 200, float(seconds))
        metrics.answered("/v1/reward", 200, 5.0)
    looks.add(10.0, metrics.latency_counts("/v1/decide"))
    looks.add(20.0, metrics.latency_counts("/v1/decide"))
    overall = looks.overall()
    assert overall is not None
    edges = np.array([0.0, *SECONDS])
    for share, found in zip((0.5, 0.9, 0.99), overall, strict=True):
        exact = float(np.quantile(took, share))
        bucket = int(np.searchsorted(edges, exact))
        assert edges[bucket - 1] <= found <= edges[bucket]
    assert looks.over_time() == [(10.0, overall), (20.0, None)]  # nobody asked in the second stretch
    assert Latencies(SECONDS).overall() is None
    assert percentile(0.99, [0, 0, 5], [1.0, 2.0]) == 2.0  # beyond the last bucket all that is known is its begin


def test_lines_have_few_points_the_right_means_and_no_bridge_over_silence() -> None:
    cells = (*(cell(float(t), t // 600, 10, 4.0) for t in range(1200)), cell(50_000.0, 7, 10, 9.0))
    made = charts.over_time(cells, 1.0, now=60_000.0)
    times, greedy, explored, epochs = made["reward"]
    assert len(times) == len(greedy) == len(explored) == len(epochs) <= charts.MAX_POINTS + 2
    assert times == sorted(times)
    assert greedy[0] == pytest.approx(0.4)
    assert greedy[-1] == pytest.approx(0.9)
    assert greedy[-2] is None
    assert epochs[-2:] == [epochs[-3], 7]
    assert set(explored) == {None}
    assert made["explored"][1][0] == pytest.approx(1 / 3)
    assert charts.by_epoch(cells)[7] == (10, 0.9, None)
    assert charts.over_time((), 1.0, 60_000.0)["reward"] == [[], [], [], []]


def test_a_stretch_that_is_not_over_is_left_out() -> None:
    cells = tuple(cell(float(t), 0, 10, 4.0) for t in range(5))
    assert charts.over_time(cells, 1.0, now=4.5)["reward"][0] == [0.0, 1.0, 2.0, 3.0]
    assert charts.over_time(cells, 1.0, now=5.0)["reward"][0] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert charts.over_time(cells[:1], 1.0, now=0.5)["reward"][0] == [0.0]  # better than nothing


def test_totals_that_lag_say_so_and_catch_up(bandit: Bandit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "SLICE", 7)
    monkeypatch.setattr(boards, "VISIT_SECONDS", 0.0)  # one slice a look
    monkeypatch.setattr(boards, "FRESH", 0.0)
    watch = Watch(Service(bandit, Tokens()))
    seen = []
    for _ in range(20):
        board = watch._fresh()
        assert board.logged is not None
        seen.append(board.logged.figures.counted)
        assert ("are behind" in views.updates(board, False)) == (seen[-1] < 60)
    assert seen[:3] == [7, 14, 21]
    assert seen[-1] == 60


def test_one_gathering_serves_all_who_look_at_once(bandit: Bandit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "FRESH", 60.0)
    watch = Watch(Service(bandit, Tokens()))
    first = watch._fresh()
    assert watch._fresh() is first
    bandit.refit()
    assert watch._fresh() is not first  # but a new model is seen at once


def test_a_log_that_is_away_and_a_refit_that_failed_are_told(bandit: Bandit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "FRESH", 0.0)
    watch = Watch(Service(bandit, Tokens()))
    bandit.folder.note("refit failed", error="no space left on <device>", seconds=0.5)
    page = views.page(watch._fresh(), True, False, False)
    assert "The refit failed once: no space left on &lt;device&gt;." in page
    bandit.log.close()
    page = views.page(watch._fresh(), True, False, False)
    assert "The log cannot be read" in page


def test_a_worker_that_is_not_responsible_forgets_what_nobody_looks_at(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, lent = totals.Totals(bandit.log), totals.Totals(bandit.log)
    monkeypatch.setattr(totals, "SAVE_INTERVAL", 0.0)
    kept.update(True, 1.0)  # counts and keeps
    bandit.decide(named(X, 0), event_id="later")
    assert lent.figures(60, 1.0).counted == 61
    assert lent._kept == 60  # it began where the other one stood
    monkeypatch.setattr(totals, "IDLE", 0.0)
    lent.update(False, 1.0)
    assert lent._series is None
