"""What a filter that was never seen before costs, beside a decision without one, in one run.

    python benchmarks/filters.py --arms 1000000

Decisions of `Bandit`'s snapshot, without the log: a different condition each time. Some conditions are spread evenly
over the tree (`rank`, `brand`, `price`, `in_stock`), others follow it (`aisle`, `department`, `category`). Twice: on a
new context each, as a service has them, and on one context for all after two decisions without a filter, so that a
decision without a filter finds all that it reads in the caches, one that is led elsewhere does not. Also how long
100,000 changes of attributes take until they are durable and the next decision sees them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import as_rows
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, TreeConfig
from treetop.bandit.snapshot import Snapshot
from treetop.bench.timing import commit, machine

FEATURES = 32
SHELVES = (12, 10, 25)


def shop(folder: Path, arms: int, seed: int) -> Bandit:
    """A bandit of so many arms with vectors around their shelves, prices, stock and brands."""
    rng = np.random.default_rng(seed)
    path = np.stack([rng.integers(0, n, arms) for n in SHELVES], axis=1)
    centres = rng.normal(size=(int(np.prod(SHELVES)), FEATURES))
    shelf = np.ravel_multi_index(tuple(path.T), SHELVES)
    vectors = (centres[shelf] + 0.5 * rng.normal(size=(arms, FEATURES))).astype(np.float32)
    categories = [f"dept {a} > cat {b} > shelf {c}" for a, b, c in path.tolist()]
    attributes = {
        "price": np.exp(rng.normal(3, 1, arms)),
        "in_stock": rng.random(arms) < 5 / 6,
        "brand": [f"brand {i}" for i in rng.integers(0, 500, arms).tolist()],
        "rank": rng.random(arms),
        "aisle": shelf + rng.random(arms),
        "department": [f"dept {i}" for i in path[:, 0].tolist()],
    }
    ids = [f"sku-{i:07d}" for i in range(arms)]
    return Bandit.create(folder, Catalogue(ids, vectors, categories, attributes), config=Config(tree=TreeConfig(100)))


def teach(bandit: Bandit, rounds: int, seed: int) -> None:
    """Rounds with made-up clicks and a refit, so that decisions weigh what a served model weighs."""
    rng = np.random.default_rng(seed)
    for i in range(rounds):
        served = bandit.decide(rng.normal(size=FEATURES), f"taught-{i}")
        bandit.reward(f"taught-{i}", {arm: float(rng.random() < 0.2) for arm in served.arms})
    bandit.refit()


def cases(rng: np.random.Generator) -> dict[str, Callable[[], dict[str, Any] | None]]:
    """Conditions by what they leave; each call makes one that was never seen before."""
    return {
        "no filter": lambda: None,
        "no filter again": lambda: None,
        "half, by a number": lambda: {"rank": {"<=": 0.5 + 0.01 * rng.random()}},
        "half, by a number and a flag": lambda: {"rank": {"<=": 0.6 + 0.01 * rng.random()}, "in_stock": True},
        "1 %, by a number": lambda: {"rank": {"<=": 0.01 + 0.001 * rng.random()}},
        "1 %, by brands": lambda: {"brand": [f"brand {i}" for i in rng.choice(500, 5, replace=False)]},
        "1 %, by three": lambda: {
            "rank": {">": (low := 0.9 * rng.random()), "<=": low + 0.024},
            "price": {"<=": 20 + rng.random()},
            "in_stock": True,
        },
        "half, neighbouring shelves": lambda: {"aisle": {">": (low := 1500 * rng.random()), "<=": low + 1500}},
        "half, by departments": lambda: {"department": [f"dept {i}" for i in rng.choice(12, 6, replace=False)]},
        "1 %, neighbouring shelves": lambda: {"aisle": {">": (low := 2970 * rng.random()), "<=": low + 30}},
        "0.8 %, a category": lambda: {"category": f"dept {rng.integers(12)} > cat {rng.integers(10)}"},
        "0.8 %, a category in stock": lambda: {
            "category": f"dept {rng.integers(12)} > cat {rng.integers(10)}",
            "in_stock": True,
        },
    }


def measure(snapshot: Snapshot, rounds: int, seed: int, same_context: bool) -> dict[str, dict[str, float]]:
    """Microseconds of CPU that a decision takes: medians, and the ratio to no filter.

    In each round all cases are decided, in any order: on a new context each, or on one after two decisions without a
    filter that are not timed.
    """
    rng = np.random.default_rng(seed)
    asked = list(cases(rng).items())
    spent: dict[str, list[float]] = {name: [] for name, _ in asked}
    left: dict[str, int] = {}
    for i in range(rounds):
        rows = [
            snapshot.bounded(as_rows(rng.normal(size=FEATURES).astype(np.float32)))
            for _ in range(1 if same_context else len(asked))
        ]
        for warm in range(2 if same_context else 0):
            snapshot.decide(rows[0], f"warm {warm} {i}", None, None, snapshot.default_filter)
        for place in rng.permutation(len(asked)).tolist():
            name, make = asked[place]
            where = make()
            begin = time.thread_time_ns()
            arm_filter = snapshot.arm_filter(None, None, where)
            snapshot.decide(rows[place % len(rows)], f"{name}{i}", None, None, arm_filter)
            spent[name].append(1e-3 * (time.thread_time_ns() - begin))
            left[name] = arm_filter.eligible.count(snapshot.model.n_arms)
    usual = float(np.median(spent["no filter"] + spent["no filter again"]))
    return {
        name: {"left": left[name], "us": float(np.median(times)), "ratio": float(np.median(times)) / usual}
        for name, times in spent.items()
    }


def updates(bandit: Bandit, changes: int, seed: int) -> dict[str, float]:
    """Seconds of that many changes: until they are durable here, and until another process decides by them."""
    rng = np.random.default_rng(seed)
    ids = bandit.snapshot.arms.ids
    arms = [ids[i] for i in rng.choice(len(ids), min(changes, len(ids)), replace=False).tolist()]
    stock = (rng.random(len(arms)) < 0.5).tolist()
    with Bandit.open(bandit.folder.path) as other:
        other.decide(np.ones(FEATURES), where={"in_stock": True})
        begin = time.perf_counter()
        bandit.set_attributes(arms, {"in_stock": stock})
        durable = time.perf_counter()
        other.decide(np.ones(FEATURES), where={"in_stock": True})
        return {"changes": len(arms), "durable": durable - begin, "seen": time.perf_counter() - durable}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--taught", type=int, default=2000, help="rounds that the model has learned from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, shop(Path(place, "shop"), given.arms, given.seed) as bandit:
        teach(bandit, given.taught, given.seed)
        bandit.snapshot.filters.prepare()
        found = {
            contexts: measure(bandit.snapshot, given.rounds, given.seed, contexts == "same context")
            for contexts in ("new contexts", "same context")
        }
        changed = updates(bandit, given.changes, given.seed)
    if given.json:
        facts = {"arms": given.arms, "seed": given.seed, "commit": commit(), "machine": machine()}
        print(json.dumps({**facts, "load_average": os.getloadavg()[0], "filters": found, "updates": changed}, indent=1))
        return
    print(f"{'':32}{'arms left':>12}{'new contexts':>20}{'same context':>20}")
    for name, each in found["new contexts"].items():
        times = "".join(f"{of[name]['us']:>10.0f} us{of[name]['ratio']:>7.2f}" for of in found.values())
        print(f"{name:32}{each['left']:>12,.0f}{times}")
    durable, seen = changed["durable"], changed["seen"]
    print(f"{changed['changes']:,} changes: durable in {durable:.3f} s, seen by another in {seen:.3f} s")


if __name__ == "__main__":
    main()
