"""Everything that the page shows, gathered at one moment. One gathering serves all who look within a second."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from treetop.bandit.config import Config
from treetop.bandit.snapshot import Live
from treetop.log.records import Counts, Stored
from treetop.service import logs
from treetop.service.dashboard.latency import Latencies, Percentiles
from treetop.service.dashboard.totals import Figures, Totals
from treetop.service.metrics import SECONDS
from treetop.service.refit_scheduler import RefitState
from treetop.service.service import Service

FRESH = 1.0  # seconds that a gathering is good for
TICK = 10.0  # seconds between two looks at the latencies
WATCHED, UNWATCHED = 0.15, 0.5  # seconds of counting for a look, and in a tick
RECENT, EVENTS, KEPT = 6, 12, 12  # decisions, entries of the history, models


@dataclass(frozen=True, eq=False)
class Logged:
    """What the log says."""

    counts: Counts
    figures: Figures
    recent: list[Stored]


@dataclass(frozen=True, eq=False)
class Board:
    """`logged` is None while the log cannot be read."""

    folder: str
    config: Config
    live: Live
    logged: Logged | None
    latency: Percentiles | None
    latencies: list[tuple[float, Percentiles | None]]
    refits: RefitState
    seen: int  # observed rounds that the last refit saw
    models: list[str]
    history: list[dict[str, Any]]


class Watch:
    """Gathers boards, and goes on counting while nobody looks."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._totals = Totals(service.bandit.log)
        self._latencies = Latencies(SECONDS)
        self._lock = threading.Lock()
        self._board: tuple[float, Board] | None = None
        self._task: asyncio.Task[None] | None = None

    async def board(self) -> Board:
        return await asyncio.to_thread(self._gathered)

    def _gathered(self) -> Board:
        with self._lock:
            now = time.monotonic()
            if self._board is None or now - self._board[0] >= FRESH or self._board[1].live is not self._live():
                self._board = time.monotonic(), self._new()
            return self._board[1]

    def _live(self) -> Live:
        return self.service.bandit.live

    def _new(self) -> Board:
        bandit, live = self.service.bandit, self._live()
        home = bandit.home
        return Board(
            home.path.resolve().name, bandit.config, live, self._logged(len(live.catalogue)),
            self._latencies.overall(), self._latencies.over_time(), self.service.refits.state(),
            home.state().refit_observed, home.models()[-KEPT:], home.latest(EVENTS),
        )  # fmt: skip

    def _logged(self, arms: int) -> Logged | None:
        log = self.service.bandit.log
        with contextlib.suppress(OSError):
            return Logged(log.counts(), self._totals.figures(arms, WATCHED), log.recent(RECENT))
        return None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Keeps the totals for the next start. A log that is away costs only counting anew."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.service.refits.keeps_schedule:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._totals.finish, UNWATCHED)

    async def _run(self) -> None:
        failed = ""
        while True:
            try:
                await asyncio.to_thread(self._tick)
                failed = ""
            except Exception as error:  # the log may be away; the next tick comes
                if str(error) != failed:
                    logs.say("the totals could not be counted", 30, why=str(error))
                failed = str(error)
            await asyncio.sleep(TICK)

    def _tick(self) -> None:
        self._latencies.look(time.time(), self.service.metrics.spread("/v1/decide"))
        self._totals.tend(self.service.refits.keeps_schedule, UNWATCHED)
