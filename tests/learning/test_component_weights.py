"""The weights of the components: by what each said of rewards that no model had seen, recent rounds first."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from treetop.arrays import Floats
from treetop.learning.component_weights import FIRST, FORCE, HALF_LIFE, component_weights
from treetop.learning.pooled import Pooled
from treetop.model.model import Model
from treetop.records import Feedback
from treetop.tree.tree import Tree


def shown(said: Floats, rewards: Floats, **changes: Any) -> Feedback:
    """A slot a round, with components."""
    n = len(said)
    feedback = Feedback(np.ones((n, 1)), np.zeros((n, 1), int), None, rewards.reshape(n, 1), None, None, said[:, None])
    return replace(feedback, **changes)


def drawn(n: int = 20_000, seed: int = 0) -> tuple[Floats, Floats]:
    """What two components said, each of which is half of what a reward comes to, and the rewards."""
    rng = np.random.default_rng(seed)
    said = rng.random((n, 2)) / 2
    return said, (rng.random(n) < said.sum(axis=1)).astype(float)


def twin(feedback: Feedback) -> Floats:
    """The weighted ridge regression as more rows: FORCE slots like these, in which the first weights were right."""
    assert feedback.components is not None
    t = np.arange(len(feedback))
    root = np.sqrt(0.5 ** ((len(feedback) - 1 - t) / HALF_LIFE))[:, None]
    said, reward = feedback.components[:, 0].astype(float), feedback.rewards.astype(float)
    size = np.sqrt((root**2 * said**2).sum(axis=0) / (root**2).sum() * FORCE)
    rows, wanted = np.vstack([root * said, np.diag(size)]), np.append((root * reward).ravel(), size * FIRST)
    return np.asarray(np.linalg.lstsq(rows, wanted)[0])


def test_they_are_ridge_regression() -> None:
    feedback = shown(*drawn(3000))
    np.testing.assert_allclose(component_weights(feedback), twin(feedback), rtol=1e-6)


def test_what_both_say_right_counts_in_full() -> None:
    assert component_weights(shown(*drawn()), (1.0, 0.75)) == pytest.approx((1.0, 1.0), abs=0.08)


def test_a_component_that_says_nothing_gets_little_weight() -> None:
    said, rewards = drawn()
    said[:, 1] = np.random.default_rng(1).normal(0, 0.3, len(said))  # of either sign, whatever the reward
    right, useless = component_weights(shown(said, rewards))
    assert abs(useless) < 0.05
    assert right > 1.0  # which bears alone what two were to explain


def test_a_component_that_overstates_is_taken_down() -> None:
    said, rewards = drawn()
    said[:, 1] *= 4
    assert 0.2 < component_weights(shown(said, rewards), (1.0, 0.75))[1] < 0.4


def test_few_rounds_change_little() -> None:
    said, rewards = drawn(40)
    assert component_weights(shown(said, 1 - rewards)) == pytest.approx(FIRST, abs=0.1)


@pytest.mark.parametrize("components", [None, np.full((50, 1, 2), np.nan), np.ones((50, 1, 3)), np.zeros((50, 1, 2))])
def test_without_known_components_the_first_weights_stay(components: Any) -> None:
    assert component_weights(shown(*drawn(50), components=components)) == pytest.approx(FIRST, abs=1e-9)
    assert component_weights(Feedback.none(1, 5)) == FIRST


def test_what_is_not_known_counts_for_nothing() -> None:
    """Rounds without components, rewards that nobody observed, and arms that were drawn through nodes."""
    said, rewards = drawn(2000)
    first = 1.0, 0.75
    alone = component_weights(shown(said, rewards), first)
    half = np.arange(2000) % 2 == 0
    wrong = np.where(half, 0, rewards)
    assert alone[0] - component_weights(shown(said, wrong), first)[0] > 0.2  # if they counted
    unknown = np.where(half[:, None], np.nan, said)[:, None]
    nodes = np.where(half, 3, -1)[:, None]
    unseen = np.where(half, np.nan, rewards)[:, None]
    by_components, by_nodes, by_rewards = (
        component_weights(replace(shown(said, wrong), **change), first)
        for change in ({"components": unknown}, {"nodes": nodes}, {"rewards": unseen.astype(np.float32)})
    )
    assert by_components == by_nodes == by_rewards
    assert by_nodes == pytest.approx(alone, abs=0.15)


def test_recent_rounds_count_more() -> None:
    said, rewards = drawn(4 * HALF_LIFE)
    rewards[: 2 * HALF_LIFE] = 0.0  # none brought anything until half-way
    found = component_weights(shown(said, rewards), (1.0, 0.75))
    late_first = component_weights(shown(said[::-1], rewards[::-1]), (1.0, 0.75))
    assert min(found) > 0.75 > max(late_first)
    np.testing.assert_allclose(component_weights(shown(said, rewards)), twin(shown(said, rewards)), rtol=1e-6)


def test_tiny_components_give_weights_that_a_model_can_hold() -> None:
    """A regressor that says next to nothing and happens to be right is not blown up."""
    said, rewards = drawn(8000)
    said[:, 1] = 1e-8 * rewards
    model = Model.initial(Tree(np.array([-1, 0, 0], np.int32), np.array([1, 2], np.int32)), np.eye(2, 1), np.eye(2))
    learned = Pooled().learn(model, shown(said, rewards))
    assert learned.pooled is not None
    assert max(map(abs, learned.pooled.weights)) < 100
