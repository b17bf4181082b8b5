"""Models: routing on real shapes, geometry, and the folder on disk."""

import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.problems import Problem
from sklearn.svm import LinearSVC

import treetop
from treetop.model.routing import fit_routing, geometric_routing


def test_routing_is_one_against_siblings_with_liblinears_weights(problem: Problem) -> None:
    tree, X, Y = problem.tree, problem.X[:300], problem.Y[:300]
    routing = fit_routing(tree, X, Y, tolerance=1e-7).csr().toarray()
    extended = np.hstack([X.toarray(), np.ones((300, 1))])
    checked = 0
    for node in range(1, tree.n_nodes):
        below = np.asarray(Y[:, tree.arms_below(node)].sum(axis=1)).ravel() > 0
        parent = np.asarray(Y[:, tree.arms_below(tree.parents[node])].sum(axis=1)).ravel() > 0
        if below[parent].all() or not below[parent].any():
            continue
        svm = LinearSVC(C=1.0, loss="squared_hinge", fit_intercept=False, tol=1e-9, max_iter=200_000, dual=True)
        svm.fit(extended[parent], below[parent])
        assert np.abs(routing[node] - svm.coef_[0]).max() <= 1e-3 * np.abs(svm.coef_).max()
        checked += 1
    assert checked >= 10
    assert (routing[0] == 0).all()


def test_routing_threshold_drops_small_weights(problem: Problem) -> None:
    full = fit_routing(problem.tree, problem.X[:300], problem.Y[:300])
    cut = fit_routing(problem.tree, problem.X[:300], problem.Y[:300], threshold=0.2)
    assert 0 < len(cut.value) < len(full.value)
    assert np.abs(cut.value).min() > 0.2
    kept = full.csr().toarray()
    kept[np.abs(kept) <= np.float32(0.2)] = 0
    np.testing.assert_array_equal(cut.csr().toarray(), kept)


def test_geometric_routing_is_centre_and_radius() -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    tree = treetop.Tree.from_vectors(vectors, max_leaf=4)
    rows = geometric_routing(tree, vectors).csr().toarray()
    for node in range(tree.n_nodes):
        mine = vectors[tree.arms_below(node)]
        np.testing.assert_allclose(rows[node, :3], mine.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(rows[node, 3], np.linalg.norm(mine - mine.mean(axis=0), axis=1).max(), atol=1e-5)


def test_adaptive_search_covers_all_arms_with_near_ones_single() -> None:
    vectors = np.random.default_rng(1).normal(size=(200, 2)).astype(np.float32)
    tree = treetop.Tree.from_vectors(vectors, max_leaf=4)
    model = treetop.Model.from_vectors(tree, vectors)
    view = treetop.Policy(k=5, explore=3, beta=0.5).explain(model, vectors[17])
    single = set(view.id[~view.is_node].tolist())
    below = [set(tree.arms_below(n).tolist()) for n in view.id[view.is_node]]
    assert 17 in single
    assert view.is_node.any()
    assert sorted([*single, *(a for arms in below for a in arms)]) == list(range(200))


def test_save_and_load_decide_the_same(problem: Problem, learned: treetop.Model, tmp_path: Path) -> None:
    learned.save(tmp_path / "m")
    again = treetop.Model.load(tmp_path / "m")
    assert (again.epoch, again.n_seen) == (1, 600)
    assert isinstance(again.reward_rows.value, np.memmap)
    policy = treetop.Policy()
    for name in ("arms", "nodes", "propensities", "scores", "explored"):
        a, b = (getattr(policy.decide_batch(m, problem.X, seed=5), name) for m in (learned, again))
        np.testing.assert_array_equal(a, b)
    problem.model.save(tmp_path / "m")  # an empty one over it
    assert treetop.Model.load(tmp_path / "m").epoch == 0
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_weights_are_memory_that_was_fitted(problem: Problem, learned: treetop.Model) -> None:
    assert len(problem.model.reward_rows.value) == 0
    feedback = problem.feedback(600)
    shown = np.unique(feedback.arms) + problem.tree.n_nodes
    filled = np.flatnonzero(np.diff(learned.reward_rows.start))
    assert set(filled) <= set(shown) | set(np.unique(feedback.nodes))
    assert learned.routing.shape == (problem.tree.n_nodes, 41)
    assert learned.rewards.shape == (problem.tree.n_nodes + 60, 41)


@pytest.mark.parametrize("name", ["parents", "leaf_of", "routing_value", "rewards_start", "rewards_index"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_damaged_files_are_named(learned: treetop.Model, tmp_path: Path, name: str, damage: str) -> None:
    learned.save(tmp_path / "m")
    path = tmp_path / "m" / f"{name}.npy"
    data = bytearray(path.read_bytes())
    if damage == "truncate":
        path.write_bytes(data[:-3])
    elif damage == "flip":
        data[-5] ^= 0x10
        path.write_bytes(data)
    else:
        path.unlink()
    with pytest.raises(treetop.ModelFileError, match=f"{name}.npy"):
        treetop.Model.load(tmp_path / "m")


def test_foreign_and_newer_folders_are_refused(learned: treetop.Model, tmp_path: Path) -> None:
    with pytest.raises(treetop.ModelFileError, match=r"no manifest\.json"):
        treetop.Model.load(tmp_path)
    learned.save(tmp_path / "m")
    manifest = tmp_path / "m" / "manifest.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**facts, "version": 2}))
    with pytest.raises(treetop.ModelFileError, match="version 2; this software reads 6"):
        treetop.Model.load(tmp_path / "m")
    manifest.write_text(json.dumps({**facts, "format": "other"}))
    with pytest.raises(treetop.ModelFileError, match="format"):
        treetop.Model.load(tmp_path / "m")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    with pytest.raises(FileExistsError, match="nothing was written"):
        learned.save(tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_reader_sees_the_old_or_the_new_model_never_neither(
    problem: Problem, learned: treetop.Model, tmp_path: Path
) -> None:
    """Replacing a model was two renames once: between them there was none."""
    problem.model.save(tmp_path / "m")
    epochs: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            epochs.append(treetop.Model.load(tmp_path / "m").epoch)

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        for _ in range(40):
            learned.save(tmp_path / "m")
            problem.model.save(tmp_path / "m")
        stop.set()
        reader.result()
    assert set(epochs) <= {0, 1}
    assert epochs


def test_models_can_be_pickled_after_they_have_decided(problem: Problem, learned: treetop.Model) -> None:
    policy = treetop.Policy()
    first = policy.decide(learned, problem.X[0], event_id="q")
    again = policy.decide(pickle.loads(pickle.dumps(learned)), problem.X[0], event_id="q")
    np.testing.assert_array_equal(first.arms, again.arms)


def test_what_was_checked_cannot_be_changed_from_outside() -> None:
    parents = np.array([-1, 0, 0], np.int32)
    tree = treetop.Tree(parents, np.array([1, 1, 2], np.int32))
    parents[1] = 7
    assert tree.parents.tolist() == [-1, 0, 0]
    rewards = np.zeros((1, 1), np.float32)
    feedback = treetop.Feedback([[1.0]], [[0]], [[-1]], rewards)
    rewards[0, 0] = 7
    assert feedback.rewards.tolist() == [[0.0]]
