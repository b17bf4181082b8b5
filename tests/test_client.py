"""The client against a service that drops, refuses and dawdles: it sends again what is safe, and nothing else."""

import doctest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.flaky import OK, Flaky, refusal, serving
from helpers.running import running

import treetop
from treetop.bandit.config import Config, TreeConfig
from treetop.client import asynchronous, blocking
from treetop.errors import ServiceUnreachable


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    with serving() as server:
        yield server


def test_what_got_lost_is_sent_again_with_the_same_id(flaky: Flaky) -> None:
    flaky.plan = ["drop", refusal(503, **{"Retry-After": "0"}), refusal(429), refusal(502), OK]
    with treetop.Client(flaky.url, token="secret", pause=0.001) as client:
        assert client.decide({"f": 1.0}).arms == ["a"]
    bodies = [body for _, _, body, _ in flaky.heard]
    assert len(bodies) == 5
    assert all(body == bodies[0] for body in bodies)
    assert len(bodies[0]["event_id"]) == 32
    assert {token for *_, token in flaky.heard} == {"Bearer secret"}


def test_it_waits_as_long_as_it_was_asked_to(flaky: Flaky) -> None:
    slept: list[float] = []
    flaky.plan = [refusal(503, **{"Retry-After": "7"}), OK]
    with pytest.MonkeyPatch.context() as patch, treetop.Client(flaky.url, pause=0.001) as client:
        patch.setattr("treetop.client.blocking.time.sleep", slept.append)
        client.decide({"f": 1.0})
    assert slept == [7.0]


def test_what_was_refused_is_an_error_at_once(flaky: Flaky) -> None:
    with treetop.Client(flaky.url, pause=0.001) as client:
        for status in (400, 401, 404, 409, 422, 500):
            flaky.plan = [refusal(status, "because")]
            with pytest.raises(treetop.ServiceError, match=rf"no \({status} because\)") as caught:
                client.reward("x", {"a": 1})
            assert (caught.value.status, caught.value.code, caught.value.stored) == (status, "because", {"a": 0.5})
        assert len(flaky.heard) == 6
        flaky.plan = [(200, {}, b"<html>")]
        with pytest.raises(treetop.ServiceError, match="not_json"):
            client.model()


def test_it_gives_up(flaky: Flaky) -> None:
    flaky.plan = ["drop"] * 10
    with treetop.Client(flaky.url, retries=2, pause=0.001) as client:
        with pytest.raises(ServiceUnreachable, match="does not answer"):
            client.decide({"f": 1.0})
        assert len(flaky.heard) == 3
        assert not client.ready()
    with treetop.Client("http://127.0.0.1:9", retries=1, pause=0.001) as client, pytest.raises(ConnectionError):
        client.model()


def test_what_is_not_safe_is_sent_once(flaky: Flaky) -> None:
    with treetop.Client(flaky.url, pause=0.001) as client:
        calls: list[Callable[[], Any]] = [client.refit, client.roll_back, lambda: client.change_arms(add=["x"])]
        for call in calls:
            flaky.plan, flaky.heard = [refusal(503)], []
            with pytest.raises(treetop.ServiceError):
                call()
            assert len(flaky.heard) == 1


def test_rows_of_numbers_go_by_their_columns(flaky: Flaky) -> None:
    flaky.plan = [OK, OK]
    with treetop.Client(flaky.url) as client:
        arms: list[str | int] = ["a", 7]
        client.decide(np.array([0.0, 2.0, 0.0, 1.5]), event_id=5, k=2, eligible=iter(arms))
        client.decide({"dense": [1, 2]}, exclude=[])
    assert flaky.heard[0][2] == {
        "event_id": 5,
        "features": {"indices": [1, 3], "values": [2.0, 1.5]},
        "k": 2,
        "eligible": ["a", 7],
    }
    assert flaky.heard[1][2]["features"] == {"dense": [1, 2]}
    assert flaky.heard[1][2]["exclude"] == []


@pytest.mark.parametrize("url", ["127.0.0.1:8700", "ftp://x", "http://", ""])
def test_a_bad_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="it must be http://host:port"):
        treetop.Client(url)


def test_the_examples_of_the_docstrings(tmp_path: Path) -> None:
    X = np.eye(4, dtype=np.float32)
    arms, features = ["mint", "rose", "oolong", "sencha"], ["fresh", "floral", "dark", "grassy"]
    small = Config(tree=TreeConfig(max_leaf=2))
    treetop.Bandit.create(tmp_path / "tea", arms, X, X, features=features, config=small).close()
    with running(tmp_path / "tea") as service:
        for module, least in ((blocking, 13), (asynchronous, 8)):
            found = doctest.testmod(module, extraglobs={"url": service.url}, optionflags=doctest.ELLIPSIS)
            assert found.attempted >= least
            assert found.failed == 0
