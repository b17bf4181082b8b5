"""The components of scores in a run: in its feedback as they were decided with, and kept when it is taken up again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.datasets import made_up

import treetop
from treetop.experiments.run_folder import Folder
from treetop.simulation.history import History
from treetop.simulation.play import Learning, Tracking, begin

POLICY = treetop.Policy(strategy=treetop.Budgeted())


class Noted:
    """Pooled, and what it was given."""

    cost = 1.0

    def __init__(self) -> None:
        self.seen: list[treetop.Feedback] = []

    def learn(self, model: Any, feedback: treetop.Feedback, progress: Any = None) -> Any:
        self.seen.append(feedback)
        return treetop.Pooled().learn(model, feedback)


def play(resume: History | None = None, **tracking: Any) -> tuple[treetop.Run, Noted]:
    stream, model = begin(made_up(), init=200, horizon=600, max_leaf=4, seed=0)
    learner = Noted()
    learning = Learning(learner, treetop.Epochs.doubling(100))
    return treetop.run(stream, model, POLICY, learning=learning, tracking=Tracking(resume=resume, **tracking)), learner


def test_feedback_has_what_the_deciding_models_gave() -> None:
    """By hand: the first model has no components, so nobody knows those of its rounds."""
    stream, model = begin(made_up(), init=200, horizon=600, max_leaf=4, seed=0)
    played, learner = play()
    assert [len(seen) for seen in learner.seen] == [100, 200, 400]
    assert learner.seen[0].components is None
    first = treetop.Pooled().learn(model, learner.seen[0])
    second = POLICY.decide_batch(first, stream.X.slice(100, 200), seed=0, first_row=100)
    assert second.components.shape == (100, 5, 2)
    for feedback in (*learner.seen[1:], played.feedback):
        assert feedback.components.shape == (len(feedback), 5, 2)
        assert np.isnan(feedback.components[:100]).all()
        assert not np.isnan(feedback.components[100:]).any()
        assert np.array_equal(feedback.components[100:200], second.components)


def test_the_papers_learner_gives_none() -> None:
    stream, model = begin(made_up(), init=200, horizon=250, max_leaf=4, seed=0)
    played = treetop.run(stream, model, treetop.Policy(), learning=Learning(epochs=treetop.Epochs.doubling(100)))
    assert (played.feedback.components, played.history.components) == (None, None)


def test_a_run_taken_up_again_has_the_same_components(tmp_path: Path) -> None:
    folder, points = Folder(tmp_path), list[int]()

    def save(history: History) -> None:
        points.append(history.done)
        folder.save(history.done, history, {"numpy": "1"})

    whole, _ = play(save=save)
    assert points == [100, 200, 400]
    assert whole.history.components is not None
    for done in points:
        kept = folder.saved(done, {"numpy": "1"})
        assert kept is not None
        assert (kept.components is None) == (done == 100)
        again, learner = play(kept)
        assert np.array_equal(again.feedback.components, whole.feedback.components, equal_nan=True)
        assert (learner.seen[0].components is None) == (done == 100)
        assert again.history.checksum() == whole.history.checksum()


def test_the_number_of_components_does_not_change_within_a_history() -> None:
    two = np.ones((1, 2, 2), np.float32)
    history = History.blank(horizon=4, k=2)
    assert history.with_components(0, two[:, :, :0]) is history
    known = history.with_components(1, two)
    assert known.with_components(3, two[:, :, :0]) is known
    with pytest.raises(ValueError, match="round 2 was decided with 1 components, those before with 2"):
        known.with_components(2, two[:, :, :1])
    head = known.head(2)
    assert head.components is not None
    assert head.components.shape == (2, 2, 2)
    longer = replace(head, done=2).extended(9, 2, [2])
    assert longer.components is not None
    assert np.isfinite(longer.components).all(axis=(1, 2)).tolist() == [False, True] + [False] * 7
