"""Running totals of the log for the dashboard, updated in slices of bounded time. Knows no HTML.

The worker that keeps the refit schedule goes on counting while nobody visits and saves the totals in the log; the other
workers start from there when they get a visit.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np

from treetop.arrays import Int64s
from treetop.log.base import Log
from treetop.log.series import Cell, LogSeries

BUCKET = 1.0  # seconds; the series makes them longer as the log grows
SLICE = 2000  # entries read between two looks at the clock
SAVE_INTERVAL = 300.0  # seconds between two savings of the totals in the log
IDLE = 60.0  # seconds without a visit after which a worker drops its totals
COVERAGE_INTERVAL = 5.0  # seconds between two computations of the coverage, which sorts all arms ever shown
TOP = 5  # arms shown most


@dataclass(frozen=True, eq=False)
class Coverage:
    shown: int
    gini: float
    top: tuple[tuple[int, int], ...]  # (arm, times shown), most first


@dataclass(frozen=True, eq=False)
class Figures:
    """The totals; they count `counted` of the log's `newest` entries."""

    counted: int
    newest: int
    cells: tuple[Cell, ...]
    bucket: float
    propensities: Int64s
    coverage: Coverage


class Totals:
    """The totals of one log. Thread-safe."""

    def __init__(self, log: Log) -> None:
        self._log, self._lock = log, threading.Lock()
        self._series: LogSeries | None = None
        self._coverage, self._covered = Coverage(0, 0.0, ()), -COVERAGE_INTERVAL
        self._looked = self._saved = time.monotonic()
        self._kept = 0

    def figures(self, arms: int, seconds: float) -> Figures:
        """The totals, as far as they can be counted in so many seconds."""
        with self._lock:
            self._looked = time.monotonic()
            series, all_of_it = self._counted(seconds)
            if self._looked - self._covered >= COVERAGE_INTERVAL:
                shown, gini = series.coverage(arms)
                self._coverage = Coverage(shown, gini, _most(series.exposure))
                self._covered = self._looked
            newest = series.position if all_of_it else self._log.counts().position
            cells, propensities = tuple(series.cells()), series.propensities.copy()
            return Figures(series.position, newest, cells, series.bucket, propensities, self._coverage)

    def update(self, responsible: bool, seconds: float) -> None:
        """Called between visits. A responsible worker counts on and saves the totals; another one drops them."""
        with self._lock:
            now = time.monotonic()
            if responsible:
                self._counted(seconds)
                if now - self._saved >= SAVE_INTERVAL:
                    self._save(now)
            elif now - self._looked >= IDLE:
                self._series = None

    def finish(self, seconds: float) -> None:
        """Counts for so many seconds and saves the totals for the next process."""
        with self._lock:
            self._counted(seconds)
            self._save(time.monotonic())

    def _counted(self, seconds: float) -> tuple[LogSeries, bool]:
        """The series, and whether it reached the end of the log."""
        until = time.monotonic() + seconds
        if self._series is None:
            self._series = LogSeries(self._log, BUCKET)
            self._kept = self._series.position
        while not (done := self._series.update(SLICE)) and time.monotonic() < until:
            pass
        return self._series, done

    def _save(self, now: float) -> None:
        if self._series is not None and self._series.position > self._kept:
            self._series.save()
            self._kept = self._series.position
        self._saved = now


def _most(exposure: Int64s) -> tuple[tuple[int, int], ...]:
    count = min(TOP, int((exposure > 0).sum()))
    best = np.argpartition(-exposure, count - 1)[:count] if count else np.zeros(0, np.int64)
    return tuple(sorted(((int(arm), int(exposure[arm])) for arm in best), key=lambda entry: (-entry[1], entry[0])))
