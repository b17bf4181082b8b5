"""A small bandit whose log says how good candidates are, and the truth about that."""

from pathlib import Path
from typing import Any

import numpy as np

import treetop
from helpers.problems import topics
from helpers.running import settings, small_bandit
from treetop import Bandit, PolicyConfig

X, Y = topics(n=2000)
TRUTH = 0.8 * Y.toarray() + 0.05  # the chance of a click
EPSILON = {"epsilon": 0.5}


def judged_bandit(folder: Path, strategy: str = "epsilon", k: int = 2, **parameters: Any) -> Bandit:
    given = parameters or (EPSILON if strategy == "epsilon" else {})
    policy = PolicyConfig(k=k, explore=k, beam=4, strategy=strategy, parameters=given)
    return Bandit.open(small_bandit(folder / "shop", X, Y, config=settings(policy=policy)))


def visit(bandit: Bandit, n: int, first: int = 0, rewards: bool = True, **request: Any) -> None:
    rng = np.random.default_rng(first)
    for i in range(first, first + n):
        row = 300 + i % 1700
        served = bandit.decide(X[row], f"visit-{i}", **request)
        if rewards:
            clicks = {arm: float(rng.random() < TRUTH[row, min(59, int(str(arm)[1:]))]) for arm in served.arms}
            bandit.reward(f"visit-{i}", clicks)


def true_value(bandit: Bandit, policy: treetop.Policy, n: int) -> float:
    """What a policy earns on average on the first n visits, by the truth and many draws."""
    rows = 300 + np.arange(n) % 1700
    found = []
    for seed in range(20):
        shown = policy.decide_batch(bandit.snapshot.model, X[rows], seed=seed)
        found.append(TRUTH[rows[:, None], shown.arms].sum(axis=1).mean())
    return float(np.mean(found))
