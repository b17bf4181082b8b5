"""Load on a service: requests over connections that stay open, one at a time on each, and how long each answer took.

`python http_load.py PORT CONNECTIONS SECONDS FILE KEEP` sends the requests of a file as they are, and prints JSON with
the times and the last KEEP answers. It is a process of its own, so that it takes no time from the service's
interpreter, without event loop or HTTP library: sending must cost less than answering.
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

ANSWER_TIMEOUT = 60.0  # seconds for an answer
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


class Connection:
    """One connection: when its request was sent, and what was received of the answer."""

    __slots__ = ("began", "received", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.began, self.received = 0.0, b""

    def send(self, request: bytes) -> None:
        self.began, self.received = time.perf_counter(), b""
        self.socket.sendall(request)

    def receive(self) -> bytes | None:
        """The body of the answer, once it is whole."""
        part = self.socket.recv(65_536)
        if not part:
            raise RequestRefused("the service hung up")
        self.received = received = self.received + part if self.received else part
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return None
        if not received.startswith(b"HTTP/1.1 200"):
            raise RequestRefused(received[:300].decode(errors="replace"))
        at = received.find(b"content-length: ") + 16
        size = int(received[at : received.find(b"\r", at)])
        body = received[end + 4 :]
        return body if len(body) == size else None


def send_load(port: int, connections: int, seconds: float, requests: Sequence[bytes], keep: int = 0) -> dict[str, Any]:
    """Sends requests for so many seconds: how many answers came in how long, what each took, the last `keep` bodies."""
    made = [Connection(port) for _ in range(connections)]
    by_number = {connection.socket.fileno(): connection for connection in made}
    times, sent, last = array("d"), 0, list[bytes]()
    with select.epoll() as watch:
        for number in by_number:
            watch.register(number, select.EPOLLIN)
        began = time.perf_counter()
        until = began + seconds
        for connection in made:
            connection.send(requests[sent % len(requests)])
            sent += 1
        while len(times) < sent:
            ready = watch.poll(ANSWER_TIMEOUT)
            if not ready:
                raise RequestRefused(f"no answer in {ANSWER_TIMEOUT:g} s")
            for number, _ in ready:
                connection = by_number[number]
                body = connection.receive()
                if body is None:
                    continue
                now = time.perf_counter()
                times.append(now - connection.began)
                if now < until:
                    connection.send(requests[sent % len(requests)])
                    sent += 1
                else:
                    last.append(body)
        took = time.perf_counter() - began
    for connection in made:
        connection.socket.close()
    return {"answers": len(times), "seconds": took, "times": times.tolist(), "last": [b.decode() for b in last[:keep]]}


if __name__ == "__main__":
    port, connections, seconds, file, keep = sys.argv[1:]
    print(json.dumps(send_load(int(port), int(connections), float(seconds), read_requests(Path(file)), int(keep))))
