"""Pages over HTTP: access, headers and forms. Knows nothing of their content.

With tokens, a person enters one in a form once, and the browser keeps a signed session instead of it. Forms are
accepted only from the service's own pages, so that a page of another site cannot send one in a visitor's name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from treetop.errors import Problem
from treetop.service import logs
from treetop.service.dashboard import layout
from treetop.service.http import scopes_of
from treetop.service.problems import as_problem, later
from treetop.service.service import Service
from treetop.service.tokens import SCOPES, is_local_name

COOKIE = "treetop_session"
SESSION_SECONDS = 12 * 3600
MAX_FORM = 4096  # bytes
SAFE = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, browsers would hide the origin of our own forms
    "cache-control": "no-store",
}
Handler = Callable[[Request, frozenset[str]], Awaitable[Response]]


@dataclass(frozen=True, eq=False)
class Pages:
    """Makes routes whose answers are pages. `scope` is what a visitor's token must allow; "" for everyone."""

    service: Service

    def route(self, path: str, handler: Handler, scope: str = "read", method: str = "GET") -> Route:
        async def answer(request: Request) -> Response:
            began = time.perf_counter()
            self.service.in_flight += 1
            try:
                response = await self._answer(request, handler, scope)
            finally:
                self.service.in_flight -= 1
            for name, value in SAFE.items():
                response.headers.setdefault(name, value)
            self.service.metrics.answered(path, response.status_code, time.perf_counter() - began)
            return response

        return Route(path, answer, methods=[method])

    async def _answer(self, request: Request, handler: Handler, scope: str) -> Response:
        try:
            if self.service.in_flight > self.service.limits.in_flight:
                raise later(429, "too_many", "too many requests are being answered already")
            scopes = self._scopes(request)
            if scope and scopes is None:
                return HTMLResponse(layout.login(), 401, {"www-authenticate": "Bearer"})
            if scope and scope not in (scopes or ()):
                raise Problem(403, "forbidden", f"your token does not have the scope {scope!r}")
            if request.method == "POST" and not _same_origin(request):
                raise Problem(403, "forbidden", "forms are accepted from the pages of this service only")
            return await handler(request, scopes or frozenset())
        except Exception as error:
            problem = as_problem(error)
            if problem is None:
                logs.log_error("page failed", path=request.url.path)
                problem = Problem(500, "internal", "something went wrong here; it is in the service's log")
            headers = {name.decode(): value.decode() for name, value in problem.headers}
            return HTMLResponse(layout.problem(problem.status, problem.message), problem.status, headers)

    def _scopes(self, request: Request) -> frozenset[str] | None:
        tokens, headers = self.service.tokens, request.headers
        if not tokens:
            if not is_local_name(headers.get("host", "").encode("latin-1")):
                raise Problem(403, "forbidden", "without tokens, requests must name this machine, as localhost does")
            return frozenset(SCOPES)
        if given := headers.get("authorization"):
            return scopes_of(self.service, request.scope, given.encode("latin-1"))
        return tokens.in_session(request.cookies.get(COOKIE, ""), time.time())

    async def log_in(self, request: Request, scopes: frozenset[str]) -> Response:
        token = (await self.form(request)).get("token", "").strip()
        allowed = scopes_of(self.service, request.scope, b"Bearer " + token.encode())
        if allowed is None or "read" not in allowed:
            why = "This token is not known here." if allowed is None else "This token does not allow reading."
            return HTMLResponse(layout.login(why), 403)
        response = RedirectResponse("/", 303)
        session = self.service.tokens.session(token, int(time.time()) + SESSION_SECONDS)
        encrypted = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
        response.set_cookie(COOKIE, session, SESSION_SECONDS, secure=encrypted, httponly=True, samesite="strict")
        return response

    async def log_out(self, request: Request, scopes: frozenset[str]) -> Response:
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of a small form."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            raise Problem(415, "content_type", "the body must be a form")
        seconds = self.service.limits.seconds
        try:
            body = await asyncio.wait_for(_read(request), seconds)
        except asyncio.TimeoutError:
            raise Problem(408, "too_slow", f"the form did not come in {seconds:g} s") from None
        except ClientDisconnect:
            raise Problem(400, "malformed", "the form ended before its end") from None
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10)
        return {name: values[0] for name, values in fields.items()}


async def _read(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            raise Problem(413, "too_large", f"the form is larger than {MAX_FORM} bytes")
    return body


def _same_origin(request: Request) -> bool:
    """Whether a form came from one of the service's own pages, by headers that scripts cannot set."""
    if request.headers.get("sec-fetch-site") == "same-origin":
        return True
    origin = urlsplit(request.headers.get("origin", "")).netloc
    return origin != "" and origin == request.headers.get("host")
