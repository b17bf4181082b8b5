"""The connections of one worker: uvicorn's HTTP with deadlines, a cap and an end that resets nobody.

A connection is busy from the end of a request's head to the end of its answer. `Connections` closes those that stay
silent, those whose head does not come and those that do not read their answer; when there are too many, the one that
has not been busy for the longest makes room. All of it happens beside requests, which only note the time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from treetop.errors import Problem
from treetop.service.problems import body_of

MAX_HEAD = 1 << 16  # bytes of a request before its body
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
STATUS_LINE, CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 100"
KEEP_ALIVE = 75  # seconds that a connection may be idle
STUCK = 30.0  # seconds for a client to read an answer
EXTRA = 32  # connections beyond the cap while all are busy, so that health checks are answered
HEALTH = ("/healthz", "/readyz")


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
    """One connection. Limits the size of a head and notes since when no request is in progress."""

    server_state: Connections
    head, complete = 0, False  # bytes since a message began; whether its head is complete
    since = 0.0  # when it connected, when the last answer was complete, or when the next head began
    stuck = 0.0  # since when it does not read, as far as `close_overdue` has seen
    last = False  # whether the next answer is the last one
    ended = False  # whether our side is closed, so that nothing can be answered any more

    @property
    def busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, BufferedTransport(transport)))
        self.since = self.loop.time()
        self.server_state.admit(self)

    def on_response_complete(self) -> None:
        """Without uvicorn's timer for each answer: `close_overdue` looks after idle connections."""
        self.since = self.loop.time()
        self.transport.flush()  # type: ignore[attr-defined]  # an answer without a body
        if self.pipeline:
            super().on_response_complete()
        elif not self.transport.is_closing():
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        self.head, self.complete, self.since = 0, False, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.complete = True
        super().on_headers_complete()
        if self.last:
            self.cycle.keep_alive = False

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        super().data_received(data)
        self.head += len(data)
        if self.head > MAX_HEAD and not self.complete and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def finish(self) -> None:
        """Makes the next answer, or the last of those that are being made, the last one."""
        self.last = True
        if self.busy:
            self.cycle.keep_alive = False

    def end(self) -> None:
        """Closes our side only: a request that is on its way meets the end of the stream instead of a reset."""
        self.ended, self.since = True, self.loop.time()
        with suppress(OSError):  # the other side may be gone
            self.transport.write_eof()


class Connections(ServerState):
    """All connections of a worker, at most `most` of them; a request's head must come in `head_seconds`."""

    connections: set[Protocol]  # type: ignore[assignment]

    def __init__(self, most: int, head_seconds: float) -> None:
        super().__init__()
        self.most, self.head_seconds = most, head_seconds
        self.draining = False
        self._idle: list[tuple[float, Protocol]] = []  # candidates to be closed, the last first

    def admit(self, connection: Protocol) -> None:
        """Takes a new connection in; if there are too many, another makes room."""
        connection.last = self.draining
        over = len(self.connections) - self.most
        if over <= 0 or self._close_idle(connection):
            return
        if over > EXTRA:
            connection.transport.abort()
        else:
            connection.last, connection.app = True, cast(Any, health_only(cast(ASGIApp, connection.app)))

    def _close_idle(self, newcomer: Protocol) -> bool:
        """Closes the connection that has not been busy for the longest; False if all are busy."""
        while True:
            while self._idle:
                since, found = self._idle.pop()
                if found.since == since and not found.busy and not found.transport.is_closing():
                    found.transport.abort()  # not close(): what it does not read would keep it open
                    return True
            idle = (c for c in self.connections if not c.busy and not c.transport.is_closing() and c is not newcomer)
            self._idle = sorted(((c.since, c) for c in idle), key=lambda entry: -entry[0])
            if not self._idle:
                return False

    def close_overdue(self, now: float) -> None:
        """Closes connections whose time is over; costs under a microsecond a connection."""
        for connection in list(self.connections):
            closing = connection.transport.is_closing()
            if closing or connection.flow.write_paused:
                connection.stuck = connection.stuck or now
                if now - connection.stuck > STUCK:
                    connection.transport.abort()
                continue
            connection.stuck = 0.0
            limit = KEEP_ALIVE if connection.complete else self.head_seconds
            if not connection.busy and now - connection.since > limit:
                connection.transport.close()

    def finish(self) -> None:
        """From now on each connection gets one more answer at most."""
        self.draining = True
        for connection in self.connections:
            connection.finish()

    def close_quiet(self, before: float) -> None:
        """Ends the connections that have not been busy since a time."""
        for connection in list(self.connections):
            if connection.since < before and not connection.busy and not connection.transport.is_closing():
                if connection.ended:
                    connection.transport.close()
                else:
                    connection.end()


def health_only(app: ASGIApp) -> ASGIApp:
    """An app that answers health checks, and everything else with 503."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in HEALTH:
            await app(scope, receive, send)
            return
        content = body_of(Problem(503, "too_many", "all connections are busy"))
        head = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
        head.append((b"content-length", b"%d" % len(content)))
        await send({"type": "http.response.start", "status": 503, "headers": head})
        await send({"type": "http.response.body", "body": content})

    return answer
