"""Scores are what slots bring: by decile, on contexts that no model has seen."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treetop
from treetop.arrays import Floats
from treetop.data.datasets import load
from treetop.learning.label_samples import LabelSamples
from treetop.learning.pooled import Pooled
from treetop.learning.refit import initial_fit
from treetop.learning.routes import RouteCache
from treetop.learning.schedule import Epochs
from treetop.model.model import Model
from treetop.policy.budgeted import Budgeted
from treetop.simulation.play import Learning, TreeBuilding, begin, run
from treetop.simulation.worlds import Labels

ROUNDS, AFTER = 3000, 2000
TOLERANCE = 0.06  # 2,000 rounds of 5 slots are 1,000 a decile: a standard error of at most 0.016
POLICY = treetop.Policy(strategy=Budgeted())


@pytest.fixture(scope="module")
def played() -> tuple[Any, Model]:
    """The stream, and the model after the first of its rounds."""
    stream, model = begin(load("debian"), 2000, ROUNDS + AFTER, 10, tree=TreeBuilding(separate_unlabelled=True))
    learner = Pooled(label_samples=LabelSamples.of(model.tree, stream.X_init, stream.Y_init), route_cache=RouteCache())
    beginning = replace(stream, rows=stream.rows[:ROUNDS])
    learning = Learning(learner, Epochs.geometric(512, 1.5))
    done = run(beginning, initial_fit(model, learner), POLICY, learning=learning)
    return stream, learner.learn(done.model, done.feedback)


def deciles(stream: Any, model: Model) -> Floats:
    """(10, 2): mean score and mean reward of the slots that show arms for themselves, by score."""
    rows = stream.rows[ROUNDS:]
    shown = POLICY.decide_batch(model, stream.dataset.X.csr()[rows], seed=1)
    rewards = Labels(stream.dataset.Y).rewards(rows, shown.arms, 0)
    single = shown.nodes < 0
    both = np.stack([shown.scores[single], rewards[single]], axis=1).astype(float)
    return np.array([part.mean(axis=0) for part in np.array_split(both[np.argsort(both[:, 0])], 10)])


def furthest(by_decile: Floats) -> float:
    return float(np.abs(by_decile[:, 0] - by_decile[:, 1]).max())


def test_scores_are_what_slots_bring(played: tuple[Any, Model]) -> None:
    found = deciles(*played)
    assert furthest(found) < TOLERANCE, found.round(3)
    assert found[-1, 1] - found[0, 1] > 0.5  # and they tell slots apart
    assert abs(found[:, 0].mean() - found[:, 1].mean()) < TOLERANCE / 3


@pytest.mark.parametrize("wrong", [(0.8, 0.8), (1.25, 1.25), (1.0, 4.0), (1.4, 0.5)])
def test_wrong_weights_are_noticed(played: tuple[Any, Model], wrong: tuple[float, float]) -> None:
    """The tolerance above is no wider than it takes to tell."""
    stream, model = played
    assert model.pooled is not None
    a, b = model.pooled.weights
    other = replace(model, pooled=replace(model.pooled, weights=(a * wrong[0], b * wrong[1])))
    assert furthest(deciles(stream, other)) > TOLERANCE
