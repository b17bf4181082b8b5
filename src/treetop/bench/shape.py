"""Made-up models of any size to time things on, made once and kept in a folder. Knows nothing of clocks.

The data come from `synthetic`; tree, routing and reward models are fitted with the package's own functions, on a log
that never happened: two slots of a round show labels of its context, three show arms drawn from all arms, one in four
of those through a node above it, and the rewards are random. So weights are spread over all arms, and a decision finds
as much to add up as it would after a real log of that length.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from treetop.arrays import Ints, Rows, check_int
from treetop.data.synthetic import ARMS_A_TOPIC, Spec, generate
from treetop.errors import ModelFileError
from treetop.learning.refit import refit
from treetop.model.model import Model
from treetop.records import Feedback
from treetop.tree.tree import Tree

K, LABEL_SLOTS = 5, 2
CONTEXTS = 10_000  # kept beside the model; the log has none of them
Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Shape:
    """How large: arms, features, averages of a row, rows for tree and routing, rounds of the log (5 samples each)."""

    arms: int = 100_000
    features: int = 50_000
    nonzeros: float = 49.0
    labels: float = 10.0
    init: int = 5_000
    rounds: int = 60_000
    max_leaf: int = 100
    threshold: float = 0.0  # routing weights up to this size are dropped
    seed: int = 0

    def __post_init__(self) -> None:
        self.spec(1)
        check_int("arms", self.arms, 10)
        check_int("rounds", self.rounds, 1)
        check_int("max_leaf", self.max_leaf, 2)

    def spec(self, rows: int) -> Spec:
        labels = min(self.labels, self.arms)
        topics = max(1, round(self.arms / max(ARMS_A_TOPIC, 3 * labels)))
        nonzeros = min(self.nonzeros, self.features)
        return Spec(self.arms, self.features, rows, self.init, nonzeros, labels, topics=topics, seed=self.seed)

    def sized(self, arms: int) -> Shape:
        """The same with more or fewer arms: features and leaves stay, the rounds an arm too."""
        return replace(self, arms=arms, rounds=max(1, round(self.rounds * arms / self.arms)))

    @property
    def name(self) -> str:
        return "-".join(f"{key}{value:.12g}" for key, value in asdict(self).items())


SHAPES = {
    "small": Shape(),
    "amazon-3m": Shape(2_812_281, 337_067, 49, 36.17, 50_000, 1_200_000, threshold=0.1),  # PECOS's own threshold
    "670k": Shape(670_000, 20_000, 10, 5, 5_000, 10_000_000, max_leaf=20),  # what `learn-scale` is about
    "10m": Shape(10_000_000, 337_067, 49, 5, 50_000, 800_000),
}


def shape_of(name: str, arms: int | None, sizes: dict[str, Any]) -> Shape:
    """A shape by name, with other sizes where they are given.

    >>> shape_of("amazon-3m", 1_000_000, {"features": None}).rounds
    426700
    """
    if name not in SHAPES:
        raise ValueError(f"shape is {name!r}; it must be one of {', '.join(SHAPES)}")
    shape = SHAPES[name] if arms is None else SHAPES[name].sized(check_int("arms", arms, 10))
    return replace(shape, **{key: value for key, value in sizes.items() if value is not None})


@dataclass(frozen=True, eq=False)
class BenchModel:
    """A model, contexts that it has not seen, and what making it took."""

    model: Model
    contexts: Rows
    facts: dict[str, Any]


def silent(text: str) -> None:
    """Says nothing."""


def initial(shape: Shape, X: Rows, Y: Rows, say: Say = silent) -> tuple[Model, dict[str, float]]:
    """Tree and routing from the initialisation rows, and the seconds of each."""
    say(f"tree over {shape.arms:,} arms")
    tree, spent = _clocked("tree", lambda: Tree.from_labels(X, Y, max_leaf=shape.max_leaf, seed=shape.seed))
    say(f"routing of {tree.n_nodes:,} nodes")
    model, more = _clocked("routing", lambda: Model.initial(tree, X, Y, threshold=shape.threshold))
    return model, spent | more


def _clocked(name: str, call: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """What a call gives, its seconds by the clock and those of all cores together."""
    worked, began = time.process_time(), time.perf_counter()
    found = call()
    spent = time.perf_counter() - began
    return found, {f"{name}_seconds": spent, f"{name}_cpu_seconds": time.process_time() - worked}


def made_up_log(shape: Shape, tree: Tree, X: Rows, Y: Rows) -> Feedback:
    """Rounds that never happened, on the first `shape.rounds` of these rows."""
    n, rng = shape.rounds, np.random.default_rng([shape.seed, 0xB0])
    arms = rng.integers(0, tree.n_arms, (n, K), dtype=np.int32)
    count = np.diff(Y.start[: n + 1])[:, None]
    picked = Y.start[:n, None] + (rng.random((n, 1)) * count + np.arange(LABEL_SLOTS)) % count
    arms[:, :LABEL_SLOTS] = Y.index[picked.astype(np.int64)]
    nodes = np.full((n, K), -1, np.int32)
    through = rng.random((n, K - LABEL_SLOTS)) < 0.25
    nodes[:, LABEL_SLOTS:][through] = _above(tree, arms[:, LABEL_SLOTS:][through], rng)
    rewards = rng.random((n, K), dtype=np.float32)
    return Feedback(X.head(n), arms, nodes, rewards)


def _above(tree: Tree, arms: Ints, rng: np.random.Generator) -> Ints:
    """A random node on each arm's path, of those that a search with a beam of 10 can prune."""
    node = tree.leaf_of[arms]
    for _ in range(max(0, tree.depth - 4)):
        up = rng.random(len(node)) < 0.5
        node = np.where(up, tree.parents[node], node)
    return np.asarray(node, np.int32)


def fit_made_up(shape: Shape, say: Say = silent) -> tuple[Model, Feedback, Rows, dict[str, Any]]:
    """All steps: data, tree, routing, log, reward models. The model, its log, contexts it has not seen, and seconds."""
    say(f"{shape.init + shape.rounds:,} rows of data")
    began = time.perf_counter()
    X, Y, X_init, Y_init = generate(shape.spec(shape.rounds + CONTEXTS))
    facts: dict[str, Any] = {"data_seconds": time.perf_counter() - began}
    model, spent = initial(shape, X_init, Y_init, say)
    feedback = made_up_log(shape, model.tree, X, Y)
    contexts = X.slice(shape.rounds, shape.rounds + CONTEXTS)
    del Y
    say(f"reward models from {feedback.rewards.size:,} samples")
    learned, more = _clocked("refit", lambda: refit(model, feedback))
    facts |= spent | more | {"samples": int(feedback.rewards.size)}
    return learned, feedback, contexts, facts | weights(learned)


def weights(model: Model) -> dict[str, int]:
    """How many weights a model stores: routing, reward models of nodes, of arms."""
    split = int(model.reward_rows.start[model.tree.n_nodes])
    return {
        "routing_weights": len(model.route_rows.value),
        "node_weights": split,
        "arm_weights": len(model.reward_rows.value) - split,
    }


def _keep(model: Model, contexts: Rows, facts: dict[str, Any], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.perf_counter()
    model.save(folder / "model")
    facts["save_seconds"] = time.perf_counter() - began
    np.savez(folder / "contexts.npz", start=contexts.start, index=contexts.index, value=contexts.value)
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")  # last: without it the folder is not used


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treetop" / "bench"


def cached_model(shape: Shape, cache: Path, say: Say = silent) -> BenchModel:
    """The model of a shape, from the folder if it is there, else made and left there."""
    folder = cache / shape.name
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{shape.name}.lock"):
        found = _kept(shape, folder)
        if found is None:
            model, _, contexts, facts = fit_made_up(shape, say)
            say("saving")
            _keep(model, contexts, facts, folder)
            del model
            found = _kept(shape, folder)
    if found is None:
        raise OSError(f"{folder}: a model was made here and cannot be read back")
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One after the other: two runs do not make the same model."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: two runs at once are the user's own lookout
        yield
        return
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kept(shape: Shape, folder: Path) -> BenchModel | None:
    if not (folder / "facts.json").is_file():
        return None
    try:
        model = Model.load(folder / "model")
    except ModelFileError:
        return None  # of another version of the format
    with np.load(folder / "contexts.npz") as arrays:
        contexts = Rows(arrays["start"], arrays["index"], arrays["value"], shape.features)
    return BenchModel(model, contexts, json.loads((folder / "facts.json").read_text()))
