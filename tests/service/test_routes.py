"""Every route as an application uses it, against a real process."""

import json
import re
import uuid
from typing import Any

import pytest
from helpers.problems import topics
from helpers.running import Running, named

X, _ = topics()


def fresh() -> str:
    return uuid.uuid4().hex


def metrics(shop: Running) -> str:
    return shop.get("/metrics").content.decode()


def decided(shop: Running, **options: Any) -> dict[str, Any]:
    answer = shop.post("/v1/decide", {"event_id": fresh(), "features": named(X, 0), **options})
    assert answer.status == 200, answer.content
    found: dict[str, Any] = answer.json
    return found


def test_a_decision_has_what_the_contract_says(shop: Running) -> None:
    answer = shop.post("/v1/decide", {"event_id": "first", "features": named(X, 0)})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {"event_id", "epoch", "slots", "variant", "unknown_features"}
    assert (answer.json["event_id"], answer.json["epoch"], len(answer.json["slots"])) == ("first", 0, 4)
    for slot in answer.json["slots"]:
        assert set(slot) == {"arm", "propensity", "score", "explored", "via"}
        assert re.fullmatch(r"a\d+", slot["arm"])
        assert 0 < slot["propensity"] <= 1
        assert slot["explored"] is (slot["propensity"] < 0.5)  # draws are seldom, and then of many
    assert len({slot["arm"] for slot in answer.json["slots"]}) == 4


def test_without_an_event_id_it_gets_a_new_one(shop: Running) -> None:
    ids = {shop.post("/v1/decide", {"features": named(X, 0)}).json["event_id"] for _ in range(3)}
    assert len(ids) == 3
    assert shop.get(f"/v1/events/{ids.pop()}").status == 200


@pytest.mark.parametrize("event_id", ["a/b", "ä ß", "%2F", "?x=1", 17, "a" * 512, ".."])
def test_any_text_may_be_an_event_id(shop: Running, event_id: str | int) -> None:
    with shop.client() as client:
        shown = client.decide(X[0], event_id=event_id)
        assert shown.event_id == str(event_id)
        assert client.event(event_id)["event_id"] == str(event_id)
        assert client.decide(X[0], event_id=event_id) == shown


def test_three_spellings_of_one_context_are_one_request(shop: Running) -> None:
    x = X[1]
    order = list(reversed(range(len(x.data))))
    indices = [int(x.indices[i]) for i in order]
    values = [float(x.data[i]) for i in order]
    event, dense = fresh(), x.toarray()[0].astype(float).tolist()
    spellings: list[Any] = [named(X, 1), {"indices": indices, "values": values}, {"dense": dense}]
    answers = [shop.post("/v1/decide", {"event_id": event, "features": features}) for features in spellings]
    assert [a.status for a in answers] == [200, 200, 200]
    assert answers[0].json == answers[1].json == answers[2].json


def test_unknown_features_are_counted_ignored_and_listed(shop: Running) -> None:
    def count() -> float:
        return float(re.findall(r"^treetop_unknown_features_total (\S+)", metrics(shop), re.MULTILINE)[0])

    before, event = count(), fresh()
    one = shop.post("/v1/decide", {"event_id": event, "features": {**named(X, 0), "nobody": 1.0, "knows": 2}})
    two = shop.post("/v1/decide", {"event_id": event, "features": named(X, 0)})
    assert one.json == {**two.json, "unknown_features": ["nobody", "knows"]}
    assert two.json["unknown_features"] == []
    assert count() == before + 2
    requests = [{"event_id": event, "features": {**named(X, 0), "devise": "mobile"}}, {"features": {"f1": 1}}]
    results = shop.post("/v1/decide/batch", {"requests": requests}).json["results"]
    assert [each["decision"]["unknown_features"] for each in results] == [["devise=mobile"], []]


def test_k_explore_eligible_and_exclude(shop: Running) -> None:
    chances = [[s["propensity"] for s in decided(shop, event_id=f"e{i}", k=3, explore=i)["slots"]] for i in range(4)]
    assert all(len(row) == 3 for row in chances)
    for explore in (1, 2, 3):  # slots that may be drawn show the best less surely; the others are as without any
        assert chances[explore][: 3 - explore] == chances[0][: 3 - explore]
        assert all(a < b for a, b in zip(chances[explore], chances[0], strict=True) if a != b)
        assert chances[explore][3 - explore] < chances[0][3 - explore]
    assert len(decided(shop, k=1)["slots"]) == 1
    few = decided(shop, eligible=["a1", "a2", "a3"], exclude=["a2"])
    assert {s["arm"] for s in few["slots"]} == {"a1", "a3"}
    without = decided(shop, k=50, exclude=[f"a{i}" for i in range(55)])
    assert {s["arm"] for s in without["slots"]} == {"a55", "a56", "a57", "a58", "a59"}


def test_keys_are_stored_with_the_event_and_checked(shop: Running) -> None:
    body = {"event_id": fresh(), "features": named(X, 2), "keys": {"visitor": 123, "page": "home"}}
    first = shop.post("/v1/decide", body)
    assert first.status == 200
    assert "keys" not in first.json
    assert shop.get(f"/v1/events/{body['event_id']}").json["keys"] == {"visitor": "123", "page": "home"}
    again = {**body, "keys": {"page": "home", "visitor": "123"}}
    assert shop.post("/v1/decide", again).content == first.content
    assert shop.post("/v1/decide", {**body, "keys": {"visitor": 124}}).status == 409
    with shop.client() as client:
        served = client.decide(named(X, 3), keys={"visitor": 9})
        assert client.event(served.event_id)["keys"] == {"visitor": "9"}
        two = client.decide_batch([{"x": named(X, 3), "keys": {"visitor": 9}}, {"x": named(X, 3)}])
        assert [client.event(one.event_id)["keys"] for one in two] == [{"visitor": "9"}, {}]  # type: ignore[union-attr]
    many = {f"k{i}": "x" for i in range(9)}
    for keys in ({"visitor": ""}, {"visitor": 1.5}, {"": "x"}, {"visitor": "x" * 257}, {"visitor": None}, many):
        assert shop.post("/v1/decide", {"features": named(X, 2), "keys": keys}).status in (400, 422), keys


def test_the_same_event_again_gives_the_same_decision_from_the_log(shop: Running) -> None:
    body = {"event_id": fresh(), "features": named(X, 2), "k": 3, "exclude": ["a7"]}
    first, again = shop.post("/v1/decide", body), shop.post("/v1/decide", body)
    assert first.content == again.content
    for change in (
        {"k": 2},
        {"features": named(X, 3)},
        {"exclude": ["a8"]},
        {"explore": 1},
        {"eligible": ["a1", "a2"]},
        {"keys": {"visitor": "123"}},
    ):
        other = shop.post("/v1/decide", {**body, **change})
        assert (other.status, other.code) == (409, "event_conflict")
    assert shop.post("/v1/decide", body).content == first.content


def test_rewards(shop: Running) -> None:
    d = decided(shop)
    one, two, three, _ = (slot["arm"] for slot in d["slots"])
    event = d["event_id"]
    assert shop.post("/v1/reward", {"event_id": event, "rewards": {one: 1.0}}).json == {
        "event_id": event,
        "stored": 1,
        "repeated": 0,
    }
    both = shop.post("/v1/reward", {"event_id": event, "rewards": {one: 1.0, two: 0.25}})
    assert both.json == {"event_id": event, "stored": 1, "repeated": 1}
    differs = shop.post("/v1/reward", {"event_id": event, "rewards": {three: 1.0, one: 0.5}})
    assert (differs.status, differs.code) == (409, "reward_conflict")
    assert differs.json["error"]["stored"] == {one: 1.0}
    slots = {s["arm"]: s["reward"] for s in shop.get(f"/v1/events/{event}").json["slots"]}
    assert (slots[one], slots[two], slots[three]) == (1.0, 0.25, None)  # all of a request, or nothing


def test_rewards_that_cannot_be(shop: Running) -> None:
    d = decided(shop)
    shown = [slot["arm"] for slot in d["slots"]]
    other = next(arm for arm in ("a0", "a1", "a2", "a3", "a4") if arm not in shown)
    event = d["event_id"]

    def refused(body: Any) -> tuple[int, str]:
        answer = shop.post("/v1/reward", body)
        return answer.status, answer.code

    assert refused({"event_id": "nobody", "rewards": {"a1": 1}}) == (404, "unknown_event")
    assert refused({"event_id": "nobody", "rewards": {"no such arm": 1}}) == (404, "unknown_event")
    assert refused({"event_id": event, "rewards": {other: 1}}) == (422, "not_shown")
    assert refused({"event_id": event, "rewards": {"no such arm": 1}}) == (422, "unknown_arm")
    for value in (1.5, -0.1, "1", None, True, [1]):
        assert refused({"event_id": event, "rewards": {shown[0]: value}}) == (422, "invalid")
    assert refused({"event_id": event, "rewards": {}}) == (422, "invalid")
    assert refused({"event_id": event}) == (422, "invalid")
    assert all(slot["reward"] is None for slot in shop.get(f"/v1/events/{event}").json["slots"])


def test_batches_answer_each_request_by_itself(shop: Running) -> None:
    a, b = fresh(), fresh()
    body = {
        "requests": [
            {"event_id": a, "features": named(X, 0)},
            {"event_id": b, "features": {"f1": 1}, "eligible": ["nothing"]},
            {"event_id": b, "features": named(X, 1), "k": 2},
            {"event_id": a, "features": named(X, 5)},
            {"event_id": a, "features": named(X, 0)},
        ]
    }
    results = shop.post("/v1/decide/batch", body).json["results"]
    assert [r["status"] for r in results] == [200, 422, 200, 409, 200]
    assert results[0]["decision"] == results[4]["decision"] == shop.post("/v1/decide", body["requests"][0]).json
    assert results[1]["error"]["code"] == "unknown_arm"
    assert shop.post("/v1/decide/batch", body).json["results"] == results
    arms = [slot["arm"] for slot in results[0]["decision"]["slots"]]
    rewards = {
        "requests": [
            {"event_id": a, "rewards": {arms[0]: 1, arms[1]: 0}},
            {"event_id": "nobody", "rewards": {"a1": 1}},
            {"event_id": b, "rewards": {"zzz": 1}},
        ]
    }
    stored = shop.post("/v1/reward/batch", rewards).json["results"]
    assert [r["status"] for r in stored] == [200, 404, 422]
    assert stored[0]["reward"] == {"event_id": a, "stored": 2, "repeated": 0}
    twice = shop.post("/v1/reward/batch", {"requests": [rewards["requests"][0]] * 2})
    assert twice.status == 422


def test_an_event_as_logged(shop: Running) -> None:
    d = decided(shop, k=2, exclude=["a3"])
    e = shop.get(f"/v1/events/{d['event_id']}").json
    assert [s["arm"] for s in e["slots"]] == [s["arm"] for s in d["slots"]]
    assert (e["epoch"], e["model"], e["policy"]["k"], e["eligible"][:1]) == (0, "000000", 2, "-")
    assert e["features"]["indices"] == X[0].indices.tolist()
    unknown = shop.get("/v1/events/nobody")
    assert (unknown.status, unknown.code) == (404, "unknown_event")


def test_explanations(shop: Running) -> None:
    view = shop.post("/v1/explain", {"features": named(X, 0), "top": 1000}).json
    assert view["single"] + view["nodes"] == len(view["effective"])
    assert sum(e["probability"] for e in view["effective"]) == pytest.approx(1)
    assert all((e["arm"] is None) != (e["node"] is None) for e in view["effective"])
    assert sum(e["arms_below"] for e in view["effective"]) == 60
    d = decided(shop)
    again = shop.post("/v1/explain", {"event_id": d["event_id"], "top": 1000}).json
    assert again["effective"] == view["effective"]
    assert "effective arms" in again["words"]
    for wrong in ({}, {"features": {}, "event_id": "x"}, {"event_id": d["event_id"], "exclude": ["a1"]}):
        assert shop.post("/v1/explain", wrong).status == 422
    assert shop.post("/v1/explain", {"event_id": "nobody"}).status == 404


def test_model_health_and_metrics(shop: Running) -> None:
    model = shop.get("/v1/model").json
    assert (model["model"], model["epoch"], model["arms"], model["features"]) == ("000000", 0, 60, 40)
    assert model["policy"]["k"] == 4
    assert model["kept"] == ["000000"]
    assert shop.get("/healthz").json == {"status": "alive"}
    assert shop.get("/readyz").json == {"status": "ready"}
    decided(shop)
    text = shop.get("/metrics").content.decode()
    for name in ("decisions_total", "refit_failures_total", "model_epoch 0.0", "request_seconds_bucket"):
        assert f"treetop_{name}" in text
    assert 'treetop_requests_total{route="/v1/decide",status="200"}' in text


def test_the_description_names_every_route(shop: Running) -> None:
    described = shop.get("/openapi.json").json
    assert described["openapi"].startswith("3.1")
    wanted = {
        "/v1/decide",
        "/v1/reward",
        "/v1/decide/batch",
        "/v1/reward/batch",
        "/v1/events/{event_id}",
        "/v1/explain",
        "/v1/model",
        "/v1/refit",
        "/v1/rollback",
        "/v1/unpin",
        "/v1/arms",
        "/v1/arms/new",
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/attributes",
        "/v1/catalogue",
        "/v1/sets/{name}",
        "/v1/experiments",
        "/v1/experiments/change",
    }
    assert set(described["paths"]) == wanted
    assert "ServedDecision" in json.dumps(described["components"])


def test_the_client_speaks_for_all_of_it(shop: Running) -> None:
    with shop.client() as client:
        assert client.ready()
        shown = client.decide(named(X, 0), k=2)
        assert client.reward(shown.event_id, {shown.arms[0]: 1})["stored"] == 1
        batch = client.decide_batch([{"x": X[1]}, {"x": X[2], "eligible": ["who"]}])
        assert len(batch[0].arms) == 4  # type: ignore[union-attr]
        assert batch[1].code == "unknown_arm"  # type: ignore[union-attr]
        results = client.reward_batch({shown.event_id: {shown.arms[1]: 0.5}, "nobody": {"a1": 1}})
        assert results[0] == {"event_id": shown.event_id, "stored": 1, "repeated": 0}
        assert results[1].status == 404  # type: ignore[union-attr]
        assert client.explain(X[0], top=3)["epoch"] == 0
        assert client.model()["arms"] == 60
