"""The streams that the learner is judged by: `python benchmarks/streams.py EURLEX57K TATE debian [--only NAME] ...`.

Each is played as `treetop simulate DATA --learner treetop --init 5000 --max-leaf 10` plays it (k = 5, 3 explored, beam
10), refits and all: the start alone, one pass, 154,490 rounds, `--cold`, file order, blocks and their rows shuffled,
half of the arms without labels, new arms half-way; with the default strategy and with greedy but at the start. The
file of `--out` keeps every run, and a run of the same commit that is in it is not played again. The table at the end
has means over seeds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cells, table

from treetop.arrays import as_rows
from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments.execute import Starter, execute
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings
from treetop.learning.learners import DEFAULT_STRATEGY
from treetop.model.model import Model
from treetop.simulation.scenario import Scenario

INIT, MAX_LEAF, LONG = 5000, 10, 154_490


@dataclass(frozen=True)
class Named:
    """A stream of one or of all sets: `rounds`, or one pass if None; `what` is the number that counts of it."""

    name: str
    rounds: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    strategies: tuple[str, ...] = ("default",)
    what: str = "mean_reward"
    every_set: bool = False  # or the first alone
    shuffled: bool = False  # the same rows, in random order


BOTH = ("default", "greedy")
STREAMS = (
    Named("start", 8000, {"first_epoch": 10**9}, every_set=True),
    Named("pass", None, strategies=BOTH, what="late_reward", every_set=True),
    Named("file", 40_000, {"order": "file"}, BOTH),
    Named("blocks", 40_000, {"order": "blocks"}, BOTH),
    Named("rows of blocks, shuffled", 40_000, {"order": "blocks"}, shuffled=True),
    Named("half-init", LONG, {"scenario": "half-init"}, BOTH),
    Named("new-arms", LONG, {"scenario": "new-arms"}, BOTH),
    Named("cold", LONG, {"label_samples": False}, BOTH),
    Named("long", LONG, strategies=BOTH),
)


class ShuffledStarter(Starter):
    """The same streams with their rounds in random order: what is left of a difference is the order's."""

    def __call__(self, settings: Settings, seed: int) -> tuple[Stream, Model, Scenario | None]:
        stream, model, scenario = super().__call__(settings, seed)
        order = np.random.default_rng(seed).permutation(len(stream.rows))
        return replace(stream, rows=stream.rows[order], X=as_rows(stream.X.csr()[order])), model, scenario


def play(dataset: Dataset, starter: Starter, stream: Named, strategy: str, seed: int) -> RunRecord:
    name = DEFAULT_STRATEGY["treetop"] if strategy == "default" else strategy
    sizes = {"init": INIT, "max_leaf": MAX_LEAF, "horizon": stream.rounds}
    settings = Settings(name, learner="treetop", **sizes, **stream.settings)
    return execute(None, Plan(dataset.name, (settings,), (seed,)), dataset=dataset, starter=starter)[0]


def measured(run: RunRecord) -> dict[str, Any]:
    numbers = {name: round(getattr(run, name), 6) for name in ("mean_reward", "late_reward", "exploration_cost")}
    return {**numbers, "rounds": run.rounds, "found_arms": run.found_arms, "found_reward": run.found_reward}


def report(cells: Cells) -> str:
    """A row a stream and set: the mean over seeds, the seeds, what exploring cost, and how far it is from greedy."""
    rows = []
    for stream in STREAMS:
        for data in dict.fromkeys(cell["data"] for cell in cells.found(stream=stream.name)):
            found = {
                strategy: {c["seed"]: c for c in cells.found(stream=stream.name, data=data, strategy=strategy)}
                for strategy in BOTH
            }
            default, greedy = found["default"], found["greedy"]
            if not default:
                continue
            values = [cell[stream.what] for cell in default.values()]
            costs = [100 * cell["exploration_cost"] / cell["mean_reward"] for cell in default.values()]
            against = [
                100 * (default[seed]["mean_reward"] / greedy[seed]["mean_reward"] - 1)
                for seed in default.keys() & greedy.keys()
            ]
            rows.append(
                [
                    f"{stream.name}, {data}" + (", last fifth" if stream.what == "late_reward" else ""),
                    f"{next(iter(default.values()))['rounds']:,}",
                    f"{statistics.fmean(values):.3f}",
                    ", ".join(f"{value:.3f}" for value in values),
                    f"{statistics.fmean(costs):.2f} %",
                    f"{statistics.fmean(against):+.2f} %" if against else "",
                ]
            )
    return table(["stream", "rounds", "mean", "seeds", "exploration cost", "mean reward against greedy"], rows)


def play_all(
    cells: Cells, names: Sequence[str], streams: Sequence[Named], strategies: Sequence[str], seeds: Sequence[int]
) -> None:
    """Stream by stream and seed by seed, so that the table is whole early; a tree is made once for both strategies."""
    datasets = [load(name) for name in names]
    for stream in streams:
        start = ShuffledStarter if stream.shuffled else Starter
        sets = [(dataset, start(dataset)) for dataset in (datasets if stream.every_set else datasets[:1])]
        for seed in seeds:
            for dataset, starter in sets:
                for strategy in (each for each in stream.strategies if each in strategies):
                    facts = {"stream": stream.name, "data": dataset.name, "strategy": strategy, "seed": seed}
                    run = lambda: measured(play(dataset, starter, stream, strategy, seed))  # noqa: B023, E731
                    cells.play({**facts, "commit": cells.commit}, run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="the first is played in every stream, all of them in start and pass")
    parser.add_argument("--only", choices=[stream.name for stream in STREAMS], action="append", help="repeatable")
    parser.add_argument("--strategy", choices=BOTH, action="append", help="repeatable; both if not given")
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 31, 32 and 33 if not given")
    parser.add_argument("--out", type=Path, default=Path("docs/results/streams.json"))
    asked = parser.parse_args()
    cells = Cells.opened(asked.out, sys.argv)
    streams = [stream for stream in STREAMS if stream.name in (asked.only or [stream.name])]
    play_all(cells, asked.data, streams, asked.strategy or BOTH, asked.seed or [31, 32, 33])
    print(f"{report(cells)}\n\n{cells.about()}")


if __name__ == "__main__":
    main()
