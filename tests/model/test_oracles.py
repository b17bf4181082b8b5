"""Small arrays at native entry points: refused exactly when an oracle in Python says that they are broken."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from helpers.bad_input import rows_in_order
from helpers.strategies import ALL, EXCEPT, ONLY, SQUARED, SQUARED_HINGE, balanced_model, csr, engine, many
from hypothesis import given
from hypothesis import strategies as st

from treetop import _core
from treetop.learning.linear import NO_THRESHOLDS

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
MODEL = balanced_model(seed=1, features=4, branching=2, depth=2, per_leaf=2)
ENGINE, NODES, ARMS = engine(MODEL), MODEL.tree.n_nodes, MODEL.tree.n_arms


def accepts(call: Callable[[], object]) -> bool:
    try:
        call()
    except ValueError:
        return False
    return True


def ints(low: int, high: int, dtype: type = np.int32) -> st.SearchStrategy[npt.NDArray[Any]]:
    return st.lists(st.integers(low, high), max_size=6).map(lambda values: np.array(values, dtype=dtype))


floats = st.sampled_from([0.0, 1.0, -2.5, 1e-45, 3e38, math.nan, math.inf, -math.inf])
rising = st.lists(st.integers(0, 2), max_size=4).map(lambda steps: np.cumsum([0, *steps]).astype(np.int64))
pointers = ints(-1, 5, np.int64) | rising


@many
@given(pointers, ints(-1, 3), st.lists(floats, max_size=6), st.integers(0, 4), st.booleans())
def test_rows_are_refused_exactly_when_broken(
    start: npt.NDArray[np.int64], index: npt.NDArray[np.int32], numbers: list[float], columns: int, fit: bool
) -> None:
    if fit:
        index = np.resize(index % 3, max(0, int(start[-1]) if len(start) else 0)).astype(np.int32)
        numbers = [1.0] * len(index)
    value = np.array(numbers, dtype=np.float32)
    usable, in_order = rows_in_order(start.tolist(), index.tolist(), value.tolist(), columns)
    verdicts: list[bool] = []
    arrays = start, index, value, columns
    assert accepts(lambda: verdicts.append(_core.inspect_rows(*arrays, "rows"))) == usable
    assert verdicts == [in_order] * usable
    assert accepts(lambda: _core.build_hierarchy(*arrays, 2, 1, False, 2, 0, 1)) == in_order
    groups = np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    assert accepts(lambda: _core.fit(*arrays, *groups, 0, 1.0, 1e-3, 9, 9, NO_THRESHOLDS, 0, 1)) == in_order


@many
@given(ints(-2, 6), ints(-2, 6), st.booleans(), st.booleans())
def test_trees_are_refused_exactly_when_broken(
    parents: npt.NDArray[np.int32], leaf_of: npt.NDArray[np.int32], rooted: bool, housed: bool
) -> None:
    if rooted:
        parents = np.array([-1, *(parents % np.arange(1, len(parents) + 1))], dtype=np.int32)
    if rooted and housed:
        leaves = np.setdiff1d(np.arange(len(parents)), parents)
        leaf_of = leaves[leaf_of % len(leaves)].astype(np.int32)
    up, homes = parents.tolist(), leaf_of.tolist()
    valid = bool(up and homes) and up[0] == -1 and all(0 <= up[node] < node for node in range(1, len(up)))
    valid = valid and all(0 <= home < len(up) and home not in up for home in homes)
    assert accepts(lambda: _core.layout(parents, leaf_of)) == valid


@many
@given(ints(-1, ARMS), st.sampled_from([ALL, ONLY, EXCEPT]))
def test_positions_are_refused_exactly_when_broken(positions: npt.NDArray[np.int32], kind: int) -> None:
    listed = positions.tolist()
    valid = all(0 <= p < ARMS for p in listed) and all(a < b for a, b in itertools.pairwise(listed))
    someone = len(listed) > 0 if kind == ONLY else kind == ALL or len(listed) < ARMS
    x = csr(np.ones(4))
    found = accepts(lambda: ENGINE.search(*x, 1, 1, -1.0, kind, positions))
    assert found == (kind == ALL or (valid and someone))
    assert accepts(lambda: ENGINE.arm_below(0, 1, 1, kind, positions)) == (valid and someone)


@many
@given(pointers, ints(-1, 3), st.lists(floats, max_size=2), st.sampled_from([SQUARED, SQUARED_HINGE]), st.booleans())
def test_groups_are_refused_exactly_when_broken(
    start: npt.NDArray[np.int64], rows: npt.NDArray[np.int32], numbers: list[float], loss: int, fit: bool
) -> None:
    if fit:
        rows = np.resize(rows % 3, max(0, int(start[-1]) if len(start) else 0)).astype(np.int32)
    target = np.resize(np.array([*numbers, 1.0], dtype=np.float32), len(rows))
    bounds = start.tolist()
    valid = bool(bounds) and bounds[0] == 0 and bounds[-1] == len(rows) and bounds == sorted(bounds)
    valid = valid and bool(((rows >= 0) & (rows < 3)).all() and np.isfinite(target).all())
    valid = valid and (loss == SQUARED or set(np.abs(target).tolist()) <= {1.0})
    X = csr(np.eye(3))
    assert accepts(lambda: _core.fit(*X, 3, start, rows, target, loss, 1.0, 1e-3, 99, 9, NO_THRESHOLDS, 0, 1)) == valid
