"""Parts of contexts on one scale, so that none drowns the others in an arm's regressor. Knows rows, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from treetop.arrays import Fitted, Float32s, Rows

BLOCK = 8192  # contexts that are looked at together
MOST = 40  # a scale is at most 2^40, and 2^-40 at least
AnyRows = TypeVar("AnyRows", bound=Rows)


def part_scale(contexts: Rows, vectors: Sequence[tuple[int, int]]) -> Float32s | None:
    """(columns + 1,): what each feature, and the bias, is multiplied by: powers of 2; None without `vectors`.

    Each vector, given by its first column and how many it has, has a length of about 1 then, and so has all that stands
    beside them: each other feature by its own size where it is there, and by how many there are.

    >>> from treetop.arrays import as_rows
    >>> part_scale(as_rows([[3.0, 4.0, 40.0, 1.0], [4.0, 0.0, 30.0, 0.0]]), [(0, 2)])
    array([0.25   , 0.25   , 0.03125, 1.     , 1.     ], dtype=float32)
    """
    if not vectors or not len(contexts):
        return None
    size, beside = np.ones(contexts.columns + 1), np.ones(contexts.columns, np.bool_)
    length = np.zeros((len(vectors), len(contexts)))
    count, total = np.zeros(contexts.columns, np.int64), np.zeros(contexts.columns)
    for low in range(0, len(contexts), BLOCK):
        some = contexts.slice(low, min(low + BLOCK, len(contexts)))
        row, square = np.repeat(np.arange(len(some)), np.diff(some.start)), some.value.astype(np.float64) ** 2
        for i, (first, dims) in enumerate(vectors):
            inside = (some.index >= first) & (some.index < first + dims)
            length[i, low : low + len(some)] = np.bincount(row[inside], square[inside], len(some))
        count += np.bincount(some.index[square > 0], minlength=contexts.columns)
        np.add.at(total, some.index, square)
    for (first, dims), its in zip(vectors, length, strict=True):
        size[first : first + dims] = its[its > 0].mean() ** 0.5 if its.any() else 1.0
        beside[first : first + dims] = False
    known = beside & (count > 0)
    parts = max(1.0, count[beside].sum() / len(contexts))
    size[:-1][known] = np.sqrt(total[known] / count[known] * parts)
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
