"""`bench refit` and `build`: feedback to reward models, labels to tree and routing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Int64s, Rows
from treetop.bench.peers import Peer, save_rows, take
from treetop.bench.reference import check_ridge
from treetop.bench.setting import Contestant, Result, Setting, contest
from treetop.bench.shape import CONTEXTS, K
from treetop.bench.subprocesses import in_subprocess
from treetop.bench.timing import Row, Taken, seconds
from treetop.data.synthetic import generate
from treetop.errors import PeerError
from treetop.learning.linear import Linear
from treetop.learning.refit import refit
from treetop.learning.samples import paper_samples
from treetop.model.model import Model
from treetop.records import Feedback
from treetop.tree.tree import Tree

SAMPLES = {"5": (5, 5), "10": (10, 10), "20": (20, 20), "50": (50, 50), "5-50": (5, 50)}  # an arm, from and to
SLOW_ARMS = 30  # that scikit-learn fits
PECOS_GB = 12  # for its tree
SOLVERS: dict[str, list[tuple[str, str, dict[str, int]]]] = {
    "pecos": [("solve", "squared hinge", {"threads": 1})],
    "sklearn": [("ridge", "Ridge", {"arms": SLOW_ARMS}), ("svr", "LinearSVR", {"arms": SLOW_ARMS})],
}


def refits(setting: Setting) -> Result:
    """Arms a second by samples an arm, beside others' solvers on the same samples; then one whole refit."""
    result, contexts = Result(), generate(replace(setting.shape, init=1).spec(CONTEXTS))[0]
    arms = max(100, setting.contexts)
    with ExitStack() as stack:
        peers: list[Peer] = []
        for name in ("pecos", "sklearn"):
            if setting.peers is None:
                result.leave_out(name)
            else:
                peers.append(stack.enter_context(Peer(setting.peers, name)))
        for n, (low, high) in SAMPLES.items():
            setting.say(f"{arms:,} arms of {n} samples")
            model, feedback = _problem(contexts, arms, low, high)
            result.checks[f"{n} samples"] = check_ridge(refit(model, feedback), feedback, range(3))
            result.rows.extend(_arms_per_second(_solvers(peers, model, feedback, n)))
    setting.say("a whole refit, in a process of its own")
    facts = in_subprocess("make", shape=setting.shape)
    result.checks["whole refit"] = facts.pop("checks")
    row = {"name": "treetop", "what": "whole refit", "arms": setting.shape.arms, "samples": facts["samples"]}
    row |= {"threads": os.cpu_count(), "seconds": round(facts["refit_seconds"], 2)}
    row |= {"cpu_seconds": round(facts["refit_cpu_seconds"], 2), "peak_gb": facts["peak_gb"]}
    result.rows.append(row | {"weights": facts["arm_weights"] + facts["node_weights"]})
    return result


def _arms_per_second(rows: list[Row]) -> list[Row]:
    """By the time that the core worked on one thread, by the clock on several."""
    for row in rows:
        del row["per_second"]
        each = row["cpu_ms" if row["threads"] == 1 else "median_ms"] / row["arms"]
        row |= {"each_ms": round(each, 5), "arms_per_second": round(1e3 / each, 1)}
    return rows


def _problem(contexts: Rows, arms: int, low: int, high: int) -> tuple[Model, Feedback]:
    """Every arm shown low to high times, five arms a round; the tree is one leaf: nothing but refitting is timed."""
    rng = np.random.default_rng([low, high])
    times = rng.integers(low, high + 1, arms)
    shown = np.concatenate([_rounds(np.flatnonzero(times > turn)) for turn in range(high)])
    rewards = np.where(shown < 0, np.nan, rng.random(shown.shape))
    x = take(contexts, rng.integers(0, len(contexts), len(shown)))
    nothing = Rows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), contexts.columns + 1)
    empty = Rows(np.zeros(arms + 2, np.int64), nothing.index, nothing.value, nothing.columns)
    tree = Tree(np.array([-1], np.int32), np.zeros(arms, np.int32))
    model = Model(tree=tree, route_rows=nothing, reward_rows=empty)
    return model, Feedback(x, shown, None, rewards)


def _rounds(arms: Int64s) -> Int64s:
    """The arms five a round, the last round filled up with slots that show nothing."""
    return np.append(arms, np.full(-len(arms) % K, -1)).reshape(-1, K)


def _solvers(peers: list[Peer], model: Model, feedback: Feedback, n: str) -> list[Row]:
    row = {"arms": model.n_arms, "samples": n}

    def ours(threads: int) -> Contestant:
        def call(first: int, times: int) -> list[Taken]:
            return seconds(lambda _: refit(model, feedback, Linear(threads=threads)), times, first)

        return Contestant({"name": "treetop", "what": "squared loss", **row, "threads": threads}, call, 6)

    everyone = [ours(threads) for threads in dict.fromkeys((1, os.cpu_count() or 1))]
    with tempfile.TemporaryDirectory() as folder:
        files = {"contexts": f"{folder}/contexts.npz", "samples": f"{folder}/samples.npz"}
        if peers:
            save_rows(feedback.contexts, Path(files["contexts"]))
            start, rows, target = paper_samples(feedback, model)
            np.savez(files["samples"], start=start[1:], rows=rows, target=target)  # the root has no samples
        for peer in peers:
            for do, what, arguments in SOLVERS[peer.name]:
                call = _asked(peer, do, **files, **arguments)
                fitted = {"arms": arguments.get("arms", model.n_arms), "threads": 1}
                everyone.append(Contestant({"name": peer.name, "what": what, **row, **fitted}, call, 3))
        return contest(everyone)


def _asked(peer: Peer, do: str, **arguments: Any) -> Callable[[int, int], list[Taken]]:
    return lambda _, times: [(wall, cpu) for _ in range(times) for wall, cpu in [peer.ask(do, **arguments)]]


def build(setting: Setting) -> Result:
    """Tree and routing from the initialisation rows, in a process of its own; PECOS builds a tree over the same."""
    result, shape = Result(), setting.shape
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(folder) / "vectors.npz"
        keep = {"vectors": str(vectors)} if setting.peers else {}
        setting.say("tree and routing, in a process of its own")
        facts = in_subprocess("build", shape=shape, **keep)
        result.checks["tree and routing"] = facts["checks"]
        row = {"name": "treetop", "arms": shape.arms, "rows": shape.init, "threads": os.cpu_count()}
        for what in (["tree"], ["routing"], ["tree", "routing"]):
            took = {key: round(sum(facts[f"{one}_{key}"] for one in what), 2) for key in ("seconds", "cpu_seconds")}
            result.rows.append(row | {"what": " and ".join(what)} | took)
        result.rows[-1]["peak_gb"] = facts["peak_gb"]
        if setting.peers is None:
            result.leave_out("pecos")
            return result
        setting.say("PECOS builds its tree")
        with Peer(setting.peers, "pecos") as pecos:
            arguments = {"vectors": str(vectors), "max_leaf": shape.max_leaf, "threads": os.cpu_count(), "gb": PECOS_GB}
            try:
                taken, cpu = pecos.ask("cluster", **arguments)
            except PeerError as error:
                result.leave_out("pecos", f"its tree was not built within {PECOS_GB} GB ({error})")
                return result
        took = {"seconds": round(taken, 2), "cpu_seconds": round(cpu, 2)}
        result.rows.append(row | {"name": "pecos", "what": "tree, vectors given"} | took)
    return result
