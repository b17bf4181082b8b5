"""Groups of options: typer sees every field as an option of its own, the command gets the groups."""

import inspect
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from treetop.cli.main import COMMANDS
from treetop.cli.options import grouped


@dataclass(frozen=True)
class Sizes:
    rounds: Annotated[int, typer.Option(help="How many.")] = 7
    beam: Annotated[list[int], typer.Option("--width", help="How wide; repeatable.")] = field(
        default_factory=lambda: [10]
    )


def test_fields_are_options_and_the_command_gets_the_group() -> None:
    seen: list[Any] = []

    @grouped
    def play(
        data: Annotated[str, typer.Argument(help="What.")],
        sizes: Sizes,
        quick: Annotated[bool, typer.Option("--quick")] = False,
    ) -> None:
        """Plays."""
        seen.append((data, sizes, quick))

    app = typer.Typer()
    app.command()(play)
    for words in (["x"], ["x", "--rounds", "3", "--width", "1", "--width", "2", "--quick"]):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert seen == [("x", Sizes(), False), ("x", Sizes(3, [1, 2]), True)]
    text = CliRunner().invoke(app, ["--help"]).output
    for part in ("Plays.", "How many.", "default: 7", "How wide; repeatable.", "default: 10", "--width", "--quick"):
        assert part in text


def test_an_option_that_two_groups_have_is_refused() -> None:
    def play(sizes: Sizes, more: Sizes) -> None:
        """Plays."""

    with pytest.raises(TypeError, match="play has the option 'beam' twice"):
        grouped(play)


@pytest.mark.parametrize("name", ["bench", "demo", "report", "reproduce", "simulate", "tune"])
def test_commands_have_few_parameters(name: str) -> None:
    command = inspect.unwrap(COMMANDS[name])
    assert len(command.__code__.co_varnames[: command.__code__.co_argcount]) <= 7
