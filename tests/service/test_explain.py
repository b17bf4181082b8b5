"""Explanations: the arms that could be shown are counted, and events of older models do not take the service over."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import Running, running, settings, small_bandit

from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.errors import Problem
from treetop.log.records import Event
from treetop.model.model import Model
from treetop.service import explanations
from treetop.service.admin import in_words
from treetop.service.explanations import WAITING, Explanations
from treetop.service.schema import Effective

X, Y = topics()


@pytest.fixture
def bandit(tmp_path: Path) -> Iterator[Bandit]:
    """Four models, the last of which serves; event i was decided by model i."""
    folder = small_bandit(tmp_path / "shop", X, Y)
    with Bandit.open(folder) as bandit:
        for i in range(4):
            bandit.decide(X[i], event_id=str(i), exclude=[f"a{j}" for j in range(0, 60, 2)])
            if i < 3:
                bandit.refit()
        yield bandit


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that were loaded."""
    seen: list[str] = []
    load = Model.load

    def noted(folder: Any) -> Model:
        seen.append(Path(folder).name)
        return load(folder)

    monkeypatch.setattr(Model, "load", noted)
    return seen


def test_words_say_what_the_chance_is_of() -> None:
    """No decision has it whose slots are not all drawn."""
    best, other = Effective("mint", None, 1, 1.0, 0.5, 0.1, "tea"), Effective(None, 3, 7, 0.2, 0.4, 0.9)
    assert in_words([best, other], 2, 1) == (
        "Of 2 effective arms (1 single arms and 1 groups), arm mint (tea) scores highest with 0.5; "
        "if every slot were drawn, the first would show it with chance 0.1."
    )


def test_categories_are_named_whatever_model_serves_by_now(tmp_path: Path) -> None:
    arms = Catalogue(["mint", "rose"], categories=["tea > green", "tea > red"])
    with Bandit.create(tmp_path / "tea", arms, features=["mobile"]) as bandit:
        bandit.reward("visit", {bandit.decide({"mobile": 1.0}, "visit").arms[0]: 1.0})
        event = bandit.event("visit")
        bandit.refit()
        older = Explanations(bandit).snapshot_of(event.event)
        assert older.name != bandit.snapshot.name
        assert older.attributes.categories is not None


def test_only_arms_that_could_be_shown_are_counted_below_a_node(shop: Running) -> None:
    even = [f"a{i}" for i in range(0, 60, 2)]

    def counted(**request: Any) -> int:
        effective = shop.post("/v1/explain", {**request, "top": 1000}).json["effective"]
        assert any(entry["node"] is not None for entry in effective)
        return sum(entry["arms_below"] for entry in effective)

    features = {f"f{i}": float(v) for i, v in zip(X[0].indices, X[0].data, strict=True)}
    assert counted(features=features) == 60
    assert counted(features=features, exclude=even[:7]) == 53
    assert counted(features=features, eligible=even) == 30
    shop.post("/v1/decide", {"event_id": "even", "features": features, "eligible": even})
    assert counted(event_id="even") == 30


def decided_by(model: str) -> Event:
    none: Any = np.zeros(0, np.int32)
    slots = dict.fromkeys(("arms", "propensities", "scores", "explored", "nodes", "index", "value"), none)
    return Event("any", int(model), **slots, time=0.0, request=b"", model=model, tree="", policy="{}")


def asked(thread: Explanations, *names: str) -> list[str]:
    """The names of the snapshots of models that are asked for at once."""

    async def ask() -> list[str]:
        events = [decided_by(name) for name in names]
        found = await asyncio.gather(*(thread.run(partial(thread.snapshot_of, event)) for event in events))
        return [snapshot.name for snapshot in found]

    return asyncio.run(ask())


def test_an_older_model_is_loaded_once_for_all_who_ask(bandit: Bandit, loads: list[str]) -> None:
    thread = Explanations(bandit)
    assert asked(thread, *["000001"] * (1 + WAITING)) == ["000001"] * (1 + WAITING)
    assert loads == ["000001"]
    assert asked(thread, "000002", "000003", "000002", "000001") == ["000002", "000003", "000002", "000001"]
    assert loads == ["000001", "000002", "000001"]  # 000003 serves
    thread.close()


def test_when_too_many_wait_the_others_are_told_to_come_back(bandit: Bandit) -> None:
    thread, free = Explanations(bandit), threading.Event()

    async def ask() -> list[Any]:
        calls = [asyncio.create_task(thread.run(lambda: free.wait(60))) for _ in range(32)]
        refused, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        assert refused
        free.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(ask())
    assert [answer for answer in found if not isinstance(answer, Problem)] == [True] * (1 + WAITING)
    refused = [answer for answer in found if isinstance(answer, Problem)]
    assert len(refused) == 31 - WAITING
    assert {(problem.status, problem.code) for problem in refused} == {(429, "busy")}
    assert refused[0].headers == [(b"retry-after", b"1")]
    thread.close()


def test_the_thread_rests_after_a_call(bandit: Bandit, monkeypatch: pytest.MonkeyPatch) -> None:
    thread, slept, now = Explanations(bandit), list[float](), [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: now[0], sleep=slept.append)
    monkeypatch.setattr(explanations, "time", clock)

    def work() -> None:
        now[0] += 2.0

    async def ask() -> None:
        for _ in range(2):
            await thread.run(work)

    asyncio.run(ask())
    assert slept == [0.0, 2.0 * explanations.REST]
    thread.close()


def test_a_model_that_nobody_uses_is_let_go(bandit: Bandit, loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Explanations(bandit)
    asked(thread, "000001")
    thread.expire()
    asked(thread, "000001")
    assert loads == ["000001"]
    monkeypatch.setattr(explanations, "KEPT_FOR", 0.0)
    thread.expire()
    asked(thread, "000001")
    assert loads == ["000001", "000001"]
    thread.close()


@pytest.mark.parametrize(("model", "damaged"), [("000009", False), ("000001", True)], ids=["gone", "damaged"])
def test_a_model_that_cannot_be_read_is_said_to_be_gone(bandit: Bandit, model: str, damaged: bool) -> None:
    thread = Explanations(bandit)
    if damaged:
        (bandit.folder.model_path(model) / "leaf_of.npy").write_bytes(b"")
    with pytest.raises(Problem, match=f"model {model} decided it and is not kept any more") as caught:
        asked(thread, model)
    assert (caught.value.status, caught.value.code) == (409, "model_not_kept")
    thread.close()


def test_many_who_ask_for_events_of_older_models(bandit: Bandit) -> None:
    """Each is answered or told to wait; decisions go on, and the explanations are those of the right model."""
    path = bandit.folder.path
    bandit.close()
    with running(path) as service, ThreadPoolExecutor(32) as callers:
        asked = [callers.submit(service.post, "/v1/explain", {"event_id": str(i % 3)}) for i in range(96)]
        for i in range(20):
            assert service.post("/v1/decide", {"features": {"f1": 1.0 + i}}).status == 200
        answers = [(i % 3, call.result()) for i, call in enumerate(asked)]
        assert {answer.status for _, answer in answers} <= {200, 429}
        for i, answer in answers:
            if answer.status == 200:
                assert answer.json["model"] == f"00000{i}"
            else:
                assert (answer.code, answer.headers["retry-after"]) == ("busy", "1")
        with service.client() as client:  # which comes back
            assert client.explain(event_id="1")["model"] == "000001"


def test_an_event_of_a_model_that_is_not_kept(tmp_path: Path) -> None:
    chosen = settings(refit=config.RefitConfig(first=10**9, keep=2, keep_gb=0))
    folder = small_bandit(tmp_path / "shop", X, Y, config=chosen)
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="old")
        for _ in range(2):
            bandit.refit()
    with running(folder) as service:
        gone = service.post("/v1/explain", {"event_id": "old"})
        assert (gone.status, gone.code) == (409, "model_not_kept")
