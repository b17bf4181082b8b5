"""The table of arms: counts in a range of time, sorted by any column, searched by id, a page at a time.

Sorting and searching work on the arms that were shown and on the ids in memory: 1,000,000 arms take a fraction of a
second, in the dashboard's process alone. Knows no HTML.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treetop.arrays import Int64s
from treetop.bandit.arm_index import ArmIndex
from treetop.log.arm_counts import Table
from treetop.service.dashboard.query import Query

PAGE = 15  # arms on a page


@dataclass(frozen=True)
class ArmRow:
    """One arm of the table; `name` is its id."""

    arm: int
    name: str
    removed: bool
    impressions: int = 0
    unlikely: int = 0
    reward: float = 0.0

    @property
    def rate(self) -> float | None:
        """Reward per impression."""
        return self.reward / self.impressions if self.impressions else None


@dataclass(frozen=True, eq=False)
class ArmPage:
    """A page of the table, and what holds of all arms: `found` match the search, `shown` were shown in the range."""

    rows: list[ArmRow]
    found: int
    page: int
    pages: int
    shown: int
    arms: int
    gini: float
    begin: float  # of the stretches of time that were counted
    end: float


@dataclass(frozen=True, eq=False)
class Names:
    """The ids of a catalogue, to be searched and sorted."""

    index: ArmIndex

    def __len__(self) -> int:
        return len(self.index)

    def name(self, arm: int) -> str:
        """An arm's id. Another process may have shown an arm that this one does not know yet."""
        return str(self.index.ids[arm]) if arm < len(self) else f"new arm {arm}"

    def search(self, text: str) -> Int64s:
        """The arms whose ids contain a text, in any case."""
        wanted = text.casefold()
        return np.array([i for i, arm in enumerate(self.index.ids) if wanted in str(arm).casefold()], np.int64)

    @cached_property
    def alphabetical(self) -> Int64s:
        """All arms in the order of their ids."""
        ids = self.index.ids
        return np.array(sorted(range(len(ids)), key=lambda arm: str(ids[arm])), np.int64)


@dataclass(frozen=True, eq=False)
class ArmTable:
    """The counts of the arms shown in a range of time, and the ids of all arms."""

    counts: Table
    names: Names
    begin: float
    end: float

    @property
    def arms(self) -> int:
        return max(len(self.names), int(self.counts["arm"][-1]) + 1 if len(self.counts) else 0)

    @cached_property
    def gini(self) -> float:
        """How unequally arms are shown: 0 if all are shown alike, near 1 if it is always the same ones."""
        shown = np.sort(self.counts["impressions"][self.counts["impressions"] > 0]).astype(np.float64)
        if not len(shown):
            return 0.0
        rank = np.arange(self.arms - len(shown) + 1, self.arms + 1)
        return float(2 * (rank * shown).sum() / (self.arms * shown.sum()) - (self.arms + 1) / self.arms)

    def page(self, query: Query) -> ArmPage:
        """The page that a query asks for; the last one if there are not so many."""
        chosen = self.names.search(query.search) if query.search else None
        found = self.arms if chosen is None else len(chosen)
        pages = max(1, math.ceil(found / PAGE))
        page = min(query.page, pages)
        first = PAGE * (page - 1)
        places = self._arranged(query, chosen)(first, min(first + PAGE, found))
        shown = int((self.counts["impressions"] > 0).sum())
        rows = [self._row(int(arm)) for arm in places]
        return ArmPage(rows, found, page, pages, shown, self.arms, self.gini, self.begin, self.end)

    def _row(self, arm: int) -> ArmRow:
        removed = arm < len(self.names) and bool(self.names.index.is_removed[arm])
        place = int(np.searchsorted(self.counts["arm"], arm))
        if place == len(self.counts) or self.counts["arm"][place] != arm:
            return ArmRow(arm, self.names.name(arm), removed)
        row = self.counts[place]
        counts = int(row["impressions"]), int(row["unlikely"]), float(row["reward"])
        return ArmRow(arm, self.names.name(arm), removed, *counts)

    def _arranged(self, query: Query, chosen: Int64s | None) -> Any:
        """A function that returns the arms from one place to another of the order that a query asks for."""
        if query.sort == "arm":
            order = self.names.alphabetical
            if chosen is not None:
                is_chosen = np.zeros(len(self.names), np.bool_)
                is_chosen[chosen] = True
                order = order[is_chosen[order]]
            order = order if query.order == "up" else order[::-1]
            return lambda begin, end: order[begin:end]
        counts = self.counts if chosen is None else self.counts[np.isin(self.counts["arm"], chosen)]
        values = counts["reward"] / np.maximum(counts["impressions"], 1) if query.sort == "rate" else counts[query.sort]
        shown = counts["arm"][np.lexsort((counts["arm"], -values if query.order == "down" else values))]
        rest = _Rest(np.sort(counts["arm"]), chosen, self.arms)
        return _joined(shown, rest) if query.order == "down" else _joined(rest, shown)


class _Rest:
    """The arms that were not shown, in the order of their indices, without a list of them all."""

    def __init__(self, shown: Any, chosen: Int64s | None, arms: int) -> None:
        self._listed = None if chosen is None else np.setdiff1d(chosen, shown, assume_unique=True)
        self._before = shown - np.arange(len(shown))  # how many arms below each shown one were not shown
        self._count = arms - len(shown) if self._listed is None else len(self._listed)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, places: slice) -> Any:
        if self._listed is not None:
            return self._listed[places]
        at = np.arange(places.start, min(places.stop, self._count))
        return at + np.searchsorted(self._before, at, side="right")


def _joined(one: Any, two: Any) -> Any:
    """The places of one list and then another, as a function of begin and end."""

    def places(begin: int, end: int) -> Int64s:
        n = len(one)
        parts = [one[min(begin, n) : min(end, n)], two[max(begin - n, 0) : max(end - n, 0)]]
        return np.concatenate([np.asarray(part, np.int64) for part in parts])

    return places
