"""Feature names and their columns: a context by name, by column or dense becomes a row. Knows nothing of models.

A context by name may have several parts: numbers, `{"age": 35}`; text, `{"device": "mobile"}`, which is the feature
`device=mobile`; and vectors, `{"vector": [0.1, 0.7]}`, whose numbers are the features `vector[0]`, `vector[1]`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from treetop import _core
from treetop.arrays import Float32s, Int64s, Ints, Rows, as_float32s, as_rows, check_float, check_int
from treetop.errors import UnknownFeature

VECTOR = "vector"  # what the part is called that is compared with items, unless there is another name for it
MOST = float(np.finfo(np.float32).max)
Parts: TypeAlias = Mapping[str, int | Sequence[str] | None]


def part_names(parts: Parts) -> tuple[str, ...]:
    """The names of the features of contexts with such parts: how many numbers a vector has, which texts there are, or
    None for a number.

    >>> part_names({"vector": 2, "device": ["mobile", "desktop"], "age": None})
    ('vector[0]', 'vector[1]', 'device=mobile', 'device=desktop', 'age')
    """
    names: list[str] = []
    for name, kind in parts.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"a part of a context has a name, which is text, not {name!r}")
        if kind is None:
            names.append(name)
        elif isinstance(kind, int):
            dims = check_int(f"the number of dimensions of {name!r}", kind, 1, 65_536)
            names += [f"{name}[{i}]" for i in range(dims)]
        elif isinstance(kind, str) or not (isinstance(kind, Sequence) and all(isinstance(t, str) for t in kind)):
            raise TypeError(f"part {name!r} is {kind!r}; it must be a number of dimensions, a list of texts or None")
        else:
            names += [f"{name}={text}" for text in kind]
    return tuple(names)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Feature names by column. Without `names`, a feature's name is its column number.

    With `strict`, an unknown name is an error; otherwise it is counted and ignored. The last `reserved` columns need no
    name yet: they are for names that join later. A context given as numbers has none of them. Without names, `vector`
    is where the part "vector" is: its first column and how many it has.

    >>> row, unknown = Vocabulary(2, ("age", "height")).named({"height": 1.8, "shoe": 44})
    >>> row.index, row.value, unknown
    (array([1], dtype=int32), array([1.8], dtype=float32), 1)
    >>> names = part_names({"vector": 2, "device": ["mobile", "desktop"]})
    >>> Vocabulary(4, names).named({"vector": [0.5, 2], "device": "desktop"})[0].csr().toarray()
    array([[0.5, 2. , 0. , 1. ]], dtype=float32)
    """

    columns: int
    names: tuple[str, ...] | None = None
    strict: bool = False
    reserved: int = 0
    vector: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.names is None:
            return
        if not self.given <= len(self.names) <= self.columns:
            most = f", {self.columns} with those that join" if self.reserved else ""
            raise ValueError(f"{len(self.names)} feature names for {self.given} features{most}")
        if wrong := next((name for name in self.names if not isinstance(name, str)), None):
            raise TypeError(f"a feature's name must be text, not {wrong!r}")
        if len(self.index) < len(self.names):
            twice = next(name for i, name in enumerate(self.names) if self.index[name] != i)
            raise ValueError(f"two features are called {twice!r}")

    @property
    def given(self) -> int:
        """How many numbers a context has that is given by numbers.

        >>> Vocabulary(4, ("age", "height"), reserved=2).given
        2
        """
        return self.columns - self.reserved

    @property
    def room(self) -> int:
        """How many names may join.

        >>> Vocabulary(4, ("age", "height", "shoe"), reserved=2).room
        1
        """
        return 0 if self.names is None else self.columns - len(self.names)

    def unknown(self, features: Mapping[str, Any] | Iterable[str]) -> list[str]:
        """The features of a context, or of these names, that are not in it and may join: not the name of a part that is
        a vector or a text.

        >>> Vocabulary(3, ("age", "device=mobile", "height")).unknown({"age": 3, "device": "tablet", "shoe": 44})
        ['device=tablet', 'shoe']
        """
        given = features if isinstance(features, Mapping) else dict.fromkeys(features)
        named = (f"{name}={value}" if isinstance(value, str) else name for name, value in given.items())
        known = (self.index, self.vectors, self.texts)
        return [name for name in named if not any(name in names for names in known)]

    def ignored(self, features: Mapping[str, Any]) -> tuple[str, ...]:
        """The features of a context that no column is for, as they are called.

        >>> Vocabulary(2, ("age", "device=mobile")).ignored({"aeg": 3, "device": "tablet", "age": 3})
        ('aeg', 'device=tablet')
        """
        named = ((name, f"{name}={value}" if isinstance(value, str) else name) for name, value in features.items())
        return tuple(column for name, column in named if column not in self.index and name not in self.vectors)

    @cached_property
    def texts(self) -> frozenset[str]:
        """The parts that are texts.

        >>> sorted(Vocabulary(3, ("age", "device=mobile", "device=desktop")).texts)
        ['device']
        """
        return frozenset(name.partition("=")[0] for name in self.names or () if "=" in name)

    @cached_property
    def index(self) -> dict[str, int]:
        """Column by name."""
        return {name: i for i, name in enumerate(self.names or map(str, range(self.columns)))}

    @cached_property
    def vectors(self) -> dict[str, tuple[int, int]]:
        """The first column of each part that is a vector, and how many it has: the names say it, those that joined
        later do not.

        >>> Vocabulary(3, ("age", "taste[0]", "taste[1]")).vectors
        {'taste': (1, 2)}
        """
        if self.names is None:
            return {} if self.vector is None else {VECTOR: self.vector}
        found: dict[str, tuple[int, int]] = {}
        for column, name in enumerate(self.names[: self.given]):
            part, bracket, place = name.rpartition("[")
            if not (bracket and part):
                continue
            first, dims = found.get(part, (column, 0))
            if place == f"{column - first}]" and column - first == dims:
                found[part] = first, dims + 1
        return {part: where for part, where in found.items() if part not in self.index}

    def name(self, column: int) -> str:
        """The name of a column.

        >>> Vocabulary(2).name(1)
        '1'
        """
        return str(column) if self.names is None or column >= len(self.names) else self.names[column]

    def named(self, features: Mapping[str, Any]) -> tuple[Rows, int]:
        """The row of a context given by name, and how many names are unknown (UnknownFeature if strict).

        Raises ValueError or TypeError that names the part and the limit.
        """
        if (fast := self.named_fast(features)) is not None:
            return fast
        found: dict[int, float] = {}
        unknown = 0
        for name, value in features.items():
            cells = self._cells(name, value)
            unknown += cells is None
            for column, number in cells or ():
                if column in found:
                    raise ValueError(f"feature {self.name(column)!r} is given twice")
                found[column] = number
        order = sorted(found)
        return self._row(np.array(order, np.int32), _float32(map(found.__getitem__, order))), unknown

    def _cells(self, name: str, value: Any) -> list[tuple[int, float]] | None:
        """Columns and values of one part; None if nobody knows it."""
        if name in self.vectors:
            return self._vector(name, value)
        if isinstance(value, str):
            text = f"{name}={value}"
            if self.index.get(name, self.given) < self.given and text not in self.index:  # no mistake if it joined
                raise TypeError(f"feature {name!r} must be a number, not {value!r}")
            return self._known(text, name, 1.0)
        if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) > 0:
            known = ", ".join(f"{part} ({dims})" for part, (_, dims) in self.vectors.items()) or "none"
            raise ValueError(f"there is no vector {name!r} in a context; vectors, with their dimensions: {known}")
        number = check_float(f"feature {name!r}", value, -MOST, MOST)
        return self._known(name, name, number)

    def _known(self, feature: str, part: str, number: float) -> list[tuple[int, float]] | None:
        if feature in self.index:
            return [(self.index[feature], number)]
        if not self.strict:
            return None
        texts = [name.removeprefix(f"{part}=") for name in self.index if name.startswith(f"{part}=")][:10]
        more = f"; {part!r} is one of {', '.join(texts)}" if texts else ""
        raise UnknownFeature(f"there is no feature {feature!r} in the vocabulary{more}")

    def _vector(self, name: str, value: Any) -> list[tuple[int, float]]:
        first, dims = self.vectors[name]
        numbers = as_float32s(value, f"vector {name!r}") if np.ndim(value) else np.zeros(0, np.float32)
        if numbers.shape != (dims,):
            given = f"has shape {numbers.shape}" if numbers.ndim > 1 else f"has {len(numbers)} numbers"
            given = given if np.ndim(value) else f"is {value!r}"
            raise ValueError(f"vector {name!r} {given}; it must be a list of {dims} numbers")
        if not np.isfinite(numbers).all():
            at = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise ValueError(f"number {at} of vector {name!r} is {numbers[at]}; it must be finite")
        return [(first + i, float(numbers[i])) for i in np.flatnonzero(numbers).tolist()]

    def named_fast(self, features: object) -> tuple[Rows, int] | None:
        """`named` in the core, for a plain dict of names and finite values; None for anything else."""
        if type(features) is not dict:
            return None
        found = _core.named_row(features, self.index, self.columns, self.vectors)
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
        if len(values) != self.given:
            raise ValueError(f"{len(values)} dense values; there are {self.given} features")
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
