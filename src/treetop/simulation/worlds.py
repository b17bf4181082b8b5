"""Where rewards come from: the labels of a dataset, and the protocol of all that give rewards. Knows no policy."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from treetop.arrays import Float32s, Floats, Int64s, Ints, Rows


class World(Protocol):
    """Whatever gives the rewards of shown arms; `reward_range` is what Feedback may hold, None for no limits."""

    @property
    def reward_range(self) -> tuple[float, float] | None: ...

    def rewards(self, rows: Int64s, arms: Ints, first: int) -> Float32s:
        """(n, k) rewards of the arms shown in rounds first, first + 1, ... for these rows of the dataset."""
        ...

    def regret(self, rows: Int64s, arms: Ints) -> Floats | None:
        """What the best arms by true mean would have brought more, round by round; None where no means are known."""
        ...


class Labels:
    """The reward of any (row, arm) of a label matrix, by binary search in the sorted list of its entries.

    >>> from treetop.arrays import as_rows
    >>> Labels(as_rows([[0, 1], [1, 0]], what="labels")).rewards([0, 1], np.array([[1, 0], [1, -1]]))
    array([[ 1.,  0.],
           [ 0., nan]], dtype=float32)
    """

    reward_range = (0.0, 1.0)

    def __init__(self, Y: Rows) -> None:
        row = np.repeat(np.arange(len(Y), dtype=np.int64), np.diff(Y.start))
        self._keys = row * Y.columns + Y.index
        self._values, self._arms = Y.value, Y.columns

    def rewards(self, rows: Any, arms: Ints, first: int = 0) -> Float32s:
        """(n, k) rewards of the arms shown for rows; 0 where there is no label, NaN where there is no arm."""
        wanted = np.asarray(rows, np.int64)[:, None] * self._arms + np.maximum(arms, 0)
        at = np.minimum(np.searchsorted(self._keys, wanted), max(0, len(self._keys) - 1))
        found = np.where(self._keys[at] == wanted, self._values[at], 0) if len(self._keys) else np.zeros(arms.shape)
        return np.where(arms >= 0, found, np.nan).astype(np.float32)

    def regret(self, rows: Int64s, arms: Ints) -> Floats | None:
        """None: labels say what came, not what was to be expected."""
        return None
