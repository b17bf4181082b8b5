"""What trying an arm unseen is worth: one without labels, one that has just appeared; and samples in steps."""

import numpy as np
import pytest

from treetop import Model, Pooled, Tree
from treetop.bandit.growth import grow
from treetop.learning.label_samples import LabelSamples
from treetop.learning.trial_value import DRAWS, FINDS, NEW, UNLABELLED, TrialValues
from treetop.records import Feedback

LABELLED = np.array([True, True, False, False, False])


def history(
    arms: list[int], rewards: list[float], nodes: list[int] | None = None, appeared: list[int] | None = None
) -> Feedback:
    n = len(arms)
    drawn = None if nodes is None else np.array(nodes)[:, None]
    return Feedback(
        np.ones((n, 1), np.float32), np.array(arms)[:, None], drawn, np.array(rewards)[:, None], appeared=appeared
    )


def values(feedback: Feedback) -> TrialValues:
    return TrialValues.of(feedback, LABELLED)


def test_without_rounds_nothing_is_worth_anything() -> None:
    assert values(Feedback.none(1, 1)).of_arm.tolist() == [0] * 5


def test_an_arm_without_labels_is_worth_a_part_of_what_others_earn() -> None:
    first = UNLABELLED * 10 / 2 * (0.8**2 + 0.2**2) / 2
    earning = [1.0] * 8 + [1.0] * 2
    assert values(history([0] * 8 + [1] * 2, earning)).of_arm.tolist() == pytest.approx([0, 0, first, first, first])


def test_draws_that_bring_nothing_lower_it_and_what_was_found_raises_it() -> None:
    arms, rewards = [0] * 20, [1.0] * 20
    first = UNLABELLED * 20 / 2 * 0.5
    steady = values(history(arms, rewards)).of_arm[3]
    assert steady == pytest.approx(first)
    missed = values(history([0] * 20 + [2] * 4, rewards + [0.0] * 4, [-1] * 20 + [7] * 4))
    rate = 20 / 24
    assert missed.of_arm[3] == pytest.approx(DRAWS * UNLABELLED * 12 * rate**2 / 2 / (DRAWS + 4))
    found = values(history([0] * 20 + [2] * 4, rewards + [1.0] * 4, [-1] * 20 + [7] + [-1] * 3))
    assert found.of_arm[3] == pytest.approx((DRAWS * UNLABELLED * 12 * rate**2 / 2 + 1.5) / (DRAWS + 1))
    assert found.of_arm[2] == 0  # it has been found


def test_a_new_arm_is_taken_to_be_like_the_old_ones() -> None:
    """By enumeration: each old arm in turn is what the new one is like, given that its draws brought nothing."""
    arms, rewards = [0] * 16 + [1] * 4, [1.0] * 20
    some = history([*arms, *[3] * 5], rewards + [0.0] * 5, [-1] * 20 + [7] * 5, appeared=[0, 0, 0, 20, 25])
    n, rates = 25, np.array([16, 4, 0]) / 25
    missed = (1 - rates) ** 5
    finds = 1 - missed.mean()
    scale = NEW * n / 2 * FINDS / (finds + FINDS)
    found = values(some)
    assert found.of_arm[3] == pytest.approx(scale * (missed * rates**2).sum() / missed.sum())
    assert found.of_arm[4] == pytest.approx(scale * (rates**2).mean()) == found.new_arm
    assert found.of_arm[3] < found.of_arm[4]


def test_the_few_best_arms_do_not_raise_the_value() -> None:
    """One of a hundred: of 200 arms with labels, the two that earn most are not expected again."""
    shown = np.repeat(np.arange(200), np.append(np.ones(198, np.int64), [50, 60]))
    feedback = Feedback(np.ones((len(shown), 1), np.float32), shown[:, None], None, np.ones((len(shown), 1)))
    labelled = np.arange(201) < 200
    found = TrialValues.of(feedback, labelled).of_arm[200]
    n = len(shown)
    assert found == pytest.approx(UNLABELLED * n / 2 * (1 / n) ** 2)


def test_new_arms_that_are_found_more_often_than_old_ones_would_be_are_worth_more() -> None:
    appeared = [0, 0, 0, 3, 3]
    bad = history([0] + [3] * 9, [1.0] + [0.0] * 9, [-1] + [7] * 9, appeared=appeared)
    good = history([0] + [3] * 9, [1.0] + [0.0] * 8 + [1.0], [-1] + [7] * 9, appeared=appeared)
    assert values(good).of_arm[4] > values(bad).of_arm[4]


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
