"""Figure 3(b): milliseconds a decision by beam, on a model trained in the same run, the beams taking turns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from treetop.arrays import Floats
from treetop.learning.refit import refit
from treetop.model.model import Model
from treetop.paper.published import FIGURE3B, K, dataset_title
from treetop.paper.run_cache import BEAM, EXPLORE, RunCache, named
from treetop.policy.policy import Policy
from treetop.policy.strategies import IGW
from treetop.report.sections import Line, Panel, Section, Table, number
from treetop.simulation.play import Tracking, begin, run

BEAMS = (10, 30, 100)
TRAINING, TIMED, SECONDS, QUICK_SECONDS = 50_000, 1_000, 60.0, 10.0  # rounds, contexts, budgets


def inference(cache: RunCache) -> Section:
    """The section, for the dataset with the most arms.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     spec = "synthetic:arms=150,features=40,rows=200,init=100,nonzeros=8"
    ...     cache = RunCache((spec,), (0,), Path(folder), quick=True, horizon=100)
    ...     [row["beam"] for row in inference(cache).data["rows"]]
    ['10', 'all (16)']
    """
    spec = cache.largest()
    facts, size = cache.about(spec)
    rounds = min(size.horizon, TRAINING)
    model, contexts = _trained(cache, spec, rounds)
    leaves = len(np.unique(model.tree.leaf_of))
    beams = {str(b): b for b in BEAMS if b < leaves} | {"all": leaves}
    times = _times(model, beams, contexts, QUICK_SECONDS if cache.quick else SECONDS)
    rows = [_row(f"all ({leaves:,})" if name == "all" else name, FIGURE3B[name], ms) for name, ms in times.items()]
    return Section(
        "inference",
        "Inference time by beam (Figure 3b)",
        f"{dataset_title(facts)}: {facts['arms']:,} arms, a model that has learned from {rounds:,} rounds; k = {K}, "
        f"r = {EXPLORE}. The paper's machine is not this one: compare how the times grow.",
        (_table(rows, len(times["all"])),),
        (_panel(rows, dataset_title(facts)),),
        {**named(facts), "rows": rows},
        {**cache.settings(), "rounds": rounds, "init": size.init, "max_leaf": size.max_leaf},
    )


def _trained(cache: RunCache, spec: str, rounds: int) -> tuple[Model, Any]:
    """A model that has learned from IGW's own rounds, and their contexts."""
    size, seed = cache.sizes(spec), cache.seeds[0]
    stream, model = begin(cache.dataset(spec), size.init, rounds, size.max_leaf, seed)
    bar = cache.bars("inference: igw", rounds) if cache.bars else None
    played = run(stream, model, Policy(K, EXPLORE, BEAM, IGW()), seed=seed, tracking=Tracking(progress=bar))
    return refit(played.model, played.feedback), played.feedback.contexts.csr()


def _times(model: Model, beams: dict[str, int], contexts: Any, budget: float) -> dict[str, Floats]:
    """Milliseconds of every decision; a context is decided with every beam before the next one comes."""
    policies = {name: Policy(K, EXPLORE, beam, IGW()) for name, beam in beams.items()}
    chosen = np.random.default_rng(0).permutation(contexts.shape[0])[: TIMED + 3]
    found: dict[str, list[float]] = {name: [] for name in policies}
    began = time.perf_counter()
    for i, row in enumerate(chosen):
        x = contexts[row]
        for name, policy in policies.items():
            start = time.perf_counter()
            policy.decide(model, x, event_id=i)
            found[name].append(1e3 * (time.perf_counter() - start))
        if i >= 20 and time.perf_counter() - began > budget:
            break
    return {name: np.array(ms[3:]) for name, ms in found.items()}  # the first ones warm up


def _row(beam: str, paper: float, ms: Floats) -> dict[str, Any]:
    return {
        "beam": beam,
        "paper_ms": paper,
        "median_ms": float(np.median(ms)),
        "p99_ms": float(np.percentile(ms, 99)),
        "mean_ms": float(ms.mean()),
    }


def _table(rows: list[dict[str, Any]], n: int) -> Table:
    columns = ("beam", "paper, amazon-3m: mean ms", "median ms", "p99 ms", "mean ms")
    keys = ("paper_ms", "median_ms", "p99_ms", "mean_ms")
    note = f"{n} contexts, one at a time through the Python API, in one process, the beams in turn."
    return Table("", columns, tuple((r["beam"], *(number(r[key]) for key in keys)) for r in rows), note)


def _panel(rows: list[dict[str, Any]], name: str) -> Panel:
    ours = tuple(r["median_ms"] for r in rows)
    lines = (
        Line("paper (amazon-3m)", "paper", tuple(r["paper_ms"] for r in rows)),
        Line(f"ours ({name})", "ours", ours, texts=tuple(number(ms) for ms in ours)),
    )
    labels = tuple(r["beam"] for r in rows)
    return Panel("milliseconds a decision", lines, "ms (paper: mean, ours: median)", "bars", labels)
