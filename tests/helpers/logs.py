"""What the tests of the log share: made-up decisions, comparisons, and a slow twin that is a plain dict."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from treetop.errors import EventConflict
from treetop.log.base import Log
from treetop.log.records import Event, Mark, Outcome, Reward, Status
from treetop.log.rounds import LoggedRounds

ARMS = 1000


def event(
    name: str | int, request: str = "", k: int = 3, time: float = 1e9, components: int = 2, **other: Any
) -> Event:
    """A decision whose content follows from its name; its scores have so many components."""
    name = f"event-{name}" if isinstance(name, int) else name
    rng = np.random.default_rng(np.frombuffer(hashlib.sha256(name.encode()).digest(), np.uint32))
    n = int(rng.integers(0, 12))
    index = np.sort(rng.choice(500, n, replace=False)).astype(np.int32)
    value = rng.random(n).astype(np.float32)
    made = Event(
        name,
        model_epoch=1,
        arms=rng.choice(ARMS, k, replace=False).astype(np.int32),
        nodes=rng.integers(-1, 5, k).astype(np.int32),
        propensities=rng.random(k),
        scores=rng.normal(size=k).astype(np.float32),
        explored=rng.random(k) < 0.5,
        components=rng.normal(size=(k, components if k else 0)).astype(np.float32),
        time=time,
        request=hashlib.blake2b(f"{name} {request}".encode(), digest_size=16).digest(),
        index=index,
        value=value,
        model="model-1",
        tree="tree-a",
        policy='{"k": 3}',
    )
    return replace(made, **other)


def arm(decision: Event, slot: int) -> int:
    return int(decision.arms[slot])


def same(one: Event, two: Event) -> bool:
    return all(_bytes(getattr(one, f.name)) == _bytes(getattr(two, f.name)) for f in fields(Event))


def _bytes(value: Any) -> Any:
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def same_samples(one: Iterable[LoggedRounds], two: Iterable[LoggedRounds], but: tuple[str, ...] = ()) -> bool:
    a, b = joined(one), joined(two)
    return a.keys() == b.keys() and all(_bytes(a[name]) == _bytes(b[name]) for name in a if name not in but)


def joined(chunks: Iterable[LoggedRounds]) -> dict[str, Any]:
    """All chunks as one, however they were cut."""
    parts = list(chunks)
    k = max((p.arms.shape[1] for p in parts), default=0)
    out: dict[str, Any] = {}
    for f in fields(LoggedRounds):
        arrays = [getattr(p, f.name) for p in parts]
        if f.name == "start":
            arrays = [np.diff(a) for a in arrays]
        if arrays and arrays[0].ndim >= 2:
            empty = {"arms": -1, "nodes": -1, "rewards": np.nan, "components": np.nan}.get(f.name, 0)
            shape = (k, *np.max([a.shape[2:] for a in arrays], axis=0).astype(int))
            room = [[(0, 0), *((0, full - n) for full, n in zip(shape, a.shape[1:], strict=True))] for a in arrays]
            arrays = [np.pad(a, r, constant_values=empty) for a, r in zip(arrays, room, strict=True)]
        out[f.name] = np.concatenate(arrays) if arrays else np.zeros(0)
    return out


def check_whole(log: Log) -> None:
    """The counts that the writers keep are those of the rows that are there."""
    counts = log.counts()
    decisions = slots = observed = rewards = 0
    for chunk in log.samples(Mark("now", counts.position, math.inf)):
        known = ~np.isnan(chunk.rewards)
        decisions += len(chunk)
        slots += int((chunk.arms >= 0).sum())
        observed += int(known.any(axis=1).sum())
        rewards += int(known.sum())
    if not counts.forgotten:
        assert (counts.decisions, counts.slots) == (decisions, slots)
        assert (counts.rewards, counts.forgotten_observed) == (rewards, 0)
    assert counts.decisions - counts.forgotten == decisions
    assert counts.observed == observed
    assert counts.pending == slots - rewards


@dataclass
class Twin:
    """The log as a dict: one thread, no database, nothing clever."""

    events: dict[str, Event] = field(default_factory=dict)
    born: dict[str, int] = field(default_factory=dict)
    rewards: dict[str, dict[int, list[tuple[float, int]]]] = field(default_factory=dict)  # all that was told
    marks: dict[str, int] = field(default_factory=dict)
    clock: int = 0
    late: int = 0
    ever: dict[str, int] = field(default_factory=lambda: dict.fromkeys(["decisions", "slots", "rewards"], 0))
    forgotten: int = 0
    forgotten_observed: int = 0

    def append(self, events: Sequence[Event]) -> list[Event | EventConflict]:
        answers: list[Event | EventConflict] = []
        for e in events:
            if e.event_id not in self.events:
                self.clock += 1
                self.events[e.event_id], self.born[e.event_id], self.rewards[e.event_id] = e, self.clock, {}
                self.ever["decisions"] += 1
                self.ever["slots"] += len(e)
            stored = self.events[e.event_id]
            answers.append(stored if stored.request == e.request else EventConflict(stored))
        return answers

    def reward(self, rewards: Sequence[Reward]) -> list[Outcome]:
        answers = [Outcome(Status.UNKNOWN)] * len(rewards)
        for name in dict.fromkeys(r.event_id for r in rewards):
            mine = [i for i, r in enumerate(rewards) if r.event_id == name]
            if name in self.events:
                for i, answer in zip(mine, self._of_one([rewards[i] for i in mine]), strict=True):
                    answers[i] = answer
        return answers

    def _of_one(self, rewards: Sequence[Reward]) -> list[Outcome]:
        name = rewards[0].event_id
        arms, kept = self.events[name].arms.tolist(), self.rewards[name]
        told = {slot: [value for value, _ in values] for slot, values in kept.items()}
        answers, new = [], list[tuple[int, float]]()
        for r in rewards:
            if r.arm not in arms:
                answers.append(Outcome(Status.NOT_SHOWN))
                continue
            slot = arms.index(r.arm)
            before = told.setdefault(slot, [])
            if r.value in before:
                answers.append(Outcome(Status.SAME, before[-1]))
            elif before and not r.corrects:
                answers.append(Outcome(Status.CONFLICT, before[-1]))
            else:
                answers.append(Outcome(Status.CORRECTED if before else Status.STORED, r.value))
                before.append(r.value)
                new.append((slot, r.value))
        if not all(a.ok for a in answers):
            lost = [
                a.ok and (arms.index(r.arm) not in kept or a.status is Status.CORRECTED)
                for r, a in zip(rewards, answers, strict=True)
            ]
            return [Outcome(Status.WITHHELD) if gone else a for gone, a in zip(lost, answers, strict=True)]
        for slot, value in new:
            self.clock += 1
            self.ever["rewards"] += slot not in kept
            kept.setdefault(slot, []).append((value, self.clock))
            self.late += self.born[name] <= max(self.marks.values(), default=0)
        return answers

    def seal(self, name: str) -> None:
        self.clock += 1
        self.marks.setdefault(name, self.clock)

    def forget(self, before: float) -> int:
        gone = [name for name, e in self.events.items() if e.time < before]
        self.forgotten_observed += sum(bool(self.rewards[name]) for name in gone)
        for name in gone:
            del self.events[name], self.rewards[name], self.born[name]
        self.forgotten += len(gone)
        return len(gone)

    def samples(self, until: str, since: str | None = None) -> list[tuple[str, bool, list[float]]]:
        """(event, new, rewards) in the order in which the events came."""
        low, high = self.marks.get(since or "", 0), self.marks[until]
        found = []
        for name in sorted(self.events, key=lambda name: self.born[name]):
            between = {s: [v for v, at in told if low < at <= high] for s, told in self.rewards[name].items()}
            known = {slot: values[-1] for slot, values in between.items() if values}
            new = low < self.born[name] <= high
            if new or (self.born[name] <= low and known):
                found.append((name, new, [known.get(s, math.nan) for s in range(len(self.events[name]))]))
        return found

    def counts(self) -> dict[str, int]:
        pending = sum(len(e) - len(self.rewards[name]) for name, e in self.events.items())
        observed = sum(bool(rewards) for rewards in self.rewards.values())
        gone = {"forgotten": self.forgotten, "forgotten_observed": self.forgotten_observed}
        return self.ever | gone | {"observed": observed, "pending": pending, "late": self.late}
