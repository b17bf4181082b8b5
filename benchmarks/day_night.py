"""Day and night in the context, in turns: `python benchmarks/day_night.py [--rounds 24000] [--block 2000] [--seed 0]`.

A stationary world whose popular arms pay less at night and are still the best (`../shared/worlds/day_night.py`, or the
file that --world names). A number is what a round brings by the truth; 1.75 is possible. Initialised from 2,000
labelled rows, k = 5, 3 explored, refits as `treetop simulate` has them, the default strategy and greedy.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

import treetop
from treetop.arrays import as_rows
from treetop.learning.refit import initial_fit

WORLD = Path(__file__).resolve().parents[2] / "shared" / "worlds" / "day_night.py"


def load_world(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("day_night", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"{path} is not there: --world names the file that makes days and nights")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.day_night


def play(day_night: Any, rounds: int, block: int, seed: int, strategy: treetop.Strategy) -> float:
    """What a round brings by the truth."""
    X_init, Y_init, _ = day_night(2000, 1, 77)
    X, Y, means = day_night(rounds, block, seed)
    first_X, first_Y = as_rows(X_init), as_rows(Y_init)
    data = treetop.Dataset("day and night", as_rows(X), as_rows(Y), first_X, first_Y)
    stream = treetop.Stream(data, first_X, first_Y, np.arange(len(X)), data.X)
    tree = treetop.Tree.from_labels_separated(X_init, Y_init, max_leaf=10)
    learner = treetop.Pooled(label_samples=treetop.LabelSamples.of(tree, X_init, Y_init))
    model = initial_fit(treetop.Model.initial(tree, X_init, Y_init), learner)
    learning = treetop.Learning(learner, treetop.Epochs.geometric(256, 1.05))
    played = treetop.run(stream, model, treetop.Policy(strategy=strategy), learning=learning, seed=seed)
    return float(np.take_along_axis(means, played.history.arms, axis=1).sum(axis=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24_000)
    parser.add_argument("--block", type=int, default=2000)
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 0, 1 and 2 if not given")
    parser.add_argument("--world", type=Path, default=WORLD)
    asked = parser.parse_args()
    day_night = load_world(asked.world)
    for name, strategy in (("default", treetop.Budgeted()), ("greedy", treetop.Greedy())):
        found = [play(day_night, asked.rounds, asked.block, seed, strategy) for seed in asked.seed or [0, 1, 2]]
        print(f"{name}: {', '.join(f'{value:.3f}' for value in found)}; mean {np.mean(found):.3f}", flush=True)


if __name__ == "__main__":
    main()
