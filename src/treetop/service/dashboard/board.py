"""All the data of the dashboard at one moment. Visitors within a second share one `Board`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from treetop.bandit.config import Config
from treetop.bandit.snapshot import Snapshot
from treetop.log.records import Counts, StoredEvent
from treetop.service import logs
from treetop.service.dashboard.latency import Latencies, Percentiles
from treetop.service.dashboard.totals import Figures, Totals
from treetop.service.metrics import SECONDS
from treetop.service.refit_scheduler import RefitState
from treetop.service.service import Service

FRESH = 1.0  # seconds that a board is shared
TICK = 10.0  # seconds between two readings of the latencies
VISIT_SECONDS, TICK_SECONDS = 0.15, 0.5  # spent on counting for a visit, and in a tick
RECENT, EVENTS, KEPT = 6, 12, 12  # decisions, entries of the history and models that are shown


@dataclass(frozen=True, eq=False)
class LogData:
    """What the dashboard shows of the log."""

    counts: Counts
    figures: Figures
    recent: list[StoredEvent]


@dataclass(frozen=True, eq=False)
class Board:
    """The data of one page. `logged` is None while the log cannot be read."""

    folder: str
    config: Config
    snapshot: Snapshot
    logged: LogData | None
    latency: Percentiles | None
    latencies: list[tuple[float, Percentiles | None]]
    refits: RefitState
    seen: int  # observed rounds that the last refit saw
    models: list[str]
    history: list[dict[str, Any]]


class Watch:
    """Makes boards, and keeps the totals up to date while nobody visits."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._totals = Totals(service.bandit.log)
        self._latencies = Latencies(SECONDS)
        self._lock = threading.Lock()
        self._board: tuple[float, Board] | None = None
        self._task: asyncio.Task[None] | None = None

    async def board(self) -> Board:
        return await asyncio.to_thread(self._fresh)

    def _fresh(self) -> Board:
        with self._lock:
            now, snapshot = time.monotonic(), self.service.bandit.snapshot
            if self._board is None or now - self._board[0] >= FRESH or self._board[1].snapshot is not snapshot:
                self._board = time.monotonic(), self._new()
            return self._board[1]

    def _new(self) -> Board:
        bandit, snapshot = self.service.bandit, self.service.bandit.snapshot
        folder = bandit.folder
        return Board(
            folder=folder.path.resolve().name,
            config=bandit.config,
            snapshot=snapshot,
            logged=self._log_data(len(snapshot.arms)),
            latency=self._latencies.overall(),
            latencies=self._latencies.over_time(),
            refits=self.service.refits.state(),
            seen=folder.state().refit_observed,
            models=folder.models()[-KEPT:],
            history=folder.recent_history(EVENTS),
        )

    def _log_data(self, arms: int) -> LogData | None:
        log = self.service.bandit.log
        with contextlib.suppress(OSError):
            return LogData(log.counts(), self._totals.figures(arms, VISIT_SECONDS), log.recent(RECENT))
        return None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Saves the totals for the next start. If the log cannot be written, they are counted again then."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.service.refits.keeps_schedule:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._totals.finish, TICK_SECONDS)

    async def _run(self) -> None:
        failed = ""
        while True:
            try:
                await asyncio.to_thread(self._tick)
                failed = ""
            except Exception as error:  # the log may be gone; the next tick tries again
                if str(error) != failed:
                    logs.log_event("the totals could not be counted", logging.WARNING, why=str(error))
                failed = str(error)
            await asyncio.sleep(TICK)

    def _tick(self) -> None:
        self._latencies.add(time.time(), self.service.metrics.latency_counts("/v1/decide"))
        self._totals.update(self.service.refits.keeps_schedule, TICK_SECONDS)
