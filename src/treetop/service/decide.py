"""Handlers of decisions: check the request, decide, commit, answer. Knows nothing of headers, tokens or bodies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from treetop import _core
from treetop.arrays import Ints, Rows
from treetop.bandit.arm_filter import NO_ARMS, ArmFilter
from treetop.bandit.outliers import ClippedRow
from treetop.bandit.results import ServedDecision
from treetop.bandit.snapshot import Snapshot, request_digest
from treetop.errors import EventConflict, FeatureOutlier, NoEligibleArm, Problem, UnknownArm
from treetop.log.keys import NO_KEYS, Keys, as_keys
from treetop.log.records import Event, check_id
from treetop.service import schema
from treetop.service.problems import error_of, problem_of
from treetop.service.service import Service

A = TypeVar("A")
INLINE_ARMS = 200  # a request that lists more arms than this is looked up in a thread
CANNOT_DECIDE = (NoEligibleArm, FeatureOutlier)  # arms were removed, or limits lowered, since it was decided, perhaps
LIST_FORMS = (frozenset({"indices", "values"}), frozenset({"dense"}))


def context_row(service: Service, features: dict[str, Any]) -> Rows:
    """The row of a request's features, in one of their three forms."""
    return read_context(service, features)[0]


def read_context(service: Service, features: dict[str, Any]) -> tuple[Rows, tuple[str, ...]]:
    """The row of a request's features, and those that the vocabulary does not know."""
    vocabulary, largest = service.bandit.vocabulary, service.limits.features
    if len(features) <= largest and (found := vocabulary.named_fast(features)) is not None:
        if len(found[0].index) > largest:
            raise _too_many_features(len(found[0].index), largest)
        return found[0], _note_unknown(service, features, found[1])
    if features.keys().isdisjoint(vocabulary.vectors) and has_lists(features):
        if (size := len(features.get("indices", ()))) > largest:
            raise _too_many_features(size, largest)
        row = vocabulary.dense(features["dense"]) if "dense" in features else vocabulary.sparse(**features)
        if len(row.index) > largest:
            raise _too_many_features(len(row.index), largest)
        return row, ()
    if len(features) > largest:
        raise _too_many_features(len(features), largest)
    row, unknown = vocabulary.named(features)
    return row, _note_unknown(service, features, unknown)


def _note_unknown(service: Service, features: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Counts features that the vocabulary does not know, by name if they may join it, and returns their names."""
    if not count:
        return ()
    service.metrics.unknown.inc(count)
    return service.bandit.note_unknown(features)


def has_lists(features: dict[str, Any]) -> bool:
    """Whether the features are given by column or dense. Raises ValueError for a mixture of that and names."""
    if features.keys().isdisjoint(("indices", "values", "dense")):
        return False
    listed = {name for name, value in features.items() if type(value) is list}
    if not listed:
        return False
    if features.keys() not in LIST_FORMS or listed != features.keys():
        raise ValueError("features are names with values, or indices and values, or dense: not a mixture")
    return True


def check_features(features: dict[str, Any]) -> None:
    """Checks what the JSON schema says of features beyond their types; one bad request refuses a whole batch."""
    indices: Any = features.get("indices", []) if has_lists(features) else []
    if wrong := next((i for i in indices if i < 0 or i != math.floor(i)), None):
        raise ValueError(f"index {wrong:g} is not a whole number from 0 on")


def _too_many_features(size: int, largest: int) -> Problem:
    return Problem(422, "too_many_features", f"a context with {size} features; at most {largest} are accepted")


def event_text(event_id: str | int) -> str:
    """An event id as text, checked."""
    text = str(event_id)
    check_id(text)
    return text


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """A checked request, with the snapshot, the row and the arms that it is decided with."""

    snapshot: Snapshot
    row: Rows
    event_id: str | None
    request: schema.DecideRequest
    arm_filter: ArmFilter
    keys: Keys = NO_KEYS
    unknown: tuple[str, ...] = ()  # features

    @property
    def digest(self) -> bytes:
        """The request in 16 bytes, as its event has it."""
        return request_digest(self.row, self.request.k, self.request.explore, self.arm_filter, self.keys)

    def begin(self, service: Service, ahead: _core.Ahead | None = None) -> Callable[[], Event]:
        """Starts to decide; the function returned gives the event."""
        request = self.request
        try:
            row = self.snapshot.bounded(self.row)
        except FeatureOutlier:
            service.metrics.clipped.inc()
            raise
        if isinstance(row, ClippedRow):
            service.metrics.clipped.inc(row.clipped)
        return self.snapshot.begin(row, self.event_id, request.k, request.explore, self.arm_filter, ahead, self.keys)


def prepare(service: Service, request: schema.DecideRequest, capped: Ints = NO_ARMS) -> PreparedRequest:
    """Checks a request and looks up its features and arms; it may not show the `capped` ones."""
    limits = service.limits
    if request.k is not None and request.k > limits.k:
        raise Problem(422, "too_many_slots", f"k is {request.k}; at most {limits.k} are accepted")
    if request.eligible is not None or request.exclude is not None:
        check_arm_count(service, request.eligible, request.exclude)
    event_id = None if request.event_id is None else event_text(request.event_id)
    (row, unknown), keys = read_context(service, request.features), as_keys(request.keys)
    now, lists = service.bandit.snapshot, (request.eligible, request.exclude, request.where)
    snapshot, arm_filter = now.for_visit(event_id, keys, *lists, capped)
    return PreparedRequest(snapshot, row, event_id, request, arm_filter, keys, unknown)


def check_arm_count(service: Service, *lists: Sequence[Any] | None, changed: bool = False) -> None:
    """Raises a Problem if a request lists more arms than the settings allow; `changed`: arms that it says things of."""
    largest = service.limits.changed_arms if changed else service.limits.arms
    if (listed := sum(len(arms or ()) for arms in lists)) > largest:
        raise Problem(422, "too_many_arms", f"{listed} arms are listed; at most {largest} are accepted")


async def run_here(work: Callable[[], A]) -> A:
    return work()


async def with_new_arms(
    service: Service, work: Callable[[], A], run: Callable[[Callable[[], A]], Awaitable[A]] = run_here
) -> A:
    """Runs `work` by `run`. If it raises UnknownArm and another worker has just added arms, loads them and runs it
    again."""
    before = service.bandit.snapshot
    try:
        return await run(work)
    except UnknownArm:
        if await service.refreshed_since(before):
            return await run(work)
        raise


async def look_up_attributes(service: Service) -> None:
    """Reads the attributes that another worker may just have changed: a request with conditions sees the newest."""
    if service.bandit.attributes_stale():
        await asyncio.to_thread(service.bandit.look_up_attributes)


async def _capped(service: Service, request: schema.DecideRequest) -> Ints:
    """The arms that the request's visitor has seen often enough; asks the log only where caps are set."""
    if not request.keys or service.bandit.config.caps.visitor(keys := as_keys(request.keys)) is None:
        return NO_ARMS
    event_id = None if request.event_id is None else event_text(request.event_id)
    return await asyncio.to_thread(service.bandit.capped_arms, keys, event_id)


async def decide(service: Service, request: schema.DecideRequest) -> ServedDecision:
    if request.where:
        await look_up_attributes(service)
    capped = await _capped(service, request)
    if request.eligible is None and request.exclude is None:
        prepared = prepare(service, request, capped)
    else:
        many = len(request.eligible or ()) + len(request.exclude or ()) > INLINE_ARMS
        prepared = await with_new_arms(
            service, lambda: prepare(service, request, capped), asyncio.to_thread if many else run_here
        )
    try:
        finish = prepared.begin(service, service.ahead)
    except CANNOT_DECIDE as error:
        return await _served(service, await _logged_before(service, prepared, error), prepared.unknown)
    made: list[Event] = []

    def make() -> list[Event]:
        made.append(finish())
        return made

    found = (await service.append_deferred(make, prepared.arm_filter.sets()))[0]
    if found is made[0]:
        return service.bandit.served(found, prepared.unknown)
    if isinstance(found, EventConflict):
        raise found
    return await _served(service, found, prepared.unknown)


async def _logged_before(service: Service, prepared: PreparedRequest, error: Exception) -> Event:
    """The logged answer to a request that could not be decided now. Raises the error if there is none."""
    event_id = prepared.event_id
    stored = None if event_id is None else await asyncio.to_thread(service.bandit.log.event, event_id)
    if stored is None:
        raise error
    if stored.event.request != prepared.digest:
        raise EventConflict(stored.event)
    return stored.event


async def _served(service: Service, event: Event, unknown: tuple[str, ...]) -> ServedDecision:
    await load_arms_of(service, event)
    return service.bandit.served(event, unknown)


async def load_arms_of(service: Service, event: Event) -> None:
    """Loads what another worker decided an event with and this one does not know yet."""
    if not service.bandit.knows(event):
        await service.refresh()


def check_batch_size(service: Service, requests: Sequence[Any]) -> None:
    if len(requests) > service.limits.batch:
        most = service.limits.batch
        raise Problem(422, "too_many_requests_in_batch", f"{len(requests)} requests; at most {most} are accepted")


async def decide_batch(service: Service, batch: schema.DecideBatchRequest) -> schema.DecideBatchAnswer:
    """Decides in a thread and commits everything at once. Each request has its own result."""
    check_batch_size(service, batch.requests)
    check_arm_count(service, *(arms for request in batch.requests for arms in (request.eligible, request.exclude)))
    for request in batch.requests:
        check_features(request.features)
    if any(request.where for request in batch.requests):
        await look_up_attributes(service)
    before = service.bandit.snapshot
    attempts = await asyncio.to_thread(_attempt_all, service, batch.requests)
    if any(isinstance(attempt.error, UnknownArm) for attempt in attempts) and await service.refreshed_since(before):
        attempts = await asyncio.to_thread(_attempt_all, service, batch.requests)
    events = [attempt.event for attempt in attempts if attempt.event is not None]
    sets: dict[str, Ints] = {}
    for attempt in attempts:
        if attempt.prepared is not None and attempt.event is not None:
            sets.update(attempt.prepared.arm_filter.sets())
    written = iter(await service.append(events, sets) if events else [])
    return schema.DecideBatchAnswer([await _result(service, attempt, written) for attempt in attempts])


@dataclass(frozen=True, eq=False)
class Attempt:
    """One request of a batch before the commit: an event, or an error."""

    prepared: PreparedRequest | None = None
    event: Event | None = None
    error: Exception | None = None


def _attempt_all(service: Service, requests: Sequence[schema.DecideRequest]) -> list[Attempt]:
    shown: dict[tuple[str, str], Ints] = {}  # to each visitor that caps limit, by the batch itself
    return [_attempt(service, request, shown) for request in requests]


def _attempt(service: Service, request: schema.DecideRequest, shown: dict[tuple[str, str], Ints]) -> Attempt:
    prepared, bandit = None, service.bandit
    try:
        visitor = bandit.config.caps.visitor(keys := as_keys(request.keys)) if request.keys else None
        if visitor is None:
            prepared = prepare(service, request)
            return Attempt(prepared, prepared.begin(service)())
        event_id = None if request.event_id is None else event_text(request.event_id)
        also = shown.get(visitor, NO_ARMS)
        prepared = prepare(service, request, bandit.capped_arms(keys, event_id, also))
        event = prepared.begin(service)()
        shown[visitor] = np.concatenate([also, event.arms])
        return Attempt(prepared, event)
    except Exception as error:
        problem_of(error)
        return Attempt(prepared, error=error)


async def _result(service: Service, attempt: Attempt, written: Iterator[Event | EventConflict]) -> schema.DecideResult:
    try:
        if attempt.event is not None:
            event = next(written)
        elif isinstance(attempt.error, CANNOT_DECIDE) and attempt.prepared is not None:
            event = await _logged_before(service, attempt.prepared, attempt.error)
        else:
            assert attempt.error is not None
            raise attempt.error
        if isinstance(event, EventConflict):
            raise event
        unknown = () if attempt.prepared is None else attempt.prepared.unknown
        return schema.DecideResult(200, await _served(service, event, unknown))
    except Exception as error:
        problem = problem_of(error)
        return schema.DecideResult(problem.status, error=error_of(problem))
