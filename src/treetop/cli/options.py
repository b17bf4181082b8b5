"""Options that commands share, and a way to hand them over in groups.

A group is a dataclass whose fields are annotated as typer wants them. `grouped` shows typer a command with all fields
of its groups as options of their own, and calls the command with the groups made from them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

DATA_HELP = "debian, synthetic:like=amazon-670k, a set of the paper such as eurlex-4k, or a file or folder."
K_HELP = "Arms shown a round."
EXPLORE_HELP = "How many of them are drawn by the strategy."
BEAM_HELP = "Nodes that survive on each level of the search."
OBSERVER_HELP = "Slots the learner observes: all, each:c=0.5, cascade (to the first click) or position:decay=0.8."
FIRST_HELP = (
    "Rounds before the first refit, --factor times as many before the next: 4096 for paper, 256 for treetop. With as "
    "many as --horizon or more nothing is refitted: the start alone is played."
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text for people.")]
Data = Annotated[str, typer.Argument(help=DATA_HELP)]
DataDir = Annotated[Path | None, typer.Option(help="Where the files of a set of the paper lie; here if not given.")]
Seeds = Annotated[list[int], typer.Option("--seed", help="Seed of shuffling, tree and draws; repeatable.")]
Ray = Annotated[
    str,
    typer.Option(
        help="The Ray cluster to run on: auto, the one that this machine belongs to (ray start), or ray://host:10001; "
        "without a cluster, here, if not given."
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; called again, it goes on there.")]


@dataclass(frozen=True)
class StreamOptions:
    """The rows to initialise from and the rounds to play."""

    init: Annotated[
        int | None,
        typer.Option(help="Rows for tree and routing; 5000, or all of a synthetic set's own, or the paper's."),
    ] = None
    horizon: Annotated[
        int | None, typer.Option(help="Rounds, with replacement beyond the data; all rows if none, or the paper's.")
    ] = None
    seed: Seeds = field(default_factory=lambda: [0])
    data_dir: DataDir = None


@dataclass(frozen=True)
class ModelOptions:
    """Tree, reward models and when they are refitted."""

    max_leaf: Annotated[
        int | None, typer.Option(help="Arms in a leaf at most; 10 if not given, 100 from 100,000 arms on.")
    ] = None
    split: Annotated[str, typer.Option(help="Tree: kmeans or cocluster.")] = "kmeans"
    loss: Annotated[str, typer.Option(help="Reward models: squared or absolute (the paper's LinearSVR).")] = "squared"
    first_epoch: Annotated[int | None, typer.Option(help=FIRST_HELP)] = None
    factor: Annotated[
        float | None, typer.Option(help="How the rounds seen grow from refit to refit: 2 for paper, 1.05 for treetop.")
    ] = None


@dataclass(frozen=True)
class OutputOptions:
    """Where results go."""

    out: Out = None
    as_json: Json = False


@dataclass(frozen=True)
class GridOptions(OutputOptions):
    """Where runs are played, and where results go."""

    ray: Ray = ""


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its groups as options of their own, in the order of its parameters."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        options = _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]
        if taken := parameters.keys() & {option.name for option in options}:
            raise TypeError(f"{command.__name__} has the option {sorted(taken)[0]!r} twice")
        parameters |= {option.name: option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options}

    @wraps(command)
    def call(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**made, **given)

    call.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return call


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=_default(f), annotation=hints[f.name])
        for f in fields(group)
    ]


def _default(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return inspect.Parameter.empty if option.default is MISSING else option.default
