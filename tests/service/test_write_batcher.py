"""The writes of one turn of the event loop as one job, and heads and bodies of answers as one write."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from treetop.arrays import Ints
from treetop.errors import LogError, UnknownArm
from treetop.service import decide, service
from treetop.service.connections import BufferedTransport
from treetop.service.http import StartedCoroutine
from treetop.service.write_batcher import WriteBatcher


class Store:
    """A log that answers at once, and keeps the jobs it was given."""

    def __init__(self, refuses: str = "", fails: BaseException | None = None) -> None:
        self.jobs: list[list[str]] = []
        self.refuses, self.fails = refuses, fails

    def submit(self, items: list[str], sets: Mapping[str, Ints]) -> "Future[list[str]]":
        self.jobs.append(items)
        if self.refuses in items:
            raise ValueError(f"{self.refuses} is refused")
        done: Future[list[str]] = Future()
        if self.fails is None:
            done.set_result([item.upper() for item in items])
        else:
            done.set_exception(self.fails)
        return done


def asked(store: Store, *requests: list[str], separate: bool = False) -> list[Any]:
    """What requests of one turn hear."""

    async def turn() -> list[Any]:
        batcher: WriteBatcher[str, str] = WriteBatcher(store.submit)
        waiting = [batcher.add(items, keys=set(items) if separate else ()) for items in requests]
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(turn())


def test_requests_of_one_turn_are_one_job_and_hear_of_their_own() -> None:
    store = Store()
    assert asked(store, ["a"], ["b", "c"], ["d"]) == [["A"], ["B", "C"], ["D"]]
    assert store.jobs == [["a", "b", "c", "d"]]


def test_requests_that_share_a_name_are_jobs_of_their_own() -> None:
    store = Store()
    assert asked(store, ["a"], ["b"], ["b"], ["c"], separate=True) == [["A"], ["B"], ["B"], ["C"]]
    assert store.jobs == [["a", "b"], ["b", "c"]]


def test_what_is_wrong_with_one_request_does_not_fail_the_others() -> None:
    store = Store(refuses="b")
    first, second, third = asked(store, ["a"], ["b"], ["c"])
    assert (first, third) == (["A"], ["C"])
    assert isinstance(second, ValueError)


@pytest.mark.parametrize(("error", "jobs"), [(LogError("away"), 1), (ZeroDivisionError("ours"), 3)])
def test_trouble_with_the_log_is_everybodys_and_not_tried_again(error: Exception, jobs: int) -> None:
    """Anything else is tried for each by itself, since it may be one alone that brings it about."""
    store = Store(fails=error)
    assert asked(store, ["a"], ["b"]) == [error, error]
    assert len(store.jobs) == jobs


def test_a_request_that_was_given_up_hears_nothing() -> None:
    async def turn() -> list[str]:
        batcher: WriteBatcher[str, str] = WriteBatcher(Store().submit)
        given_up, other = batcher.add(["a"]), batcher.add(["b"])
        given_up.cancel()
        return await other

    assert asyncio.run(turn()) == ["B"]


def test_what_is_in_the_making_is_asked_for_when_the_turn_is_over_and_fails_alone() -> None:
    store, order = Store(), list[str]()

    def make(item: str) -> list[str]:
        order.append(f"made {item}")
        if item == "b":
            raise ArithmeticError(item)
        return [item]

    async def turn() -> list[Any]:
        batcher: WriteBatcher[str, str] = WriteBatcher(store.submit)
        waiting = []
        for item in "abc":
            order.append(f"asked {item}")
            waiting.append(batcher.add_deferred(lambda item=item: make(item)))  # type: ignore[misc]
        return await asyncio.gather(*waiting, return_exceptions=True)

    first, second, third = asyncio.run(turn())
    assert (first, third) == (["A"], ["C"])
    assert isinstance(second, ArithmeticError)
    assert order == ["asked a", "asked b", "asked c", "made a", "made b", "made c"]
    assert store.jobs == [["a", "c"]]


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True


def test_head_and_body_are_written_together() -> None:
    transport: Any = Transport()
    joined = BufferedTransport(transport)
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    for part in (head, b"{}", b"HTTP/1.1 100 Continue\r\n\r\n", head):
        joined.write(part)
    assert transport.written == [head + b"{}", b"HTTP/1.1 100 Continue\r\n\r\n"]
    joined.flush()  # the answer to HEAD has no body
    joined.flush()
    assert transport.written[2:] == [head]
    joined.write(head)
    joined.close()
    assert transport.written[3:] == [head]
    assert joined.closed is True


def test_a_step_by_hand_is_waited_for_and_goes_on() -> None:
    async def slow() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return "come"

    async def wait(seconds: float) -> str:
        coming: Any = slow()
        return str(await asyncio.wait_for(begun(coming), seconds))

    async def begun(coming: Any) -> Any:
        return await StartedCoroutine(coming, coming.send(None))

    assert asyncio.run(wait(10)) == "come"
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(wait(0.001))


@pytest.mark.parametrize("taken_up", [True, False])
def test_an_arm_added_a_moment_ago_is_found_though_another_task_took_it_up(taken_up: bool) -> None:
    """The look at the folder finds nothing new, since the watch has just swapped; the work is done again."""

    class Service:
        bandit = SimpleNamespace(snapshot="old")
        refreshed_since = service.Service.refreshed_since

        async def refresh(self) -> bool:
            if taken_up:
                self.bandit.snapshot = "new"
            return False

    def work() -> str:
        if here.bandit.snapshot == "old":
            raise UnknownArm("tea")
        return "decided"

    here: Any = Service()
    if taken_up:
        assert asyncio.run(decide.with_new_arms(here, work)) == "decided"
    else:
        with pytest.raises(UnknownArm):
            asyncio.run(decide.with_new_arms(here, work))
