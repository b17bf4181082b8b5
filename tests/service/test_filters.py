"""Filters, sets, attributes and categories over HTTP, with several workers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.running import Running, running, settings

from treetop.bandit.bandit import Bandit
from treetop.bandit.caps import CapConfig
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import RewardConfig

N = 120


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("filters") / "shop"
    arms = Catalogue(
        [f"s{i}" for i in range(N)],
        np.random.default_rng(0).normal(size=(N, 4)),
        [f"dept {i % 3} > shelf {i % 12}" for i in range(N)],
        {"price": [float(i) for i in range(N)], "in_stock": [i % 2 == 0 for i in range(N)]},
    )
    config = replace(settings(), caps=CapConfig(impressions=1), rewards=RewardConfig(corrections=True))
    Bandit.create(folder, arms, config=config).close()
    with running(folder, "--workers", "2") as service:
        yield service


def decide(shop: Running, **request: Any) -> Any:
    return shop.post("/v1/decide", {"features": {"dense": [1, 0, 0, 0]}, **request})


def test_conditions_and_what_they_leave(shop: Running) -> None:
    where = {"in_stock": True, "price": {"<=": 20}, "category": "dept 1"}
    for _ in range(10):
        found = decide(shop, where=where, exclude=["s4"])
        assert {slot["arm"] for slot in found.json["slots"]} <= {"s10", "s16"}
    assert decide(shop, where={"price": {">": 1000}}).code == "no_arms"
    wrong = decide(shop, where={"colour": "red"})
    assert (wrong.status, wrong.code) == (422, "invalid")
    assert "the catalogue has no attribute 'colour'; it has category, in_stock, price" in wrong.json["error"]["message"]
    batch = shop.post(
        "/v1/decide/batch",
        {"requests": [{"features": {}, "where": {"price": 3}}, {"features": {}, "where": {"prize": 3}}]},
    ).json["results"]
    assert [result["status"] for result in batch] == [200, 422]
    assert [slot["arm"] for slot in batch[0]["decision"]["slots"]] == ["s3"]


def test_every_worker_sees_a_change_at_its_next_decision(shop: Running) -> None:
    """Each request has a connection of its own, so that both workers get some."""
    for i in range(12):
        arm = f"s{50 + i}"
        put = shop.ask("PUT", "/v1/sets/summer-sale", {"arms": [arm]})
        assert put.json["sets"] == {"summer-sale": 1}
        for _ in range(4):
            found = decide(shop, where={"sets": ["summer-sale"]})
            assert [slot["arm"] for slot in found.json["slots"]] == [arm]
        answer = shop.post("/v1/attributes", {"arms": [arm, "s1"], "attributes": {"turn": [i, None]}, "new": True})
        assert answer.json["attributes"]["turn"] == {"kind": "number", "arms": i + 1}
        found = decide(shop, where={"turn": i})
        assert [slot["arm"] for slot in found.json["slots"]] == [arm]
    assert shop.get("/v1/catalogue").json["sets"] == {"summer-sale": 1}
    assert shop.ask("PUT", "/v1/sets/summer-sale", {"arms": None}).json["sets"] == {}
    gone = decide(shop, where={"sets": "summer-sale"})
    assert "there is no set 'summer-sale'" in gone.json["error"]["message"]
    assert shop.ask("PUT", "/v1/sets/summer-sale", {"arms": ["nobody"]}).code == "unknown_arm"
    assert shop.post("/v1/attributes", {"arms": ["s1"], "attributes": {"price": ["dear"]}}).status == 422
    assert shop.ask("GET", "/v1/sets/summer-sale").status == 405


def test_explanations_name_the_categories(shop: Running) -> None:
    answer = shop.post("/v1/explain", {"features": {"dense": [1, 0, 0, 0]}, "where": {"in_stock": True}, "top": 999})
    found = answer.json["effective"]
    single = [entry for entry in found if entry["arm"] is not None]
    for entry in single:
        i = int(entry["arm"][1:])
        assert i % 2 == 0
        assert entry["category"] == f"dept {i % 3} > shelf {i % 12}"
    nodes = [entry for entry in found if entry["node"] is not None]
    assert nodes
    assert all(entry["category"].startswith("dept ") for entry in nodes)
    assert sum(entry["arms_below"] for entry in found) == N // 2
    assert "(dept" in answer.json["words"]
    served = decide(shop, event_id="why", where={"price": {"<": 9}}).json
    logged = shop.post("/v1/explain", {"event_id": "why", "top": 999}).json["effective"]
    assert sum(entry["arms_below"] for entry in logged) == 9
    assert {slot["arm"] for slot in served["slots"]} <= {f"s{i}" for i in range(9)}


def test_arms_come_with_categories_and_attributes_and_return(shop: Running) -> None:
    added = shop.post("/v1/arms", {"add": ["new"], "categories": ["dept 1 > shelf 4"], "attributes": {"price": [7777]}})
    assert added.status == 200, added.json
    shop.wait_for(lambda: all(decide(shop, where={"price": 7777}).status == 200 for _ in range(4)))  # in both workers
    assert [slot["arm"] for slot in decide(shop, where={"price": 7777}).json["slots"]] == ["new"]
    assert shop.post("/v1/arms", {"remove": ["new"]}).json["removed"] == 1
    shop.wait_for(lambda: all(decide(shop, where={"price": 7777}).status == 422 for _ in range(4)))
    assert shop.post("/v1/arms", {"add": ["new"]}).json["removed"] == 0
    shop.wait_for(lambda: all(decide(shop, where={"price": 7777}).status == 200 for _ in range(4)))
    assert shop.post("/v1/arms", {"add": ["new"]}).status == 422
    short = shop.post("/v1/arms", {"add": ["x", "y"], "attributes": {"price": [1]}})
    assert "'price' has 1 values for 2 new arms" in short.json["error"]["message"]


def test_a_visitor_sees_an_arm_once_whichever_worker_decides(shop: Running) -> None:
    few = {"eligible": ["s1", "s2", "s3", "s4", "s5", "s6"], "k": 1, "keys": {"visitor": "anna"}}
    seen = [decide(shop, **few).json["slots"][0]["arm"] for _ in range(3)]
    request = {"features": {"dense": [1, 0, 0, 0]}, **few}
    batch = shop.post("/v1/decide/batch", {"requests": [request] * 4}).json["results"]
    seen += [result["decision"]["slots"][0]["arm"] for result in batch[:3]]
    assert sorted(seen) == few["eligible"]
    assert batch[3]["error"]["code"] == decide(shop, **few).code == "no_arms"
    assert decide(shop, **{**few, "keys": {"visitor": "bert"}}).status == 200


def test_a_zero_and_then_the_click(shop: Running) -> None:
    arm = decide(shop, event_id="corrected").json["slots"][0]["arm"]
    for value, stored in ((0.0, 1), (1.0, 1), (0.0, 0)):
        told = shop.post("/v1/reward", {"event_id": "corrected", "rewards": {arm: value}})
        assert told.json["stored"] == stored
    event = shop.get("/v1/events/corrected").json
    assert event["slots"][0]["reward"] == 1.0
    assert [(r["arm"], r["reward"]) for r in event["replaced"]] == [(arm, 0.0)]


def test_new_arms_are_counted_by_cohort(shop: Running) -> None:
    added = shop.post("/v1/arms", {"add": ["fresh"], "categories": ["dept 0"]})
    assert added.status == 200
    for _ in range(3):
        decide(shop, eligible=["fresh"])
    shop.wait_for(lambda: shop.get("/v1/arms/new").json["cohorts"][0]["impressions"] == 3)  # counted now and then
    found = shop.get("/v1/arms/new").json
    cohort = found["cohorts"][0]
    assert found["trials"] == 20
    assert (cohort["model"], cohort["arms"], cohort["shown"], cohort["enough"]) == (added.json["model"], 1, 1, 0)
    assert cohort["impressions"] == 3
    assert "data-cohort=" in shop.get("/").content.decode()
