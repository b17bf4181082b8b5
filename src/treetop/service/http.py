"""One HTTP request: checks token, size and form, calls a handler, sends the answer and counts it.

Endpoints are ASGI applications themselves: what Starlette wraps around a function costs as much as a decision.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from treetop.errors import ClientGone, Problem
from treetop.service import logs
from treetop.service.body import BodyDecoder
from treetop.service.problems import Headers, as_problem, body_of, later
from treetop.service.service import Service
from treetop.service.tokens import is_local_name

JSON = b"application/json"
SUBSCRIPTION = b"ocp-apim-subscription-key"  # where clients of Azure Personalizer have their token
ENCODE = msgspec.json.Encoder().encode
SAFE: Headers = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


@dataclass(frozen=True)
class Raw:
    """An answer that is not JSON, or not 200."""

    content: Any
    status: int = 200
    kind: bytes = JSON

    def encoded(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else ENCODE(self.content)


class StartedCoroutine:
    """Awaits a coroutine that was started by hand with `send(None)`, which returned `first`."""

    def __init__(self, coroutine: Any, first: Any) -> None:
        self.coroutine, self.first = coroutine, first

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            yield self.first
        except BaseException as error:
            self.coroutine.throw(error)
            raise
        return (yield from self.coroutine.__await__())


Handler = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, eq=False)
class Endpoint:
    """A route with its handler. `body` is the type of the request's JSON; `scope` what its token must allow ("" for no
    token at all)."""

    service: Service
    route: str
    method: str
    handler: Handler
    scope: str
    body: type | None = None
    answer: type | None = None
    statuses: tuple[int, ...] = ()  # that it may answer with, besides those of every endpoint
    largest: int = 0  # bytes of a body
    about: str = ""
    counted: bool = True  # whether it counts towards the limit of requests in flight
    decoder: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.body is not None:
            object.__setattr__(self, "decoder", BodyDecoder(self.body))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        service = self.service
        if self.counted:
            service.in_flight += 1
        try:
            status, kind, content, headers = await self._answer(scope, receive)
        except ClientGone:
            return
        finally:
            if self.counted:
                service.in_flight -= 1
        head = [(b"content-type", kind), (b"content-length", b"%d" % len(content)), *SAFE, *headers]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": content})
        service.metrics.answered(self.route, status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes, bytes, Headers]:
        try:
            found = await self._handled(scope, receive)
            if isinstance(found, Raw):
                return found.status, found.kind, found.encoded(), []
            return 200, JSON, ENCODE(found), []
        except ClientGone:
            raise
        except Exception as error:
            problem = as_problem(error)
            if problem is None:
                logs.log_error("request failed", route=self.route)
                problem = Problem(500, "internal", "something went wrong here; it is in the service's log")
            elif problem.status >= 500:
                logs.log_event("request refused", logging.WARNING, route=self.route, code=problem.code, why=str(error))
            return problem.status, JSON, body_of(problem), problem.headers

    async def _handled(self, scope: Scope, receive: Receive) -> Any:
        service = self.service
        if scope["method"] != self.method and not (scope["method"] == "HEAD" and self.method == "GET"):
            allowed = [(b"allow", self.method.encode())]
            raise Problem(405, "method_not_allowed", f"{self.route} takes {self.method}", allowed)
        kind = length = credentials = host = b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
            elif name == b"authorization":
                credentials = value
            elif name == b"host":
                host = value
            elif name == SUBSCRIPTION and not credentials:
                credentials = b"Bearer " + value
        self._admit(scope, credentials, host)
        if self.counted and service.in_flight > service.limits.in_flight:
            raise later(429, "too_many", f"{service.limits.in_flight} requests are being answered already")
        if self.decoder is None:
            return await self.handler(service, scope)
        if kind != JSON and kind.partition(b";")[0].strip().lower() != JSON:
            raise Problem(415, "content_type", "the body must be application/json")
        return await self._handle_body(receive, length, scope)

    def _admit(self, scope: Scope, credentials: bytes, host: bytes) -> None:
        if self.scope == "":
            return
        tokens = self.service.tokens
        if not tokens:
            if not is_local_name(host):
                raise Problem(403, "forbidden", "without tokens, requests must name this machine, as localhost does")
            return
        scopes = scopes_of(self.service, scope, credentials)
        if scopes is None:
            challenge = [(b"www-authenticate", b"Bearer" if self.route.startswith("/v1/") else b"Basic realm=treetop")]
            raise Problem(401, "unauthorized", "a token is needed: Authorization: Bearer TOKEN", challenge)
        if self.scope not in scopes:
            raise Problem(403, "forbidden", f"this token does not have the scope {self.scope!r}")

    async def _handle_body(self, receive: Receive, length: bytes, scope: Scope) -> Any:
        """Reads the whole body and calls the handler with it. Raises a Problem if the body is too large, does not
        arrive in time, or is too much beside those of other requests."""
        held, until = 0, time.monotonic() + self.service.limits.seconds
        try:
            if length:
                held = self._hold(held, int(length) if length.isdigit() else self.largest + 1)
            message = await self._next(receive, until)
            body: bytes = message.get("body", b"")
            if len(body) > held:
                held = self._hold(held, len(body))
            if message.get("more_body", False):
                parts, size = [body], len(body)
                while message.get("more_body", False):
                    message = await self._next(receive, until)
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > held:
                        held = self._hold(held, size)
                body = b"".join(parts)
            given = self.decoder.decode(body)
            in_path = scope.get("path_params", {}).values()  # of a route such as /v1/sets/{name}
            return await self.handler(self.service, given, *in_path)
        finally:
            self.service.body_bytes -= held

    def _hold(self, held: int, size: int) -> int:
        """Counts `size` bytes of a body where `held` were counted before, and returns `size`."""
        service = self.service
        if size > self.largest:
            raise Problem(
                413, "too_large", f"the body is larger than {self.largest} bytes", [(b"connection", b"close")]
            )
        others = service.body_bytes - held
        if others > 0 and others + size > service.limits.bodies:
            raise later(429, "too_many", f"{others} bytes of other requests are being read; {size} more are too many")
        service.body_bytes = others + size
        return size

    async def _next(self, receive: Receive, until: float) -> Any:
        """The next part of the body. Most have arrived with the head; then this takes no turn of the event loop."""
        coroutine: Any = receive()
        try:
            first = coroutine.send(None)
        except StopIteration as done:
            message = done.value
        else:
            message = await self._wait_for(StartedCoroutine(coroutine, first), until)
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message

    async def _wait_for(self, coroutine: StartedCoroutine, until: float) -> Any:
        """Waits until a deadline, which `Service` enforces by cancelling this task."""
        waiting = self.service.waiting
        task = asyncio.current_task()
        assert task is not None
        waiting[task] = until
        try:
            return await coroutine
        except asyncio.CancelledError:
            if waiting.get(task, 0.0) != 0.0:
                raise
            raise Problem(408, "too_slow", f"the body did not come in {self.service.limits.seconds:g} s") from None
        finally:
            waiting.pop(task, None)


def scopes_of(service: Service, scope: Scope, credentials: bytes) -> frozenset[str] | None:
    """What an Authorization header allows; None without one or for a wrong one. Raises a Problem if too many wrong
    ones have come from the same address."""
    if not credentials:
        return None
    address, now, guesses = scope["client"][0] if scope.get("client") else "", time.monotonic(), service.guesses
    scopes = None if guesses.must_wait(address, credentials, now) else service.tokens.scopes(credentials)
    if scopes is not None:
        guesses.right(address, credentials)
    elif wait := guesses.wrong(address, now):
        raise later(429, "too_many", "too many wrong tokens have come from your address", wait)
    return scopes
