"""A refit that is clearly worse than the model that serves is kept aside; any other is published with all rounds."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from treetop.bandit import gate
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, PolicyConfig, RewardConfig, TreeConfig
from treetop.bandit.gate import LEAST, judge_refit, newest_stretch
from treetop.bandit.refit_config import RefitConfig
from treetop.bandit.results import same_decision
from treetop.evaluation.verdict import CandidateResult
from treetop.model.model import Model

ARMS, FEATURES = 20, 8
RNG = np.random.default_rng(3)
CENTRE = RNG.normal(size=(ARMS, FEATURES))
RIGHT = RNG.integers(0, ARMS, 1400)
X, Y = CENTRE[RIGHT] + RNG.normal(0, 0.5, (1400, FEATURES)), np.eye(ARMS)[RIGHT]
POLICY = PolicyConfig(k=1, explore=1, beam=10, strategy="epsilon", parameters={"epsilon": 0.3})


def shop(folder: Path, judged: str = "not-worse", **refit: float) -> Bandit:
    config = Config(policy=POLICY, tree=TreeConfig(5), refit=RefitConfig(first=10**9, gate=judged, **refit))  # type: ignore[arg-type]
    return Bandit.create(folder, X=X[:400], Y=Y[:400], config=config)


def visit(bandit: Bandit, rows: range, broken: bool = False) -> None:
    """Visits with their clicks; a broken caller reports the opposite of what happened."""
    for row in rows:
        served = bandit.decide(X[row], f"visit-{row}")
        bandit.reward(f"visit-{row}", {arm: float((arm == RIGHT[row]) != broken) for arm in served.arms})


def test_a_clear_loser_is_kept_aside_and_the_next_refit_judged_anew(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as bandit:
        visit(bandit, range(400, 900), broken=True)
        visit(bandit, range(900, 1400))
        refit = bandit.refit()
        assert "on the newest 500 rounds" in refit.aside
        assert "against what was served" in refit.aside or "its squared error" in refit.aside
        state = bandit.folder.state()
        assert (bandit.snapshot.name, refit.model) == ("000000", "000001")
        assert state.models["000001"].aside == refit.aside
        assert state.schedule.observed == 1000  # it is not due again at once
        assert state.refit_observed == 0  # but the model that serves has learned nothing of them
        entry = bandit.folder.history()[-1]
        assert (entry["kind"], entry["model"], entry["aside"]) == ("refit kept aside", "000001", refit.aside)
        assert bandit.refit().model == "000002"
        bandit.roll_back("000001")  # whoever knows better may let it serve
        assert bandit.snapshot.name == "000001"
        assert bandit.folder.state().models["000001"].aside == ""
    with Bandit.open(tmp_path / "shop") as again:
        assert again.snapshot.name == "000001"
        assert same_decision(*again.replay("visit-1000"))


def test_a_damaged_model_is_never_replaced_by_one_kept_aside(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as bandit:
        visit(bandit, range(400, 900), broken=True)
        visit(bandit, range(900, 1400))
        assert bandit.refit().aside
    (tmp_path / "shop" / "models" / "000000" / "manifest.json").write_text("{")
    with pytest.raises(Exception, match="no model of"):
        Bandit.open(tmp_path / "shop")


def test_a_refit_that_is_not_worse_has_learned_all_rounds(tmp_path: Path) -> None:
    """The model is that of a bandit without a gate, to the last bit."""
    models = []
    for chosen in ("not-worse", ""):
        with shop(tmp_path / f"shop{chosen}", chosen) as bandit:
            visit(bandit, range(400, 800))
            refit = bandit.refit()
            assert (refit.aside, refit.rounds, bandit.snapshot.name) == ("", 400, "000001")
            models.append(bandit.snapshot.model)
    x = np.random.default_rng(0).normal(size=(50, FEATURES)).astype(np.float32)
    policy = POLICY.make_policy()
    one, other = (policy.decide_batch(model, x, seed=1) for model in models)
    assert np.array_equal(one.scores, other.scores)
    assert np.array_equal(one.arms, other.arms)


def test_too_few_rounds_judge_nothing(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as bandit:
        visit(bandit, range(400, 400 + LEAST), broken=True)
        assert bandit.refit().aside == ""
        mark = bandit.log.seal("now")
        stretch = newest_stretch(bandit.log, bandit.folder.state().refit_time, mark)
        assert stretch.after == stretch.until  # nothing came since
        visit(bandit, range(600, 620))
        mark = bandit.log.seal("then")
        stretch = newest_stretch(bandit.log, bandit.folder.state().refit_time, mark)
        assert bandit.log.count_between(stretch.after + 1, stretch.until) == 10
        now = bandit.snapshot
        models = now.model, now.model
        found = judge_refit(bandit.log, stretch, models, now.arms, bandit.logged_sets(), bandit.config, 0.0)
        assert (found.rounds, found.loses) == (10, "")


def test_two_models_that_are_one_are_never_told_apart(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as bandit:
        visit(bandit, range(400, 800))
        served = bandit.decide(X[0], "listed", eligible=[1, 2, 3])
        bandit.reward("listed", {served.arms[0]: 1.0})
        now, stretch = bandit.snapshot, newest_stretch(bandit.log, 0.0, bandit.log.seal("now"))
        models = now.model, now.model
        found = judge_refit(bandit.log, stretch, models, now.arms, bandit.logged_sets(), bandit.config, 0.0)
        assert found.rounds == 201
        assert found.loses == ""
        assert found.error == found.served_error
        assert found.reward is not None
        assert found.reward.mean_weight == pytest.approx(1)  # the chances are those that were logged


def test_a_judgement_has_the_units_of_the_rewards(tmp_path: Path) -> None:
    """Every visit costs 4, and a score of 1 foresees 20."""
    config, scores = Config(policy=POLICY, tree=TreeConfig(5), rewards=RewardConfig(low=-5, high=20)), []
    with Bandit.create(tmp_path / "shop", X=X[:400], Y=Y[:400], config=config) as bandit:
        for row in range(400, 800):
            served = bandit.decide(X[row], f"visit-{row}")
            scores.append(bandit.event(f"visit-{row}").event.scores[0])
            bandit.reward(f"visit-{row}", dict.fromkeys(served.arms, -4.0))
        now, stretch = bandit.snapshot, newest_stretch(bandit.log, 0.0, bandit.log.seal("now"))
        models = now.model, now.model
        found = judge_refit(bandit.log, stretch, models, now.arms, bandit.logged_sets(), bandit.config, 0.0)
    assert found.reward is not None
    assert found.reward.served.value == pytest.approx(-4)
    assert found.reward.per_visit.value == pytest.approx(-4)
    foreseen = np.clip(20 * np.array(scores[-found.rounds :]), -5, 20)
    assert found.error == pytest.approx(((foreseen + 4) ** 2).mean(), rel=0.01)


def test_control_variates_narrow_what_the_gate_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chances of all that served are known while the tree is the same. Rounds that others decided have none."""
    with shop(tmp_path / "shop", "") as bandit:
        visit(bandit, range(400, 900))
        bandit.refit()
        visit(bandit, range(900, 1400))
        now, stretch = bandit.snapshot, newest_stretch(bandit.log, time.time(), bandit.log.seal("now"))
        stretch = replace(stretch, after=0)
        first = Model.load(bandit.folder.model_path("000000"))

        def judged(served: Model) -> CandidateResult:
            models = served, now.model
            found = judge_refit(bandit.log, stretch, models, now.arms, bandit.logged_sets(), bandit.config, 0.0)
            assert found.reward is not None
            return found.reward

        with_them = judged(now.model)
        assert with_them.others["controlled-slots"] != with_them.others["ips-slots"]
        monkeypatch.setattr(gate, "tree_id", lambda tree: id(tree))
        beside = judged(first)
        assert beside.others["controlled-slots"] == beside.others["ips-slots"], "another tree: no control variates"
        assert with_them.others["ips-slots"] == beside.others["ips-slots"]
        assert with_them.per_visit.high - with_them.per_visit.low < beside.per_visit.high - beside.per_visit.low


def test_models_of_logged_decisions_stay_as_long_as_they_have_room(tmp_path: Path) -> None:
    """Refits and models made by added arms alike: their visits can be replayed. `keep` alone would delete them."""
    for days, gigabytes, kept in ((0.0, 10.0, 7), (7.0, 10.0, 7), (1e-9, 10.0, 3), (0.0, 1e-9, 3), (0.0, 0.0, 3)):
        folder = tmp_path / f"shop-{days}-{gigabytes}"
        with shop(folder, "", keep=2, keep_days=days, keep_gb=gigabytes) as bandit:
            for i in range(3):
                visit(bandit, range(400 + 3 * i, 403 + 3 * i))
                bandit.add_arms([f"new-{i}"])
                bandit.decide(X[i], f"grown-{i}")
                bandit.refit()
            assert len(bandit.folder.models()) == kept, (days, gigabytes, bandit.folder.models())
            if kept == 7:
                assert all(same_decision(*bandit.replay(f"grown-{i}")) for i in range(3))
                bandit.log.forget(time.time())
                state = bandit.folder.state()
                assert state.needed(bandit.log.models(), bandit.config.refit, time.time(), {}), "a day for what waits"
                assert not state.needed(bandit.log.models(), bandit.config.refit, time.time() + 86400, {})


def test_scores_foresee_rewards_where_slots_stand(tmp_path: Path) -> None:
    """The second slot is looked at 3 times in 10: a model that knows is not judged as if it foresaw clicks on both.
    Labels say that every arm is right, as clicks do where somebody looks."""
    policy, rng = replace(POLICY, k=2, explore=2), np.random.default_rng(0)
    refit = RefitConfig(first=10**9, gate="")
    config = Config(policy=policy, tree=TreeConfig(5), refit=refit, rewards=RewardConfig(positions=True))
    with Bandit.create(tmp_path / "shop", X=X[:400], Y=np.ones((400, ARMS)), config=config) as bandit:
        for row in range(400, 1000):
            arms = bandit.decide(X[row], f"visit-{row}").arms
            looked = rng.random(2) < [1.0, 0.3]
            bandit.reward(f"visit-{row}", {arm: 0.9 * float(seen) for arm, seen in zip(arms, looked, strict=True)})
        stretch = newest_stretch(bandit.log, 0.0, bandit.log.seal("now"))
        bandit.refit()
        now, model = bandit.snapshot, bandit.snapshot.model
        assert model.pooled is not None
        models = tuple(replace(model, pooled=replace(model.pooled, examined=f)) for f in ((), (1.0, 0.3)))
        found = judge_refit(bandit.log, stretch, models, now.arms, bandit.logged_sets(), bandit.config, 0.0)  # type: ignore[arg-type]
        assert found.error < 0.95 * found.served_error
