"""Those who ask a service in tests: one after the other, or many at once, keeping what was acknowledged."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import treetop
from helpers.logs import check_whole
from helpers.problems import topics
from helpers.running import Running, named
from treetop.bandit.bandit import Bandit
from treetop.bandit.results import ServedDecision
from treetop.log.records import StoredEvent

X, Y = topics()
REWARDS = Y.toarray()
PAUSE = 0.01  # seconds between two requests of a thread: hundreds a second overlap, and a refit gets a core


def play(service: Running, rounds: int, tag: str, client: treetop.Client | None = None) -> list[ServedDecision]:
    """Decides and rewards; a reward is the label."""
    talking = client or service.client()
    shown = []
    for i in range(rounds):
        d = talking.decide(named(X, i % 600), event_id=f"{tag}-{i}")
        talking.reward(
            d.event_id, {arm: float(REWARDS[i % 600, int(str(arm)[1:])]) for arm in d.arms if str(arm)[0] == "a"}
        )
        shown.append(d)
    if client is None:
        talking.close()
    return shown


@dataclass
class Acknowledged:
    """What a service has said that it has."""

    decisions: dict[str, list[str | int]] = field(default_factory=dict)  # the arms shown
    rewards: dict[str, tuple[str | int, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.decisions) + len(self.rewards)

    def check(self, bandit: Bandit) -> None:
        """All of it is in the log, once, as it was said."""
        found: dict[str, StoredEvent] = {}
        log, ids = bandit.log, bandit.snapshot.arms.ids
        for chunk in log.entries(log.summary()):
            for entry in chunk:
                assert entry.stored.event.event_id not in found
                found[entry.stored.event.event_id] = entry.stored
        assert len(found) == log.counts().decisions
        for event, arms in self.decisions.items():
            assert event in found, f"{event} was acknowledged and is gone"
            assert [ids[arm] for arm in found[event].event.arms.tolist()] == arms
        for event, (arm, value) in self.rewards.items():
            slot = self.decisions[event].index(arm)
            assert found[event].rewards[slot] == value, f"the reward of {event} was acknowledged and is gone"
        check_whole(log)


class Load:
    """Threads that decide and reward until they are told to stop.

    With `through`, they go on whatever happens, sending again what failed; else every failure is only kept.
    """

    def __init__(self, service: Running, threads: int = 4, tag: str = "load", through: bool = False) -> None:
        self.service, self.through = service, through
        self.failures: list[str] = []
        self.acknowledged = Acknowledged()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(f"{tag}-{n}",)) for n in range(threads)]

    @property
    def decisions(self) -> int:
        return len(self.acknowledged.decisions)

    def _run(self, tag: str) -> None:
        with self.service.client(retries=0, timeout=30) as client:
            i = 0
            while not self._stop.is_set():
                done = self._tried(client, f"{tag}-{i}", i)
                i += done or not self.through
                self._stop.wait(PAUSE)

    def _tried(self, client: treetop.Client, event: str, i: int) -> bool:
        try:
            self._one(client, event, i)
        except Exception as error:
            self.failures.append(repr(error))
            time.sleep(0.02)
            return False
        return True

    def _one(self, client: treetop.Client, event: str, i: int) -> None:
        d = client.decide(named(X, i % 600), event_id=event)
        self.acknowledged.decisions[event] = d.arms
        arm, value = d.arms[0], round(random.Random(event).random(), 3)
        client.reward(event, {arm: value})
        self.acknowledged.rewards[event] = (arm, value)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def goes_on_until_mended(service: Running, broken: Path, whole: bytes) -> None:
    """With a damaged file in model 000002, 000001 serves and says why; once the file is mended, 000002 does."""
    model = service.get("/v1/model").json
    assert model["model"] == "000001"
    assert broken.name in model["trouble"]
    assert service.post("/v1/decide", {"features": named(X, 0)}).json["epoch"] == 1
    assert "treetop_model_trouble 1.0" in service.get("/metrics").content.decode()
    broken.write_bytes(whole)
    service.wait_for(lambda: service.model_is("000002"))
    assert service.get("/v1/model").json["trouble"] is None


def processes(folder: Path, module: str = "") -> list[int]:
    """The processes of a folder's service: all, or those that run one module."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(folder).encode() in words and (not module or module.encode() in words):
                found.append(int(entry.name))
    return found
