"""How long `treetop evaluate` takes on a long log: wall clock, CPU time and memory of a process of its own.

    python benchmarks/evaluating.py --arms 100000 --rounds 1000000 [--folder evaluated] [--out results.json]

The log is that of a bandit over a synthetic set (70 features a context, leaves of 100 arms), decided by the default
policy with five slots, a reward in each, and written in bulk. Five candidates are judged, three of which search as the
log did. With `--folder` the bandit stays there and is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import treetop
from treetop.bandit.snapshot import Snapshot
from treetop.bench.timing import commit, machine
from treetop.log.records import Counts, Entry, Event, LogSummary, StoredEvent

CANDIDATES = ["strategy=greedy", "explore=1", "strategy=epsilon,epsilon=0.1", "beam=5", "beam=20"]
INIT, POOL, STEP = 10_000, 10_000, 20_000
CLICK, MISS = 0.7, 0.02


def make(folder: Path, arms: int, rounds: int) -> None:
    """A bandit with a log of so many rounds."""
    rows, features = INIT + POOL, max(5_000, arms // 5)
    data = treetop.load(f"synthetic:arms={arms},features={features},rows={rows},init=1")
    X, Y = data.X.csr(), data.Y.csr()
    config = treetop.Config(policy=treetop.PolicyConfig(), tree=treetop.TreeConfig(max_leaf=100))
    with treetop.Bandit.create(folder, X=X[:INIT], Y=Y[:INIT], config=config) as bandit:
        rng = np.random.default_rng(0)
        for first in range(0, rounds, STEP):
            n = min(STEP, rounds - first)
            chosen = rng.integers(INIT, INIT + POOL, n)
            entries = list(decided(bandit.snapshot, X[chosen], Y[chosen], first, rng))
            counts = Counts(2 * n, n, 5 * n, 5 * n, n)
            bandit.log.restore(LogSummary(counts, (), bandit.log.owner()), iter([entries]))
            print(f"{first + n:,} rounds", file=sys.stderr, flush=True)


def decided(snapshot: Snapshot, X, Y, first: int, rng: np.random.Generator) -> Iterator[Entry]:
    """What `Bandit.decide` would have logged for these contexts, with rewards."""
    policy, text = snapshot.policy()
    names = [f"visit-{first + i}" for i in range(X.shape[0])]
    shown = policy.decide_batch(snapshot.model, X, event_ids=names)
    right = np.asarray(Y[np.arange(len(names))[:, None], shown.arms].todense()) > 0
    rewards = (rng.random(shown.arms.shape) < np.where(right, CLICK, MISS)).astype(float)
    for i, name in enumerate(names):
        low, high = X.indptr[i], X.indptr[i + 1]
        event = Event(
            name,
            snapshot.model.epoch,
            shown.arms[i],
            shown.propensities[i],
            shown.scores[i],
            shown.explored[i],
            shown.nodes[i],
            components=shown.components[i],
            time=1e9 + first + i,
            request=bytes(16),
            index=X.indices[low:high].astype(np.int32),
            value=X.data[low:high].astype(np.float32),
            model=snapshot.name,
            tree=snapshot.tree,
            policy=text,
        )
        stored = StoredEvent(event, rewards[i], np.full(5, event.time), 2 * i + 1)
        yield Entry(stored, np.full(5, 2 * i + 2, np.int64))


def peak_kb() -> int:
    """The most memory that this process held. On Linux `getrusage` counts what its parent held when it began, too."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def judge(folder: Path) -> None:
    """The evaluation alone; prints what it took."""
    began = time.perf_counter()
    found = treetop.evaluate(folder, CANDIDATES)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    took = {
        "rounds": found.rounds,
        "candidates": len(found.candidates),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(peak_kb() / 1024),
        "differing": found.differing,
        "results": {c.name: [str(c.per_visit), c.verdict] for c in found.candidates},
    }
    print(json.dumps(took))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.judge is not None:
        return judge(asked.judge)
    with tempfile.TemporaryDirectory() as place:
        folder = asked.folder or Path(place) / "shop"
        if not folder.exists():
            make(folder, asked.arms, asked.rounds)
        ran = subprocess.run([sys.executable, __file__, "--judge", str(folder)], check=True, stdout=subprocess.PIPE)
    took = {"arms": asked.arms, **json.loads(ran.stdout), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    took |= {"commit": commit(), "machine": machine()}
    print(json.dumps(took, indent=1))
    if asked.out is not None:
        asked.out.write_text(json.dumps(took, indent=1) + "\n")


if __name__ == "__main__":
    main()
