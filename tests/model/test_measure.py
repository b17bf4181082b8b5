"""Item vectors and their measure in a model: checked, saved with checksums, mapped, and refused when damaged."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem

from treetop import Measure, Model, ModelFileError, Policy, Pooled, PooledState, Tree, _core
from treetop.arrays import as_rows
from treetop.model.measure import curve, measured_routing
from treetop.model.storage import MANIFEST, manifest_checksum, write_array
from treetop.tree.vectors import METRICS

V = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)


@pytest.fixture(params=METRICS)
def model(request: pytest.FixtureRequest) -> Model:
    metric: str = request.param
    return Model.from_vectors(Tree.from_vectors(V, 6, metric=metric), V, metric, n_features=5, first=1)


def test_centres_are_of_the_arms_below() -> None:
    tree = Tree.from_vectors(V, 6, 3, metric="cosine")
    assert tree.depth > 1
    for metric in METRICS:
        measure = Measure.of(V, metric, first=1)
        items = measure.item_vectors(V)
        rows = measured_routing(tree, items, measure, 5).csr().toarray()
        assert not rows[0].any()
        assert not rows[:, [0, 4]].any()
        for node in range(1, tree.n_nodes):
            below = items[tree.arms_below(node)].astype(float)
            mean = below.mean(axis=0)
            centre = mean if metric == "euclidean" else mean / np.linalg.norm(mean)
            if metric == "inner_product":
                centre = centre * np.linalg.norm(below, axis=1).max()
            np.testing.assert_allclose(rows[node, 1:4], centre, rtol=1e-5)
            bias = -(centre**2).sum() / 2 if metric == "euclidean" else 0.0
            np.testing.assert_allclose(rows[node, 5], bias, rtol=1e-5)


def test_measures_of_pairs(model: Model) -> None:
    assert model.measure is not None
    assert model.item_vectors is not None
    row, arm = np.repeat(np.arange(9), 40), np.tile(np.arange(40, dtype=np.int32), 9)
    found = model.measure.values(as_rows(X), model.item_vectors, row, arm)
    a, b = X[row, 1:4].astype(float), V[arm].astype(float)
    want = {
        "cosine": (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1),
        "inner_product": (a * b).sum(axis=1),
        "euclidean": -np.linalg.norm(a - b, axis=1),
    }
    np.testing.assert_allclose(found, want[model.measure.metric], rtol=1e-5, atol=1e-6)


def test_the_first_curve_keeps_the_order(model: Model) -> None:
    assert model.pooled is not None
    assert model.pooled.measure_means is not None
    assert (np.diff(model.pooled.measure_means) > 0).all()
    assert model.pooled.measure_means.min() >= 0
    assert (np.diff(curve(500.0, 0.0, -1.0, 1.0)) > 0).all()  # even where the logistic curve is flat


def test_saved_and_loaded_it_decides_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert again.measure == model.measure
    assert again.item_vectors is not None
    assert model.item_vectors is not None
    assert np.array_equal(again.item_vectors, model.item_vectors)
    assert not again.item_vectors.flags.owndata  # mapped, not read
    policy = Policy(k=4, explore=2, beam=2)
    want = policy.decide_batch(model, X, seed=0)
    for other in (again, Model.load(tmp_path / "model", layout=False), pickle.loads(pickle.dumps(model))):
        shown = policy.decide_batch(other, X, seed=0)
        assert np.array_equal(shown.arms, want.arms)
        assert np.array_equal(shown.components, want.components)
        assert shown.components.shape == (9, 4, 3)


def test_a_model_without_vectors_is_saved_as_before(problem: Problem, tmp_path: Path) -> None:
    Pooled().learn(problem.model, problem.feedback(100)).save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / MANIFEST).read_text())
    assert "measure" not in manifest
    assert sorted(manifest["pooled"]) == ["exploration_net", "new_arm_value", "node_mean", "weights"]
    assert not {"item_vectors", "pooled_measure_means"} & set(manifest["files"])


def change_manifest(folder: Path, change: Any) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest.pop("crc32")
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps({**manifest, "crc32": manifest_checksum(manifest)}))


def put(array: Any) -> Any:
    def change(folder: Path) -> None:
        facts = write_array(folder / "item_vectors.npy", array)
        change_manifest(folder, lambda manifest: manifest["files"].update(item_vectors=facts))

    return change


def flip(folder: Path) -> None:
    path = folder / "item_vectors.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def without(*names: str) -> Any:
    def drop(manifest: dict[str, Any]) -> None:
        for name in names:
            manifest.pop(name, None)
            manifest["files"].pop(name, None)

    return lambda folder: change_manifest(folder, drop)


def measure_is(**change: Any) -> Any:
    return lambda folder: change_manifest(folder, lambda manifest: manifest["measure"].update(change))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip, "checksum differs from the manifest's; the file is corrupt"),
        (put(np.zeros(119, np.float32)), "119 numbers are not item vectors of 3 dimensions"),
        (put(np.zeros(117, np.float32)), r"item vectors are float32 \(39, 3\); the model needs float32 \(40, 3\)"),
        (put(np.zeros((40, 3), np.float32)), "a list of float32 is needed"),
        (put(np.zeros(120)), "a list of float32 is needed"),
        (put(np.full(120, np.nan, np.float32)), "an item vector holds a value that is not finite"),
        (without("measure"), "there is a file of item vectors, but no measure to compare them by"),
        (without("item_vectors"), "the learner's state knows the owner's measure where there are item vectors"),
        (measure_is(metric="dot"), "metric is 'dot'"),
        (measure_is(first=3), "the vector is in columns 3 to 5; there are 5 features"),
        (measure_is(scale=-1.0), "scale is -1.0"),
        (measure_is(wrong=1), "unexpected keyword argument 'wrong'"),
    ],
)
def test_damaged_files_are_refused(damage: Any, message: str, tmp_path: Path) -> None:
    tree = Tree.from_vectors(V, 6, metric="cosine")
    Model.from_vectors(tree, V, "cosine", n_features=5).save(tmp_path / "model")
    Model.load(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(ModelFileError, match=message):
        Model.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "dot"}, "metric is 'dot'; it must be one of"),
        ({"metric": "cosine", "n_features": 2}, "the vector is in columns 0 to 2; there are 2 features"),
        ({"metric": "cosine", "first": -1}, "first is -1"),
        ({"n_features": 5}, "n_features, first and context_dims are for a metric"),
    ],
)
def test_from_vectors_refuses_what_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Model.from_vectors(Tree.from_vectors(V, 6), V, **settings)


def test_fields_that_do_not_fit_are_refused(problem: Problem, model: Model) -> None:
    with pytest.raises(ValueError, match="there are 39 arm vectors; the tree has 40 arms"):
        Model.from_vectors(model.tree, V[:39], "cosine")
    with pytest.raises(ValueError, match="there are item vectors, but no measure"):
        replace(model, measure=None)
    with pytest.raises(ValueError, match="item vectors are float64"):
        replace(model, item_vectors=V.astype(float))
    with pytest.raises(ValueError, match="by geometry or down to arms: one of the three"):
        replace(model, geometric=True)
    with pytest.raises(ValueError, match="the learner's state knows the owner's measure"):
        replace(problem.model, pooled=PooledState.untaught(60, Measure(metric="cosine", dims=3)))
    with pytest.raises(ValueError, match="there are 2 weights; a score has 3 components"):
        replace(PooledState.untaught(2, Measure(metric="cosine", dims=3)), weights=(1.0, 1.0))
    with pytest.raises(ValueError, match="measure_range is from 1 to 1"):
        replace(PooledState.untaught(2, Measure(metric="cosine", dims=3)), measure_range=(1.0, 1.0))
    with pytest.raises(ValueError, match="scale is 0; it must be positive"):
        Measure(metric="cosine", dims=3, scale=0)
    with pytest.raises(TypeError, match="routes must be True or False, not 1"):
        Measure(metric="cosine", dims=3, routes=1)  # type: ignore[arg-type]


def test_sums_of_nodes_are_those_of_their_arms() -> None:
    """Bit by bit those of the slow twin, on any number of threads."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3000, 7)).astype(np.float32)
    tree = Tree.from_vectors(vectors, max_leaf=40)
    expected = np.zeros((tree.n_nodes, 7))
    for leaf in np.unique(tree.leaf_of):
        for arm in tree.arms_below(leaf):
            expected[leaf] += vectors[arm]
    for node in range(tree.n_nodes - 1, 0, -1):
        expected[tree.parents[node]] += expected[node]
    shape = tree.parents, tree.begin, tree.end, tree.arm_at
    for threads in (1, 2, 5):
        np.testing.assert_array_equal(_core.node_sums(*shape, vectors.reshape(-1), 7, threads), expected)
    with pytest.raises(ValueError, match="20999 numbers for 3000 arms with vectors of 7"):
        _core.node_sums(*shape, vectors.reshape(-1)[1:], 7, 1)
    with pytest.raises(ValueError, match="position 3000 is outside"):
        _core.node_sums(*shape[:3], tree.arm_at + 1, vectors.reshape(-1), 7, 1)
    nothing = np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="there are 0 nodes; a tree has at least 1"):
        _core.node_sums(nothing, nothing, nothing, tree.arm_at, vectors.reshape(-1), 7, 1)
    for wrong, name in enumerate(("parent", "begin", "end")):
        damaged: Any = [*(a - 5000 * (i == wrong) for i, a in enumerate(shape)), vectors.reshape(-1), 7, 1]
        with pytest.raises(ValueError, match=name):
            _core.node_sums(*damaged)
