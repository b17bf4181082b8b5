"""Routing functions fitted side by side, and routes of pairs, against their slow twins; what the core refuses."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.reference_routing import SlowFunction, samples_of, slow_route
from helpers.strategies import csr, dense, few, seeds
from hypothesis import given
from hypothesis import strategies as st

from treetop import _core
from treetop.learning.linear import NO_THRESHOLDS
from treetop.learning.routing_samples import RoutingProblems

COLUMNS = 9


def random_problem(rng: np.random.Generator, functions: int, most: int) -> tuple[Any, Any, RoutingProblems]:
    """Contexts of float32, their folds, and functions of three families, or of none."""
    n = int(rng.integers(2, most))
    X = np.where(rng.random((n, COLUMNS)) < 0.5, rng.normal(size=(n, COLUMNS)), 0).astype(np.float32)
    families = [np.flatnonzero(rng.random(n) < share) for share in (0.2, 0.5, 0.9)]
    family = rng.integers(-1, 3, functions).astype(np.int32)
    right: list[Any] = [families[f][rng.random(len(families[f])) < 0.3] if f >= 0 else [] for f in family]
    own = [rng.integers(0, n, int(rng.integers(0, most))) for _ in family]
    start, right_start, shared_start = (np.cumsum([0, *map(len, parts)]) for parts in (own, right, families))
    row, right_row, shared_row = (np.concatenate([*parts, []]).astype(np.int32) for parts in (own, right, families))
    target = np.where(rng.random(len(row)) < 0.4, 1, -1).astype(np.float32)
    return (
        X,
        rng.random(n) < 0.5,
        RoutingProblems(shared_start, shared_row, family, right_start, right_row, start, row, target),
    )


def unknown_of(functions: int) -> tuple[Any, Any, Any]:
    """A weight of 7 for the first feature of every function."""
    return np.arange(functions + 1), np.zeros(functions, np.int32), np.full(functions, 7, np.float32)


def fit(X: Any, fold: Any, problems: RoutingProblems, threads: int = 1, passes: int = 50, **more: Any) -> Any:
    how: Any = (1.0, 0.1, 0.3), passes, NO_THRESHOLDS, unknown_of(len(problems.family)), threads
    functions: Any = problems.arrays()
    return _core.fit_routing(*csr(X), COLUMNS, functions, fold, *how, **more)


def rows_of(weights: tuple[Any, Any, Any]) -> Any:
    return dense(*weights, columns=COLUMNS + 1)


def alone(problems: RoutingProblems, function: int) -> RoutingProblems:
    """The same contexts, and one function of them."""
    right, own = (slice(*starts[function : function + 2]) for starts in (problems.right_start, problems.start))
    return replace(
        problems,
        family=problems.family[function : function + 1],
        right_start=np.array([0, right.stop - right.start]),
        right_row=problems.right_row[right],
        start=np.array([0, own.stop - own.start]),
        row=problems.row[own],
        target=problems.target[own],
    )


@few
@given(seeds, st.integers(1, 6), st.integers(3, 30))
def test_functions_are_those_of_the_twin(seed: int, functions: int, most: int) -> None:
    """To the bit: sums are in the same order, one after the other."""
    X, fold, problems = random_problem(np.random.default_rng(seed), functions, most)
    found = [rows_of(part) for part in fit(X, fold, problems)]
    for g in range(functions):
        samples = samples_of(problems, g)
        own = int(problems.start[g + 1] - problems.start[g])
        first = len(samples) - own
        slow = SlowFunction(X, samples[:first], samples[first:], fold, 1.0)
        wanted: list[Any] = [None] * 3
        if any(y > 0 for _, y in samples):
            wanted = slow.weights(0.1, 0.3, 50)
        for part, weights in zip(found, wanted, strict=True):
            expected = {0: np.float32(7)} if weights is None else weights
            row = np.array([expected.get(j, 0) for j in range(COLUMNS + 1)], np.float32)
            assert part[g].astype(np.float32).tobytes() == (row + np.float32(0)).tobytes()


@few
@given(seeds)
def test_no_function_knows_which_others_are_beside_it(seed: int) -> None:
    """Nor how many threads there are: the same bytes alone, where one function is one lane, and among forty."""
    X, fold, problems = random_problem(np.random.default_rng(seed), 40, 60)
    together, threads = fit(X, fold, problems), fit(X, fold, problems, threads=3)
    for one, other in zip(together, threads, strict=True):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))
    rows = [rows_of(part) for part in together]
    for g in range(40):
        for part, single in zip(rows, fit(X, fold, alone(problems, g)), strict=True):
            assert rows_of(single)[0].tobytes() == part[g].tobytes()


SCRIPT = """
import hashlib
import numpy as np
from test_routing_fit import fit, random_problem
X, fold, problems = random_problem(np.random.default_rng(3), 60, 80)
print(hashlib.sha256(b"".join(a.tobytes() for part in fit(X, fold, problems) for a in part)).hexdigest())
"""


def test_every_instruction_set_gives_the_same_bytes() -> None:
    found = set()
    tests = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (tests, tests / "learning")))
    for name in _core.instruction_sets():
        environment = {**os.environ, "TREETOP_SIMD": name, "PYTHONPATH": path}
        run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True)
        found.add(run.stdout)
    assert len(found) == 1


def test_what_is_known_is_copied_and_fingerprints_tell_samples_apart() -> None:
    X, fold, problems = random_problem(np.random.default_rng(1), 30, 40)

    def prints(some: RoutingProblems, key: int = 5) -> Any:
        return _core.routing_fingerprints(*csr(X), COLUMNS, some.arrays(), key, 1)

    before = prints(problems)
    known = np.array([any(y > 0 for _, y in samples_of(problems, g)) for g in range(30)])
    assert ((before != 0) == known).all()
    assert (prints(problems, 6)[known] != before[known]).all()
    assert [prints(alone(problems, g))[0] for g in range(30)] == before.tolist()
    target = problems.target.copy()
    target[0] = -target[0]
    first = int(np.searchsorted(problems.start, 0, side="right")) - 1
    assert np.flatnonzero(prints(replace(problems, target=target)) != before).tolist() in ([first], [])
    keep = known & (np.arange(30) % 2 == 0)
    copied = fit(X, fold, problems, keep=keep, known=[unknown_of(30)] * 3)
    for part, fresh in zip(copied, fit(X, fold, problems), strict=True):
        rows, others = rows_of(part), rows_of(fresh)
        assert (rows[keep] == np.eye(1, COLUMNS + 1) * 7).all()
        assert np.array_equal(rows[~keep], others[~keep])


def test_what_does_not_fit_is_refused() -> None:
    X, fold, problems = random_problem(np.random.default_rng(2), 4, 20)
    n = len(X)
    falls = replace(problems, shared_row=problems.shared_row[::-1].copy())
    refused: list[tuple[dict[str, Any], str]] = [
        ({"fold": fold[:1]}, f"1 folds of {n} contexts"),
        ({"problems": falls}, "the contexts of family 0 do not rise"),
        ({"problems": replace(problems, family=np.full(4, 3, np.int32))}, r"family is 3, outside \[-1, 2\]"),
        ({"problems": replace(problems, family=problems.family[:3])}, "3 routing functions do not fit their samples"),
        ({"problems": replace(problems, target=problems.target * 2)}, "a target of the squared hinge is"),
        ({"problems": replace(problems, row=problems.row + np.int32(n))}, "sample of context"),
        ({"keep": np.ones(4, np.bool_)}, "known rows of 0 parts; there are 3"),
        ({"keep": np.ones(3, np.bool_), "known": [unknown_of(4)] * 3}, "3 marks and 4 known rows for 4 groups"),
    ]
    for wrong, words in refused:
        with pytest.raises(ValueError, match=words):
            fit(**{"X": X, "fold": fold, "problems": problems, **wrong})
    with pytest.raises(ValueError, match="has right contexts that are not those of its family"):
        fit(X, fold, replace(problems, family=np.full(4, -1, np.int32)))


# -------------------- routes of pairs


@few
@given(seeds, st.booleans(), st.integers(1, 3))
def test_routes_of_pairs_are_those_of_the_twin(seed: int, of_arms: bool, threads: int) -> None:
    rng = np.random.default_rng(seed)
    nodes, arms, n = int(rng.integers(1, 12)), int(rng.integers(1, 9)), int(rng.integers(1, 8))
    parents = np.array([-1, *(int(rng.integers(0, v)) for v in range(1, nodes))], np.int32)
    leaf_of = rng.integers(0, nodes, arms).astype(np.int32)
    size = nodes + arms * of_arms, 6
    w: Any = np.where(rng.random(size) < 0.6, rng.normal(size=size), 0).astype(np.float32)
    X: Any = np.where(rng.random((n, 5)) < 0.7, rng.normal(size=(n, 5)), 0).astype(np.float32)
    row = np.sort(rng.integers(0, n, 30))
    arm = rng.integers(0, arms, 30).astype(np.int32)
    path_weight = float(rng.choice([0.0, 0.5, 1.0]))
    found = _core.pair_routes(*csr(X), 5, csr(w), parents, leaf_of, row, arm, path_weight, threads)
    x, weights = X.astype(float), w.astype(float)
    wanted = [slow_route(weights, parents, leaf_of, x[i], int(a), path_weight) for i, a in zip(row, arm, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_pairs_that_cannot_be_are_refused() -> None:
    X, w = csr(np.eye(2)), csr(np.ones((3, 3)))
    parents, leaf_of = np.array([-1, 0, 0], np.int32), np.array([1, 2], np.int32)

    def routes(row: Any, arm: Any, weights: Any = w, up: Any = parents, leaves: Any = leaf_of) -> Any:
        pairs = np.array(row, np.int64), np.array(arm, np.int32)
        return _core.pair_routes(*X, 2, weights, np.asarray(up, np.int32), np.asarray(leaves, np.int32), *pairs, 1.0, 1)

    assert routes([0, 1], [0, 1]).shape == (2,)
    wide = w[0], np.where(w[1] == 2, 3, w[1]).astype(np.int32), w[2]
    for wrong, words in (
        (([1, 0], [0, 0]), "row is 0, outside"),
        (([0, 2], [0, 0]), "row is 2, outside"),
        (([0], [2]), "arm is 2, outside"),
        (([0], [0, 1]), "1 rows for 2 arms"),
        (([0], [0], csr(np.ones((4, 3)))), "4 routing functions of 3 nodes and 2 arms"),
        (([0], [0], w, [-1, 1, 0]), "a parent is 1, outside"),
        (([0], [0], w, parents, [1, 3]), "a leaf is 3, outside"),
        (([0], [0], wide), "routing function 1 has a weight of feature 3, outside"),
    ):
        with pytest.raises(ValueError, match=words):
            routes(*wrong)
