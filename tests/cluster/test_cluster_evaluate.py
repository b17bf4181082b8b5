"""A log judged on a cluster of two nodes: what one machine says of it, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.commands import call
from helpers.problems import topics
from helpers.ray_cluster import TwoNodes
from helpers.running import named, settings, small_bandit

from treetop.bandit import spread_tallies
from treetop.bandit.bandit import Bandit
from treetop.bandit.evaluation import evaluate
from treetop.effort import Effort
from treetop.errors import ShardError

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]
X, Y = topics()
POLICIES = ["strategy=greedy", "beam=2", "model=000000"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bandit with visits of two models."""
    folder = small_bandit(tmp_path_factory.mktemp("evaluate") / "shop", X, Y, config=settings())
    with Bandit.open(folder) as bandit:
        for i in range(400):
            served = bandit.decide(named(X, i % 300), f"visit-{i}")
            bandit.reward(f"visit-{i}", {arm: float(Y[i % 300, int(str(arm)[1:])] > 0) for arm in served.arms})
            if i == 250:
                bandit.refit()
    return folder


def test_the_command_says_what_one_machine_says(nodes: TwoNodes, shop: Path) -> None:
    words = ["evaluate", str(shop), *(word for policy in POLICIES for word in ("--policy", policy)), "--json"]
    here, there = (json.loads(call(*words, *more).stdout) for more in ([], ["--ray", nodes.address]))
    assert there == here
    assert there["rounds"] == 400
    assert not list(shop.glob(f"{spread_tallies.PREFIX}*"))


def test_a_node_lost_while_a_log_is_judged(nodes: TwoNodes, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one of many small waves."""
    monkeypatch.setattr(spread_tallies, "CHUNK", 20)
    monkeypatch.setattr(spread_tallies, "WAVE", 4)
    finish, waves = spread_tallies.SpreadTallies._finish_wave, []

    def losing(tallies: spread_tallies.SpreadTallies) -> None:
        waves.append(1)
        if len(waves) == 2:
            nodes.lose_node()
        finish(tallies)

    monkeypatch.setattr(spread_tallies.SpreadTallies, "_finish_wave", losing)
    here = evaluate(shop, POLICIES)
    assert evaluate(shop, POLICIES, effort=Effort(ray=nodes.address)) == here
    assert len(waves) > 2


def test_models_that_a_machine_does_not_see_are_a_clean_error(
    nodes: TwoNodes, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bandit.open(shop) as bandit:
        known = spread_tallies.Known({"000000": str(tmp_path / "nowhere")}, bandit.snapshot.arms, (0.0, 1.0))
        monkeypatch.setattr("treetop.bandit.evaluation.Known", lambda *_: known)
        with pytest.raises(ShardError, match="failed 3 times"):
            evaluate(bandit, ["beam=2"], effort=Effort(ray=nodes.address))
    assert not list(shop.glob(f"{spread_tallies.PREFIX}*"))
