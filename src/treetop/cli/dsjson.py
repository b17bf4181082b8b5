"""What export and import do with --format dsjson: options, call, print."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from treetop.bandit.bandit import Bandit
from treetop.bridges.dsjson_export import export_dsjson
from treetop.bridges.dsjson_import import import_dsjson
from treetop.cli.output import console
from treetop.display import counted

FORMATS = ("treetop", "dsjson")
Format = Annotated[str, typer.Option("--format", help="treetop, or dsjson: Vowpal Wabbit's, of a bandit's folder.")]
LogOfFolder = Annotated[str | None, typer.Option("--log", help="dsjson: the log of the folder, if not its own.")]

LogOfImport = Annotated[
    str | None, typer.Option("--log", envvar="TREETOP_LOG", help="The log of the folder, if not its own.")
]


@dataclass(frozen=True)
class DsjsonOut:
    """How a log is written as dsjson."""

    format_: Format = "treetop"
    problem: Annotated[str, typer.Option(help="dsjson: cb (a line a slot), ccb or slates (a line a decision).")] = "ccb"
    actions: Annotated[int, typer.Option(help="dsjson: arms listed a line; of more, some drawn at random.")] = 1000
    share: Annotated[float, typer.Option(help="dsjson: this part of the decisions, at random; sets pdrop.")] = 1.0
    log_at: LogOfFolder = None

    def write(self, folder: str, file: Path, as_json: bool, progress: Callable[[int], None]) -> None:
        with Bandit.open(folder, self.log_at) as bandit:
            n = export_dsjson(bandit, file, self.problem, actions=self.actions, share=self.share, progress=progress)
        if as_json:
            print(json.dumps({"file": str(file), "decisions": n}))
        else:
            console.print(f"{file}: {counted(n, 'decision')}", highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class DsjsonIn:
    """How dsjson is read into a log."""

    format_: Format = "treetop"
    arm_id: Annotated[str | None, typer.Option(help="dsjson: where an action has its id, such as i.id.")] = None
    add_arms: Annotated[bool, typer.Option("--add-arms", help="dsjson: add arms that the catalogue has not.")] = False
    reward_range: Annotated[
        tuple[float, float], typer.Option(help="dsjson: the least and the largest reward (negated cost).")
    ] = (0.0, 1.0)
    log_at: LogOfImport = None

    def read(self, folder: str, file: Path, as_json: bool, progress: Callable[[int], None]) -> None:
        with Bandit.open(folder, self.log_at) as bandit:
            done = import_dsjson(
                bandit,
                file,
                arm_id=self.arm_id,
                add_arms=self.add_arms,
                reward_range=self.reward_range,
                progress=progress,
            )
        if as_json:
            print(json.dumps(asdict(done)))
        else:
            words = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in asdict(done).items() if count)
            console.print(words or "0 decisions", highlight=False, soft_wrap=True)


def is_dsjson(options: DsjsonOut | DsjsonIn) -> bool:
    """Whether this format is asked for. Raises ValueError for options that do not fit together."""
    if options.format_ not in FORMATS:
        raise ValueError(f"--format is {options.format_!r}; it must be one of {', '.join(FORMATS)}")
    if options.format_ == "treetop":
        other = "log_at" if isinstance(options, DsjsonIn) else ""  # every import into a folder has a log
        for given in fields(options):
            if given.name != other and getattr(options, given.name) != given.default:
                option = "--log" if given.name == "log_at" else f"--{given.name.replace('_', '-')}"
                raise ValueError(f"{option} is for --format dsjson")
    return options.format_ == "dsjson"
