"""How often one visitor sees an arm: never more than the settings say, in any process, with exact propensities."""

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from treetop.bandit.bandit import Bandit
from treetop.bandit.caps import CapConfig, capped_arms
from treetop.bandit.config import Config, PolicyConfig
from treetop.bandit.results import same_decision
from treetop.errors import EventConflict, NoEligibleArm

CONFIG = Config(policy=PolicyConfig(k=2, explore=1), caps=CapConfig(impressions=2, window=3600))
ARMS = [f"a{i}" for i in range(6)]


@pytest.fixture
def shop(tmp_path: Path) -> Bandit:
    return Bandit.create(tmp_path / "shop", ARMS, np.eye(6), np.eye(6), config=CONFIG)


def test_a_visitor_sees_no_arm_too_often_whoever_decides(shop: Bandit) -> None:
    seen: Counter[str | int] = Counter()
    with shop, Bandit.open(shop.folder.path) as other:
        for i in range(6):
            worker = (shop, other)[i % 2]
            kept = shop.capped_arms((("visitor", "7"),), None)
            served = worker.decide(np.ones(6), f"visit-{i}", keys={"visitor": 7})
            allowed = np.setdiff1d(np.arange(6), kept)
            policy, _ = worker.snapshot.policy()
            arms = worker.snapshot.arms.find(served.arms)
            exact = policy.probability(worker.snapshot.model, np.ones(6), arms, eligible=allowed).slots
            assert [slot.propensity for slot in served.slots] == exact.tolist()
            seen.update(served.arms)
            assert same_decision(*worker.replay(f"visit-{i}"))
        assert set(seen.values()) == {2}
        with pytest.raises(NoEligibleArm):
            shop.decide(np.ones(6), "one too many", keys={"visitor": 7})
        # Others, and requests that say nobody, see everything.
        assert len(shop.decide(np.ones(6), keys={"visitor": 8}).arms) == 2
        assert len(shop.decide(np.ones(6)).arms) == 2
        later = time.time() + 3601
        assert capped_arms(shop.log, CONFIG.caps, ("visitor", "7"), later, "").tolist() == []


def test_the_same_request_again_is_the_same_whatever_was_seen_since(shop: Bandit) -> None:
    with shop:
        keys = {"visitor": "anna"}
        first = shop.decide(np.ones(6), "visit-0", eligible=ARMS[:3], keys=keys)
        for i in (1, 2):
            shop.decide(np.ones(6), f"visit-{i}", eligible=ARMS[:3], k=1, keys=keys)
        assert shop.decide(np.ones(6), "visit-0", eligible=ARMS[:3], keys=keys) == first
        with pytest.raises(EventConflict):
            shop.decide(np.ones(6), "visit-0", eligible=ARMS[:4], keys=keys)


def test_caps_go_together_with_lists_and_conditions(shop: Bandit) -> None:
    with shop:
        shop.set_attributes(ARMS, {"price": [1, 2, 3, 4, 5, 6]}, new=True)
        for i in range(2):
            shop.decide(np.ones(6), f"visit-{i}", k=1, explore=0, eligible=["a1"], keys={"visitor": 1})
        for lists, expected in (
            ({"where": {"price": {"<=": 2}}}, ["a0"]),
            ({"eligible": ["a1", "a2"]}, ["a2"]),
            ({"exclude": ["a0", "a2", "a3", "a4"]}, ["a5"]),
            ({"where": {"price": {"<=": 3}}, "exclude": ["a0"]}, ["a2"]),
        ):
            served = shop.decide(np.ones(6), keys={"visitor": 1}, **lists)
            assert served.arms == expected
            assert same_decision(*shop.replay(served.event_id))


@pytest.mark.parametrize(
    ("given", "message"),
    [({"impressions": -1}, "impressions is -1"), ({"window": 0}, "window is 0"), ({"key": ""}, "1 to 64 bytes")],
)
def test_settings_are_checked(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CapConfig(**given)  # type: ignore[arg-type]
