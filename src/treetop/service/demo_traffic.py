"""`treetop demo --serve`: the service on the bundled data, with simulated traffic over HTTP.

A visitor is a package that looks for packages to depend on; a third of them have a small screen with three places. Most
rewards are sent at once, some later, a few never. The number of visitors and their rate are limited, and the service
listens on this machine only.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from treetop.arrays import check_float, check_int
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, TreeConfig
from treetop.bandit.refit_config import RefitConfig
from treetop.client.blocking import Client
from treetop.data.datasets import Stream, load
from treetop.errors import ServiceError, ServiceUnreachable
from treetop.service import logs
from treetop.service.refit_scheduler import LOG_VARIABLE
from treetop.service.serve import listening_on, serve

INIT, MAX_LEAF = 3_413, 10  # rows that the first model is made from; the other 50,000 are visitors
FIRST_REFIT = 500
HOST = "127.0.0.1"
LATE_SHARE, NEVER_SHARE = 0.15, 0.10  # of the visitors: rewards sent late, and never
SMALL_SHARE, SMALL_K, SMALL_EXPLORE = 1 / 3, 3, 2  # of the visitors: small screens
DELAY = (5.0, 60.0)  # seconds, shortest and longest
SERVICE_VARIABLES = ("TREETOP_TOKEN", "TREETOP_TOKENS_FILE", LOG_VARIABLE)  # of real services: a demo must not use them


def serve_demo(
    folder: Path, rounds: int, seed: int, port: int, rate: float, on_listening: Callable[[str], None]
) -> None:
    """Serves until SIGTERM or Ctrl-C, with `rounds` visitors, `rate` a second; an existing folder is continued.

    `on_listening` is called with the URL. Raises OSError before anything is written if the port is taken.
    """
    check_float("rate", rate, 0.1, 1000)
    listening_on(HOST, check_int("port", port, 0, 65_535)).close()  # before all that takes long
    stream = Stream.draw(load("debian"), INIT, rounds, seed)
    if not folder.exists():
        create(folder, stream, seed)
    for name in SERVICE_VARIABLES:
        os.environ.pop(name, None)
    traffic: list[DemoTraffic] = []

    def begin(url: str) -> None:
        on_listening(url)
        traffic.append(DemoTraffic(url, stream, rate, seed))
        traffic[0].start()

    try:
        serve(folder, HOST, port, on_listening=begin)
    finally:
        for running in traffic:
            running.stop()


def create(folder: Path, stream: Stream, seed: int) -> None:
    """Creates the demo's folder from the rows of the stream that are there for the first model."""
    data = stream.dataset
    config = Config(tree=TreeConfig(MAX_LEAF, seed=seed), refit=RefitConfig(first=FIRST_REFIT))
    Bandit.create(
        folder, data.arm_names, stream.X_init, stream.Y_init, features=data.feature_names, config=config
    ).close()


class DemoTraffic(threading.Thread):
    """A thread that asks for decisions at a steady rate and sends the labels of the data as rewards."""

    def __init__(self, url: str, stream: Stream, rate: float, seed: int) -> None:
        super().__init__(name="demo-traffic", daemon=True)
        self._client, self._stream, self._pause = Client(url, retries=1), stream, 1 / rate
        self._rng = np.random.default_rng(seed)
        self._ending = threading.Event()
        self._late: list[
            tuple[float, str, Mapping[str | int, float]]
        ] = []  # a heap of late rewards: time, event, rewards
        self._tag = f"{int(time.time()) % 10**6:06d}"  # gives a second demo in the same folder other event ids

    def stop(self) -> None:
        self._ending.set()
        self.join()
        self._client.close()

    def run(self) -> None:
        while not self._client.ready():
            if self._ending.wait(0.1):
                return
        logs.log_event("demo traffic begins", count=len(self._stream.rows), a_second=round(1 / self._pause, 1))
        for number in range(len(self._stream.rows)):
            if self._ending.wait(self._pause):
                return
            self._try(partial(self._visit, number))
            self._send_late()
        while self._late and not self._ending.wait(1.0):
            self._send_late()
        logs.log_event("demo traffic ended")

    def _try(self, work: Callable[[], object]) -> None:
        """Runs one call; a failure is logged, since the service may be ending or its disk full."""
        try:
            work()
        except (ServiceError, ServiceUnreachable) as error:
            if not self._ending.wait(1.0):
                logs.log_event("a demo request failed", logging.WARNING, why=str(error))

    def _visit(self, number: int) -> None:
        stream, data = self._stream, self._stream.dataset
        row = int(stream.rows[number])
        names, ids = data.context_names, data.arm_names
        assert names is not None
        assert ids is not None
        k, explore = (SMALL_K, SMALL_EXPLORE) if self._rng.random() < SMALL_SHARE else (None, None)
        served = self._client.decide(stream.X.csr()[number], f"{names[row]}.{self._tag}-{number}", k, explore)
        begin, end = data.Y.start[row], data.Y.start[row + 1]
        labels = {ids[arm] for arm in data.Y.index[begin:end].tolist()}
        rewards = {arm: float(arm in labels) for arm in served.arms}
        draw = self._rng.random()
        if draw >= NEVER_SHARE + LATE_SHARE:
            self._client.reward(served.event_id, rewards)
        elif draw >= NEVER_SHARE:
            heapq.heappush(self._late, (time.monotonic() + self._rng.uniform(*DELAY), served.event_id, rewards))

    def _send_late(self) -> None:
        while self._late and self._late[0][0] <= time.monotonic():
            _, event, rewards = heapq.heappop(self._late)
            self._try(partial(self._client.reward, event, rewards))
