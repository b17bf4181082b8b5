"""Conditions on attributes, as a request has them, and the arms of a tree that meet them. Reads no file.

    {"in_stock": true, "price": {"<=": 20}, "brand": ["a", "b"], "category": "dept 3 > cat 7", "sets": ["summer-sale"]}

All of them must hold. An arm without a value meets no condition on it. A category includes those below it; of several
named sets an arm must be in all.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from treetop import _core
from treetop.arrays import Int64s, Ints
from treetop.bandit.attributes import CATEGORY, FLAG, NUMBER, SETS, TEXT, AttributeTable, Column
from treetop.policy.eligibility import NOTHING, ONLY, Eligible
from treetop.tree.categories import category_path
from treetop.tree.tree import Tree

Where: TypeAlias = Mapping[str, Any]
CUTS = 64  # sets kept of a column: memory against the time of a filter
LARGEST = sys.float_info.max  # that a number may be; integers of any size compare with it
OPERATORS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True, eq=False)
class ColumnIndex:
    """A column in the order of its values, as positions of a tree: conditions become ranges of it."""

    column: Column
    keys: np.ndarray[Any, Any]  # of the arms in the order; ascending
    positions: _core.SortedPositions
    starts: list[int] | None = None  # of each code in the order, and the end: of words and flags

    @classmethod
    def of(cls, column: Column, tree: Tree) -> ColumnIndex:
        """For the arms that the tree has."""
        order = column.order if len(column) <= tree.n_arms else column.order[column.order < tree.n_arms]
        keys = column.keys[order]
        cuts = np.flatnonzero(np.diff(keys)) + 1
        if len(cuts) >= CUTS:
            cuts = np.linspace(0, len(order), CUTS + 1).astype(np.int64)[1:]
        else:
            cuts = np.append(cuts, len(order))
        placed = np.ascontiguousarray(tree.position_of[order])
        starts = None
        if column.kind != NUMBER:
            codes = np.arange(max(2, len(column.words)) + 1, dtype=keys.dtype)
            starts = np.searchsorted(keys, codes).tolist()
        return cls(column, keys, _core.SortedPositions(placed, np.unique(cuts[cuts > 0]), tree.n_arms), starts)

    def ranges(self, name: str, condition: object) -> Int64s:
        """The ranges of the order that meet a condition: first, last, first, last, ... Raises ValueError."""
        if isinstance(condition, Mapping):
            return self._compared(name, condition)
        if isinstance(condition, list | tuple | set | frozenset):
            return _joined([self._equal(name, value) for value in condition])
        return _joined([self._equal(name, condition)])

    def _equal(self, name: str, value: object) -> tuple[int, int]:
        column = self.column
        value = value.item() if isinstance(value, np.generic) else value
        if column.kind == NUMBER and isinstance(value, int | float) and abs(value) <= LARGEST:
            return self._between(float(value), float(value))
        if column.kind == FLAG and isinstance(value, bool):
            return self._between(int(value), int(value))
        if column.kind == TEXT and isinstance(value, str):
            code = column.code.get(value, -1)
            return self._between(code, code)
        if column.kind == CATEGORY and isinstance(value, str | list | tuple):
            path, paths = category_path(value), column.sorted_paths
            first = bisect.bisect_left(paths, path)
            last = bisect.bisect_right(paths, path, key=lambda other: other[: len(path)])
            return self._between(first, last - 1)
        raise ValueError(f"attribute {name!r} is a {column.kind}; {value!r} is none")

    def _between(self, low: float, high: float) -> tuple[int, int]:
        """The range of the keys from `low` to `high`, both included; of codes, those that there are."""
        if self.starts is not None:
            return (self.starts[int(low)], self.starts[int(high) + 1]) if 0 <= low <= high else (0, 0)
        keys, kind = self.keys, self.keys.dtype.type  # of another type, NumPy would first convert all keys
        return int(keys.searchsorted(kind(low), "left")), int(keys.searchsorted(kind(high), "right"))

    def _compared(self, name: str, condition: Mapping[Any, Any]) -> Int64s:
        if not condition or any(operator not in OPERATORS for operator in condition):
            raise ValueError(f"{name!r}: {dict(condition)!r} is no comparison; there are {', '.join(OPERATORS)}")
        found = [0, len(self.keys)]
        for operator, value in condition.items():
            if operator in ("==", "!="):
                equal = self.ranges(name, value if isinstance(value, list | tuple) else [value])
                found = _both(found, (equal if operator == "==" else _others(equal, len(self.keys))).tolist())
                continue
            value = value.item() if isinstance(value, np.generic) else value
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
            if self.column.kind != NUMBER or not is_number:
                kind = self.column.kind
                raise ValueError(f"{name!r} {operator} {value!r}: only numbers have an order; it is a {kind}")
            side = "right" if operator in ("<=", ">") else "left"
            end = int(self.keys.searchsorted(float(value), side))  # type: ignore[call-overload]
            mine = [0, end] if operator[0] == "<" else [end, len(self.keys)]
            found = [max(found[0], mine[0]), min(found[1], mine[1])] if len(found) == 2 else _both(found, mine)
        return np.array(found if len(found) != 2 or found[0] < found[1] else [], np.int64)


def _joined(ranges: Iterable[tuple[int, int]]) -> Int64s:
    """Ranges in order, those that touch or overlap made one; empty ones left out."""
    out: list[int] = []
    for first, last in sorted(part for part in ranges if part[0] < part[1]):
        if out and first <= out[-1]:
            out[-1] = max(out[-1], last)
        else:
            out += [first, last]
    return np.array(out, np.int64)


def _others(ranges: Int64s, size: int) -> Int64s:
    ends = [0, *ranges.tolist(), size]
    return _joined(zip(ends[::2], ends[1::2], strict=True))


def _both(one: list[int], other: list[int]) -> list[int]:
    """What two lists of ranges share."""
    mine, theirs = zip(one[::2], one[1::2], strict=True), list(zip(other[::2], other[1::2], strict=True))
    shared: list[int] = _joined((max(a, c), min(b, d)) for a, b in mine for c, d in theirs).tolist()
    return shared


def canonical_where(where: Where) -> str:
    """Conditions as text, the same for the same request however it was spelled.

    >>> canonical_where({"price": {"<=": 20}, "in_stock": True})
    '{"in_stock":true,"price":{"<=":20}}'
    """
    if not isinstance(where, Mapping):
        raise TypeError(f"where is a mapping of attributes to conditions, not {where!r}")
    import msgspec  # here, because `import treetop` loads none of what serves

    try:
        return msgspec.json.encode(where, enc_hook=_plain, order="sorted").decode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"where cannot be read: {error}") from None


def _plain(value: object) -> object:
    """Numbers of NumPy, as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is not a value that an attribute may have")


class Filters:
    """The attributes of one moment over one tree. What is made of a column is kept while both stay.

    >>> from treetop.bandit.attributes import AttributeTable
    >>> table = AttributeTable({"price": Column.of([9.5, 20, 30]), "brand": Column.of(["a", "b", "a"])})
    >>> filters = Filters(table, Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1]))
    >>> eligible = filters.eligible({"price": {"<": 25}, "brand": ["a", "c"]})
    >>> eligible.arm_at[eligible.mask.positions()]
    array([0], dtype=int32)
    """

    def __init__(self, table: AttributeTable, tree: Tree, before: Filters | None = None) -> None:
        self.table, self.tree = table, tree
        self._indices: dict[int, ColumnIndex] = {}
        if before is not None and before.tree is tree:
            same = {id(column) for column in (*table.columns.values(), *table.sets.values())}
            self._indices = {key: index for key, index in before._indices.items() if key in same}

    def index(self, column: Column) -> ColumnIndex:
        """A column in the order of its values, as positions of the tree."""
        found = self._indices.get(id(column))  # the index holds the column, so the number stays its own
        if found is None:
            found = self._indices[id(column)] = ColumnIndex.of(column, self.tree)
        return found

    def prepare(self) -> None:
        """Makes now what the first filter would have to make."""
        for column in (*self.table.columns.values(), *self.table.sets.values()):
            self.index(column)

    def eligible(
        self, where: Where, base: _core.Mask | None = None, only: Ints | None = None, banned: Ints = NOTHING
    ) -> Eligible:
        """The arms that meet all conditions, of those of `base` and of the positions `only`, without the `banned`."""
        conditions = []
        for name, condition in where.items():
            if name == SETS:
                conditions += [self._members(one) for one in _names(condition)]
            else:
                index = self.index(self.table.column(name))
                conditions.append((index.positions, index.ranges(name, condition)))
        tree = self.tree
        mask = _core.Mask.filtered(tree.n_arms, tree.n_nodes, conditions, base, only, banned)
        return Eligible(ONLY, arm_at=tree.arm_at, mask=mask)

    def _members(self, name: str) -> tuple[_core.SortedPositions, Int64s]:
        if name not in self.table.sets:
            known = ", ".join(sorted(self.table.sets)) or "none at all"
            raise ValueError(f"there is no set {name!r}; there are {known}")
        index = self.index(self.table.sets[name])
        return index.positions, np.array([0, len(index.keys)], np.int64)


def _names(condition: object) -> list[str]:
    listed = [condition] if isinstance(condition, str) else condition
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"{SETS!r} is the name of a set or a list of names, not {condition!r}")
    return list(listed)


def matching(table: AttributeTable, where: Where, n_arms: int) -> Ints:
    """The arms that meet all conditions, in the order of their indices: for a logged decision.

    >>> from treetop.bandit.attributes import AttributeTable
    >>> matching(AttributeTable({"price": Column.of([9.5, 20, 30])}), {"price": {">": 9.5}}, 4)
    array([1, 2], dtype=int32)
    """
    flat = Tree(np.full(1, -1, np.int32), np.zeros(n_arms, np.int32))
    found = Filters(table, flat).eligible(where)
    assert found.mask is not None
    return np.sort(flat.arm_at[found.mask.positions()]).astype(np.int32)
