"""The user's arm ids and their dense indices. Knows nothing of models or requests.

An index belongs to one arm for ever. A removed arm keeps its index, and has it again if it returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from treetop.arrays import INT32_MAX, Bools, Int64s, Ints
from treetop.errors import UnknownArm

ArmId: TypeAlias = str | int

LONGEST_ID = 512  # characters
LARGEST_ID = 2**53 - 1  # the largest integer that every JSON reader keeps exact


def arm_text(arm: object) -> str:
    """An arm's id as text, checked. Requests spell ids as text, so 7 and "7" are the same id.

    Raises ValueError or TypeError for what cannot be an id.

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


def _other_spelling(arm: ArmId) -> ArmId:
    """ "7" for 7 and 7 for "7"; an id with one spelling only is returned as it is."""
    if type(arm) is str and arm.removeprefix("-").isdecimal() and len(arm) < 18 and str(int(arm)) == arm:
        return int(arm)
    return arm if type(arm) is str else str(arm)


@dataclass(frozen=True, eq=False)
class ArmIndex:
    """Arm ids by dense index. Immutable: `add` and `remove` return a new one.

    `changes` lists the arms that were removed (i) and that returned (~i, that is -1 - i), in order. `added` has (first
    index, epoch) for each batch of arms that was added later, with the epoch of the first model that knows them.

    >>> shop = ArmIndex.of(["tea", "milk", 7])
    >>> shop.find(["milk", "7"])
    array([1, 2], dtype=int32)
    >>> shop.remove(["tea"]).add(["jam"])
    ArmIndex(4 arms, 1 of them removed)
    """

    ids: tuple[ArmId, ...] = ()
    changes: tuple[int, ...] = ()
    added: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ids: Iterable[ArmId]) -> ArmIndex:
        return cls().add(ids)

    @classmethod
    def read(cls, lines: bytes, before: ArmIndex | None = None) -> ArmIndex:
        """Reads lines of catalogue.jsonl, which `line_added` and `line_changed` write: all, or those after `before`."""
        known = cls() if before is None else before
        ids: list[ArmId] = []
        changes, added = list(known.changes), list(known.added)
        for line in lines.splitlines():
            entry = json.loads(line)
            if "epoch" in entry:
                added.append((len(known) + len(ids), entry["epoch"]))
            ids += entry.get("add", ())
            changes += entry.get("remove", ())
            changes += [~index for index in entry.get("return", ())]
        found = cls(known.ids + tuple(ids), tuple(changes), tuple(added))
        if "index" in known.__dict__:
            new = dict(zip(ids, range(len(known), len(found)), strict=True))
            found.__dict__["index"] = known.index | new if new else known.index  # a copy of all takes its time
        return found

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"ArmIndex({len(self):,} arms, {len(self.removed):,} of them removed)"

    @cached_property
    def index(self) -> dict[ArmId, int]:
        """Index by id, as the id was given; `position` also finds its other spelling."""
        return dict(zip(self.ids, range(len(self.ids)), strict=True))

    def position(self, arm: ArmId) -> int | None:
        """The index of an id, in either spelling; None if it is unknown."""
        if type(arm) is not str:
            arm_text(arm)  # raises for what cannot be an id
        found = self.index.get(arm)
        return self.index.get(_other_spelling(arm)) if found is None else found

    @cached_property
    def is_removed(self) -> Bools:
        """Whether each arm is removed; shape (n_arms,)."""
        return self.removed_after(len(self.changes))

    @cached_property
    def removed(self) -> tuple[int, ...]:
        """The arms that are removed, by index."""
        return tuple(np.flatnonzero(self.is_removed).tolist())

    def removed_after(self, changes: int) -> Bools:
        """Whether each arm was removed after the first so many changes: the state at the time of a logged decision.

        >>> shop = ArmIndex.of(["tea", "milk"]).remove(["tea"]).give_back(["tea"])
        >>> [shop.removed_after(changes).tolist() for changes in range(3)]
        [[False, False], [True, False], [False, False]]
        """
        out = np.zeros(len(self), np.bool_)
        made = np.array(self.changes[:changes], np.int64)
        out[np.where(made < 0, ~made, made)] = made >= 0  # of several changes of an arm the last one stays
        return out

    def epochs(self) -> Int64s:
        """The epoch of the first model that knows each arm; 0 for the arms that the bandit was created with.

        >>> ArmIndex.read(line_added(["tea"]) + line_added(["milk", "jam"], epoch=3)).epochs()
        array([0, 3, 3])
        """
        since = np.zeros(len(self), np.int64)
        for first, epoch in self.added:
            since[first:] = epoch
        return since

    def find(self, arms: Iterable[ArmId]) -> Ints:
        """The indices of ids, removed arms included. Raises UnknownArm."""
        if isinstance(arms, str | bytes):
            raise TypeError(f"arms must be a list of ids, not {arms!r}")
        listed = list(arms)
        found = [self.position(arm) for arm in listed]
        if None in found:
            raise UnknownArm(f"there is no arm {arm_text(listed[found.index(None)])!r} in the catalogue")
        return np.array(found, np.int32)

    def add(self, arms: Iterable[ArmId]) -> ArmIndex:
        """With more arms behind the others. Raises ValueError for an id that is or was in use, or is there twice."""
        if isinstance(arms, str | bytes):
            raise TypeError(f"arms must be a list of ids, not {arms!r}")
        new = self._new(arms)
        grown = replace(self, ids=self.ids + tuple(new))
        grown.__dict__["index"] = self.index | new
        return grown

    def _new(self, arms: Iterable[ArmId]) -> dict[ArmId, int]:
        """The indices that more arms would have. Raises ValueError for an id that is or was in use."""
        index, new = self.index, dict[ArmId, int]()
        for arm in (arm if isinstance(arm, str) else int(arm) for arm in arms if arm_text(arm)):
            for spelling in (arm, _other_spelling(arm)):
                if spelling in new:
                    raise ValueError(f"arm {spelling!r} is listed twice")
                if spelling in index:
                    raise ValueError(f"there is already an arm {spelling!r} in the catalogue")
            new[arm] = len(self) + len(new)
        if len(self) + len(new) >= INT32_MAX:
            raise ValueError(f"{len(self) + len(new)} arms; at most {INT32_MAX - 1} are possible")
        return new

    def remove(self, arms: Iterable[ArmId]) -> ArmIndex:
        """With these arms removed; removing an arm twice changes nothing."""
        there = ~self.is_removed
        return self._changed([i for i in dict.fromkeys(self.find(arms).tolist()) if there[i]])

    def give_back(self, arms: Iterable[ArmId]) -> ArmIndex:
        """With these arms, which may be removed, there again."""
        gone = self.is_removed
        return self._changed([~i for i in dict.fromkeys(self.find(arms).tolist()) if gone[i]])

    def _changed(self, fresh: list[int]) -> ArmIndex:
        other = replace(self, changes=self.changes + tuple(fresh))
        other.__dict__["index"] = self.index
        return other

    def split(self, arms: Iterable[ArmId]) -> tuple[list[ArmId], list[ArmId]]:
        """Of arms to add, those that are new and those that return. Raises ValueError for one that is in use.

        >>> ArmIndex.of(["tea", "milk"]).remove(["tea"]).split(["jam", "tea"])
        (['jam'], ['tea'])
        """
        if isinstance(arms, str | bytes):
            raise TypeError(f"arms must be a list of ids, not {arms!r}")
        listed, new, back = list(arms), list[ArmId](), dict[int, ArmId]()
        for arm in listed:
            at = self.position(arm)
            if at is None or not self.is_removed[at]:
                new.append(arm)
            elif at in back:
                raise ValueError(f"arm {arm!r} is in it twice")
            else:
                back[at] = arm
        self._new(new)
        return new, list(back.values())


def line_added(arms: Sequence[ArmId], epoch: int | None = None) -> bytes:
    """The line of catalogue.jsonl for added ids; `epoch` is that of the first model that knows them.

    >>> line_added(["tea", 7]), line_added(["milk"], epoch=3)
    (b'{"add": ["tea", 7]}\\n', b'{"add": ["milk"], "epoch": 3}\\n')
    """
    return json.dumps({"add": list(arms)} | ({} if epoch is None else {"epoch": epoch})).encode() + b"\n"


def line_changed(changes: Sequence[int]) -> bytes:
    """The lines of catalogue.jsonl for arms that were removed (i) and that returned (~i).

    >>> ArmIndex.read(line_added(["tea", "milk"]) + line_changed([0, 1]) + line_changed([~1])).is_removed.tolist()
    [True, False]
    """
    groups = {"remove": [i for i in changes if i >= 0], "return": [~i for i in changes if i < 0]}
    return b"".join(json.dumps({name: mine}).encode() + b"\n" for name, mine in groups.items() if mine)
