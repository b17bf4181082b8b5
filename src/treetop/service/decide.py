"""Requests for decisions: understood, decided, committed, answered. Knows nothing of heads, tokens or bodies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from treetop import _core
from treetop.arrays import Ints, Rows
from treetop.bandit.results import slots
from treetop.bandit.snapshot import Live, Restriction, digest
from treetop.errors import EventConflict, NoEligibleArm, Problem, UnknownArm
from treetop.log.records import Event, check_id
from treetop.service import schema
from treetop.service.problems import error_of, problem_of
from treetop.service.service import Service

A = TypeVar("A")
SMALL = 200  # arms listed in a request that is decided at once; more are looked up beside the other requests
LISTS = (frozenset({"indices", "values"}), frozenset({"dense"}))


def context(service: Service, features: dict[str, float | list[float]]) -> Rows:
    """The features of a request, in one of their three forms."""
    vocabulary, largest = service.bandit.vocabulary, service.limits.features
    if len(features) <= largest and (found := vocabulary.quickly(features)) is not None:
        if found[1]:
            service.metrics.unknown.inc(found[1])
        return found[0]
    if has_lists(features):
        lists: Any = features
        if (size := len(lists.get("indices", ()))) > largest:
            raise _too_many(size, largest)
        row = vocabulary.dense(lists["dense"]) if "dense" in lists else vocabulary.sparse(**lists)
        if len(row.index) > largest:
            raise _too_many(len(row.index), largest)
        return row
    if len(features) > largest:
        raise _too_many(len(features), largest)
    row, unknown = vocabulary.named(features)  # type: ignore[arg-type]
    if unknown:
        service.metrics.unknown.inc(unknown)
    return row


def has_lists(features: dict[str, float | list[float]]) -> bool:
    """Whether the features come as lists; an error if that is not one of the two forms that do."""
    if not any(type(value) is list for value in features.values()):
        return False
    if features.keys() not in LISTS or not all(type(value) is list for value in features.values()):
        raise ValueError("features are names with numbers, or indices and values, or dense: not a mixture")
    return True


def check_form(features: dict[str, float | list[float]]) -> None:
    """What the schema says of features beyond their types: a batch with any other is refused as a whole."""
    indices: Any = features.get("indices", []) if has_lists(features) else []
    if wrong := next((i for i in indices if i < 0 or i != math.floor(i)), None):
        raise ValueError(f"index {wrong:g} is not a whole number from 0 on")


def _too_many(size: int, largest: int) -> Problem:
    return Problem(422, "too_many_features", f"a context with {size} features; at most {largest} are accepted")


def name_of(event_id: str | int) -> str:
    name = str(event_id)
    check_id(name)
    return name


@dataclass(frozen=True, eq=False)
class Asked:
    """A request that was understood: what to decide, and within which arms."""

    live: Live
    row: Rows
    name: str | None
    ask: schema.DecideRequest
    limits: Restriction

    def begin(self, ahead: _core.Ahead | None = None) -> Callable[[], Event]:
        return self.live.begin(self.row, self.name, self.ask.k, self.ask.explore, self.limits, ahead)


def understood(service: Service, ask: schema.DecideRequest) -> Asked:
    limits = service.limits
    if ask.k is not None and ask.k > limits.k:
        raise Problem(422, "too_many_slots", f"k is {ask.k}; at most {limits.k} are accepted")
    if ask.eligible is not None or ask.exclude is not None:
        check_listed(service, ask.eligible, ask.exclude)
    name = None if ask.event_id is None else name_of(ask.event_id)
    row, live = context(service, ask.features), service.bandit.live
    return Asked(live, row, name, ask, live.restricted(ask.eligible, ask.exclude))


def check_listed(service: Service, *lists: Sequence[Any] | None) -> None:
    largest = service.limits.arms
    if (listed := sum(len(arms or ()) for arms in lists)) > largest:
        raise Problem(422, "too_many_arms", f"{listed} arms are listed; at most {largest} are accepted")


async def current(service: Service, work: Callable[[], A], aside: bool = False) -> A:
    """Does the work, once more if it met an arm that another worker has added a moment ago."""
    run: Callable[[], Awaitable[A]] = (lambda: asyncio.to_thread(work)) if aside else (lambda: _at_once(work))
    before = service.bandit.live
    try:
        return await run()
    except UnknownArm:
        if await service.newer(before):
            return await run()
        raise


async def _at_once(work: Callable[[], A]) -> A:
    return work()


async def decide(service: Service, ask: schema.DecideRequest) -> schema.DecideAnswer:
    if ask.eligible is None and ask.exclude is None:
        asked = understood(service, ask)
    else:
        aside = len(ask.eligible or ()) + len(ask.exclude or ()) > SMALL
        asked = await current(service, lambda: understood(service, ask), aside)
    try:
        begun = asked.begin(service.ahead)
    except NoEligibleArm:
        return await _decision(service, await _decided_before(service, asked))
    made: list[Event] = []

    def make() -> list[Event]:
        made.append(begun())
        return made

    found = (await service.append_coming(make, asked.limits.sets()))[0]
    if found is made[0]:
        return answer_of(service, found)
    if isinstance(found, EventConflict):
        raise found
    return await _decision(service, found)


async def _decided_before(service: Service, asked: Asked) -> Event:
    """A request for arms that are all gone by now may be one that was answered when they were there."""
    stored = None if asked.name is None else await asyncio.to_thread(service.bandit.log.event, asked.name)
    if stored is None:
        raise NoEligibleArm("none of the arms that the request allows can be shown")
    if stored.event.request != digest(asked.row, asked.ask.k, asked.ask.explore, asked.limits):
        raise EventConflict(stored.event)
    return stored.event


async def _decision(service: Service, event: Event) -> schema.DecideAnswer:
    await know_arms(service, event)
    return answer_of(service, event)


async def know_arms(service: Service, event: Event) -> None:
    """An event of another worker may show arms that this one has not heard of yet."""
    if len(event.arms) and int(event.arms.max()) >= len(service.bandit.live.catalogue):
        await service.refresh()


def answer_of(service: Service, event: Event) -> schema.DecideAnswer:
    shown = [schema.Slot(*slot) for slot in slots(event, service.bandit.live.catalogue)]
    return schema.DecideAnswer(event.event_id, event.epoch, shown)


def check_batch(service: Service, requests: Sequence[Any]) -> None:
    if len(requests) > service.limits.batch:
        most = service.limits.batch
        raise Problem(422, "too_many_requests_in_batch", f"{len(requests)} requests; at most {most} are accepted")


async def decide_batch(service: Service, batch: schema.DecideBatchRequest) -> schema.DecideBatchAnswer:
    """Decides beside the other requests, and commits all of it at once. Each request has its own result."""
    check_batch(service, batch.requests)
    check_listed(service, *(arms for ask in batch.requests for arms in (ask.eligible, ask.exclude)))
    for ask in batch.requests:
        check_form(ask.features)
    before = service.bandit.live
    made = await asyncio.to_thread(_attempts, service, batch.requests)
    if any(isinstance(attempt.error, UnknownArm) for attempt in made) and await service.newer(before):
        made = await asyncio.to_thread(_attempts, service, batch.requests)
    events = [attempt.event for attempt in made if attempt.event is not None]
    sets: dict[str, Ints] = {}
    for attempt in made:
        if attempt.asked is not None and attempt.event is not None:
            sets.update(attempt.asked.limits.sets())
    written = iter(await service.append(events, sets) if events else [])
    results = [await _result(service, attempt, written) for attempt in made]
    return schema.DecideBatchAnswer(results)


@dataclass(frozen=True, eq=False)
class Attempt:
    """What became of one request of a batch before the commit: an event, or an error."""

    asked: Asked | None = None
    event: Event | None = None
    error: Exception | None = None


def _attempts(service: Service, requests: Sequence[schema.DecideRequest]) -> list[Attempt]:
    return [_attempt(service, ask) for ask in requests]


def _attempt(service: Service, ask: schema.DecideRequest) -> Attempt:
    asked = None
    try:
        asked = understood(service, ask)
        return Attempt(asked, asked.begin()())
    except Exception as error:
        problem_of(error)
        return Attempt(asked, error=error)


async def _result(service: Service, attempt: Attempt, written: Iterator[Event | EventConflict]) -> schema.DecideResult:
    try:
        if attempt.event is not None:
            event = next(written)
        elif isinstance(attempt.error, NoEligibleArm) and attempt.asked is not None:
            event = await _decided_before(service, attempt.asked)
        else:
            assert attempt.error is not None
            raise attempt.error
        if isinstance(event, EventConflict):
            raise event
        return schema.DecideResult(200, await _decision(service, event))
    except Exception as error:
        problem = problem_of(error)
        return schema.DecideResult(problem.status, error=error_of(problem))
