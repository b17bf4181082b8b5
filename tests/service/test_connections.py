"""Connections that are silent, slow or too many, and connections when the service ends."""

import json
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.playing import X, Y
from helpers.running import COMMAND, Running, named, running, settings, small_bandit

from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.service.connections import KEEP_ALIVE, STUCK, Connections
from treetop.service.worker import LINGER

DECIDE = json.dumps({"features": named(X, 0)}).encode()


def connected(service: Running, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", service.port), timeout=30)
    made.sendall(sent)
    return made


def request(path: str, body: bytes = b"", length: int | None = None) -> bytes:
    head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nhost: localhost\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body) if length is None else length}\r\n"
    return head.encode() + b"\r\n" + body


def read_answer(connection: socket.socket) -> bytes:
    """A whole answer, or what came before the end of the stream."""
    received = b""
    while True:
        head, end, body = received.partition(b"\r\n\r\n")
        if end and len(body) == int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return received
        part = connection.recv(65_536)
        if not part:
            return received
        received += part


def is_closed(connection: socket.socket) -> bool:
    """Whether the service has closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    finally:
        connection.settimeout(30)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service in which a head must come within half a second."""
    limits = config.LimitConfig(head_seconds=0.5)
    with running(
        small_bandit(tmp_path_factory.mktemp("impatient") / "shop", X, Y, config=settings(limits=limits))
    ) as one:
        yield one


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", request("/healthz") + b"GET /healthz"],
    ids=["silent", "line", "head", "second head"],
)
def test_a_head_that_does_not_come_ends_the_connection(impatient: Running, sent: bytes) -> None:
    waiting = [connected(impatient, sent) for _ in range(40)]
    if sent.startswith(request("/healthz")):
        for one in waiting:
            assert read_answer(one).startswith(b"HTTP/1.1 200")
    impatient.wait_for(lambda: all(is_closed(one) for one in waiting), 30)
    for one in waiting:
        one.close()


def test_a_head_that_trickles_ends_the_connection(impatient: Running) -> None:
    with connected(impatient, b"GET /healthz HTTP/1.1\r\n") as one:

        def still_open() -> bool:
            try:
                one.sendall(b"x: y\r\n")
            except OSError:
                return False
            return not is_closed(one)

        impatient.wait_for(lambda: not still_open(), 30)


def test_an_idle_connection_and_a_slow_body_are_given_more_time(impatient: Running) -> None:
    begun = request("/v1/decide", DECIDE[:20], len(DECIDE))
    with connected(impatient, request("/healthz")) as idle, connected(impatient, begun) as slow:
        assert read_answer(idle).startswith(b"HTTP/1.1 200")
        with connected(impatient) as silent:
            impatient.wait_for(lambda: is_closed(silent), 30)  # by then a head would be overdue
        slow.sendall(DECIDE[20:])
        assert read_answer(slow).startswith(b"HTTP/1.1 200")
        idle.sendall(request("/healthz"))
        assert read_answer(idle).startswith(b"HTTP/1.1 200")


FEW_FILES = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh"]


def test_health_checks_get_through_when_descriptors_are_few(tmp_path: Path) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y)
    silent: list[socket.socket] = []
    with running(folder, before=FEW_FILES) as service, service.client() as client:
        try:
            client.decide(named(X, 0))
            silent += [connected(service) for _ in range(300)]
            for path in ("/healthz", "/readyz", "/v1/model", "/metrics"):
                assert service.get(path).status == 200
            client.decide(named(X, 0))
            assert sum(map(is_closed, silent)) >= 200  # who came first went first
            assert is_closed(silent[0])
            assert not is_closed(silent[-1])
        finally:
            for one in silent:
                one.close()
        assert [line["connections"] for line in service.said("fewer connections")] == [96]


def test_too_few_descriptors_are_an_error_at_the_start(tmp_path: Path) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y)
    command = ["sh", "-c", 'ulimit -n 128; exec "$@"', "sh", *COMMAND, "serve", str(folder), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "only 128 files may be open (ulimit -n)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_health_checks_get_through_when_all_connections_are_busy(tmp_path: Path) -> None:
    limits = config.LimitConfig(connections=3)
    with running(small_bandit(tmp_path / "shop", X, Y, config=settings(limits=limits))) as service:
        busy = [connected(service, request("/v1/decide", DECIDE[:20], len(DECIDE))) for _ in range(3)]
        service.wait_for(lambda: service.post("/v1/decide", DECIDE).status == 503)
        refused = service.post("/v1/decide", DECIDE)
        assert (refused.code, refused.headers["retry-after"], refused.headers["connection"]) == (
            "too_many",
            "1",
            "close",
        )
        assert service.get("/healthz").status == service.get("/readyz").status == 200
        silent = [connected(service) for _ in range(100)]
        assert service.get("/healthz").status == 200
        for one in busy:  # nobody who is being answered was sent away
            one.sendall(DECIDE[20:])
            assert read_answer(one).startswith(b"HTTP/1.1 200")
        assert service.post("/v1/decide", DECIDE).status == 200
        for one in (*busy, *silent):
            one.close()


class Visitors:
    """Threads that ask for decisions, each on one connection or on a new one for each request; counts what happens."""

    def __init__(self, service: Running, count: int, keep: bool) -> None:
        self.service, self.keep = service, keep
        self.outcomes: Counter[str] = Counter()
        self.answered: list[str] = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(f"{keep}-{n}",)) for n in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, tag: str) -> None:
        made: socket.socket | None = None
        number = 0
        while not self.stopping.is_set():
            number += 1
            try:
                if made is None:
                    made = connected(self.service)
                answer, event = self.ask(made, f"{tag}-{number}"), f"{tag}-{number}"
                outcome = "answered" if answer.startswith(b"HTTP/1.1 200") else "ended" if answer == b"" else "cut"
                if outcome == "answered":
                    self.answered.append(event)
                if not self.keep or outcome != "answered" or b"connection: close" in answer:
                    made.close()
                    made = None
            except OSError as error:
                made, outcome = None, type(error).__name__
            self.outcomes[outcome] += 1
            if outcome == "ConnectionRefusedError":
                break
        if made is not None:
            made.close()

    def ask(self, made: socket.socket, event: str) -> bytes:
        made.sendall(request("/v1/decide", json.dumps({"features": named(X, 0), "event_id": event}).encode()))
        return read_answer(made)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads), "a visitor hangs"


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_under_load_resets_nobody(tmp_path: Path, workers: int) -> None:
    """Who got through is answered, everyone else is refused; nobody is reset, cut off or left to wait."""
    folder = small_bandit(tmp_path / "shop", X, Y)
    with running(folder, "--workers", str(workers)) as service:
        service.wait_for(lambda: len(service.said("ready")) == workers)
        steady, passing = Visitors(service, 6, keep=True), Visitors(service, 6, keep=False)
        idle = connected(service, request("/healthz"))
        assert read_answer(idle).startswith(b"HTTP/1.1 200")
        service.wait_for(lambda: len(steady.answered) > 100 and len(passing.answered) > 100)
        assert service.end() == 0
        for visitors in (steady, passing):
            visitors.join()
            # "ended": who was silent for a second, as a thread of a busy machine may be, meets the end of the stream
            assert set(visitors.outcomes) <= {"answered", "ConnectionRefusedError", "ended"}, visitors.outcomes
            assert visitors.outcomes["ConnectionRefusedError"] == 6
        assert idle.recv(1) == b""  # an end, not a reset
        idle.close()
    with Bandit.open(folder) as bandit:
        assert all(bandit.log.event(event) for event in steady.answered + passing.answered)


def test_a_request_on_its_way_when_the_service_ends_is_answered(tmp_path: Path) -> None:
    """An idle connection is closed only after a moment: what was sent just then is answered, as the last one."""
    folder = small_bandit(tmp_path / "shop", X, Y)
    assert any(answers_the_last(folder) for _ in range(20))


def answers_the_last(folder: Path) -> bool:
    """False if this machine was too busy to send anything before that moment was over, which proves nothing."""
    with running(folder) as service, connected(service, request("/healthz")) as idle:
        read_answer(idle)
        with connected(service, request("/v1/decide", DECIDE[:20], len(DECIDE))) as slow:
            service.process.send_signal(signal.SIGTERM)
            looked = time.monotonic()
            while listens(service.port):
                looked = time.monotonic()
                time.sleep(0.005)
            idle.sendall(request("/v1/decide", DECIDE))
            slow.sendall(DECIDE[20:])
            if time.monotonic() > looked + LINGER:
                return False
            for one in (idle, slow):
                answer = read_answer(one)
                assert answer.startswith(b"HTTP/1.1 200")
                assert b"connection: close" in answer
        assert service.process.wait(60) == 0
    return True


def listens(port: int) -> bool:
    """Whether a socket of this machine listens there; to connect would take the second until the next try of TCP."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(local.endswith(f":{port:04X}") and state == "0A" for _, local, _, state, *_ in sockets)


class FakeConnection:
    """What `Connections` looks at in a connection."""

    def __init__(self, since: float, complete: bool = True, busy: bool = False, paused: bool = False) -> None:
        self.since, self.complete, self.busy, self.stuck = since, complete, busy, 0.0
        self.flow = SimpleNamespace(write_paused=paused)
        self.calls: list[str] = []
        close, abort = (lambda: self.calls.append("close")), (lambda: self.calls.append("abort"))
        self.transport = SimpleNamespace(is_closing=lambda: "close" in self.calls, close=close, abort=abort)


def test_each_kind_of_waiting_has_its_own_time() -> None:
    known = Connections(most=10, head_seconds=10.0)
    head, idle, busy = FakeConnection(100.0, complete=False), FakeConnection(100.0), FakeConnection(100.0, busy=True)
    unread = FakeConnection(100.0, busy=True, paused=True)
    connections = [head, idle, busy, unread]
    known.connections = set(connections)  # type: ignore[arg-type]
    happened = []
    for now in range(100, 260, 5):
        known.close_overdue(float(now))
        for one in connections:
            if one.calls:
                happened.append((connections.index(one), one.calls[0], now))
                known.connections.discard(one)
                one.calls.clear()
    assert happened == [(0, "close", 115), (3, "abort", 100 + STUCK + 5), (1, "close", 100 + KEEP_ALIVE + 5)]


def test_a_connection_that_does_not_take_its_last_answer_is_ended_in_the_end() -> None:
    known = Connections(most=10, head_seconds=10.0)
    one = FakeConnection(100.0)
    known.connections = {one}  # type: ignore[arg-type]
    for now in (100.0 + KEEP_ALIVE + 1, 200.0, 200.0 + STUCK, 201.0 + STUCK):
        known.close_overdue(now)
    assert one.calls == ["close", "abort"]
