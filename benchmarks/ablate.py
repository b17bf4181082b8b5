"""Every part of treetop's learner switched off, all others on: `python benchmarks/ablate.py DATA ... [--out FILE]`.

Each row of the table is played as `treetop simulate DATA --learner treetop` would, but for one setting, with budgeted
exploration and, unless `--no-greedy`, greedy; the last row is the paper's, with IGW and greedy. Cells are means over
seeds. `--only`, `--scenario` and `--order` choose rows and streams; `--first-epoch` and `--factor` say when rows refit
that do not say it themselves. The file of `--out` keeps every run, and a run that is in it is not played again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from cells import Cells, table

from treetop.data.datasets import Dataset, load
from treetop.data.orders import ORDERS
from treetop.experiments.execute import Starter, execute
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings
from treetop.simulation.scenario import SCENARIOS

STREAM = ("data", "scenario", "order", "rounds", "first_epoch", "factor")  # what tells streams apart


@dataclass(frozen=True, eq=False)
class Row:
    """What is off: settings unlike those of the learner."""

    name: str
    words: str
    settings: dict[str, Any] = field(default_factory=dict)
    strategies: tuple[str, str] = ("budgeted", "greedy")
    scenarios: tuple[str, ...] = SCENARIOS  # in which it is not the same as everything on


def off(name: str, words: str, scenarios: tuple[str, ...] = SCENARIOS, **mechanisms: Any) -> Row:
    """A row with some of the learner's mechanisms set otherwise."""
    return Row(name, words, {"mechanisms": mechanisms}, scenarios=scenarios)


ROWS = (
    Row("none", "everything on"),
    off("start", "each arm from 0, without the pooled means", pool=False),
    off("arms", "routing ends at the leaf, as it was built", route_arms=False),
    off("rounds", "routing learns from labels alone", learn_routing=False),
    off("own", "no regressors of arms", own=False),
    off("weights", "components have their first weights", weigh=False),
    Row("labels", "labels not learned (`--cold`)", {"label_samples": False}),
    Row("both", "labels not learned, and each arm from 0", {"label_samples": False, "mechanisms": {"pool": False}}),
    Row("routes", "labels not learned, no regressors", {"label_samples": False, "mechanisms": {"own": False}}),
    Row("separate", "arms without labels among the others", {"separate_unlabelled": False}),
    off("means", "pooled means of labels and rounds", pool_rounds=True),
    Row("seldom", "refits at every factor of 1.2 from 1,024, as the service", {"first_epoch": 1024, "factor": 1.2}),
    off("steps", "every sample counts at once", growth=1.0),
    Row("doubling", "refits at every doubling from 4,096", {"first_epoch": 4096, "factor": 2.0}),
    off("moves", "arms whose rewards are found stay separate", move_arms=False),
    Row(
        "paper",
        "the paper's X-IGW",
        {"learner": "paper", "first_epoch": 4096, "factor": 2.0},
        strategies=("igw", "greedy"),
    ),
)


@dataclass(frozen=True, eq=False)
class Ground:
    """A dataset and what happens in its stream; rows share the trees of a seed where they are the same."""

    dataset: Dataset
    horizon: int | None = None
    scenario: str = "stationary"
    first_epoch: int | None = None  # None: as the learner has it
    factor: float | None = None
    order: str = ORDERS[0]

    @cached_property
    def starter(self) -> Starter:
        return Starter(self.dataset)

    @property
    def rounds(self) -> int:
        return self.dataset.sizes(None, self.horizon, None, self.order)[1]

    def play(self, row: Row, strategy: str, seed: int) -> RunRecord:
        """One run as `simulate` has it, but for what the row switches off."""
        common = {"learner": "treetop", "first_epoch": self.first_epoch, "factor": self.factor}
        stream = {"horizon": self.horizon, "scenario": self.scenario, "order": self.order}
        settings = Settings(strategy, **{**stream, **common, **row.settings})
        plan = Plan(self.dataset.name, (settings,), (seed,))
        return execute(None, plan, dataset=self.dataset, starter=self.starter)[0]


def play_all(
    cells: Cells, grounds: Sequence[Ground], seeds: Sequence[int], rows: Sequence[Row], strategies: int
) -> None:
    """Seed by seed over all grounds, so that the table is whole early; the first strategy of each row, or both."""
    for seed, ground in product(seeds, grounds):
        where = {
            "data": ground.dataset.name,
            "scenario": ground.scenario,
            "order": ground.order,
            "rounds": ground.rounds,
            "first_epoch": ground.first_epoch,
            "factor": ground.factor,
        }
        for row in (row for row in rows if ground.scenario in row.scenarios):
            for strategy in row.strategies[:strategies]:
                facts = {**where, "off": row.name, "strategy": strategy, "seed": seed}
                cells.play(facts, lambda: _measured(ground.play(row, strategy, seed)))  # noqa: B023


def _measured(played: RunRecord) -> dict[str, float]:
    return {"mean_reward": round(played.mean_reward, 6), "late_reward": round(played.late_reward, 6)}


def report(cells: Cells) -> str:
    """A row an idea; for every stream its strategy / greedy, and how far its strategy is from everything on.

    A mean over fewer seeds than the first row has says of which.
    """
    streams = list(dict.fromkeys(tuple(cell.get(name) for name in STREAM) for cell in cells.cells))
    heads, lines = ["off"], {row: [row.words] for row in ROWS if cells.found(off=row.name)}
    for stream in streams:
        words = [word for word in stream[1:3] if word not in (SCENARIOS[0], ORDERS[0], None)]
        heads += [" ".join([stream[0], *words]), "against the first row"]
        first = [_by_seed(cells, stream, ROWS[0], place) for place in range(2)]
        everything = first[0]
        for row, line in lines.items():
            played = [_by_seed(cells, stream, row, place) for place in range(2)]
            means = " / ".join(_mean(found, everything) for found, on in zip(played, first, strict=True) if on)
            line += [means, _against(played[0], everything) if row is not ROWS[0] else ""]
    about = (
        f"{data} {scenario} {order or ORDERS[0]}: {rounds:,} rounds"
        + (f", refits every {factor}-fold from {first:,}" if first else "")
        for data, scenario, order, rounds, first, factor in streams
    )
    return f"{table(heads, list(lines.values()))}\n\n{'; '.join(about)}."


def _by_seed(cells: Cells, stream: tuple[Any, ...], row: Row, place: int) -> dict[int, float]:
    where = dict(zip(STREAM, stream, strict=True))
    found = cells.found(**where, off=row.name, strategy=row.strategies[place])
    return {cell["seed"]: cell["mean_reward"] for cell in found}


def _mean(found: dict[int, float], everything: dict[int, float]) -> str:
    if not found:
        return "not played"
    mean = f"{statistics.fmean(found.values()):.3f}"
    return mean if found.keys() == everything.keys() else f"{mean} (seeds {', '.join(map(str, sorted(found)))})"


def _against(own: dict[int, float], everything: dict[int, float]) -> str:
    """Per cent more than with everything on: the mean over the seeds, the lowest and the highest."""
    parts = [100 * (own[seed] / everything[seed] - 1) for seed in own.keys() & everything.keys()]
    return f"{statistics.fmean(parts):+.2f} % ({min(parts):+.2f} to {max(parts):+.2f})" if parts else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="debian, a folder, synthetic:...; each with its own default sizes")
    parser.add_argument("--horizon", type=int, help="rounds; all rows once if not given")
    parser.add_argument(
        "--first-epoch", type=int, help="rounds before the first refit; as the learner has it if not given"
    )
    parser.add_argument("--factor", type=float, help="from one refit to the next")
    parser.add_argument("--scenario", choices=SCENARIOS, default=SCENARIOS[0])
    parser.add_argument("--order", choices=ORDERS, default=ORDERS[0])
    parser.add_argument("--no-greedy", action="store_true", help="the first strategy of each row alone")
    parser.add_argument("--only", choices=[row.name for row in ROWS], action="append", help="beside `none`; repeatable")
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 0, 1 and 2 if not given")
    parser.add_argument("--out", type=Path, default=Path("docs/results/ablation.json"))
    asked = parser.parse_args()
    cells = Cells.opened(asked.out, sys.argv)
    when = asked.first_epoch, asked.factor
    grounds = [Ground(load(name), asked.horizon, asked.scenario, *when, asked.order) for name in asked.data]
    rows = [row for row in ROWS if row.name in (asked.only or [row.name]) + ["none"]]
    play_all(cells, grounds, asked.seed or [0, 1, 2], rows, 1 if asked.no_greedy else 2)
    print(f"{report(cells)}\n\n{cells.about()}")


if __name__ == "__main__":
    main()
