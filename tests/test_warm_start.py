"""`Linear(warm=True)`: large reward models begin at the last model's weights and end at the same solution, sooner."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import Problem
from reference import least_squares

import treetop
from treetop import Linear, _core
from treetop.arrays import Rows, as_rows
from treetop.learning.pooled import Pooled

D, TOLERANCE = 40, 1e-3


def stream(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Contexts with correlated features, and rewards that mostly follow from them."""
    rng = np.random.default_rng(seed)
    topic = np.repeat(rng.normal(size=(8, D)), n // 8 + 1, axis=0)[rng.permutation(n // 8 * 8 + 8)[:n]]
    X = np.where(rng.random((n, D)) < 0.3, topic + 0.3 * rng.normal(size=(n, D)), 0)
    X = (X / np.maximum(1e-9, np.linalg.norm(X, axis=1, keepdims=True))).astype(np.float32).astype(np.float64)
    y = 0.5 + X @ rng.normal(size=D) / 4 + 0.1 * rng.normal(size=n)
    return X, y.astype(np.float32)


def one_group(n: int) -> tuple[Any, Any]:
    return np.array([0, n], np.int64), np.arange(n, dtype=np.int32)


def solved(X: Any, y: Any, how: Linear, before: Rows | None = None) -> Rows:
    return how.solve(as_rows(X), *one_group(len(y)), y, before=before)


def passes(X: Any, y: Any, before: Rows | None, warm: bool) -> int:
    """How many passes the descent takes: the fewest that give what any number of them gives."""
    contexts = as_rows(X)
    data = contexts.start, contexts.index, contexts.value, contexts.columns, *one_group(len(y)), y
    known: dict[str, Any] = {"warm": warm}
    if before is not None:
        known |= {"keep": np.zeros(1, np.bool_), "known_start": before.start}
        known |= {"known_index": before.index, "known_value": before.value}

    def weights(limit: int) -> bytes:
        return _core.fit(*data, 0, 1.0, TOLERANCE, limit, 64, 0.0, 0, 1, **known)[2].tobytes()

    wanted = weights(1000)
    return next(n for n in range(1, 1001) if weights(n) == wanted)


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("first", [100, 285])
def test_the_solution_is_that_of_the_normal_equations(cost: float, first: int) -> None:
    X, y = stream(300)
    exact = least_squares(X, y.astype(np.float64), cost)
    before = solved(X[:first], y[:first], Linear(cost=cost))
    cold = solved(X, y, Linear(cost=cost)).csr().toarray()[0]
    warm = solved(X, y, Linear(cost=cost, warm=True), before).csr().toarray()[0]
    assert not np.array_equal(warm, cold), "it did not begin elsewhere"
    tight = solved(X, y, Linear(cost=cost, warm=True, tolerance=1e-9), before).csr().toarray()[0]
    np.testing.assert_allclose(tight, exact, rtol=1e-5, atol=1e-6)
    # The gradient of a sample is at most the tolerance: x.w differs by no more than that in either.
    room = 4 * TOLERANCE
    assert np.abs(np.c_[X, np.ones(300)] @ (cold - exact)).max() <= room
    assert np.abs(np.c_[X, np.ones(300)] @ (warm - exact)).max() <= room


def test_few_new_samples_take_fewer_passes() -> None:
    taken = []
    for seed in range(5):
        X, y = stream(400, seed)
        before = solved(X[:395], y[:395], Linear())
        taken.append((passes(X, y, before, warm=True), passes(X, y, before, warm=False), passes(X, y, None, warm=True)))
    warm, cold, nothing = np.sum(taken, axis=0)
    assert warm < cold == nothing
    assert all(w <= c for w, c, _ in taken)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, -3e38, 0.0])
def test_weights_that_are_no_help_do_no_harm(value: float) -> None:
    X, y = stream(200)
    index = np.array([0, 3, D], np.int32)
    before = Rows(np.array([0, 3], np.int64), index, np.full(3, value, np.float32), D + 1)
    found = solved(X, y, Linear(warm=True, tolerance=1e-9), before).csr().toarray()[0]
    np.testing.assert_allclose(found, least_squares(X, y.astype(np.float64), 1.0), rtol=1e-4, atol=1e-5)


def test_features_from_elsewhere_are_passed_over() -> None:
    """Of samples that are gone, or, in rows that nobody checked, of none at all."""
    X, y = stream(200)
    X[:, 5] = 0
    index = np.array([5, D, D + 7, 2**31 - 1], np.int32)
    before = Rows(np.array([0, 4], np.int64), index, np.ones(4, np.float32), D + 1)
    found = solved(X, y, Linear(warm=True, tolerance=1e-9), before).csr().toarray()[0]
    np.testing.assert_allclose(found, least_squares(X, y.astype(np.float64), 1.0), rtol=1e-5, atol=1e-6)


def test_small_models_stay_exact_and_rows_that_fit_nobody_are_not_used() -> None:
    X, y = stream(300)
    before = solved(X[:50], y[:50], Linear())
    small = X[:64], y[:64]
    assert solved(*small, Linear(warm=True), before).value.tobytes() == solved(*small, Linear()).value.tobytes()
    two = as_rows(sp.vstack([before.csr(), before.csr()], format="csr"))
    for other in (None, two):
        assert solved(X, y, Linear(warm=True), other).value.tobytes() == solved(X, y, Linear()).value.tobytes()


def test_the_default_knows_nothing_of_it(problem: Problem) -> None:
    """Nor does it take over what was fitted warm: its weights never depend on the refits before."""
    earlier, all_of_it = problem.feedback(300), problem.feedback(1200)
    assert np.diff(treetop.learning.linear.samples(all_of_it, problem.model)[0]).max() > 64
    fresh = treetop.refit(problem.model, all_of_it)
    chain = [treetop.refit(problem.model, earlier, Linear(warm=warm)) for warm in (False, True)]
    warm = treetop.refit(chain[0], all_of_it, Linear(warm=True))
    assert warm.reward_rows.value.tobytes() != fresh.reward_rows.value.tobytes()
    for before in (*chain, warm):
        assert treetop.refit(before, all_of_it).reward_rows.value.tobytes() == fresh.reward_rows.value.tobytes()


def test_nothing_new_changes_nothing(problem: Problem) -> None:
    history = problem.feedback(600)
    first = treetop.refit(problem.model, history, Linear(warm=True))
    again = treetop.refit(first, history, Linear(warm=True))
    assert again.reward_rows.value.tobytes() == first.reward_rows.value.tobytes()


def test_the_pooled_learner_has_it_too(problem: Problem) -> None:
    earlier, all_of_it = problem.feedback(600), problem.feedback(1200)
    before = treetop.refit(problem.model, earlier, Pooled(tolerance=1e-7))
    cold, warm = (treetop.refit(before, all_of_it, Pooled(tolerance=1e-7, warm=warm)) for warm in (False, True))
    assert warm.reward_rows.value.tobytes() != cold.reward_rows.value.tobytes()
    difference = abs(warm.rewards - cold.rewards)
    assert difference.max() < 1e-5


def test_what_it_cannot_be_is_refused() -> None:
    for learner in (Linear, Pooled):
        with pytest.raises(TypeError, match="warm must be True or False, not 1"):
            learner(warm=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="warm=True with loss 'absolute'; only the squared loss"):
        Linear(loss="absolute", warm=True)
