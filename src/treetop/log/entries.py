"""Entries of a log for export and import: read with all that belongs to them, and written into another log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from typing import Any

import numpy as np

from treetop.log.connection import Connection
from treetop.log.keys import NO_KEYS, Keys
from treetop.log.ownership import joined_owner, read_owner, store_owner
from treetop.log.pack import pack_event, unpack_set
from treetop.log.records import Entry, Event, LogSummary, Mark, ReplacedReward, Restored, StoredEvent
from treetop.log.write import (
    DECISION,
    EVENT,
    FROM_DECISIONS,
    REWARD,
    Settings,
    State,
    event_of,
    number_of,
    settings_of,
    store_keys,
    store_sets,
)

MAX_POSITION = 2**62  # no log reaches it


def read_marks(connection: Connection) -> list[Mark]:
    return [Mark(*row) for row in connection.rows("SELECT name, position, time FROM treetop_marks ORDER BY position")]


def read_entries(connection: Connection, until: int, which: str, *values: Any) -> list[Entry]:
    """The decisions that the end of a SELECT chooses, with their rewards up to a position."""
    rows = connection.rows(f"SELECT d.position, {EVENT} {FROM_DECISIONS} {which}", *values)
    keys = _read_keys(connection, [row[0] for row in rows])
    found = {row[0]: _without_rewards(event_of(row[1:], keys.get(row[0], NO_KEYS)), row[0]) for row in rows}
    if rows:
        sql = (
            "SELECT decision, slot, value, time, position FROM treetop_rewards "
            f"WHERE decision {connection.among} ORDER BY position"
        )
        replaced: dict[int, list[ReplacedReward]] = {}
        for decision, slot, value, time, position in connection.rows(sql, connection.several(list(found))):
            if position <= until:
                entry = found[decision]
                if entry.reward_positions[slot]:
                    replaced.setdefault(decision, []).append(_reward_of(entry, slot))
                entry.stored.rewards[slot], entry.stored.times[slot] = value, time
                entry.reward_positions[slot] = position
        for decision, earlier in replaced.items():
            entry = found[decision]
            found[decision] = replace(entry, stored=replace(entry.stored, replaced=_in_order(earlier)))
    return list(found.values())


def _reward_of(entry: Entry, slot: int) -> ReplacedReward:
    stored = entry.stored
    return ReplacedReward(
        slot, float(stored.rewards[slot]), float(stored.times[slot]), int(entry.reward_positions[slot])
    )


def _in_order(rewards: Iterable[ReplacedReward]) -> tuple[ReplacedReward, ...]:
    return tuple(sorted(rewards, key=lambda reward: reward.position))


def _all_rewards(entry: Entry) -> dict[int, list[ReplacedReward]]:
    """All rewards of each slot, the value that counts last."""
    slots = np.flatnonzero(entry.reward_positions).tolist()
    earlier = entry.stored.replaced
    return {slot: [*(r for r in earlier if r.slot == slot), _reward_of(entry, slot)] for slot in slots}


def _read_keys(connection: Connection, positions: list[int]) -> dict[int, Keys]:
    """The keys of the decisions at these positions that have any."""
    sql = f"SELECT decision, key_name, key_value FROM treetop_keys WHERE decision {connection.among}"
    found: dict[int, Keys] = {}
    for position, *key in sorted(connection.rows(sql, connection.several(positions))) if positions else ():
        found[position] = (*found.get(position, NO_KEYS), (key[0], key[1]))
    return found


def _without_rewards(event: Event, position: int) -> Entry:
    stored = StoredEvent(event, np.full(len(event), np.nan), np.full(len(event), np.nan), position)
    return Entry(stored, np.zeros(len(event), np.int64))


def all_entries(
    reading: Callable[[], AbstractContextManager[Connection]], until: int, size: int, after: int = 0
) -> Iterator[list[Entry]]:
    """Every entry behind one position and up to another, in chunks; an eligible set with the first that names it."""
    at, sent = after, {""}
    while True:
        with reading() as connection:
            which = "WHERE d.position > ? AND d.position <= ? ORDER BY d.position LIMIT ?"
            chunk = read_entries(connection, until, which, at, until, size)
            if not chunk:
                return
            at = chunk[-1].stored.position
            chunk = [_with_set(connection, entry, sent) for entry in chunk]
        yield chunk


def _with_set(connection: Connection, entry: Entry, sent: set[str]) -> Entry:
    name = entry.stored.event.eligible
    if name in sent:
        return entry
    sent.add(name)
    rows = connection.rows("SELECT arms FROM treetop_eligible WHERE fingerprint = ?", name)
    return replace(entry, arms=unpack_set(rows[0][0]))


def restore(connection: Connection, state: State, summary: LogSummary, chunks: Iterable[list[Entry]]) -> Restored:
    """Writes the entries of another log behind those of this one; see `Log.restore`."""
    empty, old = state.position == 0, read_owner(connection)
    owner = joined_owner(old, summary.owner, empty, connection.where)
    restoring = _Restoring(connection, state, shift=state.position, until=summary.counts.position)
    for chunk in chunks:
        restoring.add(chunk)
    if restoring.decisions + restoring.rewards:
        state.position += summary.counts.position
    if empty:
        _take_over(connection, state, summary)
    if owner is not None:
        store_owner(connection, old, owner)
    return Restored(restoring.decisions, restoring.rewards, restoring.known)


def _take_over(connection: Connection, state: State, summary: LogSummary) -> None:
    """Copies counts and marks into an empty log; decisions that were counted but not sent had been forgotten."""
    there, ever = state.decisions, summary.counts
    if there > ever.decisions or state.rewards > ever.rewards or state.observed > ever.observed_ever:
        raise ValueError(
            f"{there} decisions and {state.rewards} rewards for {state.observed} of them came from a log that says it "
            f"has had {ever.decisions} and {ever.rewards} for {ever.observed_ever}"
        )
    pending, observed = state.pending, state.observed
    for field in fields(summary.counts):
        setattr(state, field.name, getattr(summary.counts, field.name))
    state.forgotten, state.pending = summary.counts.decisions - there, pending
    state.observed, state.forgotten_observed = observed, summary.counts.observed_ever - observed
    if summary.marks:
        columns = ("name", "position", "time")
        connection.bulk("treetop_marks", columns, [(m.name, m.position, m.time) for m in summary.marks])
        state.sealed = max(m.position for m in summary.marks)


class _Restoring:
    """Writes entries into a log, chunk by chunk within one transaction; counts what it wrote."""

    def __init__(self, connection: Connection, state: State, shift: int, until: int) -> None:
        self.connection, self.state, self.shift, self.until = connection, state, shift, until
        self.numbers: dict[Settings, int] = {}
        self.sets: set[str] = {""}
        self.decisions = self.rewards = self.known = self.last = 0

    def add(self, chunk: list[Entry]) -> None:
        self._check(chunk)
        store_sets(self.connection, {e.stored.event.eligible: e.arms for e in chunk if e.arms is not None})
        there = self._there(chunk)
        new = [entry for entry in chunk if entry.stored.event.event_id not in there]
        self.connection.bulk("treetop_decisions", DECISION, [self._row(entry) for entry in new])
        store_keys(self.connection, [(entry.stored.position + self.shift, entry.stored.event) for entry in new])
        rows = [row for entry in chunk for row in self._rewards(entry, there.get(entry.stored.event.event_id))]
        self.connection.bulk("treetop_rewards", REWARD, rows)
        slots = sum(len(entry.stored.event) for entry in new)
        self.state.decisions += len(new)
        self.state.slots += slots
        self.state.pending += slots
        self.decisions += len(new)
        self.known += len(there)

    def _check(self, chunk: list[Entry]) -> None:
        for entry in chunk:
            event, position = entry.stored.event, entry.stored.position
            if not self.last < position <= self.until:
                limits = f"[{self.last + 1}, {self.until}]"
                raise ValueError(f"event {event.event_id!r} has position {position}, outside {limits}")
            self.last = position
            later = np.array([r.position for given in _all_rewards(entry).values() for r in given], np.int64)
            if len(later) and not position < later.min() <= later.max() <= self.until:
                limits = f"[{position + 1}, {self.until}]"
                raise ValueError(f"event {event.event_id!r} has rewards at {later.tolist()}, not all in {limits}")
            if entry.arms is not None:
                self.sets.add(event.eligible)
            if event.eligible not in self.sets:
                raise ValueError(f"event {event.event_id!r} names eligible set {event.eligible!r}, which has not come")
        names = [entry.stored.event.event_id for entry in chunk]
        if len(set(names)) < len(names):
            raise ValueError(f"event {next(n for n in names if names.count(n) > 1)!r} comes twice")

    def _there(self, chunk: list[Entry]) -> dict[str, Entry]:
        names = self.connection.several([entry.stored.event.event_id for entry in chunk])
        found = read_entries(self.connection, MAX_POSITION, f"WHERE d.event_id {self.connection.among}", names)
        there = {entry.stored.event.event_id: entry for entry in found}
        for entry in chunk:
            event = entry.stored.event
            if event.event_id in there and there[event.event_id].stored.event.request != event.request:
                raise ValueError(f"event {event.event_id!r} is in the log already, decided for another request")
        return there

    def _row(self, entry: Entry) -> tuple[Any, ...]:
        event = entry.stored.event
        number = number_of(self.connection, settings_of(event), self.numbers)
        return (
            entry.stored.position + self.shift,
            event.event_id,
            event.time,
            event.request,
            number,
            event.eligible,
            event.removals,
            *pack_event(event),
        )

    def _rewards(self, entry: Entry, there: Entry | None) -> list[tuple[Any, ...]]:
        """The rows of rewards that are not in the log yet."""
        given = _all_rewards(entry)
        known = {} if there is None else self._known(entry, there, given)
        new = {slot: rewards[len(known.get(slot, ())) :] for slot, rewards in given.items()}
        rows = _in_order(reward for rewards in new.values() for reward in rewards)
        position = entry.stored.position + self.shift if there is None else there.stored.position
        self.state.observed += bool(rows) and not known
        self.state.late += len(rows) * (position <= self.state.sealed)
        first = sum(slot not in known for slot in given)  # a correction is no reward more
        self.rewards += first
        self.state.rewards += first
        self.state.pending -= first
        return [(position, r.slot, r.value, r.time, r.position + self.shift) for r in rows]

    def _known(
        self, entry: Entry, there: Entry, given: dict[int, list[ReplacedReward]]
    ) -> dict[int, list[ReplacedReward]]:
        """The rewards that the log has of a decision. Raises ValueError if neither these nor those of the entry
        begin with the other."""
        event = entry.stored.event
        if not np.array_equal(there.stored.event.arms, event.arms):
            raise ValueError(f"event {event.event_id!r} is in the log already, with other arms")
        known = _all_rewards(there)
        for slot in given.keys() & known.keys():
            values = [[reward.value for reward in rewards] for rewards in (known[slot], given[slot])]
            if any(one != other for one, other in zip(*values, strict=False)):
                raise ValueError(
                    f"arm {event.arms[slot]} of event {event.event_id!r} has reward {values[0][-1]} in the log "
                    f"already, not {values[1][-1]}"
                )
        return known
