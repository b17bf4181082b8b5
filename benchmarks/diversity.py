"""What `diversity` and learned saturation bring where a slate's reward is no sum: right arms of one subject group earn
less and less.

    python benchmarks/diversity.py ../shared/data/tate [--init 5000] [--rows 5000] [--seed 0] [--out FILE.json]
    python benchmarks/diversity.py ../shared/data/tate --horizon 30000 [--less 0.3] [--seed 1] [--out FILE.json]

The groups are the topmost subjects of the set's own taxonomy (labels.json). The j-th right arm of a group in a slate
earns `less`^(j - 1). A model learns from labelled rows; then other rows are decided greedily with several weights. With
a horizon they are a stream instead, decided by the default strategy and learned from: refits at 1,024 rounds and 1.5
times as many each, without a bonus, with fixed ones, and with a saturation that refits learn. The file keeps the rows
of every call, and what is in it is not played again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cell, Cells, table

import treetop
from treetop.arrays import Floats, Ints, as_rows
from treetop.learning.label_samples import LabelSamples
from treetop.learning.pooled import Pooled
from treetop.learning.refit import initial_fit
from treetop.learning.routes import RouteCache
from treetop.learning.saturation import learned_saturation, unsaturated, with_saturation
from treetop.model.coverage import Coverage

WEIGHTS, LESS, LEARNED = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5), 0.3, -1.0
FIRST, FACTOR = 1024, 1.5


def subject_groups(folder: Path) -> list[int]:
    """The ancestor of each label below the root; a label without one is a group of its own."""
    said = json.loads((folder / "labels.json").read_text())
    parents = next(value for value in said.values() if isinstance(value, dict) and all(map(_whole, value.values())))
    roots = {parent for parent in parents.values() if str(parent) not in parents}

    def top(label: int) -> int:
        while str(label) in parents and parents[str(label)] not in roots:
            label = parents[str(label)]
        return label

    return [top(label) for label in said["ids"]]


def _whole(value: Any) -> bool:
    return isinstance(value, int)


def saturating(right: Any, groups: Ints, less: float = LESS) -> Floats:
    """(n, k): rewards of slots, given which are right and their groups."""
    earned = np.zeros(right.shape)
    for slot in range(right.shape[1]):
        above = (right[:, :slot] & (groups[:, :slot] == groups[:, slot : slot + 1])).sum(axis=1)
        earned[:, slot] = right[:, slot] * less**above
    return earned


class World:
    """Rows with what is right for each, groups of arms, and a model that has learned the first rows."""

    def __init__(self, folder: Path, init: int, seed: int, less: float) -> None:
        data = treetop.load(str(folder))
        self.X, self.Y, self.less, self.seed = data.X.csr(), data.Y.csr(), less, seed
        order = np.random.default_rng(seed).permutation(self.X.shape[0])
        first, self.later = order[:init], order[init:]
        tree = treetop.Tree.from_labels_separated(self.X[first], self.Y[first], max_leaf=10)
        model = treetop.Model.initial(tree, self.X[first], self.Y[first])
        self.samples = LabelSamples.of(tree, as_rows(self.X[first]), self.Y[first], beam=10)
        names = subject_groups(folder)
        self.number = np.unique(names, return_inverse=True)[1]
        model = initial_fit(model, Pooled(label_samples=self.samples))
        self.model = replace(model, coverage=Coverage.of_categories(names))

    def right(self, rows: Any, arms: Ints) -> Any:
        return np.asarray(self.Y[rows[:, None], arms].todense()) > 0

    def rewards(self, rows: Any, arms: Ints) -> Floats:
        return saturating(self.right(rows, arms), self.number[arms], self.less)

    def play(self, weight: float, horizon: int) -> tuple[Floats, float]:
        """The reward of every round of a stream, with a bonus or with LEARNED saturation; and that at the end."""
        bonus = max(0.0, weight)
        policy = treetop.Policy(5, 3, 10, treetop.Budgeted(), diversity=bonus)
        learner = Pooled(label_samples=self.samples, route_cache=RouteCache())
        model, history, earned, end = self.model, None, [np.zeros(0)], 0
        while end < horizon:
            begin, end = end, min(horizon, max(FIRST, int(end * FACTOR)))
            rows = self.later[begin:end]
            shown = policy.decide_batch(model, self.X[rows], seed=self.seed, first_row=begin)
            rewards = self.rewards(rows, shown.arms)
            earned.append(rewards.sum(axis=1))
            today = treetop.Feedback.of(self.X[rows], shown, rewards)
            history = today if history is None else history + today
            found = learned_saturation(model, history) if weight == LEARNED else 0.0
            model = treetop.refit(with_saturation(model, found), unsaturated(model, history), learner)
        assert model.coverage is not None
        return np.concatenate(earned), model.coverage.saturation


def streams(world: World, horizon: int) -> Cell:
    rows: list[list[str]] = []
    without, last = np.zeros(0), slice(horizon * 4 // 5, None)
    for weight in (0.0, 0.02, 0.05, LEARNED):
        values, found = world.play(weight, horizon)
        without = values if weight == 0 else without
        name = f"learned: {found:g}" if weight == LEARNED else f"diversity {weight:g}"
        numbers = [f"{values.mean():.3f}", _against(values, without), f"{values[last].mean():.3f}"]
        rows.append([name, *numbers, _against(values[last], without[last])])
    heads = ["", "saturating reward", "against 0", "last fifth", "against 0"]
    return {"mean_reward": float(without.mean()), "heads": heads, "table": rows}


def _against(values: Floats, others: Floats) -> str:
    """The difference in per cent, with 95 % of the normal approximation."""
    more = 100 * (values - others) / others.mean()
    return f"{more.mean():+.2f} % +- {1.96 * more.std() / np.sqrt(len(more)):.2f}"


def greedily(world: World, count: int) -> Cell:
    later, rows, without = world.later[:count], [], np.zeros(count)
    for weight in WEIGHTS:
        policy = treetop.Policy(5, 0, 10, treetop.Greedy(), diversity=weight)
        shown = policy.decide_batch(world.model, world.X[later], seed=1)
        different = np.mean([len(set(row)) for row in world.number[shown.arms].tolist()])
        values = world.rewards(later, shown.arms).sum(axis=1)
        without = values if weight == 0 else without
        more = values - without
        error = 1.96 * more.std() / np.sqrt(len(more))
        right = world.right(later, shown.arms).sum(axis=1).mean()
        numbers = f"{values.mean():.3f}", f"{more.mean():+.3f} +- {error:.3f}", f"{right:.3f}"
        rows.append([f"{weight:g}", *numbers, f"{different:.2f}"])
    heads = ["diversity", "saturating reward", "against 0", "right arms", "groups shown"]
    return {"mean_reward": float(without.mean()), "heads": heads, "table": rows}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--init", type=int, default=5_000)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--less", type=float, default=LESS)
    parser.add_argument("--horizon", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(argv[1:])
    cells = Cells.opened(asked.out, argv)
    length = {"horizon": asked.horizon} if asked.horizon else {"rows": asked.rows}
    facts = {"set": asked.folder.name, "init": asked.init, "less": asked.less, "seed": asked.seed, **length}

    def measure() -> Cell:
        world = World(asked.folder, asked.init, asked.seed, asked.less)
        return streams(world, asked.horizon) if asked.horizon else greedily(world, asked.rows)

    cells.play(facts, measure)
    for cell in cells.found(**facts):
        print(table(cell["heads"], cell["table"]))
    print(cells.about())


if __name__ == "__main__":
    main(sys.argv)
