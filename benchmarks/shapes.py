"""Shapes that nothing was tuned on: `python benchmarks/shapes.py [NAME ...] [--seeds N] [--out FILE]`.

Made-up sets of 6,000 to 120,000 arms with short and long contexts, flat and heavy-tailed popularity, each played with
default settings: the paper's X-IGW, treetop's learner with budgeted exploration and greedy, and the same without the
labels of the initialisation set. Some of them change half-way as well. The file of `--out` keeps every run, and a run
that is in it is not played again.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from cells import Cell, Cells, table

from treetop.arrays import Floats
from treetop.data.datasets import load
from treetop.experiments.execute import Starter, execute
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings
from treetop.simulation.scenario import SCENARIOS

SHORT, LONG = "nonzeros=8,labels=3", "nonzeros=200,labels=5"
FLAT, HEAVY = "zipf=0.3", "zipf=1.3"  # the middle, 1, is what other experiments have
# Played while the learner was still being changed: what they say of it is not quite impartial.
SEEN = {
    "6k short flat": f"synthetic:arms=6000,features=10000,rows=30000,{SHORT},{FLAT}",
    "6k long heavy": f"synthetic:arms=6000,features=30000,rows=30000,{LONG},{HEAVY}",
    "15k short heavy": f"synthetic:arms=15000,features=20000,rows=30000,{SHORT},{HEAVY}",
    "15k long flat": f"synthetic:arms=15000,features=50000,rows=20000,{LONG},{FLAT}",
    "40k short flat": f"synthetic:arms=40000,features=40000,rows=20000,{SHORT},{FLAT}",
    "40k long heavy": f"synthetic:arms=40000,features=80000,rows=20000,{LONG},{HEAVY}",
    "120k short heavy": f"synthetic:arms=120000,features=80000,rows=20000,{SHORT},{HEAVY}",
    "120k long flat": f"synthetic:arms=120000,features=120000,rows=20000,{LONG},{FLAT}",
}
# Played once, after the last change: other sizes, and each size with the other kind of contexts and popularity.
UNSEEN = {
    "6k short heavy": f"synthetic:arms=6000,features=12000,rows=30000,{SHORT},{HEAVY},seed=11",
    "20k short flat": f"synthetic:arms=20000,features=30000,rows=8000,{SHORT},{FLAT},seed=13",
    "60k short heavy": f"synthetic:arms=60000,features=50000,rows=8000,{SHORT},{HEAVY},seed=15",
    "120k short flat": f"synthetic:arms=120000,features=70000,rows=8000,{SHORT},{FLAT},seed=17",
    "6k long flat": f"synthetic:arms=6000,features=25000,rows=8000,{LONG},{FLAT},seed=12",
    "20k long heavy": f"synthetic:arms=20000,features=60000,rows=8000,{LONG},{HEAVY},seed=14",
    "60k long flat": f"synthetic:arms=60000,features=90000,rows=8000,{LONG},{FLAT},seed=16",
    "120k long heavy": f"synthetic:arms=120000,features=110000,rows=8000,{LONG},{HEAVY},seed=18",
}
SHAPES = UNSEEN | SEEN
CHANGING = ("6k short heavy", "20k short flat", "6k long heavy", "15k short heavy")
PLAYERS = {
    "X-IGW": Settings("igw"),
    "cold budgeted": Settings("budgeted", learner="treetop", label_samples=False),
    "budgeted": Settings("budgeted", learner="treetop"),
    "greedy": Settings("greedy", learner="treetop"),
}
COMPARED = ("budgeted", "greedy")  # where the stream changes


def players(scenario: str) -> dict[str, Settings]:
    names = PLAYERS if scenario == "stationary" else COMPARED
    return {name: replace(PLAYERS[name], scenario=scenario) for name in names}


def play_all(cells: Cells, shapes: Mapping[str, str], changing: Sequence[str], seeds: int) -> None:
    """First all shapes as they are, then the streams that change; players that have the same tree share it."""
    for seed, scenario, shape in product(range(seeds), SCENARIOS, shapes):
        if scenario == "stationary" or shape in changing:
            dataset = load(shapes[shape])
            starter = Starter(dataset)
            for name, settings in players(scenario).items():
                facts = {"shape": shape, "data": shapes[shape], "scenario": scenario, "player": name, "seed": seed}
                plan = Plan(shapes[shape], (settings,), (seed,))
                cells.play(facts, lambda: _measured(execute(None, plan, dataset=dataset, starter=starter)[0]))  # noqa: B023


def _measured(record: RunRecord) -> Cell:
    blocks = [int(block) if block == int(block) else block for block in record.blocks]
    return {"mean_reward": round(record.mean_reward, 6), "rounds": record.rounds, "blocks": blocks}


def report(cells: Cells, shapes: Mapping[str, str]) -> str:
    """A row a shape and what happens in it: what everybody earned, and how budgeted compares."""
    heads = ["shape", *PLAYERS, "budgeted over X-IGW", "budgeted over greedy", "its standard error"]
    lines = []
    for shape, scenario in product(shapes, SCENARIOS):
        if found := cells.found(shape=shape, data=shapes[shape], scenario=scenario):
            earned = {name: _mean([cell for cell in found if cell["player"] == name]) for name in PLAYERS}
            title = shape if scenario == "stationary" else f"{shape}, {scenario}"
            line = [title, *("" if mean is None else f"{mean:.3f}" for mean in earned.values())]
            lines.append([*line, *_compared(found, earned)])
    return table(heads, lines)


def _mean(found: Sequence[Cell]) -> float | None:
    return float(np.mean([cell["mean_reward"] for cell in found])) if found else None


def _compared(found: Sequence[Cell], earned: Mapping[str, float | None]) -> list[str]:
    """Per cent over X-IGW and over greedy, and the standard error of the latter, paired block by block."""
    budgeted, igw, greedy = (earned[name] for name in ("budgeted", "X-IGW", "greedy"))
    over_igw = f"{budgeted / igw - 1:+.0%}" if budgeted and igw else ""
    if not (budgeted and greedy):
        return [over_igw, "", ""]
    gaps = _gaps(found)
    error = 100 * gaps.std(ddof=1) * math.sqrt(len(gaps)) / _rounds(found) / greedy if len(gaps) > 1 else math.nan
    return [over_igw, f"{100 * (budgeted / greedy - 1):+.2f} %", f"{error:.2f} %"]


def _gaps(found: Sequence[Cell]) -> Floats:
    """Budgeted less greedy in every block of every seed that both have played."""
    blocks = {(cell["player"], cell["seed"]): np.array(cell["blocks"]) for cell in found}
    pairs = [(blocks[key], blocks["greedy", key[1]]) for key in blocks if key[0] == "budgeted"]
    return np.concatenate([mine - other for mine, other in pairs])


def _rounds(found: Sequence[Cell]) -> int:
    return sum(int(cell["rounds"]) for cell in found if cell["player"] == "budgeted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SHAPES)}; all of UNSEEN if none is given")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/results/shapes.json"))
    asked = parser.parse_args()
    if wrong := [name for name in asked.names if name not in SHAPES]:
        parser.error(f"no shape {wrong[0]!r}; it must be one of {', '.join(SHAPES)}")
    chosen = {name: SHAPES[name] for name in asked.names or UNSEEN}
    cells = Cells.opened(asked.out, sys.argv)
    play_all(cells, chosen, CHANGING, asked.seeds)
    print(f"{report(cells, chosen)}\n\n{cells.about()}")


if __name__ == "__main__":
    main()
