"""The components of scores, in every kind of log: they come back as they were, and into the feedback of a refit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.logs import event, same

from treetop.log.base import Log
from treetop.log.records import Reward
from treetop.log.rounds import gather


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_components_take_four_bytes_each_and_come_back(log: Any, count: int) -> None:
    made = [event(i, k=1 + i, components=count) for i in range(4)]
    log.append(made)
    for e in made:
        stored = log.event(e.event_id)
        assert stored is not None
        assert same(stored.event, e)
        assert stored.event.components.shape == (len(e), count)
    with log.reading() as connection:
        sizes = [len(row[0]) for row in connection.rows("SELECT components FROM treetop_decisions ORDER BY position")]
    assert sizes == [4 * count * len(e) for e in made]


def test_feedback_has_the_components_that_were_logged(log: Log) -> None:
    none, old, wide, new = event("none", components=0), event("old"), event("wide", k=5), event("new", k=1)
    log.append([none, old, wide, new])
    for size in (1, 2, 4):
        found = gather(log.samples(log.seal("m"), size=size), 500).components
        assert found.shape == (4, 5, 2)
        assert np.isnan(found[0]).all()
        for row, e in zip(found[1:], (old, wide, new), strict=True):
            assert np.array_equal(row[: len(e)], e.components)
            assert np.isnan(row[len(e) :]).all()
    (chunk,) = log.samples(log.seal("m"))
    assert np.array_equal(chunk.feedback(500).components, found, equal_nan=True)
    rewarded = [Reward("old", int(old.arms[0]), 1.0, 1.0)]
    log.reward(rewarded)
    (again,) = log.samples(log.seal("later"), log.seal("m"))
    assert np.array_equal(again.components[0], old.components)


def test_a_model_with_other_components_leaves_those_of_older_ones_unknown(log: Log) -> None:
    made = [event(i, components=c) for i, c in enumerate([2, 3, 2, 3, 0])]
    log.append(made)
    for size in (1, 2, 5):
        found = gather(log.samples(log.seal("m"), size=size), 500).components
        assert found.shape == (5, 3, 3)
        assert np.isnan(found).all(axis=(1, 2)).tolist() == [True, False, True, False, True]
        assert np.array_equal(found[3], made[3].components)


def test_a_component_that_a_model_does_not_know_is_one_of_its_components(log: Log) -> None:
    made = event("a")
    made.components[:, 1] = np.nan
    log.append([event("b"), made])
    found = gather(log.samples(log.seal("m")), 500).components
    assert found.shape == (2, 3, 2)
    assert np.array_equal(found, [event("b").components, made.components], equal_nan=True)


def test_a_log_without_components_says_nothing_of_them(log: Log) -> None:
    log.append([event(i, components=0) for i in range(3)])
    assert gather(log.samples(log.seal("m")), 500).components is None
    assert gather([], 500).components is None


def test_components_that_do_not_fit_their_slots_are_refused(log: Log) -> None:
    made = event("a")
    for wrong, message in (
        (made.components[:2], "event 'a' has 3 arms and 2 components"),
        (made.components[:, 0], r"components of event 'a' have shape \(3,\); \(3, number of them\) is needed"),
    ):
        with pytest.raises(ValueError, match=message):
            log.append([replace(made, components=wrong)])
    with pytest.raises(TypeError, match="components of event 'a' hold float64; float32 is needed"):
        log.append([replace(made, components=made.components.astype(float))])
    assert log.counts().decisions == 0
