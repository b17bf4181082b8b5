"""A bandit's log as dsjson, for Vowpal Wabbit: contextual bandits (cb), conditional ones (ccb), slates.

Every propensity is that of its slot given the slots before it. A cb line is one slot, chosen among the arms that the
slots before it left; a ccb line is a decision; a line of slates has for every slot the arms that were left, and one
reward, the mean of its slots'. Slots without a reward have no label: in ccb they are left out, because Vowpal Wabbit
would learn from a missing cost; `_inc` then says what the others could choose from.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treetop.arrays import Floats, Ints, check_float, check_int
from treetop.bandit.bandit import Bandit
from treetop.bridges.dsjson import OWN, PROBLEMS, VERSION, arm_fields, context_fields, lot, to_time
from treetop.log.records import Entry, Event
from treetop.log.transfer import record_of

POOLS = 64  # sets of arms that are kept
Line = dict[str, Any]


def export_dsjson(
    bandit: Bandit,
    path: str | os.PathLike[str],
    problem: str = "ccb",
    *,
    actions: int = 1000,
    share: float = 1.0,
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Writes all decisions of a bandit's log to a file, which appears when it is complete; returns how many.

    Where more than `actions` arms could be shown, a line lists that many: those shown, and others drawn at random. A
    `share` below 1 writes a random sample, with `pdrop` for what was left out. Slots whose reward is overdue get the
    bandit's `default_reward`, as in a refit.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     served = tea.decide(np.ones(4), "visit-1", k=2)
    ...     tea.reward("visit-1", dict.fromkeys(served.arms, 1.0))
    ...     _ = export_dsjson(tea, f"{folder}/log.dsjson")
    ...     line = msgspec.json.decode(Path(f"{folder}/log.dsjson").read_bytes())
    >>> line["EventId"], [outcome["_label_cost"] for outcome in line["_outcomes"]]
    ('visit-1', [-1.0, -1.0])
    """
    if problem not in PROBLEMS:
        raise ValueError(f"the problem is {problem!r}; it must be one of {', '.join(PROBLEMS)}")
    check_float("share", share, 0.0, 1.0)
    if share == 0:
        raise ValueError("a share of 0 would write nothing")
    summary = bandit.log.summary()
    bandit.refresh()  # so that all arms of the rounds up to now are known
    writer = _Writer(bandit, problem, check_int("actions", actions, 1), share)
    target = Path(path)
    part = target.with_name(target.name + ".part")
    done = written = 0
    try:
        with part.open("wb") as file:
            for chunk in bandit.log.entries(summary):
                for entry in chunk:
                    if len(entry.stored.event) and lot(entry.stored.event.event_id) < share:
                        file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in writer.lines(entry)))
                        written += 1
                done += len(chunk)
                progress(done)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return written


class _Writer:
    """The lines of decisions, of one bandit and problem."""

    def __init__(self, bandit: Bandit, problem: str, most: int, share: float) -> None:
        self.bandit, self.most, self.share = bandit, most, share
        self.make = {"cb": self._cb, "ccb": self._ccb, "slates": self._slates}[problem]
        self.arms, self.epochs = bandit.snapshot.arms, bandit.snapshot.arms.epochs()
        self.overdue = time.time() - bandit.config.rewards.reward_wait
        self.pool = lru_cache(POOLS)(self._pool)
        self.owner = bandit.folder.state().bandit
        self.sent: set[str] = {""}

    def lines(self, entry: Entry) -> Iterator[Line]:
        """One, or for cb one a slot; the first has treetop's record of the whole decision."""
        event = entry.stored.event
        record = msgspec.to_builtins(record_of(entry))
        if event.eligible not in self.sent:
            self.sent.add(event.eligible)
            record["eligible_arms"] = self._listed(event.eligible).tolist()
        else:
            record["eligible_arms"] = None
        own: Line = {"version": VERSION, "bandit": self.owner, "record": record}
        own["arms"] = [self.arms.ids[arm] for arm in event.arms.tolist()]
        for number, line in enumerate(self.make(event, self._rewards(entry), self._choices(event))):
            line |= {"Timestamp": to_time(event.time), "Version": "1", "VWState": {"m": event.model}}
            line |= {} if self.share == 1 else {"pdrop": 1 - self.share}
            yield line | {OWN: {"of": event.event_id} if number else own}

    def _rewards(self, entry: Entry) -> Floats:
        rewards, default = entry.stored.rewards, self.bandit.config.rewards.default_reward
        if default is not None and entry.stored.event.time <= self.overdue:
            return np.where(np.isnan(rewards), default, rewards)
        return rewards

    def _cb(self, event: Event, rewards: Floats, choices: Ints) -> Iterator[Line]:
        for slot, arm in enumerate(event.arms.tolist()):
            left = _without(choices, event.arms[:slot])
            at, p = int(np.searchsorted(left, arm)), float(event.propensities[slot])
            line: Line = {"EventId": event.event_id if len(event) == 1 else f"{event.event_id}/{slot}"}
            if not np.isnan(rewards[slot]):
                cost = {"_label_cost": -float(rewards[slot]), "_label_probability": p}
                line |= cost | {"_label_Action": at + 1, "_labelIndex": at}
            yield line | {"a": [at + 1], "p": [p], "c": self._context(event) | {"_multi": self._actions(left)}}

    def _ccb(self, event: Event, rewards: Floats, choices: Ints) -> Iterator[Line]:
        labelled = np.flatnonzero(~np.isnan(rewards)).tolist()
        slots: list[Line] = []
        outcomes: list[Line] = []
        for slot in labelled or range(len(event)):
            name = f"{event.event_id}/{slot}"
            before = event.arms[:slot]
            unlabelled = labelled and slot != len(slots)  # a slot before it is left out
            left = np.searchsorted(choices, _without(choices, before)).tolist() if unlabelled else None
            slots.append({"_id": name, "slot": {"number": str(slot)}} | ({} if left is None else {"_inc": left}))
            if labelled:
                at, p = int(np.searchsorted(choices, event.arms[slot])), float(event.propensities[slot])
                outcomes.append({"_id": name, "_label_cost": -float(rewards[slot]), "_a": [at], "_p": [p]})
        context = self._context(event) | {"_multi": self._actions(choices), "_slots": slots}
        line = {"EventId": event.event_id, "c": context}
        if outcomes:
            yield line | {"_outcomes": outcomes}
        else:  # Vowpal Wabbit passes over a line without actions
            shown = np.searchsorted(choices, event.arms) + 1
            yield line | {"a": shown.tolist(), "p": event.propensities.tolist()}

    def _slates(self, event: Event, rewards: Floats, choices: Ints) -> Iterator[Line]:
        listed: list[Line] = []
        slots: list[Line] = []
        outcomes: list[Line] = []
        for slot, arm in enumerate(event.arms.tolist()):
            left, name = _without(choices, event.arms[:slot]), f"{event.event_id}/{slot}"
            listed += [{"_slot_id": slot} | action for action in self._actions(left)]
            slots.append({"_id": name, "slot": {"number": str(slot)}})
            at, p = int(np.searchsorted(left, arm)), float(event.propensities[slot])
            outcomes.append({"_id": name, "_a": [at], "_p": [p]})
        line: Line = {"EventId": event.event_id}
        if not np.isnan(rewards).any():
            line |= {"_label_cost": -float(rewards.mean()), "_outcomes": outcomes}
        yield line | {"c": self._context(event) | {"_multi": listed, "_slots": slots}}

    def _context(self, event: Event) -> Line:
        return dict(context_fields(event, self.bandit.vocabulary))

    def _actions(self, arms: Ints) -> list[Line]:
        return [dict(arm_fields(self.arms.ids[arm])) for arm in arms.tolist()]

    def _choices(self, event: Event) -> Ints:
        """The arms that a decision could show, at most `most` of them, by index; those shown always."""
        known = int(np.searchsorted(self.epochs, event.model_epoch, side="right"))
        pool = self.pool(event.eligible, event.removals, known)
        if len(pool) > self.most:
            seed = int(lot(event.event_id) * 2**53)
            drawn = np.random.default_rng(seed).choice(len(pool), self.most, replace=False, shuffle=False)
            others = _without(pool[drawn], event.arms)
            pool = others[: max(0, self.most - len(event))]
        return np.union1d(pool, event.arms).astype(np.int32)

    def _pool(self, eligible: str, removals: int, known: int) -> Ints:
        listed = self._listed(eligible)
        allowed = np.full(len(self.arms), eligible[:1] != "+", np.bool_)
        allowed[known:] = False
        allowed[listed] = eligible[:1] == "+"
        allowed[self.arms.removed_after(removals)] = False
        return np.flatnonzero(allowed).astype(np.int32)

    def _listed(self, eligible: str) -> Ints:
        found = self.bandit.log.eligible_set(eligible) if eligible else np.zeros(0, np.int32)
        if found is None:
            raise ValueError(f"the set of arms {eligible!r} is not in the log any more")
        return found


def _without(arms: Ints, some: Ints) -> Ints:
    """The same order without some of them."""
    return arms[~np.isin(arms, some)] if len(some) else arms
