"""Azure Personalizer's API: a client of it changes only its address. The shapes are those of its documentation."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.peers import needs_peer, run_peer
from helpers.running import Running, running

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, PolicyConfig, RefitConfig
from treetop.bandit.results import same_decision
from treetop.bridges.personalizer import create_loop

CONFIG = Config(
    policy=PolicyConfig(k=1, explore=1, strategy="epsilon", parameters={"epsilon": 0.5}), refit=RefitConfig(10**9)
)
CONTEXT = [{"user": {"age": 33, "device": "phone"}}, {"weekend": True}]
MEALS: list[dict[str, Any]] = [
    {"id": "pasta", "features": [{"taste": "salty", "spice": 2}, {"nutrition": {"calories": 850}}]},
    {"id": "ice cream", "features": [{"taste": "sweet", "tags": ["cold", "new"]}]},
    {"id": "juice", "features": [{"taste": "sweet", "spice": "none"}]},
]
V1 = "/personalizer/v1.0"
V11 = "/personalizer/v1.1-preview.1"


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("personalizer") / "loop"
    create_loop(folder, ["salad"], 64, CONFIG).close()
    with running(
        folder, "--workers", "2", token="0123456789abcdef", environment={"TREETOP_TOKEN": "0123456789abcdef"}
    ) as it:
        it.token = None  # clients of Personalizer have a header of their own
        yield it


def ask(loop: Running, path: str, body: Any = None) -> Any:
    return loop.ask("POST", path, body, {"Ocp-Apim-Subscription-Key": "0123456789abcdef"})


def rank(loop: Running, name: str, **more: Any) -> Any:
    answer = ask(loop, f"{V1}/rank", {"contextFeatures": CONTEXT, "actions": MEALS, "eventId": name, **more})
    assert answer.status == 201, answer.json
    return answer.json


def test_unknown_actions_join_and_only_those_sent_are_shown(loop: Running) -> None:
    assert loop.ask("POST", f"{V1}/rank", {"actions": MEALS}).status == 401
    for i in range(12):
        found = rank(loop, f"visit-{i}", excludedActions=["juice"])
        assert found["eventId"] == f"visit-{i}"
        chances = {action["id"]: action["probability"] for action in found["ranking"]}
        assert list(chances)[2] == "juice"  # excluded: where it stood, with chance 0
        assert chances["juice"] == 0
        assert sum(chances.values()) == pytest.approx(1)
        assert found["rewardActionId"] in ("pasta", "ice cream")
        assert rank(loop, f"visit-{i}", excludedActions=["juice"]) == found  # sent again, to any worker
    with Bandit.open(loop.folder) as bandit:
        assert [str(arm) for arm in bandit.snapshot.arms.ids] == ["salad", "pasta", "ice cream", "juice"]
        assert bandit.attributes("pasta") == {
            "taste": "salty",
            "spice": 2.0,
            "nutrition.calories": 850.0,
            "tags=cold": None,
            "tags=new": None,
        }
        assert bandit.attributes("juice")["spice"] is None  # a text where others have numbers
        assert bandit.attributes("ice cream")["tags=new"] is True
        for i in range(12):
            event, again = bandit.replay(f"visit-{i}")
            assert same_decision(event, again)
            assert len(event.index) == 3
            found = rank(loop, f"visit-{i}", excludedActions=["juice"])
            chances = {action["id"]: action["probability"] for action in found["ranking"]}
            assert chances[found["rewardActionId"]] == event.propensities[0]  # to the last bit


def test_rewards_count_once_and_teach(loop: Running) -> None:
    shown = rank(loop, "rewarded")["rewardActionId"]
    assert ask(loop, f"{V1}/events/rewarded/reward", {"value": 0.5}).status == 204
    again = ask(loop, f"{V1}/events/rewarded/reward", {"value": 1.0})
    assert (again.status, again.content) == (204, b"")
    with Bandit.open(loop.folder) as bandit:
        stored = bandit.event("rewarded")
        assert stored.rewards.tolist() == [0.5]  # the earliest
        assert bandit.served(stored.event).arms == [shown]
    wrong = ask(loop, f"{V1}/events/rewarded/reward", {"value": 7})
    assert (wrong.status, wrong.json["error"]["message"]) == (422, "the reward is 7; rewards lie in [0, 1]")
    assert ask(loop, f"{V1}/events/nobody/reward", {"value": 1.0}).status == 404
    assert ask(loop, f"{V1}/events/nobody/activate").status == 404
    assert ask(loop, f"{V1}/events/rewarded/activate").status == 204


def test_a_deferred_event_is_in_the_log_when_it_is_activated(loop: Running) -> None:
    found = rank(loop, "later", deferActivation=True)
    assert rank(loop, "later", deferActivation=True) == found
    with Bandit.open(loop.folder) as bandit:
        assert bandit.log.event("later") is None
        assert ask(loop, f"{V1}/events/later/reward", {"value": 1.0}).status == 204
        assert bandit.log.event("later") is None
        assert ask(loop, f"{V1}/events/later/activate").status == 204
        stored = bandit.event("later")
        assert stored.rewards.tolist() == [1.0]
        assert bandit.served(stored.event).arms == [found["rewardActionId"]]
        assert same_decision(*bandit.replay("later"))
        assert bandit.log.kept("deferred later") is None
    assert ask(loop, f"{V1}/events/later/activate").status == 204  # again
    rank(loop, "never", deferActivation=True)
    assert ask(loop, f"{V1}/events/never/reward", {"value": 1.0}).status == 204
    with Bandit.open(loop.folder) as bandit:
        assert bandit.log.event("never") is None


def test_several_slots_have_an_action_each(loop: Running) -> None:
    slots = [
        {"id": "hero", "baselineAction": "pasta", "features": [{"size": "large"}], "excludedActions": ["juice"]},
        {"id": "side", "baselineAction": "juice", "excludedActions": ["pasta"]},
    ]
    body = {"contextFeatures": CONTEXT, "actions": MEALS, "slots": slots}
    for i in range(8):
        name = f"page-{i}"
        answer = ask(loop, f"{V11}/multislot/rank", {**body, "eventId": name})
        assert answer.status == 201, answer.json
        shown = {slot["id"]: slot["rewardActionId"] for slot in answer.json["slots"]}
        assert list(shown) == ["hero", "side"]
        assert shown["hero"] in ("pasta", "ice cream")
        assert shown["side"] in ("ice cream", "juice")
        assert shown["hero"] != shown["side"]
        assert ask(loop, f"{V11}/multislot/rank", {**body, "eventId": name}).json == answer.json
    rewards = {"reward": [{"slotId": "hero", "value": 1.0}, {"slotId": "side", "value": 0.0}]}
    assert ask(loop, f"{V11}/multislot/events/page-0/reward", rewards).status == 204
    assert ask(loop, f"{V11}/multislot/events/page-0/activate").status == 204
    assert ask(loop, f"{V11}/multislot/events/page-none/activate").status == 404
    with Bandit.open(loop.folder) as bandit:
        assert bandit.event("page-0/hero").rewards.tolist() == [1.0]
        assert bandit.event("page-0/side").rewards.tolist() == [0.0]
        assert len(bandit.event("page-0/hero").event.index) == 4  # the slot's feature too
        for i in range(8):
            assert same_decision(*bandit.replay(f"page-{i}/side"))
    deferred = {**body, "eventId": "page-later", "deferActivation": True}
    first = ask(loop, f"{V11}/multislot/rank", deferred).json
    assert ask(loop, f"{V11}/multislot/rank", deferred).json == first
    assert ask(loop, f"{V11}/multislot/events/page-later/activate").status == 204
    with Bandit.open(loop.folder) as bandit:
        assert bandit.served(bandit.event("page-later/side").event).arms == [first["slots"][1]["rewardActionId"]]
    few = ask(loop, f"{V11}/multislot/rank", {**body, "actions": MEALS[:1]})
    assert few.json["error"]["message"] == "1 actions for 2 slots; there must be one for each"


def test_more_than_50_actions_and_mistakes(loop: Running) -> None:
    many = [{"id": f"meal-{i}"} for i in range(300)]
    found = rank(loop, "many", actions=many)
    assert len(found["ranking"]) == 300
    assert sum(action["probability"] for action in found["ranking"]) == pytest.approx(1)
    assert found["rewardActionId"].startswith("meal-")
    twice = ask(loop, f"{V1}/rank", {"actions": [MEALS[0], MEALS[0]]})
    assert (twice.status, twice.json["error"]["message"]) == (422, "two actions have the id 'pasta'")
    assert ask(loop, f"{V1}/rank", {"actions": []}).status == 422
    other = ask(loop, f"{V1}/rank", {"actions": MEALS[:1], "eventId": "many"})
    assert (other.status, other.code) == (409, "event_conflict")
    excluded = ask(loop, f"{V1}/rank", {"actions": MEALS[:1], "excludedActions": ["pasta"]})
    assert (excluded.status, excluded.code) == (422, "no_arms")


def test_microsofts_own_client_changes_only_its_address(loop: Running) -> None:
    needs_peer("azure.cognitiveservices.personalizer")
    script = Path(__file__).parents[1] / "helpers" / "peer_personalizer.py"
    found = json.loads(run_peer(script, loop.url, "0123456789abcdef"))
    with Bandit.open(loop.folder) as bandit:
        for answer in found:
            stored = bandit.event(answer["event"])
            assert bandit.served(stored.event).arms == [answer["shown"]]
            assert stored.rewards.tolist() == [1.0]
            assert answer["ranking"][answer["shown"]] == stored.event.propensities[0]
            assert answer["ranking"]["juice"] == 0


def test_without_the_setting_there_is_nothing(tmp_path: Path) -> None:
    Bandit.create(tmp_path / "shop", ["a", "b"]).close()
    with running(tmp_path / "shop") as service:
        assert service.post(f"{V1}/rank", {"actions": MEALS}).status == 404
