"""Feature names and their columns: a context by name, by column or dense becomes a row. Knows nothing of models."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from treetop import _core
from treetop.arrays import Float32s, Int64s, Ints, Rows, as_rows
from treetop.errors import UnknownFeature


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Feature names by column. Without `names`, a feature's name is its column number.

    With `strict`, an unknown name is an error; otherwise it is counted and ignored.

    >>> row, unknown = Vocabulary(2, ("age", "height")).named({"height": 1.8, "shoe": 44})
    >>> row.index, row.value, unknown
    (array([1], dtype=int32), array([1.8], dtype=float32), 1)
    """

    columns: int
    names: tuple[str, ...] | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        if self.names is None:
            return
        if len(self.names) != self.columns:
            raise ValueError(f"{len(self.names)} feature names for {self.columns} features")
        if wrong := next((name for name in self.names if not isinstance(name, str)), None):
            raise TypeError(f"a feature's name must be text, not {wrong!r}")
        if len(self.index) < self.columns:
            twice = next(name for i, name in enumerate(self.names) if self.index[name] != i)
            raise ValueError(f"two features are called {twice!r}")

    @cached_property
    def index(self) -> dict[str, int]:
        """Column by name."""
        return {name: i for i, name in enumerate(self.names or map(str, range(self.columns)))}

    def name(self, column: int) -> str:
        """The name of a column.

        >>> Vocabulary(2).name(1)
        '1'
        """
        return str(column) if self.names is None else self.names[column]

    def named(self, features: Mapping[str, float]) -> tuple[Rows, int]:
        """The row of a context given by name, and how many names are unknown (UnknownFeature if strict)."""
        if (fast := self.named_fast(features)) is not None:
            return fast
        index = self.index
        found = {index[name]: value for name, value in features.items() if name in index}
        if self.strict and len(found) < len(features):
            unknown = next(name for name in features if name not in index)
            raise UnknownFeature(f"there is no feature {unknown!r} in the vocabulary")
        order = sorted(found)
        values = _float32(map(found.__getitem__, order))
        if not np.isfinite(values).all():
            column = order[int(np.isfinite(values).argmin())]
            name = next(name for name in features if index.get(name) == column)
            raise ValueError(f"feature {name!r} is {found[column]:g}; it must be finite and lie in [-3.4e+38, 3.4e+38]")
        return self._row(np.array(order, np.int32), values), len(features) - len(found)

    def named_fast(self, features: object) -> tuple[Rows, int] | None:
        """`named` in the core, for a plain dict of names and finite numbers; None for anything else."""
        found = _core.named_row(features, self.index, self.columns) if type(features) is dict else None
        if found is None or (self.strict and found[3]):
            return None
        start, at, value, unknown = found
        return Rows(start, at, value, self.columns), unknown

    def sparse(self, indices: Sequence[float], values: Sequence[float]) -> Rows:
        """The row of a context given by column, in any order; values of a repeated column are added."""
        if len(indices) != len(values):
            raise ValueError(f"{len(indices)} indices, but {len(values)} values")
        at = np.array(indices, np.float64)
        wrong = (at < 0) | (at >= self.columns) | (at != np.floor(at))
        if wrong.any():
            raise ValueError(f"index {at[wrong][0]:.17g} is not a whole number in [0, {self.columns})")
        return self._row(at.astype(np.int32), _float32(values))

    def dense(self, values: Sequence[float]) -> Rows:
        """The row of a context with a value for every column."""
        if len(values) != self.columns:
            raise ValueError(f"{len(values)} dense values; there are {self.columns} features")
        at: Int64s = np.flatnonzero(np.array(values, np.float64))
        return self._row(at.astype(np.int32), _float32(values)[at])

    def _row(self, at: Ints, value: Float32s) -> Rows:
        start: Int64s = np.array([0, len(at)], np.int64)
        if _core.inspect_rows(start, at, value, self.columns, "features"):
            return Rows(start, at, value, self.columns)
        return as_rows(Rows(start, at, value, self.columns).csr(), what="features")


def _float32(values: Iterable[float]) -> Float32s:
    """As float32; a number that does not fit becomes infinite, and `Rows` refuses it."""
    return np.frombuffer(array("f", values), np.float32)
