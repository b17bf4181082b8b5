"""Counts of new arms are those of the log, whenever they are asked for; vectors of added arms outlive a rollback."""

from pathlib import Path

import numpy as np
import pytest

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, PolicyConfig
from treetop.bandit.new_arms import NewArms


def test_cohorts_count_impressions_and_say_how_long_they_took(tmp_path: Path) -> None:
    config = Config(policy=PolicyConfig(k=2, explore=1))
    with Bandit.create(tmp_path / "tea", ["a", "b"], config=config) as tea:
        tea.decide({}, "before")
        assert NewArms().cohorts(tea.snapshot.arms) == []
        tea.add_arms(["c", "d"])
        running = NewArms(trials=3)
        for i in range(4):
            tea.decide({}, f"visit-{i}", eligible=["c", "d"] if i < 2 else ["c"])
            running.update(tea.log, tea.snapshot.arms, tea.folder.history())
        tea.add_arms(["e"])
        tea.remove_arms(["d"])
        at_once = NewArms(trials=3)
        for counted in (running, at_once):
            counted.update(tea.log, tea.snapshot.arms, tea.folder.history())
            e, cd = counted.cohorts(tea.snapshot.arms)
            assert (e.model, e.arms, e.shown, e.median_seconds) == ("000002", 1, 0, None)
            assert (cd.model, cd.arms, cd.removed, cd.shown, cd.enough, cd.impressions) == ("000001", 2, 1, 2, 1, 6)
            third = tea.event("visit-2").event.time
            assert cd.time is not None
            assert cd.median_seconds == cd.last_seconds == pytest.approx(third - cd.time)


def test_vectors_of_added_arms_outlive_a_rollback(tmp_path: Path) -> None:
    vectors = np.eye(4, dtype=np.float32)
    catalogue = Catalogue(["a", "b", "c", "d"], vectors, categories=["x", "x", "y", "y"])
    with Bandit.create(tmp_path / "tea", catalogue) as tea:
        tea.add_arms(["e"], vectors=np.array([[0, 0, 0.6, 0.8]], np.float32), categories=["y"])
        tea.add_arms(["f"])
        added = tea.snapshot.model.item_vectors
        tea.roll_back("000000")
        tea.add_arms(["g"], vectors=np.array([[1, 0, 0, 0]], np.float32), categories=["x"])
        again = tea.snapshot.model.item_vectors
        assert added is not None
        assert again is not None
        assert np.array_equal(again[4], added[4])
        assert np.array_equal(again[6], vectors[0])
        tea.roll_back("000000")
        tea.decide(np.ones(4))
        tea.refit()
        refitted = tea.snapshot.model.item_vectors
        assert refitted is not None
        assert np.array_equal(refitted[[4, 6]], again[[4, 6]])
