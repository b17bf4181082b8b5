"""How far a decision is from touching its memory: distinct cache lines a context, and how long they take by themselves.

    python benchmarks/lines.py [--shape amazon-3m] [--cache DIR] [--beam 10 --beam 30] [--count 2000] [--json]
    python benchmarks/lines.py --model MODEL --contexts CONTEXTS.npz     # a folder of Model.save, a scipy matrix

For every context the lines of the serving layout that the search reads are noted; then decisions and replays (one word
of each of these lines, in the order in which the decision first read it, no arithmetic) take turns, and the medians are
compared. The arrays of the tree, a small part, are not counted. Every instruction set of the machine has a process of
its own; they take turns too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import treetop
from treetop import _core
from treetop.arrays import Rows, as_rows
from treetop.bench.shape import SHAPES, cached_model, default_cache
from treetop.bench.table import markdown
from treetop.bench.timing import TURNS, commit, load_average, machine

TIMES = ("decision_us", "replay_us")


def measure(model: treetop.Model, rows: Rows, beam: int, k: int = 5) -> dict[str, Any]:
    """Medians in microseconds over all contexts, decisions and replays in passes of their own."""
    policy = treetop.Policy(k=k, beam=beam)
    singles = [rows.row(i) for i in range(len(rows))]
    lines = [model.engine.lines(x.start, x.index, x.value, k, beam) for x in singles]
    decided = []
    for i, x in enumerate(singles):
        began = time.perf_counter()
        policy.decide(model, x, event_id=i)
        decided.append(time.perf_counter() - began)
    replayed = [model.engine.touch(numbers)[0] for numbers in lines]
    medians = (1e6 * float(np.median(times)) for times in (decided, replayed))
    facts = {"beam": beam, "contexts": len(singles), "lines": round(float(np.mean([len(n) for n in lines])), 1)}
    return facts | dict(zip(TIMES, medians, strict=True))


def opened(asked: argparse.Namespace) -> tuple[treetop.Model, Rows]:
    if asked.model:
        model = treetop.Model.load(asked.model)
        return model, as_rows(sp.csr_matrix(sp.load_npz(asked.contexts))[: asked.count], model.n_features)
    found = cached_model(SHAPES[asked.shape], asked.cache)
    return found.model, found.contexts.head(asked.count)


def with_set(name: str) -> list[dict[str, Any]]:
    """The rows of a process that uses one instruction set."""
    variables = {**os.environ, "TREETOP_SIMD": name}
    done = subprocess.run([sys.executable, *sys.argv, "--here"], env=variables, stdout=subprocess.PIPE, check=True)
    return list(json.loads(done.stdout))


def middle(turns: list[list[dict[str, Any]]], name: str) -> list[dict[str, Any]]:
    """One row a beam, of the medians of all turns."""
    found = []
    for rows in zip(*turns, strict=True):
        times = {key: float(np.median([row[key] for row in rows])) for key in TIMES}
        ratio = round(times["decision_us"] / max(times["replay_us"], 1e-3), 2)
        shown = {key: round(value, 1) for key, value in times.items()}
        found.append({"bench": "replay", "name": "treetop", "simd": name, **rows[0], **shown, "times_replay": ratio})
    return found


def document(command: str) -> dict[str, Any]:
    """All rows, the widest instruction set first, in the form of `treetop bench --json`."""
    before, names = load_average(), _core.instruction_sets()[::-1]
    turns = [{name: with_set(name) for name in names} for _ in range(TURNS)]
    rows = [row for name in names for row in middle([turn[name] for turn in turns], name)]
    return {
        "rows": rows,
        "checks": {},
        "left_out": [],
        "command": command,
        "commit": commit(),
        "machine": machine(),
        "load_average": [before, load_average()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="amazon-3m", choices=SHAPES)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where made-up models are kept")
    parser.add_argument("--model", help="a saved model instead")
    parser.add_argument("--contexts", help="and a scipy .npz of contexts")
    parser.add_argument("--beam", type=int, action="append")
    parser.add_argument("--count", type=int, default=2000, help="how many contexts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help="only what this process measures")
    asked = parser.parse_args()
    if bool(asked.model) != bool(asked.contexts):
        parser.error("--model and --contexts belong together")
    if asked.here:
        model, rows = opened(asked)
        print(json.dumps([measure(model, rows, beam) for beam in asked.beam or [10]]))
        return
    found = document(f"python {' '.join(sys.argv)}")
    print(json.dumps(found) if asked.json else markdown(found["rows"]))


if __name__ == "__main__":
    main()
