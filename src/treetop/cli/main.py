"""The command line: joins the groups of commands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.markup import escape

from treetop._version import __version__
from treetop.cli import folder, log, replicas, segments
from treetop.cli.bench import bench
from treetop.cli.demo import demo
from treetop.cli.evaluate import evaluate_
from treetop.cli.experiment import experiment
from treetop.cli.help import USAGE_ERROR, PlainCommand, PlainGroup, unwrapped, usage_problem
from treetop.cli.init import init
from treetop.cli.output import errors
from treetop.cli.paper import report, reproduce
from treetop.cli.simulate import simulate, tune
from treetop.errors import TreetopError

GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {"demo": demo, "init": init, "serve": folder.serve},
    "Run": {
        "evaluate": evaluate_,
        "experiment": experiment,
        "rebuild": segments.rebuild,
        "replay": folder.replay,
        "join": replicas.join_,
    },
    "Log": {
        "export": log.export,
        "import": log.import_,
        "forget": log.forget,
        "seal": segments.seal,
        "erase": segments.erase,
    },
    "Research": {"simulate": simulate, "tune": tune, "reproduce": reproduce, "report": report, "bench": bench},
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

app = typer.Typer(
    cls=PlainGroup,
    help="Top-k contextual bandits over millions of arms.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
for panel, group in GROUPS.items():
    for name, command in group.items():
        app.command(name, cls=PlainCommand, help=unwrapped(command), rich_help_panel=panel)(command)


def main() -> None:
    """Runs a command; what the user got wrong is one line on stderr and exit code 2, not a stack trace."""
    try:
        sys.exit(app(prog_name="treetop", standalone_mode=False) or 0)
    except USAGE_ERROR as error:
        words = usage_problem(error)
    except OSError as error:
        words = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
    except (TreetopError, ValueError, TypeError) as error:
        words = str(error)
    if words:
        errors.print("[bold red]error:[/]", escape(words), highlight=False, soft_wrap=True)
    sys.exit(2)


def _print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def front(
    show: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_print_version)] = False,
) -> None:
    """Top-k contextual bandits over millions of arms."""
