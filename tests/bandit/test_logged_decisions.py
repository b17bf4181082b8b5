"""Decisions of other processes: their models are never read beside an older catalogue than theirs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetop.bandit import arm_changes, folder, model_changes
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, PolicyConfig, RefitConfig
from treetop.bandit.evaluation import evaluate
from treetop.bandit.results import same_decision
from treetop.bridges.dsjson_export import export_dsjson
from treetop.bridges.frames import log_frame
from treetop.bridges.obp import log_to_bandit_feedback
from treetop.errors import ModelSuperseded
from treetop.model.model import Model

TEAS = ["mint", "rose", "oolong", "sencha"]
CONFIG = Config(
    policy=PolicyConfig(k=2, explore=2, strategy="epsilon", parameters={"epsilon": 0.5}),
    refit=RefitConfig(keep=2, keep_gb=0),
)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Bandit, Bandit]]:
    """A bandit, and the same as another process has it open."""
    made = Bandit.create(tmp_path / "tea", TEAS, np.eye(4), np.eye(4), config=CONFIG)
    with made as here, Bandit.open(tmp_path / "tea") as there:
        yield here, there


def test_an_event_of_a_newer_model_is_read_with_its_arms(both: tuple[Bandit, Bandit]) -> None:
    here, there = both
    there.add_arms(["jam", "scone"])
    served = there.decide([1, 0, 0, 0], "visit-1", eligible=["mint", "rose"])  # arms that both know
    assert len(here.snapshot.arms) == 4
    event, again = here.replay("visit-1")
    assert same_decision(event, again)
    assert here.served(event) == served


def test_an_event_after_a_removal_is_replayed_without_the_arm(both: tuple[Bandit, Bandit]) -> None:
    here, there = both
    there.remove_arms(["mint"])
    for visit in range(20):
        there.decide([1, 0, 0, 0], f"visit-{visit}")
        assert same_decision(*here.replay(f"visit-{visit}"))


def test_a_request_sent_again_is_answered_with_arms_that_another_process_added(both: tuple[Bandit, Bandit]) -> None:
    here, there = both
    there.add_arms(["jam"])
    there.remove_arms(TEAS)
    served = there.decide([1, 0, 0, 0], "visit-1")
    assert served.arms == ["jam"]
    assert here.decide([1, 0, 0, 0], "visit-1") == served


def test_whoever_reads_the_log_knows_its_arms(both: tuple[Bandit, Bandit], tmp_path: Path) -> None:
    here, there = both

    def visit(name: str, new: str) -> None:
        there.add_arms([new])
        there.reward(name, {there.decide([1, 0, 0, 0], name, eligible=[new]).arms[0]: 1.0})

    visit("visit-1", "jam")
    assert log_frame(here)["arm"].tolist() == ["jam"]
    visit("visit-2", "scone")
    assert log_to_bandit_feedback(here)["n_actions"] == 6
    visit("visit-3", "honey")
    assert export_dsjson(here, tmp_path / "log.dsjson") == 3


def test_evaluation_knows_what_was_removed_when_the_log_was_written(both: tuple[Bandit, Bandit]) -> None:
    here, there = both
    there.remove_arms(["mint"])
    for visit in range(20):
        there.reward(f"visit-{visit}", {there.decide([1, 0, 0, 0], f"visit-{visit}").arms[0]: 1.0})
    assert evaluate(here, ["epsilon=0.1"]).differing == 0


def after(module: Any, name: str, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets another process act once, right before a function is called."""
    called, todo = getattr(module, name), [act]

    def first(*given: Any, **more: Any) -> Any:
        if todo:
            todo.pop()()
        return called(*given, **more)

    monkeypatch.setattr(module, name, first)


def test_arms_that_join_as_a_refit_begins_are_in_its_model(
    both: tuple[Bandit, Bandit], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = both
    here.reward("visit-1", {here.decide([1, 0, 0, 0], "visit-1").arms[0]: 1.0})
    after(model_changes, "claim_log", lambda: there.add_arms(["jam"]), monkeypatch)
    here.refit()
    assert here.snapshot.model.n_arms == 5
    assert here.decide([1, 0, 0, 0], eligible=["jam"]).arms == ["jam"]


def test_a_rollback_as_arms_are_added_is_not_undone(
    both: tuple[Bandit, Bandit], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = both
    here.reward("visit-1", {here.decide([1, 0, 0, 0], "visit-1").arms[0]: 1.0})
    here.refit()
    after(arm_changes, "claim_log_if_there", lambda: there.roll_back("000000"), monkeypatch)
    with pytest.raises(ModelSuperseded, match="model 000000 became current while one was made from 000001"):
        here.add_arms(["jam"])
    assert here.folder.state().model == "000000"
    assert len(here.folder.arm_index(here.folder.state())) == 4


def test_a_model_that_is_deleted_while_it_is_read_is_passed_over(
    both: tuple[Bandit, Bandit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each fitted model only the newest with more arms is kept, and the one that it was made from."""
    here, there = both
    there.add_arms(["jam"])

    def more() -> None:
        there.add_arms(["scone"])
        there.add_arms(["honey"])
        assert not there.folder.model_path("000001").exists()

    after(folder, "_try_load", more, monkeypatch)
    assert here.refresh()
    assert (here.snapshot.name, here.snapshot.trouble, len(here.snapshot.arms)) == ("000003", "", 7)


def test_a_model_with_more_arms_than_the_catalogue_is_refused(both: tuple[Bandit, Bandit]) -> None:
    here, there = both
    there.add_arms(["jam"])
    model = Model.load(there.folder.model_path("000001"))
    with pytest.raises(ValueError, match="model 000001 has 5 arms, the catalogue 4"):
        here._snapshot("000001", model, here.snapshot.arms, here.snapshot.attributes, "")
