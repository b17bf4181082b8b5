"""A worker's end of the dashboard: starts the process that makes its pages, and passes requests on to it.

There is one such process for all workers, and none while nobody looks. It ends by itself a minute after the last visit,
and at once when the worker that started it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import msgspec

from treetop.errors import FolderInUse
from treetop.files import locked
from treetop.service.dashboard.messages import LOCK, Address, Answer, Ask, ServiceState, receive, send
from treetop.service.problems import later
from treetop.service.refit_scheduler import LOG_VARIABLE

START_TIMEOUT = 30.0  # seconds for the process to start, and to answer
END_TIMEOUT = 5.0  # seconds for it to save its totals when the worker ends
RETRY = 0.05  # seconds between two looks whether it has started


class Relay:
    """Passes requests on to the process of a folder. `log` is the log's address, if it is not in the folder."""

    def __init__(self, folder: Path, log: str | None) -> None:
        self._folder, self._log = folder, log
        self._process: asyncio.subprocess.Process | None = None
        self._known: Address | None = None  # where the last request was answered
        self._starting = asyncio.Lock()

    async def ask(self, part: str, query: dict[str, str], admin: bool, service: ServiceState) -> Answer:
        """The answer of the process, which is started if there is none."""
        until = time.monotonic() + START_TIMEOUT
        while time.monotonic() < until:
            address = self._known or await self._address()
            self._known = None
            if address is not None:
                with contextlib.suppress(OSError, EOFError, ValueError, asyncio.TimeoutError):
                    request = Ask(address.secret, part, query, admin, service)
                    answer = await asyncio.wait_for(_asked(address.port, request), until - time.monotonic())
                    self._known = address
                    return answer
            await asyncio.sleep(RETRY)
        raise later(503, "starting", "the dashboard does not answer; its process may still be starting", 5)

    async def _address(self) -> Address | None:
        """Where the process listens; None if it does not yet. Starts it if no process holds the lock."""
        async with self._starting:
            if await asyncio.to_thread(self._is_running):
                with contextlib.suppress(OSError, msgspec.DecodeError):
                    return msgspec.json.decode((self._folder / LOCK).read_bytes(), type=Address)
            elif self._process is None or self._process.returncode == 0:
                await self._start()
            elif (code := self._process.returncode) is not None:
                self._process = None  # the next visit tries again
                raise later(
                    503, "dashboard_failed", f"the dashboard's process ended with code {code}; its log says why"
                )
            return None

    def _is_running(self) -> bool:
        try:
            with locked(self._folder / LOCK):
                return False
        except FolderInUse:
            return True

    async def _start(self) -> None:
        environment = {**os.environ, **({LOG_VARIABLE: self._log} if self._log else {})}
        environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "treetop.service.dashboard.process",
            str(self._folder),
            env=environment,
            stdin=asyncio.subprocess.PIPE,  # closes when this worker ends, however it ends
        )

    async def stop(self) -> None:
        """Ends the process if this worker started it; it saves its totals first."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), END_TIMEOUT)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _asked(port: int, request: Ask) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await send(writer, request)
        return await receive(reader, Answer)
    finally:
        writer.close()
