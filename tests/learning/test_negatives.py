"""Arms without the label in labelled rows: which are kept as samples, and what they stand for."""

import numpy as np
import pytest

import treetop
from treetop.learning.label_samples import EASY, HARD, _chance


def test_negatives_near_the_label_are_kept_and_the_others_stand_for_many() -> None:
    """Per row: every label, the HARD best routes without one, and of the rest about EASY, which count for all of it."""
    counts = [HARD + 400, 50, HARD + 10]
    row = np.repeat([0, 1, 2], counts)
    route = -np.random.default_rng(0).exponential(1, len(row))
    right = np.random.default_rng(1).random(len(row)) < 0.05
    chance = _chance(row, right, route)
    assert (chance[right] == 1).all()
    for i in range(3):
        wrong = (row == i) & ~right
        ranked = chance[wrong][np.argsort(-route[wrong])]
        beyond = max(0, int(wrong.sum()) - HARD)
        assert (ranked[:HARD] == 1).all()
        assert (ranked[HARD:] == min(1.0, EASY / max(1, beyond))).all()
    assert chance[row == 0].sum() < 0.6 * counts[0]


def test_label_samples_weigh_as_many_arms_as_a_beam_finds() -> None:
    """With more negatives than are kept of a row, weights make up for those that are not."""
    rng = np.random.default_rng(0)
    arms, rows = 500, 40
    X = rng.random((rows, 6)).astype(np.float32)
    Y = np.zeros((rows, arms), np.float32)
    Y[np.arange(arms) % rows, np.arange(arms)] = 1
    tree = treetop.Tree.from_labels_separated(X, Y, max_leaf=50)
    samples = treetop.LabelSamples.of(tree, X, Y, beam=99)  # every arm of every row
    assert len(samples) < 0.5 * rows * arms
    assert samples.reward.sum() == arms
    assert samples.weight[samples.reward > 0].tolist() == [1.0] * arms
    assert samples.weight.sum() == pytest.approx(rows * arms, rel=0.05)
    routes = {i: samples.log_route[samples.row == i] for i in range(rows)}
    one = samples.weight[samples.row == 0]
    assert routes[0][one == 1].min() > np.median(routes[0][one > 1])
