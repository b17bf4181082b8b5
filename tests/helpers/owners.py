"""Models that know something of items beforehand, by vectors or an owner's model, and rounds to refit them from, as a
history on disk, too."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from treetop import Feedback, LabelSamples, Measure, Model, Pooled, Tree
from treetop.learning.history import HistoryWriter
from treetop.learning.shards import Resources
from treetop.learning.streamed import learn_streamed
from treetop.parallel import Machines

ARMS, DIMS, FEATURES, K = 60, 7, 10, 4
V = np.random.default_rng(0).normal(size=(ARMS, DIMS)).astype(np.float32)
TREE = Tree.from_vectors(V, 6, metric="cosine")
PARTS = ((0, DIMS),)


def contexts(n: int, seed: int) -> Any:
    """Vectors near those of items, one feature of two kinds, and a number that is far larger now and then."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, FEATURES), np.float32)
    X[:, :DIMS] = V[rng.integers(0, ARMS, n)] + 0.3 * rng.normal(size=(n, DIMS))
    X[rng.random(n) < 0.1, :DIMS] = 0.0
    X[np.arange(n), DIMS + rng.integers(0, 2, n)] = 1.0
    X[:, -1] = 40 * rng.random(n)
    X[rng.random(n) < 0.02] *= 50
    return X


def rounds(n: int, components: int = 3, seed: int = 0) -> Feedback:
    rng = np.random.default_rng([seed, 1])
    X = contexts(n, seed)
    arms = np.argsort(-(X[:, :DIMS] @ V.T) + rng.normal(0, 4, (n, ARMS)), axis=1)[:, :K]
    near = np.einsum("nd,nkd->nk", X[:, :DIMS], V[arms])
    rewards = (rng.random((n, K)) < 1 / (1 + np.exp(1 - near))).astype(np.float32)
    rewards[rng.random((n, K)) < 0.2] = np.nan
    nodes = np.where(rng.random((n, K)) < 0.2, 1, -1)
    return Feedback(X, arms, nodes, rewards, components=rng.random((n, K, components)))


def labels() -> LabelSamples:
    Y = np.zeros((50, ARMS), np.float32)
    Y[np.arange(50), np.arange(50) % 40] = 1
    return LabelSamples.of(TREE, contexts(50, 9), Y)


def streamed(
    model: Model,
    feedback: Feedback,
    learner: Pooled,
    work: Path,
    parts: int,
    memory: float = 1e9,
    recent: Feedback | None = None,
) -> Model:
    """The next model from a history in so many parts; `recent` are its last rounds, if not all."""
    work.mkdir()
    writer = HistoryWriter(work / "history", FEATURES, feedback.appeared_late(ARMS))
    for low, high in pairwise(np.linspace(0, len(feedback), parts + 1).astype(int)):
        some = (array[low:high] for array in (feedback.arms, feedback.nodes, feedback.rewards))
        writer.add(Feedback(feedback.contexts.slice(low, high), *some))
    resources = Resources(memory, Machines(workers=1, pauses=()))
    return learn_streamed(learner, model, writer.done(recent or feedback), work, resources)


def same(one: Model, two: Model) -> None:
    found = [
        model._arrays() | model.pooled.numbers() | {"scale": model.prior.scale if model.prior else None}  # type: ignore[union-attr]
        for model in (one, two)
    ]
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert np.asarray(value).tobytes() == np.asarray(found[1][name]).tobytes(), name
    assert (one.epoch, one.n_seen) == (two.epoch, two.n_seen)


def vector_model(metric: str, own_space: bool = False, routes: bool = True) -> Model:
    model = Model.from_vectors(TREE, V, metric, n_features=FEATURES, context_dims=DIMS if own_space else 0)
    if routes:
        return model
    measure = replace(Measure.of(V, metric), routes=False)
    X, Y = contexts(80, 3), np.zeros((80, ARMS), np.float32)
    Y[np.arange(80), np.arange(80) % ARMS] = 1
    return replace(Model.initial(TREE, X, Y), measure=measure, item_vectors=measure.item_vectors(V))
