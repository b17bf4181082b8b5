"""`bench refit` and `build`: feedback to reward models, labels to tree and routing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from treetop.bench.child import in_child
from treetop.bench.peers import Peer, save_rows, take
from treetop.bench.reference import check_ridge
from treetop.bench.setting import Contestant, Result, Setting, contest
from treetop.bench.shape import K
from treetop.bench.timing import Row, Taken, seconds
from treetop.learn import Linear, refit, samples
from treetop.model import Model
from treetop.tree import Tree
from treetop.types import Feedback, Rows

SAMPLES = (5, 10, 20, 50)  # an arm
SLOW_ARMS = 30  # that scikit-learn fits


def refits(setting: Setting) -> Result:
    """Arms a second by samples an arm, beside others' solvers on the same samples; then one whole refit."""
    result, contexts = Result(), setting.made().contexts
    arms = max(100, 2 * setting.contexts)
    if setting.peers is None:
        result.leave_out("pecos")
        result.leave_out("sklearn")
    for n in SAMPLES:
        setting.say(f"{arms:,} arms of {n} samples")
        model, feedback = _problem(contexts, arms, n)
        result.checks[f"{n} samples"] = check_ridge(refit(model, feedback), feedback, range(3))
        rows = _solvers(setting, model, feedback, n)
        for row in rows:
            del row["per_second"]
            each = row["cpu_ms" if row["threads"] == 1 else "median_ms"] / row["arms"]
            row |= {"each_ms": round(each, 5), "arms_per_second": round(1e3 / each, 1)}
        result.rows.extend(rows)
    setting.say("a whole refit, in a process of its own")
    facts = in_child("make", shape=setting.shape)
    result.checks["whole refit"] = facts.pop("checks")
    row = {"name": "treetop", "what": "whole refit", "arms": setting.shape.arms, "samples": facts["samples"]}
    row |= {"threads": os.cpu_count(), "seconds": round(facts["refit_seconds"], 2), "peak_gb": facts["peak_gb"]}
    result.rows.append(row | {"weights": facts["arm_weights"] + facts["node_weights"]})
    return result


def _problem(contexts: Rows, arms: int, n: int) -> tuple[Model, Feedback]:
    """Every arm shown n times, five arms a round; the tree is one leaf, so that nothing but refitting is timed."""
    arms += -arms % K
    rounds = arms * n // K
    rng = np.random.default_rng(n)
    shown = (np.arange(rounds * K) % arms).reshape(rounds, K)
    x = take(contexts, rng.integers(0, len(contexts), rounds))
    nothing = Rows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), contexts.columns + 1)
    empty = Rows(np.zeros(arms + 2, np.int64), nothing.index, nothing.value, nothing.columns)
    model = Model(Tree([-1], np.zeros(arms, np.int32)), nothing, empty)  # type: ignore[arg-type]
    return model, Feedback(x, shown, None, rng.random((rounds, K), dtype=np.float32))


def _solvers(setting: Setting, model: Model, feedback: Feedback, n: int) -> list[Row]:
    cores = os.cpu_count() or 1

    def ours(threads: int) -> Contestant:
        def call(first: int, times: int) -> list[Taken]:
            return seconds(lambda _: refit(model, feedback, Linear(threads=threads)), times, first)

        row = {"name": "treetop", "what": "squared loss, exact", "arms": model.n_arms, "samples": n, "threads": threads}
        return Contestant(row, call, 3)

    everyone = [ours(threads) for threads in dict.fromkeys((1, cores))]
    if setting.peers is None:
        return contest(everyone)
    with (
        tempfile.TemporaryDirectory() as folder,
        Peer(setting.peers, "pecos") as pecos,
        Peer(setting.peers, "sklearn") as sklearn,
    ):
        files = {"contexts": f"{folder}/contexts.npz", "samples": f"{folder}/samples.npz"}
        save_rows(feedback.contexts, Path(files["contexts"]))
        start, rows, target = samples(feedback, model)
        np.savez(files["samples"], start=start[1:], rows=rows, target=target)  # the root has no samples

        def asked(peer: Peer, do: str, what: str, fitted: int, **arguments: Any) -> Contestant:
            def call(first: int, times: int) -> list[Taken]:
                return [(wall, cpu) for _ in range(times) for wall, cpu in [peer.ask(do, **files, **arguments)]]

            row = {"name": peer.name, "what": what, "arms": fitted, "samples": n, "threads": 1}
            return Contestant(row, call, 3)

        everyone += [
            asked(pecos, "solve", "squared hinge", model.n_arms, threads=1),
            asked(sklearn, "ridge", "Ridge", SLOW_ARMS, arms=SLOW_ARMS),
            asked(sklearn, "svr", "LinearSVR", SLOW_ARMS, arms=SLOW_ARMS),
        ]
        return contest(everyone)


def build(setting: Setting) -> Result:
    """Tree and routing from the initialisation rows, in a process of its own; PECOS builds a tree over the same."""
    result, shape = Result(), setting.shape
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(folder) / "vectors.npz"
        keep = {"vectors": str(vectors)} if setting.peers else {}
        setting.say("tree and routing, in a process of its own")
        facts = in_child("build", shape=shape, **keep)
        result.checks["tree and routing"] = facts["checks"]
        row = {"name": "treetop", "arms": shape.arms, "rows": shape.init, "threads": os.cpu_count()}
        for found in (
            row | {"what": "tree", "seconds": round(facts["tree_seconds"], 2)},
            row | {"what": "routing", "seconds": round(facts["routing_seconds"], 2)},
            row | {
                "what": "tree and routing", "peak_gb": facts["peak_gb"],
                "seconds": round(facts["tree_seconds"] + facts["routing_seconds"], 2),
            },
        ):  # fmt: skip
            result.rows.append(found)
        if setting.peers is None:
            result.leave_out("pecos")
            return result
        setting.say("PECOS builds its tree")
        with Peer(setting.peers, "pecos") as pecos:
            taken, _ = pecos.ask("cluster", vectors=str(vectors), max_leaf=shape.max_leaf, threads=os.cpu_count())
        result.rows.append(row | {"name": "pecos", "what": "tree, vectors given", "seconds": round(taken, 2)})
    return result
