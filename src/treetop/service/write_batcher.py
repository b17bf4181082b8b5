"""What the requests of one turn of the event loop write, as one job of the log: to wake a thread and to be woken by it
costs more than a row. Each request hears of its own part alone.

What a request writes may be in the making when the turn goes on to the next one; it is asked for when the turn is over.
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


class Part(NamedTuple, Generic[Item, Answer]):
    """What one request writes, and where it waits for the answers."""

    items: Sequence[Item]
    sets: Mapping[str, Ints]
    waiting: asyncio.Future[list[Answer]]


class Coming(NamedTuple, Generic[Item, Answer]):
    """A part that may still be in the making."""

    make: Callable[[], Sequence[Item]]
    sets: Mapping[str, Ints]
    waiting: asyncio.Future[list[Answer]]


class Together(Generic[Item, Answer]):
    """Collects until the turn is over. To be used in the thread of the event loop."""

    def __init__(self, submit: Callable[[list[Item], Mapping[str, Ints]], Future[list[Answer]]]) -> None:
        self._submit = submit
        self._coming: list[Coming[Item, Answer]] = []
        self._names: set[str] = set()

    def add(
        self, items: Sequence[Item], sets: Mapping[str, Ints] = NO_SETS, apart: Iterable[str] = ()
    ) -> asyncio.Future[list[Answer]]:
        """The answers to a request's items, once they are durable. Two requests that share a name of `apart` are
        written by two jobs."""
        if apart:
            if not self._names.isdisjoint(apart):
                self._send(asyncio.get_running_loop())
            self._names.update(apart)
        return self.add_coming(lambda: items, sets)

    def add_coming(
        self, make: Callable[[], Sequence[Item]], sets: Mapping[str, Ints] = NO_SETS
    ) -> asyncio.Future[list[Answer]]:
        """The same for items that `make` gives at the end of the turn; what it raises is the answer."""
        loop = asyncio.get_running_loop()
        if not self._coming:
            loop.call_soon(self._send, loop)
        coming: Coming[Item, Answer] = Coming(make, sets, loop.create_future())
        self._coming.append(coming)
        return coming.waiting

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        coming, self._coming = self._coming, []
        self._names.clear()
        parts = [part for part in map(_made, coming) if part is not None]
        if parts:
            self._write(loop, parts)

    def _write(self, loop: asyncio.AbstractEventLoop, parts: list[Part[Item, Answer]]) -> None:
        items = [item for part in parts for item in part.items]
        sets = {name: arms for part in parts for name, arms in part.sets.items()}
        try:
            written = self._submit(items, sets)
        except Exception as error:
            self._failed(loop, parts, error)
        else:
            written.add_done_callback(lambda done: loop.call_soon_threadsafe(self._done, loop, parts, done))

    def _done(self, loop: asyncio.AbstractEventLoop, parts: list[Part[Item, Answer]], done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            self._failed(loop, parts, error)
            return
        answers, at = done.result(), 0
        for part in parts:
            end = at + len(part.items)
            if not part.waiting.done():  # a request that was given up waits no longer
                part.waiting.set_result(answers[at:end])
            at = end

    def _failed(self, loop: asyncio.AbstractEventLoop, parts: list[Part[Item, Answer]], error: BaseException) -> None:
        """Trouble with the log is everybody's; anything else comes from one request, and must not hit the others."""
        if len(parts) > 1 and not isinstance(error, LogError):
            for part in parts:
                self._write(loop, [part])
            return
        for part in parts:
            if not part.waiting.done():
                part.waiting.set_exception(error)


def _made(coming: Coming[Item, Answer]) -> Part[Item, Answer] | None:
    try:
        return Part(coming.make(), coming.sets, coming.waiting)
    except Exception as error:
        if not coming.waiting.done():
            coming.waiting.set_exception(error)
        return None
