"""Group commit: many threads submit, one writes, and one commit serves all that came in the meantime.

Knows nothing of databases: `commit` takes jobs and returns their answers, which are then durable.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from treetop.log.records import LogError

GROUP = 1024  # jobs in one commit at most, so that the first of them need not wait for ever


class Job(Protocol):
    """Something to write; one that is `alone` shares its commit with no other."""

    @property
    def alone(self) -> bool: ...


class Group:
    """One thread that writes what other threads submit."""

    def __init__(self, commit: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._commit = commit
        self._waiting: deque[tuple[Any, Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="treetop-log", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[Any]:
        """The answer to a job, once it is durable."""
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise LogError("the log is closed")
            self._waiting.append((job, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Writes what was submitted, then ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while taken := self._take():
            # A future that was cancelled while it waited is not written; one that runs can no longer be cancelled.
            running = [(job, future) for job, future in taken if future.set_running_or_notify_cancel()]
            if running:
                self._write(running)

    def _take(self) -> list[tuple[Any, Future[Any]]]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            taken: list[tuple[Any, Future[Any]]] = []
            while self._waiting and len(taken) < GROUP:
                if self._waiting[0][0].alone and taken:
                    break
                taken.append(self._waiting.popleft())
                if taken[0][0].alone:
                    break
            return taken

    def _write(self, running: list[tuple[Any, Future[Any]]]) -> None:
        try:
            answers = self._commit([job for job, _ in running])
        except LogError as error:
            for _, future in running:
                future.set_exception(error)
        except BaseException as error:
            if len(running) == 1:
                running[0][1].set_exception(error)
            else:  # one job is at fault: the others must not fail with it
                for one in running:
                    self._write([one])
        else:
            for (_, future), answer in zip(running, answers, strict=True):
                future.set_result(answer)
