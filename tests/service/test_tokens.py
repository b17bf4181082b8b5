"""Tokens and their scopes: who may do what, and that no secret is ever written."""

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import shell
from helpers.playing import X, Y
from helpers.running import named, running, small_bandit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def test_tokens_and_their_scopes(folder: Path, tmp_path: Path) -> None:
    tokens = {"read": "r" * 20, "write": "w" * 20, "admin": "a" * 20}
    file = tmp_path / "tokens"
    file.write_text("# ours\n" + "".join(f"{scope} {token}\n" for scope, token in tokens.items()))
    calls: list[tuple[str, str, Any]] = [
        ("write", "/v1/decide", {"features": named(X, 0), "event_id": "t"}),
        ("write", "/v1/reward", {}),
        ("write", "/v1/decide/batch", {}),
        ("write", "/v1/reward/batch", {}),
        ("read", "/v1/events/t", None),
        ("read", "/v1/explain", {}),
        ("read", "/v1/model", None),
        ("admin", "/v1/refit", {}),
        ("admin", "/v1/rollback", {}),
        ("admin", "/v1/unpin", {}),
        ("admin", "/v1/arms", {}),
        ("read", "/metrics", None),
        ("read", "/openapi.json", None),
    ]
    with running(folder, "--tokens", str(file), environment={"TREETOP_TOKEN": "everything" * 2}) as service:
        for scope, path, body in calls:
            method = "GET" if body is None else "POST"
            for given in (None, "Bearer wrong", "Bearer ", "Basic !!", "Bearer " + "r" * 19, "r" * 20):
                head = {} if given is None else {"authorization": given}
                answer = service.ask(method, path, body, head)
                assert (answer.status, answer.code) == (401, "unauthorized"), path
                assert answer.headers["www-authenticate"].startswith(("Bearer", "Basic"))
            for other, token in tokens.items():
                status = service.ask(method, path, body, {"authorization": f"Bearer {token}"}).status
                assert (status == 403) == (other != scope), (path, other)
                assert status != 401
            assert service.ask(method, path, body, {"authorization": "bearer " + "everything" * 2}).status not in (
                401,
                403,
            )
        assert service.get("/healthz").status == service.get("/readyz").status == 200
        assert (
            service.ask("GET", "/v1/model", headers={"authorization": "Basic b3BzOnJycnJycnJycnJycnJycnJycnJy"}).status
            == 200
        )
        service.end()
        written = service.lines.read_text()
    for secret in (*tokens.values(), "everything" * 2):
        assert secret not in written


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("read short", "has 5 characters; at least 16"),
        ("all " + "x" * 20, "no scope 'all'"),
        ("nonsense", "not of the form"),
        ("# a remark", "has no token in it"),
        ("", "has no token in it"),
    ],
)
def test_bad_tokens_are_refused_at_the_start(
    folder: Path, tmp_path: Path, line: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREETOP_TOKENS_FILE", "")  # which --tokens sets
    (tmp_path / "tokens").write_text(line + "\n")
    ended = shell("serve", str(folder), "--tokens", str(tmp_path / "tokens"))
    assert ended.returncode == 2
    assert message in re.sub(r"\s+", " ", ended.stderr)
    assert "x" * 20 not in ended.stderr
