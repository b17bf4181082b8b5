"""What exploration has cost, by the log: against what the twin says it costs where scores are true."""

import math

import numpy as np
import pytest
from helpers.budgeted import Twin

from treetop import Budgeted, Candidates, _core
from treetop.learning.exploration_spent import exploration_spent
from treetop.policy.draws import choose

SCORE = np.array([0.6, 0.5, 0.4, 0.3, 0.2, 0.1], np.float32)


def test_it_is_what_the_draws_give_up() -> None:
    n, k = 20_000, 3
    value = np.array([0, 0, 0, 1, 1, 2], np.float32)
    found = Candidates(np.zeros(6, np.bool_), np.arange(6, dtype=np.int32), np.ones(6), SCORE, value)
    strategy = Budgeted(budget=0.05, evaluation_share=0.05, evaluation_floor=0.5, paying_budget=0.05)
    drawn = [choose(found, k, 2, strategy, 9, key) for key in _core.row_keys(7, 0, n).tolist()]
    arms, propensities, explored = (np.array(part) for part in zip(*drawn, strict=True))
    rewards = (np.random.default_rng(0).random((n, k)) < SCORE[arms]).astype(float)
    twin = Twin(SCORE.astype(float), value.astype(float), np.zeros(6), k, 2, 0.05, 0.05, 0.5, 0.01, 0.05)
    spent = exploration_spent(rewards, propensities, explored, np.full((n, k), -1))
    truth = twin.cost(twin.decisions()) / twin.expected()
    assert 0.03 < truth < 0.05
    assert 0 < spent.error < 0.005
    assert spent.share == pytest.approx(truth, abs=4 * spent.error)
    assert spent.events == n


def test_greedy_spends_nothing_and_pure_draws_cannot_say() -> None:
    rewards, certain, none = np.eye(3), np.ones((3, 3)), np.zeros((3, 3), np.bool_)
    arms = np.full((3, 3), -1)
    assert exploration_spent(rewards, certain, none, arms).share == 0
    assert math.isnan(exploration_spent(rewards, certain / 2, ~none, arms).share)
    assert math.isnan(exploration_spent(rewards * 0, certain, none, arms).share)
    unseen = np.where(np.arange(3)[:, None] == 0, np.nan, rewards)
    assert exploration_spent(unseen, certain, none, arms).events == 2
    assert exploration_spent(rewards, certain / 10, none, arms + 8).share == 0  # arms of nodes that were the best
