"""The commands of sealed rounds, of erasure and of rebuilt trees: seal, erase, rebuild. Parse, call, print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from treetop.bandit.bandit import Bandit
from treetop.bandit.erasure import erase_events
from treetop.bandit.sealing import seal_anew, seal_folder, take_over_sums
from treetop.cli.folder import Folder, LogAt
from treetop.cli.options import Json, Ray
from treetop.cli.output import console, errors, is_shown
from treetop.display import counted
from treetop.log.keys import as_keys


def seal(
    folder: Folder,
    rest: Annotated[bool, typer.Option("--rest", help="Also rounds that do not fill a segment.")] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Delete all segments first, and sums of rounds the log lost.")
    ] = False,
    log: LogAt = None,
    as_json: Json = False,
) -> None:
    """Seals the rounds of a log whose rewards have been waited for, into segments that refits read. It may be in use.

    Every refit does this by itself, unless segments.seal is false in config.toml.

    Example: treetop seal shop --rest
    """
    with Bandit.open(folder, log) as bandit, _progress(as_json, "sealed", "rounds") as progress:
        model, config = bandit.snapshot.model, bandit.config
        if anew:
            seal_anew(bandit.folder, bandit.log, config.segments, model.tree)
        found = seal_folder(bandit.folder, bandit.log, config.segments, model.tree, rest, progress)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    new = f"{counted(found.rounds, 'round')} sealed in {counted(found.segments, 'segment')}"
    new += f", and {counted(found.late_rewards, 'late reward')}"
    size = f"{found.sealed_bytes / 1e6:,.1f} MB"
    words = f"{new}; now {counted(found.sealed_rounds, 'round')} in {counted(found.sealed_segments, 'segment')}, {size}"
    console.print(words, highlight=False, soft_wrap=True)


def rebuild(folder: Folder, log: LogAt = None, ray: Ray = "", as_json: Json = False) -> None:
    """Makes tree and routing anew from labels and rewards, and refits. The bandit may be serving meanwhile.

    It serves unless it is clearly worse: it is first fitted without the newest rounds and judged on them, and a clear
    loser is kept aside while the model that serves serves on. Arms, ids and the log stay as they are. Without --ray it
    runs where config.toml says (ray, in its section refit).

    Example: treetop rebuild shop
    """
    with Bandit.open(folder, log) as bandit:
        if ray:
            bandit.config = replace(bandit.config, refit=replace(bandit.config.refit, ray=ray))
        found = bandit.rebuild()
    if as_json:
        print(json.dumps(asdict(found)))
        return
    words = f"model {found.model} has a new tree, from {counted(found.rounds, 'round')}, and serves"
    if found.aside:
        words = f"model {found.model} has a new tree and is kept aside: {found.aside}"
    console.print(f"{words} ({found.seconds:,.1f} s)", highlight=False, soft_wrap=True)


def erase(
    folder: Folder,
    key: Annotated[list[str], typer.Option(help="NAME=VALUE, as the requests carried it; repeatable.")],
    log: LogAt = None,
    as_json: Json = False,
) -> None:
    """Erases every event that carries a key, from log, segments and deltas, and what free space still holds of it.

    The next refit learns from what is left. SQLite's file is written anew, and decisions wait meanwhile.

    Example: treetop erase shop --key visitor=123
    """
    keys = [as_keys({name: value})[0] for name, value in map(_name_and_value, key)]
    with Bandit.open(folder, log) as bandit, _progress(as_json, "erased", "events") as progress:
        take_over_sums(bandit.folder, bandit.log, bandit.config.segments, bandit.snapshot.model.tree)
        found = erase_events(bandit.folder, bandit.log, keys, progress)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    files = f"{found.files:,} segments and deltas were written again or deleted"
    none = "" if found.events else f" (none carries {' or '.join(key)})"
    words = f"erased {counted(found.events, 'event')}{none}; {files}"
    console.print(words, highlight=False, soft_wrap=True)
    if found.summed:
        words = f"{found.summed:,} of them are still in sums without contexts, which cannot be taken apart"
        console.print(f"{words} (docs/segments.md)", highlight=False, soft_wrap=True)


def _name_and_value(key: str) -> tuple[str, str]:
    name, sign, value = key.partition("=")
    if not sign:
        raise ValueError(f"--key is {key!r}; NAME=VALUE is needed, such as visitor=123")
    return name, value


@contextmanager
def _progress(quiet: bool, what: str, of: str) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn(what), TextColumn("{task.completed:>9,} " + of), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=not is_shown(quiet), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done: bars.update(task, completed=done)
