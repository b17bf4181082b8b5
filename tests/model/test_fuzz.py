"""Malformed arrays and numbers at every native entry point: an error or a correct answer, never a crash.

Twisted calls spoil one or two arguments of a valid call.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers.bad_input import rows_in_order
from helpers.reference import Model
from helpers.strategies import ALL, EXCEPT, GREEDY, IGW, ONLY, balanced_model, csr, engine, many
from hypothesis import given
from hypothesis import strategies as st

from treetop import _core

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
MODEL = balanced_model(seed=1, features=4, branching=2, depth=2, per_leaf=2)
ENGINE, NODES, ARMS = engine(MODEL), MODEL.tree.n_nodes, MODEL.tree.n_arms


WHOLE = [INT64.min, INT64.min + 1, -(2**33), INT32.min, -2, -1, 0, 1, 2, 3, 70, INT32.max + 1, 2**40, INT64.max, 2**80]
REAL = [math.nan, math.inf, -math.inf, -1.0, -1e-300, 0.0, 1e-300, 0.5, 1.0, 1e18, 1e300, 1.7e308]


@st.composite
def twisted_arrays(draw: st.DrawFn, array: npt.NDArray[Any]) -> Any:
    how = draw(st.sampled_from(["element", "copy", "swap", "shorter", "longer", "empty", "dtype", "shape", "kind"]))
    out = array.copy()
    at = draw(st.integers(0, max(0, len(out) - 1)))
    if how == "element" and len(out):
        if out.dtype == np.bool_:
            out = out.view(np.uint8)
            out[at] = 2  # a byte that is neither true nor false
            return out.view(np.bool_)
        limits = np.iinfo(out.dtype) if out.dtype.kind == "i" else np.finfo(out.dtype)
        special = [0, 1, -1, 5, limits.min, limits.max]
        out[at] = draw(st.sampled_from(special if out.dtype.kind == "i" else [*special, np.nan, np.inf, 1e-45]))
    elif how == "copy" and len(out):
        out[at] = out[at - 1]
    elif how == "swap" and len(out):
        out[[at, at - 1]] = out[[at - 1, at]]
    elif how == "shorter":
        out = out[:at].copy()
    elif how == "longer":
        out = np.append(out, out[-1:] if len(out) else np.ones(1, out.dtype))
    elif how == "empty":
        out = out[:0].copy()
    elif how == "dtype":
        return out.astype(draw(st.sampled_from([np.int8, np.int32, np.int64, np.float32, np.float64, object])))
    elif how == "shape":
        return draw(st.sampled_from([out[None, :], out[::-1], np.repeat(out, 2)[::2]]))
    elif how == "kind":
        return draw(st.sampled_from([None, 3, "text", out.tolist()]))
    return out


@st.composite
def twisted(draw: st.DrawFn, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with one or two of them spoilt."""
    out = dict(arguments)
    for name in draw(st.lists(st.sampled_from(list(arguments)), min_size=1, max_size=2, unique=True)):
        value = arguments[name]
        if isinstance(value, np.ndarray):
            out[name] = draw(twisted_arrays(value))
        else:
            out[name] = draw(st.sampled_from([*(REAL if isinstance(value, float) else WHOLE), None, "text"]))
    return out


def answer(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What the call returns; None if it refuses in so many words."""
    try:
        return call(**arguments)
    except (ValueError, TypeError):
        return None


def named(arrays: tuple[npt.NDArray[Any], ...], *names: str) -> dict[str, Any]:
    return dict(zip(names, arrays, strict=True))


MODEL_ARGUMENTS = {
    "parents": MODEL.tree.parents,
    "leaf_of": MODEL.tree.leaf_of,
    **named(csr(MODEL.routing), "route_start", "route_index", "route_value"),
    **named(csr(MODEL.rewards), "reward_start", "reward_index", "reward_value"),
    "columns": 5,
    "geometric": False,
    "threads": 1,
}
POSITIONS = np.array([0, 2, 3, 6], dtype=np.int32)
CONTEXTS = csr(np.array([[1.0, 0.0, -0.5, 2.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]]))
SEARCH = {
    **named(csr(np.array([1.0, 0.0, -0.5, 2.0])), "start", "index", "value"),
    "wanted": 2,
    "beam": 1,
    "beta": -1.0,
    "eligible_kind": ONLY,
    "positions": POSITIONS,
}
DECIDE = {
    **named(CONTEXTS, "start", "index", "value"),
    "keys": np.arange(3, dtype=np.int64),
    "k": 3,
    "explore": 2,
    "beam": 1,
    "beta": -1.0,
    "strategy": IGW,
    "rate": 1.0,
    "eligible_kind": EXCEPT,
    "positions": np.array([0, 2, 1, 6], dtype=np.int32),
    "position_start": np.array([0, 2, 2, 4], dtype=np.int64),
    "threads": 2,
}


def check_found(found: Any, n_arms: int = ARMS) -> None:
    start, is_node, id, route, score, value, components, new, prior = found
    assert components.shape == (len(id), 0)
    assert len(is_node) == len(id) == len(route) == len(score) == len(value) == len(new) == len(prior) == start[-1] > 0
    assert (value >= 0).all()
    assert not new.any()
    assert ((id >= 0) & (id < np.where(is_node, NODES, n_arms))).all()
    assert (route <= 0).all()


def check_decisions(decided: Any, n: int, k: int, n_arms: int = ARMS) -> None:
    arms, propensities, scores, explored, nodes, components = decided
    for part in decided[:-1]:
        assert part.shape == (n, k)
    assert components.shape == (n, k, 0)
    assert ((arms >= -1) & (arms < n_arms) & (nodes >= -1) & (nodes < NODES)).all()
    assert ((propensities > 0) == (arms >= 0)).all()
    assert (propensities <= 1).all()
    assert np.isfinite(scores).all()
    assert not (explored & (arms < 0)).any()
    for row in arms:
        assert len(set(row[row >= 0].tolist())) == (row >= 0).sum()


@many
@given(twisted(MODEL_ARGUMENTS), st.booleans(), st.sampled_from([-1.0, 0.5]))
def test_twisted_models(arguments: dict[str, Any], geometric: bool, beta: float) -> None:
    arguments["geometric"] = geometric if arguments["geometric"] is False else arguments["geometric"]
    made = answer(_core.Engine, arguments)
    if made is not None:
        features, n_arms = min(4, arguments["columns"] - 1), len(arguments["leaf_of"])
        contexts = csr(np.array([[1.0, -1.0, 0.5, 3e38], [0.0, 0.0, 0.0, -3e38]])[:, :features])
        none, one = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        check_found(made.search(*csr(np.ones(features)), 3, 1, beta, ALL, none), n_arms)
        ask: dict[str, Any] = {
            "k": 3,
            "explore": 2,
            "beam": 1,
            "beta": beta,
            "strategy": IGW,
            "rate": 1.0,
            "eligible_kind": ALL,
        }
        ask |= {"positions": none, "position_start": one, "threads": 1, "keys": np.arange(2, dtype=np.int64)}
        decided = answer(made.decide, named(contexts, "start", "index", "value") | ask)  # scores may overflow
        if decided is not None:
            check_decisions(decided, 2, 3, n_arms)


@many
@given(twisted(SEARCH))
def test_twisted_searches(arguments: dict[str, Any]) -> None:
    found = answer(ENGINE.search, arguments)
    if found is not None:
        check_found(found)


@many
@given(twisted(DECIDE), st.integers(0, 4))
def test_twisted_decisions(arguments: dict[str, Any], strategy: int) -> None:
    if arguments["strategy"] == IGW:
        arguments["strategy"] = strategy
        arguments["rate"] = arguments["rate"] if strategy < 4 else [0.3, 0.2, 0.5, 0.1, 20.0, 0.4, 0.5]
    decided = answer(ENGINE.decide, arguments)
    if decided is not None:
        check_decisions(decided, len(arguments["keys"]), arguments["k"])


@many
@given(twisted({"node": 1, "key": 5, "slot": 0, "eligible_kind": EXCEPT, "positions": POSITIONS}))
def test_twisted_arms_below(arguments: dict[str, Any]) -> None:
    found = answer(ENGINE.arm_below, arguments)
    if found is not None:
        arm, below = found
        assert arm in MODEL.tree.arms_below(arguments["node"])
        assert 1 <= below <= len(MODEL.tree.arms_below(arguments["node"]))


@many
@given(
    twisted(
        {
            **named(csr(np.abs(MODEL.rewards)), "start", "index", "value"),
            "columns": 5,
            "branching": 2,
            "max_leaf": 2,
            "cocluster": True,
            "iterations": 3,
            "seed": 1,
            "threads": 2,
        }
    )
)
def test_twisted_hierarchies(arguments: dict[str, Any]) -> None:
    made = answer(_core.build_hierarchy, arguments)
    if made is not None:
        parents, leaf_of = made
        assert len(leaf_of) == len(arguments["start"]) - 1
        if len(leaf_of):
            _core.layout(parents, leaf_of)
            assert np.bincount(leaf_of).max() <= arguments["max_leaf"]


@many
@given(
    twisted(
        {
            **named(CONTEXTS, "start", "index", "value"),
            "columns": 4,
            "group_start": np.array([0, 2, 2, 5], dtype=np.int64),
            "group_rows": np.array([0, 1, 2, 1, 0], dtype=np.int32),
            "target": np.array([1, -1, 1, 1, -1], dtype=np.float32),
            "loss": 1,
            "cost": 1.0,
            "tolerance": 1e-3,
            "passes": 50,
            "exact_up_to": 2,
            "threshold": 0.0,
            "seed": 0,
            "threads": 2,
        }
    ),
    st.integers(0, 2),
)
def test_twisted_fits(arguments: dict[str, Any], loss: int) -> None:
    arguments["loss"] = loss if arguments["loss"] == 1 else arguments["loss"]
    if arguments["passes"] in WHOLE:
        arguments["passes"] = min(arguments["passes"], 10**4)  # a request for 2^63 passes may well be granted
    made = answer(_core.fit, arguments)
    if made is not None:
        start, index, value = made
        assert rows_in_order(start.tolist(), index.tolist(), [0.0] * len(value), arguments["columns"] + 1)[1]
        assert len(start) == len(arguments["group_start"])


@many
@given(
    twisted(
        {
            "scores": np.array([0.5, 0.25, 0.5, -1.0], dtype=np.float32),
            "is_node": np.array([False, True, True, False]),
            "id": np.array([3, 1, 2, 0], dtype=np.int32),
            "k": 3,
            "explore": 2,
            "strategy": IGW,
            "rate": 1.0,
            "key": 4,
        }
    ),
    st.integers(0, 3),
)
def test_twisted_choices(arguments: dict[str, Any], strategy: int) -> None:
    if arguments["strategy"] == IGW:
        arguments["strategy"] = strategy
        arguments["rate"] = arguments["rate"] if strategy < 4 else [0.3, 0.2, 0.5, 0.1, 20.0, 0.4, 0.5]
    made = answer(_core.choose, arguments)
    if made is not None:
        chosen, probability, explored = made
        assert len(chosen) == len(set(chosen.tolist())) == min(arguments["k"], len(arguments["scores"]))
        assert ((chosen >= 0) & (chosen < len(arguments["scores"]))).all()
        assert ((probability > 0) & (probability <= 1)).all()
        assert not explored.any() if arguments["strategy"] == GREEDY else explored.sum() <= arguments["explore"]


LIMITS = [
    ("decide", {"k": 0}, r"k is 0, outside \[1, 65536\]"),
    ("decide", {"k": 65537}, "k is 65537"),
    ("decide", {"explore": -1}, r"explore is -1, outside \[0, 3\]"),
    ("decide", {"beam": 0}, r"beam is 0, outside \[1, 2147483647\]"),
    ("decide", {"beta": math.nan}, "beta is nan"),
    ("decide", {"strategy": 5}, r"strategy is 5, outside \[0, 4\]"),
    ("decide", {"strategy": 3, "rate": 1.5}, r"rate is 1.5, outside \[0, 1\]"),
    ("decide", {"eligible_kind": 3}, r"eligible_kind is 3, outside \[0, 2\]"),
    ("decide", {"keys": np.arange(4, dtype=np.int64)}, "3 contexts, but 4 keys"),
    ("search", {"wanted": -1}, "wanted is -1"),
    ("search", {"positions": np.array([2, 1], dtype=np.int32)}, "1 after 2"),
    ("search", {"positions": np.array([1, ARMS], dtype=np.int32)}, r"position 8 is outside \[0, 8\)"),
]


@pytest.mark.parametrize(("method", "wrong", "message"), LIMITS, ids=lambda value: str(value)[:40])
def test_errors_name_the_value_and_its_limit(method: str, wrong: dict[str, Any], message: str) -> None:
    arguments = DECIDE if method == "decide" else SEARCH
    with pytest.raises(ValueError, match=message):
        getattr(ENGINE, method)(**(arguments | wrong))


def test_lists_are_not_looked_at_when_all_arms_are_eligible() -> None:
    """Regression: row pointers of lists that nobody needs were read past their end."""
    for pointers in ([], [0], [0, 10**6, 5, -1]):
        arguments = DECIDE | {"eligible_kind": ALL, "position_start": np.array(pointers, dtype=np.int64)}
        check_decisions(ENGINE.decide(**arguments), 3, 3)


def test_negative_radii_are_refused() -> None:
    """Regression: the log of a negative routing score is NaN, which has no place in an order."""
    routing = np.abs(MODEL.routing)
    routing[3, -1] = -0.5
    wrong = named(csr(routing), "route_start", "route_index", "route_value") | {"geometric": True}
    with pytest.raises(ValueError, match=r"routing row 3: radius -0.50* is negative"):
        _core.Engine(**(MODEL_ARGUMENTS | wrong))


def test_scores_that_overflow_are_refused() -> None:
    wrong = named(csr(np.full((3, 4), 3e38)), "start", "index", "value")
    for routing, what in ((0.0, "score of (arm|node)"), (3.0, "routing score of node")):
        model = engine(Model(MODEL.tree, np.full_like(MODEL.routing, routing), np.full_like(MODEL.rewards, 3.0)))
        with pytest.raises(ValueError, match=rf"the {what} \d is inf"):
            model.decide(**(DECIDE | wrong))
