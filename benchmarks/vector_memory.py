"""What a refit takes where items have vectors: it holds all rounds in memory. One line of JSON.

    python benchmarks/vector_memory.py [--rounds 150000] [--dims 64] [--slots 5] [--own]

Rounds that never happened, of contexts with a vector as long as those of 2,000 items (`--own`: in a space of their own,
so that a map is learned). Peak is that of the process while it learns, beside what it had before; the rounds are part
of `bytes_a_round`. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from treetop import Model, Tree
from treetop.bench.timing import commit, load_average, machine
from treetop.learning.pooled import Pooled
from treetop.records import Feedback

ITEMS = 2000


def feedback(rounds: int, dims: int, slots: int) -> Feedback:
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(rounds, dims)).astype(np.float32)
    arms = (rng.integers(0, ITEMS, (rounds, 1)) + np.arange(slots) * 7) % ITEMS
    rewards = (rng.random((rounds, slots)) < 0.2).astype(np.float32)
    return Feedback(contexts, arms, None, rewards, components=np.zeros((rounds, slots, 3), np.float32))


def bytes_of(shown: Feedback) -> int:
    parts = [*vars(shown).values(), *vars(shown.contexts).values()]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))


def memory(which: str) -> int:
    """VmRSS: now; VmHWM: at most since it was last asked to forget."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(which)).split()[1]) * 1024


def measured(rounds: int, dims: int, slots: int, own: bool) -> dict[str, Any]:
    vectors = np.random.default_rng(1).normal(size=(ITEMS, dims)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    model = Model.from_vectors(Tree.from_vectors(vectors), vectors, "cosine", context_dims=dims if own else 0)
    shown = feedback(rounds, dims, slots)
    Path("/proc/self/clear_refs").write_text("5")
    before, worked = memory("VmRSS"), time.process_time()
    Pooled(vectors=((0, dims),)).learn(model, shown)
    taken, held = memory("VmHWM") - before, bytes_of(shown)
    return {
        "rounds": rounds,
        "dims": dims,
        "slots": slots,
        "own_space": own,
        "bytes_a_round": round((held + taken) / rounds),
        "of_them_the_rounds": round(held / rounds),
        "cpu_seconds": round(time.process_time() - worked, 1),
        "load_average": load_average(),
        "commit": commit(),
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rounds", 150_000), ("dims", 64), ("slots", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--own", action="store_true")
    asked = parser.parse_args()
    print(json.dumps(measured(asked.rounds, asked.dims, asked.slots, asked.own)))


if __name__ == "__main__":
    main()
