"""What one transaction writes: decisions, rewards and marks.

Every function takes a connection that holds the log's write lock, and the state, which it changes and its caller
stores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from treetop.arrays import Ints, check_float, check_int
from treetop.errors import EventConflict
from treetop.log.connection import Connection
from treetop.log.keys import NO_KEYS, Keys
from treetop.log.pack import pack_event, pack_set, shown_arms, unpack_event
from treetop.log.records import LARGEST_REWARD, Counts, Event, Mark, Outcome, Reward, Status, check_event, check_id

FACTS = ("position", "event_id", "time", "request", "settings", "eligible", "removals")
DECISION = (*FACTS, "context", "slots", "components")
KEY = ("key_name", "key_value", "decision")
REWARD = ("decision", "slot", "value", "time", "position")
PACKED = "d.context, d.slots, d.components"
EVENT = f"d.event_id, d.time, d.request, {PACKED}, d.eligible, d.removals, s.epoch, s.model, s.tree, s.policy"
FROM_DECISIONS = "FROM treetop_decisions d JOIN treetop_settings s ON s.id = d.settings"


@dataclass
class State:
    """The one row of treetop_state, which every writer changes: the counts, and the position of the last mark."""

    position: int
    decisions: int
    slots: int
    rewards: int
    observed: int
    pending: int
    late: int
    forgotten: int
    forgotten_observed: int
    sealed: int

    def next(self) -> int:
        self.position += 1
        return self.position

    def counts(self) -> Counts:
        return Counts(*astuple(self)[:-1])


_NAMES = [f.name for f in fields(State)]
_READ = f"SELECT {', '.join(_NAMES)} FROM treetop_state"
_STORE = f"UPDATE treetop_state SET {', '.join(f'{name} = ?' for name in _NAMES)}"


def read_state(connection: Connection, alone: bool) -> State:
    """The state; `alone` locks it until the end of the transaction."""
    return State(*connection.rows(_READ + (connection.lock if alone else ""))[0])


def store_state(connection: Connection, state: State) -> None:
    connection.run_last(_STORE, *astuple(state))


Settings = tuple[int, str, str, str]  # epoch, model, tree, policy


class Numbers(dict[Settings, int]):
    """The numbers of settings that a writer knows, until anybody deletes decisions: settings go with the last one."""

    forgotten = 0  # decisions by then

    def copy(self) -> Numbers:
        new = Numbers(self)
        new.forgotten = self.forgotten
        return new

    def check(self, state: State) -> None:
        if state.forgotten != self.forgotten:
            self.clear()
            self.forgotten = state.forgotten


def settings_of(event: Event) -> Settings:
    return event.model_epoch, event.model, event.tree, event.policy


class Append:
    """A job: decisions to write, checked and packed in the caller's thread."""

    alone = False

    def __init__(self, events: Sequence[Event], sets: Mapping[str, Ints]) -> None:
        self.events, self.sets = list(events), sets
        for event in self.events:
            check_event(event)
            if event.eligible and event.eligible not in sets:
                raise ValueError(
                    f"event {event.event_id!r} names the eligible set {event.eligible!r}, not among `sets`"
                )
        self.size = max(1, len(self.events))
        self.packed = [pack_event(event) for event in self.events]


class Rewards:
    """A job: rewards to write, checked in the caller's thread."""

    alone = False

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.rewards = list(rewards)
        self.size = max(1, len({r.event_id for r in self.rewards}))  # a caller mostly has rewards of one event
        for r in self.rewards:
            check_id(r.event_id)
            check_int("arm", r.arm, 0)
            check_float("reward", r.value, -LARGEST_REWARD, LARGEST_REWARD)
            check_float("time", r.time, -1e15, 1e15)


class Alone:
    """A job: any other work, in a transaction of its own."""

    alone, size = True, 1

    def __init__(self, work: Callable[[Connection, State], Any]) -> None:
        self.work = work


def append(
    connection: Connection, state: State, jobs: Sequence[Append], known: dict[Settings, int]
) -> list[list[Event | EventConflict]]:
    """Writes the decisions whose ids are new. `known` has the numbers of settings; new ones are added to it."""
    if not jobs:
        return []
    first: dict[str, Event] = {}
    rows: dict[str, tuple[Any, ...]] = {}
    for job in jobs:
        for event, packed in zip(job.events, job.packed, strict=True):
            if event.event_id not in first:
                number = number_of(connection, settings_of(event), known)
                first[event.event_id] = event
                rows[event.event_id] = (
                    state.next(),
                    event.event_id,
                    float(event.time),
                    event.request,
                    number,
                    event.eligible,
                    event.removals,
                    *packed,
                )
    written = connection.insert("treetop_decisions", DECISION, list(rows.values()), known="event_id")
    before = _known_before(connection, rows) if written < len(rows) else {}
    store_keys(connection, [(rows[name][0], event) for name, event in first.items() if name not in before])
    listed = {event.eligible for name, event in first.items() if event.eligible and name not in before}
    store_sets(connection, {name: arms for job in jobs for name, arms in job.sets.items() if name in listed})
    count_decisions(state, [len(event) for name, event in first.items() if name not in before])
    first |= before
    return [[_answer(event, first[event.event_id]) for event in job.events] for job in jobs]


def _answer(event: Event, stored: Event) -> Event | EventConflict:
    return stored if stored.request == event.request else EventConflict(stored)


def _known_before(connection: Connection, rows: Mapping[str, tuple[Any, ...]]) -> dict[str, Event]:
    """The decisions, as logged, that were in the log before."""
    found = connection.rows(
        f"SELECT d.position, {EVENT} {FROM_DECISIONS} WHERE d.event_id {connection.among}",
        connection.several(list(rows)),
    )
    return {row[1]: event_of(row[1:]) for row in found if row[0] != rows[row[1]][0]}


def event_of(row: Sequence[Any], keys: Keys = NO_KEYS) -> Event:
    """An event from the columns named in EVENT, and its keys."""
    event_id, time, request, context, slots, components, eligible, removals, *settings = row
    packed = (context, slots, components)
    return unpack_event(event_id, time, request, packed, tuple(settings), (eligible, removals, keys))


def count_decisions(state: State, lengths: Sequence[int]) -> None:
    slots = sum(lengths)
    state.decisions += len(lengths)
    state.slots += slots
    state.pending += slots


def number_of(connection: Connection, settings: Settings, known: dict[Settings, int]) -> int:
    """The number under which an epoch, model, tree and policy are stored, once for all decisions that share them."""
    if settings not in known:
        digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).digest()
        found = connection.rows("SELECT id FROM treetop_settings WHERE digest = ?", digest)
        if not found:
            found = connection.rows("SELECT coalesce(max(id), 0) + 1 FROM treetop_settings")
            columns = ("id", "digest", "epoch", "model", "tree", "policy")
            connection.insert("treetop_settings", columns, [(found[0][0], digest, *settings)])
        known[settings] = found[0][0]
    return known[settings]


def store_keys(connection: Connection, events: Sequence[tuple[int, Event]]) -> None:
    """Stores the keys of events that are at these positions."""
    rows = [(*key, position) for position, event in events for key in event.keys]
    if rows:
        connection.insert("treetop_keys", KEY, rows)


def store_sets(connection: Connection, sets: Mapping[str, Ints]) -> None:
    if not sets:
        return
    sql = f"SELECT fingerprint FROM treetop_eligible WHERE fingerprint {connection.among}"
    there = {row[0] for row in connection.rows(sql, connection.several(list(sets)))}
    rows = [(name, pack_set(arms)) for name, arms in sets.items() if name not in there]
    if rows:
        connection.insert("treetop_eligible", ("fingerprint", "arms"), rows)


@dataclass
class _Rewarded:
    """A decision that gets rewards: its position, the slot of each arm, and all rewards of each slot so far."""

    position: int
    slot: dict[int, int]
    rewards: dict[int, list[float]]


def add_rewards(connection: Connection, state: State, jobs: Sequence[Rewards]) -> list[list[Outcome]]:
    """Writes rewards; those of an event in one call only if none of them is refused."""
    if not jobs:
        return []
    events = _find_events(connection, {r.event_id for job in jobs for r in job.rewards})
    rows: list[tuple[Any, ...]] = []
    answers = [_job_rewards(state, job, events, rows) for job in jobs]
    if rows:
        connection.insert("treetop_rewards", REWARD, rows)
    return answers


def _find_events(connection: Connection, ids: set[str]) -> dict[str, _Rewarded]:
    sql = f"SELECT event_id, position, slots FROM treetop_decisions WHERE event_id {connection.among}"
    found = {
        name: _Rewarded(position, {arm: slot for slot, arm in enumerate(shown_arms(slots))}, {})
        for name, position, slots in connection.rows(sql, connection.several(list(ids)))
    }
    by_position = {event.position: event for event in found.values()}
    sql = f"SELECT decision, slot, value FROM treetop_rewards WHERE decision {connection.among} ORDER BY position"
    for position, slot, value in connection.rows(sql, connection.several(list(by_position))):
        by_position[position].rewards.setdefault(slot, []).append(value)
    return found


def _job_rewards(
    state: State, job: Rewards, events: Mapping[str, _Rewarded], rows: list[tuple[Any, ...]]
) -> list[Outcome]:
    outcomes: list[Outcome] = [Outcome(Status.UNKNOWN)] * len(job.rewards)
    by_event: dict[str, list[int]] = {}
    for i, r in enumerate(job.rewards):
        by_event.setdefault(r.event_id, []).append(i)
    for name, items in by_event.items():
        if name in events:
            judged = _judge(events[name], [job.rewards[i] for i in items])
            for i, outcome in zip(items, judged, strict=True):
                outcomes[i] = outcome
            written = (Status.STORED, Status.CORRECTED)
            _accept(state, events[name], [job.rewards[i] for i in items if outcomes[i].status in written], rows)
    return outcomes


def _judge(event: _Rewarded, rewards: Sequence[Reward]) -> list[Outcome]:
    """The outcomes of the rewards of one event in one call; if one is refused, none of them is stored.

    A value that was sent before changes nothing, even if it was corrected since: it is sent again by who was not
    answered.
    """
    values = {slot: list(sent) for slot, sent in event.rewards.items()}
    outcomes = []
    for r in rewards:
        slot = event.slot.get(r.arm)
        if slot is None:
            outcomes.append(Outcome(Status.NOT_SHOWN))
            continue
        before = values.setdefault(slot, [])
        if before and (r.value in before or not r.corrects):
            outcomes.append(Outcome(Status.SAME if r.value in before else Status.CONFLICT, before[-1]))
            continue
        outcomes.append(Outcome(Status.CORRECTED if before else Status.STORED, float(r.value)))
        before.append(float(r.value))
    if all(outcome.ok for outcome in outcomes):
        return outcomes
    return [_held_back(event, r, outcome) for r, outcome in zip(rewards, outcomes, strict=True)]


def _held_back(event: _Rewarded, reward: Reward, outcome: Outcome) -> Outcome:
    """The outcome if nothing of the call is stored; a value that the call only repeated is not in the log either."""
    stored = event.rewards.get(event.slot.get(reward.arm, -1))
    if outcome.ok and (stored is None or outcome.status is Status.CORRECTED):
        return Outcome(Status.WITHHELD)
    return Outcome(outcome.status, outcome.stored)


def _accept(state: State, event: _Rewarded, rewards: Sequence[Reward], rows: list[tuple[Any, ...]]) -> None:
    if rewards and not event.rewards:
        state.observed += 1
    for r in rewards:
        slot = event.slot[r.arm]
        first = slot not in event.rewards
        event.rewards.setdefault(slot, []).append(float(r.value))
        rows.append((event.position, slot, float(r.value), float(r.time), state.next()))
        state.late += event.position <= state.sealed
        state.rewards += first  # a correction is no reward more
        state.pending -= first


def seal(connection: Connection, state: State, name: str, time: float) -> Mark:
    """Sets a mark, or returns the one of that name."""
    found = find_mark(connection, name)
    if found is None:
        found = Mark(name, state.next(), time)
        connection.insert("treetop_marks", ("name", "position", "time"), [(found.name, found.position, found.time)])
        state.sealed = found.position
    return found


def find_mark(connection: Connection, name: str) -> Mark | None:
    rows = connection.rows("SELECT name, position, time FROM treetop_marks WHERE name = ?", name)
    return Mark(*rows[0]) if rows else None


def keep(connection: Connection, name: str, data: bytes) -> None:
    connection.run("DELETE FROM treetop_kept WHERE name = ?", name)
    connection.insert("treetop_kept", ("name", "data"), [(name, data)])


def kept(connection: Connection, name: str) -> bytes | None:
    rows = connection.rows("SELECT data FROM treetop_kept WHERE name = ?", name)
    return bytes(rows[0][0]) if rows else None
