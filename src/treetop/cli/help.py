"""Help and usage errors as the documents write: flags without a type, arguments in capitals, an error on one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

USAGE_ERROR: Any = typer.BadParameter.__base__  # click's UsageError; some versions of typer have a copy of their own


def _named(parameters: Iterable[Any]) -> list[Any]:
    """The parameters as help shows them: DATA instead of data, --json without <bool>."""
    found = list(parameters)
    for parameter in found:
        if parameter.metavar is None:
            if parameter.param_type_name == "argument":
                parameter.metavar = parameter.name.upper()
            elif parameter.is_flag:
                parameter.metavar = ""
    return found


class PlainCommand(TyperCommand):
    """A command whose usage reads `treetop tune [OPTIONS] DATA`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _named(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


class PlainGroup(TyperGroup):
    """All commands, with the same help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _named(super().get_params(ctx))


def unwrapped(command: Callable[..., None]) -> str:
    """A docstring with a line for each paragraph and each example: a terminal has its own width.

    >>> def tea():
    ...     \"\"\"Makes tea, and
    ...     waits.
    ...
    ...     Example: tea green
    ...     Example: tea black --milk
    ...              --sugar
    ...     \"\"\"
    >>> unwrapped(tea)
    'Makes tea, and waits.\\n\\nExample: tea green\\nExample: tea black --milk --sugar'
    """
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()).replace(" Example: ", "\nExample: ") for part in paragraphs)


def usage_problem(error: Any) -> str:
    """What was typed wrong, and where help is; nothing if the help has just been shown instead."""
    what = error.format_message().replace("Value error, ", "").strip().rstrip(".")  # pydantic's word
    where = error.ctx.command_path if error.ctx else "treetop"
    return f"{what}; {where} --help says more" if what else ""
