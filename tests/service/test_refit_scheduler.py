"""When refits happen: the schedule's arithmetic, pauses after failures, and a disk that takes no notes."""

from pathlib import Path
from typing import Any

import pytest
from helpers.problems import topics
from helpers.running import settings, small_bandit

import treetop.bandit.promotion
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.errors import ModelPinned
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


def test_the_schedule_counts_observed_rounds(bandit: Bandit) -> None:
    refits = RefitScheduler(bandit, None)
    for i in range(10):
        bandit.decide(X[i], event_id=f"silent{i}")
    assert refits._due() == ""
    observe(bandit, 3, "a")
    assert refits._due() == "schedule"
    bandit.refit()
    assert refits._due() == ""
    observe(bandit, 3, "b")
    assert refits._due() == "schedule"
    with bandit.folder.model_lock():
        assert refits._due() == ""  # one at a time


def test_a_pinned_model_is_not_replaced(bandit: Bandit) -> None:
    refits = RefitScheduler(bandit, None)
    observe(bandit, 3, "a")
    assert bandit.roll_back("000000", pin=True) == "000000"
    assert refits._due() == ""
    with pytest.raises(ModelPinned, match="model 000000 is pinned"):
        bandit.refit()
    bandit.add_arms(["new"])  # the pinned model learns nothing from that
    assert bandit.folder.state().pinned
    assert bandit.snapshot.name == "000001"
    bandit.unpin()
    assert refits._due() == "schedule"
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

    monkeypatch.setattr("treetop.bandit.bandit.validate", pinned_meanwhile)
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
    assert refits._due() == ""
    assert RefitScheduler(bandit, None)._due() == ""  # another worker, or the same after a restart, waits too

    def full(*given: Any, **facts: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("treetop.bandit.folder.append", full)
        refits._failed(FAILED, "disk full", 1.0)
        refits._failed(-9, "", 1.0)
    assert (refits.state().in_a_row, refits.state().error) == (3, "the process was ended by signal 9")
    bandit.refit()
    assert (refits.state().in_a_row, refits.state().failed, refits.state().done) == (0, 1, 1)
