"""The soak of `scripts/soak.py` in small, and whether it would notice if something were lost, changed or invented."""

import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from helpers.playing import X, Y
from helpers.running import small_bandit
from helpers.soak.cell import Cell
from helpers.soak.faults import FAULTS
from helpers.soak.ledger import Ledger
from helpers.soak.plan import Plan
from helpers.soak.watch import quarters

from treetop.bandit.bandit import Bandit

SMALL = "synthetic:arms=300,features=200,rows=300,init=600,nonzeros=15"


def test_a_soak_of_seconds() -> None:
    faults = ("worker killed", "refit killed")
    found = Cell(Plan("sqlite", 2, 3.0, faults=faults, data=SMALL, clients=3, own_disk=False)).run()
    assert found["findings"] == []
    assert found["problems"] == {}
    assert {fault["fault"] for fault in found["faults"]} == set(faults)
    assert min(found["decisions"], found["rewards"], found["replayed"]) > 20


@pytest.fixture
def played(tmp_path: Path) -> Any:
    """A log, and a ledger that says exactly what is in it."""
    ledger = Ledger()
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y)) as bandit:
        for i in range(4):
            event = f"visit-{i}"
            ledger.sending(event)
            served = bandit.decide(X[i], event_id=event)
            ledger.decided(event, asdict(served))
            rewards = {str(served.arms[0]): 1.0}
            ledger.rewarding(event, rewards)
            bandit.reward(event, {served.arms[0]: 1.0})
            ledger.rewarded(event, rewards)
        yield ledger, bandit


def test_a_ledger_that_agrees(played: Any) -> None:
    ledger, bandit = played
    audit = ledger.check(bandit, ["visit-0", "visit-3"])
    assert (audit.decisions, audit.rewards, audit.replayed, dict(audit.problems)) == (4, 4, 2, {})


def test_what_is_not_in_the_log_is_lost(played: Any) -> None:
    ledger, bandit = played
    ledger.sending("visit-9")
    ledger.decided("visit-9", msgspec.json.decode(ledger.answers["visit-0"]))
    arm = bandit.served(bandit.event("visit-1").event).arms[1]
    ledger.rewarded("visit-1", {str(arm): 0.5})
    audit = ledger.check(bandit)
    assert dict(audit.problems) == {"lost": 2}
    ledger.forgotten_before = ledger.sent["visit-9"] + 1
    assert dict(ledger.check(bandit).problems) == {"lost": 1}  # retention may have deleted the decision


def test_what_differs_from_its_answer_is_changed(played: Any) -> None:
    ledger, bandit = played
    answer = msgspec.json.decode(ledger.answers["visit-2"])
    answer["slots"][0]["propensity"] /= 2
    ledger.decided("visit-2", answer)
    assert len(ledger.contradictions) == 1
    ledger.answers["visit-2"] = msgspec.json.encode(answer)
    assert dict(ledger.check(bandit).problems) == {"changed": 1}


def test_what_nobody_sent_is_invented(played: Any) -> None:
    ledger, bandit = played
    bandit.decide(X[5], event_id="visit-5")
    ledger.tried["visit-0"] = {}
    assert dict(ledger.check(bandit).problems) == {"invented": 2}


def test_what_ends_processes_comes_early() -> None:
    plan = Plan("postgres", seconds=600)
    order = plan.order(random.Random(1))
    assert {fault.name for fault in order} == {fault.name for fault in FAULTS}
    last = max(i for i, fault in enumerate(order) if fault.ends)
    assert last < 0.6 * len(order)
    assert order != plan.order(random.Random(2))
    assert not any(fault.store for fault in replace(plan, store="sqlite").order(random.Random(1)))
    with pytest.raises(ValueError, match="there is no fault 'x'"):
        Plan(faults=("x",)).order(random.Random(1))


def test_quarters_are_medians() -> None:
    assert quarters([1, 1, 9, 2, 2, 2, 3, 3, 3, 4, 4, 100]) == [1, 2, 3, 4]
    assert quarters([1, 2]) == []
