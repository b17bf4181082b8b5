"""Refits in a process of their own: when the schedule, the clock or somebody asks, again after a pause if one failed.

Of several workers one keeps the schedule: whoever holds the lock of the folder. A refit changes what is current by
itself; every worker notices.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from treetop.bandit.bandit import Bandit
from treetop.bandit.folder import HISTORY
from treetop.errors import FolderInUse
from treetop.files import locked
from treetop.service import logs

TICK = 0.5  # seconds between two looks at the schedule
HOUR = 3600.0
LOG_VARIABLE = "TREETOP_LOG"
BUSY, NOTHING, SUPERSEDED, FAILED = 3, 4, 5, 1  # exit codes of the process


@dataclass(frozen=True)
class RefitState:
    """What the folder's history says of refits."""

    done: int = 0
    failed: int = 0
    in_a_row: int = 0
    seconds: float = 0.0
    failed_at: float = 0.0
    error: str | None = None
    running: bool = False


class Refits:
    def __init__(self, bandit: Bandit, log: str | None) -> None:
        self.bandit, self._log = bandit, log
        self._seen: tuple[int, int] = (0, 0)
        self._state = RefitState()
        self._process: asyncio.subprocess.Process | None = None
        self._runs: set[asyncio.Task[None]] = set()
        self._forgot = time.monotonic()
        self._began = time.time()
        self.keeps_schedule = False  # of several workers, one does
        self._here: tuple[int, float, str | None] = (0, 0.0, None)  # failures in a row, when, why: seen by this worker

    def running(self) -> bool:
        """Whether any process of this folder refits, or adds arms."""
        try:
            with locked(self.bandit.home.path / ".refit.lock"):
                return False
        except FolderInUse:
            return True
        except OSError:  # where nothing can be written, nothing is being made
            return False

    def state(self) -> RefitState:
        home = self.bandit.home
        path = home.path / HISTORY
        facts = path.stat() if path.exists() else None
        seen = (facts.st_size, facts.st_mtime_ns) if facts else (0, 0)
        if seen != self._seen:
            self._seen, self._state = seen, _summary(home.history())
            if self._state.in_a_row == 0:
                self._here = (0, 0.0, None)  # another worker has succeeded
        count, when, error = self._here
        found = self._state
        if count > found.in_a_row:  # a full disk takes no notes
            found = replace(found, in_a_row=count, failed_at=when, error=error)
        return replace(found, running=bool(self._runs) or self.running())

    def ask(self) -> None:
        """Starts a refit now; raises InUse if one is running."""
        if self._runs or self.running():
            raise FolderInUse("a refit is running already")
        self._start("asked for")

    def _start(self, why: str) -> None:
        task = asyncio.create_task(self._refit(why))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    async def run(self) -> None:
        """Keeps the schedule while this worker holds the lock; waits for it otherwise."""
        with ExitStack() as held:
            while not self._hold(held):
                await asyncio.sleep(2.0)
            self.keeps_schedule = True
            while True:
                try:
                    await self._look()
                except Exception:  # the log may be away, the disk full: the schedule goes on when they are back
                    logs.say_error("the schedule could not be looked at")
                    await asyncio.sleep(5.0)
                await asyncio.sleep(TICK)

    def _hold(self, held: ExitStack) -> bool:
        try:
            held.enter_context(locked(self.bandit.home.path / ".schedule.lock"))
        except FolderInUse:
            return False
        return True

    async def _look(self) -> None:
        if not self._runs and (why := await asyncio.to_thread(self._due)):
            self._start(why)
        days = self.bandit.config.rewards.keep_days
        if days and time.monotonic() - self._forgot > HOUR:
            self._forgot = time.monotonic()
            count = await asyncio.to_thread(self.bandit.log.forget, time.time() - days * 86400)
            logs.say("forgot old decisions", count=count, days=days)

    def _due(self) -> str:
        """Why a refit should begin now; empty if it should not."""
        config, state, now = self.bandit.config.refit, self.state(), time.time()
        if state.running or (state.in_a_row and now < state.failed_at + config.pause(state.in_a_row)):
            return ""
        said = self.bandit.home.state()
        observed = self.bandit.log.counts().observed
        if config.due(said.refit_observed, observed):
            return "schedule"
        by_clock = config.every > 0 and now >= max(said.refit_time, self._began) + config.every
        return "clock" if by_clock and observed > said.refit_observed else ""

    async def _refit(self, why: str) -> None:
        logs.say("refit begins", why=why)
        began = time.time()
        try:
            code, out, err = await self._run_process()
        except OSError as error:  # no memory or no process left
            code, out, err = FAILED, b"", str(error).encode()
        if code == 0:
            self._here = (0, 0.0, None)
            logs.say("refit done", **json.loads(out))
        elif code in (BUSY, NOTHING, SUPERSEDED):
            logs.say("refit given up", why=_last_line(err))
        else:
            await asyncio.to_thread(self._failed, code, _last_line(err), time.time() - began)

    async def _run_process(self) -> tuple[int | None, bytes, bytes]:
        environment = {**os.environ, **({LOG_VARIABLE: self._log} if self._log else {})}
        environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "treetop.service.refit_process", str(self.bandit.home.path), env=environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await self._process.communicate()
        code, self._process = self._process.returncode, None
        return code, out, err

    def _failed(self, code: int | None, error: str, seconds: float) -> None:
        why = error or (f"the process was ended by signal {-code}" if code and code < 0 else f"exit code {code}")
        self._here = (max(self._state.in_a_row, self._here[0]) + 1, time.time(), why)
        logs.say("refit failed", 40, error=why, code=code)
        try:
            self.bandit.home.note("refit failed", error=why, seconds=round(seconds, 3))
        except OSError as error:
            logs.say("the failure could not be noted", 40, error=str(error))

    async def stop(self) -> None:
        """Ends a refit that this worker began: nothing has changed yet, and the next start begins another."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
        for task in list(self._runs):
            task.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _summary(history: list[dict[str, Any]]) -> RefitState:
    done = failed = in_a_row = 0
    seconds = failed_at = 0.0
    error = None
    for entry in history:
        if entry["kind"] == "refit":
            done, in_a_row, seconds, error = done + 1, 0, entry["seconds"], None
        elif entry["kind"] == "refit failed":
            failed, in_a_row, failed_at, error = failed + 1, in_a_row + 1, entry["time"], entry["error"]
    return RefitState(done, failed, in_a_row, seconds, failed_at, error)
