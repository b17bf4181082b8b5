"""A zero, then the click: learning, evaluation and export take the click, and the log keeps both."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.in_memory import logged_feedback

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, PolicyConfig, RewardConfig
from treetop.bandit.evaluation import evaluate
from treetop.errors import RewardConflict
from treetop.log.transfer import export_log


def shop(place: Path, corrections: bool) -> Bandit:
    rewards = RewardConfig(corrections=corrections)
    config = Config(policy=PolicyConfig(k=2, explore=1), rewards=rewards)
    return Bandit.create(place / "shop", ["a", "b", "c"], np.eye(3), np.eye(3), config=config)


def test_the_click_counts_everywhere_and_the_zero_is_kept(tmp_path: Path) -> None:
    with shop(tmp_path, corrections=True) as bandit:
        for i in range(4):
            served = bandit.decide(np.ones(3), f"visit-{i}")
            bandit.reward(f"visit-{i}", dict.fromkeys(served.arms, 0.0))
        clicked = bandit.event("visit-1").event.arms[0]
        arm = bandit.snapshot.arms.ids[int(clicked)]
        bandit.reward("visit-1", {arm: 1.0})
        bandit.reward("visit-1", {arm: 0.0})  # a retry of the first changes nothing
        mark = bandit.log.seal("now")
        learned = logged_feedback(bandit.log, mark, bandit.snapshot.model, bandit.snapshot.arms, bandit.config)
        assert learned.rewards.sum() == learned.rewards[1, 0] == 1.0
        assert evaluate(bandit, ["beam=10"]).served.value == 0.25
        assert bandit.refit().rewards == 8
        export_log(bandit.log, tmp_path / "log.jsonl")
        records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        told = next(record for record in records if record.get("event_id") == "visit-1")
        assert told["rewards"][0] == 1.0
        assert [entry[:2] for entry in told["replaced"]] == [[0, 0.0]]


def test_without_the_setting_a_reward_stays(tmp_path: Path) -> None:
    with shop(tmp_path, corrections=False) as bandit:
        arm = bandit.decide(np.ones(3), "visit-1").arms[0]
        bandit.reward("visit-1", {arm: 0.0})
        with pytest.raises(RewardConflict, match="has the reward 0, not 1"):
            bandit.reward("visit-1", {arm: 1.0})


def test_where_rewards_may_be_negative_nothing_is_nothing(tmp_path: Path) -> None:
    """A slot that brings nothing is no find, and one without a reward counts as such."""
    config = Config(policy=PolicyConfig(k=2, explore=1), rewards=RewardConfig(low=-5, high=20))
    with Bandit.create(tmp_path / "shop", ["a", "b", "c"], np.eye(3), np.eye(3), config=config) as bandit:
        for i, value in enumerate((-5.0, 0.0, 10.0)):
            served = bandit.decide(np.ones(3), f"visit-{i}")
            bandit.reward(f"visit-{i}", {served.arms[0]: value})
        mark = bandit.log.seal("now")
        learned = logged_feedback(bandit.log, mark, bandit.snapshot.model, bandit.snapshot.arms, bandit.config)
        assert learned.rewards[:, 0].tolist() == [-0.25, 0.0, 0.5]
        # Each visit has a slot with its reward and one without, which brought nothing.
        assert evaluate(bandit, ["beam=10"]).served.value == pytest.approx((-5 + 0 + 10) / 3)
        bandit.refit()
