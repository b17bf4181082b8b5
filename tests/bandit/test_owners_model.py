"""A model that its owner hands in: what it knew is there after refits, and rewards add to it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import treetop
from treetop import Bandit, Config, LearnerConfig, Linear, Mechanisms, Pooled, Prior, RefitConfig, TreeConfig
from treetop.arrays import as_rows
from treetop.bandit.results import same_decision

ARMS, FEATURES, TOP = 600, 12, 20
SETTINGS = Config(tree=TreeConfig(max_leaf=50))


class World:
    """Clicks by a linear truth, and an owner who knows it with noise, on a scale of their own."""

    def __init__(self, stretch: float = 1.0, seed: int = 0) -> None:
        self.rng = rng = np.random.default_rng(seed)
        W, noise = rng.normal(size=(2, ARMS, FEATURES))
        self.truth, self.quality = W, rng.normal(size=ARMS)
        self.weights = stretch * np.hstack([0.1 * (0.8 * W + 0.6 * noise), np.full((ARMS, 1), 0.2)])
        self.fresh = self.visitors(2000)
        self.all = np.arange(ARMS)

    def visitors(self, n: int) -> Any:
        x = self.rng.normal(size=(n, FEATURES))
        return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)

    def chance(self, X: Any) -> Any:
        return 1 / (1 + np.exp(3 - 1.5 * (X @ self.truth.T + 0.5 * self.quality)))

    def model(self) -> treetop.Model:
        """A tree and routing that lead to what the owner's ranker has on top, and the ranker as its reward models."""
        X = self.visitors(1500)
        top = np.argsort(-(X @ self.weights[:, :-1].T), axis=1)[:, :TOP]
        Y = sp.csr_matrix((np.ones(top.size), (np.repeat(np.arange(len(X)), TOP), top.ravel())), (len(X), ARMS))
        tree = treetop.Tree.from_labels(X, Y, max_leaf=50)
        nothing = sp.csr_matrix((tree.n_nodes, FEATURES + 1))
        routing = treetop.Model.initial(tree, X, Y).routing
        return treetop.Model.from_weights(tree, routing, sp.vstack([nothing, sp.csr_matrix(self.weights)]))

    def value(self, model: treetop.Model) -> float:
        """Expected clicks of the greedy slate, over visitors nobody has seen."""
        greedy = treetop.Policy(k=5, explore=0, beam=10, strategy=treetop.Greedy())
        arms = greedy.decide_batch(model, self.fresh, seed=0).arms
        known = np.where(arms < ARMS, arms, 0)  # arms that were added bring nothing
        return float((self.chance(self.fresh)[np.arange(len(arms))[:, None], known] * (arms < ARMS)).sum(axis=1).mean())

    def play(self, bandit: Bandit, rounds: int, name: str) -> None:
        X = self.visitors(rounds)
        clicks = self.rng.random((rounds, ARMS)) < self.chance(X)
        for i in range(rounds):
            shown = bandit.decide(X[i], f"{name}-{i}").arms
            bandit.reward(
                f"{name}-{i}", {arm: float(str(arm) in KNOWN and clicks[i, KNOWN[str(arm)]]) for arm in shown}
            )


IDS = [f"sku-{i}" for i in range(ARMS)]
KNOWN = {name: i for i, name in enumerate(IDS)}


@pytest.mark.parametrize("stretch", [1.0, 30.0])
def test_a_refit_keeps_what_the_owner_knew_and_rewards_add_to_it(tmp_path: Path, stretch: float) -> None:
    """Few rounds take nothing away, whatever the owner's scores are in; many rounds add to it; so it is after a
    restart, and with arms that came meanwhile."""
    world = World(stretch)
    with Bandit.create(tmp_path / "shop", IDS, model=world.model(), config=SETTINGS) as shop:
        cold = world.value(shop.snapshot.model)
        world.play(shop, 30, "few")
        shop.refit()
        assert world.value(shop.snapshot.model) > 0.97 * cold
    with Bandit.open(tmp_path / "shop") as shop:
        shop.add_arms([f"new-{i}" for i in range(20)])
        world.play(shop, 70, "more")
        shop.refit()
        assert world.value(shop.snapshot.model) > 0.97 * cold
        world.play(shop, 1900, "many")
        shop.refit()
        assert world.value(shop.snapshot.model) > 1.1 * cold


def test_arms_without_samples_keep_the_owners_order(tmp_path: Path) -> None:
    world = World()
    with Bandit.create(tmp_path / "shop", IDS, model=world.model(), config=SETTINGS) as shop:
        before = shop.snapshot.model
        assert before.prior is not None
        assert before.prior.scale == 1
        np.testing.assert_allclose(before.rewards[before.tree.n_nodes :].toarray(), world.weights, rtol=1e-6)
        world.play(shop, 50, "a")
        shop.refit()
        after = shop.snapshot.model
    assert after.prior is not None
    assert after.prior.scale > 0
    assert after.pooled is not None
    unseen = after.pooled.sample_count == 0
    assert unseen.any()
    assert not unseen.all()
    served, scaled = after.rewards[after.tree.n_nodes :].toarray(), after.prior.scale * world.weights
    np.testing.assert_allclose(served[unseen], scaled[unseen], rtol=1e-5)
    assert (np.abs(served - scaled)[~unseen].max(axis=1) > 0).all()


def rounds(world: World, model: treetop.Model, n: int, seed: int) -> treetop.Feedback:
    X = world.visitors(n)
    shown = treetop.Policy(k=5, explore=2, beam=10).decide_batch(model, X, seed=seed)
    clicked = world.rng.random(shown.arms.shape) < world.chance(X)[np.arange(n)[:, None], shown.arms]
    return treetop.Feedback.of(X, shown, clicked.astype(np.float32))


def bytes_of(model: treetop.Model) -> list[bytes]:
    r = model.reward_rows
    return [part.tobytes() for part in (r.start, r.index, r.value)]


@pytest.mark.parametrize("learner", [Pooled(), Linear()])
def test_a_chain_of_refits_gives_the_bytes_of_one_from_scratch(learner: Pooled | Linear, tmp_path: Path) -> None:
    """Reward models that are copied have the owner's in them already, once; after a save and from another scale too."""
    world = World()
    first = world.model()
    first = replace(first, prior=Prior.of(first.reward_rows, None))
    chain, history = first, rounds(world, first, 40, 0)
    for step in range(4):
        chain = treetop.refit(chain, history, learner)
        chain.save(tmp_path / f"{step}")
        chain = treetop.Model.load(tmp_path / f"{step}")
        assert bytes_of(chain) == bytes_of(treetop.refit(first, history, learner))
        history = history + rounds(world, chain, 10 + 30 * step, step + 1)


@pytest.mark.parametrize(
    ("learner", "cost"), [(Linear(), 1.0), (Pooled(cost=0.5, mechanisms=Mechanisms(pool=False, growth=1)), 0.5)]
)
def test_what_the_owners_scores_leave_over_is_ridge_regression(learner: Pooled | Linear, cost: float) -> None:
    world = World()
    first = world.model()
    first = replace(first, prior=Prior.of(first.reward_rows, None))
    history = rounds(world, first, 200, 0)
    learned = treetop.refit(first, history, learner)
    assert learned.prior is not None
    served = learned.rewards[learned.tree.n_nodes :].toarray()
    t, slot = np.nonzero(history.observed)
    X = np.hstack([history.contexts.csr().toarray(), np.ones((len(history), 1))])[t].astype(np.float64)
    arm, reward = history.arms[t, slot], history.rewards[t, slot]
    assert len(np.unique(arm)) > 50
    for a in np.unique(arm).tolist():
        x, owner = X[arm == a], learned.prior.scale * world.weights[a]
        left = reward[arm == a] - x @ owner
        ridge = np.linalg.solve(x.T @ x + np.eye(FEATURES + 1) / (2 * cost), x.T @ left)
        np.testing.assert_allclose(served[a], owner + ridge, atol=1e-4)


def test_the_papers_learner_keeps_it_too(tmp_path: Path) -> None:
    """Its scores are rewards, as the paper's are: what they leave over is learned."""
    world = World()
    paper = replace(SETTINGS, learner=LearnerConfig("paper"))
    with Bandit.create(tmp_path / "shop", IDS, model=world.model(), config=paper) as shop:
        world.play(shop, 50, "a")
        shop.refit()
        model = shop.snapshot.model
        shown = {arm for i in range(50) for arm in shop.event(f"a-{i}").event.arms}
    unseen = np.setdiff1d(world.all, list(shown))
    served = model.rewards[model.tree.n_nodes :].toarray()
    np.testing.assert_allclose(served[unseen], world.weights[unseen], rtol=1e-5)


def test_the_model_of_another_bandit_is_not_lost_either(tmp_path: Path) -> None:
    """Its means by routing score and its regressors are what the owner knew."""
    world = World()
    with Bandit.create(tmp_path / "old", IDS, model=world.model(), config=SETTINGS) as shop:
        world.play(shop, 800, "a")
        shop.refit()
        taught = shop.snapshot.model
    with Bandit.create(tmp_path / "new", IDS, model=taught, config=SETTINGS) as shop:
        cold = world.value(shop.snapshot.model)
        assert cold == world.value(taught)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has seen rounds that are not in this log
            world.play(shop, 30, "b")
            shop.refit()
        assert world.value(shop.snapshot.model) > 0.97 * cold


def test_labels_teach_beside_it(tmp_path: Path) -> None:
    world = World()
    X = world.visitors(400)
    Y = sp.csr_matrix(world.rng.random((400, ARMS)) < world.chance(X), dtype=np.float32)
    model = world.model()
    with Bandit.create(tmp_path / "shop", IDS, X, Y, model=model, config=SETTINGS) as shop:
        assert world.value(shop.snapshot.model) > world.value(model)
        world.play(shop, 30, "a")
        shop.refit()
        assert world.value(shop.snapshot.model) > world.value(model)


def test_replay_rollback_and_the_tree(tmp_path: Path) -> None:
    world = World()
    config = replace(SETTINGS, refit=RefitConfig(keep=10, memory=0.5))
    with Bandit.create(tmp_path / "shop", IDS, model=world.model(), config=config) as shop:
        for step in range(3):
            world.play(shop, 20, f"s{step}")
            shop.refit()
            shop.add_arms([f"new-{step}-{i}" for i in range(60)])
            shop.remove_arms([IDS[step]])
        for event in ("s0-3", "s1-3", "s2-3"):
            assert same_decision(*shop.replay(event))
        last = shop.snapshot.model
        assert last.prior is not None
        assert len(last.prior.rows) == last.tree.n_nodes + last.n_arms
        assert last.prior.rows.value.tobytes() == as_rows(world.weights).value.tobytes()
        with pytest.raises(ValueError, match="what its owner's model knew"):
            shop.rebuild()
        shop.roll_back("000000")
        assert shop.snapshot.model.prior is not None
        assert shop.snapshot.model.prior.scale == 1
        world.play(shop, 5, "back")
        assert shop.refit().warnings == ()  # `memory` is heeded


def test_a_model_without_reward_weights_has_nothing_to_keep(tmp_path: Path) -> None:
    X = np.eye(8, dtype=np.float32)
    model = treetop.Model.initial(treetop.Tree.from_labels(X, X, max_leaf=2), X, X)
    with Bandit.create(tmp_path / "shop", model=model) as shop:
        assert shop.snapshot.model.prior is None


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model = World().model()
    with pytest.raises(ValueError, match="the owner's rewards have shape"):
        replace(model, prior=Prior(as_rows(np.ones((3, FEATURES + 1)))))
    with pytest.raises(ValueError, match="a list of at least 2 finite numbers"):
        Prior(model.reward_rows, np.array([np.nan, 0.0], np.float32))
    with pytest.raises(ValueError, match="scale of the owner's scores"):
        Prior(model.reward_rows, scale=-1.0)
