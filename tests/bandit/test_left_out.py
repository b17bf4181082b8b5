"""Visits that an evaluation cannot judge a candidate by: they are counted, and the others judged."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.judged import EPSILON, X, Y, judged_bandit, visit
from helpers.running import settings, small_bandit

import treetop
from treetop import Bandit, PolicyConfig, RewardConfig, evaluate
from treetop.bandit.evaluation import GONE, TAUGHT, UNFIT, UNLISTED, UNREWARDED
from treetop.bandit.logged_batches import FILTERS, batches


def test_what_the_log_cannot_show_is_counted(tmp_path: Path) -> None:
    """A greedy log says nothing of what a candidate draws beside the best."""
    with judged_bandit(tmp_path, strategy="greedy", k=1) as bandit:
        visit(bandit, 200)
        result = evaluate(bandit, ["strategy=epsilon,epsilon=0.2"]).candidates[0]
        assert 0.1 < result.unsupported < 0.2
        assert 1 - result.unsupported == pytest.approx(result.mean_weight)
        assert result.largest_weight < 1
        bandit.config = replace(bandit.config, refit=replace(bandit.config.refit, keep=2, keep_gb=0.0))
        for _ in range(3):
            bandit.refit()
        assert "000000" not in bandit.folder.models()
        visit(bandit, 20, 200)
        again = evaluate(bandit, ["strategy=epsilon,epsilon=0.2"]).candidates[0]
        assert again.left_out == {GONE: 200}
        assert 0.1 < again.unsupported < 0.2


def test_lists_of_arms_and_removed_arms(tmp_path: Path) -> None:
    """The chances of what served are computed again from the lists that each visit had: all of them are as recorded."""
    with judged_bandit(tmp_path) as bandit:
        visit(bandit, 60)
        visit(bandit, 60, 60, eligible=[f"a{i}" for i in range(20)])
        visit(bandit, 60, 120, exclude=["a1", "a2"])
        bandit.remove_arms(["a3", "a7"])
        for i in range(40):
            visit(bandit, 1, 180 + i, eligible=[f"a{j}" for j in range(i, i + 12)])
        visit(bandit, 60, 220, k=4, explore=3)
        found = evaluate(bandit, ["strategy=greedy", {}])
        assert (found.rounds, found.differing) == (280, 0)
        assert found.candidates[1].effective == pytest.approx(280)
        assert found.candidates[1].mean_weight == pytest.approx(1)


def test_more_lists_of_arms_than_are_kept(tmp_path: Path) -> None:
    """Lists come again after they have left the cache, one batch with another, alone in their batch too."""
    with judged_bandit(tmp_path) as bandit:
        lists = [[f"a{j % 60}" for j in (i, i + 7, i + 19, i + 20 + i // 60)] for i in range(FILTERS + 6)]
        for i in range(2 * len(lists)):
            visit(bandit, 1, i, eligible=lists[i % len(lists)])
        visit(bandit, 3, 2 * len(lists), k=1, eligible=lists[0])
        found = evaluate(bandit, ["strategy=greedy"])
        assert (found.rounds, found.differing) == (2 * len(lists) + 3, 0)


def test_lists_of_arms_that_are_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention deletes a list after its visits were read: these are left out, the others judged."""
    with judged_bandit(tmp_path) as bandit:
        visit(bandit, 20, eligible=["a1", "a2", "a3"])
        visit(bandit, 30, 20, eligible=["a4", "a5", "a6"])
        visit(bandit, 40, 50)
        deleted, find = bandit.event("visit-0").event.eligible, bandit.log.eligible_set
        monkeypatch.setattr(bandit.log, "eligible_set", lambda name: None if name == deleted else find(name))
        found = evaluate(bandit, ["strategy=greedy"])
        assert (found.rounds, found.differing) == (70, 0)
        assert (found.candidates[0].rounds, found.candidates[0].left_out) == (70, {UNLISTED: 20})


def test_added_arms_and_models_that_learned(tmp_path: Path) -> None:
    with judged_bandit(tmp_path) as bandit:
        visit(bandit, 100)
        bandit.refit()
        visit(bandit, 100, 100)
        bandit.add_arms(["a60"], vectors=X[:1])
        visit(bandit, 100, 200, eligible=["a60", "a1", "a2"])
        found = evaluate(bandit, [{}, "model=000001", "model=000000", "model=000002"])
        served, first, start, grown = found.candidates
        assert found.differing == 0
        assert (served.rounds, served.left_out) == (300, {})
        assert (first.rounds, first.left_out) == (200, {TAUGHT: 100})
        assert (start.rounds, start.left_out) == (300, {}), "the first model has learned from no visit"
        assert (grown.rounds, grown.left_out) == (100, {TAUGHT: 200})
        assert first.share < 1, "a model from before an arm was added cannot show it"


def test_models_that_are_not_kept(tmp_path: Path) -> None:
    with judged_bandit(tmp_path) as bandit:
        bandit.config = replace(bandit.config, refit=replace(bandit.config.refit, keep_gb=0.0))
        for i in range(7):
            visit(bandit, 20, 20 * i)
            bandit.refit()
        kept = bandit.folder.models()
        assert "000000" not in kept
        result, named = evaluate(bandit, ["beam=30", f"model={kept[0]}"]).candidates
        assert result.left_out[GONE] > 0
        assert result.rounds + result.left_out[GONE] == 140
        assert named.left_out == {TAUGHT: 20 * int(kept[0])}
        with pytest.raises(ValueError, match="there is no model '000000'; kept are"):
            evaluate(bandit, ["model=000000"])


def test_rewards_that_are_missing(tmp_path: Path) -> None:
    with judged_bandit(tmp_path) as bandit:
        visit(bandit, 30)
        visit(bandit, 10, 30, rewards=False)
        result = evaluate(bandit, ["strategy=greedy"]).candidates[0]
        assert (result.rounds, result.left_out) == (30, {UNREWARDED: 10})
        assert any("10 visits have no reward though reward_wait is over" in note for note in result.notes)
        (rounds,) = bandit.log.decided(bandit.log.summary().counts.position, 1000)
        whole = list(batches(rounds, X.shape[1], overdue=np.inf, default=0.0))
        assert sum(len(batch) for batch in whole) == 40
        assert not any(np.isnan(batch.rewards).any() for batch in whole)


@pytest.mark.parametrize(
    ("rewards", "left", "noted"),
    [
        (RewardConfig(), 10, True),
        (RewardConfig(reward_wait=3600), 10, False),
        (RewardConfig(default_reward=0.0), 0, False),
    ],
)
def test_silence_that_may_depend_on_what_was_shown_is_noted(
    tmp_path: Path, rewards: RewardConfig, left: int, noted: bool
) -> None:
    """Not while rewards may still come, and not if silence has a reward."""
    config = settings(policy=PolicyConfig(k=1, explore=1, strategy="epsilon", parameters=EPSILON), rewards=rewards)
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y, config=config)) as bandit:
        visit(bandit, 30)
        visit(bandit, 10, 30, rewards=False)
        result = evaluate(bandit, ["strategy=greedy"]).candidates[0]
        assert (result.rounds, result.left_out.get(UNREWARDED, 0)) == (40 - left, left)
        assert any("set default_reward" in note for note in result.notes) == noted


def test_nothing_to_judge_by(tmp_path: Path) -> None:
    with judged_bandit(tmp_path, "greedy") as bandit:
        nothing = evaluate(bandit, ["beam=30"])
        assert nothing.candidates[0].verdict == "cannot tell: there are no rounds to judge it by"
        assert json.loads(json.dumps(nothing.to_dict()))["candidates"][0]["per_visit"]["value"] is None
        visit(bandit, 50)
        result = evaluate(bandit, ["strategy=epsilon,epsilon=1"]).candidates[0]
        assert result.verdict == "cannot tell: the log lacks 100% of it"
        assert any("effective rounds" in note for note in result.notes)
        assert result.mean_weight < 0.1
        assert result.per_visit.high > 1.5, "what was never shown may bring anything"


def test_visits_that_a_candidate_does_not_fit_are_left_out(tmp_path: Path) -> None:
    """Visits of another strategy, and of fewer slots: both are counted, the others judged."""
    with judged_bandit(tmp_path) as bandit:
        visit(bandit, 40)
        visit(bandit, 10, 40, k=1)
        path = bandit.folder.path
    settings_file = path / "config.toml"
    text = settings_file.read_text()
    changed = text.replace('strategy = "epsilon"', 'strategy = "igw"').replace("epsilon = 0.5", "C = 1.0")
    assert changed != text
    settings_file.write_text(changed)
    with Bandit.open(path) as bandit:
        visit(bandit, 30, 50)
        two, parameter, both = evaluate(bandit, ["k=2", "C=2", "k=2,C=2"]).candidates
        assert (two.rounds, two.left_out) == (70, {UNFIT: 10})
        assert any("k is 2; the log has decisions of 1 slots" in note for note in two.notes)
        assert (parameter.rounds, parameter.left_out) == (30, {UNFIT: 50})
        assert any("epsilon has no 'C'" in note for note in parameter.notes)
        assert (both.rounds, both.left_out) == (30, {UNFIT: 50})
        wide, greedy = evaluate(bandit, ["k=9", "strategy=greedy"]).candidates
        assert (wide.rounds, wide.left_out) == (0, {UNFIT: 80})
        assert (greedy.rounds, greedy.left_out) == (80, {})
        with pytest.raises(ValueError, match="k is 9; the log has decisions of 2 slots"):
            evaluate(bandit, ["k=9"])
        for held_out in (0.3, 0.9):
            found = treetop.search_policies(bandit, held_out=held_out)
            assert found.searched.rounds + found.held_out.rounds == 80
