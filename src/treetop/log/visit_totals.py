"""The totals of one stretch of time: visits, slots and rewards by model and number of slots, and propensities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from treetop.arrays import Floats, Int64s

EDGES = np.concatenate([[0.0], 10.0 ** np.linspace(-6, 0, 25)])  # of the bins of propensities
# Visits, drawn, then slots, observed and reward of likely and of unlikely slots, then weights and weighted rewards of
# greedy slates, then arms that exploration found and what these brought.
COLUMNS = 12
GROUPS = 8  # models, and numbers of slots, that are kept apart; the smaller ones are counted together
OTHERS = -1  # stands for them


@dataclass(frozen=True)
class Cell:
    """The totals of one model and one number of slots `k`; pairs are for (likely, unlikely) slots.

    `drawn` slots were left to chance, whatever came of it: unlikely ones, and those that drew the likeliest arm.
    `weight` and `weighted_reward` are those of `greedy_slates.py`. `found_arms` had their first reward from an unlikely
    slot here; `found_reward` is what such arms brought, whenever they were found.
    """

    epoch: int
    k: int
    visits: int
    drawn: int
    slots: tuple[int, int]
    observed: tuple[int, int]
    reward: tuple[float, float]
    weight: float
    weighted_reward: float
    found_arms: int
    found_reward: float


@dataclass(eq=False)
class VisitTotals:
    """Rows of COLUMNS sums by (epoch, number of slots), and how many slots had propensities between EDGES."""

    rows: dict[tuple[int, int], Floats] = field(default_factory=dict)
    propensities: Int64s = field(default_factory=lambda: np.zeros((2, len(EDGES) - 1), np.int64))

    def add(self, epoch: int, k: int, row: Floats) -> None:
        """Adds to the row of a model and a number of slots."""
        self.rows[epoch, k] = self.rows.get((epoch, k), 0.0) + row
        for place in (0, 1):
            self._limit_groups(place)

    def absorb(self, other: VisitTotals) -> None:
        for (epoch, k), row in other.rows.items():
            self.add(epoch, k, row)
        self.propensities = self.propensities + other.propensities

    def cells(self) -> list[Cell]:
        """By epoch, then by k."""
        return [
            Cell(
                *(epoch, k, int(r[0]), int(r[1])),
                *((int(r[2]), int(r[3])), (int(r[4]), int(r[5])), (r[6], r[7])),
                *(r[8], r[9], int(r[10]), r[11]),
            )
            for (epoch, k), r in sorted((key, row.tolist()) for key, row in self.rows.items())
        ]

    def _limit_groups(self, place: int) -> None:
        """Counts the smallest group among the others if there are too many models (place 0) or numbers of slots (1)."""
        visits: dict[int, float] = {}
        for key, row in self.rows.items():
            visits[key[place]] = visits.get(key[place], 0.0) + float(row[0])
        visits.pop(OTHERS, None)
        if len(visits) > GROUPS:
            smallest = min(visits, key=lambda group: (visits[group], group))
            for key in [key for key in self.rows if key[place] == smallest]:
                others = (OTHERS, key[1]) if place == 0 else (key[0], OTHERS)
                self.rows[others] = self.rows.get(others, 0.0) + self.rows.pop(key)


def added_up(totals: Iterable[VisitTotals]) -> VisitTotals:
    """The totals of several stretches, by as many models and numbers of slots as there are."""
    out = VisitTotals()
    for one in totals:
        for key, row in one.rows.items():
            out.rows[key] = out.rows.get(key, 0.0) + row
        out.propensities = out.propensities + one.propensities
    return out
