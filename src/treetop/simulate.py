"""Bandit feedback from labelled data (Appendix "Implementation Details"): decide, reveal the chosen rewards, refit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treetop.datasets import Dataset, Stream
from treetop.learn import Epochs, Linear, refit
from treetop.model import Model
from treetop.tree import Tree
from treetop.types import Feedback, Floats, Ints, Rows, Singles

Progress = Callable[[int, float], None]  # rounds done, mean reward a round so far
BLOCK = 4096
CURVE_POINTS = 200


@dataclass(frozen=True, eq=False)
class Run:
    """What one strategy collected: mean reward a round, the curve of it, and the history to look at."""

    strategy: str
    seed: int
    mean_reward: float
    checkpoints: list[tuple[int, float]]
    seconds: float
    settings: dict[str, Any]
    model: Any
    feedback: Feedback
    explored: np.ndarray[Any, np.dtype[np.bool_]]

    def summary(self) -> dict[str, Any]:
        """The part that goes into JSON."""
        names = ("strategy", "seed", "mean_reward", "checkpoints", "seconds", "settings")
        return {name: getattr(self, name) for name in names}


def begin(dataset: Dataset, init: int, horizon: int, max_leaf: int, seed: int, **tree: Any) -> tuple[Stream, Model]:
    """The shuffled stream, and the model of epoch 0: the initialisation set gives tree and routing, nothing else."""
    stream = Stream.draw(dataset, init, horizon, seed)
    tree_seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
    built = Tree.from_labels(stream.X_init, stream.Y_init, max_leaf=max_leaf, seed=tree_seed, **tree)
    return stream, Model.initial(built, stream.X_init, stream.Y_init)


class Labels:
    """The reward of any (row, arm) of a label matrix, by binary search in the sorted list of its entries."""

    def __init__(self, Y: Rows) -> None:
        row = np.repeat(np.arange(len(Y), dtype=np.int64), np.diff(Y.start))
        self._keys = row * Y.columns + Y.index
        self._values, self._arms = Y.value, Y.columns

    def rewards(self, rows: Any, arms: Ints) -> Singles:
        """(n, k) rewards of the arms shown for rows; 0 where there is no label, NaN where there is no arm."""
        wanted = np.asarray(rows, np.int64)[:, None] * self._arms + np.maximum(arms, 0)
        at = np.minimum(np.searchsorted(self._keys, wanted), max(0, len(self._keys) - 1))
        found = np.where(self._keys[at] == wanted, self._values[at], 0) if len(self._keys) else np.zeros(arms.shape)
        return np.where(arms >= 0, found, np.nan).astype(np.float32)


def run(
    stream: Stream,
    model: Any,
    policy: Any,
    *,
    name: str = "",
    seed: int = 0,
    epochs: Epochs | None = None,
    regressor: Linear | None = None,
    progress: Progress | None = None,
) -> Run:
    """Plays the whole stream with one policy, starting from `model`; refits at the epochs' ends on all past feedback.

    `policy` and `model` are Policy and Model, or FlatPolicy and FlatModel.
    """
    began = time.perf_counter()
    horizon, k = len(stream.rows), policy.k
    labels = Labels(stream.dataset.Y)
    arms, nodes = np.full((horizon, k), -1, np.int32), np.full((horizon, k), -1, np.int32)
    rewards, explored = np.full((horizon, k), np.nan, np.float32), np.zeros((horizon, k), np.bool_)
    collected = np.zeros(horizon)
    refits = (epochs or Epochs.doubling(4096)).until(horizon)
    total = 0.0
    for first, end in zip([0, *refits], [*refits, horizon], strict=True):
        if first > 0:
            seen = Feedback(stream.X.head(first), arms[:first], nodes[:first], rewards[:first])
            model = refit(model, seen) if regressor is None else refit(model, seen, regressor)
        for a in range(first, end, BLOCK):
            b = min(a + BLOCK, end)
            d = policy.decide_batch(model, stream.X.slice(a, b), seed=seed, first_row=a)
            arms[a:b], nodes[a:b], explored[a:b] = d.arms, d.nodes, d.explored
            rewards[a:b] = labels.rewards(stream.rows[a:b], d.arms)
            collected[a:b] = np.nansum(rewards[a:b], axis=1)
            total += float(collected[a:b].sum())
            if progress:
                progress(b, total / b)
    return Run(
        name or type(policy.strategy).__name__.lower(), seed, total / horizon, _checkpoints(collected, refits),
        round(time.perf_counter() - began, 3), _settings(policy, refits, regressor), model,
        Feedback(stream.X, arms, nodes, rewards), explored,
    )  # fmt: skip


def _checkpoints(collected: Floats, refits: list[int]) -> list[tuple[int, float]]:
    """The progressive mean reward at evenly spaced rounds, at every refit and at the end."""
    n = len(collected)
    at = np.unique([*np.linspace(1, n, min(n, CURVE_POINTS)).astype(int), *refits, n])
    return [(int(t), round(float(m), 6)) for t, m in zip(at, np.cumsum(collected)[at - 1] / at, strict=True)]


def _settings(policy: Any, refits: list[int], regressor: Linear | None) -> dict[str, Any]:
    learner = regressor or Linear()
    return {
        "k": policy.k, "explore": policy.explore, "beam": getattr(policy, "beam", None),
        "parameters": asdict(policy.strategy) if hasattr(policy.strategy, "__dataclass_fields__") else {},
        "loss": learner.loss, "cost": learner.cost, "refits": refits,
    }  # fmt: skip
