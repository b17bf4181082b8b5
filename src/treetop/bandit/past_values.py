"""Values of a past log's lines: columns, times, numbers and features."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import check_float
from treetop.bandit.vocabulary import Vocabulary
from treetop.data.tables import MissingColumn, TableRow, read_table

ROLES = ("item", "reward", "propensity", "position", "event", "time", "context")
LATEST = 1e11  # seconds since 1970 that a time may be, the year 5138: more are milliseconds
MOST_FEATURES = 1_000_000  # that a log may name


@dataclass(frozen=True)
class PastColumns:
    """Which columns of a past log are what.

    `item` is the id of what was shown, `reward` what it brought (empty: not observed), `propensity` the chance that it
    had (empty: unknown), `position` its place, from 1 on, `event` what the rows of one decision share, `time` when
    it was (seconds since 1970, or a date), `context` a mapping of features, or the row of its vector.
    `features` are columns that are features: of the same name if they hold numbers, and `column=value` if text. Vectors
    in a file are all of a context, or the part of it that has as many numbers.

    >>> PastColumns.of("item=sku,reward=clicked").reward
    'clicked'
    """

    item: str = "item"
    reward: str = "reward"
    propensity: str | None = None
    position: str | None = None
    event: str | None = None
    time: str | None = None
    context: str | None = None
    features: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, features: str = "") -> PastColumns:
        """From the command line's "item=sku,reward=clicked". Raises ValueError for what is none of the roles."""
        given: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            role, equals, column = part.partition("=")
            if role not in ROLES or not equals or not column or role in given:
                raise ValueError(f"{part!r} is not role=column, each once; the roles are {', '.join(ROLES)}")
            given[role] = column
        return cls(**given, features=tuple(filter(None, (name.strip() for name in features.split(",")))))

    def names(self) -> list[str]:
        roles = [getattr(self, role) for role in ROLES]
        return [name for name in (*roles, *self.features) if name is not None]


def past_rows(path: Path, columns: PastColumns) -> Generator[TableRow, None, None]:
    """The rows of a past log. Raises ValueError that names the line, or what was looked for if a column is missing.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "past.csv").write_text("item,reward\\nmint,1\\n")
    ...     [row.values for row in past_rows(Path(folder, "past.csv"), PastColumns())]
    [{'item': 'mint', 'reward': '1'}]
    """
    try:
        yield from read_table(path, columns.names())
    except MissingColumn as error:
        looked = ", ".join(f"{role}={name}" for role in ROLES if (name := getattr(columns, role)) is not None)
        raise ValueError(
            f"{error}. Looked for was {looked}; say which column is what, such as --columns item=sku,reward=clicked"
        ) from None


def seconds_of(given: Any) -> float:
    """A time in seconds since 1970: such a number, or a date, UTC if it does not say. Eight digits are a date, also as
    tables write whole numbers beside empty cells: 20240131.0.

    >>> seconds_of("1700000000"), seconds_of("2024-01-31T01:00:00Z"), seconds_of(20240131), seconds_of("20240131.0")
    (1700000000.0, 1706662800.0, 1706659200.0, 1706659200.0)
    """
    text = str(given).removesuffix(".0")
    if len(text) == 8 and text.isdecimal():
        return datetime.strptime(text, "%Y%m%d").replace(tzinfo=timezone.utc).timestamp()
    if _is_number(given):
        return check_float("time", float(given), -LATEST, LATEST)
    found = given if isinstance(given, datetime) else datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def feature_names(path: Path, columns: PastColumns) -> tuple[str, ...]:
    """The features that the contexts of a past log name, in the order in which they come.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "past.csv").write_text("item,reward,device,age\\nmint,1,phone,3\\nmint,0,desktop,\\n")
    ...     feature_names(Path(folder, "past.csv"), PastColumns(features=("device", "age")))
    ('device=phone', 'age', 'device=desktop')
    """
    found: dict[str, None] = {}
    for row in past_rows(path, columns):
        named = {name: value for name in columns.features if (value := row.values[name]) is not None}
        given = None if columns.context is None else row.values[columns.context]
        try:
            given = json.loads(given) if isinstance(given, str) else given
        except ValueError as error:
            raise ValueError(f"{row.where}: {error}") from None
        named |= given if isinstance(given, Mapping) else {}
        found |= dict.fromkeys(feature for pair in named.items() for feature in feature_columns(*pair))
        if len(found) > MOST_FEATURES:
            raise ValueError(f"{row.where}: more than {MOST_FEATURES:,} features; --features names those to learn from")
    return tuple(found)


def context_columns(path: Path) -> int:
    """How many numbers each context of a .npy file has.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/visitors.npy", np.zeros((3, 5)))
    ...     context_columns(Path(folder, "visitors.npy"))
    5
    """
    shape = read_contexts(path).shape
    if len(shape) != 2:
        raise ValueError(f"{path} has shape {shape}; a context a row is needed")
    return int(shape[1])


def read_contexts(path: Path) -> NDArray[Any]:
    """The array of a .npy file, which stays on the disk.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/visitors.npy", np.zeros((3, 5)))
    ...     read_contexts(Path(folder, "visitors.npy")).shape
    (3, 5)
    """
    try:
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        raise ValueError(f"{path} is not a .npy file of numbers, which np.save writes") from None
    return found


def feature_columns(name: str, value: Any) -> list[str]:
    """The features that a value of a file is: of a vector all its numbers.

    >>> feature_columns("device", "phone"), feature_columns("age", "35"), feature_columns("vector", [0.5, 1.0])
    (['device=phone'], ['age'], ['vector[0]', 'vector[1]'])
    """
    if isinstance(value, list | np.ndarray):
        return [f"{name}[{i}]" for i in range(len(value))]
    return [name if _is_number(value) else f"{name}={value}"]


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True


def feature_value(vocabulary: Vocabulary, name: str, value: Any) -> Any:
    """A value of a file as a context has it: text that is a number is one, unless the feature `name=text` is known.

    >>> known = Vocabulary(2, ("age", "size=40"))
    >>> feature_value(known, "age", "35"), feature_value(known, "size", "40")
    (35.0, '40')
    """
    if isinstance(value, list | np.ndarray):
        return value
    if f"{name}={value}" in vocabulary.index:
        return str(value)
    return float(value) if _is_number(value) else str(value)


def required_of(values: Mapping[str, Any], name: str) -> Any:
    """A value that has to be there.

    >>> required_of({"sku": "a"}, "sku")
    'a'
    """
    if values[name] is None:
        raise ValueError(f"there is no {name!r}")
    return values[name]


def number_of(row: TableRow, name: str | None, low: float, high: float, hint: str = "") -> float | None:
    """A number of a row, within its limits; None if there is none. `hint` says how to allow others.

    >>> number_of(TableRow({"clicked": "1"}, "past.csv, line 2"), "clicked", 0, 1)
    1.0
    """
    given = None if name is None else row.values[name]
    if given is None:
        return None
    try:
        number = float(given)
    except (ValueError, TypeError):
        raise ValueError(f"{row.where}: {given!r} in the column {name!r} is not a number") from None
    try:
        return check_float(f"the column {name!r}", number, low, high)
    except ValueError as error:
        raise ValueError(f"{row.where}: {error}{hint}") from None
