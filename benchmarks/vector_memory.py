"""What a refit takes where items have vectors: by shards from a history on disk, as a bandit does it. One line of JSON.

    python benchmarks/vector_memory.py [--rounds 150000] [--dims 64] [--slots 5] [--own | --paper] [--memory 2.0]
        [--in-memory]

Rounds that never happened, of contexts with a vector as long as those of 2,000 items (`--own`: in a space of their own,
so that a map is learned; `--paper`: with the paper's learner, a tenth of the slots drawn through the arm's leaf), in
parts of 65,536. Peak is memory of the process's own while it learns, without mapped files, beside what it had before;
with `--in-memory` the learner holds all rounds, which are then in it. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from treetop import Model, Tree
from treetop.arrays import Rows
from treetop.bandit.config import PAPER_WINDOW
from treetop.bench.learn_steps import peak_memory
from treetop.bench.timing import anonymous, commit, load_average, machine
from treetop.learning.component_weights import RECENT
from treetop.learning.history import HistoryWriter
from treetop.learning.linear import Linear
from treetop.learning.pooled import Pooled
from treetop.learning.shards import Resources
from treetop.learning.streamed import learn_streamed
from treetop.learning.streamed_linear import learn_linear_streamed
from treetop.records import Feedback

PART = 65_536  # rounds, as in a segment
ITEMS = 2000


def feedback(tree: Tree, rounds: int, dims: int, slots: int, seed: int) -> Feedback:
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(rounds, dims)).astype(np.float32)
    arms = (rng.integers(0, ITEMS, (rounds, 1)) + np.arange(slots) * 7) % ITEMS
    rewards = (rng.random((rounds, slots)) < 0.2).astype(np.float32)
    nodes = np.where(rng.random(arms.shape) < 0.1, tree.leaf_of[arms], -1)
    return Feedback(contexts, arms, nodes, rewards, components=np.zeros((rounds, slots, 3), np.float32))


def without_contexts(shown: Feedback) -> Feedback:
    nothing = Rows(np.zeros(len(shown) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 1)
    return Feedback(nothing, shown.arms, shown.nodes, shown.rewards, components=shown.components)


def learned(model: Model, asked: argparse.Namespace, work: Path) -> Model:
    learner = Linear(window=PAPER_WINDOW) if asked.paper else Pooled(vectors=((0, asked.dims),))
    parts = (
        feedback(model.tree, min(PART, asked.rounds - first), asked.dims, asked.slots, first)
        for first in range(0, asked.rounds, PART)
    )
    if asked.in_memory:
        return learner.learn(model, reduce(add, parts))
    writer, recent = HistoryWriter(work / "history", asked.dims, np.zeros(ITEMS, np.bool_), nodes=asked.paper), []
    for part in parts:
        writer.add(part)
        recent = [*recent, without_contexts(part)][-(RECENT // PART + 1) :]
    history = writer.done(reduce(add, recent))
    recent.clear()
    resources = Resources(memory=asked.memory * 1e9)
    if isinstance(learner, Linear):
        return learn_linear_streamed(learner, model, history, work, resources)
    return learn_streamed(learner, model, history, work, resources)


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    vectors = np.random.default_rng(1).normal(size=(ITEMS, asked.dims)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    own = asked.dims if asked.own else 0
    model = Model.from_vectors(Tree.from_vectors(vectors), vectors, "cosine", context_dims=own)
    before, worked = anonymous(), time.process_time()
    with tempfile.TemporaryDirectory(dir=asked.folder) as work, peak_memory() as peak:
        learned(model, asked, Path(work))
    return {
        **{name: getattr(asked, name) for name in ("rounds", "dims", "slots", "own", "paper", "in_memory", "memory")},
        "peak_gb": round((peak[0] - before) / 1e9, 3),
        "cpu_seconds": round(time.process_time() - worked, 1),
        "load_average": load_average(),
        "commit": commit(),
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rounds", 150_000), ("dims", 64), ("slots", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("--own", "--paper", "--in-memory"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--memory", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, default=Path.cwd())
    print(json.dumps(measured(parser.parse_args())))


if __name__ == "__main__":
    main()
