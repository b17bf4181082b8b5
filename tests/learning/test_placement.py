"""Where arms without labels are: in the leaf where their rewards were found; until then separate."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treetop
from treetop.arrays import Float32s
from treetop.bandit.growth import grow
from treetop.data.datasets import load
from treetop.learning.label_samples import LabelSamples
from treetop.learning.placement import rewarded_unlabelled
from treetop.learning.pooled import Pooled
from treetop.learning.schedule import Epochs
from treetop.model.model import Model
from treetop.policy.budgeted import Budgeted
from treetop.records import Feedback
from treetop.simulation.history import History
from treetop.simulation.play import Environment, Learning, Tracking, TreeBuilding, begin, run
from treetop.simulation.scenario import Scenario
from treetop.tree.tree import Tree

SMALL = "synthetic:arms=300,features=200,rows=3000,init=400"


@pytest.fixture
def world() -> tuple[Model, LabelSamples, Float32s]:
    """Eight arms in pairs, labelled by two features a pair, and four without a label that stand separate."""
    X = np.tile(np.kron(np.eye(4), [1.0, 1.0]), (6, 1)).astype(np.float32)
    Y = np.zeros((24, 12), np.float32)
    for i in range(24):
        Y[i, 2 * (i % 4) : 2 * (i % 4) + 2] = 1
    tree = Tree.from_labels_separated(X, Y, max_leaf=2)
    return Model.initial(tree, X, Y), LabelSamples.of(tree, X, Y, beam=2), X


def shown(X: Float32s, arm: int, rewards: list[float], node: int = -1) -> Feedback:
    n = len(rewards)
    return Feedback(X[:n], np.full((n, 1), arm), np.full((n, 1), node), np.array(rewards)[:, None])


def test_an_arm_goes_where_its_reward_was_found(world: tuple[Model, LabelSamples, Float32s]) -> None:
    model, known, X = world
    initial = model.tree.leaf_of
    learned = Pooled(label_samples=known).learn(model, shown(X[[2]], 9, [1.0], node=int(model.tree.n_nodes - 1)))
    assert learned.tree.leaf_of[9] == initial[4] == initial[5]  # the arms of context 2
    assert (learned.tree.leaf_of[:8] == initial[:8]).all()
    assert learned.tree.leaf_of[9] not in learned.tree.leaf_of[[8, 10, 11]]
    policy = treetop.Policy(k=3, explore=0, beam=1, strategy=treetop.Greedy())
    assert 9 in policy.decide(learned, X[2], event_id="then").arms
    assert 9 not in policy.decide(learned, X[0], event_id="elsewhere").arms
    assert 9 not in policy.decide(model, X[2], event_id="before").arms


def test_without_a_reward_or_labels_nothing_moves(world: tuple[Model, LabelSamples, Float32s]) -> None:
    model, known, X = world
    drawn = shown(X[[2, 2]], 9, [0.0, float("nan")], node=1)
    initial = model.tree.leaf_of
    assert np.array_equal(Pooled().learn(model, shown(X[[2]], 9, [1.0])).tree.leaf_of, initial)
    learned = Pooled(label_samples=known).learn(model, shown(X, 3, [1.0] * 4))
    assert np.array_equal(learned.tree.leaf_of[:8], initial[:8])
    assert set(learned.tree.leaf_of[8:]) == set(initial[8:])  # the others still stand separate
    assert 9 not in rewarded_unlabelled(drawn, known.labelled_arms(12))[0]


def test_saved_models_keep_what_was_pooled(world: tuple[Model, LabelSamples, Float32s], tmp_path: Path) -> None:
    model, known, X = world
    learned = Pooled(label_samples=known).learn(model, shown(X[[2]], 9, [1.0]))
    learned.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert again.pooled is not None
    assert learned.pooled is not None
    assert learned.pooled.initial_leaf is not None
    for name, value in vars(learned.pooled).items():
        assert np.array_equal(getattr(again.pooled, name), value)
    policy = treetop.Policy(k=3, explore=2, beam=1, strategy=Budgeted(budget=0.3))
    for mine, wanted in zip(*(policy.decide_batch(m, X, seed=0).propensities for m in (again, learned)), strict=True):
        assert np.array_equal(mine, wanted)


def test_arms_may_be_added_where_a_leaf_holds_too_many(world: tuple[Model, LabelSamples, Float32s]) -> None:
    model, known, X = world
    rows, arms = np.full(3, 2), np.array([[8], [9], [10]])
    learned = Pooled(label_samples=known).learn(model, Feedback(X[rows], arms, None, np.ones((3, 1))))
    assert (learned.tree.leaf_of[8:11] == learned.tree.leaf_of[4]).all()  # five, where a leaf holds two
    grown = grow(learned, 9, max_leaf=2)
    assert grown.n_arms == 21
    policy = treetop.Policy(k=3, explore=1, beam=1, strategy=Budgeted(budget=0.3))
    assert (policy.decide_batch(grown, X[:4], seed=0).arms >= 0).all()
    again = Pooled(label_samples=known).learn(grown, Feedback(X[rows], arms, None, np.ones((3, 1))))
    assert (policy.decide_batch(again, X[:4], seed=0).arms >= 0).all()


def test_a_new_arm_with_a_place_of_its_own_keeps_it(world: tuple[Model, LabelSamples, Float32s]) -> None:
    model, known, X = world
    grown = grow(model, 1, max_leaf=4, vectors=X[[1]])
    learned = Pooled(label_samples=known).learn(grown, shown(X, 3, [1.0] * 4))
    assert learned.tree.leaf_of[12] == grown.tree.leaf_of[12]


@pytest.mark.parametrize("scenario", ["half-init", "drift"])
def test_a_run_goes_on_as_if_never_stopped(scenario: str) -> None:
    """Arms move by the whole history alone, whatever tree the last model had."""
    data, horizon = load(SMALL), 2000
    what = Scenario.of(scenario, data.n_arms, horizon, seed=0)
    stream, model = begin(data, 400, horizon, 10, 0, what, TreeBuilding(separate_unlabelled=True))
    known = LabelSamples.of(model.tree, stream.X_init, stream.Y_init, beam=5)
    policy, epochs = treetop.Policy(k=5, explore=3, beam=5, strategy=Budgeted(budget=0.3)), Epochs.geometric(100, 1.5)
    saved: list[History] = []
    first = replace(Pooled(label_samples=known).learn(model, Feedback.none(model.n_features, 5)), epoch=0)
    learning, environment = Learning(Pooled(label_samples=known), epochs), Environment(scenario=what)
    tracking = Tracking(save=saved.append)
    whole = run(stream, first, policy, learning=learning, environment=environment, tracking=tracking)
    assert (whole.model.tree.leaf_of != model.tree.leaf_of).any()
    half = saved[len(saved) // 2]
    learning, tracking = Learning(Pooled(label_samples=known), epochs), Tracking(resume=half)
    rest = run(stream, first, policy, learning=learning, environment=environment, tracking=tracking)
    assert rest.history.checksum() == whole.history.checksum()
    assert np.array_equal(rest.model.tree.leaf_of, whole.model.tree.leaf_of)


def test_the_same_decision_again_after_arms_moved(world: tuple[Model, LabelSamples, Float32s]) -> None:
    model, known, X = world
    policy = treetop.Policy(k=3, explore=2, beam=1, strategy=Budgeted(budget=0.3))
    learned = Pooled(label_samples=known).learn(model, shown(X[[2]], 9, [1.0], node=1))
    for i in range(20):
        once, twice = (policy.decide(learned, X[i % 4], event_id=i) for _ in range(2))
        assert np.array_equal(once.arms, twice.arms)
        assert np.array_equal(once.propensities, twice.propensities)
        assert (once.propensities > 0).all()


def test_a_reward_that_is_taken_back_leaves_no_trace(
    world: tuple[Model, LabelSamples, Float32s], tmp_path: Path
) -> None:
    model, known, X = world
    moved = Pooled(label_samples=known).learn(model, shown(X[[2]], 9, [1.0]))
    assert moved.tree.leaf_of[9] != model.tree.leaf_of[9]
    moved.save(tmp_path / "moved")
    chained, afresh = (
        Pooled(label_samples=known).learn(base, shown(X[[2]], 9, [0.0]))
        for base in (Model.load(tmp_path / "moved"), model)
    )
    assert np.array_equal(chained.tree.leaf_of, afresh.tree.leaf_of)
    assert np.array_equal(chained.rewards.toarray(), afresh.rewards.toarray())


def test_an_initial_leaf_that_was_split_meanwhile_is_found_again(world: tuple[Model, LabelSamples, Float32s]) -> None:
    model, known, X = world
    initial = model.tree.leaf_of[9]
    moved = Pooled(label_samples=known).learn(model, shown(X[[2]], 9, [1.0], node=1))
    assert moved.tree.leaf_of[9] != initial
    grown = grow(moved, 20, max_leaf=2)
    assert initial in grown.tree.parents
    assert grown.pooled is not None
    assert grown.pooled.initial_leaf is not None
    assert grown.pooled.initial_leaf[9] not in grown.tree.parents
    node = grown.pooled.initial_leaf[9]
    while node > initial:
        node = grown.tree.parents[node]
    assert node == initial
    back = Pooled(label_samples=known).learn(grown, shown(X[[2]], 9, [0.0], node=1))
    assert not known.labelled_arms(32)[back.tree.arms_below(int(back.tree.leaf_of[9]))].any()


def test_without_labelled_arms_none_moves(world: tuple[Model, LabelSamples, Float32s]) -> None:
    """All arms with labels were removed, or there was one labelled row, which no others could route."""
    model, known, X = world
    for nothing in (known.without(np.ones(12, np.bool_)), LabelSamples.of(model.tree, X[:1], np.eye(1, 12))):
        learned = Pooled(label_samples=nothing).learn(model, shown(X[[2]], 4, [1.0]))
        assert np.array_equal(learned.tree.leaf_of, model.tree.leaf_of)


def test_learners_may_take_turns(world: tuple[Model, LabelSamples, Float32s]) -> None:
    """The paper's keeps arms where they are, and knows nothing of what was pooled."""
    model, known, X = world
    moved = Pooled(label_samples=known).learn(model, shown(X[[2]], 9, [1.0], node=7))
    faithful = treetop.Linear().learn(moved, shown(X[[2]], 9, [1.0]))
    assert np.array_equal(faithful.tree.leaf_of, moved.tree.leaf_of)
    assert faithful.pooled is None
    assert Pooled(label_samples=known).learn(faithful, shown(X[[2]], 9, [1.0])).tree.leaf_of[9] == moved.tree.leaf_of[9]
