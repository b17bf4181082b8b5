"""Asks a service over connections that stay open, each with one request at a time, and takes the times.

A process of its own, so that it takes no time from the service's interpreter; it is given the port, connections,
seconds, a file of requests that are sent as they are, and how many of the last answers to give back. No event loop and
no HTTP library: what asks must cost less than what answers.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treetop.errors import RequestRefused

PATIENCE = 60.0  # seconds for an answer
SIZE = struct.Struct("<I")


def write_requests(path: Path, bodies: Sequence[bytes], route: str = "/v1/decide") -> None:
    head = f"POST {route} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: "
    whole = [head.encode() + b"%d\r\n\r\n" % len(body) + body for body in bodies]
    path.write_bytes(b"".join(SIZE.pack(len(request)) + request for request in whole))


def read_requests(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (size,) = SIZE.unpack_from(data, at)
        at += SIZE.size
        found.append(data[at : at + size])
        at += size
    return found


class Talk:
    """One connection: what was sent when, and what has come of the answer."""

    __slots__ = ("began", "come", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.began, self.come = 0.0, b""

    def ask(self, request: bytes) -> None:
        self.began, self.come = time.perf_counter(), b""
        self.socket.sendall(request)

    def answer(self) -> bytes | None:
        """The body of the answer, once it is whole."""
        part = self.socket.recv(65_536)
        if not part:
            raise RequestRefused("the service hung up")
        self.come = come = self.come + part if self.come else part
        end = come.find(b"\r\n\r\n")
        if end < 0:
            return None
        if not come.startswith(b"HTTP/1.1 200"):
            raise RequestRefused(come[:300].decode(errors="replace"))
        at = come.find(b"content-length: ") + 16
        size = int(come[at : come.find(b"\r", at)])
        body = come[end + 4 :]
        return body if len(body) == size else None


def knock(port: int, connections: int, seconds: float, requests: Sequence[bytes], keep: int = 0) -> dict[str, Any]:
    """Asks for so long; how many answers in how many seconds, what each took, and the last bodies, `keep` at most."""
    talks = {talk.socket.fileno(): talk for talk in (Talk(port) for _ in range(connections))}
    times, sent, last = array("d"), 0, list[bytes]()
    with select.epoll() as watch:
        for number in talks:
            watch.register(number, select.EPOLLIN)
        began = time.perf_counter()
        until = began + seconds
        for talk in talks.values():
            talk.ask(requests[sent % len(requests)])
            sent += 1
        while len(times) < sent:
            ready = watch.poll(PATIENCE)
            if not ready:
                raise RequestRefused(f"no answer in {PATIENCE:g} s")
            for number, _ in ready:
                talk = talks[number]
                body = talk.answer()
                if body is None:
                    continue
                now = time.perf_counter()
                times.append(now - talk.began)
                if now < until:
                    talk.ask(requests[sent % len(requests)])
                    sent += 1
                else:
                    last.append(body)
        took = time.perf_counter() - began
    for talk in talks.values():
        talk.socket.close()
    return {"answers": len(times), "seconds": took, "times": times.tolist(), "last": [b.decode() for b in last[:keep]]}


if __name__ == "__main__":
    port, connections, seconds, file, keep = sys.argv[1:]
    print(json.dumps(knock(int(port), int(connections), float(seconds), read_requests(Path(file)), int(keep))))
