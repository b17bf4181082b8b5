"""What learning more costs: `python benchmarks/learners.py [DATA] [--horizon N] [--init N] [--seed N] [--afresh]`.

The stream is played once with treetop's learner and schedule. At each of its refits the faithful learner refits on the
same feedback, from its own last model: that gives the ratio a refit, and with the labels counted as samples the ratio a
sample. Then the stream is played as the paper does, for what all refits of a stream cost. Last, both models of the last
refit decide the same contexts in turn, each with its own strategy. Seconds are processor time of all threads. With
`--afresh` every refit begins with a new learner, as in the service, which has a process for each: what `Pooled` keeps
from one refit to the next (`RouteCache`) is worked out again.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from treetop import Budgeted, Feedback, LabelSamples, Linear, Model, Policy, Pooled, load, refit, run
from treetop.arrays import Rows
from treetop.experiments.settings import EPOCHS
from treetop.learning.routes import RouteCache
from treetop.learning.schedule import Epochs
from treetop.simulation.play import Learning, TreeBuilding, begin

CONTEXTS, TURNS = 500, 20  # decided in each of so many turns


@dataclass
class Timed:
    """A learner that keeps what its refits took: (rounds, samples, seconds)."""

    learner: Any
    cost: float = 1.0
    afresh: bool = False
    taken: list[tuple[int, int, float]] = field(default_factory=list)

    def learn(self, model: Model, feedback: Feedback, progress: Callable[[int, int], object] | None = None) -> Model:
        began = time.process_time()
        made = refit(model, feedback, replace(self.learner, route_cache=None) if self.afresh else self.learner)
        self.taken.append((len(feedback), int(feedback.observed.sum()), time.process_time() - began))
        return made

    def total(self) -> float:
        return sum(seconds for _, _, seconds in self.taken)


@dataclass
class Both(Timed):
    """The same, and the faithful learner on the same feedback beside it."""

    beside: Timed = field(default_factory=lambda: Timed(Linear()))
    twin: Model | None = None

    def learn(self, model: Model, feedback: Feedback, progress: Callable[[int, int], object] | None = None) -> Model:
        made = super().learn(model, feedback)
        assert self.twin is not None
        self.twin = self.beside.learn(self.twin, _still_below(feedback, self.twin))
        return made


def _still_below(feedback: Feedback, model: Model) -> Feedback:
    """The same for a tree in which no arm has moved: nodes only where the arm is still below them."""
    tree, nodes = model.tree, np.maximum(feedback.nodes, 0)
    place = tree.position_of[np.maximum(feedback.arms, 0)]
    below = (tree.begin[nodes] <= place) & (place < tree.end[nodes])
    return replace(feedback, nodes=np.where(below, feedback.nodes, -1))


def decisions(models: dict[str, tuple[Policy, Model]], contexts: Rows) -> dict[str, float]:
    """Microseconds of processor time a decision, the median of turns that alternate."""
    rows = [contexts.row(i) for i in range(min(CONTEXTS, len(contexts)))]
    taken: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(TURNS + 1):
        for name, (policy, model) in models.items():
            began = time.process_time()
            for i, row in enumerate(rows):
                policy.decide(model, row, event_id=i)
            if turn:  # the first one warms up
                taken[name].append((time.process_time() - began) / len(rows) * 1e6)
    return {name: float(np.median(times)) for name, times in taken.items()}


def measure(data: str, init: int | None, horizon: int | None, seed: int, afresh: bool) -> dict[str, Any]:
    dataset = load(data)
    rows, rounds, leaf = dataset.sizes(init, horizon, None)
    if rounds <= EPOCHS["paper"][0]:
        raise SystemExit(f"the horizon is {rounds}; the paper's learner first refits after {EPOCHS['paper'][0]} rounds")
    stream, first = begin(dataset, rows, rounds, leaf, seed)
    began = time.process_time()
    _, separate = begin(dataset, rows, rounds, leaf, seed, tree=TreeBuilding(separate_unlabelled=True))
    known = LabelSamples.of(separate.tree, stream.X_init, stream.Y_init)
    labels = time.process_time() - began
    better, paper = (
        Both(Pooled(label_samples=known, route_cache=RouteCache()), afresh=afresh, twin=separate),
        Timed(Linear()),
    )
    initial = better.learner.learn(separate, Feedback.none(first.n_features, 5))
    budgeted, igw = Policy(strategy=Budgeted()), Policy()
    often, seldom = (Epochs.geometric(*EPOCHS[name]) for name in ("treetop", "paper"))
    treetop = run(stream, initial, budgeted, seed=seed, learning=Learning(better, often))
    faithful = run(stream, first, igw, seed=seed, learning=Learning(paper, seldom))
    assert better.twin is not None
    pairs = list(zip(better.taken, better.beside.taken, strict=True))
    ratios = [a / b for (_, _, a), (_, _, b) in pairs]
    samples = sum(n for _, n, _ in better.taken)
    per_sample = better.total() / (samples + len(pairs) * len(known.arm)) / (better.beside.total() / samples)
    models = {"paper": (igw, better.twin), "treetop": (budgeted, treetop.model)}
    times = decisions(models, stream.X)
    layout = {name: model.engine.layout().nbytes for name, (_, model) in models.items()}
    return {
        "data": dataset.name,
        "arms": dataset.n_arms,
        "rounds": rounds,
        "init": rows,
        "seed": seed,
        "afresh": afresh,
        "mean_reward": {"treetop": treetop.mean_reward, "paper": faithful.mean_reward},
        "labels": len(known.arm),
        "labels_seconds": labels,
        "refits": [{"rounds": n, "samples": s, "treetop": a, "paper": b} for (n, s, a), (_, _, b) in pairs],
        "ratio_a_refit": {"median": float(np.median(ratios)), "largest": max(ratios)},
        "ratio_same_refits": better.total() / better.beside.total(),
        "ratio_a_sample": per_sample,
        "whole_stream_seconds": {"treetop": better.total(), "paper": paper.total()},
        "ratio_whole_stream": better.total() / paper.total(),
        "decide_us": times,
        "ratio_decide": times["treetop"] / times["paper"],
        "layout_bytes": layout,
        "ratio_layout": layout["treetop"] / layout["paper"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="debian")
    for name in ("init", "horizon"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--seed", type=int, default=0)
    for name in ("afresh", "json"):
        parser.add_argument(f"--{name}", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.data, asked.init, asked.horizon, asked.seed, asked.afresh)
    if asked.json:
        print(json.dumps(found))
        return
    for entry in found.pop("refits"):
        ratio = entry["treetop"] / entry["paper"]
        print(
            f"{entry['rounds']:9,} rounds {entry['samples']:10,} samples  "
            f"treetop {entry['treetop']:7.3f} s  paper {entry['paper']:7.3f} s  {ratio:5.2f}x"
        )
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
