"""The paper's learner by shards from a history on disk: the bytes of the learner in memory, whatever the configuration,
the parts and the shards."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from treetop import Feedback, Linear, Model, Tree
from treetop.learning.history import HistoryWriter
from treetop.learning.shards import Resources
from treetop.learning.streamed_linear import learn_linear_streamed
from treetop.model.prior import Prior
from treetop.parallel import Machines

FEATURES = 9


def model_of(arms: int, rng: np.random.Generator) -> Model:
    X, Y = np.abs(rng.normal(size=(40, FEATURES))), np.eye(arms)[np.arange(40) % arms]
    return Model.initial(Tree.from_labels(X, Y, max_leaf=4), X, Y)


def rounds(model: Model, n: int, k: int, rng: np.random.Generator) -> Feedback:
    """Some slots through a node above their arm, gaps, no rewards, and contexts that are far too large."""
    tree = model.tree
    X = (rng.random((n, FEATURES)) * (rng.random((n, FEATURES)) < 0.5)).astype(np.float32)
    X[rng.random(n) < 0.03] *= 50
    arms = np.argsort(rng.random((n, tree.n_arms)) ** 3, axis=1)[:, :k]
    nodes = np.where(rng.random((n, k)) < 0.3, tree.leaf_of[arms], -1)
    nodes = np.where((nodes >= 0) & (rng.random((n, k)) < 0.5), np.maximum(tree.parents[nodes], 0), nodes)
    arms[rng.random((n, k)) < 0.05] = -1
    nodes[arms < 0] = -1
    rewards = rng.random((n, k)).astype(np.float32)
    rewards[(rng.random((n, k)) < 0.2) | (arms < 0)] = np.nan
    return Feedback(X, arms, nodes, rewards)


def with_prior(model: Model, rng: np.random.Generator) -> Model:
    rows = len(model.reward_rows)
    start, index = np.arange(rows + 1, dtype=np.int64), rng.integers(0, FEATURES + 1, rows).astype(np.int32)
    found = replace(model.reward_rows, start=start, index=index, value=rng.normal(size=rows).astype(np.float32))
    return replace(model, reward_rows=found, prior=Prior(found, scale=0.5))


def streamed(model: Model, feedback: Feedback, learner: Linear, work: Path, parts: int, memory: float = 1e9) -> Model:
    work.mkdir()
    writer = HistoryWriter(work / "history", FEATURES, np.zeros(model.n_arms, np.bool_), nodes=True)
    for low, high in pairwise(np.linspace(0, len(feedback), parts + 1).astype(int)):
        some = (array[low:high] for array in (feedback.arms, feedback.nodes, feedback.rewards))
        writer.add(Feedback(feedback.contexts.slice(low, high), *some))
    resources = Resources(memory, Machines(workers=1, pauses=()))
    return learn_linear_streamed(learner, model, writer.done(feedback), work, resources)


def same(one: Model, two: Model) -> None:
    found = one._arrays(), two._arrays()
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert np.asarray(value).tobytes() == np.asarray(found[1][name]).tobytes(), name
    assert (one.epoch, one.n_seen, one.prior is None) == (two.epoch, two.n_seen, two.prior is None)


@pytest.mark.parametrize("seed", range(12))
def test_the_bytes_are_those_of_a_refit_in_memory(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    model = model_of(int(rng.integers(3, 30)), rng)
    model = with_prior(model, rng) if seed % 3 == 0 else model
    feedback = rounds(model, int(rng.integers(1, 500)), int(rng.integers(1, 4)), rng)
    learner = Linear("squared" if seed % 2 else "absolute", window=[0, 7, 1 << 16][seed % 3])
    parts, memory = int(rng.integers(1, 8)), float(rng.choice([2e4, 1e9]))
    found = streamed(model, feedback, learner, tmp_path / "work", parts, memory)
    same(found, learner.learn(model, feedback))
    nodes = np.diff(found.reward_rows.start)[: model.tree.n_nodes]
    assert nodes.any() == ((feedback.nodes >= 0) & feedback.observed).any()


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("window", [0, 30])
def test_a_chain_of_refits_is_one_refit(loss: str, window: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    model = model_of(20, rng)
    learner, feedback = Linear(loss, window=window), rounds(model, 600, 3, rng)
    chained = model
    for i, n in enumerate((200, 201, 600)):
        chained = streamed(chained, feedback.head(n), learner, tmp_path / f"chain-{i}", 3, 5e4)
    assert len(list((tmp_path / "chain-2" / "rewards").glob("shard-*"))) > 2
    once = streamed(model, feedback, learner, tmp_path / "once", 2)
    same(replace(chained, epoch=1), once)
    same(once, learner.learn(model, feedback))


def test_the_window_has_the_latest_samples_of_each_function(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    model = model_of(6, rng)
    feedback, learner = rounds(model, 400, 2, rng), Linear(window=12)
    found = learner.learn(model, feedback)
    for arm in range(6):
        t = np.nonzero((feedback.arms == arm) & feedback.observed)
        mine = np.zeros(feedback.arms.shape, np.bool_)
        mine[t[0][-12:], t[1][-12:]] = True
        alone = Feedback(feedback.contexts, feedback.arms, None, np.where(mine, feedback.rewards, np.nan))
        row = model.tree.n_nodes + arm
        wanted = Linear().learn(model, alone).reward_rows.csr()[row]
        assert len(t[0]) > 12
        assert found.reward_rows.csr()[row].toarray().tolist() == wanted.toarray().tolist()
