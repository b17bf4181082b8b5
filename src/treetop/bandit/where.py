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
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from treetop import _core
from treetop.arrays import Ints
from treetop.bandit.attributes import CATEGORY, FLAG, NUMBER, SETS, TEXT, AttributeTable, Column
from treetop.policy.eligibility import NO_ROWS, NOTHING, ONLY, Eligible
from treetop.tree.categories import category_path
from treetop.tree.tree import Tree

if TYPE_CHECKING:
    import msgspec

Where: TypeAlias = Mapping[str, Any]
CUTS = 64  # sets kept of a column: memory against the time of a filter
LARGEST = sys.float_info.max  # that a number may be; integers of any size compare with it
OPERATORS = dict.fromkeys(("<", "<=", ">", ">=", "==", "!=")).keys()  # in this order, as a set
NUMBERS, LISTS = (int, float), (list, tuple, set, frozenset)  # a tuple costs a decision less than a union
MAPPINGS = (dict, Mapping)  # most are a dict, which is told sooner


@dataclass(frozen=True, eq=False)
class ColumnIndex:
    """A column in the order of its values, as positions of a tree: conditions become ranges of it."""

    column: Column
    size: int  # of the order
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
        values = keys if column.kind == NUMBER else None
        positions = _core.SortedPositions(placed, np.unique(cuts[cuts > 0]), tree.n_arms, values)
        return cls(column, len(order), positions, starts)

    def ranges(self, name: str, condition: object) -> list[int]:
        """The ranges of the order that meet a condition: first, last, first, last, ... Raises ValueError."""
        if isinstance(condition, LISTS):
            if self.starts is not None and self.column.kind == TEXT and {*map(type, condition)} == {str}:
                return self._of_words(condition, self.starts)
            return _joined([self._equal(name, value) for value in condition])
        if isinstance(condition, MAPPINGS):
            return self._compared(name, condition)
        first, last = self._equal(name, condition)
        return [first, last] if first < last else []

    def _equal(self, name: str, value: object) -> tuple[int, int]:
        column = self.column
        kind = column.kind
        if kind == TEXT and isinstance(value, str):
            code = column.code.get(value, -1)
            return self._between(code, code)
        value = value.item() if isinstance(value, np.generic) else value
        if kind == FLAG and isinstance(value, bool):
            return self._between(value, value)
        if kind == NUMBER and isinstance(value, NUMBERS) and abs(value) <= LARGEST:
            return self._between(float(value), float(value))
        if kind == CATEGORY and isinstance(value, str | list | tuple):
            path, paths = category_path(value), column.sorted_paths
            first = bisect.bisect_left(paths, path)
            last = len(paths)
            if path:  # names are printable: nothing stands between those below it and this
                last = bisect.bisect_left(paths, (*path[:-1], path[-1] + "\0"))
            return self._between(first, last - 1)
        raise ValueError(f"attribute {name!r} is a {kind}; {value!r} is none")

    def _of_words(self, words: Iterable[str], starts: list[int]) -> list[int]:
        """What `_joined` makes of each word's range: codes in order are ranges in order."""
        out: list[int] = []
        for code in sorted({self.column.code.get(word, -1) for word in words}):
            first, last = (starts[code], starts[code + 1]) if code >= 0 else (0, 0)
            if out and out[-1] == first:
                out[-1] = last
            elif first < last:
                out += [first, last]
        return out

    def _between(self, low: float, high: float) -> tuple[int, int]:
        """The range of the keys from `low` to `high`, both included; of codes, those that there are."""
        if self.starts is not None:
            return (self.starts[int(low)], self.starts[int(high) + 1]) if 0 <= low <= high else (0, 0)
        return self.positions.below(low, False), self.positions.below(high, True)

    def _compared(self, name: str, condition: Mapping[Any, Any]) -> list[int]:
        if not condition or not condition.keys() <= OPERATORS:
            raise ValueError(f"{name!r}: {dict(condition)!r} is no comparison; there are {', '.join(OPERATORS)}")
        found = [0, self.size]
        for operator, value in condition.items():
            if operator in ("==", "!="):
                equal = self.ranges(name, value if isinstance(value, list | tuple) else [value])
                found = _both(found, equal if operator == "==" else _others(equal, self.size))
                continue
            value = value.item() if isinstance(value, np.generic) else value
            is_number = isinstance(value, NUMBERS) and not isinstance(value, bool) and abs(value) <= LARGEST
            if self.column.kind != NUMBER or not is_number:
                why = f"only numbers have an order; it is a {self.column.kind}"
                if self.column.kind == NUMBER:
                    why = "it is a number, and compared with finite ones only"
                raise ValueError(f"{name!r} {operator} {value!r}: {why}")
            end = self.positions.below(float(value), operator in ("<=", ">"))
            mine = [0, end] if operator[0] == "<" else [end, self.size]
            found = [max(found[0], mine[0]), min(found[1], mine[1])] if len(found) == 2 else _both(found, mine)
        return found if len(found) != 2 or found[0] < found[1] else []


def _joined(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Ranges in order, those that touch or overlap made one; empty ones left out."""
    out: list[int] = []
    for first, last in sorted(part for part in ranges if part[0] < part[1]):
        if out and first <= out[-1]:
            out[-1] = max(out[-1], last)
        else:
            out += [first, last]
    return out


def _others(ranges: list[int], size: int) -> list[int]:
    ends = [0, *ranges, size]
    return _joined(zip(ends[::2], ends[1::2], strict=True))


def _both(one: list[int], other: list[int]) -> list[int]:
    """What two lists of ranges share."""
    mine, theirs = zip(one[::2], one[1::2], strict=True), list(zip(other[::2], other[1::2], strict=True))
    return _joined((max(a, c), min(b, d)) for a, b in mine for c, d in theirs)


def canonical_where(where: Where) -> str:
    """Conditions as text, the same for the same request however it was spelled.

    >>> canonical_where({"price": {"<=": 20}, "in_stock": True})
    '{"in_stock":true,"price":{"<=":20}}'
    """
    if not isinstance(where, MAPPINGS):
        raise TypeError(f"where is a mapping of attributes to conditions, not {where!r}")
    try:
        return _encoder().encode(where).decode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"where cannot be read: {error}") from None


@cache
def _encoder() -> msgspec.json.Encoder:
    import msgspec  # here, because `import treetop` loads none of what serves

    return msgspec.json.Encoder(enc_hook=_plain, order="sorted")


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
        return Eligible(ONLY, NOTHING, NO_ROWS, tree.arm_at, mask)

    def _members(self, name: str) -> tuple[_core.SortedPositions, list[int]]:
        if name not in self.table.sets:
            known = ", ".join(sorted(self.table.sets)) or "none at all"
            raise ValueError(f"there is no set {name!r}; there are {known}")
        index = self.index(self.table.sets[name])
        return index.positions, [0, index.size]


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
