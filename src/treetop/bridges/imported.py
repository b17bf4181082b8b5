"""Decisions of others as those of a bandit: of the current model's epoch, by a model called "imported", without scores.

A refit learns from them as from the bandit's own, and `treetop evaluate --policy model=...` judges by their
propensities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from treetop.arrays import Floats, Ints, Rows
from treetop.bandit.arm_filter import ArmFilter
from treetop.bandit.arm_index import ArmId
from treetop.bandit.bandit import Bandit
from treetop.bandit.ownership import claim_log
from treetop.bandit.snapshot import request_digest
from treetop.log.records import Counts, Entry, Event, LogSummary, Restored, StoredEvent, check_event

MODEL = "imported"
CHUNK = 1024  # decisions written at a time


@dataclass(frozen=True, eq=False)
class Imported:
    """One decision: its context, the arms it showed by index, their chances and rewards (NaN where there is none).

    `listed` are the arms that it could choose from, None for all.
    """

    event_id: str
    time: float
    row: Rows
    arms: Ints
    chances: Floats
    rewards: Floats
    listed: Sequence[ArmId] | None = None


class Importer:
    """Writes decisions into a bandit's log, all or none.

    >>> import tempfile
    >>> from treetop.arrays import as_rows
    >>> one = Imported("visit-1", 0.0, as_rows([[1.0, 0.0]]), np.zeros(1, np.int32), np.ones(1), np.ones(1))
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(2), Y=np.eye(2)) as tea:
    ...     importer = Importer(tea)
    ...     importer.write([importer.entry(one)], Counts(2, 1, 1, 1, 1, 0)).decisions
    1
    """

    def __init__(self, bandit: Bandit) -> None:
        claim_log(bandit.folder, bandit.log)
        self.bandit, self.snapshot = bandit, bandit.snapshot
        arms = self.snapshot.arms
        self.everything = {str(arm) for i, arm in enumerate(arms.ids) if not arms.is_removed[i]}
        self.sent: set[str] = {""}
        self.position = 0

    def entry(self, given: Imported) -> Entry:
        """A decision as the log takes it."""
        event, arm_filter = self._event(given)
        check_event(event)
        times = np.where(np.isnan(given.rewards), np.nan, given.time)
        arms = arm_filter.listed if arm_filter.name not in self.sent else None
        self.sent.add(arm_filter.name)
        return self.numbered(StoredEvent(event, given.rewards, times, 0), arms)

    def numbered(self, stored: StoredEvent, arms: Ints | None) -> Entry:
        """At the next positions: the decision, then its rewards."""
        self.position += 1
        known = ~np.isnan(stored.rewards)
        positions = np.where(known, self.position + np.cumsum(known), 0).astype(np.int64)
        entry = Entry(replace(stored, position=self.position), positions, arms)
        self.position += int(known.sum())
        return entry

    def write(self, entries: Iterable[Entry], counts: Counts) -> Restored:
        """Writes them; `counts` are those of all entries together."""
        summary = LogSummary(counts, (), self.bandit.log.owner())
        return self.bandit.log.restore(summary, _chunks(iter(entries)))

    def _event(self, given: Imported) -> tuple[Event, ArmFilter]:
        snapshot, k = self.snapshot, len(given.arms)
        row = snapshot.bounded(given.row)
        free = given.listed is None or {str(arm) for arm in given.listed} >= self.everything
        arm_filter = snapshot.arm_filter(None if free else given.listed, None)
        event = Event(
            given.event_id,
            snapshot.model.epoch,
            given.arms,
            given.chances,
            np.zeros(k, np.float32),
            given.chances < 1,
            np.full(k, -1, np.int32),
            time=given.time,
            request=request_digest(row, k, None, arm_filter),
            index=row.index,
            value=row.value,
            model=MODEL,
            tree=snapshot.tree,
            policy=snapshot.policy(k, k)[1],
            eligible=arm_filter.name,
            removals=arm_filter.removals,
        )
        return event, arm_filter


def total_counts(slots: Sequence[int], rewards: Sequence[int]) -> Counts:
    """The counts of decisions with so many slots and rewards each.

    >>> total_counts([2, 3], [0, 3]).observed
    1
    """
    n, k, r = len(slots), sum(slots), sum(rewards)
    return Counts(n + r, n, k, r, sum(found > 0 for found in rewards), k - r)


def _chunks(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    while chunk := list(islice(entries, CHUNK)):
        yield chunk
