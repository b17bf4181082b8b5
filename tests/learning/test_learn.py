"""Refits: which samples train what, parity with scikit-learn, schedules."""

import numpy as np
import pytest
from helpers import reference
from helpers.problems import Problem
from sklearn.linear_model import Ridge

import treetop
from treetop.learning.samples import paper_samples


def test_reward_models_are_ridge_on_the_right_samples(problem: Problem, learned: treetop.Model) -> None:
    """A node learns from rounds that chose it as a whole, an arm from every round that showed it."""
    f = problem.feedback(600)
    extended = np.hstack([problem.X.toarray(), np.ones((600, 1))])
    rewards = learned.rewards.toarray()
    nodes = problem.tree.n_nodes
    kinds = {"nodes": 0, "arms": 0}
    for row in range(nodes + 60):
        shown = f.nodes == row if row < nodes else f.arms == row - nodes
        t = np.nonzero(shown)[0]
        if len(t) == 0:
            assert (rewards[row] == 0).all()
            continue
        kinds["nodes" if row < nodes else "arms"] += 1
        ridge = Ridge(alpha=0.5, fit_intercept=False).fit(extended[t], f.rewards[shown])
        np.testing.assert_allclose(rewards[row], ridge.coef_, atol=2e-3)
    assert min(kinds.values()) >= 5


def test_unobserved_slots_train_nothing(problem: Problem) -> None:
    f = problem.feedback(200)
    hidden = np.random.default_rng(0).random(f.rewards.shape) < 0.5
    partial = treetop.Feedback(f.contexts, f.arms, f.nodes, np.where(hidden, np.nan, f.rewards))
    start, rows, target = paper_samples(partial, problem.model)
    observed = (~hidden).sum() + ((f.nodes >= 0) & ~hidden).sum()
    assert len(rows) == len(target) == start[-1] == observed
    none = treetop.refit(problem.model, treetop.Feedback(f.contexts, f.arms, f.nodes, np.full(f.arms.shape, np.nan)))
    assert len(none.reward_rows.value) == 0
    assert (none.epoch, none.n_seen) == (1, 200)


def test_refit_leaves_the_old_model_alone_and_does_not_depend_on_threads(problem: Problem) -> None:
    f = problem.feedback(600)
    a, b = (treetop.refit(problem.model, f, treetop.Linear(threads=threads)) for threads in (1, 4))
    for name in ("start", "index", "value"):
        np.testing.assert_array_equal(getattr(a.reward_rows, name), getattr(b.reward_rows, name))
    assert problem.model.epoch == 0
    assert len(problem.model.reward_rows.value) == 0


def test_absolute_loss_reaches_the_twins_objective(problem: Problem) -> None:
    X, y = problem.X[:80].toarray().astype(float), np.random.default_rng(0).random(80)
    fitted = treetop.Linear(loss="absolute", tolerance=1e-6).fit(X, y)
    assert fitted.weights is not None
    w = fitted.weights.csr().toarray().ravel().astype(float)
    best = reference.objective(w, X, y, 2, 1.0)
    for scale in (1e-3, 1e-2):
        for seed in range(20):
            nearby = w + scale * np.random.default_rng(seed).normal(size=len(w))
            assert reference.objective(nearby, X, y, 2, 1.0) > best - 1e-6


def test_real_valued_rewards_are_learned(problem: Problem) -> None:
    f = problem.feedback(300)
    soft = treetop.Feedback(f.contexts, f.arms, f.nodes, f.rewards * 0.25 + 0.5)
    model = treetop.refit(problem.model, soft)
    view = treetop.Policy(beam=1000).explain(model, problem.X[0])
    assert 0.4 < view.score[view.score != 0].mean() < 0.8


def test_histories_add_up_and_a_shorter_one_is_warned_of(problem: Problem, learned: treetop.Model) -> None:
    f = problem.feedback(600)
    parts = [
        treetop.Feedback(f.contexts.slice(a, b), f.arms[a:b], f.nodes[a:b], f.rewards[a:b])
        for a, b in ((0, 100), (100, 600))
    ]
    whole = treetop.refit(problem.model, parts[0] + parts[1])
    np.testing.assert_array_equal(whole.reward_rows.value, learned.reward_rows.value)
    shown = treetop.Policy(k=2, explore=1).decide_batch(problem.model, problem.X[:3], seed=1)
    wider = f + treetop.Feedback.of(problem.X[:3], shown, np.ones((3, 2)))
    assert wider.arms.shape == (603, 5)
    assert (wider.arms[600:, 2:] == -1).all()
    assert not wider.observed[600:, 2:].any()
    with pytest.warns(UserWarning, match="the feedback has 100 rounds, the model has seen 600"):
        treetop.refit(learned, parts[0])


def test_schedules() -> None:
    assert treetop.Epochs.doubling().until(70) == [2, 4, 8, 16, 32, 64]
    assert treetop.Epochs.doubling(4096).until(8192) == [4096]
    assert treetop.Epochs.geometric(10, 1.1).until(16) == [10, 11, 13, 15]
    assert treetop.Epochs.linear(500).until(1600) == [500, 1000, 1500]
    assert treetop.Epochs.explicit([3, 7, 900]).until(100) == [3, 7]
    for wrong in ([], [5, 5], [0, 1]):
        with pytest.raises(ValueError, match="round"):
            treetop.Epochs.explicit(wrong)
    with pytest.raises(ValueError, match=r"factor is 1\.0"):
        treetop.Epochs.geometric(10, 1.0)
