"""A refit that is waited for: the answer comes when the new model serves, when it failed, or when waiting was long."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.problems import topics
from helpers.running import running, small_bandit

from treetop.errors import Problem
from treetop.service import admin, schema
from treetop.service.http import Raw
from treetop.service.refit_scheduler import BUSY, NOTHING, SUPERSEDED, RefitEnd

X, Y = topics()


def test_the_answer_comes_when_the_new_model_serves(tmp_path: Path) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y)
    with running(folder) as service, service.client() as client:
        client.decide(X[0])
        assert service.post("/v1/refit", {"wait": True}).json == {"status": "done", "model": "000001"}
        assert client.model()["epoch"] == 1
        assert client.decide(X[1]).epoch == 1
        assert client.refit(wait=True) == {"status": "done", "model": "000002"}
        assert client.refit() == {"status": "started"}
        service.wait_for(lambda: service.model_is("000003") and not client.model()["refit"]["running"])
        (folder / "label_samples" / "manifest.json").unlink()
        failed = service.post("/v1/refit", {"wait": True})
        assert (failed.status, failed.code) == (500, "refit_failed")
        assert "manifest.json" in failed.json["error"]["message"]
        assert client.model()["epoch"] == 3


def asked(end: RefitEnd | None) -> Any:
    """The answer to a request that waits for a refit with this end, or with none."""
    never = asyncio.Event()

    async def refit() -> RefitEnd:
        if end is None:
            await never.wait()
        assert end is not None
        return end

    async def ask() -> Any:
        run = asyncio.create_task(refit())
        bandit = SimpleNamespace(folder=SimpleNamespace(state=lambda: SimpleNamespace(check_not_pinned=lambda: None)))
        service: Any = SimpleNamespace(
            bandit=bandit, counts=lambda: SimpleNamespace(decisions=1), refits=SimpleNamespace(start_now=lambda: run)
        )
        found = await admin.refit(service, schema.RefitRequest(wait=True))
        assert not run.cancelled()  # waiting ends, the refit does not
        return found

    return asyncio.run(ask())


def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "REFIT_WAIT", 0.01)
    assert asked(None) == Raw(schema.RefitAnswer("started"), 202)


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        (BUSY, 409, "busy"),
        (NOTHING, 409, "nothing_to_learn"),
        (SUPERSEDED, 409, "superseded"),
        (-9, 500, "refit_failed"),
        (None, 500, "refit_failed"),
    ],
)
def test_a_refit_without_a_model_is_a_refusal_with_its_reason(end: int | None, status: int, code: str) -> None:
    with pytest.raises(Problem, match="the refit made no model: because") as caught:
        asked(RefitEnd(end, "because"))
    assert (caught.value.status, caught.value.code) == (status, code)
