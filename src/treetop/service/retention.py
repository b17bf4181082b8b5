"""Deletes decisions older than `keep_days`, from the log and then from segments: when the service starts, and then
every hour, in small steps.

Deleting goes by the wall clock, and a wrong clock would delete what must be kept. So it is refused if the clock has
jumped ahead since the last run, and if even the newest decision looks too old. A refusal lasts, whatever starts again,
until somebody has looked at it and runs `treetop forget`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime, timezone

from treetop.bandit.bandit import Bandit
from treetop.bandit.forgetting import sum_up_before
from treetop.bandit.retention import DAY, RetentionState
from treetop.bandit.sealing import follow_deletions
from treetop.log.retention import forget_in_steps
from treetop.service import logs

INTERVAL = 3600.0  # seconds between two runs; less if decisions are kept for less than a day
REFUSED_INTERVAL = 5.0  # seconds between two looks at whether somebody has confirmed
ERROR_PAUSE = 5.0  # seconds to wait after a run that failed
MAX_JUMP = 600.0  # seconds that the clock may gain on the time that has passed


def _passed() -> float:
    """Seconds that have passed since some moment, those of a sleeping machine included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Retention:
    """Keeps the log of one bandit to `keep_days`. To be run by one worker only."""

    def __init__(
        self, bandit: Bandit, wall: Callable[[], float] = time.time, passed: Callable[[], float] = _passed
    ) -> None:
        self.bandit, self._wall, self._passed = bandit, wall, passed
        self.days = bandit.config.rewards.keep_days
        self._started: float | None = wall()  # until the first run
        self._before_jump = wall() - passed()  # what the two clocks differ by at the last look
        self._confirmed: float | None = None

    async def run(self) -> None:
        """Deletes what is too old, again and again, until it is cancelled."""
        while self.days:
            pause = min(INTERVAL, self.days * DAY / 24)
            try:
                if not await self.run_once():
                    pause = REFUSED_INTERVAL
            except Exception:  # the log may be gone or the disk full: it goes on when they are back
                logs.log_error("old decisions could not be deleted")
                pause = ERROR_PAUSE
            await asyncio.sleep(pause)

    async def run_once(self) -> bool:
        """Deletes what is too old now; returns False if that is refused."""
        before = self._wall() - self.days * DAY
        if await asyncio.to_thread(self._refused, before):
            return False
        await asyncio.to_thread(self._sum_up, before)
        steps, count = forget_in_steps(self.bandit.log, before), 0
        while step := await asyncio.to_thread(next, steps, None):
            count += step[0]
            await asyncio.sleep(step[1])
        await asyncio.to_thread(follow_deletions, self.bandit.folder, self.bandit.log)
        if count:
            logs.log_event("forgot old decisions", count=count, days=self.days)
        self._started = None
        return True

    def _sum_up(self, before: float) -> None:
        """What is deleted next counts on as sums."""
        bandit, now = self.bandit, self.bandit.snapshot
        sum_up_before(bandit.folder, bandit.log, bandit.config, now.model, now.arms, before, self._wall())

    def _refused(self, before: float) -> bool:
        log = self.bandit.log
        state = RetentionState.read(log)
        if state.confirmed != self._confirmed:
            if self._confirmed is not None:  # somebody has looked at the clock and at what is old
                self._started, self._before_jump = None, self._wall() - self._passed()
            self._confirmed = state.confirmed
        if state.refused:
            return True
        if why := self._jumped() or self._all_too_old(before):
            RetentionState(why, state.confirmed).store(log)
            self.bandit.folder.note("retention refused", error=why)
            logs.log_event("old decisions are not deleted", logging.ERROR, why=why)
            return True
        self._before_jump = self._wall() - self._passed()
        return False

    def _jumped(self) -> str:
        ahead = self._wall() - self._passed() - self._before_jump
        if ahead <= MAX_JUMP:
            return ""
        return f"the clock, now {_moment(self._wall())}, jumped {ahead:,.0f} s ahead"

    def _all_too_old(self, before: float) -> str:
        """At the first run, what was decided before the start counts: a clock that is wrong dates new decisions too."""
        log = self.bandit.log
        newest = log.newest_time() if self._started is None else log.newest_time(self._started)
        if newest is None or newest >= before:
            return ""
        return (
            f"all decisions would be deleted: the newest is of {_moment(newest)}, the clock says "
            f"{_moment(self._wall())}, and keep_days is {self.days:g}"
        )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
