"""Every idea of treetop's learner switched off, all others on: `python benchmarks/ablate.py DATA ... [--out FILE]`.

Each row of the table is played as `treetop simulate DATA --learner treetop` would, but for one idea, with thrifty
exploration and greedy; the last row is the paper's, with IGW and greedy. Cells are means over seeds. `--only` and
`--scenario` choose rows and streams that change; `--first-epoch` and `--factor` say when rows refit that do not say it
themselves. The file of `--out` keeps every run, and a run that is in it is not played again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from cells import Cells, table

from treetop.arrays import Floats, as_rows
from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments.settings import Settings
from treetop.learning import placement, pooled
from treetop.learning.placement import Standing
from treetop.learning.pooled import KNOTS, Labelled, Pooled
from treetop.learning.refit import initial_fit
from treetop.model.model import Model
from treetop.records import Feedback
from treetop.simulation.play import Environment, Learning, Run, Tracking, TreeBuilding, begin, run
from treetop.simulation.scenario import SCENARIOS, Scenario
from treetop.tree.tree import Tree

MOST = 2**22  # samples of an arm, more than any run here has


@contextmanager
def from_zero() -> Iterator[None]:
    """Every arm's ridge regression starts from 0, not from the mean of all arms at its place."""
    with patch.object(pooled, "pooled_means", lambda slack, reward, weight: np.zeros(KNOTS)):
        yield


@contextmanager
def means_of_rounds_too() -> Iterator[None]:
    """The pooled means are of labels and rounds together: the samples of the rounds come after the labelled ones."""
    labelled, means, learn = 0, pooled.pooled_means, Pooled.learn

    def counted(learner: Pooled, model: Model, feedback: Feedback, progress: Any = None) -> Model:
        nonlocal labelled
        labelled = 0 if learner.known is None else len(learner.known.arm)
        return learn(learner, model, feedback, progress)

    def of_all(slack: Floats, reward: Floats, weight: Floats) -> Floats:
        return means(slack, reward, np.concatenate([weight[:labelled], np.ones(len(weight) - labelled)]))

    with patch.object(Pooled, "learn", counted), patch.object(pooled, "pooled_means", of_all):
        yield


@contextmanager
def no_hall() -> Iterator[None]:
    """An arm that has earned much is scored where routing leads to its leaf, as any other."""
    with patch.object(placement, "HALL", 0), patch.object(placement, "_path", lambda tree, leaf: None):
        yield


@contextmanager
def nobody_moves() -> Iterator[None]:
    """Arms that no label tells of stay apart, wherever their rewards were found."""
    with no_hall(), patch.object(Standing, "_leaves", lambda self, routing, arm, t: {}):
        yield


@contextmanager
def new_as_old() -> Iterator[None]:
    """As little is hoped of an arm that has just appeared as of one that no label tells of."""
    with patch.object(Feedback, "late", lambda self, arms: np.zeros(arms, np.bool_)):
        yield


@contextmanager
def every_sample() -> Iterator[None]:
    """An arm is solved again as soon as it has one more sample."""
    with patch.object(pooled, "STEPS", np.arange(MOST)):
        yield


def narrow(model: Model) -> Model:
    """The same arms, but a search ends with as many leaves as the beam has places.

    With a prior, more leaves survive the last level than nodes any other. So every leaf gets a child, to which all
    contexts go (its routing is the constant 1), and that another, down to one level below the deepest leaf: the leaves
    survive as nodes do, and the last level has no more.
    """
    tree = model.tree
    leaves = np.setdiff1d(np.arange(tree.n_nodes), tree.parents)
    ends, level, parents = leaves.copy(), tree.levels()[leaves], tree.parents
    while (short := level <= tree.depth).any():
        level[short] += 1
        parents = np.concatenate([parents, ends[short]])
        ends[short] = len(parents) - short.sum() + np.arange(short.sum())
    added = len(parents) - tree.n_nodes
    always = sp.csr_matrix((np.ones(added), (np.arange(added), np.full(added, model.n_features))))
    routing = as_rows(sp.vstack([model.routing, always], format="csr"), what="routing")
    leaf_of = ends[np.searchsorted(leaves, tree.leaf_of)].astype(np.int32)
    return Model.unlearned(Tree(parents.astype(np.int32), leaf_of), routing)


@dataclass(frozen=True, eq=False)
class Row:
    """What is off: settings unlike those of the learner, a context in which the rest is played, the tree's shape."""

    name: str
    words: str
    settings: dict[str, Any] = field(default_factory=dict)
    switched: Callable[[], AbstractContextManager[None]] = nullcontext
    apart: bool = True
    narrow: bool = False
    strategies: tuple[str, str] = ("thrifty", "greedy")
    scenarios: tuple[str, ...] = SCENARIOS  # in which it is not the same as everything on


ROWS = (
    Row("none", "everything on"),
    Row("start", "each arm from 0, without the pooled means", switched=from_zero),
    Row("labels", "labels not learned (`--cold`)", {"label_samples": False}),
    Row("both", "labels not learned, and each arm from 0", {"label_samples": False}, switched=from_zero),
    Row("apart", "arms without labels among the others", apart=False),
    Row("means", "pooled means of labels and rounds", switched=means_of_rounds_too),
    Row("leaves", "10 leaves instead of 14", narrow=True),
    Row(
        "seldom",
        "refits at every factor of 1.2 from 1,024, as the service has them",
        {"first_epoch": 1024, "factor": 1.2},
    ),
    Row("steps", "every sample counts at once", switched=every_sample),
    Row("doubling", "refits at every doubling from 4,096", {"first_epoch": 4096, "factor": 2.0}),
    Row("hall", "arms that earned much are not scored everywhere", switched=no_hall),
    Row("moves", "arms whose rewards are found stay apart", switched=nobody_moves),
    Row("new", "new arms as those without labels", switched=new_as_old, scenarios=("new-arms",)),
    Row(
        "paper",
        "the paper's X-IGW",
        {"learner": "paper", "first_epoch": 4096, "factor": 2.0},
        strategies=("igw", "greedy"),
    ),
)


@dataclass(frozen=True, eq=False)
class Ground:
    """A dataset and what happens in its stream; rows share the trees and samples of a seed where they are the same."""

    dataset: Dataset
    horizon: int | None = None
    scenario: str = "stationary"
    first_epoch: int | None = None  # None: as the learner has it
    factor: float | None = None

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Of the initialisation set, the stream and a leaf."""
        return self.dataset.sizes(None, self.horizon, None)

    def happening(self, seed: int) -> Scenario | None:
        return Scenario.of(self.scenario, self.dataset.n_arms, self.sizes[1], seed)

    def play(self, row: Row, strategy: str, seed: int) -> Run:
        """One run as `simulate` has it, but for what the row switches off."""
        schedule = {"first_epoch": self.first_epoch, "factor": self.factor}
        settings = Settings(strategy, **{"learner": "treetop", **schedule, **row.settings})
        warm, apart = settings.uses_label_samples, row.apart and settings.uses_label_samples
        stream, model = initial(self, apart, seed)
        model = narrow(model) if row.narrow else model
        learner = settings.make_learner(samples(self, apart, seed, row.narrow) if warm else None)
        with row.switched():
            return run(
                stream, initial_fit(model, learner) if warm else model, settings.policy(model.tree.n_nodes), seed=seed,
                learning=Learning(learner, settings.epochs()), environment=Environment(scenario=self.happening(seed)),
                tracking=Tracking(strategy),
            )  # fmt: skip


@lru_cache(maxsize=2)
def initial(ground: Ground, apart: bool, seed: int) -> tuple[Stream, Model]:
    return begin(ground.dataset, *ground.sizes, seed, ground.happening(seed), TreeBuilding(separate_unlabelled=apart))


@lru_cache(maxsize=3)
def samples(ground: Ground, apart: bool, seed: int, narrow: bool) -> Labelled:
    """The labels as samples of the arms that a search leads to, in as many leaves as it ends with."""
    stream, model = initial(ground, apart, seed)
    with patch.object(pooled, "leaves", lambda beam: beam) if narrow else nullcontext():
        return Labelled.of(model.tree, stream.X_init, stream.Y_init)


def play_all(cells: Cells, grounds: Sequence[Ground], seeds: int, rows: Sequence[Row]) -> None:
    """Seed by seed over all grounds, so that the table is whole early."""
    for seed, ground in product(range(seeds), grounds):
        where = {"data": ground.dataset.name, "scenario": ground.scenario, "rounds": ground.sizes[1],
                 "first_epoch": ground.first_epoch, "factor": ground.factor}  # fmt: skip
        for row in (row for row in rows if ground.scenario in row.scenarios):
            for strategy in row.strategies:
                facts = {**where, "off": row.name, "strategy": strategy, "seed": seed}
                cells.play(facts, lambda: _measured(ground.play(row, strategy, seed)))  # noqa: B023


def _measured(played: Run) -> dict[str, float]:
    return {"mean_reward": round(played.mean_reward, 6), "late_reward": round(played.late_reward, 6)}


def report(cells: Cells) -> str:
    """A row an idea; for every stream its strategy / greedy, and how far its strategy is from everything on.

    A mean over fewer seeds than the first row has says of which.
    """
    streams = list(dict.fromkeys((cell["data"], cell["scenario"], cell["rounds"]) for cell in cells.cells))
    heads, lines = ["off"], {row: [row.words] for row in ROWS if cells.found(off=row.name)}
    for stream in streams:
        heads += [" ".join([stream[0], *([] if stream[1] == "stationary" else stream[1:2])]), "against the first row"]
        everything = _by_seed(cells, stream, ROWS[0], 0)
        for row, line in lines.items():
            played = [_by_seed(cells, stream, row, place) for place in range(2)]
            means = " / ".join(_mean(found, everything) for found in played)
            line += [means, _against(played[0], everything) if row is not ROWS[0] else ""]
    about = (f"{data} {scenario}: {rounds:,} rounds" for data, scenario, rounds in streams)
    return f"{table(heads, list(lines.values()))}\n\n{'; '.join(about)}."


def _by_seed(cells: Cells, stream: tuple[str, str, int], row: Row, place: int) -> dict[int, float]:
    data, scenario, rounds = stream
    found = cells.found(data=data, scenario=scenario, rounds=rounds, off=row.name, strategy=row.strategies[place])
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
    parser.add_argument("--only", choices=[row.name for row in ROWS], action="append", help="beside `none`; repeatable")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/ablation.json"))
    asked = parser.parse_args()
    cells = Cells.opened(asked.out, sys.argv)
    grounds = [
        Ground(load(name), asked.horizon, asked.scenario, asked.first_epoch, asked.factor) for name in asked.data
    ]
    play_all(cells, grounds, asked.seeds, [row for row in ROWS if row.name in (asked.only or [row.name]) + ["none"]])
    print(f"{report(cells)}\n\n{cells.about()}")


if __name__ == "__main__":
    main()
