"""Starts refits, each in a process of its own: by the schedule, by the clock, or when a request asks for one.

A failed refit is tried again after a pause. Of several workers, the one that holds the folder's schedule lock keeps the
schedule, and deletes old decisions. The refit process itself makes the new model current; every worker then loads it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from treetop.bandit.bandit import Bandit
from treetop.bandit.folder import REFIT_LOCK
from treetop.bandit.history_file import HISTORY
from treetop.bandit.state import FolderState
from treetop.errors import FolderInUse
from treetop.files import locked
from treetop.service import logs
from treetop.service.replicas import follow, follow_erased, lead_by_lease
from treetop.service.retention import Retention

CHECK_INTERVAL = 0.5  # seconds between two checks of the schedule
LOCK_RETRY = 2.0  # seconds between two attempts to take the schedule lock
ERROR_PAUSE = 5.0  # seconds to wait after a check that failed
LOG_VARIABLE = "TREETOP_LOG"
BUSY, NOTHING, SUPERSEDED, FAILED = 3, 4, 5, 1  # exit codes of the refit process

NO_FAILURES = (0, 0.0, None)


@dataclass(frozen=True)
class RefitState:
    """The refits in the folder's history: how many were done and failed, failures in a row, the last one's seconds."""

    done: int = 0
    failed: int = 0
    in_a_row: int = 0
    seconds: float = 0.0
    failed_at: float = 0.0
    error: str | None = None
    running: bool = False
    asides: int = 0  # refits that the gate did not let serve
    aside: str | None = None  # why the last one was not


class RefitEnd(NamedTuple):
    """How a refit process ended: its exit code, the model that it made (code 0) or the reason why it made none, and why
    the gate keeps that model aside, if so."""

    code: int | None
    said: str
    aside: str = ""


class RefitScheduler:
    """Starts refits of one bandit and knows how they went. `log` is the log's address, if it is not in the folder."""

    def __init__(self, bandit: Bandit, log: str | None) -> None:
        self.bandit, self._log = bandit, log
        self._history_seen: tuple[int, int] = (0, 0)  # size and time of the history that _state is from
        self._state = RefitState()
        self._process: asyncio.subprocess.Process | None = None
        self._runs: set[asyncio.Task[RefitEnd]] = set()
        self._retention = Retention(bandit)
        self._started = time.time()
        self.keeps_schedule = False  # true in one of several workers
        self._local: tuple[int, float, str | None] = NO_FAILURES  # failures in a row, when, why: those of this worker

    def running(self) -> bool:
        """Whether a refit of any process runs in this folder."""
        try:
            with locked(self.bandit.folder.path / REFIT_LOCK):
                return False
        except FolderInUse:
            return True
        except OSError:  # in a folder that cannot be written no model is being made
            return False

    def state(self) -> RefitState:
        """How the refits stand; reads the history only if it has changed."""
        folder = self.bandit.folder
        path = folder.path / HISTORY
        stat = path.stat() if path.exists() else None
        seen = (stat.st_size, stat.st_mtime_ns) if stat else (0, 0)
        if seen != self._history_seen:
            self._history_seen, self._state = seen, _summary(folder.history())
            if self._state.in_a_row == 0:
                self._local = NO_FAILURES  # another worker has succeeded
        count, when, error = self._local
        found = self._state
        if count > found.in_a_row:  # failures that a full disk kept out of the history
            found = replace(found, in_a_row=count, failed_at=when, error=error)
        return replace(found, running=bool(self._runs) or self.running())

    def start_now(self) -> asyncio.Task[RefitEnd]:
        """Starts a refit. Raises FolderInUse if one is running."""
        if self._runs or self.running():
            raise FolderInUse("a refit is running already")
        return self._start("asked for")

    def _start(self, why: str, counted_from: float | None = None) -> asyncio.Task[RefitEnd]:
        task = asyncio.create_task(self._refit(why, counted_from))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        return task

    async def run(self) -> None:
        """Waits for the schedule lock, then keeps the schedule until it is cancelled; of several replicas, the one that
        has the lease does, and all of them follow."""
        with ExitStack() as held:
            while not self._take_lock(held):
                await asyncio.sleep(LOCK_RETRY)
            if self.bandit.folder.shared is None:
                await self._lead()
            else:
                leading = lead_by_lease(self.bandit, self._lead)
                await asyncio.gather(follow(self.bandit), follow_erased(self.bandit), leading)

    async def _lead(self) -> None:
        self.keeps_schedule = True
        try:
            await asyncio.gather(self._keep_schedule(), self._retention.run())
        finally:
            self.keeps_schedule = False

    async def _keep_schedule(self) -> None:
        while True:
            try:
                await self._check()
            except Exception:  # the log may be gone or the disk full: the schedule goes on when they are back
                logs.log_error("the schedule could not be checked")
                await asyncio.sleep(ERROR_PAUSE)
            await asyncio.sleep(CHECK_INTERVAL)

    def _take_lock(self, held: ExitStack) -> bool:
        try:
            held.enter_context(locked(self.bandit.folder.path / ".schedule.lock"))
        except FolderInUse:
            return False
        return True

    async def _check(self) -> None:
        if self._runs:
            return
        folder = await asyncio.to_thread(self.bandit.folder.state)
        if why := await asyncio.to_thread(self._due, folder):
            self._start(why, folder.schedule.time)

    def _due(self, folder: FolderState) -> str:
        """Why a refit should start now; empty if it should not."""
        config, state, now = self.bandit.config.refit, self.state(), time.time()
        if state.running or (state.in_a_row and now < state.failed_at + config.pause(state.in_a_row)):
            return ""
        if folder.pinned:
            return ""
        schedule = folder.schedule
        new = schedule.new(self.bandit.log.counts())
        if config.due(schedule.observed, schedule.observed + new):
            return "schedule"
        by_clock = config.every > 0 and now >= max(schedule.time, self._started) + config.every
        return "clock" if by_clock and new else ""

    async def _refit(self, why: str, counted_from: float | None) -> RefitEnd:
        logs.log_event("refit begins", why=why)
        start = time.time()
        try:
            code, out, err = await self._run_process(counted_from)
        except OSError as error:  # out of memory or processes
            code, out, err = FAILED, b"", str(error).encode()
        if code == 0:
            self._local = NO_FAILURES
            result = json.loads(out)
            if result["aside"]:
                logs.log_event("refit kept aside", logging.WARNING, **result)
            else:
                logs.log_event("refit done", **result)
            return RefitEnd(code, result["model"], result["aside"])
        if code in (BUSY, NOTHING, SUPERSEDED):
            logs.log_event("refit given up", why=_last_line(err))
            return RefitEnd(code, _last_line(err))
        return RefitEnd(code, await asyncio.to_thread(self._failed, code, _last_line(err), time.time() - start))

    async def _run_process(self, counted_from: float | None) -> tuple[int | None, bytes, bytes]:
        environment = {**os.environ, **({LOG_VARIABLE: self._log} if self._log else {})}
        environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "treetop.service.refit_process",
            str(self.bandit.folder.path),
            *([] if counted_from is None else [repr(counted_from)]),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await self._process.communicate()
        code, self._process = self._process.returncode, None
        return code, out, err

    def _failed(self, code: int | None, error: str, seconds: float) -> str:
        why = error or (f"the process was ended by signal {-code}" if code and code < 0 else f"exit code {code}")
        self._local = (max(self._state.in_a_row, self._local[0]) + 1, time.time(), why)
        logs.log_event("refit failed", logging.ERROR, error=why, code=code)
        try:
            self.bandit.folder.note("refit failed", error=why, seconds=round(seconds, 3))
        except OSError as error:
            logs.log_event("the failure could not be noted", logging.ERROR, error=str(error))
        return why

    async def stop(self) -> None:
        """Ends a refit that this worker started. It has changed nothing yet, and is due again at the next start."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
        for task in list(self._runs):
            task.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _summary(history: list[dict[str, Any]]) -> RefitState:
    """The refits in a history."""
    done = failed = in_a_row = asides = 0
    aside = None
    seconds = failed_at = 0.0
    error = None
    for entry in history:
        if entry["kind"] == "refit":
            done, in_a_row, seconds, error, aside = done + 1, 0, entry["seconds"], None, None
        elif entry["kind"] == "refit kept aside":
            asides, in_a_row, seconds, error, aside = asides + 1, 0, entry["seconds"], None, entry["aside"]
        elif entry["kind"] == "refit failed":
            failed, in_a_row, failed_at, error = failed + 1, in_a_row + 1, entry["time"], entry["error"]
    return RefitState(done, failed, in_a_row, seconds, failed_at, error, asides=asides, aside=aside)
