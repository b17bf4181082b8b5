"""Half and twice of every constant of treetop's learner: `python benchmarks/constants.py DATA ... [--out FILE]`.

Every set is played as `treetop simulate DATA --learner treetop --init 5000 --max-leaf 10` plays it, with refits as the
service has them, once as it is and once for each other value of each constant. Constants of what is found among arms
without labels are tried on `--scenario half-init` of the first set. A number is the mean reward over the whole stream,
as per cent above or below the first row. The file of `--out` keeps every run; what is in it is not played again.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cells import Cells, table

from treetop.data.datasets import Dataset, load
from treetop.experiments.execute import Starter, execute
from treetop.experiments.settings import Plan, Settings
from treetop.policy.budgeted import Budgeted

INIT, MAX_LEAF = 5000, 10


@dataclass(frozen=True)
class Constant:
    """One constant and its other values; `where` is a module of treetop, `mechanisms` or `strategy`."""

    where: str
    name: str
    values: tuple[Any, ...]
    unlabelled: bool = False  # matters where half of the arms have no label


CONSTANTS = (
    Constant("learning.arm_routing", "GROWTH", (1.1, 1.4)),
    Constant("learning.routing_samples", "NEGLIGIBLE", (0.025, 0.1)),
    Constant("learning.routing_samples", "COST", (0.5, 2.0)),
    Constant("learning.arm_routing", "HELD_OUT_TOLERANCE", (0.15, 0.6)),
    Constant("learning.pooled", "LABELLED_COST", (0.05, 0.2)),
    Constant("learning.component_weights", "FIRST", ((1.0, 0.375), (1.0, 1.5))),
    Constant("learning.component_weights", "FORCE", (500, 2000)),
    Constant("learning.component_weights", "HALF_LIFE", (2500, 10_000)),
    Constant("learning.pooled_means", "KNOTS", (33, 129)),
    Constant("mechanisms", "growth", (1.05, 1.2)),
    Constant("strategy", "budget", (0.0025, 0.01)),
    Constant("strategy", "paying_budget", (0.05, 0.2), unlabelled=True),
    Constant("learning.trials", "ALIKE", (0.15, 0.6), unlabelled=True),
    Constant("learning.trials", "FINDS", (1.5, 6), unlabelled=True),
    Constant("learning.placement", "VOTES", (8, 32), unlabelled=True),
    Constant("learning.pooled", "ANCHORS", (16, 64), unlabelled=True),
    Constant("learning.pooled", "DRAWS", (1500, 6000), unlabelled=True),
)
USERS = ("learning.pooled", "learning.arm_routing")  # modules that import constants by name


@contextmanager
def other(constant: Constant | None, value: Any) -> Iterator[dict[str, Any]]:
    """Settings with another value of a constant, which has it meanwhile where it is a module's."""
    if constant is None or constant.where in ("mechanisms", "strategy"):
        key = {"mechanisms": "mechanisms", "strategy": "parameters"}.get(constant.where) if constant else None
        yield {key: {constant.name: value}} if constant and key else {}
        return
    modules = [importlib.import_module(f"treetop.{name}") for name in dict.fromkeys((constant.where, *USERS))]
    before = {module: getattr(module, constant.name) for module in modules if hasattr(module, constant.name)}
    try:
        for module in before:
            setattr(module, constant.name, value)
        yield {}
    finally:
        for module, old in before.items():
            setattr(module, constant.name, old)


def play_all(cells: Cells, sets: Sequence[Dataset], horizon: int, seeds: Sequence[int]) -> None:
    starters = {dataset.name: Starter(dataset) for dataset in sets}
    for seed in seeds:
        for scenario, constants, datasets in (
            ("stationary", [c for c in CONSTANTS if not c.unlabelled], sets),
            ("half-init", [c for c in CONSTANTS if c.unlabelled], sets[:1]),
        ):
            tried: list[tuple[Constant | None, Any]] = [(None, None)]
            tried += [(constant, value) for constant in constants for value in constant.values]
            for dataset in datasets:
                for constant, value in tried:
                    facts = {"data": dataset.name, "scenario": scenario, "rounds": horizon, "seed": seed}
                    facts |= {"constant": constant.name if constant else "", "value": str(value)}

                    def measure(
                        constant: Constant | None = constant,
                        value: Any = value,
                        dataset: Dataset = dataset,
                        scenario: str = scenario,
                        seed: int = seed,
                    ) -> dict[str, float]:
                        with other(constant, value) as more:
                            epochs = {"first_epoch": 1024, "factor": 1.2}
                            sizes = {"init": INIT, "max_leaf": MAX_LEAF, "horizon": horizon}
                            settings = Settings(
                                "budgeted", learner="treetop", scenario=scenario, **sizes, **epochs, **more
                            )
                            plan = Plan(dataset.name, (settings,), (seed,))
                            run = execute(None, plan, dataset=dataset, starter=starters[dataset.name])[0]
                        return {"mean_reward": round(run.mean_reward, 6)}

                    cells.play(facts, measure)


def report(cells: Cells) -> str:
    """A row a constant and value; what it changes in every stream, in per cent of the mean reward."""
    streams = list(dict.fromkeys((cell["data"], cell["scenario"]) for cell in cells.cells))
    rows = []
    for constant in CONSTANTS:
        now = getattr(
            Budgeted()
            if constant.where == "strategy"
            else importlib.import_module("treetop.learning.pooled").Mechanisms()
            if constant.where == "mechanisms"
            else importlib.import_module(f"treetop.{constant.where}"),
            constant.name,
        )
        for value in constant.values:
            row = [f"`{constant.name}`", str(now), str(value)]
            for data, scenario in streams:
                changes = [
                    100 * (cell["mean_reward"] / plain[0]["mean_reward"] - 1)
                    for cell in cells.found(data=data, scenario=scenario, constant=constant.name, value=str(value))
                    if (plain := cells.found(data=data, scenario=scenario, constant="", seed=cell["seed"]))
                ]
                row.append(f"{statistics.fmean(changes):+.2f} %" if changes else "")
            rows.append(row)
    names = [data if scenario == "stationary" else f"{data} {scenario}" for data, scenario in streams]
    return table(["constant", "now", "instead", *names], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--horizon", type=int, default=20_000)
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 31 if not given")
    parser.add_argument("--out", type=Path, default=Path("docs/results/constants.json"))
    asked = parser.parse_args()
    cells = Cells.opened(asked.out, sys.argv)
    play_all(cells, [load(name) for name in asked.data], asked.horizon, asked.seed or [31])
    print(f"{report(cells)}\n\n{cells.about()}")


if __name__ == "__main__":
    main()
