"""When refits happen: the schedule's arithmetic, pauses after failures, and a disk that takes no notes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.problems import topics
from helpers.running import settings, small_bandit

import treetop.bandit.promotion
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.errors import ModelPinned
from treetop.learning.schedule import Epochs
from treetop.service.refit_scheduler import FAILED, RefitScheduler

X, Y = topics()


@pytest.fixture
def bandit(tmp_path: Path) -> Any:
    chosen = settings(refit=config.RefitConfig(first=3, retry=100.0, retry_most=250.0))
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y, config=chosen)) as opened:
        yield opened


def observe(bandit: Bandit, rounds: int, tag: str) -> None:
    for i in range(rounds):
        shown = bandit.decide(X[i], event_id=f"{tag}{i}")
        bandit.reward(f"{tag}{i}", {shown.arms[0]: 1.0})


def due(refits: RefitScheduler) -> str:
    return refits._due(refits.bandit.folder.state())


def test_the_schedule_counts_observed_rounds(bandit: Bandit) -> None:
    refits = RefitScheduler(bandit, None)
    for i in range(10):
        bandit.decide(X[i], event_id=f"silent{i}")
    assert due(refits) == ""
    observe(bandit, 3, "a")
    assert due(refits) == "schedule"
    bandit.refit()
    assert due(refits) == ""
    observe(bandit, 3, "b")
    assert due(refits) == "schedule"
    with bandit.folder.refit_lock():
        assert due(refits) == ""  # one at a time


def test_the_schedule_and_the_clock_count_from_a_rollback(bandit: Bandit) -> None:
    chosen = replace(bandit.config, refit=config.RefitConfig(first=3, factor=2.0, every=0.001))
    bandit.config = chosen
    by_clock = RefitScheduler(bandit, None)
    by_schedule = RefitScheduler(bandit, None)
    by_schedule._started = 1e18  # never by the clock
    observe(bandit, 5, "a")
    assert (due(by_schedule), due(by_clock)) == ("schedule", "schedule")
    bandit.roll_back("000000")
    assert (due(by_schedule), due(by_clock)) == ("", "")
    state = bandit.folder.state()
    assert (state.schedule.observed, state.refit_observed, state.refit_time) == (5, 0, 0.0)
    bandit.decide(X[0], event_id="silent")
    assert due(by_clock) == ""
    observe(bandit, 4, "b")
    assert (due(by_schedule), due(by_clock)) == ("", "clock")
    observe(bandit, 1, "c")
    assert due(by_schedule) == "schedule"


def test_forgotten_rounds_are_not_counted_and_the_schedule_goes_on(bandit: Bandit) -> None:
    """In a steady state as many rounds go as come; a refit is due when the share of new ones is large enough."""
    bandit.config = replace(bandit.config, refit=config.RefitConfig(first=10, factor=1.5))
    refits = RefitScheduler(bandit, None)
    observe(bandit, 10, "a")
    assert due(refits) == "schedule"
    bandit.refit()
    for lap in range(3):
        for step in range(5):
            assert due(refits) == ""
            observe(bandit, 1, f"{lap}-{step}-")
            bandit.log.forget(4e9, limit=1)
            assert bandit.log.counts().observed == 10
        assert due(refits) == "schedule"
        bandit.refit()
        assert bandit.folder.state().refit_observed == 10
    bandit.log.forget(4e9)
    assert (bandit.log.counts().observed, bandit.log.counts().observed_ever) == (0, 25)


def test_the_schedule_is_geometric() -> None:
    for first, factor in ((100, 1.2), (1024, 1.2), (1000, 2.0), (1, 1.01)):
        chosen = config.RefitConfig(first=first, factor=factor)
        at, found = 0, []
        for _ in range(12):
            at = chosen.next_at(at)
            found.append(at)
            assert chosen.due(found[-2] if len(found) > 1 else 0, at)
            assert not chosen.due(found[-2] if len(found) > 1 else 0, at - 1)
        assert found == Epochs.geometric(first, factor).until(found[-1] + 1)


def test_a_pinned_model_is_not_replaced(bandit: Bandit) -> None:
    refits = RefitScheduler(bandit, None)
    observe(bandit, 3, "a")
    assert bandit.roll_back("000000", pin=True) == "000000"
    assert due(refits) == ""
    with pytest.raises(ModelPinned, match="model 000000 is pinned"):
        bandit.refit()
    observe(bandit, 3, "b")
    assert due(refits) == ""
    bandit.add_arms(["new"])  # the pinned model learns nothing from that
    assert bandit.folder.state().pinned
    assert bandit.snapshot.name == "000001"
    bandit.unpin()
    assert due(refits) == "schedule"
    bandit.refit()
    bandit.roll_back("000001", pin=True)
    bandit.roll_back("000002")
    assert not bandit.folder.state().pinned  # the pin was for the other model
    kinds = [entry["kind"] for entry in bandit.folder.history()]
    assert kinds == ["created", "rollback", "arms added", "unpinned", "refit", "rollback", "rollback"]


def test_a_model_that_is_pinned_while_a_refit_runs_stays(bandit: Bandit, monkeypatch: pytest.MonkeyPatch) -> None:
    observe(bandit, 3, "a")
    original = treetop.bandit.promotion.validate

    def pinned_meanwhile(*given: Any) -> None:
        original(*given)
        bandit.roll_back("000000", pin=True)

    monkeypatch.setattr("treetop.bandit.model_changes.validate", pinned_meanwhile)
    with pytest.raises(ModelPinned):
        bandit.refit()
    assert bandit.folder.models() == ["000000"]


def test_pauses_grow_and_a_success_ends_them() -> None:
    chosen = config.RefitConfig(retry=10, retry_most=100)
    assert [chosen.pause(n) for n in (1, 2, 3, 4, 5, 99)] == [10, 20, 40, 80, 100, 100]


def test_failures_are_remembered_by_the_folder_and_without_it(bandit: Bandit, monkeypatch: pytest.MonkeyPatch) -> None:
    observe(bandit, 3, "a")
    refits = RefitScheduler(bandit, None)
    refits._failed(FAILED, "no luck", 1.0)
    assert (refits.state().in_a_row, refits.state().error) == (1, "no luck")
    assert due(refits) == ""
    again = RefitScheduler(bandit, None)  # another worker, or the same after a restart, waits too
    assert due(again) == ""

    def full(*given: Any, **facts: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("treetop.bandit.history_file.append", full)
        refits._failed(FAILED, "disk full", 1.0)
        refits._failed(-9, "", 1.0)
    assert (refits.state().in_a_row, refits.state().error) == (3, "the process was ended by signal 9")
    bandit.refit()
    assert (refits.state().in_a_row, refits.state().failed, refits.state().done) == (0, 1, 1)
