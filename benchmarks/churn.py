"""Arms come and go at scale: what a change costs while decisions go on, and what decisions cost afterwards.

    python benchmarks/churn.py [--arms 1000000] [--change 10000] [--churn 0.2]

A bandit with vectors and categories takes `--change` new arms and lets as many go, while another thread decides. Then
arms are replaced until `--churn` of all are new, and decisions are compared with those of a bandit that was made afresh
from what is left: as they are then, with every new arm still on trial, and as they are when all have had their trials.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from filters import FEATURES, SHELVES, shop

from treetop.arrays import as_rows
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, TreeConfig
from treetop.bandit.new_arms import TRIALS
from treetop.bandit.snapshot import Snapshot


def newcomers(count: int, first: int, rng: np.random.Generator) -> tuple[list[str], Any, list[str]]:
    """Ids, vectors and categories of arms that come."""
    paths = np.stack([rng.integers(0, n, count) for n in SHELVES], axis=1).tolist()
    vectors = rng.normal(size=(count, FEATURES)).astype(np.float32)
    return [f"new-{first + i}" for i in range(count)], vectors, [f"dept {a} > cat {b} > shelf {c}" for a, b, c in paths]


def replace_arms(bandit: Bandit, count: int, first: int, seed: int) -> dict[str, float]:
    """Seconds, by the clock and of CPU, of so many arms in and as many out."""
    rng = np.random.default_rng([seed, first])
    ids, vectors, categories = newcomers(count, first, rng)
    there = np.flatnonzero(~bandit.snapshot.arms.is_removed)
    gone = [bandit.snapshot.arms.ids[i] for i in rng.choice(there, count, replace=False).tolist()]
    begin, cpu = time.perf_counter(), time.thread_time()
    bandit.add_arms(ids, vectors, categories)
    added = time.perf_counter()
    bandit.remove_arms(gone)
    end = time.perf_counter()
    return {"add": added - begin, "remove": end - added, "cpu": time.thread_time() - cpu}


class Visits(threading.Thread):
    """Decides until it is told to stop, and notes how long each took."""

    def __init__(self, bandit: Bandit) -> None:
        super().__init__(daemon=True)
        self.bandit, self.took, self.stopping = bandit, list[float](), threading.Event()

    def run(self) -> None:
        rng = np.random.default_rng(1)
        while not self.stopping.is_set():
            row = as_rows(rng.normal(size=FEATURES).astype(np.float32))
            begin = time.perf_counter()
            snapshot = self.bandit.snapshot
            snapshot.decide(snapshot.bounded(row), f"visit-{len(self.took)}", None, None, snapshot.default_filter)
            self.took.append(time.perf_counter() - begin)


def decision_us(snapshots: dict[str, Snapshot], rounds: int, seed: int) -> dict[str, float]:
    """Microseconds of CPU of a decision: medians, on the same contexts, each first in turn (the first is slower)."""
    rng, spent = np.random.default_rng(seed), {name: list[float]() for name in snapshots}
    names = list(snapshots)
    for i in range(rounds):
        row = as_rows(rng.normal(size=FEATURES).astype(np.float32))
        for name in names[i % len(names) :] + names[: i % len(names)]:
            snapshot = snapshots[name]
            begin = time.thread_time_ns()
            snapshot.decide(row, f"{name}{i}", None, None, snapshot.default_filter)
            spent[name].append(1e-3 * (time.thread_time_ns() - begin))
    return {name: float(np.median(each)) for name, each in spent.items()}


def after_trials(snapshot: Snapshot) -> Snapshot:
    """The same when every new arm was shown as often as it takes, as a refit would say."""
    model = snapshot.model
    assert model.pooled is not None
    assert model.pooled.new_trials is not None
    shown = np.where(model.pooled.new_trials >= 0, TRIALS, -1).astype(np.int32)
    return replace(snapshot, model=replace(model, pooled=replace(model.pooled, new_trials=shown)), policies={})


def made_afresh(bandit: Bandit, folder: Path) -> Bandit:
    """A bandit of the arms that are left."""
    snapshot = bandit.snapshot
    left = np.flatnonzero(~snapshot.arms.is_removed)
    vectors, categories = snapshot.model.item_vectors, snapshot.attributes.columns["category"]
    assert vectors is not None
    catalogue = Catalogue(
        [snapshot.arms.ids[i] for i in left.tolist()],
        vectors[left],
        [categories.value(i) for i in left.tolist()],  # type: ignore[misc]
    )
    return Bandit.create(folder, catalogue, config=Config(tree=TreeConfig(100)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=int, default=1_000_000)
    parser.add_argument("--change", type=int, default=10_000)
    parser.add_argument("--churn", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, shop(Path(place, "shop"), given.arms, given.seed) as bandit:
        visits = Visits(bandit)
        visits.start()
        change = replace_arms(bandit, given.change, 0, given.seed)
        visits.stopping.set()
        visits.join()
        meanwhile = {"decisions": len(visits.took), "slowest_ms": 1e3 * max(visits.took)}
        print(json.dumps({"arms": given.arms, "in_and_out": given.change, **change, **meanwhile}), flush=True)
        rest = int(given.churn * given.arms) - given.change
        if rest > 0:
            replace_arms(bandit, rest, given.change, given.seed)
        with made_afresh(bandit, Path(place, "fresh")) as fresh:
            ways = {"churned": bandit.snapshot, "tried": after_trials(bandit.snapshot), "fresh": fresh.snapshot}
            found = {}
            for name in ("churned", "tried"):  # each beside the fresh one alone: the two would share what is cached
                found[name] = decision_us({name: ways[name], "fresh": ways["fresh"]}, given.rounds, given.seed)
        ratio = {name: each[name] / each["fresh"] for name, each in found.items()}
        print(json.dumps({"churn": given.churn, "us": found, "ratio": ratio}), flush=True)


if __name__ == "__main__":
    main()
