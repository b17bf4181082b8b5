"""`treetop serve`: a socket, and one or several workers that answer on it. A worker that dies is replaced."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from treetop.arrays import whole
from treetop.bandit import config
from treetop.bandit.folder import Home
from treetop.service import logs
from treetop.service.refit_scheduler import LOG_VARIABLE
from treetop.service.tokens import Tokens, check_listening, is_loopback

PATIENCE = 5.0  # seconds for a service that is ending to let go of the port
FINISH = 40.0  # seconds for workers to end
PAUSE = 1.0  # seconds before a dead worker is replaced


def serve(
    folder: Path, host: str = "127.0.0.1", port: int = 8700, workers: int = 1, log: str | None = None,
    tokens: Path | None = None, listening: Callable[[str], None] | None = None,
) -> None:  # fmt: skip
    """Serves a bandit's folder until it is told to end (SIGTERM, SIGINT). `listening` hears the URL first."""
    whole("workers", workers, 1, 256)
    whole("port", port, 0, 65_535)
    if tokens is not None:
        os.environ["TREETOP_TOKENS_FILE"] = str(tokens.resolve())
    check_listening(host, Tokens.read(os.environ))
    Home(folder).state()
    config.read(folder / config.CONFIG)
    if log is not None:
        os.environ[LOG_VARIABLE] = log
    logs.set_up()
    if where := os.environ.get(LOG_VARIABLE):
        logs.hide(where)
    with listening_on(host, port) as open_socket:
        address, number = open_socket.getsockname()[:2]
        url = f"http://{_bracketed(address)}:{number}"
        logs.say("listening", url=url, workers=workers, local=is_loopback(host))
        if listening is not None:
            listening(url)
        if workers == 1:
            from treetop.service.worker import run

            run(folder, open_socket)
        else:
            Workers(folder, open_socket, workers).run()


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def listening_on(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    until = time.monotonic() + PATIENCE
    while True:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host.strip("[]"), port))
            made.listen(2048)
        except OSError as error:
            made.close()
            if time.monotonic() > until:
                raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
            time.sleep(0.1)
        else:
            made.setblocking(False)
            return made


class Workers:
    """Processes that share the socket, the mapped model files and the log."""

    def __init__(self, folder: Path, listening: socket.socket, count: int) -> None:
        self.folder, self.listening, self.count = folder, listening, count
        self.metrics = Path(tempfile.mkdtemp(prefix="treetop-metrics-"))
        self.alive, self.held = os.pipe()  # `held` stays open here alone: workers see the end of `alive` when we end
        self.ending = False
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        try:
            self.running = [self._started() for _ in range(self.count)]
            while not self.ending:
                time.sleep(0.1)
                self._replace_dead()
        finally:
            self._finish()
            shutil.rmtree(self.metrics, ignore_errors=True)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.ending = True

    def _started(self) -> subprocess.Popen[bytes]:
        environment: Mapping[str, str] = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self.metrics)}
        handles = (self.listening.fileno(), self.alive)
        words = (self.folder, *handles, self.count)
        command = [sys.executable, "-m", "treetop.service.worker", *map(str, words)]
        return subprocess.Popen(command, env=environment, pass_fds=handles, start_new_session=True)

    def _replace_dead(self) -> None:
        for i, worker in enumerate(self.running):
            if (code := worker.poll()) is not None and not self.ending:
                logs.say("a worker ended", 40, pid_of_worker=worker.pid, code=code)
                time.sleep(PAUSE)
                self.running[i] = self._started()

    def _finish(self) -> None:
        """Asks every worker to finish, and waits."""
        logs.say("finishing", workers=len(self.running))
        for worker in self.running:
            worker.terminate()
        until = time.monotonic() + FINISH
        for worker in self.running:
            _wait(worker, until - time.monotonic())
        logs.say("stopped")


def _wait(worker: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        worker.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        worker.kill()
