"""Reward by category: the counts of arms added up by the first part of their category. Knows no HTML."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.bandit.attributes import Column
from treetop.log.arm_counts import Table
from treetop.tree.categories import category_path

ROWS = 12  # categories that are shown; the others are added up
OTHERS = "others"
WITHOUT = "without a category"


@dataclass(frozen=True)
class CategoryRow:
    """One category: its arms that were shown, impressions, explored ones, and reward."""

    name: str
    arms: int
    impressions: int
    explored: int
    reward: float

    @property
    def rate(self) -> float | None:
        """Reward per impression."""
        return self.reward / self.impressions if self.impressions else None


def by_category(counts: Table, column: Column) -> list[CategoryRow]:
    """The categories with the most impressions, by these; the rest is one row.

    >>> from treetop.log.arm_counts import ARM
    >>> shown = np.zeros(3, ARM)
    >>> shown["arm"], shown["impressions"], shown["reward"] = [0, 1, 5], [4, 6, 1], [2, 3, 0]
    >>> [(row.name, row.impressions, row.reward) for row in by_category(shown, Column.of(["a > b", "a"], "category"))]
    [('a', 10, 5.0), ('without a category', 1, 0.0)]
    """
    heads = [category_path(word)[0] for word in column.words]
    names = [*dict.fromkeys(heads), WITHOUT]
    place = np.array([*(names.index(head) for head in heads), len(names) - 1], np.int64)  # the last is that of -1
    arms = counts["arm"]
    known = np.where(arms < len(column.values), column.values[np.minimum(arms, len(column.values) - 1)], -1)
    group = place[known]
    sums = {
        what: np.bincount(group, counts[what].astype(np.float64), len(names))
        for what in ("impressions", "explored", "reward")
    }
    shown = np.bincount(group, counts["impressions"] > 0, len(names))
    rows = [
        CategoryRow(
            name, int(shown[i]), int(sums["impressions"][i]), int(sums["explored"][i]), float(sums["reward"][i])
        )
        for i, name in enumerate(names)
        if sums["impressions"][i]
    ]
    rows.sort(key=lambda row: -row.impressions)
    if len(rows) <= ROWS:
        return rows
    rest = rows[ROWS - 1 :]
    totals = [sum(getattr(row, what) for row in rest) for what in ("arms", "impressions", "explored", "reward")]
    return [*rows[: ROWS - 1], CategoryRow(OTHERS, *totals)]
