"""Item vectors as the owner of a catalogue has them, and the measures by which vectors are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from treetop.arrays import Float32s, Floats, Matrix, Rows, as_float32s

METRICS = ("cosine", "inner_product", "euclidean")
LARGEST = 1e12  # of the numbers of vectors, whose products and squares stay far from the end of float32
MOST_DIMENSIONS = 65_536  # of vectors that are held dense


def check_metric(metric: object) -> str:
    """One of METRICS, or an error that names them.

    >>> check_metric("dot")
    Traceback (most recent call last):
    ValueError: metric is 'dot'; it must be one of cosine, inner_product, euclidean
    """
    if metric not in METRICS:
        raise ValueError(f"metric is {metric!r}; it must be one of {', '.join(METRICS)}")
    return str(metric)


def check_magnitude(values: Float32s, metric: str) -> None:
    """Refuses numbers whose products leave float32; a cosine looks at directions alone.

    >>> check_magnitude(np.array([3.0, -1e20], np.float32), "inner_product")
    Traceback (most recent call last):
    ValueError: arm vectors hold -1e+20; for inner_product their numbers must lie in [-1e+12, 1e+12]
    """
    if metric == METRICS[0] or not len(values):
        return
    worst = max(values.max(), values.min(), key=abs)
    if abs(worst) > LARGEST:
        limits = f"[{-LARGEST:g}, {LARGEST:g}]"
        raise ValueError(f"arm vectors hold {worst:g}; for {metric} their numbers must lie in {limits}")


def dense_vectors(vectors: Matrix, what: str = "arm vectors") -> Float32s:
    """(n, d) float32 rows one behind the other, every value finite; a copy only where one is needed.

    >>> dense_vectors([[1, 0], [0, 2]])
    array([[1., 0.],
           [0., 2.]], dtype=float32)
    """
    found: Any = vectors.csr() if isinstance(vectors, Rows) else vectors
    if len(shape := np.shape(found)) != 2:
        raise ValueError(f"{what} have {len(shape)} dimensions; a row for each is needed")
    if not (shape[0] and shape[1]):
        raise ValueError(f"{what} have shape {tuple(shape)}; there must be at least 1 row and 1 column")
    if shape[1] > MOST_DIMENSIONS:
        raise ValueError(f"{what} have {shape[1]} columns; dense ones have at most {MOST_DIMENSIONS}")
    array: Any = as_float32s(found.toarray() if hasattr(found, "toarray") else found, what)
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise ValueError(f"{what}: row {row} holds a value that is not finite")
    return np.ascontiguousarray(array)


def lengths(vectors: Float32s) -> Floats:
    """The Euclidean length of each row.

    >>> lengths(np.array([[3, 4]], np.float32))
    array([5.])
    """
    return np.asarray(np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)))


def unit_vectors(vectors: Float32s) -> Float32s:
    """Each row divided by its length; a row of zeros stays one.

    >>> unit_vectors(np.array([[3, 4], [0, 0]], np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    length = lengths(vectors)
    return (vectors / np.where(length > 0, length, 1.0)[:, None]).astype(np.float32)
