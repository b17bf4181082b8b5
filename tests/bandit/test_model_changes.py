"""Refits, rollbacks and new arms make a model current: one at a time, while decisions go on."""

import os
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.running import settings, small_bandit
from helpers.visits import X, Y, play

import treetop
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.bandit.promotion import validate
from treetop.errors import FolderInUse, InvalidModel, ModelSuperseded, NoEligibleArm, NothingToLearn


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def test_a_rollback_to_before_new_arms_brings_them_back_with_the_next_refit(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 10)
        bandit.add_arms(["new"])
        shown = bandit.decide(X[0], event_id="n", eligible=["new"])
        bandit.reward("n", {"new": 1.0})
        assert shown.arms == ["new"]
        assert bandit.roll_back() == "000000"
        with pytest.raises(NoEligibleArm):
            bandit.decide(X[0], eligible=["new"])
        assert bandit.refit().model == "000002"
        assert bandit.decide(X[0], eligible=["new"]).arms == ["new"]
        assert bandit.roll_back("000001") == "000001"
        bandit.add_arms(["newer"])
        assert bandit.snapshot.model.n_arms == 62
        kinds = [entry["kind"] for entry in bandit.folder.history()]
        assert kinds == ["created", "arms added", "rollback", "refit", "rollback", "arms added"]


def test_one_model_is_made_at_a_time_and_none_undoes_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bandit.open(folder) as bandit, Bandit.open(folder) as other:
        with pytest.raises(NothingToLearn):
            bandit.refit()
        play(bandit, 5)
        bandit.refit()
        with bandit.folder.refit_lock():
            with pytest.raises(FolderInUse):
                other.refit()
            other.remove_arms(["a9"])  # what is out of stock does not wait for a refit
        assert "a9" not in other.decide(X[0], k=60).arms
        original = treetop.bandit.promotion.validate

        def rolled_back_meanwhile(*given: Any) -> None:
            original(*given)
            other.roll_back()

        monkeypatch.setattr("treetop.bandit.model_changes.validate", rolled_back_meanwhile)
        with pytest.raises(ModelSuperseded, match="became current while one was made"):
            bandit.refit()
        assert bandit.folder.models() == ["000000", "000001"]
        assert bandit.folder.state().model == "000000"


def test_decisions_go_on_while_models_change(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 30)
        stop, failures = threading.Event(), list[str]()

        def decide(number: int) -> None:
            i = 0
            while not stop.is_set():
                i += 1
                try:
                    assert len(bandit.decide(X[i % 600], event_id=f"{number}-{i}").arms) == 4
                except Exception as error:
                    failures.append(repr(error))

        threads = [threading.Thread(target=decide, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for i in range(3):
            bandit.refit()
            bandit.add_arms([f"x{i}"])
            bandit.remove_arms([f"x{i}"])
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []


def test_what_a_killed_refit_left_is_cleared_away(folder: Path) -> None:
    left = folder / "models" / ".000001-abc"
    left.mkdir()
    (left / "half").write_text("x")
    with (folder / "catalogue.jsonl").open("ab") as file:
        file.write(b'{"add": ["half a li')
    with (folder / "history.jsonl").open("ab") as file:
        file.write(b'{"half')
    with Bandit.open(folder) as bandit:
        play(bandit, 3)
        bandit.refit()
        assert not left.exists()
        bandit.add_arms(["whole"])
        assert bandit.decide(X[0], eligible=["whole"]).arms == ["whole"]
    with Bandit.open(folder) as bandit:
        assert len(bandit.snapshot.arms) == 61
        assert [entry["kind"] for entry in bandit.folder.history()] == ["created", "refit", "arms added"]


def test_a_model_that_cannot_decide_must_not_serve(learned: treetop.Model, problem: Any) -> None:
    feedback, policy = problem.feedback(50), treetop.Policy()
    validate(learned, problem.model, feedback, policy)
    large = treetop.Model.from_weights(
        learned.tree, learned.routing, learned.rewards * np.float32(1e37), learned.epoch, learned.n_seen
    )
    with pytest.raises((InvalidModel, ValueError), match=r"finite|nan"):
        validate(
            large,
            problem.model,
            treetop.Feedback(feedback.contexts.csr() * 1e5, feedback.arms, None, feedback.rewards),
            policy,
        )
    smaller = treetop.Model.from_weights(
        treetop.Tree(np.array([-1], np.int32), np.array([0], np.int32)), np.zeros((1, 41)), np.zeros((2, 41))
    )
    with pytest.raises(InvalidModel, match="1 arms and 40 features; 60 and 40 are needed"):
        validate(smaller, problem.model, feedback, policy)


def test_rewards_that_come_late_take_part_in_the_next_refit(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        shown = bandit.decide(X[0], event_id="x")
        assert bandit.refit().rewards == 0
        bandit.reward("x", {shown.arms[0]: 1.0})
        assert bandit.refit().rewards == 1
        assert bandit.log.counts().late == 1


def test_silence_counts_as_the_default_after_its_wait(tmp_path: Path) -> None:
    for wait, heard in ((0.0, 4), (3600.0, 1)):
        chosen = settings(rewards=config.RewardConfig(reward_wait=wait, default_reward=0.0))
        with Bandit.open(small_bandit(tmp_path / f"w{wait:g}", X, Y, config=chosen)) as bandit:
            shown = bandit.decide(X[0], event_id="x")
            bandit.reward("x", {shown.arms[0]: 1.0})
            assert bandit.refit().rewards == heard


def test_forgotten_rounds_are_a_warning_in_the_history(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 5)
        bandit.refit()
        bandit.log.forget(4e9)
        play(bandit, 2, "again")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert "the others are forgotten" in bandit.refit().warnings[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_says_so(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 3)
        (folder / "models").chmod(0o500)
        try:
            with pytest.raises(PermissionError):
                bandit.refit()
        finally:
            (folder / "models").chmod(0o700)
        assert bandit.refit().model == "000001"
