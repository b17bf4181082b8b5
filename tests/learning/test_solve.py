"""Native linear problems against closed forms, scikit-learn and their own optimality."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers.reference import Floats, least_squares, objective
from helpers.strategies import ABSOLUTE, SQUARED, SQUARED_HINGE, csr, dense, few, many, seeds
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC, LinearSVR

from treetop import _core

Group = tuple[list[int], list[float]]  # rows of contexts, and a target for each


def fit(
    X: Floats,
    groups: list[Group],
    loss: int = SQUARED,
    cost: float = 1.0,
    tolerance: float = 1e-9,
    passes: int = 100_000,
    exact_up_to: int = 64,
    threshold: float = 0.0,
    seed: int = 0,
    threads: int = 1,
) -> tuple[npt.NDArray[np.int64], Any, Any]:
    start = np.cumsum([0, *(len(rows) for rows, _ in groups)]).astype(np.int64)
    rows = np.array([row for rows, _ in groups for row in rows], dtype=np.int32)
    target = np.array([y for _, targets in groups for y in targets], dtype=np.float32)
    thresholds = np.full(X.shape[1] + 1, threshold, np.float32)
    how: Any = loss, cost, tolerance, passes, exact_up_to, thresholds, seed, threads
    return _core.fit(*csr(X), X.shape[1], start, rows, target, *how)


def weights(X: Floats, y: Floats, loss: int = SQUARED, cost: float = 1.0, **how: Any) -> Floats:
    """The weights on [x; 1] of one problem with every context once."""
    found = fit(X, [(list(range(len(X))), y.tolist())], loss, cost, **how)
    return np.asarray(dense(*found, X.shape[1] + 1)[0])


def data(seed: int, n: int = 60, d: int = 12) -> tuple[Floats, Floats, Floats]:
    """Sparse contexts of float32 values, rewards in [0, 1], and labels of +1 and -1 that a line does not separate."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < 0.4, rng.normal(size=(n, d)), 0.0).astype(np.float32).astype(np.float64)
    linear = X @ rng.normal(size=d) + rng.normal(size=n)
    reward = np.float32(1) / (1 + np.exp(-linear)).astype(np.float32)
    return X, reward.astype(np.float64), np.where(linear > 0.3, 1.0, -1.0)


def bias_column(X: Floats) -> Floats:
    return np.hstack([X, np.ones((len(X), 1))])


costs = pytest.mark.parametrize("cost", [0.05, 1.0, 20.0])
paths = pytest.mark.parametrize("exact_up_to", [0, 64, 10_000], ids=["descent", "default", "exact"])


# -------------------- least squares


@costs
@paths
@pytest.mark.parametrize("n", [1, 5, 64, 65, 150])
def test_least_squares_is_the_closed_form(cost: float, exact_up_to: int, n: int) -> None:
    X, y, _ = data(seed=n, n=n)
    w = weights(X, y, SQUARED, cost, exact_up_to=exact_up_to)
    np.testing.assert_allclose(w, least_squares(X, y, cost), rtol=1e-5, atol=1e-6)


@costs
@paths
def test_least_squares_is_ridge(cost: float, exact_up_to: int) -> None:
    X, y, _ = data(seed=7, n=100)
    ridge = Ridge(alpha=0.5 / cost, fit_intercept=False, solver="cholesky").fit(bias_column(X), y)
    w = weights(X, y, SQUARED, cost, exact_up_to=exact_up_to)
    np.testing.assert_allclose(w, ridge.coef_, rtol=1e-5, atol=1e-6)


@many
@given(seeds, st.integers(1, 30), st.integers(1, 10), st.sampled_from([0.01, 1.0, 100.0]), st.sampled_from([0, 64]))
def test_least_squares_on_random_problems(seed: int, n: int, d: int, cost: float, exact_up_to: int) -> None:
    X, y, _ = data(seed, n, d)
    w = weights(X, y, SQUARED, cost, exact_up_to=exact_up_to)
    np.testing.assert_allclose(w, least_squares(X, y, cost), rtol=1e-4, atol=1e-5)


# -------------------- squared hinge, absolute loss


@costs
def test_squared_hinge_is_linear_svc(cost: float) -> None:
    X, _, y = data(seed=11, n=200)
    svc = LinearSVC(
        C=cost, loss="squared_hinge", dual=True, fit_intercept=False, tol=1e-10, max_iter=2_000_000, random_state=0
    ).fit(bias_column(X), y)
    w = weights(X, y, SQUARED_HINGE, cost)
    assert np.linalg.norm(w - svc.coef_[0]) <= 1e-5 * np.linalg.norm(svc.coef_[0])


@costs
def test_absolute_loss_is_linear_svr(cost: float) -> None:
    X, y, _ = data(seed=13, n=120)
    svr = LinearSVR(
        epsilon=0.0,
        C=cost,
        loss="epsilon_insensitive",
        dual=True,
        fit_intercept=False,
        tol=1e-8,
        max_iter=5_000_000,
        random_state=0,
    ).fit(bias_column(X), y)
    w = weights(X, y, ABSOLUTE, cost, tolerance=1e-7, passes=1_000_000)
    best = objective(svr.coef_, X, y, ABSOLUTE, cost)
    assert objective(w, X, y, ABSOLUTE, cost) == pytest.approx(best, rel=1e-5)
    assert np.linalg.norm(w - svr.coef_) <= 1e-3 * np.linalg.norm(svr.coef_)


@few
@given(seeds, st.integers(1, 40), st.sampled_from([SQUARED, SQUARED_HINGE, ABSOLUTE]), st.sampled_from([0.1, 1.0, 5.0]))
def test_no_step_away_from_the_solution_helps(seed: int, n: int, loss: int, cost: float) -> None:
    X, reward, label = data(seed, n, d=5)
    y = label if loss == SQUARED_HINGE else reward
    w = weights(X, y, loss, cost, exact_up_to=0, tolerance=1e-8)
    best = objective(w, X, y, loss, cost)
    steps = np.random.default_rng(seed).normal(size=(200, len(w)))
    for length in (1.0, 0.1, 0.01):
        for step in steps:
            assert objective(w + length * step, X, y, loss, cost) >= best - 1e-6 * max(1.0, best)


def test_default_tolerance_is_close_enough_to_rank() -> None:
    """What a refit runs with: tolerance 1e-3 and at most 1000 passes."""
    X, reward, label = data(seed=17, n=300)
    for loss, y in ((SQUARED, reward), (SQUARED_HINGE, label), (ABSOLUTE, reward)):
        loose = objective(weights(X, y, loss, tolerance=1e-3, passes=1000, exact_up_to=0), X, y, loss, 1.0)
        tight = objective(weights(X, y, loss, tolerance=1e-8, exact_up_to=0), X, y, loss, 1.0)
        assert loose == pytest.approx(tight, rel=1e-3)


# -------------------- groups


def random_groups(seed: int, n: int, sizes: list[int]) -> list[Group]:
    rng = np.random.default_rng(seed)
    return [(rng.integers(0, n, size=m).tolist(), rng.choice([-1.0, 1.0], size=m).tolist()) for m in sizes]


SIZES = [0, 3, 90, 0, 1, 40, 70, 12, 0]


@pytest.mark.parametrize("loss", [SQUARED, SQUARED_HINGE, ABSOLUTE])
def test_groups_do_not_see_threads_or_each_other(loss: int) -> None:
    X, _, _ = data(seed=19)
    groups = random_groups(3, len(X), SIZES)
    together = fit(X, groups, loss, tolerance=1e-6)
    for threads in (2, 3, 0):
        again = fit(X, groups, loss, tolerance=1e-6, threads=threads)
        assert [a.tobytes() for a in again] == [a.tobytes() for a in together]
    rows = dense(*together, X.shape[1] + 1)
    for g, group in enumerate(groups):
        alone: list[Group] = [([], [])] * len(groups)
        alone[g] = group
        solo = dense(*fit(X, alone, loss, tolerance=1e-6), X.shape[1] + 1)
        assert solo[g].tobytes() == rows[g].tobytes()
        assert not np.delete(solo, g, axis=0).any()


def test_groups_solve_their_own_samples() -> None:
    """With duplicate contexts, which count as often as they occur."""
    X, _, _ = data(seed=23)
    groups = random_groups(4, len(X), SIZES)
    assert any(len(set(rows)) < len(rows) for rows, _ in groups)
    rows = dense(*fit(X, groups, SQUARED), X.shape[1] + 1)
    for (members, targets), w in zip(groups, rows, strict=True):
        expected = least_squares(X[members], np.array(targets), 1.0) if members else np.zeros(X.shape[1] + 1)
        np.testing.assert_allclose(w, expected, rtol=1e-4, atol=1e-5)


def test_the_same_context_a_thousand_times() -> None:
    x = np.array([[1.0, 0.0, -0.5]])
    y = np.linspace(0, 1, 1000)
    w = dense(*fit(x, [([0] * 1000, y.tolist())]), 4)[0]
    np.testing.assert_allclose(w, least_squares(np.repeat(x, 1000, axis=0), y, 1.0), rtol=1e-4)
    assert w[1] == 0.0


def test_rows_of_weights_are_sorted_and_sparse() -> None:
    X, _, _ = data(seed=29)
    start, index, value = fit(X, random_groups(5, len(X), SIZES))
    assert start.tolist()[0] == 0
    assert start.tolist()[-1] == len(index) == len(value)
    assert (np.diff(start)[[0, 3, 8]] == 0).all(), "an empty group has weights"
    for g in range(len(SIZES)):
        assert (np.diff(index[start[g] : start[g + 1]]) > 0).all()
    assert (value != 0).all()
    assert index.max() == X.shape[1], "the bias is the last column"


@pytest.mark.parametrize("threshold", [0.05, 0.2, 10.0])
def test_threshold_drops_small_weights(threshold: float) -> None:
    X, y, _ = data(seed=31)
    full, cut = weights(X, y), weights(X, y, threshold=threshold)
    assert (cut == np.where(np.abs(full) > threshold, full, 0.0)).all()
    assert 0 < (np.abs(full) > 0.2).sum() < len(full), "the case has lost its point"


def test_no_groups_and_no_samples() -> None:
    X, _, _ = data(seed=37)
    none: Group = ([], [])
    for groups in ([], [none], [none] * 3):
        start, index, value = fit(X, groups)
        assert start.tolist() == [0] * (len(groups) + 1)
        assert len(index) == len(value) == 0


def test_seed_moves_nothing_beyond_tolerance() -> None:
    X, _, y = data(seed=41, n=200)
    a, b = (weights(X, y, SQUARED_HINGE, seed=seed) for seed in (0, 1))
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_features_of_a_huge_scale_are_still_fitted() -> None:
    """The exact solve lost the regulariser to rounding, and the weights that were NaN vanished without a word."""
    import treetop

    for scale in (1e6, 1e9, 1e12):
        X = scale * np.array([[1.7], [1.6], [1.65]])
        predicted = treetop.Linear().fit(X, [1.0, 1.0, 1.0]).predict(X)
        np.testing.assert_allclose(predicted, 1, atol=0.05)
