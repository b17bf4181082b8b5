"""The thread that explains: one call at a time, with pauses, so that those who ask do not slow decisions down.

An event is explained by the model that decided it. A model is as large as the one that serves and takes as long to
load: one older model is kept, for as long as it is used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from treetop.bandit.bandit import Bandit
from treetop.bandit.snapshot import Snapshot
from treetop.errors import ModelFileError, Problem
from treetop.log.records import Event
from treetop.model.model import Model
from treetop.service.problems import later

WAITING = 4  # calls that may wait for the one at work; the others are told to come back
REST = 3.0  # the thread rests after a call, for so many times the processor time that it took
KEPT_FOR = 30.0  # seconds without use after which an older model is let go

A = TypeVar("A")


class Explanations:
    """The thread, and the older model that was asked for last."""

    def __init__(self, bandit: Bandit) -> None:
        self._bandit = bandit
        self._thread = ThreadPoolExecutor(1, "treetop-explain")
        self._calls = 0  # at work or waiting
        self._older: tuple[str, Model] | None = None
        self._used = self._rested = 0.0  # when `_older` was last used, when the thread has rested

    async def run(self, work: Callable[[], A]) -> A:
        """What `work` returns, in the thread. Raises a Problem at once if too many calls wait already."""
        if self._calls > WAITING:
            raise later(429, "busy", f"{self._calls} explanations are being made already, one after the other")
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)
        finally:
            self._calls -= 1

    def _work(self, work: Callable[[], A]) -> A:
        time.sleep(max(0.0, self._rested - time.monotonic()))
        began = time.thread_time()
        try:
            return work()
        finally:
            self._rested = time.monotonic() + REST * (time.thread_time() - began)

    def snapshot_of(self, event: Event) -> Snapshot:
        """The snapshot of the model that decided an event, to explain it. To be called in the thread only.

        Another worker may have decided it with arms that are not loaded here: then they are. Raises a Problem if the
        model is not kept any more.
        """
        self._bandit.catch_up(event)
        name, now = event.model, self._bandit.snapshot
        if name == now.name:
            return now
        self._used = time.monotonic()
        if self._older is None or self._older[0] != name:
            self._older = None  # two of them need not fit into memory
            try:
                self._older = name, Model.load(self._bandit.folder.model_path(name))
            except (ModelFileError, OSError):
                raise Problem(409, "model_not_kept", f"model {name} decided it and is not kept any more") from None
        return Snapshot(name, self._older[1], now.arms, self._bandit.config.policy, attributes=now.attributes)

    def expire(self) -> None:
        """Lets go of an older model that nobody has used for a while."""
        if self._older is not None and self._calls == 0 and time.monotonic() - self._used > KEPT_FOR:
            self._older = None

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
