"""Half and twice of every constant of treetop's learner: `python benchmarks/constants.py DATA ... [--out FILE]`.

Every set is played as `treetop simulate DATA --learner treetop --init 5000 --max-leaf 10` plays it, with refits as the
service has them, once as it is and once for each other value of each constant. Constants that matter elsewhere are
tried there, on the first set: in file order, `--cold`, with half of the arms unknown or new arms half-way (twice as
many rounds). A number is the mean reward over the whole stream, in per cent above or below that of the value of now.
The file of `--out` keeps every run; what is in it is not played again.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cells import Cells, table

from treetop.data.datasets import Dataset, load
from treetop.experiments.execute import execute
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings
from treetop.learning import learners, routing_samples
from treetop.learning.pooled import Mechanisms, Pooled
from treetop.policy.budgeted import Budgeted

INIT, MAX_LEAF = 5000, 10
REFITS = {"first_epoch": 1024, "factor": 1.2}  # as the service has them


@dataclass(frozen=True)
class Constant:
    """One constant and its other values; `where` is a module of treetop, `mechanisms`, `strategy`, `learner`, or `run`:
    when refits come."""

    where: str
    name: str
    values: tuple[Any, ...]
    stream: str = "stationary"  # in which it matters: of all sets, any other of the first set alone

    @property
    def now(self) -> Any:
        if self.where == "strategy":
            return getattr(Budgeted(), self.name)
        if self.where == "run":
            return REFITS[self.name]
        if self.where == "mechanisms":
            return getattr(Mechanisms(), self.name)
        if self.where == "learner":
            return Pooled.__dataclass_fields__[self.name].default
        return getattr(importlib.import_module(f"treetop.{self.where}"), self.name)


STREAMS = {  # settings and, in parts of the horizon, rounds
    "stationary": ({}, 1),
    "file order": ({"order": "file"}, 1),
    "cold": ({"label_samples": False}, 1),
    "half-init": ({"scenario": "half-init"}, 2),
    "new-arms": ({"scenario": "new-arms"}, 2),
}
CONSTANTS = (
    Constant("learning.arm_routing", "GROWTH", (1.1, 1.4)),
    Constant("learning.arm_routing", "TOLERANCES", ((0.05, 0.15), (0.2, 0.6))),
    Constant("learning.routing_samples", "NEGLIGIBLE", (0.025, 0.1)),
    Constant("learning.routing_samples", "COST", (0.5, 2.0)),
    Constant("learning.routing_samples", "NEVER", (-0.5, -2.0)),
    Constant("learning.routing_samples", "ELSEWHERE", (128, 512)),
    Constant("learning.arm_routing", "PATH_WEIGHT", (0.25, 1.0)),
    Constant("tree.tree", "FAMILY", (320, 1280)),
    Constant("learning.label_samples", "HARD", (24, 96)),
    Constant("learning.label_samples", "EASY", (8, 32)),
    Constant("learning.pooled_means", "KNOTS", (33, 129)),
    Constant("learning.pooled", "LABELLED_COST", (0.05, 0.2)),
    Constant("learning.pooled", "NEGLIGIBLE", (0.001, 0.004)),
    Constant("learner", "tolerance", (0.05, 0.2)),
    Constant("mechanisms", "growth", (1.05, 1.2)),
    Constant("learning.component_weights", "FIRST", ((1.0, 0.025), (1.0, 0.1))),
    Constant("learning.component_weights", "FORCE", (500, 2000)),
    Constant("learning.component_weights", "HALF_LIFE", (2500, 10_000)),
    Constant("learning.component_weights", "RECENT", (160_000, 640_000)),
    Constant("learning.component_weights", "LARGEST", ((5.0, 0.5, 5.0), (20.0, 2.0, 20.0))),
    Constant("learning.samples", "FAR", (2.0, 8.0)),
    Constant("learner", "window", (4096, 16_384)),
    Constant("run", "first_epoch", (512, 2048)),
    Constant("run", "factor", (1.1, 1.4)),
    Constant("strategy", "budget", (0.0025, 0.01)),
    Constant("strategy", "evaluation_share", (0.001, 0.004)),
    Constant("strategy", "evaluation_floor", (0.25, 1.0)),
    Constant("learning.component_weights", "FORCE", (500, 2000), "file order"),
    Constant("learning.component_weights", "HALF_LIFE", (2500, 10_000), "file order"),
    Constant("learning.routing_samples", "WINDOW", (512, 1024), "file order"),
    Constant("learning.pooled", "UNLABELLED_COST", (0.5, 2.0), "cold"),
    Constant("learning.component_weights", "UNLABELLED_FIRST", ((1.0, 0.375), (1.0, 1.5)), "cold"),
    Constant("tree.tree", "FAMILY", (320, 1280), "cold"),
    Constant("strategy", "paying_budget", (0.05, 0.2), "half-init"),
    Constant("strategy", "largest_chance", (0.45, 1.0), "half-init"),
    Constant("learning.trials", "ALIKE", (0.15, 0.6), "half-init"),
    Constant("learning.trials", "FINDS", (1.5, 6), "half-init"),
    Constant("learning.placement", "VOTES", (8, 32), "half-init"),
    Constant("learning.placement", "BEAM", (3, 10), "half-init"),
    Constant("learning.pooled", "ANCHORS", (16, 64), "half-init"),
    Constant("learning.pooled", "DRAWS", (1500, 6000), "half-init"),
    Constant("strategy", "new_arms_budget", (0.005, 0.02), "new-arms"),
    Constant("strategy", "new_arm_trials", (10, 40), "new-arms"),
)
SETTINGS = {"mechanisms": "mechanisms", "strategy": "parameters"}  # constants that settings of a run have
USERS = ("learning.pooled", "learning.arm_routing")  # modules that import constants by name


@contextmanager
def other(constant: Constant | None, value: Any) -> Iterator[dict[str, Any]]:
    """Settings with another value of a constant, which has it meanwhile where it is not a setting."""
    if constant is not None and constant.where == "run":
        yield {constant.name: value}
        return
    if constant is None or constant.where in SETTINGS:
        yield {SETTINGS[constant.where]: {constant.name: value}} if constant else {}
        return
    with ExitStack() as changed:
        if constant.where == "learner":
            changed.enter_context(patch.object(learners, "Pooled", partial(Pooled, **{constant.name: value})))
        elif (constant.where, constant.name) == ("learning.routing_samples", "NEGLIGIBLE"):  # a default of `thresholds`
            changed.enter_context(patch.object(routing_samples.thresholds, "__defaults__", (value,)))
        else:
            now = constant.now
            for name in dict.fromkeys((constant.where, *USERS)):
                module = importlib.import_module(f"treetop.{name}")
                if getattr(module, constant.name, None) == now:  # not another one of that name
                    changed.enter_context(patch.object(module, constant.name, value))
        yield {}


def play(dataset: Dataset, stream: str, horizon: int, seed: int, constant: Constant | None, value: Any) -> RunRecord:
    more, parts = STREAMS[stream]
    sizes = {"init": INIT, "max_leaf": MAX_LEAF, "horizon": parts * horizon, **REFITS}
    with other(constant, value) as instead:
        settings = Settings("budgeted", learner="treetop", **{**sizes, **more, **instead})
        return execute(None, Plan(dataset.name, (settings,), (seed,)), dataset=dataset)[0]


def play_all(
    cells: Cells, sets: Sequence[Dataset], horizon: int, seeds: Sequence[int], constants: Sequence[Constant] = CONSTANTS
) -> None:
    for seed in seeds:
        for stream in dict.fromkeys(constant.stream for constant in constants):
            tried: list[tuple[Constant | None, Any]] = [(None, None)]
            tried += [
                (constant, value) for constant in constants if constant.stream == stream for value in constant.values
            ]
            for dataset in sets if stream == "stationary" else sets[:1]:
                for constant, value in tried:
                    facts = {
                        "data": dataset.name,
                        "stream": stream,
                        "rounds": STREAMS[stream][1] * horizon,
                        "seed": seed,
                    }
                    facts |= {
                        "where": constant.where if constant else "",
                        "constant": constant.name if constant else "",
                    }
                    run = lambda: play(dataset, stream, horizon, seed, constant, value)  # noqa: B023, E731
                    measure = lambda: {"mean_reward": round(run().mean_reward, 6)}  # noqa: B023, E731
                    cells.play({**facts, "value": str(value)}, measure)


def report(cells: Cells, constants: Sequence[Constant] = CONSTANTS) -> str:
    """A row a constant and stream: what each other value changes in every set, in per cent of the mean reward."""
    sets = list(dict.fromkeys(cell["data"] for cell in cells.cells))
    rows = []
    for constant in constants:
        instead = " / ".join(str(value) for value in constant.values)
        row = [f"`{constant.name}` ({constant.where})", constant.stream, str(constant.now), instead]
        row += [" / ".join(_changed(cells, constant, value, data) for value in constant.values) for data in sets]
        rows.append([cell if cell.strip(" /") else "" for cell in row])
    return table(["constant", "stream", "now", "instead", *(f"{data}, %" for data in sets)], rows)


def _changed(cells: Cells, constant: Constant, value: Any, data: str) -> str:
    """In per cent, over the seeds that were played with both."""
    where = {"data": data, "stream": constant.stream}
    changes = [
        100 * (cell["mean_reward"] / plain[0]["mean_reward"] - 1)
        for cell in cells.found(**where, where=constant.where, constant=constant.name, value=str(value))
        if (plain := cells.found(**where, rounds=cell["rounds"], constant="", seed=cell["seed"]))
    ]
    return f"{statistics.fmean(changes):+.2f}" if changes else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--horizon", type=int, default=20_000)
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 31 if not given")
    parser.add_argument("--only", choices=sorted({each.name for each in CONSTANTS}), action="append", help="repeatable")
    parser.add_argument("--out", type=Path, default=Path("docs/results/constants.json"))
    asked = parser.parse_args()
    cells = Cells.opened(asked.out, sys.argv)
    constants = [each for each in CONSTANTS if each.name in (asked.only or [each.name])]
    play_all(cells, [load(name) for name in asked.data], asked.horizon, asked.seed or [31], constants)
    print(f"{report(cells, constants)}\n\n{cells.about()}")


if __name__ == "__main__":
    main()
