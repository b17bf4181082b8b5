"""Rows that arms were added with, vectors or examples, read again from attributes.bin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from treetop.arrays import Ints, Rows
from treetop.bandit.attributes import read_rows


def added_rows(file: Path, places: Iterable[tuple[int, int]], columns: int) -> Iterator[tuple[Ints, Rows]]:
    """The arms and rows of the records at these places, of those that have so many columns.

    >>> list(added_rows(Path("attributes.bin"), (), columns=2))
    []
    """
    if not places:
        return
    with file.open("rb") as records:
        for begin, end in places:
            records.seek(begin)
            arms, rows = read_rows(records.read(end - begin))
            if rows.columns == columns:
                yield arms, rows


def last_of_each(added: Iterable[tuple[Ints, Rows]], first: int, n_arms: int, columns: int) -> Rows | None:
    """The last row of each arm from `first` on, empty where there was none; None if there was none at all.

    >>> from treetop.arrays import as_rows
    >>> added = [(np.array([3, 5], np.int32), as_rows([[1.0, 0.0], [0.0, 2.0]]))]
    >>> last_of_each(added, 4, 6, columns=2).csr().toarray().tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    >>> last_of_each(added, 6, 7, columns=2) is None
    True
    """
    found: dict[int, Rows] = {}
    for arms, rows in added:
        found |= {arm: rows.row(i) for i, arm in enumerate(arms.tolist()) if first <= arm < n_arms}
    if not found:
        return None
    parts = [found.get(arm) for arm in range(first, n_arms)]
    lengths = [0 if part is None else len(part.index) for part in parts]
    index, value = (
        np.concatenate([getattr(part, name) for part in parts if part is not None]) for name in ("index", "value")
    )
    return Rows(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), index, value, columns)
