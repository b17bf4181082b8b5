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
from treetop.cli.init import init
from treetop.cli.output import errors
from treetop.cli.paper import report, reproduce
from treetop.cli.simulate import simulate, tune
from treetop.errors import TreetopError

app = typer.Typer(
    help="Top-k contextual bandits over millions of arms.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
COMMANDS: dict[str, Callable[..., None]] = {
    "init": init,
    "serve": folder.serve,
    "join": replicas.join_,
    "replay": folder.replay,
    "evaluate": evaluate_,
    "experiment": experiment,
    "export": log.export,
    "import": log.import_,
    "forget": log.forget,
    "seal": segments.seal,
    "erase": segments.erase,
    "rebuild": segments.rebuild,
    "demo": demo,
    "simulate": simulate,
    "tune": tune,
    "reproduce": reproduce,
    "report": report,
    "bench": bench,
}
for name, command in COMMANDS.items():
    app.command(name)(command)


def main() -> None:
    """Runs a command; what the user got wrong is one line on stderr and exit code 2, not a stack trace."""
    try:
        app()
    except (TreetopError, ValueError, TypeError, OSError) as error:
        errors.print("[bold red]error:[/]", escape(str(error)), highlight=False, soft_wrap=True)
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
