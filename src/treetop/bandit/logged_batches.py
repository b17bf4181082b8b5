"""Logged decisions with all that is needed to ask what another policy would have shown, in batches of one setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from treetop.arrays import Bools, Floats, Ints, Rows
from treetop.bandit.arm_filter import logged_filter
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.config import PolicyConfig
from treetop.bandit.snapshot import logged_policy
from treetop.log.records import Entry, Event, scaled_rewards
from treetop.policy.eligibility import ALL, EXCEPT, NO_ROWS, ONLY, Eligible
from treetop.tree.tree import Tree

CHUNK = 4096  # decisions read at a time
FILTERS = 64  # sets of arms that are kept


@dataclass(frozen=True, eq=False)
class LoggedBatch:
    """Decisions of one model with one policy: (n, k) arrays, padded with arm -1, reward NaN where none was observed."""

    model: str
    epoch: int
    policy: PolicyConfig
    events: Sequence[Event]
    x: Rows
    arms: Ints
    propensities: Floats
    rewards: Floats

    def __len__(self) -> int:
        return len(self.events)

    def part(self, rows: Bools) -> LoggedBatch:
        """Some of the decisions."""
        events = [event for event, wanted in zip(self.events, rows, strict=True) if wanted]
        arrays = (self.arms[rows], self.propensities[rows], self.rewards[rows])
        return LoggedBatch(self.model, self.epoch, self.policy, events, contexts(events, self.x.columns), *arrays)


def contexts(events: Sequence[Event], columns: int) -> Rows:
    """The contexts of decisions as rows.

    >>> contexts([], columns=3).csr().shape
    (0, 3)
    """
    start = np.zeros(len(events) + 1, np.int64)
    np.cumsum([len(event.index) for event in events], out=start[1:])
    index = np.concatenate([np.zeros(0, np.int32), *(event.index for event in events)])
    value = np.concatenate([np.zeros(0, np.float32), *(event.value for event in events)])
    return Rows(start, index, value, columns)


def batches(
    entries: Sequence[Entry],
    columns: int,
    overdue: float,
    default: float | None,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Iterator[LoggedBatch]:
    """The entries in batches; a slot without a reward has `default` if its decision was made before `overdue`.

    Rewards are scaled from `limits` to [0, 1].

    >>> list(batches([], columns=3, overdue=0.0, default=None))
    []
    """
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        event = entry.stored.event
        if len(event.arms):
            # Those with conditions have a batch each: half of a million arms would be too many to list for every row.
            kind = event.eligible if event.eligible.startswith("?") else str(event.eligible.startswith("+"))
            groups.setdefault((event.model, event.policy, kind), []).append(entry)
    for (model, policy, _), mine in groups.items():
        events = [entry.stored.event for entry in mine]
        k = max(len(event.arms) for event in events)
        arms, propensities = np.full((len(mine), k), -1, np.int32), np.zeros((len(mine), k))
        rewards = np.full((len(mine), k), np.nan)
        for i, entry in enumerate(mine):
            event, m = entry.stored.event, len(entry.stored.event.arms)
            arms[i, :m], propensities[i, :m], rewards[i, :m] = event.arms, event.propensities, entry.stored.rewards
            if default is not None and event.time <= overdue:
                rewards[i, :m] = np.where(np.isnan(rewards[i, :m]), default, rewards[i, :m])
        settings = logged_policy(policy)
        rewards = scaled_rewards(rewards, limits)
        yield LoggedBatch(
            model, events[0].model_epoch, settings, events, contexts(events, columns), arms, propensities, rewards
        )


class ArmSets:
    """Which arms logged decisions could see, as sets of a model's tree. Keeps the sets that come again.

    `find_set` gives the listed arms of a name, as for `logged_filter`.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     _ = tea.decide(np.ones(4), "visit-1", k=1, eligible=[2, 3])
    ...     sets = ArmSets(tea.log.eligible_set, tea.snapshot.arms, tea.snapshot.model.tree)
    ...     sets.of([tea.event("visit-1").event]).positions
    array([2, 3], dtype=int32)
    """

    def __init__(self, find_set: Callable[[str], Ints | None], arms: ArmIndex, tree: Tree) -> None:
        self.find_set, self.arms, self.tree = find_set, arms, tree
        self._listed = lru_cache(FILTERS)(self._find)
        self._prepared = lru_cache(4)(lambda name, removals: Eligible.of(tree, self._listed(name, removals)))
        self._events: dict[tuple[str, int], Event] = {}

    def _find(self, name: str, removals: int) -> Eligible:
        return logged_filter(self._events[name, removals], self.tree, self.arms, self.find_set).eligible

    def of(self, events: Sequence[Event]) -> Eligible:
        """Of decisions that all name lists of eligible arms, or that all do not: one set, or one a row."""
        names = [(event.eligible, event.removals) for event in events]
        self._events = dict(zip(names, events, strict=True))
        try:
            if len(self._events) == 1:
                return self._prepared(*names[0])
            found = {name: self._listed(*name) for name in self._events}  # may be more than are kept
        finally:
            self._events = {}
        listed = [found[name] for name in names]
        if all(each.kind == ALL for each in listed):
            return listed[0]
        start = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(each.positions) for each in listed], out=start[1:])
        kind = ONLY if any(each.kind == ONLY for each in listed) else EXCEPT
        positions = np.concatenate([each.positions for each in listed]).astype(np.int32)
        return Eligible(kind, positions, start if len(start) > 1 else NO_ROWS, self.tree.arm_at)
