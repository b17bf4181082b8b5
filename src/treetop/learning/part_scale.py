"""Parts of contexts on one scale, so that none drowns the others in an arm's regressor. Knows rows, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from treetop.arrays import Fitted, Float32s, Rows

BLOCK = 8192  # contexts that are looked at together
MOST = 40  # a scale is at most 2^40, and 2^-40 at least
AnyRows = TypeVar("AnyRows", bound=Rows)


def part_scale(contexts: Iterable[Rows], vectors: Sequence[tuple[int, int]]) -> Float32s | None:
    """(columns + 1,): what each feature, and the bias, is multiplied by: powers of 2; None without `vectors`.

    Each vector, given by its first column and how many it has, has a length of about 1 then, and so has all that stands
    beside them: each other feature by its own size where it is there, and by how many there are. Contexts may come in
    pieces; these are added up number by number, so that the scale is the same whatever they are.

    >>> from treetop.arrays import as_rows
    >>> whole = as_rows([[3.0, 4.0, 40.0, 1.0], [4.0, 0.0, 30.0, 0.0]])
    >>> part_scale([whole], [(0, 2)])
    array([0.25   , 0.25   , 0.03125, 1.     , 1.     ], dtype=float32)
    """
    if not vectors:
        return None
    sums: PartSums | None = None
    for piece in contexts:
        sums = sums or PartSums(piece.columns, vectors)
        for low in range(0, len(piece), BLOCK):
            sums.add(piece.slice(low, min(low + BLOCK, len(piece))))
    return None if sums is None or sums.rounds == 0 else sums.scale()


class PartSums:
    """What a scale is made of: lengths of vectors, and sizes and numbers of the features beside them."""

    def __init__(self, columns: int, vectors: Sequence[tuple[int, int]]) -> None:
        self._vectors, self.rounds = vectors, 0
        self._length, self._lengths = np.zeros(len(vectors)), np.zeros(len(vectors), np.int64)
        self._count, self._total = np.zeros(columns, np.int64), np.zeros(columns)

    def add(self, some: Rows) -> None:
        row, square = np.repeat(np.arange(len(some)), np.diff(some.start)), some.value.astype(np.float64) ** 2
        for i, (first, dims) in enumerate(self._vectors):
            inside = (some.index >= first) & (some.index < first + dims)
            its = np.bincount(row[inside], square[inside], len(some))
            its = its[its > 0]
            self._length[i] = np.cumsum(np.append(self._length[i], its))[-1]  # one after the other
            self._lengths[i] += len(its)
        self._count += np.bincount(some.index[square > 0], minlength=len(self._count))
        np.add.at(self._total, some.index, square)
        self.rounds += len(some)

    def scale(self) -> Float32s:
        size, beside = np.ones(len(self._count) + 1), np.ones(len(self._count), np.bool_)
        for (first, dims), length, count in zip(self._vectors, self._length, self._lengths, strict=True):
            size[first : first + dims] = (length / count) ** 0.5 if count else 1.0
            beside[first : first + dims] = False
        known = beside & (self._count > 0)
        parts = max(1.0, self._count[beside].sum() / self.rounds)
        size[:-1][known] = np.sqrt(self._total[known] / self._count[known] * parts)
        power = np.clip(np.rint(-np.log2(size)), -MOST, MOST)
        return np.asarray(2.0**power, np.float32)


def scaled(rows: AnyRows, scale: Float32s) -> AnyRows:
    """The rows with each column multiplied.

    >>> from treetop.arrays import as_rows
    >>> scaled(as_rows([[3.0, 4.0]]), np.array([1, 0.5], np.float32)).value
    array([3., 2.], dtype=float32)
    """
    return replace(rows, value=rows.value * scale[rows.index])


def unscaled_fit(rows: Rows | None, scale: Float32s) -> Rows | None:
    """Weights of features as they are, as weights of scaled ones; exactly, as scales are powers of 2.

    >>> weights = Fitted(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.float32), 1, np.array([7]))
    >>> unscaled_fit(weights, np.array([0.5], np.float32)).value
    array([2.], dtype=float32)
    """
    return scaled(rows, np.float32(1) / scale) if isinstance(rows, Fitted) else rows
