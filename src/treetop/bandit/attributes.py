"""What the owner says of each arm: attributes by name, categories and named sets of arms. Knows no tree and no request.

A column is never changed: `changed` returns another. On disk they are the records of attributes.bin, in order; what
counts up to some byte is the table of that moment, so that a logged decision finds the values of its time.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Ints, Rows
from treetop.tree.categories import Categories, category_path, category_text

FLAG, NUMBER, TEXT, CATEGORY = "flag", "number", "text", "category"
KINDS = (FLAG, NUMBER, TEXT, CATEGORY)
CATEGORY_NAME = "category"  # the attribute that holds categories
VECTORS, EXAMPLES = "vectors", "examples"  # records of what arms were added with
SETS = "sets"  # in a request, the named sets; no attribute is called so
Values: TypeAlias = Sequence[Any] | NDArray[Any] | Mapping[int, Any]  # one for each arm, or by places in their list
Attributes: TypeAlias = Mapping[str, Values]
LONGEST_WORD = 1024  # characters of a value, and of a name


@dataclass(frozen=True, eq=False)
class Column:
    """One attribute of all arms. Numbers are float64, NaN where there is none; the others are numbers of `words`, -1
    where there is none, and flags 0 or 1.

    >>> Column.of([9.5, None, 20]).value(0), Column.of(["a", "b", None]).value(2), Column.of([True, False]).kind
    (9.5, None, 'flag')
    """

    kind: str
    values: NDArray[Any]
    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Sequence[Any] | NDArray[Any], kind: str | None = None) -> Column:
        """From values of one type, None where there is none. Raises ValueError or TypeError for a mixture."""
        if isinstance(values, np.ndarray) and values.dtype.kind == "b" and kind in (None, FLAG):
            return cls(FLAG, values.astype(np.int32))
        if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and kind in (None, NUMBER):
            return cls(NUMBER, _finite(values.astype(np.float64)))
        listed = values.tolist() if isinstance(values, np.ndarray) else [_plain(value) for value in values]
        kind = kind or _kind_of(listed)
        if kind not in KINDS:
            raise ValueError(f"the kind {kind!r} of an attribute is not one of {', '.join(KINDS)}")
        if kind == NUMBER:
            return cls(NUMBER, _numbers(listed))
        if kind == FLAG:
            for at, value in enumerate(listed):
                if value is not None and not isinstance(value, bool):
                    raise TypeError(f"value {at} is {value!r}; the others are true or false")
            return cls(FLAG, np.array([-1 if v is None else int(v) for v in listed], np.int32))
        texts = [_text(value, kind, at) for at, value in enumerate(listed)]
        code = {word: i for i, word in enumerate(dict.fromkeys(text for text in texts if text is not None))}
        codes = np.array([-1 if text is None else code[text] for text in texts], np.int32)
        return cls(kind, codes, tuple(code))

    def __len__(self) -> int:
        return len(self.values)

    def value(self, arm: int) -> bool | float | str | None:
        """The value of an arm; None if it has none."""
        if arm >= len(self.values):
            return None
        found = self.values[arm].item()
        if self.kind == NUMBER:
            return None if found != found else float(found)
        if found < 0:
            return None
        return bool(found) if self.kind == FLAG else self.words[found]

    @cached_property
    def code(self) -> dict[str, int]:
        """The number of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def keys(self) -> NDArray[Any]:
        """What arms are sorted by: the value, or the place of its word (in the order of paths, for categories)."""
        if self.kind != CATEGORY:
            return self.values
        return np.where(self.values < 0, -1, self.rank[self.values])

    @cached_property
    def rank(self) -> Ints:
        """The place of each word of a category in the order of their paths."""
        rank = np.zeros(len(self.words) + 1, np.int32)  # one more, so that -1 has a place
        rank[sorted(range(len(self.words)), key=lambda i: category_path(self.words[i]))] = range(len(self.words))
        return rank

    @cached_property
    def sorted_paths(self) -> list[tuple[str, ...]]:
        """The paths of a category, in order."""
        return sorted(category_path(word) for word in self.words)

    @cached_property
    def order(self) -> Ints:
        """The arms that have a value, by their key."""
        there = np.flatnonzero(self._has_value(self.values))
        return there[np.argsort(self.keys[there], kind="stable")].astype(np.int32)

    def _has_value(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return ~np.isnan(values) if self.kind == NUMBER else values >= 0

    def changed(self, arms: Ints, new: Column) -> Column:
        """With other values for some arms, each listed once; `new` has their values in that order."""
        if new.kind != self.kind:
            raise ValueError(f"the attribute is a {self.kind}; a {new.kind} was given")
        words, given = self.words, new.values
        if new.words and new.words != words:
            code = dict(self.code)
            recoded = np.array([code.setdefault(word, len(code)) for word in new.words] + [-1], np.int32)
            words, given = tuple(code), recoded[given]
        size = max(len(self.values), int(arms.max(initial=-1)) + 1)
        missing = np.nan if self.kind == NUMBER else -1
        values = np.concatenate([self.values, np.full(size - len(self.values), missing, self.values.dtype)])
        values[arms] = given
        column = Column(self.kind, values, words)
        if "order" in self.__dict__ and len(words) == len(self.words) and len(arms) < len(self.order) // 2:
            column.__dict__["order"] = self._merged(column, arms)
        return column

    def _merged(self, column: Column, arms: Ints) -> Ints:
        """The order of a column that differs in some arms from this one, whose order is known."""
        moved = np.zeros(len(column.values), np.bool_)
        moved[arms] = True
        stay = self.order[~moved[self.order]]
        come = arms[column._has_value(column.values[arms])]
        come = come[np.argsort(column.keys[come], kind="stable")]
        at = np.searchsorted(column.keys[stay], column.keys[come])
        return np.insert(stay, at, come)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _kind_of(values: Sequence[Any]) -> str:
    kinds = {bool: FLAG, int: NUMBER, float: NUMBER, str: TEXT}
    found: str | None = None
    for at, value in enumerate(values):
        if value is None:
            continue
        kind = kinds.get(type(value))
        if kind is None:
            raise TypeError(f"value {at} is {value!r}; a value is true or false, a number or text")
        if found is not None and kind != found:
            raise ValueError(f"value {at} is {value!r}, a {kind}; those before it are each a {found}")
        found = kind
    return found or TEXT


def _numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    for at, value in enumerate(values):
        if value is not None and type(value) not in (int, float):
            raise TypeError(f"value {at} is {value!r}; the others are numbers")
    return _finite(np.array([np.nan if value is None else value for value in values], np.float64))


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if values.ndim != 1:
        raise ValueError(f"an attribute is a list of values, not an array of shape {values.shape}")
    if np.isinf(values).any():
        raise ValueError(f"value {int(np.isinf(values).argmax())} is not finite")
    return values


def _text(value: Any, kind: str, at: int) -> str | None:
    if value is None or value == "":
        return None
    if kind == CATEGORY:
        value = category_text(category_path(value)) or None
        if value is None:
            return None
    if not isinstance(value, str):
        raise TypeError(f"value {at} is {value!r}; the others are text")
    if len(value) > LONGEST_WORD:
        raise ValueError(f"value {at} has {len(value)} characters; at most {LONGEST_WORD} are possible")
    return value


@dataclass(frozen=True, eq=False)
class AttributeTable:
    """All attributes and named sets of the arms at one moment; `size` bytes of attributes.bin say so, `crc` is theirs.

    `vectors` and `examples` say where in the file those of arms stand that were added (first byte, last byte).

    >>> lines = record_of("price", np.array([0, 1], np.int32), Column.of([9.5, 20])) + set_record("sale", [1])
    >>> table = AttributeTable().with_records(lines)
    >>> table, table.columns["price"].value(1), table.sets["sale"].order
    (AttributeTable(price: number; sets: sale), 20.0, array([1], dtype=int32))
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    sets: Mapping[str, Column] = field(default_factory=dict)
    size: int = 0
    crc: int = 0
    vectors: tuple[tuple[int, int], ...] = ()
    examples: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        named = ", ".join(f"{name}: {column.kind}" for name, column in self.columns.items()) or "no attributes"
        return f"AttributeTable({named}{'; sets: ' + ', '.join(self.sets) if self.sets else ''})"

    def column(self, name: str) -> Column:
        """An attribute. Raises ValueError if there is none of that name."""
        if name not in self.columns:
            known = ", ".join(sorted(self.columns)) or "none at all"
            raise ValueError(f"the catalogue has no attribute {name!r}; it has {known}")
        return self.columns[name]

    def of(self, arm: int) -> dict[str, bool | float | str | None]:
        """The attributes of an arm.

        >>> AttributeTable({"price": Column.of([9.5])}).of(0)
        {'price': 9.5}
        """
        return {name: column.value(arm) for name, column in self.columns.items()}

    @cached_property
    def categories(self) -> Categories | None:
        """The categories of the arms, None if the owner named none."""
        column = self.columns.get(CATEGORY_NAME)
        if column is None:
            return None
        # The empty path comes first in the order: what has no category.
        return Categories(((), *column.sorted_paths), (column.keys + 1).astype(np.int32))

    def with_records(self, records: bytes) -> AttributeTable:
        """With the changes of more records. Raises ValueError for what is damaged."""
        columns, sets, at = dict(self.columns), dict(self.sets), 0
        places = {VECTORS: list(self.vectors), EXAMPLES: list(self.examples)}
        while at < len(records):
            end = records.find(b"\n", at) + 1
            head: dict[str, Any] = json.loads(records[at:end])
            payload = records[end : end + head["bytes"]]
            if len(payload) != head["bytes"] or zlib.crc32(payload) != head["crc"]:
                raise ValueError(f"the record at byte {self.size + at} is damaged")
            arms = np.frombuffer(payload, np.int32, head["arms"])
            if (kind := next((name for name in places if name in head), None)) is not None:
                places[kind].append((self.size + at, self.size + end + len(payload)))
            elif "set" in head:
                sets.pop(head["set"], None)
                if not head.get("gone"):
                    sets[head["set"]] = _member_column(arms)
            else:
                dtype = np.float64 if head["kind"] == NUMBER else np.int32
                values = np.frombuffer(payload, dtype, head["arms"], offset=4 * len(arms))
                new = Column(head["kind"], values, tuple(head["words"]))
                old = columns.get(head["column"], Column(head["kind"], values[:0]))
                columns[head["column"]] = old.changed(arms, new)
            at = end + len(payload)
        crc = zlib.crc32(records, self.crc)
        return AttributeTable(columns, sets, self.size + len(records), crc, *map(tuple, places.values()))


def _member_column(arms: Ints) -> Column:
    values = np.full(int(arms.max(initial=-1)) + 1, -1, np.int32)
    values[arms] = 1
    return Column(FLAG, values)


def record_of(name: str, arms: Ints, column: Column) -> bytes:
    """The record of attributes.bin for new values of some arms, each listed once.

    >>> record_of("price", np.array([0], np.int32), Column.of([9.5])).partition(b"\\n")[0]
    b'{"column": "price", "kind": "number", "words": [], "arms": 1, "bytes": 12, "crc": 3013669022}'
    """
    if check_name(name, "an attribute") == SETS:
        raise ValueError(f"no attribute can be called {name!r}: requests name sets by it")
    payload = arms.astype(np.int32).tobytes() + column.values.tobytes()
    return _record({"column": name, "kind": column.kind, "words": column.words}, len(arms), payload)


def set_record(name: str, arms: Sequence[int] | Ints | None) -> bytes:
    """The record for a named set of arms, which replaces what had the name; None deletes it.

    >>> AttributeTable().with_records(set_record("sale", [1]) + set_record("sale", None)).sets
    {}
    """
    check_name(name, "a set")
    listed: Ints = np.unique(np.asarray([] if arms is None else arms, np.int32))
    return _record({"set": name} | ({"gone": True} if arms is None else {}), len(listed), listed.tobytes())


def rows_record(kind: str, arms: Ints, rows: Rows) -> bytes:
    """The record for rows that arms were added with, each of one arm: VECTORS or EXAMPLES.

    >>> from treetop.arrays import as_rows
    >>> arms, rows = read_rows(rows_record(VECTORS, np.array([7], np.int32), as_rows([[0.0, 2.5]])))
    >>> arms, rows.csr().toarray()
    (array([7], dtype=int32), array([[0. , 2.5]], dtype=float32))
    """
    lengths = np.diff(rows.start).astype(np.int32)
    payload = b"".join(part.tobytes() for part in (arms.astype(np.int32), lengths, rows.index, rows.value))
    return _record({kind: rows.columns}, len(arms), payload)


def read_rows(record: bytes) -> tuple[Ints, Rows]:
    """The arms and rows of a record of `rows_record`.

    >>> from treetop.arrays import as_rows
    >>> read_rows(rows_record(EXAMPLES, np.array([7, 7], np.int32), as_rows([[0.0, 2.5], [1.0, 0.0]])))[0]
    array([7, 7], dtype=int32)
    """
    line, _, payload = record.partition(b"\n")
    head = json.loads(line)
    arms = np.frombuffer(payload, np.int32, head["arms"])
    lengths = np.frombuffer(payload, np.int32, len(arms), offset=4 * len(arms))
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    total, at = int(start[-1]), 8 * len(arms)
    index = np.frombuffer(payload, np.int32, total, offset=at)
    value = np.frombuffer(payload, np.float32, total, offset=at + 4 * total)
    return arms, Rows(start, index, value, head[VECTORS if VECTORS in head else EXAMPLES])


def _record(head: dict[str, Any], arms: int, payload: bytes) -> bytes:
    head |= {"arms": arms, "bytes": len(payload), "crc": zlib.crc32(payload)}
    return json.dumps(head).encode() + b"\n" + payload


def attribute_records(
    arms: Ints, categories: Sequence[Any] | None, attributes: Attributes | None, table: AttributeTable
) -> bytes:
    """The records of attributes.bin for values of arms. Raises ValueError for values that do not fit the table.

    Of an attribute with values by place, the other arms get none.

    >>> table = AttributeTable({"price": Column.of([9.5])})
    >>> attribute_records(np.zeros(1, np.int32), None, {"price": ["cheap"]}, table)
    Traceback (most recent call last):
    ValueError: attribute 'price': value 0 is 'cheap'; the others are numbers
    """
    given: dict[str, Any] = dict(attributes or {})
    if categories is not None:
        if CATEGORY_NAME in given:
            raise ValueError(f"an attribute is called {CATEGORY_NAME!r}, and there are categories")
        given[CATEGORY_NAME] = categories
    records = b""
    for name, values in given.items():
        which = arms
        if isinstance(values, Mapping):
            which, values = arms[list(values)], list(values.values())
        if len(values) != len(which):
            raise ValueError(f"attribute {name!r} has {len(values)} values for {len(arms)} arms")
        kind = CATEGORY if name == CATEGORY_NAME else None
        if name in table.columns:
            kind = table.columns[name].kind
        try:
            column = Column.of(values, kind)
        except (ValueError, TypeError) as error:
            raise ValueError(f"attribute {name!r}: {error}") from None
        records += record_of(name, which, column)
    return records


def check_known(name: str, table: AttributeTable) -> None:
    """Raises ValueError for an attribute that the table does not have.

    >>> check_known("prise", AttributeTable({"price": Column.of([9.5])}))
    Traceback (most recent call last):
    ValueError: the catalogue has no attribute 'prise'; it has price; with new = true it is made
    """
    try:
        table.column(name)
    except ValueError as error:
        raise ValueError(f"{error}; with new = true it is made") from None


def check_name(name: object, what: str) -> str:
    """The name of an attribute or set. Raises ValueError for what cannot be one.

    >>> check_name("price", "an attribute")
    'price'
    """
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_WORD or not name.isprintable():
        raise ValueError(f"{name!r} cannot be the name of {what}: printable text of 1 to {LONGEST_WORD} characters is")
    return name
