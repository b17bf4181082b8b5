"""All the data of a page, made in the dashboard's process from the log, the folder and requests.jsonl."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treetop.bandit.attributes import CATEGORY_NAME, AttributeTable, Column
from treetop.bandit.experiment_config import Experiment
from treetop.bandit.folder import LOG, BanditFolder
from treetop.bandit.live_experiment import ExperimentResult, LiveExperiment, find_experiment
from treetop.bandit.new_arms import Cohort, NewArms
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Counts, StoredEvent
from treetop.log.series import LogSeries
from treetop.log.series_file import load_series, save_series
from treetop.log.timeline import Stretch
from treetop.log.visit_totals import VisitTotals
from treetop.service.dashboard.arms import ArmPage, ArmTable, Names
from treetop.service.dashboard.categories import CategoryRow, by_category
from treetop.service.dashboard.messages import ServiceState
from treetop.service.dashboard.query import Query
from treetop.service.dashboard.requests import RequestSeries, RequestTotals
from treetop.tree.categories import category_path

TOTALS = "dashboard.npz"  # in the bandit's folder
SLICE = 4000  # entries of the log that are counted between two pages
RECENT, EVENTS, KEPT, WHY = 6, 200, 12, 5  # decisions, entries of the history, models, decisions that showed an arm
COHORTS = 5  # of arms that were added
REST = 20  # times as long as it took to make, a table of arms is shown again


@dataclass(frozen=True, eq=False)
class LogData:
    """What a page shows of the log; `counted` of its entries are in the totals."""

    counts: Counts
    counted: int
    stretches: list[Stretch[VisitTotals]]
    total: VisitTotals
    recent: list[StoredEvent]
    arms: ArmPage
    shown_by: list[StoredEvent]  # decisions that showed the query's arm
    cohorts: list[Cohort]  # of the arms that were added


@dataclass(frozen=True, eq=False)
class Board:
    """The data of one page. `logged` is None while the log cannot be read."""

    service: ServiceState
    query: Query
    admin: bool
    done: bool  # whether a form of the page was just carried out
    now: float
    names: Names
    logged: LogData | None
    requests: list[Stretch[RequestTotals]]
    request_total: RequestTotals
    models: list[str]
    history: list[dict[str, Any]]
    aside: dict[str, str] = field(default_factory=dict)  # models that the gate refused, and why
    experiment: Experiment | None = None  # that runs, or the last
    result: ExperimentResult | None = None
    categories: list[CategoryRow] = field(default_factory=list)
    category_column: Column | None = None

    def category(self, arm: int) -> str:
        """An arm's category as people read it; empty if it has none."""
        return "" if self.category_column is None else str(self.category_column.value(arm) or "")

    @property
    def bounds(self) -> tuple[float, float]:
        return self.query.bounds(self.now)


class Boards:
    """Counts what is new and makes boards. Not thread-safe."""

    def __init__(self, folder: Path, log: str | None) -> None:
        self.folder, self._where = BanditFolder(folder), log or folder / LOG
        self._log: Log | None = None
        self._series: LogSeries | None = None
        self._saved = 0  # position of the totals in the file
        self._requests = RequestSeries(folder)
        self._names, self._catalogue = Names(self.folder.arm_index(self.folder.state())), -1
        self._new_arms, self._newest, self._counted = NewArms(), list[Cohort](), 0.0
        self._table: tuple[float, Query, ArmTable] | None = None  # until when it is shown, and for which range
        self._live: LiveExperiment | None = None
        self._attributes = AttributeTable()

    def count(self) -> bool:
        """Counts a slice of what is new; returns whether that was all."""
        self._requests.update()
        series = self._opened()
        read = self._live is None or self._live.update(SLICE)
        return series.update(SLICE) and read

    def save(self) -> None:
        """Stores the totals for the next process."""
        series = self._series
        if series is not None and series.position > self._saved:
            save_series(series, self.folder.path / TOTALS)
            self._saved = series.position

    def close(self) -> None:
        """Stores the totals and closes the log."""
        self._requests.close()
        try:
            self.save()
        finally:
            if self._log is not None:
                self._log.close()

    def board(self, service: ServiceState, query: Query, admin: bool = False, done: bool = False) -> Board:
        now, state = time.time(), self.folder.state()
        if state.catalogue != self._catalogue:
            self._names, self._catalogue = Names(self.folder.arm_index(state)), state.catalogue
            self._table = None
        self._requests.update()
        bounds = query.bounds(now)
        self._attributes = self.folder.attributes(state.attributes, self._attributes)
        experiment, result = self._experiment(service)
        return Board(
            service=service,
            query=query,
            admin=admin,
            done=done,
            now=now,
            names=self._names,
            logged=self._log_data(query, bounds),
            requests=self._requests.timeline.between(*bounds),
            request_total=self._requests.total(*bounds),
            models=self.folder.models()[-KEPT:],
            history=self.folder.recent_history(EVENTS),
            aside={name: origin.aside for name, origin in state.models.items() if origin.aside},
            experiment=experiment,
            result=result,
            categories=self._categories(query, bounds),
            category_column=self._attributes.columns.get(CATEGORY_NAME),
        )

    def _experiment(self, service: ServiceState) -> tuple[Experiment | None, ExperimentResult | None]:
        """The experiment that runs, or the last, and how it goes by what was read of the log so far."""
        found = find_experiment(self.folder)
        if found is None or self._log is None:
            return None, None
        if self._live is None or self._live.experiment != found[0]:
            self._live = LiveExperiment(self._log, found[0])
        with contextlib.suppress(OSError):
            self._live.update(SLICE)
        return found[0], self._live.result(found[1], service.reward_wait)

    def _categories(self, query: Query, bounds: tuple[float, float]) -> list[CategoryRow]:
        column = self._attributes.columns.get(CATEGORY_NAME)
        if column is None or self._series is None:
            return []
        return by_category(self._arm_table(self._series, query, bounds).counts, column, category_path(query.category))

    def _opened(self) -> LogSeries:
        if self._log is None:
            self._log = open_log(self._where)
        if self._series is None:
            self._series = load_series(self._log, self.folder.path / TOTALS)
            self._saved = self._series.position
        return self._series

    def _log_data(self, query: Query, bounds: tuple[float, float]) -> LogData | None:
        with contextlib.suppress(OSError):
            series = self._opened()
            counts = series.log.counts()
            if series.position < counts.position:
                series.update(SLICE)  # so that a page has what was decided just before it was asked for
            stretches = series.visits.between(*bounds)
            recent = [e for e in series.log.recent(RECENT, bounds[1]) if e.event.time >= bounds[0]]
            return LogData(
                counts=counts,
                counted=series.position,
                stretches=stretches,
                total=series.total(*bounds),
                recent=recent,
                arms=self._arm_table(series, query, bounds).page(query),
                shown_by=self._shown_by(series, query, bounds),
                cohorts=self._cohorts(series.log),
            )
        return None

    def _cohorts(self, log: Log) -> list[Cohort]:
        """The arms that were added lately; counted again after a while, as a table of arms is."""
        if time.monotonic() > self._counted:
            began, arms = time.monotonic(), self._names.index
            self._new_arms.update(log, arms, self.folder.history())
            self._counted = time.monotonic() + REST * (time.monotonic() - began)
            self._newest = self._new_arms.cohorts(arms)[:COHORTS]
        return self._newest

    def _arm_table(self, series: LogSeries, query: Query, bounds: tuple[float, float]) -> ArmTable:
        """The table of a range. One that took long to make is shown for a while, so that pages stay a small load."""
        key, began = Query(query.range, query.begin, query.end), time.monotonic()
        if self._table is None or self._table[1] != key or began > self._table[0]:
            stretches = series.arms.between(*bounds)
            begin, end = (stretches[0].begin, stretches[-1].end) if stretches else (math.nan, math.nan)
            made = ArmTable(series.arm_table(*bounds), self._names, begin, min(end, time.time()))
            ended = time.monotonic()
            self._table = ended + REST * (ended - began), key, made
        return self._table[2]

    def _shown_by(self, series: LogSeries, query: Query, bounds: tuple[float, float]) -> list[StoredEvent]:
        if query.arm is None:
            return []
        return series.log.events_at(series.decisions_with(query.arm, *bounds, WHY))
