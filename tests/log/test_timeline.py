"""Stretches of time never overlap, lose nothing, and are as long as their age allows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from treetop.log.timeline import Timeline

NOW = 1_700_000_000


@dataclass
class Count:
    count: int = 0

    def absorb(self, other: Count) -> None:
        self.count += other.count


def add(line: Timeline[Count], times: np.ndarray) -> None:
    sums, which = line.at(times)
    for i in which.tolist():
        sums[i].count += 1


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_and_nothing_overlaps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    line = Timeline(Count, 1, 10)
    total = 0
    for now in np.sort(NOW + rng.integers(0, 10**7, 20)):
        line.advance(int(now))
        times = now - 10 ** rng.uniform(0, 7, 200)  # some old, most recent, in any order
        add(line, times)
        total += len(times)
        stretches = list(line)
        assert sum(s.sums.count for s in stretches) == total
        assert all(a.end <= b.begin for a, b in pairwise(stretches))
        for s in stretches:
            length = s.end - s.begin
            assert s.begin % length == 0
            assert length == 1 or now - s.end >= 10 * length  # never longer than its age allows
            twice = s.begin // (2 * length) * 2 * length
            assert now - (twice + 2 * length) < 20 * length  # nor shorter than it must be
    assert len(line) < 10 * 30


def test_a_range_takes_the_stretches_that_lie_in_it_for_the_most_part() -> None:
    line = Timeline(Count, 1, 100)
    line.advance(NOW)
    add(line, NOW - np.arange(1.0, 40_000.0, 0.5))
    for seconds in (60, 1000, 3600, 20_000):
        found = sum(s.sums.count for s in line.between(NOW - seconds, NOW + 1))
        assert found == pytest.approx(2 * seconds, rel=0.02)
    assert line.between(NOW + 10, NOW + 20) == []
    inside = line.between(NOW - 30_000.5, NOW - 30_000)  # shorter than a stretch
    assert len(inside) == 1
    assert line.between(-np.inf, np.inf) == list(line)


def test_coarser_is_fewer_until_there_is_one() -> None:
    line = Timeline(Count, 1, 64)
    line.advance(NOW)
    add(line, NOW - np.arange(1.0, 5000.0))
    count = len(line)
    while len(line) > 1:
        line.coarsen()
        assert len(line) <= count
        count = len(line)
        assert sum(s.sums.count for s in line) == 4999
    add(line, np.array([NOW - 4000.0, NOW + 10.0]))  # the future counts as now
    assert sum(s.sums.count for s in line) == 5001
    line.advance(NOW + 10**6)
    assert sum(s.sums.count for s in line) == 5001
    assert sum(s.sums.count for s in line.between(-np.inf, NOW + 10**6)) == 5001


@pytest.mark.parametrize("when", [-1e15, -1.0, 0.0, 1e15])
def test_any_time_has_a_place(when: float) -> None:
    line = Timeline(Count, 10, 64)
    line.advance(NOW)
    add(line, np.array([when]))
    assert [s.sums.count for s in line] == [1]
