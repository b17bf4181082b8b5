"""coba runs treetop beside its own learners, on its rounds and on treetop's."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.peers import ROOT, needs_peer, peer_packages

import treetop
from treetop.bridges.coba import CobaEnvironment, CobaLearner, CobaLog

EYE = np.eye(4)
TEAS = ["mint", "rose", "oolong", "sencha"]


def experiment(what: str, folder: Path) -> dict[str, tuple[int, float]]:
    """How many rounds each learner played, and its mean reward over the last 500."""
    needs_peer("coba")
    command = [
        sys.executable,
        str(ROOT / "tests" / "helpers" / "peer_coba.py"),
        what,
        str(folder),
        str(peer_packages()),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, tuple[int, float]] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("what", ["labelled", "synthetic"])
def test_an_experiment_beside_cobas_own_learners(what: str, tmp_path: Path) -> None:
    found = experiment(what, tmp_path)
    assert {rounds for rounds, _ in found.values()} == {found["treetop"][0]}
    assert found["treetop"][0] >= 1000
    others = [reward for name, (_, reward) in found.items() if name != "treetop"]
    assert len(others) == 2
    assert found["treetop"][1] > 1.3 * max(others)


def test_coba_learns_from_a_log(tmp_path: Path) -> None:
    with treetop.Bandit.create(tmp_path / "tea", TEAS, EYE, EYE) as tea:
        for visit in range(200):
            served = tea.decide(EYE[visit % 4], f"visit-{visit}", k=2, explore=2)
            tea.reward(f"visit-{visit}", {arm: float(arm == TEAS[visit % 4]) for arm in served.arms})
    found = experiment("log", tmp_path / "tea")
    assert found["treetop"][0] == 400
    assert np.isfinite(found["treetop"][1])


def play(learner: CobaLearner, rounds: int) -> list[tuple[Any, float]]:
    found = []
    for i in range(rounds):
        action, p = learner.predict(EYE[i % 4].tolist(), TEAS)
        learner.learn(EYE[i % 4].tolist(), action, float(action == TEAS[i % 4]), p)
        found.append((action, p))
    return found


def test_it_learns_scores_and_repeats_itself() -> None:
    learner = CobaLearner(seed=3)
    twin = copy.deepcopy(learner)
    played = play(learner, 400)
    assert play(twin, 400) == played
    assert np.mean([a == TEAS[i % 4] for i, (a, _) in enumerate(played)][-100:]) > 0.8
    chances = [learner.score(EYE[1].tolist(), TEAS, tea) for tea in TEAS]
    assert sum(chances) == pytest.approx(1)
    assert chances[1] == max(chances)
    again = pickle.loads(pickle.dumps(learner))
    assert again.predict(EYE[1].tolist(), TEAS) == learner.predict(EYE[1].tolist(), TEAS)


def test_actions_may_change_from_round_to_round_and_be_features() -> None:
    learner, rng = CobaLearner(first=4), np.random.default_rng(0)
    actions: list[Any] = [[0.0, 1.0], [1.0, 0.0], {"a": 1, "b": [2, 3]}, "text", 7]
    for i in range(60):
        some = [actions[j] for j in rng.permutation(5)[: 1 + i % 4]]
        action, p = learner.predict({"name": "x", "n": i % 3, "v": [1, 2]}, some)
        assert any(action is one for one in some)
        assert p == learner.score({"name": "x", "n": i % 3, "v": [1, 2]}, some, action)
        learner.learn({"name": "x", "n": i % 3, "v": [1, 2]}, action, 0.5, p)
    assert len(learner.arms) == 5
    assert learner.predict(None, ["text"]) == ("text", 1.0)


def test_rewards_in_another_range() -> None:
    learner = CobaLearner(reward_range=(-10, 10))
    action, p = learner.predict(1.0, TEAS)
    learner.learn(1.0, action, -10, p)
    with pytest.raises(ValueError, match=r"reward 11 is outside \[-10, 10\]"):
        learner.learn(1.0, action, 11, p)
    with pytest.raises(ValueError, match="the second must be larger"):
        CobaLearner(reward_range=(1, 0))


def test_an_environment_can_be_read_again() -> None:
    data = treetop.load("debian")
    environment = CobaEnvironment(data, arms=5, rounds=20, seed=2)
    rounds = list(environment.read())
    assert len(rounds) == 20
    assert rounds[0]["context"] == next(environment.read())["context"]
    for one in rounds:
        assert len(one["actions"]) == 5
        assert max(one["rewards"](action) for action in one["actions"]) == 1
    assert pickle.loads(pickle.dumps(rounds[0]["rewards"]))(rounds[0]["actions"][0]) in (0.0, 1.0)


def test_a_log_has_the_actions_that_a_slot_had(tmp_path: Path) -> None:
    with treetop.Bandit.create(tmp_path / "tea", TEAS, EYE, EYE) as tea:
        served = tea.decide(EYE[0], "visit-1", k=2)
        tea.reward("visit-1", {served.arms[1]: 0.25})
        few = tea.decide(EYE[0], "visit-2", k=1, eligible=["rose", "sencha"])
        tea.remove_arms(["oolong"])
        less = tea.decide(EYE[0], "visit-3", k=1, exclude=["mint"])
        for name, shown in (("visit-2", few), ("visit-3", less)):
            tea.reward(name, {shown.arms[0]: 1.0})
        one, two, three = CobaLog(tea).read()
        assert set(one["actions"]) == set(TEAS) - {served.arms[0]}
        assert (one["action"], one["reward"], one["probability"]) == (served.arms[1], 0.25, served.slots[1].propensity)
        assert two["actions"] == ["rose", "sencha"]
        assert three["actions"] == ["rose", "sencha"]
