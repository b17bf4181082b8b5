"""A service that drops, refuses and dawdles as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

DECISION = {
    "event_id": "x",
    "epoch": 0,
    "slots": [{"arm": "a", "propensity": 1.0, "score": 0.0, "explored": False, "via": None}],
}
OK: tuple[int, dict[str, str], Any] = (200, {}, DECISION)


class Flaky(HTTPServer):
    """Does what it was told to do with each request, one after the other."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan: list[Any] = []
        self.heard: list[tuple[str, str, Any, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Flaky

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        said = json.loads(body) if body else None
        self.server.heard.append((self.command, self.path, said, self.headers.get("authorization")))
        step = self.server.plan.pop(0)
        if step == "drop":
            self.close_connection = True
            return
        status, headers, answer = step
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Flaky]:
    with Flaky() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def refusal(status: int, code: str = "some", **headers: str) -> tuple[int, dict[str, str], Any]:
    return status, headers, {"error": {"code": code, "message": "no", "stored": {"a": 0.5}}}
