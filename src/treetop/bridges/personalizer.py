"""Azure Personalizer's features as contexts and attributes, and a bandit that takes any of them. Knows no HTTP."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from treetop.arrays import check_int
from treetop.bandit.attributes import CATEGORY_NAME, FLAG, LONGEST_WORD, NUMBER, TEXT, AttributeTable
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, PersonalizerConfig
from treetop.bandit.vocabulary import Vocabulary
from treetop.bridges.dsjson import flat_features

HASHED = "#"  # the columns "#0", "#1", ... take features that have no column of their own
RESERVED = (CATEGORY_NAME, "sets")
MOST_ATTRIBUTES = 256  # of a catalogue that take part: each is a column over all arms


def create_loop(
    folder: str | os.PathLike[str], actions: Sequence[str], columns: int = 4096, config: Config | None = None
) -> Bandit:
    """A new bandit that answers as Personalizer does. Any feature that callers send gets one of so many columns.

    `actions` are the first arms, one or more; others join as they are sent.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, create_loop(f"{folder}/loop", ["pasta", "salad"]) as loop:
    ...     loop.vocabulary.columns, loop.config.personalizer.enabled
    (4096, True)
    """
    names = [f"{HASHED}{i}" for i in range(check_int("columns", columns, 1, 1 << 24))]
    chosen = replace(config or Config(), personalizer=PersonalizerConfig(enabled=True))
    return Bandit.create(folder, list(actions), features=names, config=chosen)


def hash_columns(vocabulary: Vocabulary) -> int:
    """How many columns of a vocabulary take features that have none of their own.

    >>> hash_columns(Vocabulary(3, ("age", "#0", "#1")))
    2
    """
    names = vocabulary.names or ()
    return next((i for i in range(len(names) + 1) if f"{HASHED}{i}" not in vocabulary.index), 0)


def context_of(
    features: Iterable[Mapping[str, Any]], vocabulary: Vocabulary, columns: int
) -> tuple[dict[str, float], int]:
    """A context by the names of a vocabulary with so many hashed columns, and how many features found no place in it.

    A feature is looked up as `namespace.name`, then as `name`; text is `name=text`. What is not there goes to a column
    that a hash chooses, with a sign from the hash, so that features that share one cancel out on average.

    >>> sent = [{"user": {"age": 3, "device": "phone"}}, {"weekend": True}]
    >>> context_of(sent, Vocabulary(2, ("user.age", "device=phone")), 0)
    ({'user.age': 3.0, 'device=phone': 1.0}, 1)
    >>> found, unknown = context_of(sent, Vocabulary(4, ("#0", "#1", "#2", "#3")), 4)
    >>> set(found) <= {"#0", "#1", "#2", "#3"}, unknown
    (True, 0)
    """
    found: dict[str, float] = {}
    unknown = 0
    for part in features:
        for space, value in part.items():
            for name, number in flat_features(value, space):
                bare = name.removeprefix(space).lstrip(".")
                known = next((each for each in (name, bare) if each in vocabulary.index), None)
                sign = 1.0
                if known is None and columns:
                    place = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
                    known, sign = f"{HASHED}{(place >> 1) % columns}", 1.0 if place & 1 else -1.0
                if known is None:
                    unknown += 1
                else:
                    found[known] = found.get(known, 0.0) + sign * number
    return found, unknown


def attributes_of(
    features: Sequence[Iterable[Mapping[str, Any]]], table: AttributeTable
) -> tuple[dict[str, dict[int, bool | float | str]], int]:
    """Attributes of actions, by name and the action's place, from their features, and how many values were left out.

    Numbers, texts and flags have a name; words in a list become flags. Left out is what does not fit the kind that an
    attribute has already, and attributes beyond the first MOST_ATTRIBUTES of the table.

    >>> attributes_of([[{"taste": "salty", "spice": 2}], [{"spice": "hot", "tags": ["new", "hot"]}]], AttributeTable())
    ({'taste': {0: 'salty'}, 'spice': {0: 2.0}, 'tags=new': {1: True}, 'tags=hot': {1: True}}, 1)
    """
    found: dict[str, dict[int, bool | float | str]] = {}
    left_out = 0
    kinds = {name: column.kind for name, column in table.columns.items()}
    for place, parts in enumerate(features):
        for part in parts:
            for name, value in _plain("", part):
                kind = FLAG if isinstance(value, bool) else NUMBER if isinstance(value, float) else TEXT
                possible = name not in RESERVED and 0 < len(name) <= LONGEST_WORD and name.isprintable()
                if possible and len(kinds) < MOST_ATTRIBUTES:
                    kinds.setdefault(name, kind)
                if possible and kinds.get(name) == kind:
                    found.setdefault(name, {})[place] = value
                else:
                    left_out += 1
    return found, left_out


def _plain(name: str, value: Any) -> Iterable[tuple[str, bool | float | str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _plain(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, str):
                yield f"{name}={inner}", True
            elif isinstance(inner, Mapping):
                yield from _plain(name, inner)
    elif isinstance(value, bool):
        yield name, value
    elif isinstance(value, int | float):
        yield name, float(value)
    elif isinstance(value, str) and len(value) <= LONGEST_WORD:
        yield name, value
