"""The files that pages load, from the folder `static`. A fixed list: no path of a request reaches the file system."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from treetop.errors import Problem

STYLES = ("uPlot.min.css", "board.css")
ICON = "icon.svg"
SCRIPTS = ("htmx.min.js", "uPlot.iife.min.js", "board.js")
KINDS = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}


@cache
def content(name: str) -> bytes:
    return (resources.files("treetop.service.dashboard") / "static" / name).read_bytes()


@cache
def address(name: str) -> str:
    """The address of a file. It changes with the content, so browsers may keep the file for ever."""
    return f"/dashboard/static/{name}?{hashlib.sha256(content(name)).hexdigest()[:12]}"


async def file(request: Request, scopes: frozenset[str]) -> Response:
    name = request.path_params["name"]
    if name not in (*STYLES, *SCRIPTS, ICON):
        raise Problem(404, "not_found", "there is no such file")
    kept = {"cache-control": "public, max-age=31536000, immutable"} if request.url.query else {}
    return Response(content(name), 200, kept, KINDS[name.rpartition(".")[2]])
