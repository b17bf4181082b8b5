"""Group commit: many threads submit jobs, one thread writes them, one commit for all that arrived during the last one.

Knows nothing of databases: the function `commit` takes jobs and returns their answers when they are durable.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from treetop.errors import LogError

MAX_GROUP = 1024  # items in one commit, or one job if it has more; keeps the first of them from waiting too long
LINGER = 0.25  # of a commit's time: how long the next one waits for callers that have just been answered


class Job(Protocol):
    """Something to write, of `size` items. A job that is `alone` gets a commit of its own."""

    @property
    def alone(self) -> bool: ...

    @property
    def size(self) -> int: ...


class Group:
    """The thread that writes, and the queue of jobs."""

    def __init__(self, commit: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._commit = commit
        self._waiting: deque[tuple[Any, Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._size = 0  # items of the jobs that wait
        self._wanted = 1  # items that have to wait before the thread is woken
        self._expected, self._until = 0, 0.0
        self._thread = threading.Thread(target=self._work, name="treetop-log", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[Any]:
        """Queues a job; the future has its answer once it is durable."""
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise LogError("the log is closed")
            self._waiting.append((job, future))
            self._size += job.size
            if self._size >= self._wanted:
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
            began = time.perf_counter()
            if running:
                self._write(running)
            now = time.perf_counter()
            self._expected = sum(job.size for job, _ in taken) + self._size
            self._until = now + LINGER * (now - began)

    def _take(self) -> list[tuple[Any, Future[Any]]]:
        with self._changed:
            # Callers that wait for each answer come back just after a commit. Without lingering for them, the first one
            # would be written alone, and every other commit would be nearly empty.
            self._wait(min(self._expected, MAX_GROUP), self._until)
            self._wait(1)
            taken: list[tuple[Any, Future[Any]]] = []
            size = 0
            while self._waiting and size < MAX_GROUP:
                job = self._waiting[0][0]
                if taken and (job.alone or taken[0][0].alone):
                    break
                taken.append(self._waiting.popleft())
                size += job.size
            self._size -= size
            return taken

    def _wait(self, items: int, until: float = math.inf) -> None:
        self._wanted = items
        while self._size < items and not self._closed and (left := until - time.perf_counter()) > 0:
            self._changed.wait(None if left == math.inf else left)
        self._wanted = 1

    def _write(self, running: list[tuple[Any, Future[Any]]]) -> None:
        try:
            answers = self._commit([job for job, _ in running])
        except LogError as error:
            for _, future in running:
                future.set_exception(error)
        except BaseException as error:
            if len(running) == 1:
                running[0][1].set_exception(error)
            else:  # one job is at fault, and the others must not fail with it
                for one in running:
                    self._write([one])
        else:
            for (_, future), answer in zip(running, answers, strict=True):
                future.set_result(answer)
