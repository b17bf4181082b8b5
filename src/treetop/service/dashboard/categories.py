"""Reward by category: the counts of arms added up by what comes below one category. Knows no HTML."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.bandit.attributes import Column
from treetop.log.arm_counts import Table
from treetop.tree.categories import CategoryPath, category_path, category_text

ROWS = 12  # categories that are shown; the others are added up
OTHERS = "others"
WITHOUT = "without a category"


@dataclass(frozen=True)
class CategoryRow:
    """One category: its arms that were shown, impressions, those in unlikely slots, and reward; `deeper`: it has some
    below it.

    `path` is empty for those that are no category of their own, such as all others.
    """

    name: str
    arms: int
    impressions: int
    unlikely: int
    reward: float
    path: CategoryPath = ()
    deeper: bool = False

    @property
    def rate(self) -> float | None:
        """Reward per impression."""
        return self.reward / self.impressions if self.impressions else None


def by_category(counts: Table, column: Column, within: CategoryPath = ()) -> list[CategoryRow]:
    """The categories one level below `within` with the most impressions, by these; the rest is one row.

    >>> from treetop.log.arm_counts import ARM
    >>> shown = np.zeros(3, ARM)
    >>> shown["arm"], shown["impressions"], shown["reward"] = [0, 1, 5], [4, 6, 1], [2, 3, 0]
    >>> column = Column.of(["a > b", "a"], "category")
    >>> [(row.name, row.impressions, row.reward) for row in by_category(shown, column)]
    [('a', 10, 5.0), ('without a category', 1, 0.0)]
    >>> [(row.name, row.deeper) for row in by_category(shown, column, ("a",))]
    [('a, no deeper', False), ('a > b', False)]
    """
    depth = len(within)
    paths = [category_path(word) for word in column.words]
    heads = [path[: depth + 1] if path[:depth] == within else None for path in paths]
    groups: list[CategoryPath | None] = [*dict.fromkeys(heads), () if depth == 0 else None]
    place = {head: i for i, head in enumerate(groups)}
    of_word = np.array([*(place[head] for head in heads), len(groups) - 1], np.int64)  # the last is that of -1
    arms = counts["arm"]
    known = np.where(arms < len(column.values), column.values[np.minimum(arms, len(column.values) - 1)], -1)
    group = of_word[known]
    sums = {
        what: np.bincount(group, counts[what].astype(np.float64), len(groups))
        for what in ("impressions", "unlikely", "reward")
    }
    shown = np.bincount(group, counts["impressions"] > 0, len(groups))
    parents = {path[: depth + 1] for path in paths if len(path) > depth + 1}
    rows = [
        CategoryRow(
            _name(head, within),
            int(shown[i]),
            int(sums["impressions"][i]),
            int(sums["unlikely"][i]),
            float(sums["reward"][i]),
            head,
            len(head) > depth and head in parents,
        )
        for i, head in enumerate(groups)
        if head is not None and sums["impressions"][i]
    ]
    rows.sort(key=lambda row: -row.impressions)
    if len(rows) <= ROWS:
        return rows
    rest = rows[ROWS - 1 :]
    totals = [sum(getattr(row, what) for row in rest) for what in ("arms", "impressions", "unlikely", "reward")]
    return [*rows[: ROWS - 1], CategoryRow(OTHERS, *totals)]


def _name(head: CategoryPath, within: CategoryPath) -> str:
    if not head:
        return WITHOUT
    return f"{category_text(head)}, no deeper" if head == within else category_text(head)
