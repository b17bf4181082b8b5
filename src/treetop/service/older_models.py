"""Older models, to explain what they decided: one is loaded at a time, one call works with it at a time.

A model is as large as the one that serves and takes as long to load, so that a few callers who ask for many of them
could take the memory and the processor from decisions.
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
from treetop.model.model import Model
from treetop.service.problems import later

WAITING = 4  # calls that may wait for the one at work; the others are told to come back
KEPT_FOR = 30.0  # seconds without use after which a model is let go

A = TypeVar("A")


class OlderModels:
    """The last older model that was asked for, and the thread that works with it."""

    def __init__(self, bandit: Bandit) -> None:
        self._bandit = bandit
        self._thread = ThreadPoolExecutor(1, "treetop-older")
        self._calls = 0  # at work or waiting
        self._kept: tuple[str, Model] | None = None
        self._used = 0.0

    async def use(self, name: str, work: Callable[[Snapshot], A]) -> A:
        """What `work` returns for the snapshot of a kept model; both run in the thread.

        Raises a Problem if too many calls wait, or if the model is not kept any more.
        """
        if self._calls > WAITING:
            raise later(429, "busy", f"{self._calls} calls use older models already; one is served at a time")
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, name, work)
        finally:
            self._calls -= 1
            self._used = time.monotonic()

    def _work(self, name: str, work: Callable[[Snapshot], A]) -> A:
        model = self._load(name)
        return work(Snapshot(name, model, self._bandit.snapshot.arms, self._bandit.config.policy))

    def _load(self, name: str) -> Model:
        if self._kept is not None and self._kept[0] == name:
            return self._kept[1]
        self._kept = None  # two of them need not fit into memory
        try:
            model = Model.load(self._bandit.folder.model_path(name))
        except (ModelFileError, OSError):
            raise Problem(409, "model_not_kept", f"model {name} decided it and is not kept any more") from None
        self._kept = name, model
        return model

    def expire(self) -> None:
        """Lets go of a model that nobody has used for a while."""
        if self._kept is not None and self._calls == 0 and time.monotonic() - self._used > KEPT_FOR:
            self._kept = None

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
