"""What a bench gets, what it gives back, and how contestants take turns. Knows nothing of what they do."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import check_float, check_int
from treetop.bench.peers import SETUP, Peer, save_rows, take, to_pecos
from treetop.bench.shape import BenchModel, Say, Shape, cached_model, default_cache, silent, weights
from treetop.bench.timing import Row, Taken, spread, turns
from treetop.data.datasets import Dataset
from treetop.learning.refit import refit
from treetop.policy.policy import Policy
from treetop.policy.strategies import IGW
from treetop.simulation.play import begin, run
from treetop.tree.tree import usual_max_leaf

Call = Callable[[int, int], list[Taken]]


@dataclass(frozen=True)
class Setting:
    """Sizes, beams, how many contexts are timed, where models are kept, where the peers are, if anywhere, and the share
    of rewards that come after their rounds were sealed."""

    shape: Shape = field(default_factory=Shape)
    beams: tuple[int, ...] = (10, 30, 100)
    contexts: int = 1_000
    cache: Path = field(default_factory=default_cache)
    peers: tuple[Path, Path] | None = None
    dataset: Dataset | None = None  # instead of made-up data
    say: Say = silent
    late: float = 0.0

    def __post_init__(self) -> None:
        check_int("contexts", self.contexts, 10, 10_000)
        check_float("late", self.late, 0, 1)
        for beam in self.beams:
            check_int("beam", beam, 1)
        if not self.beams:
            raise ValueError("there are 0 beams; at least 1 is needed")

    def model(self, shape: Shape | None = None) -> BenchModel:
        if self.dataset is not None and shape is None:
            return model_of_dataset(self.dataset, self.shape)
        return cached_model(shape or self.shape, self.cache, self.say)

    def policy(self, beam: int) -> Policy:
        return Policy(k=5, explore=3, beam=beam, strategy=IGW())


@dataclass(frozen=True, eq=False)
class Result:
    """Rows for tables and JSON, what was checked, and who was left out and why."""

    rows: list[Row] = field(default_factory=list)
    checks: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, name: str, why: str = f"not set up; {SETUP}") -> None:
        self.left_out.append(f"{name}: {why}")


@dataclass(frozen=True, eq=False)
class Contestant:
    """Something to time: its row, `call(first, n)` with what each of its calls took, how many, and from where on."""

    row: Row
    call: Call
    size: int
    first: int = 0


def contest(contestants: list[Contestant]) -> list[Row]:
    """A row each, timed in turns."""
    named = {str(i): c for i, c in enumerate(contestants)}
    calls: dict[str, Call] = {name: partial(_from, c) for name, c in named.items()}
    times = turns(calls, {name: c.size for name, c in named.items()})
    return [{**c.row, **spread(times[name])} for name, c in named.items()]


def _from(contestant: Contestant, first: int, n: int) -> list[Taken]:
    return contestant.call(contestant.first + first, n)


def with_own_contexts(contestants: list[Contestant], contexts: int) -> list[Contestant]:
    """Each with contexts of its own, as far as there are enough: none finds in the cache what another has just read."""
    found, first = [], 0
    for contestant in contestants:
        found.append(replace(contestant, first=first % max(1, contexts - contestant.size + 1)))
        first += contestant.size
    return found


def model_of_dataset(dataset: Dataset, shape: Shape) -> BenchModel:
    """A model that has learned from `shape.rounds` rounds of its own on a dataset, and the contexts of those rounds."""
    init = min(5000, len(dataset.X) // 4 if dataset.X_init is None else len(dataset.X_init))
    began = time.perf_counter()
    stream, model = begin(dataset, init, shape.rounds, usual_max_leaf(dataset.n_arms), shape.seed)
    facts: dict[str, Any] = {"build_seconds": time.perf_counter() - began}
    history = run(stream, model, Policy(k=5, explore=3), seed=shape.seed).feedback
    learned = refit(model, history)
    order = np.random.default_rng(0).permutation(len(history))[:10_000]
    return BenchModel(learned, take(history.contexts, order), facts | weights(learned))


def with_pecos(setting: Setting, subject: BenchModel, result: Result, stack: ExitStack) -> Peer | None:
    """PECOS with the same tree, weights and contexts loaded."""
    if setting.peers is None:
        result.leave_out("pecos")
        return None
    setting.cache.mkdir(parents=True, exist_ok=True)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=setting.cache, prefix="pecos-")))
    setting.say("the model in PECOS's form")
    if not to_pecos(subject.model, folder / "model"):
        result.leave_out("pecos", "its trees have all leaves on one level")
        return None
    save_rows(subject.contexts, folder / "contexts.npz")
    peer = stack.enter_context(Peer(setting.peers, "pecos"))
    setting.say("PECOS loads it")
    facts = peer.ask("load", folder=str(folder / "model"), contexts=str(folder / "contexts.npz"))
    stored = len(subject.model.route_rows.value) + subject.facts["arm_weights"]
    result.checks["pecos memory"] = {
        "load_seconds": round(facts["seconds"], 2),
        "bytes_per_weight": round(facts["bytes"] / max(1, stored), 2),
    }
    shutil.rmtree(folder / "model")
    return peer
