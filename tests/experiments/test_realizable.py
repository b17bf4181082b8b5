"""The realizable experiment: the truth is a ridge regression, regret is measured against it, noise has a key."""

from pathlib import Path

import numpy as np
import pytest
from helpers.datasets import K, easy_plan, made_up, play_realizable
from scipy.stats import kstest
from sklearn.linear_model import Ridge

import treetop
from treetop.arrays import Rows, as_rows
from treetop.experiments.realizable import DenseTruth, NoisyRewards, load_or_fit
from treetop.simulation.play import Environment, Learning, begin


@pytest.fixture(scope="module")
def truth() -> DenseTruth:
    return DenseTruth.fit(made_up())


def world(truth: DenseTruth, sigma: float = 0.1, seed: int = 0) -> NoisyRewards:
    return NoisyRewards(truth, truth.best(K), sigma, seed)


def dense(truth: DenseTruth) -> treetop.arrays.Floats:
    """Every mean reward, the plain way."""
    X = truth.dataset.X.csr().toarray().astype(np.float64)
    return np.asarray(np.hstack([X, np.ones((len(X), 1))]) @ truth.weights)


def test_the_truth_is_one_ridge_regression_an_arm(truth: DenseTruth) -> None:
    X = np.hstack([truth.dataset.X.csr().toarray(), np.ones((1200, 1))])
    for arm in (0, 17, 59):
        y = truth.dataset.Y.csr()[:, arm].toarray().ravel()
        np.testing.assert_allclose(truth.weights[:, arm], Ridge(0.5, fit_intercept=False).fit(X, y).coef_, atol=1e-6)
        learned = treetop.Linear(tolerance=1e-8).fit(truth.dataset.X, y).weights
        assert learned is not None
        np.testing.assert_allclose(truth.weights[:, arm], learned.csr().toarray()[0], atol=1e-4)


def test_means_and_best_arms_are_those_of_the_dense_product(truth: DenseTruth) -> None:
    every = dense(truth)
    rows = np.random.default_rng(0).integers(0, 1200, 700)
    arms = np.random.default_rng(1).integers(-1, 60, (700, 4)).astype(np.int32)
    want = np.where(arms >= 0, every[rows[:, None], np.maximum(arms, 0)], np.nan)
    np.testing.assert_allclose(truth.means(rows, arms), want, atol=1e-12)
    np.testing.assert_array_equal(truth.best_arms(rows, 3), np.argsort(-every[rows], axis=1)[:, :3])
    np.testing.assert_allclose(truth.best(3), np.sort(every, axis=1)[:, -3:].sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(truth.best(60), every.sum(axis=1), atol=1e-12)


def test_rows_without_features_have_the_bias_for_a_mean() -> None:
    data = treetop.Dataset("one empty row", as_rows([[0.0], [2.0]]), as_rows([[1.0, 0.0], [0.0, 1.0]], what="labels"))
    truth = DenseTruth.fit(data)
    np.testing.assert_array_equal(truth.means(np.array([0]), np.array([[1, 0]], np.int32)), truth.weights[-1:, ::-1])


def test_regret_is_never_negative_and_zero_for_an_oracle(truth: DenseTruth) -> None:
    rows = np.random.default_rng(0).integers(0, 1200, 900)
    arms = np.array([np.random.default_rng(i).permutation(60)[:K] for i in range(900)], np.int32)
    regret = world(truth).regret(rows, arms)
    assert regret is not None
    assert regret.min() > -1e-9
    assert regret.max() > 0.1
    oracle = world(truth).regret(rows, truth.best_arms(rows, K))
    assert oracle is not None
    np.testing.assert_allclose(oracle, 0, atol=1e-9)


def test_a_greedy_policy_that_knows_the_truth_has_no_regret(truth: DenseTruth) -> None:
    stream, model = begin(truth.dataset, 200, 1000, 4, 0)
    known = np.vstack([np.zeros((model.tree.n_nodes, 41)), truth.weights.T])
    oracle = treetop.Model.from_weights(model.tree, model.routing, known)
    flat = treetop.Policy(k=K, explore=0, beam=model.tree.n_nodes, strategy=treetop.Greedy())
    learning = Learning(epochs=treetop.Epochs.explicit([1000]))
    played = treetop.run(stream, oracle, flat, learning=learning, environment=Environment(world=world(truth)))
    regret = world(truth).regret(stream.rows, played.history.arms)
    assert regret is not None
    assert abs(regret.sum()) < 1e-3  # weights are float32 in a model
    assert played.mean_reward == pytest.approx(truth.best(K)[stream.rows].mean(), abs=0.05)


def test_noise_belongs_to_seed_round_and_arm(truth: DenseTruth) -> None:
    rows = np.arange(1200)
    arms = np.array([np.random.default_rng(i).permutation(60)[:K] for i in range(1200)], np.int32)
    whole = world(truth).rewards(rows, arms, 0)
    np.testing.assert_array_equal(world(truth).rewards(rows[300:], arms[300:], 300), whole[300:])
    np.testing.assert_array_equal(world(truth).rewards(rows, arms[:, ::-1], 0), whole[:, ::-1])
    assert (world(truth, seed=1).rewards(rows, arms, 0) != whole).mean() > 0.99
    noise = (whole - truth.means(rows, arms)).ravel() / 0.1
    assert kstest(noise, "norm").pvalue > 1e-4
    np.testing.assert_allclose(world(truth, sigma=0).rewards(rows, arms, 0), truth.means(rows, arms), atol=1e-6)


def test_rewards_have_no_limits_and_empty_slots_none(truth: DenseTruth) -> None:
    arms = np.array([[3, -1]], np.int32)
    got = world(truth, sigma=100).rewards(np.array([0]), arms, 0)
    assert abs(got[0, 0]) > 1
    assert np.isnan(got[0, 1])


def test_igw_learns_the_truth_and_its_regret_grows_slower_and_slower() -> None:
    flat, beam = play_realizable(easy_plan(["igw"], parameters={"C": 100.0}), made_up())
    assert (flat.settings["beam"], beam.settings["beam"]) == (None, 10)
    for record in (flat, beam):
        assert record.regret_checkpoints is not None
        at = dict(record.regret_checkpoints)
        rounds, regret = zip(*record.regret_checkpoints, strict=True)
        assert rounds == tuple(n for n, _ in record.checkpoints)
        assert min(np.diff(regret)) > -1e-6
        assert at[3000] - at[1024] < 0.5 * (3000 - 1024) / 1024 * at[1024]
    greedy = play_realizable(easy_plan(["greedy"], beams=[None]), made_up())[0]
    assert greedy.regret_checkpoints is not None
    assert flat.regret_checkpoints is not None
    assert flat.regret_checkpoints[-1][1] < greedy.regret_checkpoints[-1][1]


def test_the_truth_is_kept_in_a_file_and_taken_from_it(truth: DenseTruth, tmp_path: Path) -> None:
    """A threaded solver need not give the same bytes twice."""
    path, data = tmp_path / "truth.npz", made_up()
    _, best = load_or_fit(path, data, lambda: truth, K)

    def refused() -> DenseTruth:
        raise AssertionError("the truth of before is used")

    again, same = load_or_fit(path, data, refused, K)
    assert isinstance(again, DenseTruth)
    np.testing.assert_array_equal(again.weights, truth.weights)
    np.testing.assert_array_equal(same, best)
    np.testing.assert_array_equal(best, truth.best(K))


def test_what_does_not_fit_in_memory_is_refused_with_numbers() -> None:
    wide = Rows(np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 100_000)
    data = treetop.Dataset("wide", wide, as_rows([[1.0], [0.0]], what="labels"))
    with pytest.raises(ValueError, match="100001 x 100001 and 100001 x 1 numbers are 80,002,400,016 bytes"):
        DenseTruth.fit(data)
    with pytest.raises(ValueError, match=r"sigma is -1; it must be finite and lie in \[0, inf\]"):
        world(DenseTruth.fit(made_up()), sigma=-1)
