"""`treetop demo --serve`: the service on the bundled data, with made-up visitors who ask it over HTTP.

A visitor is a package that looks for packages to depend on. Most say at once what of it was right, some say it later, a
few never do. The number of visitors and their rate are limited, and nothing but this machine is listened to or asked.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from treetop.arrays import real
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.client import Client
from treetop.data.datasets import Stream, load
from treetop.errors import ServiceError, ServiceUnreachable
from treetop.service import logs
from treetop.service.refit_scheduler import LOG_VARIABLE
from treetop.service.serve import serve

INIT, MAX_LEAF = 3_413, 10  # rows that the first model is made from; the other 50,000 are visitors
FIRST_REFIT = 500
LATER, NEVER = 0.15, 0.10  # shares of the visitors
DELAY = (5.0, 60.0)  # seconds
OURS = ("TREETOP_TOKEN", "TREETOP_TOKENS_FILE", LOG_VARIABLE)  # settings of real services, which a demo must not touch


def serve_demo(
    folder: Path, rounds: int, seed: int, port: int, rate: float, told: Callable[[str], None]
) -> None:  # fmt: skip
    """Serves until SIGTERM or Ctrl-C; a folder that is there already goes on where it stood. `told` hears the URL."""
    real("rate", rate, 0.1, 1000)
    stream = Stream.draw(load("debian"), INIT, rounds, seed)
    if not folder.exists():
        create(folder, stream, seed)
    for name in OURS:
        os.environ.pop(name, None)
    visitors: list[Visitors] = []

    def begin(url: str) -> None:
        told(url)
        visitors.append(Visitors(url, stream, rate, seed))
        visitors[0].start()

    try:
        serve(folder, port=port, listening=begin)
    finally:
        for running in visitors:
            running.stop()


def create(folder: Path, stream: Stream, seed: int) -> None:
    data = stream.dataset
    settings = config.Config(tree=config.Leaves(MAX_LEAF), refit=config.Refitting(first=FIRST_REFIT))
    Bandit.create(
        folder, stream.X_init, stream.Y_init, arms=data.arm_names, features=data.feature_names, config=settings,
        seed=seed,
    ).close()  # fmt: skip


class Visitors(threading.Thread):
    """Asks for decisions at a steady rate, and rewards them by the labels of the data."""

    def __init__(self, url: str, stream: Stream, rate: float, seed: int) -> None:
        super().__init__(name="visitors", daemon=True)
        self._client, self._stream, self._pause = Client(url, retries=1), stream, 1 / rate
        self._rng = np.random.default_rng(seed)
        self._ending = threading.Event()
        self._owed: list[tuple[float, str, Mapping[str | int, float]]] = []  # rewards to come, by their time
        self._tag = f"{int(time.time()) % 10**6:06d}"  # a second demo in one folder has other event ids

    def stop(self) -> None:
        self._ending.set()
        self.join()
        self._client.close()

    def run(self) -> None:
        while not self._client.ready():
            if self._ending.wait(0.1):
                return
        logs.say("visitors come", count=len(self._stream.rows), a_second=round(1 / self._pause, 1))
        for number in range(len(self._stream.rows)):
            if self._ending.wait(self._pause):
                return
            self._tried(partial(self._visit, number))
            self._pay()
        while self._owed and not self._ending.wait(1.0):
            self._pay()
        logs.say("visitors are gone")

    def _tried(self, work: Callable[[], object]) -> None:
        """A visit that fails is a visit less; the service may be ending, or its disk full."""
        try:
            work()
        except (ServiceError, ServiceUnreachable) as error:
            if not self._ending.wait(1.0):
                logs.say("a visit failed", 30, why=str(error))

    def _visit(self, number: int) -> None:
        stream, data = self._stream, self._stream.dataset
        row = int(stream.rows[number])
        names, ids = data.context_names, data.arm_names
        assert names is not None
        assert ids is not None
        shown = self._client.decide(stream.X.csr()[number], event_id=f"{names[row]}.{self._tag}-{number}")
        begin, end = data.Y.start[row], data.Y.start[row + 1]
        right = {ids[arm] for arm in data.Y.index[begin:end].tolist()}
        rewards = {arm: float(arm in right) for arm in shown.arms}
        luck = self._rng.random()
        if luck >= NEVER + LATER:
            self._client.reward(shown.event_id, rewards)
        elif luck >= NEVER:
            heapq.heappush(self._owed, (time.monotonic() + self._rng.uniform(*DELAY), shown.event_id, rewards))

    def _pay(self) -> None:
        while self._owed and self._owed[0][0] <= time.monotonic():
            _, event, rewards = heapq.heappop(self._owed)
            self._tried(partial(self._client.reward, event, rewards))
