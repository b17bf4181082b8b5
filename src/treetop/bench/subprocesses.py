"""Measurements that need a process of their own: the most memory a step takes, a model opened by a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Rows
from treetop.bench import learn_steps
from treetop.bench.peers import save_rows
from treetop.bench.reference import check_ridge, check_routing, check_tree
from treetop.bench.shape import Shape, fit_made_up, initial
from treetop.bench.timing import anonymous, peak_gb
from treetop.data.synthetic import generate
from treetop.errors import ChildError
from treetop.model.model import Model
from treetop.model.storage import FILES
from treetop.policy.policy import Policy
from treetop.tree.labels import pifa

DECISIONS = 1000


def in_subprocess(what: str, **arguments: Any) -> dict[str, Any]:
    """The facts that a function of `WHAT` finds in a fresh process."""
    plain = {key: asdict(value) if isinstance(value, Shape) else value for key, value in arguments.items()}
    words = [sys.executable, "-m", "treetop.bench.subprocesses", what, json.dumps(plain)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise ChildError(
            f"bench {what} ended with code {done.returncode}: {(done.stderr.strip() or '?').splitlines()[-1]}"
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def make(shape: dict[str, Any]) -> dict[str, Any]:
    """Reward models from a whole log, the history in memory."""
    model, feedback, _, facts = fit_made_up(Shape(**shape))
    some = np.random.default_rng(0).choice(model.n_arms, 3, replace=False)
    return facts | {"peak_gb": peak_gb(), "checks": check_ridge(model, feedback, [int(arm) for arm in some])}


def build(shape: dict[str, Any], vectors: str | None = None) -> dict[str, Any]:
    """Tree and routing; with `vectors`, what the tree is built over is left in that file."""
    asked = Shape(**shape)
    _, _, X, Y = generate(asked.spec(1))
    model, facts = initial(replace(asked, threshold=0.0), X, Y)  # what is dropped could not be checked
    peak = peak_gb()
    checks = check_tree(model.tree, asked.max_leaf) | check_routing(model, X, Y)
    if vectors:
        save_rows(pifa(X, Y), Path(vectors))
    return {**facts, "peak_gb": peak, "checks": checks}


def open_model(folder: str, contexts: str, beam: int) -> dict[str, Any]:
    """A saved model to its first decision, and the memory that serving takes."""
    with np.load(contexts) as a:
        rows = Rows(a["start"], a["index"], a["value"], int(a["columns"]))
    policy, before = Policy(beam=beam), anonymous()
    worked, began = time.process_time(), time.perf_counter()
    model = Model.load(folder)
    opened = time.perf_counter()
    policy.decide(model, rows.row(0), event_id=0)
    first, worked = time.perf_counter(), time.process_time() - worked
    touched = _mapped(folder)
    for i in range(1, min(DECISIONS, len(rows))):
        policy.decide(model, rows.row(i), event_id=i)
    return {
        "load_seconds": opened - began,
        "first_decision_seconds": first - began,
        "cpu_seconds": worked,
        "anonymous_bytes": anonymous() - before,
        "mapped_bytes": _serving(touched, _mapped(folder)),
    }


def _mapped(folder: str) -> dict[str, tuple[int, int]]:
    """Size and resident bytes of every mapped file of a folder."""
    found: dict[str, tuple[int, int]] = {}
    name, size = "", 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if "-" in word and not word.endswith(":"):
            name = line.split(maxsplit=5)[-1]
        elif word == "Size:":
            size = int(rest.split()[0]) * 1024
        elif word == "Rss:" and str(Path(folder).resolve()) in name:
            old = found.get(name, (0, 0))
            found[name] = old[0] + size, old[1] + int(rest.split()[0]) * 1024
    return found


def _serving(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> int:
    """Whole sizes of the files that decisions read: all but those of the plain form that decisions leave alone."""
    plain = {f"{name}.npy" for name in FILES}
    return sum(
        size
        for name, (size, resident) in after.items()
        if Path(name).name not in plain or resident > before.get(name, (0, 0))[1]
    )


WHAT: dict[str, Callable[..., dict[str, Any]]] = {
    "make": make,
    "build": build,
    "open": open_model,
    "learn_begin": learn_steps.begin,
    "learn_seal": learn_steps.seal,
    "learn_refit": learn_steps.refit,
}

if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](**json.loads(sys.argv[2]))))
