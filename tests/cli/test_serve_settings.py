"""The settings of `treetop serve`: options, environment variables, and which of them comes first."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from helpers.commands import call

from treetop.cli.main import app


def test_every_setting_of_serve_has_an_environment_variable() -> None:
    """Containers and units set variables: `serve --help` and docs/service.md name one for each option."""
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    text = re.sub(r"\s+", " ", call("serve", "--help").output)
    documented = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    for option in command.params:
        if option.name in ("as_json", "help"):
            continue  # no settings
        assert option.envvar, f"{option.name} has no environment variable"
        assert option.envvar in text
        assert f"`{option.envvar}`" in documented, f"docs/service.md does not name {option.envvar}"
    assert "TREETOP_TOKEN," in text  # a token has no option: everyone could read it
    assert "`TREETOP_TOKEN`" in documented


def test_serve_takes_its_settings_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("treetop.service.serve.become_service", lambda *words: given.append(words))
    tokens, address = tmp_path / "tokens", tmp_path / "address"
    address.write_text("postgresql://shop@db/shop\n")
    address.chmod(0o600)
    values = {"HOST": "::1", "PORT": "1234", "WORKERS": "3", "TOKENS_FILE": str(tokens), "FOLDER": str(tmp_path)}
    for name, value in values.items():
        monkeypatch.setenv(f"TREETOP_{name}", value)
    monkeypatch.setenv("TREETOP_LOG", "somewhere.sqlite")
    call("serve")
    call("serve", "other", "--workers", "2", "--log-file", str(address))  # what is typed comes first
    monkeypatch.delenv("TREETOP_LOG")
    monkeypatch.setenv("TREETOP_LOG_FILE", str(address))
    call("serve")
    call("serve", "--log", "typed.sqlite")
    assert given == [
        (tmp_path, "::1", 1234, 3, "somewhere.sqlite", tokens),
        (Path("other"), "::1", 1234, 2, "postgresql://shop@db/shop", tokens),
        (tmp_path, "::1", 1234, 3, "postgresql://shop@db/shop", tokens),
        (tmp_path, "::1", 1234, 3, "typed.sqlite", tokens),
    ]
