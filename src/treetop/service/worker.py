"""One serving process: opens the bandit and answers requests on a socket until it is asked to end.

`serve` starts each of several as `python -m treetop.service.worker DIR SOCKET PARENT SERVING WORKERS`; SOCKET, PARENT
and SERVING are file descriptors. Nothing is ever written to PARENT: it closes when the parent ends, and then the worker
ends too. The worker writes a byte to SERVING once it serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvicorn

from treetop import _core
from treetop.bandit.bandit import Bandit
from treetop.errors import TreetopError
from treetop.service import logs
from treetop.service.app import App, create
from treetop.service.connections import EXTRA, Connections, Protocol
from treetop.service.refit_scheduler import LOG_VARIABLE
from treetop.service.service import Service
from treetop.service.supervisor import CANNOT_START, refuse_new
from treetop.service.tokens import Tokens

DRAIN_TIMEOUT = 30  # seconds to finish accepted requests
THREADS = 16  # for work outside the event loop; most of it waits
GC_THRESHOLD = 20_000  # new objects between two runs of the garbage collector
TICKS = 5  # of a tenth of a second between two looks at the connections
QUEUE_TIMEOUT = 1.0  # seconds to accept the connections that wait in the system's queue
HANDSHAKE = 0.1  # seconds for connections that are being made to come into that queue
LINGER = 1.0  # seconds for a request that is on its way when the service ends
OPEN_FILES = 128  # file descriptors left for the log, models, metrics and refits


class Server(uvicorn.Server):
    """A server that ends without resetting a connection, with exit code 0 after SIGTERM and SIGINT.

    `parent` is a pipe that closes when the whole service ends; then nobody else takes new connections either.
    `serving` is a pipe that is told when it can answer.
    """

    def __init__(
        self, config: uvicorn.Config, connections: Connections, parent: int | None, serving: int | None
    ) -> None:
        super().__init__(config)
        self.server_state = self.connections = connections
        self.parent, self.serving = parent, serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.serving is not None:
            os.write(self.serving, b"1")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.finish, signal.Signals(number).name)
        yield

    def finish(self, why: str) -> None:
        if not self.should_exit:
            logs.log_event("finishing", why=why, in_flight=len(self.connections.tasks))
        self.force_exit = self.should_exit and why == "SIGINT"
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            self.connections.close_overdue(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts who is waiting and nobody else, answers what was asked, closes what is quiet."""
        listening = sockets or []
        await self._empty_queue(listening)
        if self.parent is None or is_readable(self.parent):
            for one in listening:
                if refuse_new(one):
                    await asyncio.sleep(HANDSHAKE)
            await self._empty_queue(listening)
        for server in self.servers:
            server.close()
        for one in listening:
            one.close()
        await self._drain()
        if not self.force_exit:
            await self.lifespan.shutdown()

    async def _empty_queue(self, listening: list[socket.socket]) -> None:
        until = time.monotonic() + QUEUE_TIMEOUT
        while any(map(is_readable, listening)) and time.monotonic() < until:
            await asyncio.sleep(0)

    async def _drain(self) -> None:
        """Waits until every connection has had its last answer; cancels what takes too long."""
        loop, connections = asyncio.get_running_loop(), self.connections
        connections.finish()
        began = loop.time()
        while (connections.connections or connections.tasks) and not self.force_exit:
            now = loop.time()
            if now - began > LINGER:
                connections.close_quiet(now - LINGER)
            if now - began > DRAIN_TIMEOUT:
                logs.log_event("requests given up", logging.ERROR, in_flight=len(connections.tasks))
                for task in connections.tasks:
                    task.cancel()
                await asyncio.gather(*connections.tasks, return_exceptions=True)
                break
            await asyncio.sleep(0.02)


def is_readable(handle: int | socket.socket) -> bool:
    """Whether a descriptor has something to read or accept, or its other end is closed."""
    watch = select.poll()
    watch.register(handle, select.POLLIN)
    return bool(watch.poll(0))


def run(
    folder: Path,
    listening: socket.socket,
    parent: int | None = None,
    serving: int | None = None,
    workers: int = 1,
    app: Callable[[Service], App] = create,
) -> None:
    """Serves until it is asked to end. If there are more cores than `workers`, a second thread decides ahead."""
    logs.set_up()
    if where := os.environ.get(LOG_VARIABLE):
        logs.hide(where)
    tokens = Tokens.read(os.environ)
    bandit = Bandit.open(folder, where or None)
    service = Service(bandit, tokens, where or None, _core.Ahead() if cores() > workers else None)
    config = uvicorn.Config(
        app(service),
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    limits = bandit.config.limits
    server = Server(config, Connections(most_connections(limits.connections), limits.head_seconds), parent, serving)
    _core.keep_lock(True)
    try:
        with _rare_collections():
            if sys.version_info >= (3, 11):
                with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                    runner.run(_serve(server, listening, parent))
            else:
                asyncio.run(_serve(server, listening, parent))
    except (OSError, ValueError) as error:
        if server.started:  # it could start, so another one can: the service must go on
            raise RuntimeError("the worker failed while it served") from error
        raise
    if not server.started:
        raise OSError("the service could not start; its log says why")


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Keeps the garbage collector from scanning the ids and names again and again: they live as long as the process.

    Requests leave hardly any reference cycles, so collections can be rare too.
    """
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def _serve(server: Server, listening: socket.socket, parent: int | None) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "treetop"))
    if parent is not None:
        asyncio.get_running_loop().add_reader(parent, _orphaned, server, parent)
    await server.serve(sockets=[listening])


def _orphaned(server: Server, parent: int) -> None:
    asyncio.get_running_loop().remove_reader(parent)
    server.finish("the service ends")


def most_connections(wanted: int) -> int:
    """How many connections a worker may have so that descriptors are left for everything else."""
    import resource

    needed = wanted + EXTRA + OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    most = soft - EXTRA - OPEN_FILES
    if most < 1:
        raise OSError(f"only {soft} files may be open (ulimit -n); a worker needs {EXTRA + OPEN_FILES + 1} or more")
    logs.log_event("fewer connections", logging.WARNING, connections=most, wanted=wanted, open_files=soft)
    return most


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main(
    folder: str, listening: str, parent: str, serving: str, workers: str, *, app: Callable[[Service], App] = create
) -> None:
    """Runs a worker from the arguments of its command line."""
    with socket.socket(fileno=int(listening)) as given:
        try:
            run(Path(folder), given, int(parent), int(serving), int(workers), app)
        except (TreetopError, ValueError, OSError) as error:
            logs.log_event("the worker cannot start", logging.ERROR, why=str(error))
            sys.exit(CANNOT_START)
        except Exception:
            logs.log_error("the worker could not go on")
            sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
