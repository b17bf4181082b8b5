"""Batches the writes of one turn of the event loop into one job of the log.

Handing a job to the log's thread and being woken by it costs more than writing a row, so the requests that one turn
serves share a job. Each request gets the answers to its own items only. A request may also register a function that
returns its items when the turn is over, so that they can be computed in another thread until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from treetop.arrays import Ints
from treetop.errors import LogError
from treetop.log.base import NO_SETS

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class DeferredWrite(NamedTuple, Generic[Item, Answer]):
    """A request's write before the end of the turn: `make` returns its items; `answers` is what the request awaits."""

    make: Callable[[], Sequence[Item]]
    sets: Mapping[str, Ints]
    answers: asyncio.Future[list[Answer]]


class Write(NamedTuple, Generic[Item, Answer]):
    """A request's items and eligible sets, and the future that it awaits."""

    items: Sequence[Item]
    sets: Mapping[str, Ints]
    answers: asyncio.Future[list[Answer]]


class WriteBatcher(Generic[Item, Answer]):
    """Collects writes until the turn of the event loop is over, then submits them together.

    To be used in the thread of the event loop only. `submit` hands items and eligible sets to the log; its future gives
    one answer for each item, in their order. `noted` is told of every write: None, or the LogError that it ended with.
    """

    def __init__(
        self,
        submit: Callable[[list[Item], Mapping[str, Ints]], Future[list[Answer]]],
        noted: Callable[[LogError | None], None] = lambda error: None,
    ) -> None:
        self._submit, self._noted = submit, noted
        self._deferred: list[DeferredWrite[Item, Answer]] = []
        self._keys: set[str] = set()

    def add(
        self, items: Sequence[Item], sets: Mapping[str, Ints] = NO_SETS, keys: Iterable[str] = ()
    ) -> asyncio.Future[list[Answer]]:
        """Writes a request's items; the future has their answers once they are durable.

        Requests that share one of their `keys` are written by separate jobs.
        """
        if keys:
            if not self._keys.isdisjoint(keys):
                self._flush(asyncio.get_running_loop())
            self._keys.update(keys)
        return self.add_deferred(lambda: items, sets)

    def add_deferred(
        self, make: Callable[[], Sequence[Item]], sets: Mapping[str, Ints] = NO_SETS
    ) -> asyncio.Future[list[Answer]]:
        """The same for items that `make` returns at the end of the turn; its exception goes to the future."""
        loop = asyncio.get_running_loop()
        if not self._deferred:
            loop.call_soon(self._flush, loop)
        write: DeferredWrite[Item, Answer] = DeferredWrite(make, sets, loop.create_future())
        self._deferred.append(write)
        return write.answers

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        deferred, self._deferred = self._deferred, []
        self._keys.clear()
        writes = [write for write in map(_resolve, deferred) if write is not None]
        if writes:
            self._submit_all(loop, writes)

    def _submit_all(self, loop: asyncio.AbstractEventLoop, writes: list[Write[Item, Answer]]) -> None:
        items = [item for write in writes for item in write.items]
        sets = {name: arms for write in writes for name, arms in write.sets.items()}
        try:
            submitted = self._submit(items, sets)
        except Exception as error:
            self._failed(loop, writes, error)
        else:
            submitted.add_done_callback(lambda done: loop.call_soon_threadsafe(self._done, loop, writes, done))

    def _done(self, loop: asyncio.AbstractEventLoop, writes: list[Write[Item, Answer]], done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            self._failed(loop, writes, error)
            return
        self._noted(None)
        answers, at = done.result(), 0
        for write in writes:
            end = at + len(write.items)
            if not write.answers.done():  # it is done already if the request was cancelled
                write.answers.set_result(answers[at:end])
            at = end

    def _failed(self, loop: asyncio.AbstractEventLoop, writes: list[Write[Item, Answer]], error: BaseException) -> None:
        """A LogError fails all writes. Any other error comes from one of them, so each is submitted by itself."""
        if len(writes) > 1 and not isinstance(error, LogError):
            for write in writes:
                self._submit_all(loop, [write])
            return
        if isinstance(error, LogError):
            self._noted(error)
        for write in writes:
            if not write.answers.done():
                write.answers.set_exception(error)


def _resolve(write: DeferredWrite[Item, Answer]) -> Write[Item, Answer] | None:
    try:
        return Write(write.make(), write.sets, write.answers)
    except Exception as error:
        if not write.answers.done():
            write.answers.set_exception(error)
        return None
