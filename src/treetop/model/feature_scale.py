"""How large the values of each feature have been: what a value far outside is measured by. Knows rows, nothing else.

A scale is an array (n_features,). It begins with the largest value that each feature has in the rows that a bandit is
created from, and is raised by what many later rows have reached. It never falls, and no single row can raise it.
"""

from __future__ import annotations

import numpy as np

from treetop.arrays import Float32s, Int64s, Rows

ROWS = 10  # that must have a feature, or reach a value, before it counts
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


def raised_scale(scale: Float32s | None, rows: Rows) -> Float32s | None:
    """The scale after more rows: a feature's rises to the value that 10 of them reach, and 1 in 1000 that have it.

    Without a scale before, all features begin with the value that as many rows reach in any feature.

    >>> from treetop.arrays import as_rows
    >>> raised_scale(np.ones(1, np.float32), as_rows([[7.0]] * 9 + [[1000.0]]))
    array([7.], dtype=float32)
    >>> raised_scale(np.ones(1, np.float32), as_rows([[1000.0]] * 9))
    array([1.], dtype=float32)
    """
    size = np.abs(rows.value)
    if scale is None:
        first = rows.start[:-1][np.diff(rows.start) > 0]
        of_rows = np.sort(np.maximum.reduceat(size, first)) if len(first) else size
        if len(of_rows) < ROWS or of_rows[-_needed(len(of_rows))] == 0:
            return None
        scale = np.full(rows.columns, of_rows[-_needed(len(of_rows))], np.float32)
    above = size > scale[rows.index]
    feature, size = rows.index[above], size[above]
    order = np.lexsort((-size, feature))
    needed = _needed(np.bincount(rows.index, minlength=rows.columns))
    count = np.bincount(feature, minlength=rows.columns)
    raised = np.flatnonzero(count >= needed)
    first = np.cumsum(count) - count
    out = scale.copy()
    out[raised] = size[order[first[raised] + needed[raised] - 1]]
    return out


def _needed(rows: Int64s | int) -> Int64s:
    """How many of so many rows must reach a value."""
    return np.asarray(np.maximum(ROWS, -(-np.asarray(rows) // SHARE)))
