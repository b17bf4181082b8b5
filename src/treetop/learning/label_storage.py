"""Labelled rows on disk: a file an array and a signed manifest, as models have them. Learns nothing.

The arrays stay memory-mapped: whoever loads them has in memory what it reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from treetop import _core
from treetop.arrays import Rows, whole
from treetop.errors import ModelFileError
from treetop.learning.pooled import Labelled
from treetop.model.storage import read_array, read_signed, write_array, write_signed

FORMAT, VERSION = "treetop-labelled", 1
CONTEXTS = {"contexts_start": "int64", "contexts_index": "int32", "contexts_value": "float32"}
SAMPLES = {"row": "int32", "arm": "int32", "reward": "float32", "route": "float64", "weight": "float64"}


def save(known: Labelled, folder: Path) -> None:
    """Writes a new folder; without its manifest, which comes last, it is nothing.

    >>> import tempfile
    >>> from treetop.tree.tree import Tree
    >>> X = Y = np.eye(4, dtype=np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Labelled.of(Tree.from_labels(X, Y, max_leaf=2), X, Y), Path(folder) / "labelled")
    ...     load(Path(folder) / "labelled", arms=4, features=4).reward.sum()
    np.float32(4.0)
    """
    folder.mkdir()
    x = known.contexts
    arrays: dict[str, Any] = dict(zip(CONTEXTS, (x.start, x.index, x.value), strict=True))
    arrays |= {name: getattr(known, name) for name in SAMPLES}
    files = {name: write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
    write_signed(folder, {"format": FORMAT, "version": VERSION, "columns": x.columns, "files": files})


def load(folder: Path, arms: int, features: int) -> Labelled:
    """What `save` wrote, for a model of so many arms and features; whatever is wrong with it is a ModelFileError.

    >>> load(Path("no/such"), arms=2, features=3)
    Traceback (most recent call last):
    treetop.errors.ModelFileError: no/such: no manifest.json: not a saved set of labelled rows, or not all of it
    """
    manifest = read_signed(folder, FORMAT, VERSION)
    try:
        found = {
            name: read_array(folder / f"{name}.npy", manifest["files"][name], kind)
            for name, kind in (CONTEXTS | SAMPLES).items()
        }
        start, index, value = (found.pop(name) for name in CONTEXTS)
        known = Labelled(Rows(start, index, value, whole("columns", manifest["columns"], 0)), **found)
        _check(known, arms, features)
        return known
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{folder}: not valid labelled rows: {error}") from error


def _check(known: Labelled, arms: int, features: int) -> None:
    x = known.contexts
    if x.columns != features:
        raise ValueError(f"contexts of {x.columns} features; the model has {features}")
    if not _core.inspect_rows(x.start, x.index, x.value, x.columns, "contexts"):
        raise ValueError("indices must rise strictly in every row")
    if len({len(getattr(known, name)) for name in SAMPLES}) > 1:
        raise ValueError("there are not as many rows, arms, rewards, routes and weights")
    for name, ids, limit in (("row", known.row, len(x)), ("arm", known.arm, arms)):
        if len(ids) and not 0 <= ids.min() <= ids.max() < limit:
            raise ValueError(f"{name} {ids.min()} to {ids.max()}, outside [0, {limit})")
    for name, values, low, high in (
        ("reward", known.reward, 0, 1), ("route", known.route, -np.inf, 0), ("weight", known.weight, 0, np.inf)
    ):  # fmt: skip
        if len(values) and not (low <= values.min() and values.max() <= high):
            raise ValueError(f"a {name} from {values.min()} to {values.max()}, outside [{low}, {high}]")
