"""Rows and numbers from outside, checked once at the boundary: the right kind and within limits, or an error that names
the value and the limit. Knows no algorithm."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from treetop import _core

INT32_MAX = 2**31 - 1
_HEADERS = threading.Lock()

Floats: TypeAlias = NDArray[np.float64]
Float32s: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Arms: TypeAlias = ArrayLike | Set[int]  # ids, or a boolean mask over all arms
Matrix: TypeAlias = Any  # scipy sparse of any kind, or anything numpy.asarray takes


def map_array(path: Path) -> np.memmap[Any, Any]:
    """The array of a `.npy` file, memory-mapped.

    NumPy parses the file's header with `ast`, which is not safe where several threads do so at once (CPython 3.11:
    "AST constructor recursion depth mismatch"), so that one does at a time.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(3))
    ...     map_array(Path(folder, "a.npy")).tolist()
    [0, 1, 2]
    """
    with _HEADERS:
        return np.lib.format.open_memmap(path, mode="r")


def check_int(name: str, value: object, low: int, high: int = INT32_MAX) -> int:
    """`value` as an int within [low, high], or an error that names it.

    >>> check_int("k", 5, 1, 10)
    5
    >>> check_int("k", 50, 1, 10)
    Traceback (most recent call last):
    ValueError: k is 50; it must lie in [1, 10]
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool) or not low <= number <= high:
        raise ValueError(f"{name} is {value!r}; it must lie in [{low}, {high}]")
    return number


def check_float(name: str, value: object, low: float, high: float = math.inf) -> float:
    """`value` as a finite float within [low, high], or an error that names it.

    >>> check_float("epsilon", "0.1", 0, 1)
    Traceback (most recent call last):
    TypeError: epsilon must be a number, not '0.1'
    """
    if isinstance(value, str | bytes):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {value!r}") from None
    if not (math.isfinite(number) and low <= number <= high):
        raise ValueError(f"{name} is {value!r}; it must be finite and lie in [{low:.10g}, {high:.10g}]")
    return number


@dataclass(frozen=True, eq=False)
class Rows:
    """Compressed sparse rows exactly as the core reads them: sorted indices, finite values, nothing to convert."""

    start: Int64s
    index: Ints
    value: Float32s
    columns: int

    def __len__(self) -> int:
        return len(self.start) - 1

    def slice(self, first: int, end: int) -> Rows:
        """Rows first to end, sharing memory."""
        a, b = int(self.start[first]), int(self.start[end])
        start = self.start[first : end + 1]
        return Rows(start - a if a else start, self.index[a:b], self.value[a:b], self.columns)

    def head(self, n: int) -> Rows:
        return self.slice(0, n)

    def row(self, i: int) -> Rows:
        return self.slice(i, i + 1)

    def csr(self) -> sp.csr_matrix:
        """The same as a scipy matrix, sharing memory where scipy lets it."""
        return sp.csr_matrix((self.value, self.index, self.start), shape=(len(self), self.columns), copy=False)


@dataclass(frozen=True, eq=False)
class Fitted(Rows):
    """Weights, and 64 bits a row that tell what they were fitted from: 0 is nothing, or nobody knows what."""

    fingerprints: Int64s


def as_rows(X: Matrix, columns: int | None = None, what: str = "contexts") -> Rows:
    """Any matrix as Rows. Unsorted and repeated indices are put in order; what cannot be meant is refused.

    >>> as_rows([[0.0, 2.0], [1.0, 0.0]]).index
    array([1, 0], dtype=int32)
    """
    if isinstance(X, Rows):
        rows = X
    elif sp.issparse(X):
        rows = _from_csr(_sparse_as_csr(X, what), what)
    else:
        rows = _from_dense(as_numbers(X, what), what)
    if columns is not None and rows.columns != columns:
        raise ValueError(f"{what} have {rows.columns} features; the model has {columns}")
    return rows


def _from_dense(X: NDArray[Any], what: str) -> Rows:
    if X.ndim not in (1, 2):
        raise ValueError(f"{what} have {X.ndim} dimensions; one row or a matrix is needed")
    dense = np.atleast_2d(_as_float32(X, what))
    n, columns = dense.shape
    if columns >= INT32_MAX:
        raise ValueError(f"{what} have {columns} columns; at most {INT32_MAX - 1} are possible")
    if dense.size == 0:
        return Rows(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), columns)
    start, index, value = _core.dense_rows(dense)
    _core.inspect_rows(start, index, value, columns, what)
    return Rows(start, index, value, columns)


def _sparse_as_csr(X: Any, what: str) -> Any:
    """scipy trusts indices when it converts: out of range they would be written to memory that is not its own."""
    if X.ndim not in (1, 2):
        raise ValueError(f"{what} have {X.ndim} dimensions; one row or a matrix is needed")
    if X.format == "csr" and X.ndim == 1:
        return sp.csr_array((X.data, X.indices, X.indptr), shape=(1, *X.shape))
    if X.format == "csc":
        return _from_csr(X.T, f"{what}, transposed,").csr().T.tocsr()
    try:
        if X.format == "bsr":
            X.check_format(full_check=True)
        if X.format == "coo":
            # Sums of small integers would overflow.
            data = X.data.astype(np.float32) if X.data.dtype.kind in "iub" else X.data
            X = sp.coo_array((data, X.coords), shape=X.shape)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return (X.reshape(1, -1) if X.ndim == 1 else X).tocsr()


def _from_csr(X: Any, what: str) -> Rows:
    columns = int(X.shape[1])
    if columns >= INT32_MAX:
        raise ValueError(f"{what} have {columns} columns; at most {INT32_MAX - 1} are possible")
    start = np.ascontiguousarray(X.indptr, np.int64)
    index, value = _as_int32(X.indices, columns, what), _as_float32(X.data, what)
    if start[-1] < len(index):  # scipy allows room behind the last row
        index, value = index[: start[-1]], value[: start[-1]]
    if _core.inspect_rows(start, index, value, columns, what):
        return Rows(start, index, value, columns)
    ordered = sp.csr_matrix((value, index, start), shape=X.shape, copy=True)
    ordered.sum_duplicates()
    return _from_csr(ordered, what)


def _as_int32(index: NDArray[Any], columns: int, what: str) -> Ints:
    if index.dtype != np.int32 and len(index) and not (index.min() >= 0 and index.max() < columns):
        bad = index.min() if index.min() < 0 else index.max()
        raise ValueError(f"{what}: index {bad} is outside [0, {columns})")
    return np.ascontiguousarray(index, np.int32)


def _as_float32(data: NDArray[Any], what: str) -> Float32s:
    if data.dtype == np.float32:
        return np.ascontiguousarray(data)
    if data.dtype.kind not in "fiub":
        raise TypeError(f"{what} hold {data.dtype} values; numbers are needed")
    limit = np.finfo(np.float32).max
    if data.dtype.kind == "f" and data.dtype.itemsize > 4 and (np.abs(data[np.isfinite(data)]) > limit).any():
        worst = data[np.isfinite(data)][np.abs(data[np.isfinite(data)]).argmax()]
        raise ValueError(f"{what}: value {worst:g} is beyond the limit {limit:g} of float32")
    return np.ascontiguousarray(data, np.float32)


def as_numbers(values: object, what: str) -> NDArray[Any]:
    """Real numbers of any type; not text, objects or complex numbers, and nothing masked, which numpy would unmask.

    >>> as_numbers([1, 0.5], "rewards").dtype
    dtype('float64')
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{what} are not an array: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{what} hold {array.dtype} values; numbers are needed")
    if np.ma.is_masked(values):
        raise TypeError(f"{what} are masked; fill in what is missing")
    return array


def as_float32s(values: object, what: str) -> Float32s:
    """Numbers as float32, which holds them: NaN and infinity stay what they are.

    >>> as_float32s([1, np.nan], "rewards")
    array([ 1., nan], dtype=float32)
    """
    return _as_float32(as_numbers(values, what), what)


def as_indices(ids: ArrayLike, limit: int, what: str, low: int = 0) -> Ints:
    """Dense indices in [low, limit), or an error that names the first one outside.

    >>> as_indices([0, 3], limit=4, what="arm")
    array([0, 3], dtype=int32)
    """
    array = np.asarray(ids)
    if array.size == 0:
        return np.zeros(array.shape, np.int32)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} must be whole numbers, not {array.dtype}")
    wrong = (array < low) | (array >= limit)
    if wrong.any():
        raise ValueError(f"{what} {array[wrong].flat[0]} is outside [{low}, {limit})")
    return np.ascontiguousarray(array, np.int32)


def check_rewards(rewards: NDArray[Any], arms: Ints, limits: tuple[float, float] | None) -> None:
    """Raises for rewards (n, k) outside of their limits, or of slots without an arm; NaN is none.

    >>> check_rewards(np.array([[2.0]]), np.array([[3]]), (0.0, 1.0))
    Traceback (most recent call last):
    ValueError: reward 2.0 of round 0, slot 0 is outside [0, 1]
    """
    low, high = (-np.inf, np.inf) if limits is None else _as_range(limits)
    wrong = np.isinf(rewards) | (rewards < low) | (rewards > high)
    if wrong.any():
        t, slot = np.argwhere(wrong)[0]
        why = "is not finite" if limits is None else f"is outside [{low:g}, {high:g}]"
        raise ValueError(f"reward {rewards[t, slot]} of round {t}, slot {slot} {why}")
    if ((arms < 0) & ~np.isnan(rewards)).any():
        t, slot = np.argwhere((arms < 0) & ~np.isnan(rewards))[0]
        raise ValueError(f"round {t}, slot {slot} has a reward but no arm (-1)")


def as_components(given: object, arms: Ints) -> Float32s | None:
    """Components that fit the arms, NaN where there is no arm; None if there are none of them.

    >>> as_components([[[0.5], [0.25]]], np.array([[3, -1]]))
    array([[[0.5],
            [nan]]], dtype=float32)
    """
    components = as_float32s(given, "components")
    n, k = arms.shape
    if components.ndim != 3 or components.shape[:2] != (n, k):
        raise ValueError(
            f"components have shape {components.shape}; {n} contexts and {k} slots need ({n}, {k}, number of them)"
        )
    if np.isinf(components).any():
        t, slot, i = np.argwhere(np.isinf(components))[0]
        value = components[t, slot, i]
        raise ValueError(f"component {i} of round {t}, slot {slot} is {value}; it must be finite, or NaN if unknown")
    known = np.where((arms < 0)[:, :, None], np.float32(np.nan), components)
    return known if known.shape[2] else None


def as_propensities(given: object, arms: Ints) -> Float32s:
    """Propensities that fit the arms, NaN where nobody knows and where there is no arm.

    >>> as_propensities([[0.5, 1.0]], np.array([[3, -1]]))
    array([[0.5, nan]], dtype=float32)
    """
    propensities = as_float32s(given, "propensities")
    if propensities.shape != arms.shape:
        raise ValueError(f"propensities have shape {propensities.shape}; the slots have {arms.shape}")
    known = np.where(arms < 0, np.float32(np.nan), propensities)
    if (wrong := (known < 0) | (known > 1)).any():
        t, slot = np.argwhere(wrong)[0]
        raise ValueError(f"the propensity of round {t}, slot {slot} is {known[t, slot]}; it must be in [0, 1], or NaN")
    return known


def _as_range(limits: object) -> tuple[float, float]:
    if not (isinstance(limits, tuple | list) and len(limits) == 2):
        raise TypeError(f"reward_range is {limits!r}; it must be (low, high), or None for no limits")
    low = check_float("the low end of reward_range", limits[0], -np.inf)
    return low, check_float("the high end of reward_range", limits[1], low)
