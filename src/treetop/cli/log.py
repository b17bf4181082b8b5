"""The commands that move logs, export and import: parse, call, print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from treetop.bandit.folder import LOG
from treetop.cli.options import Json
from treetop.cli.output import console, errors
from treetop.errors import LogError
from treetop.log.open import open_log
from treetop.log.transfer import export_log, form, import_log

Where = Annotated[str, typer.Argument(help="A bandit's folder, a log file, or a postgresql:// address.")]
FILE = "name.jsonl (JSON lines) or name.parquet (needs pyarrow)."


def export(
    log: Where, file: Annotated[Path, typer.Argument(help=f"The file to write: {FILE}")], as_json: Json = False
) -> None:
    """Writes all of a log to one file: decisions, rewards, marks. The log may be in use.

    Example: treetop export shop decisions.parquet
    """
    form(file)
    where = _address(log)
    if isinstance(where, Path) and not where.is_file():
        raise LogError(f"there is no log {where}")
    with open_log(where) as opened, _progress(as_json, "exported") as progress:
        n = export_log(opened, file, progress)
    if as_json:
        print(json.dumps({"file": str(file), "decisions": n}))
    else:
        console.print(f"{file}: {n:,} decisions", highlight=False, soft_wrap=True)


def import_(
    log: Where, file: Annotated[Path, typer.Argument(help=f"The file to read: {FILE}")], as_json: Json = False
) -> None:
    """Adds all of an exported file to a log, or nothing of it; what is there already is left as it is.

    Example: treetop import postgresql://shop@127.0.0.1/shop decisions.parquet
    """
    form(file)
    with open_log(_address(log)) as opened, _progress(as_json, "imported") as progress:
        found = import_log(opened, file, progress)
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        words = f"{found.decisions:,} decisions and {found.rewards:,} rewards; {found.known:,} decisions were known"
        console.print(words, highlight=False, soft_wrap=True)


def _address(log: str) -> str | Path:
    if log.startswith(("postgresql://", "postgres://")):
        return log
    return Path(log) / LOG if Path(log).is_dir() else Path(log)


@contextmanager
def _progress(quiet: bool, what: str) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn(what), TextColumn("{task.completed:>9,} decisions"), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=quiet, transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done: bars.update(task, completed=done)
