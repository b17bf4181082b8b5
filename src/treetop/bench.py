"""Timings, always beside something else in the same run. `treetop bench` prints them; nothing asserts them."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from treetop.datasets import Dataset
from treetop.explore import IGW
from treetop.learn import refit
from treetop.model import Model
from treetop.policy import Policy
from treetop.simulate import Run, begin, run
from treetop.types import Floats

WHAT = ("decide", "batch", "build", "refit")


def machine() -> str:
    return f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}, NumPy {np.__version__}"


def bench(dataset: Dataset, what: tuple[str, ...], beam: int, rounds: int, seed: int) -> list[dict[str, Any]]:
    """One row per thing measured, on a model that has learned from `rounds` rounds of the dataset."""
    init = min(5000, len(dataset.X) // 4 if dataset.X_init is None else len(dataset.X_init))
    max_leaf = 10 if dataset.n_arms < 100_000 else 100
    began = time.perf_counter()
    stream, model = begin(dataset, init, rounds, max_leaf, seed)
    build = time.perf_counter() - began
    policy = Policy(k=5, explore=3, beam=beam, strategy=IGW())
    played = run(stream, model, policy, seed=seed)
    model = refit(model, played.feedback)
    rows: list[dict[str, Any]] = []
    if "build" in what:
        rows.append({"name": f"tree and routing from {init} rows", "arms": dataset.n_arms, "seconds": round(build, 3)})
    if "refit" in what:
        rows += _refit(model, played)
    if "decide" in what:
        rows += _decide(model, policy, played)
    if "batch" in what:
        rows += _batch(model, policy, played)
    return rows


def _refit(model: Model, played: Run) -> list[dict[str, Any]]:
    began = time.perf_counter()
    refit(model, played.feedback)
    seconds = time.perf_counter() - began
    observed = int(played.feedback.observed.sum())
    return [{"name": f"refit on {observed:,} samples", "arms": model.n_arms, "seconds": round(seconds, 3)}]


def _decide(model: Model, policy: Policy, played: Run) -> list[dict[str, Any]]:
    """A decision through the Python API against scoring every arm with scipy, on the same contexts."""
    contexts = played.feedback.contexts.csr()
    picked = np.random.default_rng(0).permutation(contexts.shape[0])[:2000]
    singles = [contexts[i] for i in picked]
    arms, bias = model.rewards[model.tree.n_nodes :, :-1].tocsr(), model.rewards[model.tree.n_nodes :, -1].toarray()
    policy.decide(model, singles[0])

    def flat(x: Any) -> None:
        scores = (arms @ x.T).toarray() + bias
        np.argpartition(-scores[:, 0], policy.k)

    agree = _agreement(model, policy, singles[:200], arms, bias)
    return [
        {**_timed("treetop", lambda i: policy.decide(model, singles[i], event_id=i), len(singles)), "beam": policy.beam,
         "arms": model.n_arms, "scores_checked": agree},
        {**_timed("scipy, every arm", lambda i: flat(singles[i]), min(200, len(singles))), "arms": model.n_arms},
    ]  # fmt: skip


def _agreement(model: Model, policy: Policy, singles: list[Any], arms: Any, bias: Floats) -> int:
    """How many arm scores were compared with plain scipy; a difference above 1e-4 is an error, not a timing."""
    compared = 0
    for x in singles:
        found = policy.explain(model, x)
        single = found.id[~found.is_node]
        want = (arms[single] @ x.T).toarray()[:, 0] + bias[single, 0]
        worst = float(np.abs(found.score[~found.is_node] - want).max())
        if worst > 1e-4:
            raise AssertionError(f"a score differs from scipy's by {worst}")
        compared += len(single)
    return compared


def _timed(name: str, call: Callable[[int], object], n: int) -> dict[str, Any]:
    times = np.empty(n)
    for i in range(n):
        began = time.perf_counter()
        call(i)
        times[i] = time.perf_counter() - began
    return {
        "name": name, "median_ms": round(float(np.median(times)) * 1e3, 4),
        "p99_ms": round(float(np.percentile(times, 99)) * 1e3, 4), "per_second": round(n / float(times.sum())),
    }  # fmt: skip


def _batch(model: Model, policy: Policy, played: Run) -> list[dict[str, Any]]:
    rows = []
    contexts = played.feedback.contexts.head(min(20_000, len(played.feedback)))
    for threads in (1, 0):
        began = time.perf_counter()
        policy.decide_batch(model, contexts, seed=1, threads=threads)
        rate = len(contexts) / (time.perf_counter() - began)
        label = "decide_batch, 1 thread" if threads else "decide_batch, all cores"
        rows.append({"name": label, "arms": model.n_arms, "beam": policy.beam, "per_second": round(rate)})
    return rows
