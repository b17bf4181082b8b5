"""The parts of treetop's learner switched off one by one: each does what its name says, and nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from treetop import LabelSamples, Model, load
from treetop.learning.component_weights import FIRST, UNLABELLED_FIRST
from treetop.learning.pooled import Mechanisms, Pooled
from treetop.records import Feedback
from treetop.simulation.play import TreeBuilding, begin

SMALL = "synthetic:arms=400,features=300,rows=1300,init=300,nonzeros=20,labels=3"


@pytest.fixture(scope="module")
def start() -> tuple[Any, Model, LabelSamples]:
    stream, model = begin(load(SMALL), 300, 1300, 10, tree=TreeBuilding(separate_unlabelled=True))
    return stream, model, LabelSamples.of(model.tree, stream.X_init, stream.Y_init)


def learned(start: tuple[Any, Model, LabelSamples], feedback: Feedback, **mechanisms: Any) -> Model:
    return Pooled(label_samples=start[2], mechanisms=Mechanisms(**mechanisms)).learn(start[1], feedback)


def shown(start: tuple[Any, Model, LabelSamples], arm: int, rewards: list[float]) -> Feedback:
    """The first contexts of the stream, one slot each, always the same arm."""
    contexts = start[0].X.head(len(rewards))
    return Feedback(contexts, np.full((len(rewards), 1), arm), None, np.array(rewards)[:, None])


def unlabelled(start: tuple[Any, Model, LabelSamples]) -> int:
    return int(np.flatnonzero(~start[2].labelled_arms(400))[0])


def test_each_arm_starts_from_zero(start: tuple[Any, Model, LabelSamples]) -> None:
    nothing = Feedback.none(300, 5)
    off, on = learned(start, nothing, pool=False).pooled, learned(start, nothing).pooled
    assert off is not None
    assert on is not None
    assert not off.means.any()
    assert on.means[0] > 0


def test_routing_that_ends_at_the_leaf_or_learns_from_labels_alone(start: tuple[Any, Model, LabelSamples]) -> None:
    arm = int(start[2].arm[start[2].reward > 0][0])
    feedback = shown(start, arm, [1.0] * 200)
    leaf, labels, both = (
        learned(start, feedback, **off) for off in ({"route_arms": False}, {"learn_routing": False}, {})
    )
    alone = learned(start, feedback.head(0))
    assert leaf.learned_routing is None
    np.testing.assert_array_equal(leaf.route_rows.value, start[1].route_rows.value)
    np.testing.assert_array_equal(labels.route_rows.value, alone.route_rows.value)
    assert both.learned_routing is not None
    assert both.learned_routing.rounds == 132  # 300 labelled rows: 360, 432, 518


def test_components_that_do_not_count_or_are_not_weighed(start: tuple[Any, Model, LabelSamples]) -> None:
    arm = int(start[2].arm[start[2].reward > 0][0])
    plain = shown(start, arm, [1.0, 0.0] * 50)
    feedback = replace(plain, components=np.tile(np.array([0.5, 0.3], np.float32), (100, 1, 1)))
    weights = [
        made.pooled.weights
        for off in ({}, {"weigh": False}, {"own": False}, {"own": False, "weigh": False})
        if (made := learned(start, feedback, **off)).pooled
    ]
    assert weights[1] == FIRST
    assert weights[0] not in (weights[1], (1.0, 0.0))
    assert weights[2] == (weights[0][0], 0.0)
    assert weights[3] == (1.0, 0.0)


def test_without_labels_components_keep_their_first_weights(start: tuple[Any, Model, LabelSamples]) -> None:
    """Weights learned from what was shown would take back the optimism by which untried arms are found."""
    plain = shown(start, 0, [1.0, 0.0] * 50)
    feedback = replace(plain, components=np.tile(np.array([0.5, 0.3], np.float32), (100, 1, 1)))
    cold = Pooled().learn(start[1], feedback).pooled
    assert cold is not None
    assert cold.weights == UNLABELLED_FIRST != FIRST


def test_rounds_count_for_the_pooled_means(start: tuple[Any, Model, LabelSamples]) -> None:
    arm = int(start[2].arm[start[2].reward > 0][0])
    made = {
        pool_rounds: [
            learned(start, shown(start, arm, [reward] * 50), pool_rounds=pool_rounds).pooled for reward in (0.0, 1.0)
        ]
        for pool_rounds in (False, True)
    }
    alone, both = ([pooled.means for pooled in made[key] if pooled] for key in (False, True))
    np.testing.assert_array_equal(alone[0], alone[1])
    assert (both[1] >= both[0]).all()
    assert both[1].sum() > alone[0].sum() > both[0].sum()


def test_found_arms_stay_separate(start: tuple[Any, Model, LabelSamples]) -> None:
    arm, labelled = unlabelled(start), start[2].labelled_arms(400)
    feedback = shown(start, arm, [1.0] * 3)
    stays, moves = learned(start, feedback, move_arms=False).tree, learned(start, feedback).tree
    assert not labelled[stays.arms_below(int(stays.leaf_of[arm]))].any()
    assert labelled[moves.arms_below(int(moves.leaf_of[arm]))].any()


def test_every_sample_counts(start: tuple[Any, Model, LabelSamples]) -> None:
    """One sample beyond a step changes nothing before the next one, unless every sample counts."""
    for growth, same in ((1.1, True), (1.0, False)):
        learner = Pooled(mechanisms=Mechanisms(growth=growth))
        a, b = (learner.learn(start[1], shown(start, 0, ([0.0, 1.0] * 6)[:n])).rewards for n in (11, 12))
        assert (abs(a - b).sum() == 0) == same


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"growth is 0.5; it must be finite and lie in \[1, 1000\]"):
        Mechanisms(growth=0.5)


def test_only_rounds_wait_for_the_next_step(start: tuple[Any, Model, LabelSamples]) -> None:
    """Label samples all count at once, however many an arm has; of its rounds those up to the last step."""
    _, model, labels = start
    learner = Pooled(label_samples=labels)
    arm = int(np.bincount(labels.arm).argmax())
    count = int((labels.arm == arm).sum())
    assert count > 12
    samples, _ = learner._samples(model, shown(start, arm, [1.0] * 12))  # 11 is a step, 12 is none
    begin, rows, _ = learner._problems(model, samples, samples.reward, np.zeros(0, np.int32))
    mine = rows[slice(*begin[model.tree.n_nodes + arm : model.tree.n_nodes + arm + 2])]
    assert (mine < len(labels.contexts)).sum() == count
    assert (mine >= len(labels.contexts)).sum() == 11
