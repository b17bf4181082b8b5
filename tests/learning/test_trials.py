"""What trying an arm unseen is worth: one without labels, one that has just appeared; and samples in steps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from treetop import Epochs, Learning, Model, Policy, Pooled, Tree, load, run
from treetop.bandit.growth import grow
from treetop.learning.arm_totals import ArmTotals
from treetop.learning.label_samples import LabelSamples
from treetop.learning.refit import initial_fit
from treetop.learning.trials import ALIKE, FINDS, Trials
from treetop.policy.budgeted import Budgeted
from treetop.records import Feedback
from treetop.simulation.play import TreeBuilding, begin
from treetop.simulation.scenario import Scenario

LABELLED = np.array([True, True, False, False, False])


def history(
    arms: list[int], rewards: list[float], nodes: list[int] | None = None, appeared: list[int] | None = None
) -> Feedback:
    n = len(arms)
    drawn = None if nodes is None else np.array(nodes)[:, None]
    return Feedback(
        np.ones((n, 1), np.float32), np.array(arms)[:, None], drawn, np.array(rewards)[:, None], appeared=appeared
    )


def values(feedback: Feedback) -> Trials:
    return Trials.of(feedback, LABELLED)


def test_without_rounds_nothing_is_worth_anything() -> None:
    assert values(Feedback.none(1, 1)).value.tolist() == [0] * 5


def test_an_arm_without_labels_is_taken_to_be_like_those_with_labels() -> None:
    worth = ALIKE * 10 / 2 * (0.8**2 + 0.2**2) / 2
    trials = values(history([0] * 8 + [1] * 2, [1.0] * 10))
    assert trials.value.tolist() == pytest.approx([0, 0, worth, worth, worth])
    assert trials.new_trials is None


def test_draws_that_bring_nothing_lower_it_and_what_was_found_raises_it() -> None:
    """By enumeration: each known arm in turn is what an unknown one is like, given that its draws brought nothing."""
    arms, rewards = [0] * 16 + [1] * 4, [1.0] * 20
    n, rates = 25, np.array([16, 4]) / 25
    missed = (1 - rates) ** 5
    scale = n / 2 * ALIKE * FINDS / (1 - missed.mean() + FINDS)
    trials = values(history(arms + [2] * 5, rewards + [0.0] * 5, [-1] * 20 + [7] * 5))
    assert trials.value[2] == pytest.approx(scale * (missed * rates**2).sum() / missed.sum())
    assert trials.value[3] == pytest.approx(scale * (rates**2).mean())
    assert trials.value[2] < trials.value[3]
    found = values(history(arms + [2] * 5, rewards + [1.0] + [0.0] * 4, [-1] * 20 + [7] * 5))
    assert found.value[3] == pytest.approx(trials.value[3] * (1 + ALIKE * FINDS) / (ALIKE * FINDS))
    assert found.value[2] == 0  # it has been found


def test_a_new_arm_is_taken_to_be_like_the_old_ones() -> None:
    """Labels or not: what counts is what arms have earned that were there from the first round on."""
    arms, rewards = [0] * 16 + [1] * 4, [1.0] * 20
    some = history([*arms, *[3] * 5], rewards + [0.0] * 5, [-1] * 20 + [7] * 5, appeared=[0, 0, 0, 20, 25])
    n, rates = 25, np.array([16, 4, 0]) / 25
    missed = (1 - rates) ** 5
    scale = n / 2 * ALIKE * FINDS / (1 - missed.mean() + FINDS)
    trials = values(some)
    assert trials.value[3] == pytest.approx(scale * (missed * rates**2).sum() / missed.sum())
    assert trials.value[4] == pytest.approx(scale * (rates**2).mean()) == trials.new_value
    assert trials.new_trials is not None
    assert trials.new_trials.tolist() == [-1, -1, -1, 5, 0]


def test_new_arms_that_are_found_more_often_than_old_ones_would_be_are_worth_more() -> None:
    appeared = [0, 0, 0, 3, 3]
    bad = history([0] + [3] * 9, [1.0] + [0.0] * 9, [-1] + [7] * 9, appeared=appeared)
    good = history([0] + [3] * 9, [1.0] + [0.0] * 8 + [1.0], [-1] + [7] * 9, appeared=appeared)
    assert values(good).value[4] > values(bad).value[4]


SHOWN = [[0, 2], [0, 3], [0, 2], [4, 0], [3, 0], [1, 0]]
NODES = [[-1, 7], [-1, 7], [-1, -1], [7, -1], [-1, -1], [7, -1]]
REWARDS = [[1.0, 1.0], [0.5, 0.0], [0.0, 1.0], [0.0, 0.25], [1.0, 0.0], [1.0, float("nan")]]
FOUND, EVERYTHING = 1.0 + 1.0, 5.75  # what arms 2 and 3 earned: arm 2 was found by a draw, arm 3 was not


def net(**more: Any) -> float:
    return values(Feedback(np.ones((6, 1), np.float32), SHOWN, NODES, REWARDS, **more)).net


def test_what_draws_found_has_earned_less_what_they_cost() -> None:
    """Without propensities a draw costs what last slots bring on average; found is who got the first reward by one."""
    last = (1.0 + 0.25 + 0.0) / 3  # of rounds 2, 3 and 4: drawn and unobserved ones do not count
    assert net() == pytest.approx((FOUND - 4 * last) / EVERYTHING)
    assert net(appeared=[0, 0, 0, 0, 1]) == pytest.approx((FOUND - 3 * last) / EVERYTHING)  # arm 4 has another budget
    assert values(Feedback.none(1, 2)).net == 0


def test_a_last_slot_tells_the_cost_of_draws_by_how_often_its_like_is_given_up() -> None:
    unknown, last = float("nan"), (1.0 + 0.25 + 0.0) / 3
    given = [[1, 0.5], [1, 0.5], [1, 0.75], [0.25, 0.25], [1, unknown], [1, 0.5]]
    weight = 1 / 3 + 3.0
    cost = (1 / 3 * 1.0 + 3.0 * 0.25 + last) / (weight + 1)
    assert net(propensities=given) == pytest.approx((FOUND - 4 * cost) / EVERYTHING)
    given[3][1] = 0.05  # shows what was drawn itself
    cost = (1 / 3 * 1.0 + last) / (1 / 3 + 1)
    assert net(propensities=given) == pytest.approx((FOUND - 4 * cost) / EVERYTHING)


def test_the_cost_of_draws_is_what_the_greedy_slates_would_have_brought_more() -> None:
    """On a stream whose labels are known, with so many draws that rounds have several: then it is too high, not low."""
    data = load("synthetic:arms=2000,features=200,rows=6000,init=300,zipf=1")
    scenario = Scenario.of("half-init", data.n_arms, 6000, 0)
    stream, model = begin(data, 300, 6000, 10, 0, scenario, TreeBuilding(separate_unlabelled=True))
    learner = Pooled(label_samples=LabelSamples.of(model.tree, stream.X_init, stream.Y_init))
    model = initial_fit(model, learner)
    assert model.pooled is not None
    model = replace(model, pooled=replace(model.pooled, trial_value=np.ones(data.n_arms, np.float32)))
    often = Policy(k=5, explore=3, beam=10, strategy=Budgeted(budget=0.05, paying_budget=0.2))
    played = run(stream, model, often, learning=Learning(learner, Epochs.doubling(10**6)))
    drawn = ArmTotals.of(played.feedback, data.n_arms)
    true = played.exploration_cost * len(stream.rows) + float(drawn.drawn_reward.sum())
    assert drawn.draws > 1000
    assert 0.9 * true < drawn.draw_cost() < 2 * true


def test_histories_with_arms_that_appeared_add_up() -> None:
    first, then = history([0, 0], [1, 1], appeared=[0, 1, 2]), history([0, 2], [1, 1], appeared=[0, 0, 1, 2])
    assert (first + then).appeared.tolist() == [0, 1, 3, 4]
    assert (first + history([0], [1.0])).appeared.tolist() == [0, 1, 2]
    assert (history([0], [1.0]) + first).appeared.tolist() == [0, 0, 0]
    assert (history([0], [1.0]) + history([0], [1.0])).appeared is None


@pytest.mark.parametrize("appeared", [[3], [-1], [[0]], [0.5]])
def test_rounds_that_there_are_not_are_refused(appeared: list[float]) -> None:
    with pytest.raises((ValueError, TypeError), match="rounds before arms appeared"):
        history([0, 0], [1, 1], appeared=appeared)  # type: ignore[arg-type]


def test_more_arms_that_appeared_than_there_are_are_refused() -> None:
    X = np.eye(2, dtype=np.float32)
    model = Model.initial(Tree(np.array([-1, 0, 0], np.int32), np.array([1, 2], np.int32)), X, X)
    seen = Feedback(X, [[0], [1]], None, [[1.0], [0.0]], appeared=[0, 1, 2])
    with pytest.raises(ValueError, match="feedback says when 3 arms appeared; the model has 2"):
        Pooled().learn(model, seen)


def test_a_new_arm_has_the_value_of_one_before_any_refit() -> None:
    X = Y = np.eye(4, 6, dtype=np.float32)
    tree = Tree.from_labels_separated(X, Y, max_leaf=2)
    learned = Pooled(label_samples=LabelSamples.of(tree, X, Y, beam=1)).learn(
        Model.initial(tree, X, Y), Feedback(X[[0] * 8], [[0]] * 8, None, [[1.0]] * 8)
    )
    grown = grow(learned, 2, max_leaf=2)
    assert learned.pooled is not None
    assert grown.pooled is not None
    assert learned.pooled.new_arm_value > 0
    assert grown.pooled.trial_value[6:].tolist() == [learned.pooled.new_arm_value] * 2
    assert np.array_equal(grown.pooled.trial_value[:6], learned.pooled.trial_value)


def test_an_arm_is_fitted_again_when_it_has_a_tenth_more_samples() -> None:
    X = np.random.default_rng(0).normal(size=(13, 3)).astype(np.float32)
    model = Model.initial(Tree(np.array([-1, 0, 0], np.int32), np.array([1, 2], np.int32)), np.eye(2, 3), np.eye(2))

    def weights(n: int) -> list[float]:
        feedback = Feedback(X[:n], [[0]] * n, None, [[float(i % 2)] for i in range(n)])
        return [float(w) for w in Pooled().learn(model, feedback).rewards[3].toarray().ravel()]

    assert weights(10) != weights(11)
    assert weights(11) == weights(12) != weights(13)


def test_an_arm_that_was_found_and_lost_is_worth_a_trial_again() -> None:
    """All rounds that say where it earns were deleted; sums of them are left."""
    X, labelled = np.ones((5, 1), np.float32), np.array([True, True, False])
    found = Feedback(X, arms=[[0], [0], [1], [1], [2]], nodes=None, rewards=[[1], [1], [1], [0], [1]])
    totals = ArmTotals.of(found, arms=3)
    assert Trials.of_totals(totals, labelled).value[2] == 0
    assert Trials.of_totals(totals, labelled, lost=np.array([False, False, True])).value.tolist()[:2] == [0, 0]
    assert Trials.of_totals(totals, labelled, lost=np.array([False, False, True])).value[2] > 0
