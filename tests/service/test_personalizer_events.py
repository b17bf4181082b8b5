"""Events of Azure Personalizer's API at the moments that a client cannot time: in one process, by the handlers."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest

from treetop.bandit.attributes import AttributeTable, attribute_records
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, PolicyConfig, RefitConfig
from treetop.bridges.personalizer import MOST_ATTRIBUTES, attributes_of, create_loop
from treetop.errors import EventConflict, Problem, UnknownEvent
from treetop.policy.probability import slot_chances
from treetop.service import personalizer
from treetop.service import personalizer_schema as shapes
from treetop.service.deferred import Found
from treetop.service.personalizer import Personalizer
from treetop.service.service import Service
from treetop.service.tokens import Tokens

CONFIG = Config(
    policy=PolicyConfig(k=1, explore=1, strategy="epsilon", parameters={"epsilon": 0.5}), refit=RefitConfig(10**9)
)
A = TypeVar("A")
SLOTS = [{"id": "hero"}, {"id": "side"}]


class Loop:
    """The handlers of one worker, called one after the other."""

    def __init__(self, bandit: Bandit) -> None:
        self.bandit, self.service = bandit, Service(bandit, Tokens())
        self.handlers = Personalizer(self.service)

    def run(self, work: Coroutine[Any, Any, A]) -> A:
        return asyncio.run(work)

    def answer(self, name: str, ids: str = "abc", **more: Any) -> shapes.RankAnswer:
        body = {"eventId": name, "actions": [{"id": each} for each in ids], "deferActivation": True, **more}
        request = msgspec.convert(body, shapes.RankRequest)
        found: Any = self.run(self.handlers.personalizer_rank(self.service, request)).content
        assert isinstance(found, shapes.RankAnswer)
        return found

    def rank(self, name: str, ids: str = "abc", **more: Any) -> str:
        """The action to show."""
        return str(self.answer(name, ids, **more).reward_action_id)

    def multislot(self, name: str, ids: str = "abc", **more: Any) -> list[str]:
        body = {"eventId": name, "actions": [{"id": each} for each in ids], "slots": SLOTS, **more}
        request = msgspec.convert(body, shapes.MultiSlotRankRequest)
        answer: Any = self.run(self.handlers.multislot_rank(self.service, request)).content
        return [slot.reward_action_id for slot in answer.slots]

    def reward(self, name: str, value: float) -> None:
        self.run(self.handlers.personalizer_reward(self.service, shapes.RewardRequest(value), name))

    def reward_slot(self, name: str, slot: str, value: float) -> None:
        request = shapes.MultiSlotRewardRequest([shapes.SlotReward(slot, value)])
        self.run(self.handlers.multislot_reward(self.service, request, name))

    def activate(self, name: str) -> None:
        scope: Any = {"path_params": {"event_id": name}}
        self.run(self.handlers.personalizer_activate(self.service, scope))

    def arms(self) -> list[str]:
        return [str(arm) for arm in self.bandit.snapshot.arms.ids]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    with create_loop(tmp_path / "loop", ["a", "b", "c"], 8, CONFIG) as bandit:
        yield Loop(bandit)


def test_a_reward_that_comes_while_an_event_is_activated_is_not_lost(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.rank("visit")
    deferred = loop.handlers.deferred
    drop = deferred.drop
    came: list[bool] = []

    def reward_then_drop(name: str, found: Found) -> bool:
        if not came:
            came.append(deferred.reward(name, {name: 0.5}))
        return drop(name, found)

    monkeypatch.setattr(deferred, "drop", reward_then_drop)
    loop.activate("visit")
    assert came == [True]
    assert loop.bandit.event("visit").rewards.tolist() == [0.5]
    assert loop.bandit.log.kept("deferred visit") is None


def test_a_reward_that_comes_as_an_event_leaves_the_waiting_goes_into_the_log(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.rank("visit")
    log = loop.bandit.log
    change = log.keep_changed

    def activated_before(name: str, work: Any) -> bytes:
        found = loop.handlers.deferred.find("visit")
        assert found is not None
        log.append(found.events, found.sets)
        assert loop.handlers.deferred.drop("visit", found)
        return change(name, work)

    monkeypatch.setattr(log, "keep_changed", activated_before)
    loop.reward("visit", 0.5)
    assert loop.bandit.event("visit").rewards.tolist() == [0.5]
    assert log.kept("deferred visit") is None  # later ones find it in the log too
    loop.activate("visit")


def test_a_reward_ends_an_activation_that_was_cut_short(loop: Loop) -> None:
    loop.rank("visit")
    found = loop.handlers.deferred.find("visit")
    assert found is not None
    loop.bandit.log.append(found.events, found.sets)  # and then the worker ended
    loop.reward("visit", 0.5)
    assert loop.bandit.event("visit").rewards.tolist() == [0.5]
    assert loop.bandit.log.kept("deferred visit") is None


def test_a_reward_of_a_slot_that_a_waiting_event_does_not_have_is_refused(loop: Loop) -> None:
    loop.multislot("page", deferActivation=True)
    with pytest.raises(UnknownEvent, match="there is no event 'page/heroo'; 'page' has page/hero, page/side"):
        loop.reward_slot("page", "heroo", 1.0)
    with pytest.raises(UnknownEvent, match="there is no event 'page'; 'page' has page/hero, page/side"):
        loop.reward("page", 1.0)
    loop.reward_slot("page", "side", 1.0)
    loop.activate("page")
    assert loop.bandit.event("page/side").rewards.tolist() == [1.0]


def test_a_request_with_a_tag_for_each_action_takes_memory_for_its_tags_only() -> None:
    n = 3000
    features = [[{"tags": [f"t{i}"], "price": i}] for i in range(n)]
    found, left_out = attributes_of(features, AttributeTable())
    assert len(found) == MOST_ATTRIBUTES
    assert sum(map(len, found.values())) == n + MOST_ATTRIBUTES - 1  # prices, and a tag for each other attribute
    assert left_out == n - MOST_ATTRIBUTES + 1
    records = attribute_records(np.arange(n, dtype=np.int32), None, found, AttributeTable())
    assert len(records) < 100 * n
    table = AttributeTable().with_records(records)
    assert [table.of(7)[name] for name in ("price", "tags=t7", "tags=t8")] == [7.0, True, None]
    more, left_out = attributes_of([[{"tags": ["new", "t7"], "price": 1}]], table)  # the table is full
    assert (more, left_out) == ({"tags=t7": {0: True}, "price": {0: 1.0}}, 1)


def test_chances_do_not_depend_on_how_many_are_computed_at_a_time(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    context = [{"user": {"age": 3, "device": "phone"}}]

    def ranking(name: str) -> list[Any]:
        body = {"eventId": name, "contextFeatures": context, "actions": [{"id": each} for each in "abcdefg"]}
        request = msgspec.convert(body, shapes.RankRequest)
        found: Any = loop.run(loop.handlers.personalizer_rank(loop.service, request)).content
        return [(each.id, each.probability) for each in found.ranking]

    whole = ranking("visit")
    tiled: list[int] = []

    def noted(policy: Any, model: Any, rows: Any, *rest: Any) -> Any:
        tiled.append(len(rows.index))
        return slot_chances(policy, model, rows, *rest)

    monkeypatch.setattr(personalizer, "CELLS", 5)
    monkeypatch.setattr(personalizer, "slot_chances", noted)
    assert ranking("visit") == whole
    assert sum(p for _, p in whole) == pytest.approx(1)
    assert tiled == [4, 4, 4, 2]  # two features for each of seven actions, not 14 at once


@pytest.mark.parametrize("defer", [True, False])
def test_an_event_id_with_other_actions_or_slots_is_refused(loop: Loop, defer: bool) -> None:
    shown = loop.rank("visit", deferActivation=defer)
    page = loop.multislot("page", deferActivation=defer)
    assert loop.rank("visit", deferActivation=defer) == shown
    assert loop.multislot("page", deferActivation=defer) == page
    others: list[dict[str, Any]] = [{"ids": "ab"}, {"contextFeatures": [{"age": 3}]}, {"excludedActions": [shown]}]
    for changed in others:
        with pytest.raises(EventConflict, match="event 'visit' was decided for another request"):
            loop.rank("visit", deferActivation=defer, **changed)
    with pytest.raises(EventConflict, match="event 'page/hero' was decided for another request"):
        loop.multislot("page", "ab", deferActivation=defer)
    with pytest.raises(Problem, match="event 'page' was decided for other slots"):
        loop.multislot("page", slots=[{"id": "top"}, {"id": "bottom"}], deferActivation=defer)


def test_of_two_deferred_ranks_of_an_event_the_first_stays(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    first: list[str] = []
    keep = loop.handlers.deferred.keep

    def later(*args: Any) -> bool:  # another worker has decided the same event meanwhile
        monkeypatch.undo()
        other = Loop(loop.bandit)
        first.append(other.rank("visit"))
        return keep(*args)

    monkeypatch.setattr(loop.handlers.deferred, "keep", later)
    assert loop.rank("visit") == first[0]
    loop.activate("visit")
    assert loop.bandit.served(loop.bandit.event("visit").event).arms == first
    with pytest.raises(EventConflict):
        loop.rank("visit", "ab")


def test_a_waiting_event_that_is_ranked_to_be_shown_at_once_goes_into_the_log(loop: Loop) -> None:
    shown = loop.rank("visit")
    loop.reward("visit", 0.5)
    assert loop.rank("visit", deferActivation=False) == shown
    stored = loop.bandit.event("visit")
    assert (loop.bandit.served(stored.event).arms, stored.rewards.tolist()) == ([shown], [0.5])


def test_a_request_that_is_refused_adds_no_arms(loop: Loop) -> None:
    loop.rank("visit")
    loop.multislot("page")
    three = [{"id": each} for each in ("x", "y", "z")]
    refused: list[Callable[[], object]] = [
        lambda: loop.rank("new", "xyz", excludedActions=["x", "y", "z"]),
        lambda: loop.rank("new", "xyz", contextFeatures=[{"age": 1e300}]),
        lambda: loop.rank("new\0", "xyz"),
        lambda: loop.rank("visit", "xyz"),
        lambda: loop.rank("new", "xyx"),
        lambda: loop.multislot("page", "xyz"),
        lambda: loop.multislot("new", "x"),
        lambda: loop.multislot("new", "xyz", slots=three + three),
        lambda: loop.multislot("new", "xyz", slots=[{"id": "hero"}, {"id": "side", "excludedActions": [*"xyz"]}]),
        lambda: loop.multislot("new", "xyz", slots=[{"id": each, "excludedActions": ["y", "z"]} for each in "ab"]),
    ]
    for ask in refused:
        with pytest.raises((ValueError, Problem)):
            ask()
        assert loop.arms() == ["a", "b", "c"]
    loop.rank("new", "xyz")
    assert loop.arms() == ["a", "b", "c", "x", "y", "z"]


def test_slots_leave_later_ones_what_only_those_can_show(loop: Loop) -> None:
    """The side can only show c and the last only b, so the hero shows a, and its chance says that it had to."""
    narrow = [{"id": "side", "excludedActions": ["a", "b"]}, {"id": "last", "excludedActions": ["c", "a"]}]
    for i in range(20):
        name = f"page-{i}"
        found = loop.multislot(name, slots=[{"id": "hero"}, *narrow], deferActivation=False)
        assert found == ["a", "c", "b"]
        assert loop.multislot(name, slots=[{"id": "hero"}, *narrow], deferActivation=False) == found
        assert loop.bandit.event(f"{name}/hero").event.propensities.tolist() == [1.0]


def test_events_that_nobody_activates_are_forgotten_after_a_day_and_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_loop(tmp_path / "loop", ["a", "b", "c"], 8, CONFIG).close()
    with Bandit.open(tmp_path / "loop") as bandit:
        for i in range(10):
            Loop(bandit).rank(f"old-{i}")
    now = time.time()
    monkeypatch.setattr("treetop.service.deferred.time.time", lambda: now + 86401)
    with Bandit.open(tmp_path / "loop") as bandit:
        loop = Loop(bandit)
        for i in range(10):
            loop.rank(f"new-{i}")
        left = [name for name, _ in bandit.log.kept_after("deferred ", "", 100)]
        assert left == [f"deferred new-{i}" for i in range(10)]


@pytest.mark.parametrize("defer", [False, True], ids=["logged", "waiting"])
def test_an_event_sent_again_to_a_worker_that_has_not_seen_the_newest_arms(loop: Loop, defer: bool) -> None:
    """It was decided by a model with more arms than the catalogue that this worker has loaded, and without one that
    was removed."""
    with Bandit.open(loop.bandit.folder.path) as other:
        other.add_arms([f"meal-{i}" for i in range(300)])
        other.remove_arms(["c"])
        found = Loop(other).answer("visit", deferActivation=defer)
    assert len(loop.bandit.snapshot.arms) == 3
    assert loop.answer("visit", deferActivation=defer) == found
    assert [action.probability for action in found.ranking if action.id == "c"] == [0.0]
