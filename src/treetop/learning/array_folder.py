"""Arrays in a folder, a `.npy` file each, mapped when they are read: how steps of a refit hand over what is large."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Fitted, Rows, map_array
from treetop.model.storage import link, mapped_from

ROWS = ("start", "index", "value")


@dataclass(frozen=True)
class ArrayFolder:
    """A folder of arrays that one process writes and others may read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     folder = ArrayFolder.new(Path(place) / "work")
    ...     folder.put(arm=np.array([3, 4], np.int32))
    ...     folder["arm"].tolist(), "reward" in folder
    ([3, 4], False)
    """

    path: Path

    @classmethod
    def new(cls, path: Path) -> ArrayFolder:
        path.mkdir(mode=0o700)
        return cls(path)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.asarray(map_array(self.path / f"{name}.npy"))

    def __contains__(self, name: str) -> bool:
        return (self.path / f"{name}.npy").exists()

    def put(self, **arrays: NDArray[Any]) -> None:
        """Writes arrays. One that is mapped from a file of its own is not copied: the file gets one more name."""
        for name, array in arrays.items():
            target = self.path / f"{name}.npy"
            if (source := mapped_from(array)) is None or not link(source, target):
                np.save(target, array)

    def put_rows(self, name: str, rows: Rows) -> None:
        self.put(**{f"{name}_{part}": getattr(rows, part) for part in ROWS})
        if isinstance(rows, Fitted):
            self.put(**{f"{name}_fingerprints": rows.fingerprints})

    def rows(self, name: str, columns: int) -> Rows:
        """Weights or contexts of so many columns."""
        start, index, value = (self[f"{name}_{part}"] for part in ROWS)
        if (fingerprints := f"{name}_fingerprints") in self:
            return Fitted(start, index, value, columns, self[fingerprints])
        return Rows(start, index, value, columns)

    def put_facts(self, **facts: Any) -> None:
        """Writes numbers and names."""
        (self.path / "facts.json").write_text(json.dumps(facts))

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "facts.json").read_text())
        return found


def sliced(rows: Fitted, first: int, end: int) -> Fitted:
    """Rows first to end with their fingerprints.

    >>> three = Fitted(np.array([0, 1, 1, 2]), np.zeros(2, np.int32), np.ones(2, np.float32), 1, np.array([7, 0, 9]))
    >>> sliced(three, 1, 3).fingerprints.tolist()
    [0, 9]
    """
    some = rows.slice(first, end)
    return Fitted(some.start, some.index, some.value, some.columns, rows.fingerprints[first:end])


def joined(parts: Iterable[Path], name: str, folder: ArrayFolder, columns: int) -> Fitted:
    """Rows of several folders, one behind the other, in files of another folder; at most one part is in memory.

    >>> from tempfile import TemporaryDirectory
    >>> one = Fitted(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.float32), 1, np.array([7]))
    >>> with TemporaryDirectory() as place:
    ...     a, b, both = (ArrayFolder.new(Path(place, name)) for name in ("a", "b", "both"))
    ...     a.put_rows("solved", one)
    ...     b.put_rows("solved", one)
    ...     joined([a.path, b.path], "solved", both, 1).csr().toarray().tolist()
    [[1.0], [1.0]]
    """
    starts, fingerprints, base = [np.zeros(1, np.int64)], [], 0
    sizes = []
    pieces = [ArrayFolder(part) for part in parts]
    for piece in pieces:
        start = piece[f"{name}_start"]
        starts.append(start[1:] + base)
        fingerprints.append(np.asarray(piece[f"{name}_fingerprints"]))
        base += int(start[-1])
        sizes.append(int(start[-1]))
    folder.put(**{f"{name}_start": np.concatenate(starts), f"{name}_fingerprints": np.concatenate(fingerprints)})
    for part, kind in (("index", np.dtype(np.int32)), ("value", np.dtype(np.float32))):
        with (folder.path / f"{name}_{part}.npy").open("wb") as file:
            header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (base,)}
            np.lib.format.write_array_header_1_0(file, header)
            for piece in pieces:
                file.write(np.ascontiguousarray(piece[f"{name}_{part}"]).data)
    rows = folder.rows(name, columns)
    assert isinstance(rows, Fitted)
    return rows
