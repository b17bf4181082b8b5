"""Counts by arm as sorted tables: only arms that were shown take memory, 44 bytes each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Floats, Int64s, Ints

ARM = np.dtype(
    [
        ("arm", "<i4"),
        ("impressions", "<i8"),
        ("unlikely", "<i8"),  # of the impressions: in unlikely slots
        ("observed", "<i8"),  # impressions with a reward
        ("reward", "<f8"),
        ("last", "<i8"),  # position of the newest decision that showed the arm
    ]
)
SUMS = ("impressions", "unlikely", "observed", "reward")
WAITING = 16_384  # rows that may wait to be merged into a small table
Table = NDArray[np.void]


class ArmCounts:
    """The counts of the arms shown in one stretch of time. Adding is cheap: rows are merged in large steps."""

    def __init__(self, table: Table | None = None) -> None:
        self._table: Table = np.zeros(0, ARM) if table is None else table
        self._waiting: list[Table] = []
        self._size = 0  # rows in _waiting

    @property
    def size(self) -> int:
        """How many rows it has in memory."""
        return len(self._table) + self._size

    def table(self) -> Table:
        """One row for each arm, by arm."""
        if self._waiting:
            self._table, self._waiting, self._size = merged([self._table, *self._waiting]), [], 0
        return self._table

    def add(self, rows: Table) -> None:
        self._waiting.append(rows)
        self._size += len(rows)
        if self._size > max(WAITING, len(self._table)):
            self.table()

    def absorb(self, other: ArmCounts) -> None:
        self.add(other.table())


def rows_of(arms: Ints, new: Bools, unlikely: Bools, known: Bools, rewards: Floats, positions: Int64s) -> Table:
    """One row for each of n slots; an old slot counts for its reward alone, which is 0 if there is none."""
    rows = np.zeros(len(arms), ARM)
    rows["arm"], rows["last"] = arms, positions
    rows["impressions"], rows["unlikely"] = new, new & unlikely
    rows["observed"], rows["reward"] = known, rewards
    return rows


def merged(tables: list[Table]) -> Table:
    """The rows of several tables, those of an arm added up."""
    rows = np.concatenate(tables)
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows["arm"], kind="stable")]
    first = np.flatnonzero(np.diff(rows["arm"], prepend=-1))
    out: Table = rows[first]
    for name in SUMS:
        out[name] = np.add.reduceat(rows[name], first)
    out["last"] = np.maximum.reduceat(rows["last"], first)
    return out
