"""One serving process: opens the bandit and answers requests on a socket until it is asked to end.

`serve` starts each of several as `python -m treetop.service.worker DIR SOCKET PARENT WORKERS`; SOCKET and PARENT are
file descriptors. Nothing is ever written to PARENT: it closes when the parent ends, and then the worker ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from treetop import _core
from treetop.bandit.bandit import Bandit
from treetop.service import logs
from treetop.service.app import App, create
from treetop.service.refit_scheduler import LOG_VARIABLE
from treetop.service.service import Service
from treetop.service.tokens import Tokens

MAX_HEAD = 1 << 20  # bytes of a request before its body
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
STATUS_LINE, CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 100"
DRAIN_TIMEOUT = 30  # seconds to finish accepted requests
THREADS = 16  # for work outside the event loop; most of it waits
GC_THRESHOLD = 20_000  # new objects between two runs of the garbage collector
KEEP_ALIVE = 75  # seconds that a connection may be idle


class BufferedTransport:
    """A transport that sends an answer's head together with the start of its body: one system call instead of two."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._write = transport, transport.write
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(STATUS_LINE) and data.endswith(b"\r\n\r\n") and not data.startswith(CONTINUE):
            self._head = data
            return
        self._write(data)

    def flush(self) -> None:
        if self._head:
            data, self._head = self._head, b""
            self._write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class Protocol(HttpToolsProtocol):
    """HTTP with a limit on the size of a request's head, which uvicorn does not have."""

    head, complete = 0, False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, BufferedTransport(transport)))

    def on_response_complete(self) -> None:
        self.transport.flush()  # type: ignore[attr-defined]  # an answer without a body
        super().on_response_complete()

    def on_message_begin(self) -> None:
        self.head, self.complete = 0, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.complete = True
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.head += len(data)
        if self.head > MAX_HEAD and not self.complete and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()


class Server(uvicorn.Server):
    """A server whose exit code is 0 after SIGTERM and SIGINT: they ask it to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.finish, signal.Signals(number).name)
        yield

    def finish(self, why: str) -> None:
        logs.log_event("finishing", why=why, in_flight=len(self.server_state.tasks))
        self.force_exit = self.should_exit and why == "SIGINT"
        self.should_exit = True


def run(
    folder: Path,
    listening: socket.socket,
    parent: int | None = None,
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
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=DRAIN_TIMEOUT,
    )
    server = Server(config)
    _core.keep_lock(True)
    with _rare_collections():
        if sys.version_info >= (3, 11):
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                runner.run(_serve(server, listening, parent))
        else:
            asyncio.run(_serve(server, listening, parent))
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
    server.finish("the parent has ended")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main(folder: str, listening: str, parent: str, workers: str, app: Callable[[Service], App] = create) -> None:
    """Runs a worker from the arguments of its command line."""
    with socket.socket(fileno=int(listening)) as given:
        try:
            run(Path(folder), given, int(parent), int(workers), app)
        except Exception:
            logs.log_error("the worker could not go on")
            sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
