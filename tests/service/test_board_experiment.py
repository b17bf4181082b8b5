"""The dashboard's experiment, reward by category and models kept aside, without a browser."""

import json
import re
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from helpers.pages import Page
from helpers.problems import topics
from helpers.running import settings

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import PolicyConfig, RewardConfig
from treetop.bandit.experiment_config import ExperimentConfig
from treetop.bandit.state import ModelOrigin
from treetop.log.greedy_slates import greedy_weights, spent_reward
from treetop.service.dashboard import views
from treetop.service.dashboard.board import Boards
from treetop.service.dashboard.messages import ServiceState
from treetop.service.dashboard.query import Query
from treetop.service.experiment_reader import ExperimentReader

X, Y = topics()
SERVICE = ServiceState("shop", "000000", 0, "", False, 0, 100, False, 0, "", False, defined=["draws"])
ALL = Query.parse({"range": "all"})


def test_variants_categories_and_what_the_gate_refused(tmp_path: Path) -> None:
    variants = {"now": {"share": 0.5}, "sure": {"share": 0.5, "explore": 0}}
    arms = Catalogue([f"a{i}" for i in range(Y.shape[1])], categories=[f"<shelf {i % 3}" for i in range(Y.shape[1])])
    config = settings(experiments={"draws": ExperimentConfig(variants)})
    with Bandit.create(tmp_path / "shop", arms, X[:300], Y[:300], config=config) as bandit:
        made = Boards(tmp_path / "shop", None)
        made.count()
        before = views.page(made.board(SERVICE, ALL, admin=True))
        Page(before)
        assert "None has run" in before
        assert "Start draws" in before
        assert "Start draws" not in views.page(made.board(SERVICE, ALL))  # only for who may
        bandit.start_experiment("draws")
        for i in range(240):
            if i == 120:
                time.sleep(1.1)  # stretches of time are of a second at first
            served = bandit.decide(X[i], f"visit-{i}", k=2, keys={"visitor": i})
            bandit.reward(f"visit-{i}", {served.arms[0]: float(served.variant == "sure" or i % 4 == 0)})
        bandit.folder.change(
            lambda state: replace(state, models={**state.models, "000001": ModelOrigin("000000", aside="it <loses>")})
        )
        bandit.folder.note(
            "refit kept aside", model="000001", base="000000", rounds=240, rewards=240, seconds=1.0, aside="it <loses>"
        )
        while not made.count():
            pass
        board = made.board(
            ServiceState(*(getattr(SERVICE, name) for name in SERVICE.__struct_fields__)), ALL, admin=True
        )
        text = views.page(board)
        Page(text)
        for part in ("experiment", "categories", "tiles", "models"):
            assert f"id='{part}'" in text
        assert "<loses>" not in text
        assert "Refit kept aside: model 000001 from 240 rounds. It &lt;loses&gt;." in text
        assert "kept aside</span>" in text
        assert "&lt;shelf 0" in text
        assert "Promote" in text
        assert re.search(r"data-variant='sure'.*?better", text, re.S)
        assert "variant sure" in text
        uplift = re.search(r"id='uplift-baseline'>([^<]*).*?<b>sure</b> over <b>now</b>", text, re.S)
        assert uplift is not None
        by_name = {variant.name: variant for variant in board.result.variants}  # type: ignore[union-attr]
        assert float(uplift.group(1)) == pytest.approx(by_name["sure"].difference.value, abs=0.001)  # type: ignore[union-attr]
        assert "no experiment has run" in before
        chart = json.loads(re.search(r"data-charts='([^']*)'", text).group(1).replace("&quot;", '"'))["experiment"]  # type: ignore[union-attr]
        assert chart["labels"] == ["now", "sure"]
        assert len(chart["lines"]) == 7
        assert chart["lines"][5][-1] <= chart["lines"][4][-1] <= chart["lines"][6][-1]
        assert sum(row.impressions for row in board.categories) == 480
        assert {row.name for row in board.categories} == {"<shelf 0", "<shelf 1", "<shelf 2"}
        assert all(view(board) for view in views.CHANGING)
        bandit.stop_experiment()
        assert "ended; it ran from" in views.page(made.board(SERVICE, ALL, admin=True))
        made.close()


def test_rewards_that_may_be_losses_are_shown_in_their_own_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots cost 1 or 3: uplift, reward by visit and by category are what the log has, and no share of a loss."""
    variants = {"now": {"share": 0.5}, "sure": {"share": 0.5, "explore": 0}}
    arms = Catalogue([f"a{i}" for i in range(Y.shape[1])], categories=[f"shelf {i % 3}" for i in range(Y.shape[1])])
    policy = PolicyConfig(k=2, explore=1, beam=4, strategy="epsilon", parameters={"epsilon": 0.5})
    rewards = RewardConfig(low=-5.0, high=20.0)
    config = settings(policy=policy, rewards=rewards, experiments={"draws": ExperimentConfig(variants)})
    total: dict[str | None, list[float]] = {"now": [], "sure": []}
    clock = count(time.time() - 10_000)  # a second at every look: errors are told from stretches of time
    monkeypatch.setattr(time, "time", lambda: next(clock))
    sums = np.zeros(4)  # visits, rewards, weights of greedy slates, weighted rewards
    with Bandit.create(tmp_path / "shop", arms, X[:300], Y[:300], config=config) as bandit:
        bandit.start_experiment("draws")
        for i in range(240):
            served = bandit.decide(X[i], f"visit-{i}", keys={"visitor": i})
            gains = {slot.arm: -3.0 if slot.explored else -1.0 for slot in served.slots}
            bandit.reward(f"visit-{i}", gains)
            brought, event = sum(gains.values()), bandit.event(f"visit-{i}").event
            weight = greedy_weights(event.explored[None], event.propensities[None], event.nodes[None])[0]
            total[served.variant].append(brought)
            sums += 1, brought, weight, weight * brought
        made = Boards(tmp_path / "shop", None)
        while not made.count():
            pass
        board = made.board(SERVICE, ALL)
        text = views.page(board)
        answer = ExperimentReader(bandit).answer()
        made.close()

    def tile(name: str) -> str:
        return re.search(rf"id='{name}'>([^< ]*)", text).group(1)  # type: ignore[union-attr]

    assert float(tile("reward-per-visit")) == pytest.approx(sums[1] / 240, abs=0.001)
    assert float(tile("uplift-greedy")) == pytest.approx(-spent_reward(*sums) / 240, abs=0.001)
    assert float(tile("uplift-greedy")) < 0
    assert re.search(r"id='uplift-greedy'.*?± 0\.0\d\d a visit", text)
    assert tile("spent-share") == "–"
    assert " of the reward" not in re.search(r"id='found-arms'.*?</div>", text, re.S).group()  # type: ignore[union-attr]
    means = {name: float(np.mean(each)) for name, each in total.items()}
    assert float(tile("uplift-baseline")) == pytest.approx(means["sure"] - means["now"], abs=0.001)
    assert {each.name: each.reward.value for each in answer.variants} == pytest.approx(means)
    assert sum(row.reward for row in board.categories) == pytest.approx(sums[1])
