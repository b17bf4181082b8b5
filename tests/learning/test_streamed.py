"""A refit by shards from a history on disk: the bytes of the learner in memory, whatever the parts and the shards."""

import tracemalloc
from dataclasses import replace
from errno import ENOSPC
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetop.arrays import Fitted
from treetop.learning import history as history_module
from treetop.learning import routing_samples, streamed, streamed_routing
from treetop.learning.array_folder import ArrayFolder
from treetop.learning.history import HistoryWriter, median_norm
from treetop.learning.label_samples import LabelSamples
from treetop.learning.linear import EXACT_UP_TO
from treetop.learning.pooled import Mechanisms, Pooled
from treetop.learning.shards import Resources, Shard
from treetop.learning.streamed import learn_streamed
from treetop.model.model import Model
from treetop.parallel import Machines
from treetop.records import Feedback
from treetop.tree.tree import Tree

ARMS, FEATURES, K = 60, 12, 4
RNG = np.random.default_rng(5)
LABELLED = 40  # arms; the others have no labels
X = np.abs(RNG.normal(size=(80, FEATURES))).astype(np.float32) * (RNG.random((80, FEATURES)) < 0.4)
Y = np.zeros((80, ARMS), np.float32)
Y[np.arange(80), RNG.integers(0, LABELLED, 80)] = 1
TREE = Tree.from_labels_separated(X, Y, max_leaf=6)
LABELS = LabelSamples.of(TREE, X, Y)


def rounds(n: int, seed: int = 0) -> Feedback:
    """Logged rounds with rewards of any size, draws, gaps and a few contexts that are far too large."""
    rng = np.random.default_rng(seed)
    contexts = (rng.random((n, FEATURES)) * (rng.random((n, FEATURES)) < 0.4)).astype(np.float32)
    contexts[rng.random(n) < 0.02] *= 50
    arms = np.argsort(rng.random((n, ARMS)), axis=1)[:, :K] // rng.integers(1, 4, (n, 1))
    arms[rng.random((n, K)) < 0.05] = -1
    rewards = np.where(rng.random((n, K)) < 0.3, rng.random((n, K)), 0.0)
    rewards[(rng.random((n, K)) < 0.2) | (arms < 0)] = np.nan
    nodes = np.where((rng.random((n, K)) < 0.2) & (arms >= 0), 1, -1)
    return Feedback(contexts, arms, nodes, rewards, components=rng.random((n, K, 2)))


def streamed_model(
    model: Model, feedback: Feedback, learner: Pooled, work: Path, parts: int = 3, memory: float = 1e9
) -> Model:
    work.mkdir()
    writer = HistoryWriter(work / "history", FEATURES, feedback.appeared_late(ARMS))
    ends = np.linspace(0, len(feedback), parts + 1).astype(int)
    for low, high in pairwise(ends):
        some = (
            feedback.contexts.slice(low, high),
            *(array[low:high] for array in (feedback.arms, feedback.nodes, feedback.rewards)),
        )
        writer.add(Feedback(*some))
    resources = Resources(memory, Machines(workers=1, pauses=()))
    return learn_streamed(learner, model, writer.done(feedback), work, resources)


def arrays(model: Model) -> dict[str, Any]:
    found = dict(model._arrays())
    assert model.pooled is not None
    return found | model.pooled.numbers() | (model.learned_routing.numbers() if model.learned_routing else {})


def same(one: Model, two: Model) -> None:
    a, b = arrays(one), arrays(two)
    assert a.keys() == b.keys()
    for name in a:
        assert np.asarray(a[name]).tobytes() == np.asarray(b[name]).tobytes(), name
    assert (one.epoch, one.n_seen) == (two.epoch, two.n_seen)


@pytest.mark.parametrize("labels", [LABELS, None], ids=["labels", "cold"])
@pytest.mark.parametrize(("parts", "memory"), [(1, 1e9), (7, 1e9), (3, 2e4)])
def test_the_bytes_are_those_of_a_refit_in_memory(
    labels: LabelSamples | None, parts: int, memory: float, tmp_path: Path
) -> None:
    learner, feedback, model = Pooled(label_samples=labels, window=40), rounds(400), Model.initial(TREE, X, Y)
    same(streamed_model(model, feedback, learner, tmp_path / "work", parts, memory), learner.learn(model, feedback))


def test_regressors_that_are_approached_step_by_step_have_the_bytes_of_one_shard(tmp_path: Path) -> None:
    """Arms with more samples than are solved exactly: the order in which a solver visits these is the arm's own."""
    learner, feedback, model = Pooled(label_samples=LABELS), rounds(2000), Model.initial(TREE, X, Y)
    found = streamed_model(model, feedback, learner, tmp_path / "work", memory=5e5)
    shards = sorted((tmp_path / "work" / "rewards").glob("shard-*"))
    assert len(shards) > 4
    assert (np.bincount(feedback.arms[feedback.observed]) > EXACT_UP_TO).sum() >= ARMS // 2
    same(found, learner.learn(model, feedback))


def test_a_chain_of_refits_is_one_refit_where_the_window_forgets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From models in between, or from the first one: the same bytes. Functions without new samples are not solved."""
    for module in (routing_samples, streamed_routing):
        monkeypatch.setattr(module, "WINDOW", 25)
    learner, feedback, model = Pooled(label_samples=LABELS, window=20), rounds(500), Model.initial(TREE, X, Y)
    chained = model
    for i, n in enumerate((200, 202, 500)):
        chained = streamed_model(chained, feedback.head(n), learner, tmp_path / f"chain-{i}", memory=5e4)
    once = streamed_model(model, feedback, learner, tmp_path / "once")
    same(replace(chained, epoch=1), once)
    same(once, learner.learn(model, feedback))


def test_what_a_refit_teaches_nothing_is_kept(tmp_path: Path) -> None:
    """The first one saved and loaded: fingerprints of routing and regressors are those of before."""
    learner, feedback = Pooled(label_samples=LABELS), rounds(300)
    first = learner.learn(Model.initial(TREE, X, Y), feedback)
    first.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert isinstance(loaded.route_rows, Fitted)
    again = streamed_model(loaded, feedback, learner, tmp_path / "work")
    assert again.route_rows is loaded.route_rows
    same(replace(again, epoch=1), first)


@pytest.mark.parametrize(
    "off", [{"learn_routing": False}, {"route_arms": False}, {"move_arms": False}, {"pool_rounds": True}], ids=str
)
def test_parts_that_are_switched_off(off: dict[str, bool], tmp_path: Path) -> None:
    learner = Pooled(label_samples=LABELS, mechanisms=Mechanisms(**off))
    model, feedback = Model.initial(TREE, X, Y), rounds(150)
    same(streamed_model(model, feedback, learner, tmp_path / "work"), learner.learn(model, feedback))


def test_the_median_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "SLICE", 10)
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 100):
        values = np.where(rng.random(n) < 0.3, 0.0, rng.lognormal(size=n) ** 3)
        wanted = np.median(values[values > 0]) if values.any() else 0.0
        assert median_norm([values[: n // 3], values[n // 3 :]]) == wanted
    assert median_norm([np.zeros(3)]) == 0.0


def test_an_arm_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "work", columns=1, late=np.zeros(2, np.bool_))
    with pytest.raises(ValueError, match=r"feedback on arm 2, outside \[0, 2\)"):
        writer.add(Feedback([[1.0]], [[2]], None, [[1.0]]))


@pytest.mark.parametrize("found", ["nothing", "another"])
def test_an_array_whose_file_is_gone_is_handed_over_all_the_same(found: str, tmp_path: Path) -> None:
    """A model may be deleted while a refit goes on from it, and its name may come back with other numbers."""
    np.save(tmp_path / "mapped.npy", np.arange(4))
    folder, mapped = ArrayFolder.new(tmp_path / "work"), np.load(tmp_path / "mapped.npy", mmap_mode="r")
    folder.put(linked=mapped)
    assert (folder.path / "linked.npy").samefile(tmp_path / "mapped.npy")
    (tmp_path / "mapped.npy").unlink()
    if found == "another":
        np.save(tmp_path / "mapped.npy", np.arange(4) + 1)
    folder.put(copied=mapped)
    assert folder["copied"].tolist() == [0, 1, 2, 3]


def test_an_attempt_at_a_shard_that_fails_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a full disk nor one that cannot be renamed on is taken for another attempt that was faster."""
    shard = Shard(str(tmp_path), 0, 5, threads=1)

    def full(*_: object) -> None:
        raise OSError(ENOSPC, "the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        shard.write(full)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="the disk is full"):
            shard.write(lambda part: part.put(arm=np.zeros(1)))
    assert list(tmp_path.iterdir()) == []
    made = {shard.write(lambda part: part.put(arm=np.zeros(1))) for _ in range(2)}
    assert [str(path) for path in tmp_path.iterdir()] == list(made)


def test_rounds_without_slots_are_rounds_that_teach_nothing(tmp_path: Path) -> None:
    """A part of a history may have no others: where `eligible` left nothing to show."""
    writer = HistoryWriter(tmp_path / "work", columns=1, late=np.zeros(2, np.bool_))
    none = np.zeros((3, 0))
    writer.add(Feedback(np.ones((3, 1)), none.astype(np.int32), None, none))
    writer.add(Feedback([[1.0]], [[1]], [[1]], [[1.0]]))
    history = writer.done(Feedback.none(1, 1))
    assert (len(history), history.totals.shown.tolist()) == (4, [0, 1])


def test_a_task_keeps_nothing_of_the_functions_of_others(tmp_path: Path) -> None:
    """200,000 arms of which a task has ten: what it allocates is far below a byte for each of the others."""
    arms = 200_000
    tree = Tree(np.concatenate([[-1], np.zeros(arms // 100, np.int32)]), (1 + np.arange(arms) // 100).astype(np.int32))
    few = np.zeros((80, arms), np.float32)
    few[:, :ARMS] = Y
    learner = Pooled(label_samples=LabelSamples.of(tree, X, few))
    writer = HistoryWriter(tmp_path / "history", FEATURES, np.zeros(arms, np.bool_))
    writer.add(rounds(200))
    learn_streamed(learner, Model.initial(tree, X, few), writer.done(rounds(200)), tmp_path, Resources(1e9))
    nodes = tree.n_nodes
    tasks = ("routing", streamed_routing._fit_shard, "fitted_2"), ("rewards", streamed._solve_shard, "solved")
    for stage, task, fitted in tasks:
        tracemalloc.start()
        found = task(Shard(str(tmp_path / stage), nodes + 5, nodes + 15, threads=1))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(ArrayFolder(Path(found))[f"{fitted}_value"]) > 20
        assert peak < arms
