"""Tokens and their scopes: who may do what, and that no secret is ever written."""

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import shell
from helpers.playing import X, Y
from helpers.running import Answer, named, running, small_bandit

from treetop.service.tokens import ADDRESSES, FREE_GUESSES, Guesses


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def test_tokens_and_their_scopes(folder: Path, tmp_path: Path) -> None:
    tokens = {"read": "r" * 20, "write": "w" * 20, "admin": "a" * 20}
    file = tmp_path / "tokens"
    file.write_text("# ours\n" + "".join(f"{scope} {token}\n" for scope, token in tokens.items()))
    file.chmod(0o600)
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
            every = ("Bearer wrong", "Bearer ", "Basic !!", "Bearer " + "r" * 19, "r" * 20)
            for given in (None, *(every if path == "/v1/model" else every[:1])):
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
def test_bad_tokens_are_refused_at_the_start(folder: Path, tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "tokens").write_text(line + "\n")
    (tmp_path / "tokens").chmod(0o600)
    ended = shell("serve", str(folder), "--tokens", str(tmp_path / "tokens"))
    assert ended.returncode == 2
    assert message in re.sub(r"\s+", " ", ended.stderr)
    assert "x" * 20 not in ended.stderr


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602])
def test_a_file_of_secrets_that_others_may_read_is_refused(folder: Path, tmp_path: Path, mode: int) -> None:
    tokens, address = tmp_path / "tokens", tmp_path / "address"
    tokens.write_text("read " + "x" * 20 + "\n")
    address.write_text("postgresql://shop:xxxxxxxx@127.0.0.1/shop\n")
    for file, option in ((tokens, "--tokens"), (address, "--log-file")):
        file.chmod(mode)
        ended = shell("serve", str(folder), option, str(file))
        assert ended.returncode == 2
        text = re.sub(r"\s+", " ", ended.stderr)
        assert f"{file} holds secrets and others may read or change it (its mode is {mode:04o}): chmod 600" in text
        assert "xxxx" not in text


def test_a_file_for_the_log_has_one_address(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "address"
    for text in ("", "# a remark\n", "one\ntwo\n"):
        file.write_text(text)
        file.chmod(0o600)
        ended = shell("serve", str(folder), "--log-file", str(file))
        assert (ended.returncode, "the address of one log is needed" in ended.stderr) == (2, True)
    both = shell("serve", str(folder), "--log-file", str(file), "--log", "x")
    assert (both.returncode, "not both" in both.stderr) == (2, True)


def test_guesses_are_told_to_wait_and_right_tokens_are_answered(folder: Path) -> None:
    token = "everything" * 2

    def guess(number: int) -> Answer:
        return service.ask("GET", "/v1/model", headers={"authorization": f"Bearer wrong-{number}"})

    with running(folder, environment={"TREETOP_TOKEN": token}) as service:
        for _ in range(FREE_GUESSES + 5):  # without a token nobody guesses
            assert service.get("/v1/model").status == 401
        assert service.ask("GET", "/v1/model", headers={"authorization": f"Bearer {token}"}).status == 200
        assert {guess(i).status for i in range(FREE_GUESSES)} == {401}
        waits = []
        for i in range(3):
            answer = guess(i)
            assert (answer.status, answer.code) == (429, "too_many")
            waits.append(int(answer.headers["retry-after"]))
        assert 0 < waits[0] < waits[1] < waits[2]
        page = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
        form = service.ask("POST", "/dashboard/login", b"token=wrong", page)
        assert (form.status, int(form.headers["retry-after"]) > waits[2]) == (429, True)
        assert service.ask("GET", "/", headers={"authorization": "Bearer wrong"}).status == 429
        assert service.ask("GET", "/v1/model", headers={"authorization": f"Bearer {token}"}).status == 200
        assert service.ask("POST", "/dashboard/login", f"token={token}".encode(), page).status == 303
        (line,) = service.said("tokens are being guessed")
        assert line["address"] == "127.0.0.1"


def test_what_is_guessed_too_fast_is_not_even_compared(folder: Path) -> None:
    token = "everything" * 2
    with running(folder, environment={"TREETOP_TOKEN": token}) as service:
        for i in range(FREE_GUESSES + 1):
            service.ask("GET", "/v1/model", headers={"authorization": f"Bearer wrong-{i}"})
        lucky = service.ask("GET", "/v1/model", headers={"authorization": f"Bearer {token}"})
        assert (lucky.status, lucky.code) == (429, "too_many")


def test_only_so_many_addresses_are_remembered() -> None:
    guesses = Guesses()
    for _ in range(FREE_GUESSES + 1):
        assert guesses.wrong("first", now=0.0) == 0 or _ == FREE_GUESSES
    for i in range(ADDRESSES + 100):
        assert guesses.wrong(f"10.{i}", now=0.0) == 0
    assert len(guesses._addresses) == ADDRESSES
    assert guesses.wrong("first", now=0.0) == 0
