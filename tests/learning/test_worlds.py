"""Worlds whose truth is known, where they lie beside the checkout: what the default learner collects there."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treetop
from treetop.arrays import as_rows
from treetop.learning.refit import initial_fit

WORLDS = Path(__file__).resolve().parents[3] / "shared" / "worlds"


def world(name: str) -> Any:
    path = WORLDS / f"{name}.py"
    if not path.is_file():
        pytest.skip(f"the world {name} is not beside this checkout (../shared/worlds/{name}.py)")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_night_in_the_context_is_no_change_of_the_world() -> None:
    """Popular arms pay less at night, in blocks of 2,000 rounds, and are still the best; nothing ever changes.

    A test on an arm's rewards alone took the night for the end of these arms: 0.70 a round of 1.75.
    """
    day_night = world("day_night").day_night
    X_init, Y_init, _ = day_night(2000, 1, 77)
    X, Y, means = day_night(12_000, 2000, 0)
    contexts, labels, first_contexts, first_labels = (as_rows(part) for part in (X, Y, X_init, Y_init))
    data = treetop.Dataset("day and night", contexts, labels, first_contexts, first_labels)
    stream = treetop.Stream(data, first_contexts, first_labels, np.arange(len(X)), contexts)
    tree = treetop.Tree.from_labels_separated(X_init, Y_init, max_leaf=10)
    learner = treetop.Pooled(label_samples=treetop.LabelSamples.of(tree, X_init, Y_init))
    first = initial_fit(treetop.Model.initial(tree, X_init, Y_init), learner)
    learning = treetop.Learning(learner, treetop.Epochs.geometric(512, 1.5))
    played = treetop.run(stream, first, treetop.Policy(strategy=treetop.Budgeted()), learning=learning)
    expected = np.take_along_axis(means, played.history.arms, axis=1).sum(axis=1).mean()
    assert expected > 1.68
