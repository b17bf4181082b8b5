"""What may happen to a service. Each fault is a function that does it to a cell and undoes it again.

A fault that `ends` processes comes in the first part of a cell, so that the memory of what lives on can be judged.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.running import COMMAND
from helpers.soak.service import OPEN_FILES, REFIT, Caller

if TYPE_CHECKING:
    from helpers.soak.cell import Cell

HEAD = b"POST /v1/decide HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n"
HELD = 25.0  # seconds that silent connections stay: longer than any client waits
ABSURD = (1e3, 1e6, 1e30, -1e30, 3.4e38, 1e308)
FORGET_MARGIN = 60.0  # seconds


@dataclass(frozen=True)
class Fault:
    name: str
    act: Callable[[Cell], None]
    ends: bool  # whether it ends processes of the service
    store: str  # the only store that it is about; empty for any
    needs_history: bool  # comes after all others that end processes


FAULTS: list[Fault] = []


def fault(
    ends: bool = False, store: str = "", needs_history: bool = False
) -> Callable[[Callable[[Cell], None]], Callable[[Cell], None]]:
    def listed(act: Callable[[Cell], None]) -> Callable[[Cell], None]:
        FAULTS.append(Fault(act.__name__.replace("_", " "), act, ends, store, needs_history))
        return act

    return listed


@fault(ends=True)
def worker_killed(cell: Cell) -> None:
    os.kill(cell.random.choice(cell.service.worker_pids()), signal.SIGKILL)
    time.sleep(1.0)  # for whoever has to notice it


@fault(ends=True)
def service_killed(cell: Cell) -> None:
    cell.service.kill()
    cell.pause(0.0, 2.0)
    cell.service.start()


@fault(ends=True)
def service_terminated(cell: Cell) -> None:
    began = time.monotonic()
    code = cell.service.terminate()
    cell.note(exit_code=code, seconds_to_end=round(time.monotonic() - began, 2))
    if code != 0:
        cell.find(f"failed: SIGTERM ended the service with code {code}")
    cell.service.start()


@fault()
def refit_killed(cell: Cell) -> None:
    for pid in cell.begin_refit():
        cell.pause(0.0, 0.5)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@fault(ends=True)
def model_truncated(cell: Cell) -> None:
    """The file that decisions are read from, in place; its bytes come back a while later."""
    folder = cell.folder / "models" / cell.state().model
    path = folder / "serving.bin"
    whole = path.read_bytes()
    os.truncate(path, len(whole) // 3)
    cell.pause(3.0, 8.0)
    if path.exists():  # a refit may have replaced the model meanwhile, and deleted it
        with path.open("r+b") as file:
            file.write(whole)


@fault()
def disk_full(cell: Cell) -> None:
    """Decisions are refused once the space that the log has already is used up."""
    pids = cell.service.pids()
    try:
        cell.disk.fill(pids, cell.folder / "log.sqlite")
        refused = cell.wait_for(lambda: cell.decide_status() == 503, 30.0)
        cell.pause(1.0, 4.0)
        again, ready = cell.decide_status(), cell.service.asked("/readyz")
        cell.note(refused=refused, decide=again, readyz=None if ready is None else ready.status)
        if again == 503 and ready is not None and ready.status == 200 and cell.decide_status() == 503:
            cell.find("failed: with a full disk decisions are refused and /readyz says ready")
    finally:
        cell.disk.free([*pids, *cell.service.pids()])
    cell.start_server()  # a database may have given up


@fault(store="postgres")
def database_stopped(cell: Cell) -> None:
    cell.stop_server(signal.SIGINT)
    cell.pause(2.0, 8.0)
    cell.start_server()


@fault(store="postgres")
def database_crashed(cell: Cell) -> None:
    cell.stop_server(signal.SIGQUIT)
    cell.pause(2.0, 8.0)
    cell.start_server()


@fault(store="postgres")
def database_killed(cell: Cell) -> None:
    cell.stop_server(signal.SIGKILL)
    cell.start_server()


@fault(store="postgres")
def database_restarted(cell: Cell) -> None:
    cell.stop_server(signal.SIGINT)
    cell.start_server()


@fault()
def silent_connections(cell: Cell) -> None:
    """More than a process may have open: some say nothing, some stop in the middle of a request's head."""
    opened = []
    for i in range((OPEN_FILES + 100) * cell.service.workers):
        with suppress(OSError):
            opened.append(socket.create_connection(("127.0.0.1", cell.service.port), timeout=1.0))
            if i % 2:
                opened[-1].sendall(HEAD[: len(HEAD) // 2])
    time.sleep(HELD)
    cell.note(opened=len(opened), ended_by_the_service=ended_by_peer(opened))


def ended_by_peer(connections: list[socket.socket]) -> int:
    """How many of them were answered or closed; closes all."""
    ended = 0
    for one in connections:
        one.settimeout(0.0)
        with suppress(BlockingIOError):  # nothing has come
            with suppress(ConnectionError):
                one.recv(4096)
            ended += 1
        one.close()
    return ended


@fault()
def slow_bodies(cell: Cell) -> None:
    """A byte a second, for twice as long as a body may take."""
    opened, head = [], HEAD + f"authorization: Bearer {cell.token}\r\n\r\n".encode()
    for _ in range(100):
        with suppress(OSError):
            opened.append(socket.create_connection(("127.0.0.1", cell.service.port), timeout=1.0))
            opened[-1].sendall(head)
    for _ in range(int(2 * cell.limits.seconds)):
        time.sleep(1.0)
        for one in opened:
            with suppress(OSError):
                one.sendall(b" ")
    ended = ended_by_peer(opened)
    cell.note(opened=len(opened), ended_by_the_service=ended)
    if not ended:
        cell.find(f"failed: bodies that take longer than limits.seconds, {cell.limits.seconds:g} s, are waited for")


@fault()
def rollback_during_refit(cell: Cell) -> None:
    running = cell.begin_refit()
    before, said = cell.observed(), cell.service.said_so_far()
    answer = cell.service.asked("/v1/rollback", {})
    if answer is None or answer.status not in (200, 409, 503):
        cell.find(f"failed: a rollback was answered {answer}")
    cell.note(refit_was_running=bool(running), rollback=answer.status if answer else None)
    time.sleep(1.5)
    again = [line for line in cell.service.lines("refit begins", said) if line.get("why") == "schedule"]
    if answer is not None and answer.status == 200 and running and again and cell.observed() < 1.05 * before:
        cell.find("failed: the schedule began a refit at once after a rollback, without new feedback")


@fault()
def arms_changed_during_refit(cell: Cell) -> None:
    cell.begin_refit()
    for _ in range(3):
        added = cell.service.asked("/v1/arms", cell.new_arms(5))
        arm = cell.random.choice(cell.arms)
        removed = cell.service.asked("/v1/arms", {"remove": [arm]})
        if removed is not None and removed.status == 200:
            cell.load.removed[arm] = time.time() + 5.0  # other workers have noticed by then
        for answer in (added, removed):
            if answer is None or answer.status not in (200, 409, 429, 503):
                cell.find(f"failed: a change of arms was answered {answer}")
        cell.pause(0.1, 1.0)


@fault(ends=True, needs_history=True)
def retention(cell: Cell) -> None:
    """Restarts with a small `keep_days`, and again without it. What may be deleted is looked for before."""
    began = time.time()
    cell.audit()
    keep = time.time() - began + FORGET_MARGIN
    cell.ledger.forgotten_before = began
    old = sum(
        sent < time.time() - keep for event, sent in dict(cell.ledger.sent).items() if event in cell.ledger.answers
    )
    config, before = cell.folder / "config.toml", cell.forgotten()
    whole = config.read_text()
    cell.service.terminate()
    config.write_text(re.sub(r"keep_days = .*", f"keep_days = {keep / 86400:.9f}", whole))
    try:
        cell.service.start()
        cell.service.wait_until_ready()
        cell.pause(10.0, 15.0)
    finally:
        cell.service.terminate()
        config.write_text(whole)
        cell.service.start()
    cell.service.wait_until_ready()
    gone = cell.forgotten() - before
    cell.note(older=old, deleted=gone)
    if old and not gone:
        cell.find(f"failed: {old} decisions were older than keep_days, and none was deleted after a start")


@fault()
def absurd_values(cell: Cell) -> None:
    statuses = []
    for value in ABSURD:
        visit = cell.random.choice(cell.load.visits)
        features = {**visit.features, cell.random.choice(list(visit.features)): value}
        answer = cell.decide_as_client(features)
        statuses.append(answer.status if answer is not None else 0)
        if answer is not None and answer.status not in (200, 422, 429, 503):
            cell.find(f"failed: a feature of {value:g} was answered {answer}")
    said = cell.service.said_so_far()
    cell.begin_refit()
    cell.wait_for(lambda: not cell.service.pids(REFIT), 60.0)
    cell.note(statuses=statuses)
    if failed := cell.service.lines("refit failed", said):
        cell.find(f"failed: the refit after absurd values: {failed[0].get('error')}")


@fault()
def another_folder_on_the_log(cell: Cell) -> None:
    """It must be refused before it reads or writes anything."""
    log = cell.service.log or str(cell.folder / "log.sqlite")
    words = [*COMMAND, "serve", str(cell.other_folder()), "--port", "0", "--log", log]
    said = cell.base / "other.lines"
    with said.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
    cell.wait_for(lambda: process.poll() is not None or b'"ready"' in said.read_bytes(), 60.0)
    cell.note(exit_code=process.poll())
    if process.poll() is None:
        cell.find("failed: another bandit's folder could open this log")
        process.terminate()
    process.wait(60)


@fault()
def wrong_tokens(cell: Cell) -> None:
    statuses: Counter[int] = Counter()
    until = time.monotonic() + 5.0

    def guess(number: int) -> None:
        caller = Caller(cell.service.port, token=f"a-wrong-token-{number:08d}")
        while time.monotonic() < until:
            statuses[cell.status_of(caller, "/v1/model")] += 1
        caller.close()

    together(guess, 4)
    cell.note(statuses=dict(statuses))
    if 200 in statuses:
        cell.find("failed: a wrong token was accepted")


@fault()
def many_explanations(cell: Cell) -> None:
    """Of old events, whose models are not the one that serves."""
    events = cell.events_of_old_models()
    statuses: Counter[int] = Counter()
    until = time.monotonic() + 5.0

    def explain(number: int) -> None:
        caller = Caller(cell.service.port)
        while time.monotonic() < until:
            body = {"event_id": cell.random.choice(events), "top": 5}
            statuses[cell.status_of(caller, "/v1/explain", body)] += 1
        caller.close()

    together(explain, 32)
    cell.note(statuses=dict(statuses))
    if wrong := set(statuses) - {0, 200, 404, 409, 429, 503}:
        cell.find(f"failed: explanations of old events were answered {wrong}")


def together(act: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=act, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
