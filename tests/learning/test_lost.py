"""Heirs of fallen arms: where they are sought, among which arms, and when the search is over."""

import numpy as np
import pytest

import treetop
from treetop.arrays import as_rows
from treetop.data.datasets import load
from treetop.learning.linear import Epochs, Linear
from treetop.learning.placement import Heir, Standing
from treetop.learning.pooled import Labelled, Pooled
from treetop.learning.refit import initial_fit
from treetop.lost import BEFORE, FALLEN, HASTE, Lost, _fallen
from treetop.model.model import Model
from treetop.policy.search import EVERY_ARM, search
from treetop.policy.strategies import Thrifty
from treetop.records import Feedback
from treetop.simulation.play import begin, run
from treetop.simulation.scenario import Scenario

SMALL = "synthetic:arms=300,features=200,rows=3000,init=400"
ARMS, NODE = 8, 1  # arms of the made-up histories, and a node that some are drawn through


def history(*parts: tuple[int, int, int, float, int]) -> Feedback:
    """One slot a round: (rounds, feature of the context, arm, reward, node) for each part."""
    columns = [np.repeat([part[i] for part in parts], [part[0] for part in parts]) for i in range(1, 5)]
    X = np.eye(3, dtype=np.float32)[columns[0]]
    return Feedback(X, columns[1][:, None], columns[3][:, None], columns[2][:, None], reward_range=None)


WANTED, OTHERS = (200, 0, 0, 1.0, -1), (200, 1, 1, 1.0, -1)  # arm 0 earns in contexts of feature 0, arm 1 in others
FELL = (60, 0, 0, 0.0, -1)


def looked(feedback: Feedback, told: np.ndarray | None = None) -> tuple[Lost | None, list[Heir]]:
    labelled = np.ones(ARMS, np.bool_) if told is None else told
    return Lost.of(feedback, Standing.of(feedback, labelled), Linear())


def at(lost: Lost, feature: int) -> float:
    return float(lost.missed[feature] + lost.missed[-2])


def ruled(*parts: tuple[int, int, int, float, int]) -> list[int]:
    lost, _ = looked(history(WANTED, OTHERS, FELL, *parts))
    return [] if lost is None else lost.ruled.tolist()


def heirs(*parts: tuple[int, int, int, float, int]) -> list[tuple[int, int]]:
    return [(heir.of, heir.arm) for heir in looked(history(WANTED, OTHERS, FELL, *parts))[1]]


def test_nothing_is_missed_where_nothing_fell() -> None:
    assert looked(history(WANTED, OTHERS)) == (None, [])
    assert looked(history((5, 0, 0, 0.0, -1))) == (None, [])
    assert looked(Feedback.none(3, 1)) == (None, [])


def test_what_is_missed_is_missed_where_it_was_wanted() -> None:
    lost, found = looked(history(WANTED, OTHERS, FELL))
    assert lost is not None
    assert at(lost, 0) == pytest.approx(HASTE, abs=0.04)  # a part of what it brought
    assert abs(at(lost, 1)) < 0.04
    assert lost.missed[-1] == HASTE
    assert found == []


def test_arms_that_failed_or_earned_are_not_sought() -> None:
    tried = (1, 0, 3, 0.0, NODE)
    earns = (20, 1, 1, 1.0, -1)
    elsewhere = (20, 1, 4, 0.0, -1)  # says nothing of contexts that wanted arm 0
    assert ruled() == [0, -1]
    assert ruled(tried, earns, elsewhere) == [0, 1, 3, -1]


def test_the_search_ends_when_all_were_tried() -> None:
    parts = [(1, 0, arm, 0.0, NODE) for arm in range(1, ARMS)]
    assert ruled(*parts[:-1]) == [*range(ARMS - 1), -1]
    assert ruled(*parts) == []


def test_no_search_among_too_many() -> None:
    """Arm 0 would be wanted 100 times in half as many rounds: among 190 arms its heir is sought, among 300 not."""
    feedback = history(WANTED, OTHERS, FELL)
    assert looked(feedback, np.ones(190, np.bool_))[0] is not None
    assert looked(feedback, np.ones(300, np.bool_))[0] is None


def test_looking_in_vain_speaks_against_heirs() -> None:
    """Of many fallen arms no heir was found though all were looked for: then the next one is not sought as long."""
    fallen = [(200, 2, arm, 1.0, -1) for arm in (2,)] + [(60, 2, 2, 0.0, -1)]
    few = np.ones(60, np.bool_)
    tried = [(1, 2, arm, 0.0, NODE) for arm in range(3, 58)]
    lists = {}
    for name, parts in (("new", fallen), ("tried", [*fallen, *tried])):
        lost, _ = looked(history(WANTED, OTHERS, FELL, *parts), few)
        assert lost is not None
        lists[name] = lost.ruled.tolist()
    assert lists["new"].count(-1) == lists["tried"].count(-1) == 2
    assert len(lists["tried"]) > len(lists["new"]) + 50


def test_one_reward_makes_an_heir_and_some_more_end_the_search() -> None:
    once = (1, 0, 5, 1.0, NODE)
    assert heirs(once) == [(0, 5)]
    assert ruled(once) == [0, 5, -1]  # which is not sought any more itself
    assert heirs(once, (30, 0, 5, 1.0, -1)) == [(0, 5)]
    assert ruled(once, (30, 0, 5, 1.0, -1)) == []
    assert heirs(once, (30, 1, 5, 0.0, -1)) == [(0, 5)]  # not where arm 0 was wanted


@pytest.mark.parametrize("reward", [0.15, 0.4])
def test_an_heir_need_not_bring_more_than_the_fallen_arm(reward: float) -> None:
    """One that brings as much stays, one that brings a fifth does not; a fifth at first sight is not enough either."""
    fell, once = [(200, 0, 0, reward, -1), OTHERS, (400, 0, 0, 0.0, -1)], (1, 0, 5, reward, NODE)
    for part, stays in ((1.0, True), (0.2, False)):
        later = (3000, 0, 5, reward * part, -1)
        assert bool(looked(history(*fell, once, later))[1]) == stays
    assert looked(history(*fell, (1, 0, 5, reward / 10, NODE)))[1] == []


def test_an_heir_that_fails_is_none() -> None:
    assert heirs((1, 0, 5, 1.0, NODE), (1, 0, 5, 0.0, -1)) == [(0, 5)]
    assert heirs((1, 0, 5, 1.0, NODE), (3, 0, 5, 0.0, -1)) == []
    assert heirs((1, 0, 5, 1.0, NODE), (3, 0, 5, 0.0, -1), (1, 0, 6, 1.0, NODE)) == [(0, 6)]


def test_who_earns_anyway_is_no_heir() -> None:
    drawn = (1, 0, 5, 1.0, NODE)
    assert heirs((1, 1, 5, 1.0, NODE)) == []  # where arm 0 was not wanted
    assert heirs((1, 0, 5, 1.0, -1)) == []  # by its score, as ever
    assert heirs((20, 1, 5, 1.0, -1), drawn) == []
    assert looked(history(WANTED, (20, 1, 5, 1.0, -1), FELL, drawn))[1] == [Heir(0, 5)]  # before the fall


def test_an_heir_is_the_heir_of_one_arm() -> None:
    second = [(200, 2, 2, 1.0, -1), (60, 2, 2, 0.0, -1)]
    found = [(1, 0, 5, 1.0, NODE), (30, 0, 5, 1.0, -1)]
    assert heirs(*found, *second, (1, 2, 5, 1.0, NODE)) == [(0, 5)]
    assert sorted(heirs(*found, *second, (1, 2, 6, 1.0, NODE))) == [(0, 5), (2, 6)]


def test_an_older_fall_does_not_hide_the_heir_of_a_later_one() -> None:
    """Arm 5 earned between the two falls: it may be the heir of the second arm all the same."""
    earns, second = (20, 1, 5, 1.0, -1), [(200, 2, 2, 1.0, -1), (60, 2, 2, 0.0, -1)]
    assert heirs(earns, *second, (1, 2, 5, 1.0, NODE)) == [(2, 5)]


def test_an_arm_that_fell_too_may_be_the_heir() -> None:
    """What it earned before its own fall says nothing, though another arm had fallen by then."""
    other = [(100, 1, 3, 1.0, -1), (60, 1, 3, 0.0, -1)]
    lost, _ = looked(history(WANTED, OTHERS, FELL, *other))
    assert lost is not None
    of_first = lost.ruled.tolist()[: lost.ruled.tolist().index(-1)]
    assert 0 in of_first
    assert 3 not in of_first
    assert heirs(*other, (1, 0, 3, 1.0, NODE)) == [(0, 3)]


def test_an_heir_that_fell_itself_is_not_what_it_was() -> None:
    """Arm 3 fell after the arm that it inherits from: what it earned in between is over as well."""
    feedback = history(WANTED, OTHERS, FELL, (100, 1, 3, 1.0, -1), (60, 1, 3, 0.0, -1), (1, 0, 3, 1.0, NODE))
    before = Standing.of(feedback, np.ones(ARMS, np.bool_))
    _, found = Lost.of(feedback, before, Linear())
    assert found == [Heir(0, 3)]
    passed, standing = before.inherited(feedback, found)
    mine = (passed.arms == 3) & standing.counted
    assert passed.rewards[mine].sum() == 201
    assert np.flatnonzero(mine.any(axis=1))[:200].tolist() == list(range(200))


def test_no_search_where_nobody_is_left() -> None:
    """Every arm has earned since: none is a suspect, and nothing divides by nothing."""
    earned = [(3, 1, arm, 1.0, -1) for arm in range(1, ARMS)] + [(3, 2, 0, 1.0, -1)]
    with np.errstate(all="raise"):
        assert ruled(*earned) == []


def test_many_rewards_through_nodes_are_looked_at_once() -> None:
    """A strategy that draws all the time: arms that are rewarded elsewhere are what they were."""
    many = [(50, 1, arm, 1.0, NODE) for arm in range(1, ARMS)] * 20
    assert heirs(*many, (1, 0, 5, 1.0, NODE)) == []


def test_an_arm_that_earns_again_is_its_own_heir() -> None:
    feedback = history(WANTED, OTHERS, FELL, (1, 0, 0, 1.0, NODE), (30, 0, 0, 1.0, -1))
    standing = Standing.of(feedback, np.ones(ARMS, np.bool_))
    _, found = Lost.of(feedback, standing, Linear())
    assert found == [Heir(0, 0)]
    passed, standing = standing.inherited(feedback, found)
    assert standing.told.all()
    np.testing.assert_array_equal(standing.passed, np.arange(ARMS))
    np.testing.assert_array_equal(passed.arms, feedback.arms)
    assert standing.counted[feedback.arms == 0].sum() == 200 + 60 + 31


def test_arms_that_swapped_inherit_from_each_other() -> None:
    swapped = [(60, 1, 1, 0.0, -1), (1, 0, 1, 1.0, NODE), (1, 1, 0, 1.0, NODE)]
    feedback = history(WANTED, OTHERS, FELL, *swapped)
    before = Standing.of(feedback, np.ones(ARMS, np.bool_))
    _, found = Lost.of(feedback, before, Linear())
    assert sorted((heir.of, heir.arm) for heir in found) == [(0, 1), (1, 0)]
    passed, standing = before.inherited(feedback, found)
    assert standing.passed.tolist() == [1, 0, *range(2, ARMS)]
    for arm, partner in ((0, 1), (1, 0)):
        mine = (passed.arms == arm) & standing.counted
        theirs = np.flatnonzero(feedback.arms == partner)[:200]
        np.testing.assert_array_equal(np.flatnonzero(mine.any(axis=1))[:200], theirs)
        assert passed.rewards[mine].sum() == 201
    assert standing.told[:2].all()


def test_an_heir_takes_the_place_of_the_fallen_arm() -> None:
    """Its leaf, its labels, its rewards: what is expected of it is what was expected of the other one."""
    X = np.eye(4, dtype=np.float32)
    rows = np.tile(X, (20, 1))
    tree = treetop.Tree(parents=np.array([-1, 0, 0, 0], np.int32), leaf_of=np.array([1, 1, 2, 2, 3], np.int32))
    Y = np.eye(4, 5, dtype=np.float32)[np.tile(np.arange(4), 20)]
    model = Model.initial(tree, rows, Y)
    learner = Pooled(known=Labelled.of(tree, rows, Y, beam=2))
    earns, fails, drawn = (200, 0, 0, 1.0, -1), (60, 0, 0, 0.0, -1), (1, 0, 4, 1.0, 3)

    def played(*parts: tuple[int, int, int, float, int]) -> Model:
        feedback = history(*parts)
        return learner.learn(model, Feedback(np.pad(feedback.contexts.csr().toarray(), ((0, 0), (0, 1))), feedback.arms,
                                             feedback.nodes, feedback.rewards))  # fmt: skip

    was, fell, now = played(earns), played(earns, fails), played(earns, fails, drawn)
    assert fell.tree.leaf_of[0] == 3
    assert now.tree.leaf_of.tolist() == [3, 1, 2, 2, 1]
    x = as_rows(X[:1])

    def score(of: Model, arm: int) -> float:
        found = search(of, x, 5, None, 5, EVERY_ARM)
        return float(found.score[~found.is_node & (found.id == arm)][0])

    assert score(was, 0) > 0.9
    assert score(now, 4) == pytest.approx(score(was, 0), abs=0.02)
    assert score(now, 0) < 0.2
    gone = played(earns, fails, drawn, (5, 0, 4, 0.0, -1))  # which is not true of it
    assert score(gone, 4) < 0.5


def test_rewards_that_nobody_saw_say_nothing() -> None:
    feedback = history(WANTED, OTHERS, FELL, (1, 0, 5, 1.0, NODE))
    t = np.arange(len(feedback))[:, None]
    unseen = (t % 5 > 0) & (t < 400) & (feedback.arms == 0)
    rewards = np.where(unseen, np.nan, feedback.rewards)
    partial = Feedback(feedback.contexts.csr(), feedback.arms, feedback.nodes, rewards)
    lost, found = looked(partial)
    assert lost is not None
    assert at(lost, 0) > 20 * abs(at(lost, 1))
    assert [heir.arm for heir in found] == [5]


@pytest.mark.parametrize("size", [0.4, 1e19])
def test_rewards_of_any_size(size: float) -> None:
    feedback = history((200, 0, 0, size, -1), OTHERS, (400, 0, 0, 0.0, -1), (1, 0, 5, size, NODE))
    lost, found = looked(feedback)
    assert lost is not None
    assert np.isfinite(lost.missed).all()
    assert [heir.arm for heir in found] == [5]


def test_only_the_arms_that_earned_most_are_looked_for() -> None:
    many = FALLEN + 4
    earned = [(30 + arm, arm % 3, arm, 1.0, -1) for arm in range(many)]
    failed = [(60, arm % 3, arm, 0.0, -1) for arm in range(many)]
    feedback = history(*earned, *failed)
    standing = Standing.of(feedback, np.ones(many, np.bool_))
    assert (standing.since > 0).all()
    arms, rate = _fallen(feedback, standing.since)
    mean = (30 + np.arange(many)) / standing.since
    assert arms.tolist() == list(range(many - 1, 3, -1))  # of those that earned as much, the latest fell first
    np.testing.assert_allclose(rate, mean[arms])


def test_what_was_wanted_long_ago_is_not_missed() -> None:
    long = history((BEFORE, 0, 0, 1.0, -1), (BEFORE, 1, 1, 1.0, -1), FELL)
    assert Standing.of(long, np.ones(ARMS, np.bool_)).since[0] == 2 * BEFORE
    assert looked(long)[0] is None


def test_a_stream_that_drifts_is_played_the_same_again() -> None:
    data = load(SMALL)
    scenario = Scenario.of("drift", data.n_arms, 3000, 1)
    stream, model = begin(data, 400, 3000, 10, 1, scenario=scenario, apart=True)
    runs = []
    for threads in (1, 2):
        learner = Pooled(known=Labelled.of(model.tree, stream.X_init, stream.Y_init, beam=5), threads=threads)
        policy = treetop.Policy(k=5, explore=3, beam=5, strategy=Thrifty())
        runs.append(run(stream, initial_fit(model, learner), policy, epochs=Epochs.geometric(256, 1.1), regressor=learner,
                        scenario=scenario))  # fmt: skip
    np.testing.assert_array_equal(runs[0].history.arms, runs[1].history.arms)
    assert (runs[0].history.nodes >= 0).any()
