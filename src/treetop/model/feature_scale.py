"""How large the values of each feature have been: what a value far outside is measured by. Knows rows, nothing else.

A scale is an array (n_features,). It begins with the largest value that each feature has in the rows that a bandit is
created from, and is raised by what many later rows have reached. It never falls, and no single row can raise it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from treetop.arrays import Float32s, Int64s, Ints, Rows

ROWS = 10  # that must have a feature, or reach a value, before it counts
MANY = 1 << 22  # values at a time that are larger than their scales
SHARE = 1000  # of so many rows that have the feature, one must reach a value


def feature_scale(rows: Rows) -> Float32s | None:
    """The largest value, in size, of each feature; None if no row has any.

    A feature of fewer than 10 rows may well become larger: it has the largest value of all features.

    >>> from treetop.arrays import as_rows
    >>> feature_scale(as_rows([[0.5, 2.0]] + [[1.0, 0.0]] * 9))
    array([1., 2.], dtype=float32)
    """
    largest = np.zeros(rows.columns, np.float32)
    np.maximum.at(largest, rows.index, np.abs(rows.value))
    overall = largest.max(initial=0)
    if overall == 0:
        return None
    often = np.bincount(rows.index, minlength=rows.columns) >= ROWS
    return np.where(often & (largest > 0), largest, overall)


@dataclass(frozen=True, eq=False)
class PastValues:
    """What rows that are not at hand any more say about scales: how many they were, how often they had each feature,
    and the values above `scale`, which is theirs and does not fall again."""

    scale: Float32s
    rows: int
    counts: Int64s
    feature: Ints
    size: Float32s

    @classmethod
    def none(cls, scale: Float32s) -> PastValues:
        nothing = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return cls(scale, 0, np.zeros(len(scale), np.int64), *nothing)

    def after(self, scale: Float32s, parts: Iterable[Rows]) -> PastValues:
        """With more rows, after which the scale is this one."""
        scale = np.maximum(scale, self.scale)
        rows = self.rows + sum(map(len, parts))
        return PastValues(scale, rows, *_values_above(scale, parts, int(_needed(rows)), self))


def raised_scale(scale: Float32s | None, parts: Iterable[Rows], past: PastValues | None = None) -> Float32s | None:
    """The scale after more rows: a feature's rises to the value that 10 of them reach, and 1 in 1000 that have it.

    The rows are in parts, which are read more than once; `past` is what is known of rows before them.

    Without a scale before, all features begin with the value that as many rows reach in any feature.

    >>> from treetop.arrays import as_rows
    >>> raised_scale(np.ones(1, np.float32), [as_rows([[7.0]] * 9), as_rows([[1000.0]])])
    array([7.], dtype=float32)
    >>> raised_scale(np.ones(1, np.float32), [as_rows([[1000.0]] * 9)])
    array([1.], dtype=float32)
    """
    if past is not None:
        scale = past.scale if scale is None else np.maximum(scale, past.scale)
    if scale is None and (scale := _first_scale(parts)) is None:
        return None
    past = past or PastValues.none(scale)
    most = int(_needed(past.rows + sum(map(len, parts))))  # values of a feature that can matter
    counts, feature, size = _values_above(scale, parts, most, past)
    needed, count = _needed(counts), np.bincount(feature, minlength=len(scale))
    raised = np.flatnonzero(count >= needed)
    first = np.cumsum(count) - count
    out = scale.copy()
    out[raised] = size[first[raised] + needed[raised] - 1]
    return out


def _values_above(scale: Float32s, parts: Iterable[Rows], most: int, past: PastValues) -> tuple[Int64s, Ints, Float32s]:
    """How often each feature occurs in the parts and before, and its largest values above the scale, falling."""
    counts, still = past.counts.copy(), past.size > scale[past.feature]
    feature, size = past.feature[still], past.size[still]
    for rows in parts:
        counts += np.bincount(rows.index, minlength=len(scale))
        above = np.flatnonzero(np.abs(rows.value) > scale[rows.index])
        feature, size = np.concatenate([feature, rows.index[above]]), np.concatenate([size, np.abs(rows.value[above])])
        if len(feature) > MANY:
            feature, size = _largest(feature, size, most)
    return counts, *_largest(feature, size, most)


def _first_scale(parts: Iterable[Rows]) -> Float32s | None:
    """The value that enough rows reach in any feature, for all features; None if there are too few rows."""
    most, count, largest = int(_needed(sum(map(len, parts)))), 0, np.zeros(0, np.float32)
    columns = 0
    for rows in parts:
        columns = rows.columns
        first = rows.start[:-1][np.diff(rows.start) > 0]
        of_rows = np.maximum.reduceat(np.abs(rows.value), first) if len(first) else largest[:0]
        count, largest = count + len(first), np.sort(np.concatenate([largest, of_rows]))[-most:]
    if count < ROWS or largest[-_needed(count)] == 0:
        return None
    return np.full(columns, largest[-_needed(count)], np.float32)


def _largest(feature: Ints, size: Float32s, most: int) -> tuple[Ints, Float32s]:
    """The largest sizes of each feature, at most so many, feature by feature and falling."""
    order = np.lexsort((-size, feature))
    feature, size = feature[order], size[order]
    first = np.searchsorted(feature, feature)
    kept = np.arange(len(feature)) - first < most
    return feature[kept], size[kept]


def _needed(rows: Int64s | int) -> Int64s:
    """How many of so many rows must reach a value."""
    return np.asarray(np.maximum(ROWS, -(-np.asarray(rows) // SHARE)))
