"""A tree and a serving layout of very many arms with made-up weights, in mapped files: how far this machine goes.

    python benchmarks/many_arms.py --arms 100000000 --folder DIR [--regressor 5] [--routing 3] [--memory 16]

The model is of treetop's learner: a balanced tree (eight children a node, leaves of 100), a routing function of each
node, and of each arm a routing function and a regressor, with so many weights, the bias among them; 20,000 features, 10
in a context. Two processes, a line of JSON a step with seconds, memory of its own (without mapped files, which the
system may drop) and bytes on disk: one makes and saves the model, one opens it and decides. A process that has more
than `--memory` GB of its own says so and ends, as does one for which the disk would be full.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from treetop import Budgeted, Model, Policy
from treetop.arrays import Rows, as_rows, map_array
from treetop.bench.timing import anonymous, commit, load_average, machine, mapped_mb, seconds, spread
from treetop.model.pooled_state import PooledState
from treetop.model.storage import SERVING
from treetop.tree.tree import Tree

FEATURES, NONZEROS, LEAF, CHILDREN, OF_A_NODE = 20_000, 10, 100, 8, 20
AT_ONCE = 1 << 20  # rows that are written at a time
DECISIONS, SPARE = 2000, 10  # of each timing; GB of the disk that are left alone
MEANS = np.exp(-(np.linspace(0, 4, 65) ** 3)).astype(np.float32)


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def bytes_of(folder: Path) -> int:
    files = {(facts.st_ino, facts.st_size) for path in folder.rglob("*") if (facts := path.stat()) and path.is_file()}
    return sum(size for _, size in files)


@contextmanager
def step(name: str, folder: Path) -> Iterator[None]:
    """Says what a step took; the most memory of its own is looked at fifty times a second."""
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    began, worked = time.perf_counter(), time.process_time()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    spent = {"seconds": round(time.perf_counter() - began, 1), "cpu_seconds": round(time.process_time() - worked, 1)}
    size = round(bytes_of(folder) / 1e9, 2)
    say(step=name, **spent, own_gb=round(max(most[0], anonymous()) / 1e9, 2), disk_gb=size)


def guard(limit: float, folder: Path) -> None:
    """Ends this process before it takes more memory or disk than it may."""

    def watch() -> None:
        while True:
            if (own := anonymous() / 1e9) > limit:
                say(ended=f"{own:.1f} GB of memory of its own; {limit:g} are allowed")
                os._exit(3)
            if (free := shutil.disk_usage(folder).free / 1e9) < SPARE:
                say(ended=f"{free:.1f} GB of the disk are free; {SPARE} are left alone")
                os._exit(3)
            time.sleep(0.1)

    threading.Thread(target=watch, daemon=True).start()


def balanced(arms: int) -> Tree:
    """Leaves of LEAF arms below nodes of CHILDREN children, the arms spread over the leaves."""
    sizes = [-(-arms // LEAF)]
    while sizes[0] > 1:
        sizes.insert(0, -(-sizes[0] // CHILDREN))
    first = np.cumsum([0, *sizes])
    parents = np.concatenate([[-1], *(first[i - 1] + np.arange(n) // CHILDREN for i, n in enumerate(sizes) if i)])
    leaf_of = np.arange(arms, dtype=np.int32)
    leaf_of %= np.int32(sizes[-1])
    leaf_of += np.int32(first[-2])
    return Tree(parents.astype(np.int32), leaf_of)


def put_rows(folder: Path, name: str, tree: Tree, of_a_node: int, of_an_arm: int) -> Rows:
    """Rows with so many weights each, the bias the last: features at random, one in each of equal stretches of them."""
    nodes, rng = tree.n_nodes, np.random.default_rng(len(name))
    counts = (nodes, of_a_node), (tree.n_arms, of_an_arm)
    start = np.lib.format.open_memmap(folder / f"{name}_start.npy", "w+", np.int64, (nodes + tree.n_arms + 1,))
    shape = (sum(rows * weights for rows, weights in counts),)
    index = np.lib.format.open_memmap(folder / f"{name}_index.npy", "w+", np.int32, shape)
    value = np.lib.format.open_memmap(folder / f"{name}_value.npy", "w+", np.float32, shape)
    row, at = 0, 0
    for rows, weights in counts:
        for first in range(0, rows, AT_ONCE):
            n = min(AT_ONCE, rows - first)
            start[row + 1 : row + 1 + n] = at + weights * np.arange(1, n + 1)
            if weights:
                wide = FEATURES // max(1, weights - 1)
                features = rng.integers(0, wide, (n, weights), np.int32) + np.arange(weights, dtype=np.int32) * wide
                features[:, -1] = FEATURES
                index[at : at + n * weights] = features.reshape(-1)
                value[at : at + n * weights] = rng.normal(0.0, 0.2, n * weights)
            row, at = row + n, at + n * weights
    del start, index, value
    arrays = (map_array(folder / f"{name}_{part}.npy") for part in ("start", "index", "value"))
    return Rows(*arrays, columns=FEATURES + 1)  # type: ignore[misc, call-arg]


def make(folder: Path, arms: int, regressor: int, routing: int) -> None:
    work = folder / "work"
    work.mkdir()
    with step("tree", folder):
        tree = balanced(arms)
    say(arms=tree.n_arms, nodes=tree.n_nodes, depth=tree.depth)
    with step("weights", folder):
        routes = put_rows(work, "routing", tree, OF_A_NODE, routing)
        rewards = put_rows(work, "rewards", tree, 0, regressor)
    with step("model", folder):
        count, value = np.full(arms, 5, np.int32), np.zeros(arms, np.float32)
        pooled = PooledState(means=MEANS, sample_count=count, trial_value=value, weights=(0.97, 0.5))
        model = Model(tree=tree, route_rows=routes, reward_rows=rewards, n_seen=arms, pooled=pooled).backed_by(work)
    with step("serving layout, saved", folder):
        model.save(folder / "model")
    shutil.rmtree(work)
    say(
        weights=len(routes.value) + len(rewards.value),
        layout_gb=round(os.stat(folder / "model" / SERVING).st_size / 1e9, 2),
    )


def drop_cached(folder: Path) -> None:
    """So that what is opened comes from the disk, as after a start of the machine."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def serve(folder: Path) -> None:
    with step("opened", folder):
        model = Model.load(folder / "model")
    rng, policy = np.random.default_rng(7), Policy(beam=10, strategy=Budgeted())
    features = np.sort(
        rng.integers(0, FEATURES // NONZEROS, (2 * DECISIONS, NONZEROS)) + np.arange(NONZEROS) * (FEATURES // NONZEROS)
    )
    start = np.arange(2 * DECISIONS + 1, dtype=np.int64) * NONZEROS
    contexts = Rows(start, features.reshape(-1).astype(np.int32), np.full(features.size, 0.3, np.float32), FEATURES)
    singles = [as_rows(contexts.row(i).csr()) for i in range(2 * DECISIONS)]
    with step("first decision", folder):
        policy.decide(model, singles[0], event_id=0)
    for name, first in (("decisions, cold", 0), ("decisions, others", DECISIONS), ("decisions, once more", DECISIONS)):
        with step(name, folder):
            taken = seconds(lambda i: policy.decide(model, singles[i], event_id=i), DECISIONS, first)
        say(decisions=name, **spread(taken), layout_mb_in_memory=mapped_mb(SERVING)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=int, default=100_000_000)
    parser.add_argument("--regressor", type=int, default=5)
    parser.add_argument("--routing", type=int, default=3)
    parser.add_argument("--folder", type=Path, required=True, help="new, on a disk with room; deleted at the end")
    parser.add_argument("--memory", type=float, default=16.0)
    parser.add_argument("--part", choices=["make", "serve"])
    asked = parser.parse_args()
    if asked.part:
        guard(asked.memory, asked.folder)
        if asked.part == "make":
            make(asked.folder, asked.arms, asked.regressor, asked.routing)
        else:
            serve(asked.folder)
        return
    say(command=" ".join(["python", *sys.argv]), commit=commit(), machine=machine(), load_average=load_average())
    asked.folder.mkdir(parents=True)
    try:
        for part in ("make", "serve"):
            drop_cached(asked.folder)
            done = subprocess.run([sys.executable, *sys.argv, "--part", part])
            if done.returncode != 0:
                say(ended=f"{part} ended with code {done.returncode}")
                break
    finally:
        shutil.rmtree(asked.folder)


if __name__ == "__main__":
    main()
