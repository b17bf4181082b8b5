"""What clients sent and what the service acknowledged, and whether a log holds exactly that."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from treetop.bandit.bandit import Bandit
from treetop.bandit.results import ServedDecision, same_decision
from treetop.log.records import Counts, StoredEvent

DECODE = msgspec.json.Decoder(ServedDecision).decode
EXAMPLES = 5  # of each kind of contradiction that are told in words


@dataclass
class Audit:
    """What comparing a ledger with a log found. `problems` counts contradictions by kind; `examples` has some."""

    decisions: int = 0
    rewards: int = 0
    forgotten: int = 0
    replayed: int = 0
    not_kept: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, words: str) -> None:
        self.problems[kind] += 1
        if self.problems[kind] <= EXAMPLES:
            self.examples.append(f"{kind}: {words}")


class Ledger:
    """Filled by many threads. A decision is kept as the bytes of its answer, rewards as their values."""

    def __init__(self) -> None:
        self.sent: dict[str, float] = {}  # when each decision was first asked for, acknowledged or not
        self.answers: dict[str, bytes] = {}
        self.tried: dict[str, dict[str, float]] = {}  # rewards that were sent
        self.rewards: dict[str, dict[str, float]] = {}  # and those that were acknowledged
        self.forgotten_before = -math.inf  # retention may have deleted decisions that are older than this
        self.contradictions: list[str] = []
        self._lock = threading.Lock()

    def sending(self, event: str) -> None:
        self.sent.setdefault(event, time.time())

    def decided(self, event: str, answer: dict[str, Any]) -> None:
        """An answer to a decision; one that was given before must be the same."""
        raw = msgspec.json.encode(answer)
        if self.answers.setdefault(event, raw) != raw:
            self.contradictions.append(f"{event} was answered {self.answers[event]!r} and then {raw!r}")

    def rewarding(self, event: str, rewards: dict[str, float]) -> None:
        with self._lock:
            self.tried.setdefault(event, {}).update(rewards)

    def rewarded(self, event: str, rewards: dict[str, float]) -> None:
        with self._lock:
            self.rewards.setdefault(event, {}).update(rewards)

    @property
    def counts(self) -> tuple[int, int]:
        """Decisions and rewards that were acknowledged."""
        with self._lock:
            return len(self.answers), sum(map(len, self.rewards.values()))

    def check(self, bandit: Bandit, replays: Iterable[str] = ()) -> Audit:
        """Compares with a log. Whatever is acknowledged while this reads is left to the next check."""
        audit = Audit()
        answers = dict(self.answers)
        with self._lock:
            rewards = {event: dict(values) for event, values in self.rewards.items()}
        audit.decisions, audit.rewards = len(answers), sum(map(len, rewards.values()))
        found = self._read(bandit, audit)
        for event, raw in answers.items():
            if event in found:
                self._compare(bandit, audit, found[event], raw, rewards.get(event, {}))
            elif self.sent[event] < self.forgotten_before:
                audit.forgotten += 1
            else:
                audit.note("lost", f"decision {event} was acknowledged and is not in the log")
        for event in replays:
            self._replay(bandit, audit, event)
        return audit

    def _read(self, bandit: Bandit, audit: Audit) -> dict[str, StoredEvent]:
        found: dict[str, StoredEvent] = {}
        summary = bandit.log.summary()
        for chunk in bandit.log.entries(summary):
            for entry in chunk:
                event = entry.stored.event.event_id
                if event in found:
                    audit.note("doubled", f"decision {event} is in the log twice")
                if event not in self.sent:
                    audit.note("invented", f"decision {event} is in the log and was never asked for")
                found[event] = entry.stored
        self._count(audit, found, summary.counts)
        return found

    def _count(self, audit: Audit, found: dict[str, StoredEvent], counts: Counts) -> None:
        if counts.decisions - counts.forgotten != len(found):
            words = f"{counts.decisions} decisions, {counts.forgotten} of them forgotten; {len(found)} are there"
            audit.note("miscounted", f"the log counts {words}")
        slots = sum(len(stored.event.arms) for stored in found.values())
        rewards = sum(int((~np.isnan(stored.rewards)).sum()) for stored in found.values())
        if counts.pending != slots - rewards:
            audit.note("miscounted", f"the log counts {counts.pending} pending slots; there are {slots - rewards}")
        if not counts.forgotten and counts.rewards != rewards:
            audit.note("miscounted", f"the log counts {counts.rewards} rewards; {rewards} are there")

    def _compare(
        self, bandit: Bandit, audit: Audit, stored: StoredEvent, raw: bytes, acknowledged: dict[str, float]
    ) -> None:
        event, served = stored.event.event_id, bandit.served(stored.event)
        if DECODE(raw) != served:
            audit.note("changed", f"decision {event} was answered {raw!r} and is logged as {served}")
            return
        values = dict(zip(map(str, served.arms), stored.rewards.tolist(), strict=True))
        for arm, value in acknowledged.items():
            if values[arm] != value:
                audit.note("lost", f"reward {value} of {event} for {arm} was acknowledged; the log has {values[arm]}")
        tried = self.tried.get(event, {})
        for arm, value in values.items():
            if not math.isnan(value) and tried.get(arm) != value:
                audit.note("invented", f"the log has reward {value} of {event} for {arm}, which nobody sent")

    def _replay(self, bandit: Bandit, audit: Audit, event: str) -> None:
        try:
            logged, again = bandit.replay(event)
        except ValueError:
            audit.not_kept += 1
            return
        audit.replayed += 1
        if not same_decision(logged, again):
            audit.note("not replayed", f"{event} is logged as {logged} and decided again as {again}")
