"""The dashboard as a process of its own: `python -m treetop.service.dashboard.process DIR`.

It counts what is new in the log and makes the pages that workers ask for, at low priority, so that decisions feel
nothing of it. It ends a minute after the last request, or when the worker that started it closes its standard input,
and saves its totals for the next time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from treetop.errors import FolderInUse, Problem
from treetop.files import locked
from treetop.service import logs
from treetop.service.dashboard import layout, views
from treetop.service.dashboard.board import Boards
from treetop.service.dashboard.messages import LOCK, Address, Answer, Ask, receive, send
from treetop.service.dashboard.query import Query
from treetop.service.problems import as_problem
from treetop.service.refit_scheduler import LOG_VARIABLE

NICE = 10  # below refits, which are below decisions
LOCK_TIMEOUT = 1.0  # seconds to wait for a worker that only looks whether the lock is held
IDLE = 60.0  # seconds without a request after which the process ends
PAUSE = 0.5  # seconds between two looks at the log when everything is counted
ERROR_PAUSE = 2.0  # seconds between two attempts to read a log that is away
SAVE_INTERVAL = 300.0  # seconds between two savings of the totals
ANSWER_TIMEOUT = 15.0  # seconds for a page, which waits for a log that is slow
FRESH = 1.0  # seconds that visitors share an answer
SHARED = 100  # answers that are kept to be shared


class Process:
    """Counts and answers. All that touches the log and the totals runs in one thread, a slice or a page at a time."""

    def __init__(self, folder: Path, log: str | None) -> None:
        self.boards = Boards(folder, log)
        self.secret = secrets.token_hex(32)
        self._thread = ThreadPoolExecutor(1, "dashboard")
        self._asked = time.monotonic()
        self._shared: dict[bytes, tuple[float, Answer]] = {}
        self._stopping = asyncio.Event()

    async def run(self, lock: Path, parent: int) -> None:
        """Serves until nobody asks any more, or `parent` closes: nothing is ever written to it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_reader(parent, self._stopping.set)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        lock.write_bytes(msgspec.json.encode(Address(server.sockets[0].getsockname()[1], self.secret)))
        counting = asyncio.create_task(self._count())
        while not self._stopping.is_set() and time.monotonic() - self._asked < IDLE:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(1.0, IDLE))
        loop.remove_reader(parent)
        server.close()
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        with contextlib.suppress(OSError):  # a full disk costs the totals, which are counted again then
            await loop.run_in_executor(self._thread, self.boards.close)

    async def _count(self) -> None:
        loop, saved, failed = asyncio.get_running_loop(), time.monotonic(), ""
        while True:
            try:
                done = await loop.run_in_executor(self._thread, self.boards.count)
                if time.monotonic() - saved > SAVE_INTERVAL:
                    saved = time.monotonic()
                    await loop.run_in_executor(self._thread, self.boards.save)
                failed, pause = "", PAUSE if done else 0.0
            except Exception as error:  # the log may be gone; the page says so until it is back
                if str(error) != failed:
                    logs.log_event("the log cannot be counted", logging.WARNING, why=str(error))
                failed, pause = str(error), ERROR_PAUSE
            await asyncio.sleep(pause)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, EOFError, ValueError, asyncio.TimeoutError):
                ask = await asyncio.wait_for(receive(reader, Ask), ANSWER_TIMEOUT)
                if hmac.compare_digest(ask.secret, self.secret):
                    self._asked = time.monotonic()
                    await send(writer, await self._answer(ask))
        finally:
            writer.close()

    async def _answer(self, ask: Ask) -> Answer:
        key = msgspec.json.encode((ask.part, sorted(ask.query.items()), ask.admin, ask.service))
        kept = self._shared.get(key)
        if kept is None or time.monotonic() - kept[0] > FRESH:
            loop = asyncio.get_running_loop()
            making = loop.run_in_executor(self._thread, self._make, ask)
            try:
                answer = await asyncio.wait_for(asyncio.shield(making), ANSWER_TIMEOUT)
            except asyncio.TimeoutError:
                answer = problem_page(503, "the log does not answer; try again")
            self._shared = {} if len(self._shared) >= SHARED else self._shared
            kept = self._shared[key] = (time.monotonic(), answer)
        return kept[1]

    def _make(self, ask: Ask) -> Answer:
        try:
            query = Query.parse(ask.query)
            board = self.boards.board(ask.service, query, ask.admin, "done" in ask.query)
            return Answer(200, views.PARTS[ask.part](board))
        except Exception as error:
            problem = as_problem(error)
            if problem is None:
                logs.log_error("the dashboard failed", part=ask.part)
                problem = Problem(500, "internal", "something went wrong here; it is in the service's log")
            return problem_page(problem.status, problem.message)


def problem_page(status: int, message: str) -> Answer:
    return Answer(status, layout.problem(status, message))


def main(folder: str) -> int:
    os.nice(NICE)
    logs.set_up()
    log = os.environ.get(LOG_VARIABLE) or None
    if log:
        logs.hide(log)
    path = Path(folder)
    try:
        with locked(path / LOCK, LOCK_TIMEOUT):
            asyncio.run(_run(path, log))
    except FolderInUse:
        return 0  # another worker has just started one
    except Exception:
        logs.log_error("the dashboard could not go on")
        return 1
    return 0


async def _run(folder: Path, log: str | None) -> None:
    await Process(folder, log).run(folder / LOCK, sys.stdin.fileno())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends its own dashboard
    sys.exit(main(sys.argv[1]))
