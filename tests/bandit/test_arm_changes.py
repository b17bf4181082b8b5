"""Arms that come, go and return, also while a refit runs, and where they are put."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import settings, small_bandit

from treetop.bandit import model_changes, promotion
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, TreeConfig
from treetop.bandit.results import same_decision
from treetop.errors import FolderInUse, UnknownArm

X, Y = topics()
REWARDS = Y.toarray()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def play(bandit: Bandit, rounds: int, tag: str) -> None:
    for i in range(rounds):
        shown = bandit.decide(X[i], event_id=f"{tag}{i}")
        told = {arm: float(REWARDS[i, int(str(arm)[1:])]) for arm in shown.arms if str(arm)[0] == "a"}
        if told:
            bandit.reward(f"{tag}{i}", told)


def test_a_removed_arm_returns_with_its_past(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 60, "a")
        bandit.refit()
        gone = bandit.decide(X[0], "before").arms[0]
        old = int(bandit.snapshot.arms.find([gone])[0])
        model, place = bandit.snapshot.name, bandit.snapshot.model.tree.leaf_of[old]
        bandit.remove_arms([gone])
        assert gone not in bandit.decide(X[0], "without", k=60).arms
        bandit.add_arms([gone])
        assert bandit.decide(X[0], "after").arms[0] == gone
        assert bandit.snapshot.arms.find([gone]).tolist() == [old]
        assert (bandit.snapshot.name, bandit.snapshot.model.tree.leaf_of[old]) == (model, place)
        for event in ("before", "without", "after"):
            assert same_decision(*bandit.replay(event))
        bandit.remove_arms([gone, "a3"])
        bandit.add_arms(["new", gone], vectors=X[:2])
        assert len(bandit.snapshot.arms.removed) == 1
        with pytest.raises(ValueError, match="is in it twice"):
            bandit.add_arms(["a3", "a3"])
        with pytest.raises(ValueError, match=f"there is already an arm '{gone}'"):
            bandit.add_arms(["a3", gone])
    with Bandit.open(folder) as bandit:
        assert bandit.snapshot.arms.removed == tuple(bandit.snapshot.arms.find(["a3"]).tolist())
        assert [entry["kind"] for entry in bandit.folder.history()][-3:] == [
            "arms removed",
            "arms added",
            "arms returned",
        ]


@pytest.mark.parametrize("learner", ["treetop", "paper"])
def test_arms_are_added_and_removed_while_a_refit_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learner: str
) -> None:
    usual = Config.of(learner)
    folder = small_bandit(tmp_path / "shop", X, Y, config=settings(learner=usual.learner))
    fitting, go_on = threading.Event(), threading.Event()
    original = promotion.streamed_fit

    def slow(*given: Any) -> Any:
        fitting.set()
        assert go_on.wait(60)
        return original(*given)

    monkeypatch.setattr(model_changes, "streamed_fit", slow)
    with Bandit.open(folder) as bandit, Bandit.open(folder) as other:
        play(bandit, 60, "a")
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(bandit.refit()))
        thread.start()
        assert fitting.wait(60)
        for name in ("x", "y"):
            other.add_arms([f"{name}{i}" for i in range(15)], vectors=X[:15])
        other.remove_arms(["a0", "x1"])
        with pytest.raises(FolderInUse):
            other.refit()
        assert "x0" in other.decide(X[0], "during", k=90).arms
        go_on.set()
        thread.join(60)
        assert [result.model for result in results] == ["000003"]
        for seen in (bandit, other):
            seen.refresh()
            assert (seen.snapshot.name, seen.snapshot.model.n_arms) == ("000003", 90)
            assert seen.snapshot.model.n_seen == 60
            shown = seen.decide(X[0], k=90).arms
            assert {"x0", "y14"} <= set(shown)
            assert not {"a0", "x1"} & set(shown)
        leaves = bandit.snapshot.model.tree.leaf_of
        assert np.bincount(leaves).max() <= 4
        assert same_decision(*bandit.replay("during"))
        assert bandit.folder.state().models["000003"].base == "000002"
        assert bandit.refit().model == "000004"


def test_new_arms_stand_beside_those_of_their_category(tmp_path: Path) -> None:
    arms = Catalogue([f"s{i}" for i in range(60)], categories=[f"d{i % 2} > c{i % 6}" for i in range(60)])
    with Bandit.create(tmp_path / "shop", arms, config=Config(tree=TreeConfig(12))) as shop:
        shop.add_arms(["n0", "n1", "n2", "n3"], categories=["d1 > c3", "d0 > new", None, "d7"])
        model = shop.snapshot.model
        categories = shop.snapshot.attributes.categories
        assert categories is not None
        beside = [model.tree.arms_below(int(model.tree.leaf_of[arm])) for arm in shop.snapshot.arms.find(["n0", "n1"])]
        assert categories.common(beside[0]) == ("d1", "c3")
        assert categories.common(beside[1]) == ("d0",)
        for i in range(40):
            shop.add_arms([f"m{i}"], categories=["d1 > c3"])
        tree = shop.snapshot.model.tree
        assert np.bincount(tree.leaf_of).max() <= 12
        members = shop.snapshot.arms.find([f"m{i}" for i in range(40)])
        categories = shop.snapshot.attributes.categories
        assert categories is not None
        assert all(categories.common(tree.arms_below(int(tree.leaf_of[arm]))) == ("d1", "c3") for arm in members)
        with pytest.raises(UnknownArm):
            shop.set_arms("sale", ["nobody"])
        with pytest.raises(ValueError, match="2 vectors for 1 arms"):
            shop.add_arms(["z"], vectors=np.zeros((2, 0)))


def test_new_arms_stand_beside_those_that_they_are_like(tmp_path: Path) -> None:
    """With their vectors and categories, where none are given; one that returns keeps its own."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 5)).astype(np.float32)
    ids, paths = [f"s{i}" for i in range(60)], [f"d{i % 6}" for i in range(60)]
    kinds = {"vectors": Catalogue(ids, vectors), "categories": Catalogue(ids, categories=paths), "ids": Catalogue(ids)}
    for kind, items in kinds.items():
        with Bandit.create(tmp_path / kind, items, config=Config(tree=TreeConfig(16))) as shop:
            leaf = shop.snapshot.model.tree.leaf_of
            roomy = [i for i in range(60) if (leaf == leaf[i]).sum() < 16]
            other = next(i for i in roomy if i % 6 != 4 % 6)
            shop.remove_arms(["s4"])
            shop.add_arms(["n0", "s4"], like=[f"s{other}", f"s{other}"])
            model, (new, back) = shop.snapshot.model, shop.snapshot.arms.find(["n0", "s4"]).tolist()
            assert model.tree.leaf_of[new] == model.tree.leaf_of[other]
            assert model.tree.leaf_of[back] == leaf[4]
            if kind == "vectors":
                assert model.item_vectors is not None
                np.testing.assert_array_equal(model.item_vectors[new], model.item_vectors[other])
            if kind == "categories":
                assert shop.attributes("n0") == {"category": paths[other]}
                assert shop.attributes("s4") == {"category": paths[4]}
            with pytest.raises(ValueError, match="like has 2 arms for 1 new ones"):
                shop.add_arms(["n1"], like=["s1", "s2"])
            with pytest.raises(UnknownArm):
                shop.add_arms(["n1"], like=["nobody"])
            with pytest.raises(TypeError, match="like must be a list of ids, not 's1'"):
                shop.add_arms(["n1"], like="s1")
            assert len(shop.snapshot.arms) == 61


def test_vectors_of_arms_that_are_added_while_a_refit_runs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are all that has them."""
    rng = np.random.default_rng(0)
    V, new = rng.normal(size=(60, 4)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)
    original = promotion.streamed_fit
    with Bandit.create(tmp_path / "shop", Catalogue([f"s{i}" for i in range(60)], vectors=V)) as bandit:
        for i in range(20):
            bandit.reward(f"v{i}", {bandit.decide(V[i], f"v{i}").arms[0]: 1.0})

        def adding(*given: Any) -> Any:
            with Bandit.open(tmp_path / "shop") as other:
                other.add_arms(["n0", "n1", "n2"], vectors=new)
            return original(*given)

        monkeypatch.setattr(model_changes, "streamed_fit", adding)
        bandit.refit()
        stored = bandit.snapshot.model.item_vectors
        assert stored is not None
        cosine = (stored[60:] * new).sum(axis=1) / np.linalg.norm(stored[60:], axis=1) / np.linalg.norm(new, axis=1)
        np.testing.assert_allclose(cosine, 1, rtol=1e-5)
        assert bandit.decide(new[1], "there").arms[0] == "n1"


def test_a_model_whose_arms_came_and_went_starts_another_bandit(folder: Path, tmp_path: Path) -> None:
    """Removed arms leave their room to others, so that a leaf may have twice as many as the settings say."""
    with Bandit.open(folder) as bandit:
        play(bandit, 30, "a")
        bandit.refit()
        most = bandit.config.tree.leaf_limit
        for step in range(4):
            bandit.remove_arms([bandit.snapshot.arms.ids[i] for i in range(10 * step, 10 * step + 10)])
            bandit.add_arms([f"new{step}-{i}" for i in range(10)], vectors=X[10 * step : 10 * step + 10])
        model = bandit.snapshot.model
    assert most < np.bincount(model.tree.leaf_of).max() <= 2 * most
    with Bandit.create(tmp_path / "again", model=model, config=Config(tree=TreeConfig(most))) as again:
        assert len(again.decide(X[0]).arms) == again.config.policy.k
        again.add_arms(["newest"])
    with pytest.raises(ValueError, match=r"has a leaf of \d+ arms; max_leaf is 2: set it to"):
        Bandit.create(tmp_path / "small", model=model, config=Config(tree=TreeConfig(2)))
