"""What exploration has cost, by the log: against what the twin says it costs where scores are true."""

import math
from typing import Any

import numpy as np
import pytest
from helpers.budgeted import Twin

from treetop import Budgeted, Candidates, _core
from treetop.log.greedy_slates import greedy_weights, spent_error, spent_reward, spent_share
from treetop.policy.draws import choose

SCORE = np.array([0.6, 0.5, 0.4, 0.3, 0.2, 0.1], np.float32)


def spent(rewards: Any, propensities: Any, explored: Any, nodes: Any) -> float:
    reward, weight = rewards.sum(axis=1), greedy_weights(explored, propensities, nodes)
    return spent_share(len(reward), reward.sum(), weight.sum(), (reward * weight).sum())


def test_it_is_what_the_draws_give_up() -> None:
    n, k = 40_000, 3
    value = np.array([0, 0, 0, 1, 1, 2], np.float32)
    found = Candidates(np.zeros(6, np.bool_), np.arange(6, dtype=np.int32), np.ones(6), SCORE, value)
    strategy = Budgeted(budget=0.05, evaluation_share=0.05, evaluation_floor=0.5, paying_budget=0.05)
    drawn = [choose(found, k, 2, strategy, 9, key) for key in _core.row_keys(7, 0, n).tolist()]
    arms, propensities, explored = (np.array(part) for part in zip(*drawn, strict=True))
    rewards = (np.random.default_rng(0).random((n, k)) < SCORE[arms]).astype(float)
    twin = Twin(SCORE.astype(float), value.astype(float), np.zeros(6), k, 2, 0.05, 0.05, 0.5, 0.01, 0.05)
    truth = twin.cost(twin.decisions()) / twin.expected()
    assert 0.03 < truth < 0.05
    assert spent(rewards, propensities, explored, np.full((n, k), -1)) == pytest.approx(truth, abs=0.01)


def test_its_error_is_how_far_it_is_off() -> None:
    """Over many logs of visits of which one in ten explores; batches of a log are of any size."""
    rng, found, errors = np.random.default_rng(1), [], []
    for _ in range(400):
        explored = rng.random(600) < 0.1
        reward, weight = rng.binomial(5, np.where(explored, 0.1, 0.3)), np.where(explored, 0, 1 / 0.9)
        sums = np.stack([np.ones(600), reward, weight, reward * weight], axis=1)
        begins = np.append(0, np.arange(10, 600, 10)[rng.random(59) < 0.7])
        batches = np.add.reduceat(sums, begins, axis=0)
        errors.append(spent_error(batches))
        found.append(spent_reward(*batches.sum(axis=0)))
    assert np.mean(found) == pytest.approx(60, abs=2)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(found), rel=0.1)
    assert math.isnan(spent_error(np.ones((1, 4))))


def test_greedy_spends_nothing_and_pure_draws_cannot_say() -> None:
    rewards, certain, none = np.eye(3), np.ones((3, 3)), np.zeros((3, 3), np.bool_)
    arms = np.full((3, 3), -1)
    assert spent(rewards, certain, none, arms) == 0
    assert math.isnan(spent(rewards, certain / 2, ~none, arms))
    assert math.isnan(spent(rewards * 0, certain, none, arms))
    assert spent(rewards, certain / 10, none, arms + 8) == 0  # arms of nodes that were the best
