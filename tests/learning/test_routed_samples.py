"""Routes of labelled rows and rounds: by routing that has not seen them, the same with a cache and without."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem

import treetop
from treetop.arrays import Fitted, Floats, Rows, as_rows
from treetop.bandit.growth import grow
from treetop.data.datasets import load
from treetop.learning.arm_routing import fold_of
from treetop.learning.label_samples import LabelSamples
from treetop.learning.pooled import Pooled
from treetop.learning.routes import RouteCache, Router, routed_samples
from treetop.model.model import Model
from treetop.policy.budgeted import Budgeted
from treetop.records import Feedback
from treetop.simulation.play import Environment, Learning, TreeBuilding, begin, run
from treetop.simulation.scenario import Scenario

HORIZON = 700


@pytest.fixture(scope="module")
def world() -> tuple[Model, LabelSamples, Feedback]:
    """Half of the arms have no label, and move when rewards are found; every slot has its components."""
    data = load("synthetic:arms=80,features=40,rows=900,init=150")
    half = Scenario.of("half-init", data.n_arms, HORIZON, seed=0)
    stream, model = begin(data, 150, HORIZON, 5, 0, half, TreeBuilding(separate_unlabelled=True))
    labels = LabelSamples.of(model.tree, stream.X_init, stream.Y_init, beam=40)  # arms without labels, too
    learner = Pooled(label_samples=labels)
    policy, learning = (treetop.Policy(strategy=Budgeted(budget=0.3)), Learning(learner, treetop.Epochs.doubling(100)))
    start = learner.learn(model, Feedback.none(model.n_features, 5))
    played = run(stream, start, policy, learning=learning, environment=Environment(scenario=half))
    assert played.feedback.components is not None
    return model, labels, played.feedback


def same_rows(one: Rows, other: Rows) -> bool:
    names = ["start", "index", "value", *(["fingerprints"] if isinstance(one, Fitted) else [])]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def check_same(one: Model, other: Model) -> None:
    """To the bit, but for the epoch."""
    a, b = one.learned_routing, other.learned_routing
    assert a is not None
    assert b is not None
    assert (a.digest, a.rounds) == (b.digest, b.rounds)
    assert same_rows(a.base, b.base)
    assert all(same_rows(x, y) for x, y in zip(a.held_out, b.held_out, strict=True))
    assert same_rows(one.route_rows, other.route_rows)
    assert same_rows(one.reward_rows, other.reward_rows)
    assert np.array_equal(one.tree.leaf_of, other.tree.leaf_of)
    assert one.pooled is not None
    for field in fields(one.pooled):
        assert np.array_equal(getattr(one.pooled, field.name), getattr(other.pooled, field.name)), field.name


@pytest.mark.parametrize("cached", [False, True])
def test_a_chain_of_refits_is_one_from_scratch(
    world: tuple[Model, LabelSamples, Feedback], cached: bool, tmp_path: Path
) -> None:
    """While arms move, routing is fitted again, late rewards come and the model is saved and loaded."""
    base, labels, whole = world
    chained = Pooled(label_samples=labels, route_cache=RouteCache() if cached else None)
    model, moved, labelled = base, [], labels.labelled_arms(base.n_arms)
    late = whole.rewards.copy()
    late[200:210] = np.nan  # rewards of rounds that routing was fitted from, which come when there are 400
    for n in (0, 100, 128, 140, 255, 300, 420, 512, HORIZON):
        known = replace(whole, rewards=late if n < 400 else whole.rewards).head(n)
        model = chained.learn(model, known)
        check_same(model, Pooled(label_samples=labels).learn(base, known))
        moved.append(int(np.isin(model.tree.leaf_of[~labelled], model.tree.leaf_of[labelled]).sum()))
        if n == 255:
            model.save(tmp_path / "m")
            model = Model.load(tmp_path / "m")
    assert moved[0] == 0
    assert len(set(moved)) > 3
    assert model.learned_routing is not None
    assert model.learned_routing.rounds == 625


def test_a_cache_serves_histories_that_are_none_of_the_last(world: tuple[Model, LabelSamples, Feedback]) -> None:
    """Shorter, longer, with other arms: what is not known is routed anew."""
    base, labels, whole = world
    learner = Pooled(label_samples=labels, route_cache=RouteCache())
    other = replace(whole, arms=whole.arms[:, ::-1].copy(), rewards=whole.rewards[:, ::-1].copy(), components=None)
    model = base
    for known in (whole, whole.head(600), whole.head(520), whole, other, whole.head(90), whole):
        model = learner.learn(model, known)
        check_same(model, Pooled(label_samples=labels).learn(base, known))


def test_arms_may_be_added_between_refits(world: tuple[Model, LabelSamples, Feedback]) -> None:
    base, labels, whole = world
    ends = []
    for cache in (None, RouteCache()):
        learner, model = Pooled(label_samples=labels, route_cache=cache), base
        for n in (100, 300, 520):
            model = grow(learner.learn(model, whole.head(n)), 3, max_leaf=5)
            assert model.has_arm_routes
        ends.append((model, learner.learn(model, whole)))
    assert ends[0][1].n_arms == base.n_arms + 9
    check_same(ends[0][1], ends[1][1])
    check_same(ends[0][1], Pooled(label_samples=labels).learn(ends[1][1], whole))
    again = Pooled(label_samples=labels).learn(ends[1][0], whole)
    check_same(ends[0][1], again)


def test_a_grown_model_routes_the_arms_of_leaves_that_were_not_split_as_before(
    world: tuple[Model, LabelSamples, Feedback],
) -> None:
    base, labels, whole = world
    model = Pooled(label_samples=labels).learn(base, whole)
    grown = grow(model, 40, max_leaf=4)
    assert grown.tree.n_nodes > model.tree.n_nodes
    x = whole.contexts.head(20)
    for one, other in (
        (model.route_rows, grown.route_rows),
        *zip(model.learned_routing.held_out, grown.learned_routing.held_out, strict=True),  # type: ignore[union-attr]
    ):
        whole_leaves = np.flatnonzero(grown.tree.leaf_of[:80] == model.tree.leaf_of).astype(np.int32)
        assert 0 < len(whole_leaves) < 80
        row, arm = np.repeat(np.arange(20), len(whole_leaves)), np.tile(whole_leaves, 20)
        before, after = (
            Router.of(m.tree, rows)(x, row, arm, m.tree.leaf_of) for m, rows in ((model, one), (grown, other))
        )
        np.testing.assert_allclose(before, after, rtol=1e-12)
    new = np.arange(80, 120, dtype=np.int32)
    never = Router.of(grown.tree, grown.route_rows)(x.head(1), np.zeros(40, int), new, grown.tree.leaf_of)
    assert (never <= -8).all()  # -1 is two short of 1, and the cube of that is what an unknown arm is behind by


def slow_routes(model: Model, rows: Rows, feedback: Feedback) -> Floats:
    """By the core, one round at a time."""
    routed = replace(model, route_rows=rows, pooled=None)
    found = []
    for i in range(len(feedback)):
        x = feedback.contexts.row(i)
        found.append(routed.engine.routes(x.start, x.index, x.value, feedback.arms[i], feedback.arms.shape[1], 1)[0])
    return np.array(found)


def test_rounds_and_labels_are_judged_by_what_has_not_seen_them(world: tuple[Model, LabelSamples, Feedback]) -> None:
    base, labels, whole = world
    model = Pooled(label_samples=labels).learn(base, whole.head(350))
    learned = model.learned_routing
    assert learned is not None
    assert learned.rounds == 298
    shown = whole.head(350)
    routed, routes = routed_samples(model, labels, shown)
    by = [slow_routes(model, rows, shown) for rows in (*learned.held_out, model.route_rows)]
    judge = np.where(np.arange(350) < 298, fold_of(shown.contexts), 2)
    wanted = np.array(by)[judge, np.arange(350)]
    np.testing.assert_allclose(routes, wanted, rtol=1e-4, atol=1e-5)  # the core adds float32
    assert routed is not None
    pairs = Feedback(as_rows(labels.contexts.csr()[labels.row]), labels.arm[:, None], None, labels.reward[:, None])
    some = np.arange(0, len(labels), 37)
    few = Feedback(as_rows(pairs.contexts.csr()[some]), pairs.arms[some], None, pairs.rewards[some])
    held = [slow_routes(model, rows, few)[:, 0] for rows in learned.held_out]
    fold = fold_of(few.contexts)
    np.testing.assert_allclose(routed.log_route[some], np.where(fold == 0, *held), rtol=1e-4)


def test_a_model_that_knows_more_rounds_than_are_left(world: tuple[Model, LabelSamples, Feedback]) -> None:
    """Old rounds were deleted, and there are no label samples with which routing could be fitted again."""
    base, labels, whole = world
    model = Pooled(label_samples=labels).learn(base, whole)
    learned = Pooled().learn(model, whole.head(50))
    assert learned.n_seen == 50


def test_rounds_of_the_last_refit_are_not_routed_again(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless anything about them changed: arms, contexts or the routing; or where an arm is, and then those alone."""
    asked: list[int] = []
    call = Router.__call__

    def noted(self: Router, x: Rows, row: Any, *rest: Any) -> Floats:
        asked.append(len(np.unique(row)))
        return call(self, x, row, *rest)

    monkeypatch.setattr(Router, "__call__", noted)

    def routed(model: Model, feedback: Feedback) -> tuple[Floats, int]:
        asked.clear()
        return routed_samples(model, None, feedback, cache)[1], sum(asked)

    history, cache, model = problem.feedback(600), RouteCache(), problem.model
    for n, wanted in ((0, 0), (200, 200), (500, 300), (500, 0), (600, 100)):
        found, count = routed(model, history.head(n))
        assert count == wanted
        assert np.array_equal(found, routed_samples(model, None, history.head(n))[1], equal_nan=True)
    other = Feedback(history.contexts, history.arms[:, ::-1], None, history.rewards[:, ::-1])
    swapped, count = routed(model, other)
    assert count == 600
    assert np.array_equal(swapped, found[:, ::-1], equal_nan=True)
    assert routed(model, Feedback(history.contexts.csr() * 2, other.arms, None, other.rewards))[1] == 600
    elsewhere = replace(model, route_rows=as_rows(model.route_rows.csr() * 1))
    assert routed(elsewhere, history)[1] == 600
    assert routed(elsewhere, history.head(40))[1] == 40
    assert routed(elsewhere, history)[1] == 560
    leaf_of, arm = model.tree.leaf_of.copy(), history.arms[0, 0]
    leaf_of[arm] = np.setdiff1d(leaf_of, leaf_of[arm])[0]  # an arm that moved
    moved = replace(elsewhere, tree=treetop.Tree(model.tree.parents, leaf_of))
    routes, count = routed(moved, history)
    assert count == (history.arms == arm).any(axis=1).sum() < 600
    assert np.array_equal(routes, routed_samples(moved, None, history)[1], equal_nan=True)
