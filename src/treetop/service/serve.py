"""`treetop serve`: opens a socket and runs one or several workers on it. A worker that dies is replaced."""

from __future__ import annotations

import logging
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

from treetop.arrays import check_int
from treetop.bandit.config import CONFIG, read_config
from treetop.bandit.folder import BanditFolder
from treetop.service import logs
from treetop.service.refit_scheduler import LOG_VARIABLE
from treetop.service.tokens import Tokens, check_listening, is_loopback

BIND_TIMEOUT = 5.0  # seconds for a service that is ending to release the port
SHUTDOWN_TIMEOUT = 40.0  # seconds for workers to end
RESTART_PAUSE = 1.0  # seconds before a dead worker is replaced


def serve(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8700,
    workers: int = 1,
    log: str | None = None,
    tokens: Path | None = None,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serves a bandit's folder until SIGTERM or SIGINT.

    `port` 0 takes a free one. `log` is the log's address, if it is not in the folder; `tokens` a file of tokens.
    `on_listening` is called with the URL before the first request is answered.
    """
    check_int("workers", workers, 1, 256)
    check_int("port", port, 0, 65_535)
    if tokens is not None:
        os.environ["TREETOP_TOKENS_FILE"] = str(tokens.resolve())
    check_listening(host, Tokens.read(os.environ))
    BanditFolder(folder).state()
    read_config(folder / CONFIG)
    if log is not None:
        os.environ[LOG_VARIABLE] = log
    logs.set_up()
    if where := os.environ.get(LOG_VARIABLE):
        logs.hide(where)
    with listening_on(host, port) as open_socket:
        address, number = open_socket.getsockname()[:2]
        url = f"http://{_bracketed(address)}:{number}"
        logs.log_event("listening", url=url, workers=workers, local=is_loopback(host))
        if on_listening is not None:
            on_listening(url)
        if workers == 1:
            from treetop.service.worker import run

            run(folder, open_socket)
        else:
            Workers(folder, open_socket, workers).run()


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def listening_on(host: str, port: int) -> socket.socket:
    """A listening socket. Waits a little for a service that is ending to release the port; then raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    until = time.monotonic() + BIND_TIMEOUT
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
    """Worker processes that share the socket, the mapped model files and the log."""

    def __init__(self, folder: Path, listening: socket.socket, count: int) -> None:
        self.folder, self.listening, self.count = folder, listening, count
        self.metrics = Path(tempfile.mkdtemp(prefix="treetop-metrics-"))
        self.alive, self.held = os.pipe()  # only this process holds `held` open: workers notice its end on `alive`
        self.ending = False
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        try:
            self.running = [self._start() for _ in range(self.count)]
            while not self.ending:
                time.sleep(0.1)
                self._replace_dead()
        finally:
            self._finish()
            shutil.rmtree(self.metrics, ignore_errors=True)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.ending = True

    def _start(self) -> subprocess.Popen[bytes]:
        environment: Mapping[str, str] = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self.metrics)}
        handles = (self.listening.fileno(), self.alive)
        arguments = (self.folder, *handles, self.count)
        command = [sys.executable, "-m", "treetop.service.worker", *map(str, arguments)]
        return subprocess.Popen(command, env=environment, pass_fds=handles, start_new_session=True)

    def _replace_dead(self) -> None:
        for i, worker in enumerate(self.running):
            if (code := worker.poll()) is not None and not self.ending:
                logs.log_event("a worker ended", logging.ERROR, pid_of_worker=worker.pid, code=code)
                time.sleep(RESTART_PAUSE)
                self.running[i] = self._start()

    def _finish(self) -> None:
        """Asks every worker to end, and waits."""
        logs.log_event("finishing", workers=len(self.running))
        for worker in self.running:
            worker.terminate()
        until = time.monotonic() + SHUTDOWN_TIMEOUT
        for worker in self.running:
            _wait(worker, until - time.monotonic())
        logs.log_event("stopped")


def _wait(worker: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        worker.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        worker.kill()
