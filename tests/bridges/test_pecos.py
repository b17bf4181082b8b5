"""What PECOS trained ranks and scores here as it does there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.peers import ROOT, needs_peer, run_peer
from helpers.problems import topics

import treetop
from treetop.bridges.pecos import model_from_layers, model_from_xlinear, read_cluster_chain, tree_from_clusters


@pytest.fixture(scope="module", params=[(2, 1.0), (8, 1.0), (4, 2.5), (16, -1.0)], ids=str)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees of two to many children, with a bias of 1, another, and none."""
    needs_peer("pecos")
    folder = tmp_path_factory.mktemp("pecos")
    X, Y = topics()
    for name, part in (("X", X[:400]), ("Y", Y[:400]), ("T", X[400:])):
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(part))
    run_peer(ROOT / "tests" / "helpers" / "peer_pecos.py", folder, *request.param)
    return folder


def load(path: Path) -> Any:
    found: Any = sp.load_npz(path)
    return found.tocsr()


@pytest.mark.parametrize("beam", [2, 5, 100])
def test_decisions_are_pecos_predictions(trained: Path, beam: int) -> None:
    model = model_from_xlinear(trained / "model")
    X, theirs = load(trained / "T.npz"), load(trained / f"beam-{beam}.npz")
    shown = treetop.Policy(k=5, explore=0, beam=beam, strategy=treetop.Greedy()).decide_batch(model, X, seed=0)
    same = 0
    for row in range(len(shown)):
        mine = dict(zip(shown.arms[row].tolist(), shown.scores[row].tolist(), strict=True))
        found = theirs[row]
        given = dict(zip(found.indices.tolist(), found.data.tolist(), strict=True))
        np.testing.assert_allclose(sorted(mine.values()), sorted(given.values()), rtol=2e-4, atol=2e-6)
        least = min(given.values()) + 1e-5
        assert {arm for arm in given if given[arm] > least} <= set(mine), "but for ties with the last one"
        same += set(mine) == set(given)
    assert same > 0.9 * len(shown)


def test_routes_are_its_scores(trained: Path) -> None:
    """Of all labels, searched through a beam that keeps everything."""
    model = model_from_xlinear(trained / "model")
    X, theirs = load(trained / "T.npz"), load(trained / "beam-100.npz")
    policy = treetop.Policy(k=5, explore=0, beam=100, strategy=treetop.Greedy())
    for row in range(20):
        view = policy.explain(model, X[row])
        assert not view.is_node.any()
        route = dict(zip(view.id.tolist(), view.route.tolist(), strict=True))
        found = theirs[row]
        np.testing.assert_allclose([route[arm] for arm in found.indices], found.data, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(view.score, view.route, rtol=1e-5, atol=2e-6)


def test_the_chain_is_a_tree(trained: Path) -> None:
    chain = read_cluster_chain(trained / "chain")
    tree = tree_from_clusters(chain)
    assert tree.n_arms == chain[-1].shape[0]
    assert tree.n_nodes == 1 + sum(level.shape[0] for level in chain[:-1])
    last = chain[-1].tocsr().indices
    for arm in range(tree.n_arms):
        together = set(np.flatnonzero(last == last[arm]).tolist())
        assert set(tree.arms_below(int(tree.leaf_of[arm])).tolist()) == together


def test_it_serves_is_saved_and_learns(trained: Path, tmp_path: Path) -> None:
    model = model_from_xlinear(trained / "model")
    model.save(tmp_path / "model")
    assert treetop.Model.load(tmp_path / "model").has_arm_routes
    X, Y = topics()
    ids = [f"topic-{i}" for i in range(model.n_arms)]
    with treetop.Bandit.create(tmp_path / "shop", ids, model=model) as shop:
        for visit in range(50):
            row = 400 + visit
            served = shop.decide(X[row], f"visit-{visit}", k=3)
            shop.reward(f"visit-{visit}", {arm: float(Y[row, ids.index(str(arm))] > 0) for arm in served.arms})
        assert shop.refit().rounds == 50
        assert len(shop.decide(X[0], k=3).arms) == 3


def test_with_the_rows_it_was_trained_on_it_starts_no_worse(trained: Path, tmp_path: Path) -> None:
    model = model_from_xlinear(trained / "model")
    X, Y = topics()
    policy = treetop.Policy(k=3, explore=0, beam=10, strategy=treetop.Greedy())

    def precision(model: treetop.Model) -> float:
        best = policy.decide_batch(model, X[400:], seed=0).arms
        return float((Y[400:][np.arange(len(best))[:, None], best].toarray() > 0).mean())

    with treetop.Bandit.create(tmp_path / "shop", model=model, X=X[:400], Y=Y[:400]) as shop:
        started = shop.snapshot.model
    np.testing.assert_array_equal(started.tree.parents, model.tree.parents)
    assert precision(started) > 0.95 * precision(model)


def layers(**changes: Any) -> dict[str, Any]:
    """Two clusters of three labels, two features and a bias."""
    W = [np.zeros((3, 2)), np.zeros((3, 3))]
    return {"weights": W, "clusters": [np.ones((2, 1)), np.array([[1, 0], [0, 1], [1, 0]])], **changes}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (layers(weights=[np.zeros((3, 2))]), "1 matrices of weights for 2 of clusters"),
        (layers(weights=[np.zeros((3, 2)), np.zeros((3, 4))]), r"weights of level 1 are \(3, 4\); \(3, 3\) are needed"),
        (layers(weights=[np.zeros((3, 2)), np.zeros((4, 3))]), r"weights of level 1 are \(4, 3\); \(3, 3\) are needed"),
        (layers(clusters=[np.ones((2, 1)), np.ones((3, 2))]), "member 0 of level 1 is in 2 clusters"),
        (
            layers(clusters=[np.ones((2, 1)), np.ones((3, 1))]),
            "level 1 of the cluster chain has 1 clusters above it; there are 2",
        ),
        (layers(weights=[], clusters=[]), "has no levels"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_from_layers(**wrong)


def test_folders_that_are_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a folder that PECOS saved is needed"):
        model_from_xlinear(tmp_path)
    about = tmp_path / "param.json"
    about.write_text(json.dumps({"depth": 1, "is_mmap": True}))
    with pytest.raises(ValueError, match="compiled for memory mapping"):
        model_from_xlinear(tmp_path)
    about.write_text(json.dumps({"depth": 1}))
    (tmp_path / "0.model").mkdir()
    (tmp_path / "0.model" / "param.json").write_text(
        json.dumps({"bias": 1, "pred_kwargs": {"post_processor": "sigmoid"}})
    )
    with pytest.raises(ValueError, match="post-processor 'sigmoid'; routing here is l3-hinge"):
        model_from_xlinear(tmp_path)
    (tmp_path / "0.model" / "param.json").write_text(json.dumps({"bias": 1}))
    with pytest.raises(ValueError, match=r"W.npz"):
        model_from_xlinear(tmp_path)
