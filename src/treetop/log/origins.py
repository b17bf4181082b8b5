"""How rounds were decided, in columns: with which model and settings, and which arms they could see. Knows no files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetop.arrays import Bools, Int64s, Ints
from treetop.log.write import Settings

UNSAID = -1  # settings of rounds that an older treetop sealed


@dataclass(frozen=True, eq=False)
class Origins:
    """Of n rounds: `settings` says with which of `made` each was decided, `filters` which of `names` it gave for the
    arms that it could see, `removals` how many arms had been removed.

    >>> found = {3: (0, "000000", "tree", "{}"), 4: (1, "000001", "tree", "{}")}
    >>> both = Origins.join([Origins.of([3, 4], found, ["", "+a"], [0, 1])] * 2)
    >>> both.settings.tolist(), len(both.made), both.names, both.take(np.array([0, 0, 0, 1]) > 0).compact().names
    ([0, 1, 0, 1], 2, ('', '+a'), ('+a',))
    """

    settings: Ints
    filters: Ints
    removals: Int64s
    made: tuple[Settings, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.settings)

    @classmethod
    def unsaid(cls, n: int) -> Origins:
        """Of rounds that nobody knows this of.

        >>> Origins.unsaid(2).settings.tolist()
        [-1, -1]
        """
        return cls(np.full(n, UNSAID, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int64), (), ("",))

    @classmethod
    def of(
        cls, numbers: Sequence[int], found: dict[int, Settings], eligible: Sequence[str], removals: Sequence[int]
    ) -> Origins:
        """From what the log has of each round: the number of its settings, which `found` says, and its filter."""
        settings, made = _numbered(found[number] for number in numbers)
        filters, names = _numbered(eligible)
        return cls(settings, filters, np.array(removals, np.int64), made, names)

    def take(self, rounds: Bools) -> Origins:
        """Some of the rounds."""
        columns = self.settings[rounds], self.filters[rounds], self.removals[rounds]
        return Origins(*columns, self.made, self.names)

    def compact(self) -> Origins:
        """The same without settings and names that no round has."""
        settings, made = _used(self.settings, self.made)
        filters, names = _used(self.filters, self.names)
        return Origins(settings, filters, self.removals, made, names)

    @classmethod
    def join(cls, parts: Sequence[Origins]) -> Origins:
        """Those of several stretches, one after the other."""
        made = _number(each for part in parts for each in part.made)
        names = _number(each for part in parts for each in part.names)
        settings = [_renumbered(part.settings, [made[each] for each in part.made]) for part in parts]
        filters = [_renumbered(part.filters, [names[each] for each in part.names]) for part in parts]
        removals = np.concatenate([part.removals for part in parts])
        return cls(np.concatenate(settings), np.concatenate(filters), removals, tuple(made), tuple(names))


def _number(values: Iterable[Any]) -> dict[Any, int]:
    number: dict[Any, int] = {}
    for value in values:
        number.setdefault(value, len(number))
    return number


def _numbered(values: Iterable[Any]) -> tuple[Ints, tuple[Any, ...]]:
    number: dict[Any, int] = {}
    which = [number.setdefault(value, len(number)) for value in values]
    return np.array(which, np.int32), tuple(number)


def _renumbered(which: Ints, numbers: Sequence[int]) -> Ints:
    return np.asarray(np.array([*numbers, UNSAID], np.int32)[which], np.int32)  # -1 is the last


def _used(which: Ints, values: tuple[Any, ...]) -> tuple[Ints, tuple[Any, ...]]:
    used = np.unique(which[which >= 0])
    numbers = np.full(len(values), UNSAID, np.int32)
    numbers[used] = np.arange(len(used), dtype=np.int32)
    return _renumbered(which, numbers.tolist()), tuple(values[i] for i in used.tolist())
