"""A service in a process of its own, on a free port of this machine, and a plain way to ask it anything."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import treetop
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.cli.main import main

COMMAND = [sys.executable, "-c", "import sys; from treetop.cli.main import main; sys.argv[0] = 'treetop'; main()"]
# A sanitizer that is preloaded is for Python and our core: others' programs do not start, or do not end, with it.
PLAIN = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
START = 60.0  # seconds that a busy machine may take
# Half of the time that a service takes to start is for what the command loads: a process has it ready, and forks.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["treetop.cli.main", "treetop.service.serve"])


def settings(**tables: Any) -> config.Config:
    """Settings of a small bandit; refits happen when they are asked for."""
    policy, refit = config.PolicyConfig(k=4, explore=2, beam=5), config.RefitConfig(first=10**9)
    return config.Config(**{"policy": policy, "tree": config.TreeConfig(4), "refit": refit, **tables})


def small_bandit(folder: Path, X: Any, Y: Any, **options: Any) -> Path:
    """Arms a0, a1, ...; features f0, f1, ..."""
    options.setdefault("config", settings())
    arms, features = [f"a{i}" for i in range(Y.shape[1])], [f"f{i}" for i in range(X.shape[1])]
    Bandit.create(folder, arms, X[:300], Y[:300], features=features, **options).close()
    return folder


def named(X: Any, row: int) -> dict[str, float]:
    """A context by names."""
    x = X[row]
    return {f"f{i}": float(v) for i, v in zip(x.indices, x.data, strict=True)}


def command(words: list[str], environment: dict[str, str], lines: Path) -> None:
    """What typing `treetop WORDS` does, in the process that this is called in; stderr goes to a file."""
    os.environ.clear()
    os.environ.update(environment)
    with lines.open("a") as file:
        os.dup2(file.fileno(), 2)
    sys.argv = ["treetop", *words]
    main()


class Forked:
    """A process that was forked, as `subprocess.Popen` has it."""

    def __init__(self, words: list[str], environment: dict[str, str], lines: Path) -> None:
        self.process = FORKS.Process(target=command, args=(words, environment, lines))
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("treetop", timeout or 0.0)
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


@dataclass
class Running:
    """A service that was started; `ask` sends exactly what it is told."""

    folder: Path
    process: subprocess.Popen[bytes] | Forked
    port: int
    lines: Path
    token: str | None = None
    connections: list[http.client.HTTPConnection] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> treetop.Client:
        return treetop.Client(self.url, token=self.token, **options)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        head = {} if raw is None else {"content-type": "application/json"}
        if self.token:
            head["authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, raw, {**head, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", path, body, headers)

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def said(self, event: str = "") -> list[dict[str, Any]]:
        """The lines of the service's log, those of one kind or all; not those that a full disk has cut short."""
        lines = []
        for line in self.lines.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
        return [line for line in lines if isinstance(line, dict) and event in ("", line["event"])]

    def wait_for(self, condition: Any, seconds: float = 60.0) -> Any:
        until = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < until, f"it did not happen in {seconds} s:\n{self.lines.read_text()[-3000:]}"
            assert self.process.poll() is None, f"the service has ended:\n{self.lines.read_text()[-3000:]}"
            time.sleep(0.05)
        return found

    def workers(self) -> list[int]:
        """The processes that have become ready, the newest last; some of them may have ended since."""
        return [line["pid"] for line in self.said("ready")]

    def model_is(self, name: str) -> bool:
        return bool(self.get("/v1/model").json["model"] == name)

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def running(
    folder: Path,
    *options: str,
    token: str | None = None,
    environment: dict[str, str] | None = None,
    before: Sequence[str] = (),
) -> Iterator[Running]:
    """Starts the service and waits until it is ready; ends it in the end. `before` comes before its command."""
    lines = folder.parent / f"{folder.name}.lines"
    begun = len(lines.read_text().splitlines()) if lines.exists() else 0
    lines.touch()
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TREETOP_")}
    words = ["serve", str(folder), *(() if "--port" in options else ("--port", "0")), *options]
    process: subprocess.Popen[bytes] | Forked
    if before:
        with lines.open("a") as file:
            process = subprocess.Popen([*before, *COMMAND, *words], stderr=file, env={**clean, **(environment or {})})
    else:
        process = Forked(words, {**clean, **(environment or {})}, lines)
    service = Running(folder, process, 0, lines, token)
    try:
        service.wait_for(lambda: "ready" in [line["event"] for line in service.said()[begun:]], START)
        listening = next(line for line in service.said()[begun:] if line["event"] == "listening")
        service.port = int(listening["url"].rpartition(":")[2])
        yield service
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
