"""`treetop serve` as a process that can be ended in every way and started again on the same port, and how to ask it."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.playing import processes
from helpers.postgres import free_port
from helpers.running import COMMAND

TOKEN = "the-token-of-the-soak"
ANSWER_TIMEOUT = 20.0  # seconds without an answer after which a request counts as hung
START_TIMEOUT = 90.0  # seconds that a busy machine may take
END_TIMEOUT = 60.0
OPEN_FILES = 512  # that a process of the service may have
WORKER, REFIT = "treetop.service.worker", "treetop.service.refit_process"


class NoAnswer(Exception):
    """A request got no answer; the text is `refused`, `reset`, `closed` or `hung`."""


@dataclass(frozen=True)
class Answer:
    status: int
    content: bytes
    wait: float = 0.0  # seconds that the service asks to wait for

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"]) if self.content.startswith(b"{") else ""


class Caller:
    """One connection that stays open; opened again after a failure. For one thread."""

    def __init__(self, port: int, token: str = TOKEN, timeout: float = ANSWER_TIMEOUT) -> None:
        self.port, self.token, self.timeout = port, token, timeout
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, path: str, body: Any = None) -> Answer:
        """The answer to a GET, or with a body to a POST. Raises NoAnswer."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        head = {"authorization": f"Bearer {self.token}"}
        raw = None
        if body is not None:
            head["content-type"] = "application/json"
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self._connection.request("GET" if raw is None else "POST", path, raw, head)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(_kind(error)) from error
        if response.will_close:
            self.close()
        return Answer(response.status, content, float(response.getheader("retry-after") or 0))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _kind(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "hung"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError) and not isinstance(
        error, http.client.RemoteDisconnected
    ):
        return "reset"
    return "closed"


class Service:
    """The service of one folder. `say` gets its log lines; `scratch` is the folder of its temporary files."""

    def __init__(self, folder: Path, workers: int, log: str | None, say: Path, scratch: Path) -> None:
        self.folder, self.workers, self.log, self.say, self.scratch = folder, workers, log, say, scratch
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.meant_to_run = False
        scratch.mkdir()
        say.touch()

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TREETOP_")}
        environment |= {"TREETOP_TOKEN": TOKEN, "TMPDIR": str(self.scratch)}
        if self.log is not None:
            environment["TREETOP_LOG"] = self.log
        words = ["serve", str(self.folder), "--port", str(self.port), "--workers", str(self.workers)]
        with self.say.open("ab") as say:
            self.process = subprocess.Popen([*COMMAND, *words], stdout=say, stderr=say, env=environment)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        self.meant_to_run = True

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def asked(self, path: str, body: Any = None, timeout: float = ANSWER_TIMEOUT) -> Answer | None:
        """One request on a connection of its own; None if there was no answer."""
        caller = Caller(self.port, timeout=timeout)
        try:
            return caller.ask(path, body)
        except NoAnswer:
            return None
        finally:
            caller.close()

    def ready(self) -> bool:
        answer = self.asked("/readyz")
        return answer is not None and answer.status == 200

    def wait_until_ready(self, seconds: float = START_TIMEOUT) -> bool:
        """False if it takes longer, or if the service ends."""
        until = time.monotonic() + seconds
        while not self.ready():
            if time.monotonic() > until or self.ended():
                return False
            time.sleep(0.05)
        return True

    def pids(self, module: str = "") -> list[int]:
        """Its processes that live, all or those of a module."""
        return [pid for pid in processes(self.folder, module) if _alive(pid)]

    def worker_pids(self) -> list[int]:
        """The processes that answer requests."""
        return self.pids(WORKER)

    def kill(self) -> None:
        """kill -9 of everything at once: parent, workers, a refit."""
        self.meant_to_run = False
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        if self.process is not None:
            self.process.wait(END_TIMEOUT)

    def terminate(self) -> int | None:
        """SIGTERM; the exit code, or None if it had to be killed after a minute."""
        self.meant_to_run = False
        assert self.process is not None
        if not self.ended():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def lines(self, event: str = "", since: int = 0) -> list[dict[str, Any]]:
        """Its log lines after the first `since` bytes, those of one kind or all."""
        with self.say.open("rb") as file:
            file.seek(since)
            whole = [line for line in file.read().splitlines() if line.startswith(b"{") and line.endswith(b"}")]
        return [line for line in map(json.loads, whole) if event in ("", line["event"])]

    def said_so_far(self) -> int:
        return self.say.stat().st_size


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
