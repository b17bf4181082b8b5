"""A bandit from a catalogue with vectors: cold it ranks as the owner does; what it learns and gains outlives it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetop import Bandit, Catalogue, Config, Feedback, Measure, Policy, PolicyConfig, Pooled, Tree, TreeConfig
from treetop.bandit.growth import grow, grown_to
from treetop.bandit.results import same_decision
from treetop.model.model import Model
from treetop.tree.vectors import METRICS

N, DIMS = 600, 8
WORDS = [f"v{i}" for i in range(DIMS)] + ["mobile", "desktop"]
SETTINGS = Config(policy=PolicyConfig(k=5, explore=0, beam=20), tree=TreeConfig(max_leaf=20))


def vectors(metric: str = "cosine") -> Any:
    rng = np.random.default_rng(0)
    V = rng.normal(size=(12, DIMS))[np.arange(N) % 12] + 0.6 * rng.normal(size=(N, DIMS))
    lengths = np.linalg.norm(V, axis=1, keepdims=True) if metric == "cosine" else 1.0
    return (V / lengths).astype(np.float32)


def visitors(n: int, metric: str = "cosine", seed: int = 1) -> Any:
    """A vector near an item's, and which device."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, DIMS + 2), np.float32)
    X[:, :DIMS] = vectors(metric)[rng.integers(0, N, n)] + 0.1 * rng.normal(size=(n, DIMS))
    X[np.arange(n), DIMS + rng.integers(0, 2, n)] = 1.0
    return X


def best(X: Any, metric: str) -> Any:
    """The five best items by looking at all of them."""
    x, V = X[:, :DIMS].astype(float), vectors(metric).astype(float)
    scores = x @ V.T - ((V**2).sum(axis=1) / 2 if metric == "euclidean" else 0.0)
    if metric == "cosine":
        scores = scores / np.linalg.norm(V, axis=1)
    return np.argsort(-scores, axis=1)[:, :5]


@pytest.mark.parametrize("metric", METRICS)
def test_a_cold_bandit_ranks_as_the_owner_does(metric: str, tmp_path: Path) -> None:
    ids = [f"sku-{i}" for i in range(N)]
    arms, X = Catalogue(ids, vectors=vectors(metric), metric=metric), visitors(60, metric)
    with Bandit.create(tmp_path / "shop", arms, features=WORDS, config=SETTINGS) as shop:
        shown = [[ids.index(str(arm)) for arm in shop.decide(x).arms] for x in X]
    found = [len(set(a) & set(b.tolist())) for a, b in zip(shown, best(X, metric), strict=True)]
    assert np.mean(found) > 4.75
    with Bandit.open(tmp_path / "shop") as again:
        assert again.snapshot.model.measure is not None
        assert again.snapshot.model.measure.metric == metric
        named = {**{f"v{i}": float(v) for i, v in enumerate(X[0, :DIMS])}, "mobile": 1.0}
        device = np.eye(2, dtype=np.float32)[:1]
        row = np.concatenate([X[:1, :DIMS], device], axis=1)
        assert again.decide(named).arms == again.decide(row).arms


def test_components_are_logged_and_a_refit_keeps_the_order(tmp_path: Path) -> None:
    X, V = visitors(300), vectors()
    with Bandit.create(tmp_path / "shop", Catalogue(vectors=V), features=WORDS, config=SETTINGS) as shop:
        rng = np.random.default_rng(2)
        for i, x in enumerate(X):
            shown = shop.decide(x, event_id=f"e{i}")
            p = 1 / (1 + np.exp(-(8 * V[shown.arms] @ x[:DIMS] - 6)))
            shop.reward(f"e{i}", dict(zip(shown.arms, (rng.random(5) < p).astype(float), strict=True)))
        shop.refit()
        model = shop.snapshot.model
        assert shop.event("e0").event.components.shape == (5, 3)
        assert model.pooled is not None
        assert len(model.pooled.weights) == 3
        assert model.measure == Measure(metric="cosine", dims=DIMS)
        later = visitors(60, seed=5)
        found = [
            len(set(shop.decide(x).arms) & set(b.tolist())) for x, b in zip(later, best(later, "cosine"), strict=True)
        ]
        assert np.mean(found) > 4
        stored, again = shop.replay("e299")
        assert same_decision(stored, again)


def test_added_arms_have_their_vectors(tmp_path: Path) -> None:
    V, X = vectors(), visitors(1)
    with Bandit.create(tmp_path / "shop", Catalogue(vectors=V), features=WORDS, config=SETTINGS) as shop:
        shop.add_arms(["new"], vectors=X[:, :DIMS])  # as wide as the items' vectors
        shop.add_arms(["newer"], vectors=X)  # as wide as contexts
        assert set(shop.decide(X).arms[:2]) == {"new", "newer"}
        shop.add_arms(["unknown"])
    with Bandit.open(tmp_path / "shop") as shop:
        model = shop.snapshot.model
        assert model.item_vectors is not None
        assert model.item_vectors.shape == (N + 3, DIMS)
        unit = X[0, :DIMS] / np.linalg.norm(X[0, :DIMS])
        np.testing.assert_allclose(model.item_vectors[N : N + 2], [unit, unit], atol=1e-6)
        leaf = model.tree.arms_below(int(model.tree.leaf_of[N + 2]))
        mean = model.item_vectors[leaf[leaf < N]].mean(axis=0)
        assert model.item_vectors[N + 2] @ mean / np.linalg.norm(mean) > 0.9


@pytest.mark.parametrize("metric", METRICS)
def test_a_grown_model_still_finds_what_ranks_highest(metric: str) -> None:
    """A third of the items come later; full leaves are split among those that are alike."""
    V, X = vectors(metric), visitors(100, metric)
    tree = Tree.from_vectors(V[:400], 20, metric=metric)
    model = grow(Model.from_vectors(tree, V[:400], metric, n_features=DIMS + 2), 200, 20, V[400:])
    assert model.tree.sizes[model.tree.leaf_of].max() <= 20
    assert model.item_vectors is not None
    assert len(model.item_vectors) == N
    shown = Policy(k=5, explore=0, beam=20).decide_batch(model, X, seed=0).arms
    found = [len(set(a.tolist()) & set(b.tolist())) for a, b in zip(shown, best(X, metric), strict=True)]
    assert np.mean(found) > 4.5
    assert grown_to(model, N + 5, 20).n_arms == N + 5


@pytest.mark.parametrize("metric", ["inner_product", "euclidean"])
def test_vectors_whose_products_leave_float32_are_refused(metric: str, tmp_path: Path) -> None:
    V = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ValueError, match=rf"arm vectors hold .*e\+20; for {metric} their numbers must lie in"):
        Catalogue(vectors=V * [1, 1, 1e20], metric=metric)
    with Bandit.create(tmp_path / "shop", Catalogue(vectors=V * [1, 1, 1e11], metric=metric)) as shop:
        assert len(shop.decide(np.ones(3)).arms) == 5
        with pytest.raises(ValueError, match=rf"arm vectors hold -1e\+13; for {metric}"):
            shop.add_arms(["new"], vectors=[[0.0, -1e13, 1.0]])
        assert shop.snapshot.model.n_arms == 30


def test_names_may_be_more_than_the_vector_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 feature names for 8 features"):
        Bandit.create(tmp_path / "a", Catalogue(vectors=vectors()), features=["a", "b"])
    with pytest.raises(ValueError, match="metric is 'dot'"):
        Catalogue(vectors=vectors(), metric="dot")
    assert not (tmp_path / "a").exists()


def test_refits_learn_from_a_log_of_before_there_were_vectors() -> None:
    """Rounds with two components, as another model logged them: the first weights stay."""
    V, X = vectors(), visitors(50)
    model = Model.from_vectors(Tree.from_vectors(V, 20, metric="cosine"), V, "cosine", n_features=DIMS + 2)
    d = Policy(k=5, explore=1).decide_batch(model, X, seed=0)
    feedback = Feedback.of(X, d, np.ones((50, 5), np.float32))
    old = replace(feedback, components=np.zeros((50, 5, 2), np.float32))
    learned = Pooled().learn(model, old)
    assert learned.pooled is not None
    assert learned.pooled.weights == (1.0, 0.75, 1.0)
