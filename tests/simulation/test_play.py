"""The loop: rewards revealed, refits at epoch ends, reproducible, and the paper's order of strategies on real data."""

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.datasets import made_up

import treetop
from treetop.demo import Demo
from treetop.simulation.play import Learning, Tracking, begin
from treetop.simulation.scenario import SCENARIOS, Scenario, SwappedRewards
from treetop.simulation.worlds import Labels


def test_labels_reveal_exactly_the_label_matrix() -> None:
    data = made_up(50)
    rng = np.random.default_rng(0)
    rows, arms = rng.integers(0, 50, 200), rng.integers(-1, 60, (200, 5)).astype(np.int32)
    got = Labels(data.Y).rewards(rows, arms)
    want = np.where(arms < 0, np.nan, data.Y.csr().toarray()[rows[:, None], np.maximum(arms, 0)])
    np.testing.assert_array_equal(got, want)


def test_a_run_is_reproducible_and_refits_at_epoch_ends() -> None:
    stream, model = begin(made_up(), init=200, horizon=1000, max_leaf=4, seed=0)
    learning = Learning(epochs=treetop.Epochs.doubling(100))
    seen: list[tuple[int, float]] = []
    tracking = Tracking(progress=lambda n, m: seen.append((n, m)))
    a, b = (treetop.run(stream, model, treetop.Policy(), learning=learning, tracking=tracking) for _ in range(2))
    assert a.settings["refits"] == [100, 200, 400, 800]
    assert (a.model.epoch, a.model.n_seen) == (4, 800)
    assert a.mean_reward == b.mean_reward == pytest.approx(np.nansum(a.feedback.rewards) / 1000)
    np.testing.assert_array_equal(a.feedback.arms, b.feedback.arms)
    assert a.checkpoints[-1] == (1000, round(a.mean_reward, 6))
    assert dict(a.checkpoints)[100] == pytest.approx(np.nansum(a.feedback.rewards[:100]) / 100, abs=1e-6)
    assert seen[-1] == (1000, a.mean_reward)


def test_the_loop_is_decide_and_refit_and_nothing_else() -> None:
    """The same epochs by hand."""
    stream, model = begin(made_up(), init=200, horizon=300, max_leaf=4, seed=1)
    policy = treetop.Policy(strategy=treetop.Boltzmann())
    played = treetop.run(stream, model, policy, seed=5, learning=Learning(epochs=treetop.Epochs.explicit([120])))
    first = policy.decide_batch(model, stream.X.head(120), seed=5)
    np.testing.assert_array_equal(first.arms, played.feedback.arms[:120])
    rewards = Labels(stream.dataset.Y).rewards(stream.rows[:120], first.arms)
    learned = treetop.refit(model, treetop.Feedback(stream.X.head(120), first.arms, first.nodes, rewards))
    second = policy.decide_batch(learned, stream.X.slice(120, 300), seed=5, first_row=120)
    np.testing.assert_array_equal(second.arms, played.feedback.arms[120:])


def test_flat_policies_run_in_the_same_loop() -> None:
    stream, _ = begin(made_up(400), init=100, horizon=250, max_leaf=4, seed=0)
    learning = Learning(epochs=treetop.Epochs.linear(60))
    flat = treetop.run(stream, treetop.FlatModel(60, 40), treetop.FlatPolicy(), learning=learning)
    assert flat.model.epoch == 4
    assert flat.exploration_cost != 0
    late = np.nansum(flat.feedback.rewards[-60:]) / 60
    assert late > np.nansum(flat.feedback.rewards[:60]) / 60


def test_a_first_epoch_beyond_the_horizon_plays_the_start_alone() -> None:
    stream, model = begin(made_up(), init=200, horizon=300, max_leaf=4, seed=0)
    for first in (300, 10**9):
        saved: list[treetop.History] = []
        played = treetop.run(
            stream,
            model,
            treetop.Policy(),
            learning=Learning(epochs=treetop.Epochs.doubling(first)),
            tracking=Tracking(save=saved.append),
        )
        assert (played.settings["refits"], saved, played.rounds) == ([], [], 300)
        assert played.model is model
        alone = treetop.Policy().decide_batch(model, stream.X, seed=0)
        np.testing.assert_array_equal(played.history.arms, alone.arms)


class Counted:
    """A policy that counts its decisions, by strategy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, int] = {}
        decide = treetop.Policy.decide_batch

        def counted(policy: treetop.Policy, model: Any, X: Any, *words: Any, **named: Any) -> Any:
            name = type(policy.strategy).__name__
            self.rows[name] = self.rows.get(name, 0) + len(X)
            return decide(policy, model, X, *words, **named)

        monkeypatch.setattr(treetop.Policy, "decide_batch", counted)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_exploration_costs_what_greedy_slates_of_the_same_models_bring_more(scenario: str) -> None:
    """By hand: the model of every epoch, its greedy slate, and what the world gives for it."""
    data, at = made_up(), [100, 250]
    change = Scenario.of(scenario, data.n_arms, 400, 1)
    stream, model = begin(data, 200, 400, 4, 1, change)
    policy = treetop.Policy(k=4, explore=2, beam=3)
    learning, environment = Learning(epochs=treetop.Epochs.explicit(at)), treetop.Environment(scenario=change)
    played = treetop.run(stream, model, policy, seed=1, learning=learning, environment=environment)
    labels = Labels(data.Y)
    world = SwappedRewards(labels, change) if change else labels
    greedy, past = replace(policy, strategy=treetop.Greedy()), played.history
    for a, b in pairwise([0, 100, 200, 250, 400]):  # the change is at 200
        if a in at:
            model = treetop.refit(model, past.feedback(stream.X, a, (0, 1), change.appeared(a) if change else None))
        eligible = change.eligible(a) if change else None
        slate = greedy.decide_batch(model, stream.X.slice(a, b), seed=1, first_row=a, eligible=eligible)
        brought = np.nansum(world.rewards(stream.rows[a:b], slate.arms, a), axis=1)
        np.testing.assert_array_equal(past.greedy_rewards[a:b], brought)
    assert played.exploration_cost == pytest.approx(past.greedy_rewards.mean() - played.mean_reward)
    assert played.exploration_cost != 0
    assert played.summary()["exploration_cost"] == played.exploration_cost


def test_greedy_costs_nothing_and_decides_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, model = begin(made_up(), init=200, horizon=300, max_leaf=4, seed=0)
    learning = Learning(epochs=treetop.Epochs.doubling(64))
    for policy, rows in (
        (treetop.Policy(strategy=treetop.Greedy()), {"Greedy": 300}),
        (treetop.Policy(strategy=treetop.IGW(), explore=0), {"IGW": 300}),
        (treetop.Policy(strategy=treetop.IGW()), {"IGW": 300, "Greedy": 300}),
    ):
        with monkeypatch.context() as patch:
            counted = Counted(patch)
            played = treetop.run(stream, model, policy, learning=learning)
        assert counted.rows == rows
        assert (played.exploration_cost == 0.0) == (len(rows) == 1)
        np.testing.assert_array_equal(np.isnan(played.history.rewards), False)
        if len(rows) == 1:
            np.testing.assert_array_equal(played.history.greedy_rewards, played.history.collected())


def test_the_seconds_of_a_run_leave_the_greedy_slates_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, model = begin(made_up(), init=200, horizon=300, max_leaf=4, seed=0)
    decide = treetop.Policy.decide_batch

    def slow(policy: treetop.Policy, *words: Any, **named: Any) -> Any:
        if isinstance(policy.strategy, treetop.Greedy):
            time.sleep(0.5)
        return decide(policy, *words, **named)

    monkeypatch.setattr(treetop.Policy, "decide_batch", slow)
    began = time.perf_counter()
    played = treetop.run(stream, model, treetop.Policy())
    assert played.seconds <= time.perf_counter() - began - 0.49


def test_exploring_beats_greedy_on_the_bundled_set() -> None:
    demo = Demo.prepare(rounds=20_000)
    means = {name: demo.play(name).mean_reward for name in ("greedy", "epsilon", "boltzmann", "igw")}
    assert min(means["igw"], means["boltzmann"], means["epsilon"]) > 1.1 * means["greedy"]


def test_eurlex_reaches_the_known_rewards_early(eurlex: treetop.Dataset) -> None:
    """A tenth of the full run of docs/experiments.md: the strategies' order and level, well inside their spread."""
    stream, model = begin(eurlex, init=5000, horizon=15_000, max_leaf=10, seed=0)
    igw, boltzmann, epsilon, greedy = (
        treetop.run(stream, model, treetop.Policy(strategy=s)).mean_reward
        for s in (treetop.IGW(), treetop.Boltzmann(), treetop.EpsilonGreedy(), treetop.Greedy())
    )
    assert igw > 1.2
    assert boltzmann > 1.05
    assert epsilon > 1.05
    assert igw > 1.4 * greedy
