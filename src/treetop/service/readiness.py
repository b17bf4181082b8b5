"""Whether a decision could be made and written now: what /readyz answers.

A decision that was written a moment ago is proof enough. Otherwise the log is written to, by the thread that writes
decisions and with more bytes than most of them have: a disk may have room for a few bytes, and not for a decision. A
database may have room for that and still not for a decision, so one that was refused counts for a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from treetop.bandit.bandit import Bandit
from treetop.errors import LogError
from treetop.service import logs
from treetop.service.problems import later

PROBE, PROBE_BYTES = "readiness", 32_768  # what is written: its name in the log, and how much
VALID_FOR = 1.0  # seconds that an answer is good for, however many ask
TIMEOUT = 2.0  # seconds that the log has to answer
REFUSED_FOR = 5.0  # seconds that a refused decision counts, unless one is written meanwhile
NO_LOG = "log_unavailable", "the log cannot be written at the moment"
NO_ANSWER = "log_unavailable", f"the log has not answered for {TIMEOUT:g} s"
NO_MODEL = "no_model", "there is no model in the bandit's folder"


class Readiness:
    """What is known of log and folder, and at most one look at them under way. For the event loop's thread only."""

    def __init__(self, bandit: Bandit) -> None:
        self._bandit = bandit
        self._problem: tuple[str, str] | None = None  # code and message of what the last look found
        self._refused = False  # whether decisions could not be written since then
        self._written = self._began = -VALID_FOR  # when decisions were last written, when the last look began
        self._refused_at = -REFUSED_FOR
        self._look: asyncio.Task[None] | None = None

    def noted(self, error: BaseException | None) -> None:
        """Decisions were written, or could not be because of `error`."""
        self._refused = error is not None
        if error is None:
            self._written = time.monotonic()
        else:
            self._refused_at = time.monotonic()

    async def check(self) -> None:
        """Raises a Problem that says why no decision could be made and written now."""
        if self._look is None and time.monotonic() - self._began >= VALID_FOR:
            self._began = time.monotonic()
            self._look = asyncio.create_task(self._find_out())
        problem = self._problem
        if self._look is not None:
            left = TIMEOUT - (time.monotonic() - self._began)
            await asyncio.wait([self._look], timeout=max(0.0, left))
            problem = self._problem if self._look is None else NO_ANSWER
        problem = problem or (NO_LOG if self._refused else None)
        if problem is not None:
            raise later(503, *problem)

    async def _find_out(self) -> None:
        before, why = self._problem, ""
        try:
            await asyncio.to_thread(self._check_folder)
            if self._refused or time.monotonic() - self._written >= VALID_FOR:
                await asyncio.to_thread(self._bandit.log.keep, PROBE, os.urandom(PROBE_BYTES))
                self._refused &= time.monotonic() - self._refused_at < REFUSED_FOR
            self._problem = None
        except LogError as error:
            self._problem, why = NO_LOG, str(error)
        except (OSError, ValueError) as error:
            self._problem, why = NO_MODEL, str(error)
        finally:
            self._look = None
        if self._problem != before:
            level = logging.INFO if self._problem is None else logging.WARNING
            logs.log_event("ready again" if self._problem is None else "not ready", level, why=why)

    def _check_folder(self) -> None:
        if not self._bandit.folder.has_model():
            raise FileNotFoundError(f"there is no model in {self._bandit.folder.path}")
