"""Rewards that begin elsewhere than at 0: results are in the owner's units, and another number of slots is no loss."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import call
from helpers.problems import topics
from helpers.running import settings, small_bandit

from treetop import Bandit, CandidatePolicy, PolicyConfig, RewardConfig, evaluate, search_policies

X, Y = topics(n=2000)
N = 2000
FEW = ["a1", "a2"]  # all that every third visit may show
RIGHT = Y.toarray() > 0


def make(folder: Path, low: float, high: float, k: int = 3) -> Bandit:
    policy = PolicyConfig(k=k, explore=k, beam=4, strategy="epsilon", parameters={"epsilon": 0.5})
    config = settings(policy=policy, rewards=RewardConfig(low=low, high=high))
    return Bandit.open(small_bandit(folder / "shop", X, Y, config=config))


def by_place(bandit: Bandit, gains: tuple[float, ...]) -> None:
    """Visits whose slots bring the same, whatever they show."""
    for i in range(N):
        served = bandit.decide(X[300 + i % 1700], f"visit-{i}")
        bandit.reward(f"visit-{i}", dict(zip(served.arms, gains, strict=True)))


@pytest.mark.parametrize(("said", "way"), [(None, "slate"), ("snips-slate", "slate"), ("snips-slots", "slots")])
def test_dropping_slots_that_lose_is_better(tmp_path: Path, said: str | None, way: str) -> None:
    """The first slot brings 3, the others cost 1 each: 1 a visit as served, 3 with one slot, 2 with two."""
    with make(tmp_path, -5.0, 40.0) as bandit:
        by_place(bandit, (3.0, -1.0, -1.0))
        found = evaluate(bandit, ["k=1", "k=2"], estimator=said)
    assert found.served.value == pytest.approx(1)
    assert found.served.low <= 1 <= found.served.high
    for result, slots in zip(found.candidates, (1, 2), strict=True):
        truth = 4 - slots
        assert (result.verdict, result.way) == ("better", way)
        assert result.per_visit.value == pytest.approx(truth)
        assert result.per_visit.low <= truth <= result.per_visit.high
        assert result.per_slot.value == pytest.approx(truth / slots)
        assert result.per_slot.low == pytest.approx(result.per_visit.low / slots)
        assert result.served.value == pytest.approx(found.served.value)
        assert result.difference.value == pytest.approx(truth - 1)
        assert result.difference.low <= truth - 1 <= result.difference.high
        for name in ("ips-slate", "ips-slots", "snips-slate", "snips-slots"):
            assert result.others[name][0] == pytest.approx(truth), name


def test_dropping_slots_that_earn_is_worse_though_rewards_begin_above_0(tmp_path: Path) -> None:
    """Every slot brings 10 or more: with one slot less, that is what is missing."""
    with make(tmp_path, 10.0, 20.0, k=2) as bandit:
        by_place(bandit, (15.0, 12.0))
        result = evaluate(bandit, ["k=1"]).candidates[0]
    assert result.verdict == "worse"
    assert result.difference.value == pytest.approx(-12)
    assert result.difference.low <= -12 <= result.difference.high
    assert result.served.value == pytest.approx(27)


def told(visit: int, place: int) -> bool:
    """Whether a slot has a reward; one that has none counts as 0."""
    return place != 1 or visit % 7 != 0


def gain(visit: int, arm: int) -> float:
    """What an arm brings on average."""
    return 24.0 if RIGHT[300 + visit % 1700, arm] else -2.0 - arm % 3


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Bandit:
    """Gains and losses by arm; some slots have no reward, and some visits fewer arms to show than slots."""
    bandit, rng = make(tmp_path_factory.mktemp("units"), -8.0, 40.0), np.random.default_rng(0)
    for i in range(N):
        served = bandit.decide(X[300 + i % 1700], f"visit-{i}", eligible=FEW if i % 3 == 0 else None)
        shown = [arm for place, arm in enumerate(served.arms) if told(i, place)]
        bandit.reward(f"visit-{i}", {arm: gain(i, int(str(arm)[1:])) + rng.uniform(-4, 4) for arm in shown})
    return bandit


def brute_force(bandit: Bandit, name: str) -> float:
    """What a candidate brings a visit, by what slots bring and 20 draws of every visit."""
    policy = CandidatePolicy.of(name).applied(bandit.config.policy).make_policy()
    few, total = np.arange(N) % 3 == 0, 0.0
    for visits, eligible in ((np.flatnonzero(few), [int(arm[1:]) for arm in FEW]), (np.flatnonzero(~few), None)):
        for seed in range(20):
            shown = policy.decide_batch(bandit.snapshot.model, X[300 + visits % 1700], seed=seed, eligible=eligible)
            for visit, arms in zip(visits.tolist(), shown.arms.tolist(), strict=True):
                total += sum(gain(visit, arm) for i, arm in enumerate(arms) if arm >= 0 and told(visit, i))
    return total / 20 / N


@pytest.mark.parametrize("said", [None, "snips-slate", "snips-slots"])
def test_intervals_hold_what_brute_force_finds(shop: Bandit, said: str | None) -> None:
    served = brute_force(shop, "explore=3")
    found = evaluate(shop, ["k=1", "k=2", "k=1,explore=0", "epsilon=0.2"], estimator=said)
    assert found.served.low <= served <= found.served.high
    assert found.served.value == pytest.approx(served, abs=0.6)
    for result in found.candidates:
        truth = brute_force(shop, result.name)
        assert result.per_visit.low <= truth <= result.per_visit.high, result
        assert result.difference.low <= truth - served <= result.difference.high, result
        assert result.per_visit.value == pytest.approx(truth, abs=2.0), result
        assert result.verdict != ("better" if truth < served else "worse"), result


def test_everything_that_is_printed_has_the_same_units(shop: Bandit) -> None:
    found = evaluate(shop, ["k=1"])
    brought = [np.nansum(shop.event(f"visit-{i}").rewards) for i in range(N)]
    assert found.served.value == pytest.approx(np.mean(brought))
    words = ("evaluate", str(shop.folder.path), "--policy", "k=1")
    assert json.loads(call(*words, "--json").output) == {**found.to_dict(), "picture": None}
    assert f"brought {found.served} each" in call(*words).output
    stretches = search_policies(shop)
    both = [stretches.searched, stretches.held_out]
    assert sum(each.served.value * each.rounds for each in both) / N == pytest.approx(found.served.value)
