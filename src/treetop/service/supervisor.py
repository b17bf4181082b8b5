"""Keeps the workers of a service running: starts them, replaces those that die, ends them all.

Imports nothing but the standard library, and `treetop serve` becomes this file (`python supervisor.py FOLDER SOCKET
WORKERS`, SOCKET being a file descriptor), so that the process that watches takes little memory.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

SHUTDOWN_TIMEOUT = 40.0  # seconds for workers to end
QUICK = 10.0  # seconds of life: a worker that dies sooner is replaced after a pause
PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds; each death that comes quickly doubles the pause
CANNOT_START = 3  # exit code of a worker that could not even start
METRICS = "treetop-metrics-"
# A filter in BPF: a packet that asks for a connection (its flag SYN is set) is dropped, all others pass.
DROP_SYN = [(0x30, 0, 0, 13), (0x45, 0, 1, 2), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFF_FFFF)]
SO_ATTACH_FILTER = 26


def refuse_new(listening: socket.socket) -> bool:
    """Lets no new connection into a socket's queue, so that it can be emptied and closed without a race.

    Whoever tries is refused when the socket is closed. Returns whether the system can do that (Linux can).
    """
    if sys.platform != "linux":
        return False
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in DROP_SYN))
    program = struct.pack("HL", len(DROP_SYN), ctypes.addressof(code))
    try:
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except OSError:
        return False
    return True


class Worker:
    """A place for a worker: the process that has it, since when, and when the next one is due."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.started = self.due = 0.0
        self.deaths = 0  # in a row, each soon after the start

    def died(self, now: float) -> float:
        """Notes a death; returns the seconds until the next process is due: 0 the first time.

        >>> worker = Worker()
        >>> [worker.died(now) for now in (1.0, 2.0, 3.0, 60.0)]
        [0.0, 0.5, 1.0, 0.0]
        """
        self.deaths = self.deaths + 1 if now - self.started < QUICK else 1
        pause = min(LONGEST_PAUSE, PAUSE * 2.0 ** min(self.deaths - 2, 20)) if self.deaths > 1 else 0.0
        self.process, self.due = None, now + pause
        return pause


class Supervisor:
    """The workers of a service, which share the socket, the mapped model files and the log."""

    def __init__(self, folder: str, listening: socket.socket, count: int) -> None:
        self.folder, self.listening = folder, listening
        self.workers = [Worker() for _ in range(count)]
        self.alive, self.held = os.pipe()  # only this process holds `held` open: workers notice its end on `alive`
        self.news, self.told = os.pipe()  # each worker writes a byte to `told` when it serves
        os.set_blocking(self.news, False)
        self.served = False
        self.signals: list[int] = []
        self.metrics = MetricsFolder() if count > 1 else None

    def run(self) -> int:
        """Runs until SIGTERM or SIGINT; returns the exit code, which is not 0 if the service could not start."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        code = 0
        try:
            while not self.signals and code == 0:
                code = self._look_after(time.monotonic())
                pause = self._pause(time.monotonic())
                if code == 0 and not self.signals and select.select([woken], [], [], pause)[0]:
                    os.read(woken, 4096)
            return self._finish(woken) or code
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for handle in (woken, wake, self.alive, self.news, self.told):
                os.close(handle)
            if self.metrics is not None:
                self.metrics.remove()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)

    def _look_after(self, now: float) -> int:
        """Starts the workers that are due. Returns an exit code if the service cannot start.

        Once a worker has served, others will: one that meets a database that is down for a moment is tried again.
        """
        for worker in self.workers:
            if worker.process is not None and (code := worker.process.poll()) is not None:
                if code == CANNOT_START and worker.deaths == 0 and not self._has_served():  # it has said why
                    return 2
                pid, pause = worker.process.pid, worker.died(now)
                level = "error" if code else "info"  # a worker may be asked to end: another one reads the tokens again
                say("a worker ended", level, worker=pid, code=code, signal=signal_name(code), restart_in=pause)
            if worker.process is None and now >= worker.due and not self.signals:
                worker.process, worker.started = self._start(), now
        return 0

    def _has_served(self) -> bool:
        with suppress(BlockingIOError):
            self.served = bool(os.read(self.news, 4096)) or self.served
        return self.served

    def _pause(self, now: float) -> float | None:
        """Seconds until the next worker is due; None if all run."""
        due = [worker.due for worker in self.workers if worker.process is None]
        return max(0.0, min(due) - now) if due else None

    def _start(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if self.metrics is not None:
            environment["PROMETHEUS_MULTIPROC_DIR"] = self.metrics.path
        handles = (self.listening.fileno(), self.alive, self.told)
        arguments = map(str, (self.folder, *handles, len(self.workers)))
        command = [sys.executable, "-m", "treetop.service.worker", *arguments]
        # In this session: Linux would schedule another session as a group of its own, beside all others.
        return subprocess.Popen(command, env=environment, pass_fds=handles)

    def _finish(self, woken: int) -> int:
        """Lets go of the socket, asks every worker to end, and waits; a second SIGINT ends them at once."""
        running = [worker.process for worker in self.workers if worker.process is not None]
        say("finishing", workers=len(running))
        os.close(self.held)
        self.listening.close()
        for process in running:
            process.terminate()
        until = time.monotonic() + SHUTDOWN_TIMEOUT
        while any(process.poll() is None for process in running):
            left = until - time.monotonic()
            if left <= 0 or self.signals[1:].count(signal.SIGINT):
                break
            if select.select([woken], [], [], left)[0]:
                os.read(woken, 4096)
        late = [process for process in running if process.poll() is None]
        for process in late:
            say("a worker did not end", "error", worker=process.pid)
            process.kill()
            process.wait()
        say("stopped")
        return 1 if late else 0


class MetricsFolder:
    """A folder in which workers add up their metrics, locked as long as it is in use.

    What services that were killed have left behind is removed before.
    """

    def __init__(self) -> None:
        for path in Path(tempfile.gettempdir()).glob(METRICS + "*"):
            with suppress(OSError):  # another user's, or removed meanwhile
                if path.stat().st_mtime < time.time() - 60:  # a younger one may not be locked yet
                    os.close(_locked(path))
                    shutil.rmtree(path)
        self.path = tempfile.mkdtemp(prefix=METRICS)
        self._lock = _locked(Path(self.path))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock of a folder. Raises BlockingIOError if another process does."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def signal_name(code: int) -> str | None:
    """The name of the signal that an exit code of a child process stands for.

    >>> signal_name(-7), signal_name(1)
    ('SIGBUS', None)
    """
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return f"signal {-code}"


def say(event: str, level: str = "info", **facts: Any) -> None:
    """A line of the service's log, as `treetop.service.logs` writes them."""
    now = time.time()
    at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"
    known = {name: value for name, value in facts.items() if value is not None}
    print(json.dumps({"time": at, "level": level, "pid": os.getpid(), "event": event, **known}), file=sys.stderr)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[2])) as given:
        sys.exit(Supervisor(sys.argv[1], given, int(sys.argv[3])).run())
