"""Bandit: the user's own ids, a folder that outlives the process, arms that come and go."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.running import settings, small_bandit
from helpers.visits import REWARDS, X, Y, play

import treetop
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.results import same_decision
from treetop.errors import ArmNotShown, EventConflict, NoEligibleArm, RewardConflict, UnknownArm, UnknownEvent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def leaves(most: int) -> config.Config:
    return config.Config(tree=config.TreeConfig(most))


@pytest.mark.parametrize("name", ["paper", "treetop"])
def test_the_library_and_the_folder_decide_the_same(tmp_path: Path, name: str) -> None:
    """One decide and one refit: a bandit's decisions are those of Policy and refit on the same inputs."""
    usual = config.Config.of(name)
    policy_config = config.PolicyConfig(k=4, explore=2, beam=5, strategy=usual.policy.strategy)
    chosen = settings(policy=policy_config, learner=usual.learner)
    folder = small_bandit(tmp_path / "shop", X, Y, config=chosen)
    with Bandit.open(folder) as bandit:
        first = bandit.snapshot.model
        known = treetop.LabelSamples.of(first.tree, X[:300], Y[:300], beam=5)
        strategy = treetop.IGW() if name == "paper" else treetop.Budgeted()
        policy = treetop.Policy(k=4, explore=2, beam=5, strategy=strategy)
        for i in range(60):
            shown, plain = bandit.decide(X[i], event_id=f"e{i}"), policy.decide(first, X[i], event_id=f"e{i}")
            assert [int(str(a)[1:]) for a in shown.arms] == plain.arms.tolist()
            assert [s.propensity for s in shown.slots] == plain.propensities.tolist()
            bandit.reward(f"e{i}", {arm: float(REWARDS[i, int(str(arm)[1:])]) for arm in shown.arms})
        done = bandit.refit()
        assert (done.model, done.rounds, done.rewards) == ("000001", 60, 240)
        batch = policy.decide_batch(first, X[:60], event_ids=[f"e{i}" for i in range(60)])
        rewards = REWARDS[np.arange(60)[:, None], batch.arms]
        twin = treetop.refit(first, treetop.Feedback.of(X[:60], batch, rewards), usual.learner.make_learner(known))
        assert (bandit.snapshot.model.rewards != twin.rewards).nnz == 0
        pooled = bandit.snapshot.model.pooled
        assert (pooled is None) == (twin.pooled is None) == (name == "paper")
        if pooled is not None:
            assert np.array_equal(pooled.means, twin.pooled.means)
            assert np.array_equal(pooled.sample_count, twin.pooled.sample_count)
        assert bandit.snapshot.model.n_seen == twin.n_seen == 60


def test_decisions_and_rewards_are_kept(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        one = bandit.decide({"f1": 1.0, "nobody": 3.0}, event_id="x", k=2)
        bandit.reward("x", {one.arms[0]: 0.5})
    with Bandit.open(folder) as bandit:
        assert bandit.decide({"f1": 1.0}, event_id="x", k=2) == one
        with pytest.raises(EventConflict, match="decided for another request"):
            bandit.decide({"f1": 1.0}, event_id="x", k=3)
        bandit.reward("x", {one.arms[0]: 0.5})
        with pytest.raises(RewardConflict, match=r"has the reward 0\.5, not 1") as caught:
            bandit.reward("x", {one.arms[0]: 1})
        assert caught.value.stored == {one.arms[0]: 0.5}
        with pytest.raises(UnknownEvent):
            bandit.reward("y", {"a1": 1})
        other = next(f"a{i}" for i in range(9) if f"a{i}" not in one.arms)
        with pytest.raises(ArmNotShown, match=f"did not show arm '{other}'"):
            bandit.reward("x", {other: 1})
        for wrong in (1.5, -1, float("nan"), "1"):
            with pytest.raises((ValueError, TypeError), match="reward of arm"):
                bandit.reward("x", {one.arms[1]: wrong})  # type: ignore[dict-item]
        assert bandit.event("x").rewards[0] == 0.5


def test_whole_numbers_as_ids(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "n", X=X[:300], Y=Y[:300], config=leaves(4)) as bandit:
        five: Any = np.int64(5)
        shown = bandit.decide(X[0], event_id=7, eligible=[3, 4, five, "6"], exclude=["4"])
        assert set(shown.arms) == {3, 5, 6}
        bandit.reward(7, {3: 1, "5": 0})
        assert bandit.event(7).event.event_id == "7"


def test_from_vectors_and_from_a_model(tmp_path: Path, learned: treetop.Model) -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    with Bandit.create(tmp_path / "v", Catalogue(vectors=vectors), config=leaves(4)) as bandit:
        assert bandit.snapshot.model.measure == treetop.Measure(metric="cosine", dims=5)
        assert bandit.decide(vectors[0]).arms[0] == 0  # the item itself is nearest to its vector
    paper = replace(leaves(4), learner=config.LearnerConfig("paper"))
    with Bandit.create(tmp_path / "p", Catalogue(vectors=vectors), config=paper) as bandit:
        assert bandit.snapshot.model.geometric
        assert len(bandit.decide(vectors[0]).arms) == 5
    with Bandit.create(tmp_path / "m", model=learned, config=leaves(10)) as bandit:
        assert (bandit.snapshot.name, bandit.snapshot.model.epoch) == ("000001", 1)
        bandit.decide(X[0])
        assert bandit.refit().model == "000002"
    nothing: list[tuple[dict[str, Any], str]] = [
        ({}, "from a catalogue or from a model; there is none of them"),
        ({"X": X}, "labels are X and Y"),
        ({"Y": Y, "model": learned}, "labels are X and Y"),
        ({"catalogue": Catalogue(vectors=vectors), "model": learned}, "not from both"),
        ({"catalogue": Catalogue(vectors=vectors), "X": X, "Y": Y}, "30"),
    ]
    for wrong, why in nothing:
        with pytest.raises(ValueError, match=why):
            Bandit.create(tmp_path / "w", **wrong)
    with pytest.raises(ValueError, match="the model has a leaf of 4 arms; max_leaf is 2"):
        Bandit.create(tmp_path / "w", model=learned, config=leaves(2))
    with pytest.raises(ValueError, match="2 ids for 60 arms"):
        Bandit.create(tmp_path / "w", ["a", "b"], model=learned)
    assert not (tmp_path / "w").exists()


def test_a_folder_is_made_whole_or_not_at_all(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="is not an empty folder; nothing was written"):
        small_bandit(folder, X, Y)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError):
        small_bandit(tmp_path / "file", X, Y)
    (tmp_path / "empty").mkdir()
    small_bandit(tmp_path / "empty", X, Y)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    with pytest.raises(FileNotFoundError, match="not a bandit's folder"):
        Bandit.open(tmp_path)


def test_new_arms_are_shown_and_learned_from(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 60)
        bandit.refit()
        tree = bandit.snapshot.tree
        bandit.add_arms(["n1", "n2", 900], vectors=X[:3])
        assert (bandit.snapshot.name, bandit.snapshot.model.n_arms, bandit.snapshot.model.n_seen) == ("000002", 63, 60)
        assert bandit.snapshot.tree != tree
        assert np.bincount(bandit.snapshot.model.tree.leaf_of).max() <= 4
        seen: set[Any] = set()
        for i in range(400):
            seen.update(bandit.decide(X[i % 60], event_id=f"n{i}").arms)
        assert {"n1", "n2", 900} <= seen
        shown = bandit.decide(X[0], event_id="only", eligible=["n1", 900])
        bandit.reward("only", {"n1": 1.0, 900: 0.0})
        assert set(shown.arms) == {"n1", 900}
        assert bandit.refit().rounds == 461
        arms = bandit.snapshot.model.rewards[bandit.snapshot.model.tree.n_nodes + 60 :]
        assert arms[0].nnz > 0
        for event in ("e5", "n7", "only"):
            logged, again = bandit.replay(event)
            assert same_decision(logged, again)
        with pytest.raises(ValueError, match="already an arm 'n1'"):
            bandit.add_arms(["x", "n1"])
        assert bandit.snapshot.model.n_arms == 63


def test_removed_arms_are_not_shown(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        with pytest.raises(TypeError, match="arms must be a list of ids, not 'a1'"):
            bandit.remove_arms("a1")
        before = bandit.decide(X[0], event_id="before", k=60)
        assert len(before.arms) == 60
        bandit.remove_arms([f"a{i}" for i in range(0, 60, 2)])
        bandit.remove_arms(["a0", "a1"])
        assert bandit.snapshot.default_filter.eligible.mask is not None  # prepared once, for all decisions
        gone = {f"a{i}" for i in range(0, 60, 2)} | {"a1"}
        for i in range(50):
            assert not gone & set(bandit.decide(X[i], k=8, event_id=f"after{i}").arms)
        assert set(bandit.decide(X[0], k=60, event_id="all").arms) == {f"a{i}" for i in range(60)} - gone
        assert set(bandit.decide(X[0], eligible=["a0", "a3"], event_id="few").arms) == {"a3"}
        assert set(bandit.decide(X[0], exclude=["a3", "a2"], k=60, event_id="less").arms).isdisjoint({"a3", *gone})
        with pytest.raises(NoEligibleArm):
            bandit.decide(X[0], eligible=["a0", "a2"])
        bandit.reward("before", {"a0": 1.0})  # what was shown can still be rewarded
        bandit.refit()
        bandit.add_arms(["fresh"])
        with pytest.raises(ValueError, match="there is already an arm 'a3' in the catalogue"):
            bandit.add_arms(["a3"])
        for event in ("before", "after3", "all", "few", "less"):
            logged, again = bandit.replay(event)
            assert same_decision(logged, again), event
        with pytest.raises(UnknownArm):
            bandit.remove_arms(["who"])
    with Bandit.open(folder) as bandit:
        assert not gone & set(bandit.decide(X[0], k=60).arms)


def test_a_list_of_arms_is_stored_once_whatever_is_removed(folder: Path) -> None:
    some = [f"a{i}" for i in range(20, 60)]
    with Bandit.open(folder) as bandit:
        for i in range(6):
            bandit.decide(X[i], event_id=f"only{i}", eligible=some, k=8)
            bandit.decide(X[i], event_id=f"but{i}", exclude=some, k=8)
            bandit.decide(X[i], event_id=f"all{i}", k=60)
            bandit.remove_arms([f"a{9 * i}"])
        with sqlite3.connect(folder / "log.sqlite") as db:
            assert db.execute("SELECT count(*) FROM treetop_eligible").fetchone() == (2,)
        db.close()
        events = [bandit.event(f"{kind}{i}").event for kind in ("only", "but", "all") for i in range(6)]
        assert [event.removals for event in events] == [*range(6)] * 3
        assert len({event.eligible for event in events}) == 3
        for event in events:
            assert same_decision(*bandit.replay(event.event_id)), event.event_id
        again = bandit.decide(X[1], event_id="only1", eligible=some, k=8)  # the same request, though less is left
        assert again == bandit.served(bandit.event("only1").event)
        with pytest.raises(EventConflict):
            bandit.decide(X[1], event_id="only1", exclude=some, k=8)


def test_propensities_stay_exact_with_removed_and_new_arms(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 40)
        bandit.refit()
        bandit.add_arms([f"n{i}" for i in range(20)])
        bandit.remove_arms([f"a{i}" for i in range(10)])
        now = bandit.snapshot
        policy = treetop.Policy(k=1, explore=1, beam=3, strategy=treetop.IGW(C=0.05))
        view = policy.explain(now.model, X[0], now.default_filter.eligible)
        chance = np.zeros(now.model.n_arms)
        alive = ~now.arms.is_removed
        for is_node, number, p in zip(view.is_node, view.id, view.probability, strict=True):
            below = now.model.tree.arms_below(int(number)) if is_node else np.array([number])
            chance[below[alive[below]]] += p / alive[below].sum()
        assert (chance[alive] > 0).all()
        assert (chance[~alive] == 0).all()
        n = 100_000
        drawn = policy.decide_batch(now.model, X[np.zeros(n, int)], seed=3, eligible=now.default_filter.eligible)
        counts = np.bincount(drawn.arms[:, 0], minlength=now.model.n_arms)
        assert counts[~alive].sum() == 0
        expected = n * chance[alive]
        chi = ((counts[alive] - expected) ** 2 / expected).sum()
        assert chi < alive.sum() + 6 * np.sqrt(2 * alive.sum())


def test_two_processes_see_each_others_changes(folder: Path) -> None:
    with Bandit.open(folder) as one, Bandit.open(folder) as two:
        play(one, 20)
        one.refit()
        one.remove_arms(["a1"])
        assert two.snapshot.model.epoch == 0
        assert two.refresh()
        assert not two.refresh()
        assert two.snapshot.model.epoch == 1
        assert two.snapshot.arms.removed == (1,)
        assert two.decide(X[0], event_id="e0") == one.decide(X[0], event_id="e0")


def test_labels_that_are_no_numbers_or_above_one_are_named(tmp_path: Path) -> None:
    X = np.eye(3)
    for wrong, why in ((np.nan, "labels row 0: value nan"), (5, r"labels hold 5; they must lie in \[0, 1\]")):
        with pytest.raises(ValueError, match=why):
            Bandit.create(tmp_path / "shop", X=X, Y=np.where(X > 0, wrong, 0))
        assert not (tmp_path / "shop").exists()


def test_settings_that_are_no_config_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="config is a dict; it must be a Config"):
        Bandit.create(tmp_path / "shop", X=np.eye(3), Y=np.eye(3), config={"policy": {"k": 3}})  # type: ignore[arg-type]
    assert not (tmp_path / "shop").exists()


def test_explain_has_as_many_as_are_asked_for(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "shop", X=np.eye(6), Y=np.eye(6)) as bandit:
        whole, best = bandit.explain(np.eye(6)[0]), bandit.explain(np.eye(6)[0], top=2)
        assert best.probability.tolist() == np.sort(whole.probability)[::-1][:2].tolist()
        with pytest.raises(ValueError, match="top is 0"):
            bandit.explain(np.eye(6)[0], top=0)


def test_a_shorter_request_keeps_its_first_slot_for_the_best(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "shop", X=np.eye(6), Y=np.eye(6)) as bandit:
        for i in range(60):
            slots = bandit.decide(np.eye(6)[i % 6], k=3).slots
            assert not slots[0].explored
            assert slots[0].score == max(slot.score for slot in slots)
