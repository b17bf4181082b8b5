"""Three services with folders of their own, one log in PostgreSQL, one store: what one learns, all serve."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

from helpers.commands import call
from helpers.postgres import Server, new_schema
from helpers.problems import topics
from helpers.running import Running, named, running, settings, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import RefitConfig, ReplicaConfig, SegmentConfig
from treetop.bandit.experiment_config import ExperimentConfig
from treetop.bandit.results import same_decision
from treetop.bandit.sealing import seal_folder, segment_folder
from treetop.service.replicas import follow_erased

X, Y = topics()
LEASE = 3.0
Visits = dict[str, tuple[str, float]]  # event id: an arm that was shown, and its reward


def visit(replicas: list[Running], count: int, visits: Visits) -> None:
    """Every replica decides in turn; the next one is told of the reward."""
    for i in range(count):
        name = f"visit-{len(visits)}"
        with replicas[i % len(replicas)].client() as client:
            served = client.decide(named(X, len(visits) % X.shape[0]), event_id=name)
        value = float(i % 2)
        with replicas[(i + 1) % len(replicas)].client() as client:
            client.reward(name, {served.arms[0]: value})
        visits[name] = (str(served.arms[0]), value)


def die(service: Running) -> None:
    """As a host does: all of its processes at once."""
    for pid in (service.process.pid, *service.workers()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    service.process.wait(30)


def leaders(replicas: list[Running]) -> list[Running]:
    return [replica for replica in replicas if replica.said("leads")]


def test_one_learns_all_serve_and_when_it_dies_another_takes_over(tmp_path: Path, server: Server) -> None:
    log, store, visits = new_schema(server), str(tmp_path / "store"), Visits()
    config = settings(refit=RefitConfig(first=24, factor=1.5), replicas=ReplicaConfig(store, LEASE))
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    small_bandit(folders[0], X, Y, config=config, log=log)
    with ExitStack() as stack:
        replicas = [stack.enter_context(running(folders[0], "--log", log))]
        for folder in folders[1:]:
            joined = json.loads(call("join", str(folder), store, "--log", log, "--json").stdout)
            assert joined["model"] == "000000"
            replicas.append(stack.enter_context(running(folder, "--log", log)))

        visit(replicas, 30, visits)
        for replica in replicas:
            replica.wait_for(lambda replica=replica: replica.model_is("000001"))
        assert leaders(replicas) == replicas[:1]
        assert replicas[1].post("/v1/arms", {"add": ["new"]}).status == 200
        with replicas[2].client() as client:  # before or after it has followed
            served = client.decide(named(X, 0), event_id="visit-new", eligible=["new"])
        with replicas[0].client() as client:
            client.reward("visit-new", {"new": 1.0})
        assert served.arms == ["new"]
        visits["visit-new"] = ("new", 1.0)

        die(replicas[0])
        left = replicas[1:]
        visit(left, 30, visits)
        for replica in left:
            replica.wait_for(lambda replica=replica: replica.get("/v1/model").json["epoch"] == 3)
        assert len(leaders(left)) == 1

        back = stack.enter_context(running(folders[0], "--log", log))
        back.wait_for(lambda: back.model_is(left[0].get("/v1/model").json["model"]))
        visit([back, *left], 6, visits)

    for folder in folders:
        with Bandit.open(folder, log) as bandit:
            assert bandit.log.counts().decisions == len(visits)
            for name, (arm, value) in visits.items():
                event, again = bandit.replay(name)
                assert same_decision(event, again)
                stored = bandit.event(name)
                slot = bandit.served(stored.event).arms.index(arm)
                assert stored.rewards[slot] == value


def test_a_variant_that_one_promotes_decides_on_all(tmp_path: Path, server: Server) -> None:
    """Its settings too, on a host that is down meanwhile as well."""
    log, store = new_schema(server), str(tmp_path / "store")
    variants = {"now": {"share": 0.5}, "sure": {"share": 0.5, "explore": 0, "beam": 7}}
    config = settings(replicas=ReplicaConfig(store, LEASE), experiments={"draws": ExperimentConfig(variants)})
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    small_bandit(folders[0], X, Y, config=config, log=log)
    with ExitStack() as stack:
        replicas = [stack.enter_context(running(folders[0], "--log", log))]
        for folder in folders[1:]:
            call("join", str(folder), store, "--log", log)
        replicas.append(stack.enter_context(running(folders[1], "--log", log)))
        started = replicas[0].post("/v1/experiments/change", {"action": "start", "name": "draws"})
        assert started.status == 200, started.json
        replicas[1].wait_for(lambda: replicas[1].get("/v1/experiments").json["running"])
        said = call("experiment", "promote", str(folders[1]), "sure", "--log", log).stdout
        assert "decides all visits now" in said
        replicas.append(stack.enter_context(running(folders[2], "--log", log)))
        for replica in replicas:
            replica.wait_for(lambda replica=replica: replica.get("/v1/model").json["policy"]["beam"] == 7)
        visits = Visits()
        visit(replicas, 9, visits)
        assert not any(replica.get("/v1/experiments").json["running"] for replica in replicas)
    for folder in folders:
        with Bandit.open(folder, log) as bandit:
            assert (bandit.config.policy.explore, bandit.config.policy.beam) == (0, 7)
            for name in visits:
                event, again = bandit.replay(name)
                assert same_decision(event, again)
                assert not event.explored.any()


def test_what_another_replica_erased_leaves_the_segments_of_this_one(tmp_path: Path) -> None:
    """It does not lead, so nothing else would look at its segments."""
    config = settings(segments=SegmentConfig(wait_seconds=0.0))
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y, config=config)) as bandit:
        for i in range(6):
            bandit.decide(named(X, i), keys={"visitor": str(i % 2)})
        seal_folder(bandit.folder, bandit.log, config.segments, bandit.snapshot.model.tree, rest=True)
        bandit.log.erase(("visitor", "1"))

        async def until_followed() -> int:
            following = asyncio.create_task(follow_erased(bandit))
            while (rounds := segment_folder(bandit.folder).manifest()) is None or rounds.rounds == 6:
                await asyncio.sleep(0.01)
                assert not following.done()
            following.cancel()
            return rounds.rounds

        assert asyncio.run(asyncio.wait_for(until_followed(), 30)) == 3
