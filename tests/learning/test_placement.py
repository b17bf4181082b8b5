"""Where arms live: arms that go where their rewards were found, arms apart."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treetop
from treetop.arrays import Singles
from treetop.bandit.growth import grow
from treetop.data.datasets import load
from treetop.learning.linear import Epochs
from treetop.learning.placement import PROVEN, Standing
from treetop.learning.pooled import Labelled, Pooled
from treetop.model.model import Model
from treetop.policy.search import Eligible, search
from treetop.policy.strategies import Thrifty
from treetop.records import Feedback
from treetop.simulation.history import History
from treetop.simulation.play import Environment, Learning, Tracking, TreeBuilding, begin, run
from treetop.simulation.scenario import Scenario
from treetop.tree.tree import Tree

SMALL = "synthetic:arms=300,features=200,rows=3000,init=400"


@pytest.fixture
def world() -> tuple[Model, Labelled, Singles]:
    """Eight arms in pairs, told of by two features a pair, and four without a label that stand apart."""
    X = np.tile(np.kron(np.eye(4), [1.0, 1.0]), (6, 1)).astype(np.float32)
    Y = np.zeros((24, 12), np.float32)
    for i in range(24):
        Y[i, 2 * (i % 4) : 2 * (i % 4) + 2] = 1
    tree = Tree.from_labels(X, Y, max_leaf=2, apart=True)
    return Model.initial(tree, X, Y), Labelled.of(tree, X, Y, beam=2), X


def shown(X: Singles, arm: int, rewards: list[float], node: int = -1) -> Feedback:
    n = len(rewards)
    return Feedback(X[:n], np.full((n, 1), arm), np.full((n, 1), node), np.array(rewards)[:, None])


def test_an_arm_goes_where_its_reward_was_found(world: tuple[Model, Labelled, Singles]) -> None:
    model, known, X = world
    home = model.tree.leaf_of
    learned = Pooled(known=known).learn(model, shown(X[[2]], 9, [1.0], node=int(model.tree.n_nodes - 1)))
    assert learned.tree.leaf_of[9] == home[4] == home[5]  # the arms of context 2
    assert (learned.tree.leaf_of[:8] == home[:8]).all()
    assert learned.tree.leaf_of[9] not in learned.tree.leaf_of[[8, 10, 11]]
    policy = treetop.Policy(k=3, explore=0, beam=1, strategy=treetop.Greedy())
    assert 9 in policy.decide(learned, X[2], event_id="then").arms
    assert 9 not in policy.decide(learned, X[0], event_id="elsewhere").arms
    assert 9 not in policy.decide(model, X[2], event_id="before").arms


def test_without_a_reward_or_labels_nothing_moves(world: tuple[Model, Labelled, Singles]) -> None:
    model, known, X = world
    drawn = shown(X[[2, 2]], 9, [0.0, float("nan")], node=1)
    home = model.tree.leaf_of
    assert np.array_equal(Pooled().learn(model, shown(X[[2]], 9, [1.0])).tree.leaf_of, home)
    learned = Pooled(known=known).learn(model, shown(X, 3, [1.0] * 4))
    assert np.array_equal(learned.tree.leaf_of[:8], home[:8])
    assert set(learned.tree.leaf_of[8:]) < set(home[8:])  # the others still stand apart, and the hall is empty
    assert 9 not in Standing(drawn, known.told(12)).earned()[0]


def spread(X: Singles, arm: int, times: int) -> Feedback:
    """Rewards of an arm in contexts of all kinds, so that no leaf is the place of it."""
    return shown(X[np.arange(times) % 4], arm, [1.0] * times)


def test_an_arm_with_many_rewards_is_scored_wherever_a_search_ends(world: tuple[Model, Labelled, Singles]) -> None:
    model, known, X = world
    few, many = (Pooled(known=known).learn(model, spread(X, 9, n)) for n in (PROVEN - 1, PROVEN))
    assert few.hall is not None
    assert many.hall is not None
    hall = int(many.hall[0])
    assert few.tree.leaf_of[9] != hall
    assert np.flatnonzero(many.tree.leaf_of == hall).tolist() == [9]
    policy = treetop.Policy(k=3, explore=0, beam=1, strategy=treetop.Greedy())
    assert (policy.decide_batch(many, X[:4], seed=0).arms == 9).any(axis=1).all()
    assert not (policy.decide_batch(few, X[:4], seed=0).arms == 9).any(axis=1).all()
    back = Pooled(known=known).learn(many, spread(X, 9, 1))  # the others were taken back
    assert np.array_equal(back.tree.leaf_of, Pooled(known=known).learn(model, spread(X, 9, 1)).tree.leaf_of)


@pytest.mark.parametrize("beam", [1, 2, 3, 10])
def test_the_hall_takes_no_place_in_the_beam(beam: int) -> None:
    """Every arm is a candidate once, those of the hall by themselves, the others as they would be without it."""
    data = load(SMALL)
    stream, model = begin(data, init=150, horizon=100, max_leaf=4, tree=TreeBuilding(separate_unlabelled=True))
    known = Labelled.of(model.tree, stream.X_init, stream.Y_init, beam=4)
    arm = np.flatnonzero(~known.told(300))[-1]
    x = stream.X.csr()[:PROVEN]
    learned = Pooled(known=known).learn(model, Feedback(x, [[arm]] * PROVEN, None, [[1.0]] * PROVEN))
    assert learned.hall is not None
    assert learned.tree.leaf_of[arm] == learned.hall[0]
    every = Eligible.of(learned.tree)
    for i in range(40):
        with_hall, without = (
            search(m, stream.X.row(i), beam, None, 1, every) for m in (learned, replace(learned, hall=None))
        )
        singles = with_hall.id[~with_hall.is_node]
        below = [learned.tree.arms_below(int(node)) for node in with_hall.id[with_hall.is_node]]
        assert sorted(np.concatenate([singles, *below]).tolist()) == list(range(300))
        assert arm in singles
        assert set(singles.tolist()) - {arm} == set(without.id[~without.is_node].tolist()) - {arm}


def test_models_keep_hopes_and_the_way_to_the_hall(world: tuple[Model, Labelled, Singles], tmp_path: Path) -> None:
    model, known, X = world
    learned = Pooled(known=known).learn(model, spread(X, 9, PROVEN))
    learned.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    for name in ("hope", "hall", "home", "prior", "trials"):
        assert np.array_equal(getattr(again, name), getattr(learned, name))
    policy = treetop.Policy(k=3, explore=2, beam=1, strategy=Thrifty(zeal=10))
    for mine, wanted in zip(*(policy.decide_batch(m, X, seed=0).propensities for m in (again, learned)), strict=True):
        assert np.array_equal(mine, wanted)


@pytest.mark.parametrize("hall", [[], [0], [10], [-1, 3]])
def test_a_hall_that_does_not_fit_is_refused(world: tuple[Model, Labelled, Singles], hall: list[int]) -> None:
    with pytest.raises(ValueError, match=r"it must be of nodes 1 to 9"):
        replace(world[0], hall=np.array(hall, np.int32))


def test_hopes_that_do_not_fit_are_refused(world: tuple[Model, Labelled, Singles]) -> None:
    with pytest.raises(ValueError, match="the hopes of 3 arms do not fit 12 arms"):
        replace(world[0], hope=np.zeros(3, np.float32))


def test_arms_may_be_added_where_a_leaf_holds_too_many(world: tuple[Model, Labelled, Singles]) -> None:
    model, known, X = world
    rows = np.arange(3 * PROVEN) % 4
    arms = np.repeat([8, 9, 10], PROVEN)[:, None]
    learned = Pooled(known=known).learn(model, Feedback(X[rows], arms, None, np.ones((3 * PROVEN, 1))))
    assert learned.hall is not None
    assert (learned.tree.leaf_of[8:11] == learned.hall[0]).all()  # three, where a leaf holds two
    grown = grow(learned, 9, max_leaf=2)
    assert grown.n_arms == 21
    policy = treetop.Policy(k=3, explore=1, beam=1, strategy=Thrifty(zeal=10))
    assert (policy.decide_batch(grown, X[:4], seed=0).arms >= 0).all()
    again = Pooled(known=known).learn(grown, Feedback(X[rows], arms, None, np.ones((3 * PROVEN, 1))))
    assert (policy.decide_batch(again, X[:4], seed=0).arms >= 0).all()


def test_a_new_arm_with_a_place_of_its_own_keeps_it(world: tuple[Model, Labelled, Singles]) -> None:
    model, known, X = world
    grown = grow(model, 1, max_leaf=4, vectors=X[[1]])
    learned = Pooled(known=known).learn(grown, shown(X, 3, [1.0] * 4))
    assert learned.tree.leaf_of[12] == grown.tree.leaf_of[12]


@pytest.mark.parametrize("scenario", ["half-init", "drift"])
def test_a_run_goes_on_as_if_never_stopped(scenario: str) -> None:
    """Arms move by the whole history alone, whatever tree the last model had."""
    data, horizon = load(SMALL), 2000
    what = Scenario.of(scenario, data.n_arms, horizon, seed=0)
    stream, model = begin(data, 400, horizon, 10, 0, what, TreeBuilding(separate_unlabelled=True))
    known = Labelled.of(model.tree, stream.X_init, stream.Y_init, beam=5)
    policy, epochs = treetop.Policy(k=5, explore=3, beam=5, strategy=Thrifty(zeal=5)), Epochs.geometric(100, 1.5)
    saved: list[History] = []
    first = replace(Pooled(known=known).learn(model, Feedback.none(model.n_features, 5)), epoch=0)
    learning, environment = Learning(Pooled(known=known), epochs), Environment(scenario=what)
    tracking = Tracking(save=saved.append)
    whole = run(stream, first, policy, learning=learning, environment=environment, tracking=tracking)
    assert (whole.model.tree.leaf_of != model.tree.leaf_of).any()
    half = saved[len(saved) // 2]
    learning, tracking = Learning(Pooled(known=known), epochs), Tracking(resume=half)
    rest = run(stream, first, policy, learning=learning, environment=environment, tracking=tracking)
    assert rest.history.checksum() == whole.history.checksum()
    assert np.array_equal(rest.model.tree.leaf_of, whole.model.tree.leaf_of)


def test_the_same_decision_again_after_arms_moved(world: tuple[Model, Labelled, Singles]) -> None:
    model, known, X = world
    policy = treetop.Policy(k=3, explore=2, beam=1, strategy=Thrifty(zeal=10))
    learned = Pooled(known=known).learn(model, shown(X[[2]], 9, [1.0], node=1))
    for i in range(20):
        once, twice = (policy.decide(learned, X[i % 4], event_id=i) for _ in range(2))
        assert np.array_equal(once.arms, twice.arms)
        assert np.array_equal(once.propensities, twice.propensities)
        assert (once.propensities > 0).all()


def test_a_reward_that_is_taken_back_leaves_no_trace(world: tuple[Model, Labelled, Singles], tmp_path: Path) -> None:
    model, known, X = world
    moved = Pooled(known=known).learn(model, shown(X[[2]], 9, [1.0]))
    assert moved.tree.leaf_of[9] != model.tree.leaf_of[9]
    moved.save(tmp_path / "moved")
    chained, afresh = (
        Pooled(known=known).learn(base, shown(X[[2]], 9, [0.0])) for base in (Model.load(tmp_path / "moved"), model)
    )
    assert np.array_equal(chained.tree.leaf_of, afresh.tree.leaf_of)
    assert np.array_equal(chained.rewards.toarray(), afresh.rewards.toarray())


def test_a_home_that_was_split_meanwhile_is_found_again(world: tuple[Model, Labelled, Singles]) -> None:
    model, known, X = world
    home = model.tree.leaf_of[9]
    moved = Pooled(known=known).learn(model, shown(X[[2]], 9, [1.0], node=1))
    assert moved.tree.leaf_of[9] != home
    grown = grow(moved, 20, max_leaf=2)
    assert home in grown.tree.parents
    assert grown.home is not None
    assert grown.home[9] not in grown.tree.parents
    assert grown.tree.parents[grown.home[9]] == home
    back = Pooled(known=known).learn(grown, shown(X[[2]], 9, [0.0], node=1))
    assert not known.told(32)[back.tree.arms_below(int(back.tree.leaf_of[9]))].any()


def test_labels_that_tell_of_no_arm_move_none(world: tuple[Model, Labelled, Singles]) -> None:
    """All arms with labels were removed, or there was one labelled row, which no others could route."""
    model, known, X = world
    for nothing in (known.without(np.ones(12, np.bool_)), Labelled.of(model.tree, X[:1], np.eye(1, 12))):
        learned = Pooled(known=nothing).learn(model, shown(X[[2]], 4, [1.0]))
        assert np.array_equal(learned.tree.leaf_of, model.tree.leaf_of)


@pytest.mark.parametrize("home", [[1], [99] * 12, [-1] * 12])
def test_homes_that_do_not_fit_are_refused(world: tuple[Model, Labelled, Singles], home: list[int]) -> None:
    with pytest.raises(ValueError, match=rf"the homes of {len(home)} arms do not fit 12 arms and 10 nodes"):
        replace(world[0], home=np.array(home, np.int32))


def test_learners_may_take_turns(world: tuple[Model, Labelled, Singles]) -> None:
    """The paper's keeps arms where they are, and where they were is not forgotten."""
    model, known, X = world
    moved = Pooled(known=known).learn(model, shown(X[[2]], 9, [1.0], node=7))
    faithful = treetop.Linear().learn(moved, shown(X[[2]], 9, [1.0]))
    assert np.array_equal(faithful.tree.leaf_of, moved.tree.leaf_of)
    assert faithful.prior is None
    assert np.array_equal(
        Pooled(known=known).learn(faithful, shown(X[[2]], 9, [0.0])).tree.leaf_of,
        Pooled(known=known).learn(model, shown(X[[2]], 9, [0.0])).tree.leaf_of,
    )
