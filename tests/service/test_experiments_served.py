"""Experiments over HTTP with two workers: started, seen, promoted, by requests and by the command beside a service."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import call
from helpers.problems import topics
from helpers.running import Running, named, running, settings, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.bandit.experiment_config import ExperimentConfig
from treetop.bandit.results import same_decision

X, Y = topics()
FRESH = itertools.count(2000)  # an id that was decided before keeps its variant
VARIANTS = {"now": {"share": 0.5}, "sure": {"share": 0.5, "explore": 0}}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("experiments") / "shop"
    small_bandit(folder, X, Y, config=settings(experiments={"draws": ExperimentConfig(VARIANTS)}))
    with running(folder, "--workers", "2") as service:
        yield service


def visit(shop: Running, i: int) -> Any:
    body = {"features": named(X, i % 300), "event_id": f"visit-{i}", "keys": {"visitor": i // 2}, "k": 2}
    found = shop.post("/v1/decide", body).json
    good = float(i % 10 < (8 if found["variant"] == "sure" else 2))
    shop.post("/v1/reward", {"event_id": f"visit-{i}", "rewards": {found["slots"][0]["arm"]: good}})
    return found


def test_every_worker_goes_by_an_experiment_and_its_end(shop: Running) -> None:
    """Each request has a connection of its own, so that both workers get some."""
    nothing = shop.get("/v1/experiments").json
    assert (nothing["name"], nothing["running"], nothing["defined"]) == (None, False, ["draws"])
    assert visit(shop, 1000)["variant"] is None
    assert shop.post("/v1/experiments/change", {"action": "start", "name": "other"}).code == "experiment"
    assert shop.post("/v1/experiments/change", {"action": "start"}).status == 422
    assert shop.post("/v1/experiments/change", {"action": "stop"}).status == 409
    started = shop.post("/v1/experiments/change", {"action": "start", "name": "draws"})
    assert started.status == 200, started.json
    assert started.json["running"]
    again = shop.post("/v1/experiments/change", {"action": "start", "name": "draws"})
    assert "experiment 'draws' runs" in again.json["error"]["message"]
    shop.wait_for(lambda: all(visit(shop, next(FRESH))["variant"] for _ in range(40)))
    seen: dict[int, set[str]] = {}
    for i in range(300):
        seen.setdefault(i // 2, set()).add(visit(shop, i)["variant"])
    assert all(len(variants) == 1 for variants in seen.values())
    found = shop.get("/v1/experiments").json
    assert [variant["name"] for variant in found["variants"]] == ["now", "sure"]
    assert sum(variant["visits"] for variant in found["variants"]) >= 300
    sure = found["variants"][1]
    assert (sure["share"], sure["settings"], sure["verdict"]) == (0.5, {"explore": 0}, "better")
    assert sure["difference"]["low"] > 0
    assert found["history"][-1]["rewards"]["sure"] == sure["reward"]
    logged = shop.get("/v1/events/visit-1").json["policy"]
    assert logged["experiment"] == "draws"
    assert logged["variant"] in VARIANTS
    assert shop.get("/metrics").content.count(b"treetop_experiment_running 1.0") == 1
    with Bandit.open(shop.folder) as bandit:
        assert all(same_decision(*bandit.replay(f"visit-{i}")) for i in range(0, 300, 7))
    assert "sure" in shop.get("/").content.decode()


def test_the_command_beside_a_running_service(shop: Running) -> None:
    shown = json.loads(call("experiment", "show", str(shop.folder), "--json").stdout)
    assert shown["running"]
    assert json.loads(call("evaluate", str(shop.folder), "--experiment", "draws", "--json").stdout)["name"] == "draws"
    text = call("experiment", "show", str(shop.folder)).stdout
    assert "better" in text
    assert "hold at all times" in text
    assert "decides all visits now" in call("experiment", "promote", str(shop.folder), "sure").stdout
    shop.wait_for(lambda: all(visit(shop, next(FRESH))["variant"] is None for _ in range(6)))
    found = [visit(shop, 4000 + i) for i in range(8)]
    assert not any(slot["explored"] for served in found for slot in served["slots"])
    assert shop.get("/v1/model").json["policy"]["explore"] == 0
    assert shop.get("/v1/experiments").json["running"] is False
    assert shop.process.poll() is None
