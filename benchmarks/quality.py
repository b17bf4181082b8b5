"""What a stream was worth in labelled rows: `python benchmarks/quality.py DATA ... [--seed N] [--rows N,N] [--json F]`.

Each set is played as `treetop simulate DATA --learner treetop --init 5000 --max-leaf 10` plays it, twice: 8,000 rounds
without a refit (the start), and all rows once (the stream), of which the last fifth counts. Beside it stands what one
would run without a bandit: PECOS' XLinear, trained on rows of which every label is known. On the rows of the
initialisation set alone it is asked for the contexts of the start; with more rows, which are the initialisation set and
then the stream from its beginning, for those of the last fifth. Where treetop's last fifth lies in that curve, over the
logarithm of the rows, is what the stream was worth. `--only` plays parts. The file of `--json` keeps every number: what
PECOS did is not done again, nor what the same commit of treetop has played.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cell, Cells
from labelled import Pecos, Recommender, labelled_rows, last_fifth, worth_in_words
from rich import box
from rich.console import Console
from rich.table import Table

from treetop.arrays import Int64s, Ints, Rows, as_rows, check_int
from treetop.bench.peers import SETUP, runner
from treetop.bench.table import WIDTH
from treetop.cli.progress import bars
from treetop.data.datasets import INIT, Dataset, Stream, load
from treetop.experiments.execute import execute, fingerprint
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings, strategies_for
from treetop.simulation.worlds import Labels

K, EXPLORE, BEAM, MAX_LEAF = 5, 3, 10, 10
START = 8_000  # rounds without a refit
ROWS = (5_000, 10_000, 20_000, 40_000)
PARTS = ("start", "stream", "pecos")
NONE = "-"

Bars = Any  # what `treetop.cli.progress.bars` gives


@dataclass(frozen=True, eq=False)
class Experiment:
    """A set with its sizes. The stream of a seed is that of `treetop simulate`, the start is its beginning."""

    dataset: Dataset
    init: int
    rounds: int
    strategy: str

    @classmethod
    def of(cls, dataset: Dataset, init: int, horizon: int | None, strategy: str) -> Experiment:
        check_int("init", init, 1, dataset.init_rows)
        _, rounds, _ = dataset.sizes(init, horizon, MAX_LEAF)
        return cls(dataset, init, check_int("horizon", rounds, 1), strategies_for("treetop", [strategy])[0])

    @property
    def start(self) -> int:
        return min(START, self.rounds)

    @cached_property
    def facts(self) -> Cell:
        """What tells streams apart; the data by their contents."""
        sha256 = fingerprint(self.dataset)
        return {"data": self.dataset.name, "sha256": sha256, "init": self.init, "rounds": self.rounds}

    @cached_property
    def labels(self) -> Labels:
        return Labels(self.dataset.Y)

    def settings(self, part: str) -> Settings:
        """Of treetop's runs: a first refit beyond the horizon is none."""
        rounds, first = (self.start, self.start + 1) if part == "start" else (self.rounds, None)
        sizes = {"k": K, "explore": EXPLORE, "beam": BEAM, "max_leaf": MAX_LEAF, "init": self.init}
        return Settings(self.strategy, horizon=rounds, first_epoch=first, learner="treetop", **sizes)

    def play(self, part: str, seed: int, shown: Bars = None) -> RunRecord:
        plan = Plan(self.dataset.name, (self.settings(part),), (seed,))
        progress = (lambda _, total, done=0: shown(_title(self, part, seed), total, done)) if shown else None
        return execute(None, plan, progress, dataset=self.dataset, building=shown and shown.building)[0]

    def stream(self, seed: int, rounds: int) -> Stream:
        return Stream.draw(self.dataset, self.init, rounds, seed)

    def reward(self, rows: Int64s, arms: Ints) -> float:
        """Mean reward a round of the arms shown for these rows of the dataset."""
        return float(np.nansum(self.labels.rewards(rows, arms), dtype=np.float64) / len(rows))


def play_all(
    cells: Cells,
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    parts: Sequence[str],
    pecos: Callable[[Experiment, int], None],
    shown: Bars = None,
) -> None:
    """Seed by seed over all sets, so that the table is whole early."""
    for seed, experiment in product(seeds, experiments):
        for part in (part for part in ("start", "stream") if part in parts):
            facts = treetop_facts(cells, experiment, part) | {"seed": seed}
            cells.play(facts, partial(_played, experiment, part, seed, shown), _title(experiment, part, seed))
        if "pecos" in parts:
            pecos(experiment, seed)


def treetop_facts(cells: Cells, experiment: Experiment, part: str) -> Cell:
    """With the commit: another one plays again."""
    return {**experiment.facts, "part": part, "strategy": experiment.strategy, "commit": cells.commit}


def pecos_facts(experiment: Experiment, rows: int, part: str) -> Cell:
    """PECOS on so many rows, asked for the contexts of a part of the stream."""
    return {**experiment.facts, "part": f"pecos, {part}", "rows": rows}


def play_pecos(
    cells: Cells, experiment: Experiment, seed: int, rows: Sequence[int], model: Recommender, shown: Bars = None
) -> None:
    """On the rows of the initialisation set for the start, on each of `rows` for the last fifth; trained once each."""
    stream, start = (experiment.stream(seed, rounds) for rounds in (experiment.rounds, experiment.start))
    late = stream.rows[last_fifth(experiment.rounds)]
    for n in sorted({experiment.init, *rows}):
        asked = {"start": start.rows} if n == experiment.init else {}
        asked |= {"last fifth": late} if n in rows else {}
        missing = [part for part in asked if not cells.found(**pecos_facts(experiment, n, part), seed=seed)]
        labelled = labelled_rows(stream, n) if missing else None
        if labelled is None:
            continue
        _train(model, labelled, shown)
        for part in missing:
            title = f"{_title(experiment, part, seed)}, PECOS on {n:,} rows"
            facts = pecos_facts(experiment, n, part) | {"seed": seed}
            cells.play(facts, partial(_asked, experiment, model, asked[part]), title)


def _train(model: Recommender, labelled: tuple[Rows, Rows], shown: Bars) -> None:
    title = f"PECOS on {len(labelled[0]):,} rows"
    if shown:
        shown.building(title, 0, 1)
    model.train(*labelled)
    if shown:
        shown.building(title, 1, 1)


def _asked(experiment: Experiment, model: Recommender, rows: Int64s) -> Cell:
    contexts = as_rows(experiment.dataset.X.csr()[rows])
    return {"mean_reward": round(experiment.reward(rows, model.top(contexts, K)), 6)}


def _played(experiment: Experiment, part: str, seed: int, shown: Bars) -> Cell:
    record = experiment.play(part, seed, shown)
    rewards = {name: round(getattr(record, name), 6) for name in ("mean_reward", "late_reward")}
    return {**rewards, "refits": len(record.settings["refits"]), "checksum": record.checksum}


def _title(experiment: Experiment, part: str, seed: int) -> str:
    return f"{experiment.dataset.name} {part}, seed {seed}"


def summary(cells: Cells, experiment: Experiment, seeds: Sequence[int], rows: Sequence[int]) -> Cell:
    """A row of the table: rewards by seed, and what the stream was worth, over the seeds that have all of it."""

    def by_seed(facts: Cell, measured: str = "mean_reward") -> dict[int, float]:
        return {cell["seed"]: cell[measured] for cell in cells.found(**facts) if cell["seed"] in seeds}

    curve = {n: by_seed(pecos_facts(experiment, n, "last fifth")) for n in rows}
    late = by_seed(treetop_facts(cells, experiment, "stream"), "late_reward")
    return {
        "data": experiment.dataset.name,
        "rounds": experiment.rounds,
        "start": by_seed(treetop_facts(cells, experiment, "start")),
        "pecos_start": by_seed(pecos_facts(experiment, experiment.init, "start")),
        "last_fifth": late,
        "pecos": curve,
        "worth": _worth(late, {n: found for n, found in curve.items() if found}),
    }


def _worth(late: Mapping[int, float], curve: Mapping[int, Mapping[int, float]]) -> str:
    """Over the seeds that both have; the mean is looked up in the mean curve."""
    seeds = [seed for seed in late if curve and all(seed in found for found in curve.values())]
    if not seeds:
        return NONE
    means = {n: statistics.fmean(found[seed] for seed in seeds) for n, found in curve.items()}
    return worth_in_words(statistics.fmean(late[seed] for seed in seeds), means)


def table(lines: Sequence[Cell], seeds: Sequence[int], init: int) -> Table:
    title = f"Mean reward a round, {K} arms shown; seeds {', '.join(map(str, seeds))}"
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    names = (f"start, {START:,} rounds", f"PECOS, same {init:,} rows", "last fifth")
    curve = [f"PECOS {n:,}" for n in lines[0]["pecos"]]
    for name in ("set", "rounds", *names, *curve, "worth labelled rows"):
        out.add_column(name, justify="left" if name == "set" else "right")
    for line in lines:
        found = (line["start"], line["pecos_start"], line["last_fifth"], *line["pecos"].values())
        out.add_row(line["data"], f"{line['rounds']:,}", *(_mean(values, seeds) for values in found), line["worth"])
    return out


def _mean(found: Mapping[int, float], seeds: Sequence[int]) -> str:
    if not found:
        return NONE
    missing = "" if len(found) == len(seeds) else f" (seeds {', '.join(map(str, sorted(found)))})"
    return f"{statistics.fmean(found.values()):.3f}{missing}"


def forget_unclear(cells: Cells) -> None:
    """Runs of treetop with changes that no commit has: the same name may stand for other code by now."""
    cells.cells[:] = [
        cell
        for cell in cells.cells
        if cell.get("part", "").startswith("pecos") or not (cell["commit"].endswith("+") or cell["commit"] == "")
    ]


def numbers(text: str) -> tuple[int, ...]:
    """`5000,10000` as the rows to train on, each once, in order."""
    try:
        return tuple(sorted({check_int("rows", int(word), 1) for word in text.split(",")}))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {error}; numbers of at least 1 are needed, as 5000,10000"
        ) from None


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="debian, a folder, synthetic:...")
    parser.add_argument("--init", type=int, default=INIT, help="rows of the initialisation set")
    parser.add_argument("--horizon", type=int, help="rounds of the stream; all rows once if not given")
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 0, 1 and 2 if not given")
    parser.add_argument("--rows", type=numbers, default=ROWS, help="that PECOS is trained on, as 5000,10000")
    parser.add_argument("--strategy", default="default", help="of treetop; `default` is that of Bandit and service")
    parser.add_argument("--only", choices=PARTS, action="append", help="repeatable; all if not given")
    parser.add_argument("--threads", type=int, default=1, help="of PECOS")
    parser.add_argument("--json", type=Path, help="a file to keep every number in, and to go on from")
    asked = parser.parse_args()
    try:
        asked.experiments = [
            Experiment.of(load(name), asked.init, asked.horizon, asked.strategy) for name in asked.data
        ]
        for experiment in asked.experiments:
            experiment.settings("start")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return asked


def main() -> None:
    asked = parsed()
    seeds, parts, where = list(dict.fromkeys(asked.seed or [0, 1, 2])), asked.only or PARTS, runner()
    cells = Cells.opened(asked.json, sys.argv)
    forget_unclear(cells)
    with bars(quiet=not sys.stderr.isatty()) as shown:

        def pecos(experiment: Experiment, seed: int) -> None:
            if where:
                with Pecos.started(where, asked.threads) as model:
                    play_pecos(cells, experiment, seed, asked.rows, model, shown)

        play_all(cells, asked.experiments, seeds, parts, pecos, shown)
    lines = [summary(cells, experiment, seeds, asked.rows) for experiment in asked.experiments]
    cells.write(table=lines)
    console = Console()
    Console(width=max(console.width, WIDTH)).print(table(lines, seeds, asked.init))
    if "pecos" in parts and not where:
        print(f"PECOS is not set up, its columns are empty: {SETUP}")
    print(cells.about())


if __name__ == "__main__":
    main()
