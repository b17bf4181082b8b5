"""Bandits whose learner has tiny windows, so that these bite: what they forget, and what retention deletes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from treetop.bandit import config as config_module
from treetop.bandit import forgetting, logged_history
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, PolicyConfig, SegmentConfig, TreeConfig
from treetop.bandit.forgetting import sum_up_before
from treetop.bandit.sealing import follow_deletions, segment_folder
from treetop.learning import component_weights, pooled_means, routing_samples, streamed_routing, windows
from treetop.learning.learners import make_learner
from treetop.learning.pooled import Pooled
from treetop.log.segments.manifest import Manifest

FEATURES, ARMS, WINDOW = 8, 12, 6
X = np.abs(np.random.default_rng(0).normal(size=(40, FEATURES))).astype(np.float32)
Y = np.eye(ARMS, dtype=np.float32)[np.arange(40) % 10]  # nobody knows the last two arms
CONFIG = Config(
    policy=PolicyConfig(k=4, explore=2),
    tree=TreeConfig(max_leaf=4),
    segments=SegmentConfig(wait_seconds=0.0, rounds=50, shard_arms=8),
)


def use_tiny_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six samples of an arm, twelve of a routing function, weights of components from 60 rounds, and means, curves,
    scales and maps from 64 to 127."""

    def tiny(*args: Any, **named: Any) -> Any:
        made = make_learner(*args, **named)
        return replace(made, window=WINDOW) if isinstance(made, Pooled) else made

    monkeypatch.setattr(config_module, "make_learner", tiny)
    for module in (routing_samples, streamed_routing, windows):
        monkeypatch.setattr(module, "WINDOW", 2 * WINDOW)
    for module in (component_weights, logged_history, forgetting):
        monkeypatch.setattr(module, "RECENT", 60)
    monkeypatch.setattr(pooled_means, "FITTED", 64)


def visits(bandit: Bandit, first: int, n: int) -> None:
    """Decisions with rewards of some slots, one of them late; some slots show arms that nobody knows."""
    for i in range(first, first + n):
        key = {"visitor": i % 25}
        served = bandit.decide(X[i * 7 % 40] * np.float32(1 + i % 3), f"visit-{i}", k=2 + i % 3, keys=key)
        bandit.reward(f"visit-{i}", {arm: float((i + j) % 4 == 0) for j, arm in enumerate(served.arms[:-1])})
        if i % 10 == 9 and i - 8 >= first:
            bandit.reward(
                f"visit-{i - 8}", {bandit.snapshot.arms.ids[int(bandit.event(f"visit-{i - 8}").event.arms[-1])]: 0.5}
            )


def manifest(bandit: Bandit) -> Manifest:
    found = segment_folder(bandit.folder).manifest()
    assert found is not None
    return found


def files(bandit: Bandit, model: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in bandit.folder.model_path(model).iterdir()}


def forget(bandit: Bandit, before: float) -> int:
    """As the service does."""
    now = bandit.snapshot
    sum_up_before(bandit.folder, bandit.log, bandit.config, now.model, now.arms, before, 4e9)
    deleted = 0
    while count := bandit.log.forget(before):
        deleted += count
    follow_deletions(bandit.folder, bandit.log)
    return deleted
