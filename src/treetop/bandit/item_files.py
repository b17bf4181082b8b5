"""A catalogue from the owner's files: items as CSV, JSON lines or Parquet, vectors as .npy or in a column."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import as_float32s
from treetop.bandit.arm_index import ArmId, arm_text
from treetop.bandit.attributes import FLAG, NUMBER, TEXT
from treetop.bandit.catalogue import Catalogue
from treetop.data.tables import TableRow, read_table, table_form
from treetop.tree.categories import category_path

TYPES = {bool: FLAG, int: NUMBER, float: NUMBER, str: TEXT}  # of values, and the kind of attribute that they are
FLAGS = {"true": True, "false": False, "yes": True, "no": False}
STEP = 10_000  # items between two calls of progress
ODD = 0.05  # of the values of a column: so few that are of another kind than the others are mistakes


@dataclass(frozen=True)
class ItemColumns:
    """Which columns of a file are what. `attributes` are names, or name:kind to say what the values are.

    >>> ItemColumns(attributes=("price", "code:text")).kinds
    {'price': None, 'code': 'text'}
    """

    id: str = "id"
    vector: str | None = None
    category: str | None = None
    attributes: tuple[str, ...] = ()

    @property
    def kinds(self) -> dict[str, str | None]:
        """The attributes with their kinds; None where the values tell."""
        kinds: dict[str, str | None] = {}
        for said in self.attributes:
            name, colon, kind = said.rpartition(":")
            if colon and kind in TYPES.values():
                kinds[name] = kind
            else:
                kinds[said] = None
        return kinds

    def names(self) -> list[str]:
        return [name for name in (self.id, self.vector, self.category, *self.kinds) if name is not None]


def read_items(
    path: Path,
    columns: ItemColumns = ItemColumns(),
    vectors: Path | None = None,
    progress: Callable[[int], object] = lambda items: None,
) -> Catalogue:
    """The catalogue of a file of items. `vectors` is a .npy file with a row for each of them.

    Raises ValueError that names file and line of what cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "items.csv").write_text("sku,price,shelf\\nmint,4.5,tea > green\\nrose,,tea\\n")
    ...     read_items(Path(folder, "items.csv"), ItemColumns("sku", None, "shelf", ("price",)))
    Catalogue(2 ids, no vectors, 2 categories, attributes price)
    """
    if vectors is not None and columns.vector is not None:
        raise ValueError(f"vectors are in {vectors} or in the column {columns.vector!r}, not in both")
    lines: dict[str, str] = {}
    ids: list[ArmId] = []
    rows: list[NDArray[np.float32]] = []
    categories: list[Any] = []
    kinds = columns.kinds
    values: dict[str, list[Any]] = {name: [] for name in kinds}
    with closing(read_table(path, columns.names())) as table:
        for row in table:
            ids.append(_new_id(row, columns.id, lines))
            if columns.vector is not None:
                rows.append(_vector(row, columns.vector, len(rows[0]) if rows else None))
            if columns.category is not None:
                categories.append(_checked(row, columns.category, category_path))
            for name, listed in values.items():
                listed.append(row.values[name])
            if len(ids) % STEP == 0:
                progress(len(ids))
    if not ids:
        raise ValueError(f"{path} has no items")
    progress(len(ids))
    is_text = table_form(path) == ".csv"
    attributes = {
        name: _typed(listed, kinds[name], is_text, name, list(lines.values())) for name, listed in values.items()
    }
    found = np.stack(rows) if columns.vector is not None else _load_vectors(vectors, len(ids), path)
    return Catalogue(ids, found, categories if columns.category is not None else None, attributes or None)


def _checked(row: TableRow, name: str, check: Callable[[Any], Any]) -> Any:
    try:
        return check(row.values[name])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{row.where}: {error}") from None


def _new_id(row: TableRow, name: str, lines: dict[str, str]) -> ArmId:
    if row.values[name] is None:
        raise ValueError(f"{row.where}: there is no {name!r}")
    text = _checked(row, name, arm_text)
    if text in lines:
        raise ValueError(f"{row.where}: the id {text!r} is also that of {lines[text].rpartition(', ')[2]}")
    lines[text] = row.where
    found: ArmId = row.values[name]
    return found


def _vector(row: TableRow, name: str, size: int | None) -> NDArray[np.float32]:
    given = row.values[name]
    try:
        listed = given.strip("[] ").replace(",", " ").split() if isinstance(given, str) else given
        found = np.array(listed, np.float32)
        if found.ndim != 1 or len(found) == 0 or not np.isfinite(found).all():
            raise ValueError
    except (ValueError, TypeError):
        raise ValueError(f"{row.where}: {str(given)[:40]!r} is not a list of finite numbers") from None
    if size is not None and len(found) != size:
        raise ValueError(f"{row.where}: a vector of {len(found)} numbers; the first has {size}")
    return found


def _load_vectors(path: Path | None, count: int, items: Path) -> NDArray[np.float32] | None:
    if path is None:
        return None
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        raise ValueError(
            f"{path} is not a .npy file of numbers, which np.save writes; vectors in a column of {items} are named by "
            "--vector-column"
        ) from None
    if found.ndim != 2 or found.dtype.kind not in "fiu":
        raise ValueError(f"{path} holds {found.dtype} of shape {found.shape}; a row of numbers for each item is needed")
    if len(found) != count:
        raise ValueError(f"{path} has {len(found)} vectors for the {count} items of {items}")
    return as_float32s(found, f"the vectors of {path}")


def _typed(values: list[Any], kind: str | None, is_text: bool, name: str, lines: list[str]) -> list[Any]:
    """The values of a column of text as what they say: true or false, numbers, or text. A few that are not what nearly
    all others are were meant to be."""
    if not is_text:
        return _of_one_kind(values, kind, name, lines)
    there = [(value, line) for value, line in zip(values, lines, strict=True) if value is not None]
    asked = (kind,) if kind else (FLAG, NUMBER)
    for what in (what for what in asked if what in READ):
        read, nature = READ[what]
        wrong = [(value, line) for value, line in there if read(value) is None]
        if there and not wrong:
            return [None if value is None else read(value) for value in values]
        if wrong and (kind or len(wrong) <= ODD * len(there)):
            others = "" if kind else f", as other values are; {name}:text takes all of them as text"
            raise ValueError(f"{wrong[0][1]}: {wrong[0][0]!r} in the column {name!r} is {nature}{others}")
    return values


def _of_one_kind(values: list[Any], kind: str | None, name: str, lines: list[str]) -> list[Any]:
    """Values that have types, all of one kind; as text where that is asked for."""
    for value, line in zip(values, lines, strict=True):
        found = TYPES.get(type(value))
        if value is None or (found and kind == TEXT):
            continue
        kind = kind or found
        if found is None or found != kind:
            wanted = f"; it should be a {kind}, as others or the option say" if kind else ""
            what = f"a {found}" if found else "neither true or false, nor a number or text"
            raise ValueError(f"{line}: {value!r} in the column {name!r} is {what}{wanted}")
    return [_as_text(value) for value in values] if kind == TEXT else values


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value).lower()


def _flag(text: str) -> bool | None:
    return FLAGS.get(text.lower())


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None


READ = {FLAG: (_flag, "neither true nor false"), NUMBER: (_number, "not a finite number")}
