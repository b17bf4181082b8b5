"""What /readyz knows: one write to the log at a time, shared by all who ask, and none where decisions prove enough."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from treetop.errors import LogError, Problem
from treetop.service import readiness
from treetop.service.readiness import PROBE_BYTES, Readiness


class Bandit:
    """A folder and a log that work, fail or hang as they are told."""

    def __init__(self) -> None:
        self.kept = ["000000"]
        self.folder = SimpleNamespace(has_model=lambda: bool(self.kept), path="shop")
        self.log = SimpleNamespace(keep=self.keep)
        self.writes, self.running, self.most = 0, 0, 0
        self.fails: Exception | None = None
        self.free = threading.Event()
        self.free.set()

    def keep(self, name: str, data: bytes) -> None:
        assert len(data) == PROBE_BYTES
        self.running += 1
        self.most = max(self.most, self.running)
        assert self.free.wait(60)
        self.running -= 1
        if self.fails is not None:
            raise self.fails
        self.writes += 1


def played(bandit: Bandit, play: Callable[[Readiness], Any]) -> Any:
    async def run() -> Any:
        return await play(Readiness(bandit))  # type: ignore[arg-type]

    return asyncio.run(run())


async def code(ready: Readiness) -> str:
    try:
        await ready.check()
    except Problem as problem:
        return problem.code if problem.status == 503 and problem.headers == [(b"retry-after", b"1")] else "wrong"
    return "ready"


async def later(ready: Readiness) -> str:
    """The answer when the last one is no longer good."""
    ready._began -= readiness.VALID_FOR
    return await code(ready)


def test_all_who_ask_share_one_write() -> None:
    bandit = Bandit()

    async def play(ready: Readiness) -> list[str]:
        first = await asyncio.gather(*(code(ready) for _ in range(50)))
        return [*first, await code(ready)]

    assert set(played(bandit, play)) == {"ready"}
    assert (bandit.writes, bandit.most) == (1, 1)


def test_decisions_that_were_just_written_are_proof_enough() -> None:
    bandit = Bandit()

    async def play(ready: Readiness) -> list[str]:
        ready.noted(None)
        return [await code(ready), await later(ready)]

    assert played(bandit, play) == ["ready", "ready"]
    assert bandit.writes == 0


def test_a_decision_that_could_not_be_written_counts_until_a_write_succeeds() -> None:
    bandit = Bandit()

    async def play(ready: Readiness) -> list[str]:
        found = [await code(ready)]
        ready.noted(LogError("disk full"))
        found.append(await code(ready))  # at once, although the last look was good
        bandit.fails = LogError("disk full")
        found.append(await later(ready))
        bandit.fails = None
        found.append(await later(ready))  # what is written here fits, but a decision has just been refused
        ready._refused_at -= readiness.REFUSED_FOR
        return [*found, await later(ready), await code(ready)]

    assert played(bandit, play) == ["ready", *["log_unavailable"] * 3, "ready", "ready"]


def test_a_decision_that_is_written_ends_the_refusal() -> None:
    async def play(ready: Readiness) -> list[str]:
        ready.noted(LogError("disk full"))
        found = [await code(ready)]
        ready.noted(None)
        return [*found, await code(ready)]

    assert played(Bandit(), play) == ["log_unavailable", "ready"]


def test_a_log_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "TIMEOUT", 0.05)
    bandit = Bandit()
    bandit.free.clear()

    async def play(ready: Readiness) -> list[str]:
        found = [await code(ready), *(await asyncio.gather(*(later(ready) for _ in range(5))))]
        look = ready._look
        bandit.free.set()
        assert look is not None
        await look
        return [*found, await code(ready)]

    assert played(bandit, play) == ["log_unavailable"] * 6 + ["ready"]
    assert bandit.most == 1


def test_a_folder_without_a_model() -> None:
    bandit = Bandit()
    bandit.kept = []

    async def play(ready: Readiness) -> list[str]:
        ready.noted(None)
        found = [await code(ready)]
        bandit.kept = ["000001"]
        return [*found, await later(ready)]

    assert played(bandit, play) == ["no_model", "ready"]


def test_a_folder_whose_state_cannot_be_read() -> None:
    bandit = Bandit()

    def has_model() -> bool:
        raise ValueError("shop/current: not JSON")

    bandit.folder.has_model = has_model
    assert played(bandit, code) == "no_model"
