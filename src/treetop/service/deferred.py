"""Decisions that nobody may have seen yet: kept beside the log until they are activated, with rewards that come before.

Each is durable before it is answered, and moves into the log whole. One that is not activated within a day is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from treetop.arrays import Ints
from treetop.errors import UnknownEvent
from treetop.log.base import Log
from treetop.log.records import Entry, Event, StoredEvent
from treetop.log.transfer import RECORDS, entry_of, record_of

PREFIX = "deferred "
DAY = 86400.0  # seconds
SWEPT = 4  # names that are looked at for each one that is kept


class Waiting(msgspec.Struct):
    """Decisions of one event, as export writes them, and rewards by event id; `time` is when they were made."""

    time: float
    records: list[msgspec.Raw]
    rewards: dict[str, float]


@dataclass(frozen=True, eq=False)
class Found:
    """What waits for its activation: decisions, the sets of arms that they name, and their rewards so far.

    `raw` is that as it is kept.
    """

    events: list[Event]
    sets: dict[str, Ints]
    rewards: dict[str, float]
    raw: bytes


class Deferred:
    """Keeps decisions in a log's store of names. Thread-safe as far as the log is."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._swept = ""  # the last name that was looked at

    def keep(self, name: str, events: list[Event], sets: Mapping[str, Ints]) -> bool:
        """Stores the decisions of an event; returns False if others wait under its name, which stay."""
        records = [_raw(event, sets.get(event.eligible)) for event in events]
        data = msgspec.json.encode(Waiting(time.time(), records, {}))
        if self.log.keep_changed(PREFIX + name, lambda found: found or data) != data:
            return False
        self._sweep()
        return True

    def _sweep(self) -> None:
        """Forgets what has waited for a day among the next few names, so that all have their turn as others come."""
        found = self.log.kept_after(PREFIX, self._swept, SWEPT)
        self._swept = found[-1][0] if len(found) == SWEPT else ""
        for name, data in found:
            if not data or msgspec.json.decode(data, type=Waiting).time < time.time() - DAY:
                self.log.drop(name, data)

    def find(self, name: str) -> Found | None:
        """What waits under a name."""
        found = self.log.kept(PREFIX + name)
        if not found:
            return None
        waiting = msgspec.json.decode(found, type=Waiting)
        entries = [entry_of(RECORDS.decode(record)) for record in waiting.records]
        sets = {e.stored.event.eligible: e.arms for e in entries if e.arms is not None}
        return Found([entry.stored.event for entry in entries], sets, waiting.rewards, found)

    def reward(self, name: str, rewards: Mapping[str, float]) -> bool:
        """Adds rewards by event id to what waits, the first of each; returns whether they wait now.

        Raises UnknownEvent if something waits there, and one of the ids is not among it.
        """
        found = self.find(name)
        if found is None:
            return False
        known = {event.event_id for event in found.events}
        if unknown := next((each for each in rewards if each not in known), None):
            raise UnknownEvent(f"there is no event {unknown!r}; {name!r} has {', '.join(sorted(known))}")
        if self.log.keep_changed(PREFIX + name, _with_rewards(rewards)):
            return True
        self.log.drop(PREFIX + name, b"")  # it went into the log meanwhile
        return False

    def drop(self, name: str, found: Found) -> bool:
        """Forgets what is in the log now; returns False, and keeps it, if more rewards came since it was found."""
        return self.log.drop(PREFIX + name, found.raw)


def _with_rewards(rewards: Mapping[str, float]) -> Callable[[bytes | None], bytes]:
    def change(found: bytes | None) -> bytes:
        if not found:
            return b""
        waiting = msgspec.json.decode(found, type=Waiting)
        return msgspec.json.encode(Waiting(waiting.time, waiting.records, {**rewards, **waiting.rewards}))

    return change


def _raw(event: Event, arms: Ints | None) -> msgspec.Raw:
    nothing = np.full(len(event), np.nan)
    entry = Entry(StoredEvent(event, nothing, nothing, 1), np.zeros(len(event), np.int64), arms)
    return msgspec.Raw(msgspec.json.encode(record_of(entry)))
