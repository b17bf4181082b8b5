"""The user's own ids of arms and names of features, and their dense indices. Knows nothing of models or requests.

An index belongs to its arm for ever. A removed arm keeps it and is never shown again.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from treetop import _core
from treetop.arrays import INT32_MAX, Bools, Ints, Longs, Rows, Singles, as_rows
from treetop.errors import UnknownArm, UnknownFeature

ArmId: TypeAlias = str | int

LONGEST_ID = 512
LARGEST_ID = 2**53 - 1  # what every reader of JSON keeps exact


def arm_text(arm: object) -> str:
    """An arm's id as text, which is how requests spell it; 7 and "7" are one id.

    >>> arm_text("tea"), arm_text(7)
    ('tea', '7')
    """
    if isinstance(arm, str):
        if not 0 < len(arm) <= LONGEST_ID:
            raise ValueError(f"an arm's id has {len(arm)} characters; it must have 1 to {LONGEST_ID}")
        if not arm.isprintable():
            raise ValueError(f"the arm id {arm!r} has characters that cannot be printed")
        return arm
    if isinstance(arm, int | np.integer) and not isinstance(arm, bool):
        if abs(int(arm)) > LARGEST_ID:
            raise ValueError(f"the arm id {arm} is beyond {LARGEST_ID}; write larger numbers as text")
        return str(int(arm))
    raise TypeError(f"an arm's id must be text or a whole number, not {arm!r}")


def _other(arm: ArmId) -> ArmId:
    """The other spelling of an id: a number for text that is one, text for a number; otherwise the id itself."""
    if type(arm) is str and arm.removeprefix("-").isdecimal() and len(arm) < 18 and str(int(arm)) == arm:
        return int(arm)
    return arm if type(arm) is str else str(arm)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Ids by index, and the indices removed so far, in the order of their removal.

    `added` has (first index, epoch) of arms that came later, with the first model that had them.

    >>> shop = Catalogue.of(["tea", "milk", 7])
    >>> shop.find(["milk", "7"])
    array([1, 2], dtype=int32)
    >>> shop.remove(["tea"]).add(["jam"])
    Catalogue(4 arms, 1 of them removed)
    """

    ids: tuple[ArmId, ...] = ()
    removed: tuple[int, ...] = ()
    added: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ids: Iterable[ArmId]) -> Catalogue:
        return cls().add(ids)

    @classmethod
    def read(cls, lines: bytes) -> Catalogue:
        """From the lines that `line_added` and `line_removed` wrote."""
        ids: list[ArmId] = []
        removed: list[int] = []
        added: list[tuple[int, int]] = []
        for line in lines.splitlines():
            entry = json.loads(line)
            if "epoch" in entry:
                added.append((len(ids), entry["epoch"]))
            ids += entry.get("add", ())
            removed += entry.get("remove", ())
        return cls(tuple(ids), tuple(removed), tuple(added))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Catalogue({len(self):,} arms, {len(self.removed):,} of them removed)"

    @cached_property
    def index(self) -> dict[ArmId, int]:
        """By the ids as they are; `place` knows that 7 and "7" are one."""
        return dict(zip(self.ids, range(len(self.ids)), strict=True))

    def place(self, arm: ArmId) -> int | None:
        """The index of an id, however it is spelled; None if there is none."""
        if type(arm) is not str:
            arm_text(arm)  # what cannot be an id is an error, not an unknown arm
        found = self.index.get(arm)
        return self.index.get(_other(arm)) if found is None else found

    @cached_property
    def gone(self) -> Bools:
        """Which arms were removed."""
        return self.gone_at(len(self.removed))

    def gone_at(self, removals: int) -> Bools:
        """Which arms were removed when there had been so many removals."""
        gone = np.zeros(len(self), np.bool_)
        gone[list(self.removed[:removals])] = True
        return gone

    def epochs(self) -> Longs:
        """The epoch of the first model that had each arm, 0 for those from the beginning.

        >>> Catalogue.read(line_added(["tea"]) + line_added(["milk", "jam"], epoch=3)).epochs()
        array([0, 3, 3])
        """
        since = np.zeros(len(self), np.int64)
        for first, epoch in self.added:
            since[first:] = epoch
        return since

    def find(self, arms: Iterable[ArmId]) -> Ints:
        """The indices of ids, removed ones too."""
        if isinstance(arms, str | bytes):
            raise TypeError(f"arms must be a list of ids, not {arms!r}")
        listed = list(arms)
        places = [self.place(arm) for arm in listed]
        if None in places:
            raise UnknownArm(f"there is no arm {arm_text(listed[places.index(None)])!r} in the catalogue")
        return np.array(places, np.int32)

    def add(self, arms: Iterable[ArmId]) -> Catalogue:
        if isinstance(arms, str | bytes):
            raise TypeError(f"arms must be a list of ids, not {arms!r}")
        new = tuple(arm if isinstance(arm, str) else int(arm) for arm in arms if arm_text(arm))
        if len(self) + len(new) >= INT32_MAX:
            raise ValueError(f"{len(self) + len(new)} arms; at most {INT32_MAX - 1} are possible")
        grown = replace(self, ids=self.ids + new)
        for i, arm in enumerate(new, len(self)):
            if self.place(arm) is not None or grown.index[arm] != i or grown.index.get(_other(arm), i) != i:
                raise ValueError(f"there is already an arm {arm!r} in the catalogue; an id is used once, for ever")
        return grown

    def remove(self, arms: Iterable[ArmId]) -> Catalogue:
        """Without these arms; to remove one again changes nothing."""
        gone = set(self.removed)
        fresh = [int(i) for i in dict.fromkeys(self.find(arms).tolist()) if i not in gone]
        smaller = replace(self, removed=self.removed + tuple(fresh))
        smaller.__dict__["index"] = self.index
        return smaller


def line_added(arms: Sequence[ArmId], epoch: int | None = None) -> bytes:
    """The line of the catalogue's file that says which ids came, and if it was later, with which model.

    >>> line_added(["tea", 7]), line_added(["milk"], epoch=3)
    (b'{"add": ["tea", 7]}\\n', b'{"add": ["milk"], "epoch": 3}\\n')
    """
    return json.dumps({"add": list(arms)} | ({} if epoch is None else {"epoch": epoch})).encode() + b"\n"


def line_removed(indices: Sequence[int]) -> bytes:
    """The line of the catalogue's file that says which arms went, by index.

    >>> Catalogue.read(line_added(["tea", "milk"]) + line_removed([0])).gone.tolist()
    [True, False]
    """
    return json.dumps({"remove": list(indices)}).encode() + b"\n"


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Feature names by column; without names, a feature is called by its number.

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
        return {name: i for i, name in enumerate(self.names or map(str, range(self.columns)))}

    def named(self, features: Mapping[str, float]) -> tuple[Rows, int]:
        """A context by names, and how many of them are not in the vocabulary (an error if it is strict)."""
        if (quick := self.quickly(features)) is not None:
            return quick
        index = self.index
        found = {index[name]: value for name, value in features.items() if name in index}
        if self.strict and len(found) < len(features):
            unknown = next(name for name in features if name not in index)
            raise UnknownFeature(f"there is no feature {unknown!r} in the vocabulary")
        order = sorted(found)
        values = _singles(map(found.__getitem__, order))
        if not np.isfinite(values).all():
            column = order[int(np.isfinite(values).argmin())]
            name = next(name for name in features if index.get(name) == column)
            raise ValueError(f"feature {name!r} is {found[column]:g}; it must be finite and lie in [-3.4e+38, 3.4e+38]")
        return self._row(np.array(order, np.int32), values), len(features) - len(found)

    def quickly(self, features: object) -> tuple[Rows, int] | None:
        """`named` for a dict of names and finite numbers, which most are; None for whatever has to be looked at."""
        found = _core.named_row(features, self.index, self.columns) if type(features) is dict else None
        if found is None or (self.strict and found[3]):
            return None
        start, at, value, unknown = found
        return Rows(start, at, value, self.columns), unknown

    def sparse(self, indices: Sequence[float], values: Sequence[float]) -> Rows:
        """A context by columns, in any order; a repeated one adds up."""
        if len(indices) != len(values):
            raise ValueError(f"{len(indices)} indices, but {len(values)} values")
        at = np.array(indices, np.float64)
        wrong = (at < 0) | (at >= self.columns) | (at != np.floor(at))
        if wrong.any():
            raise ValueError(f"index {at[wrong][0]:.17g} is not a whole number in [0, {self.columns})")
        return self._row(at.astype(np.int32), _singles(values))

    def dense(self, values: Sequence[float]) -> Rows:
        if len(values) != self.columns:
            raise ValueError(f"{len(values)} dense values; there are {self.columns} features")
        at: Longs = np.flatnonzero(np.array(values, np.float64))
        return self._row(at.astype(np.int32), _singles(values)[at])

    def _row(self, at: Ints, value: Singles) -> Rows:
        start: Longs = np.array([0, len(at)], np.int64)
        if _core.inspect_rows(start, at, value, self.columns, "features"):
            return Rows(start, at, value, self.columns)
        return as_rows(Rows(start, at, value, self.columns).csr(), what="features")


def _singles(values: Iterable[float]) -> Singles:
    """As float32; what does not fit becomes infinite, which no row takes."""
    return np.frombuffer(array("f", values), np.float32)
