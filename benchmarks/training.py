"""What training takes at 2,812,281 arms: `python benchmarks/training.py arms | build | refit`.

`arms` solves reward models of few and of many samples on one thread; `build` makes tree and routing from 50,000 rows;
`refit` fits all reward models on 1,717,899 rounds of 5 slots, from nothing and from a model of the first 95 % of them.
That history is no bandit's: two slots show labels of the row, three a uniform arm, 60 % of these through a node. The
digests at the ends of lines are those of the weights. All data is made up.
"""

import hashlib
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import treetop
from treetop.arrays import Rows
from treetop.data import synthetic
from treetop.simulation.worlds import Labels

ARMS, LEAVES = 2_812_281, 2**15


def timed(name: str, work: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name:28} {wall:7.1f} s  cpu {cpu:7.1f} s  peak memory {peak:5.2f} GB", flush=True)
    return found


def digest(rows: Rows) -> str:
    found = hashlib.sha256()
    for array in (rows.start, rows.index, rows.value):
        found.update(array.data)
    return found.hexdigest()[:16]


def arms() -> None:
    X, _, _, _ = synthetic.generate(synthetic.parse_spec("synthetic:like=amazon-3m,rows=60000,init=1"))
    rng = np.random.default_rng(0)
    for low, high, models in ((1, 4, 300_000), (5, 50, 12_000), (66, 300, 400), (1000, 3000, 12)):
        sizes = rng.integers(low, high + 1, models)
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = rng.integers(0, len(X), start[-1]).astype(np.int32)
        rewards = (rng.random(start[-1]) < 0.3).astype(np.float32)
        best = np.inf
        for _ in range(3):
            began = time.process_time()
            found = treetop.Linear(threads=1).solve(X, start, rows, rewards)
            best = min(best, time.process_time() - began)
        print(f"{low:5}-{high:<5} samples: {models / best:9,.0f} models a second; {digest(found)}", flush=True)


def build() -> None:
    _, _, X, Y = synthetic.generate(synthetic.parse_spec("synthetic:like=amazon-3m,rows=1"))
    tree = timed("tree", lambda: treetop.Tree.from_labels(X, Y, max_leaf=100))
    model = timed("routing", lambda: treetop.Model.initial(tree, X, Y))
    print(model, digest(model.route_rows))


def history(tree: treetop.Tree) -> tuple[Rows, Any, Any, Any]:
    X, Y, _, _ = synthetic.generate(synthetic.parse_spec("synthetic:like=amazon-3m"))
    rng = np.random.default_rng(0)
    n, labels = len(X), np.diff(Y.start)
    shown = rng.integers(0, ARMS, (n, 5), dtype=np.int32)
    for slot in range(2):
        shown[:, slot] = Y.index[Y.start[:-1] + rng.integers(0, labels)]
    above = tree.leaf_of[shown[:, 2:]]
    up = rng.integers(0, 9, above.shape)
    for level in range(9):
        above = np.where(up > level, np.maximum(tree.parents[above], 1), above)
    nodes = np.full(shown.shape, -1, np.int32)
    nodes[:, 2:] = np.where(rng.random(above.shape) < 0.6, above, -1)
    return X, shown, nodes, Labels(Y).rewards(np.arange(n), shown)


def refit() -> None:
    parents = np.concatenate([[-1], (np.arange(1, 2 * LEAVES - 1) - 1) // 2])
    leaf_of = LEAVES - 1 + np.arange(ARMS) * LEAVES // ARMS
    tree = treetop.Tree(parents.astype(np.int32), leaf_of.astype(np.int32))
    X, shown, nodes, rewards = history(tree)
    no_routing = np.zeros(tree.n_nodes + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    empty = np.zeros(tree.n_nodes + ARMS + 1, np.int64), *no_routing[1:]
    blank = treetop.Model(tree, Rows(*no_routing, X.columns + 1), Rows(*empty, X.columns + 1))

    def until(n: int) -> treetop.Feedback:
        return treetop.Feedback(X.head(n), shown[:n], nodes[:n], rewards[:n])

    model = timed("refit", lambda: treetop.refit(blank, until(len(X))))
    print(model, digest(model.reward_rows))
    del model
    earlier = timed("refit on the first 95 %", lambda: treetop.refit(blank, until(len(X) * 95 // 100)))
    later = timed("refit on all, after that", lambda: treetop.refit(earlier, until(len(X))))
    print(later, digest(later.reward_rows))


if __name__ == "__main__":
    {"arms": arms, "build": build, "refit": refit}[sys.argv[1]]()
