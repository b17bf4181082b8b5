"""The commands of a bandit's folder: serve, replay. Parse, call, print."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from treetop.bandit.bandit import Bandit
from treetop.bandit.results import same_decision
from treetop.cli.options import Json, grouped
from treetop.cli.output import console

Folder = Annotated[Path, typer.Argument(help="The bandit's folder.")]
LogAt = Annotated[
    str | None,
    typer.Option("--log", envvar="TREETOP_LOG", help="postgresql://... or a path; the folder's own if not given."),
]


@dataclass(frozen=True)
class Listening:
    """Where the service listens, and how many processes answer."""

    host: Annotated[
        str, typer.Option(envvar="TREETOP_HOST", help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(envvar="TREETOP_PORT", help="Port to listen on; 0 takes a free one.")] = 8700
    workers: Annotated[int, typer.Option(envvar="TREETOP_WORKERS", help="Processes that answer.")] = 1


@dataclass(frozen=True)
class Secrets:
    """What others must not read. Files with secrets may be readable for their owner only."""

    log: LogAt = None
    log_file: Annotated[
        Path | None,
        typer.Option(envvar="TREETOP_LOG_FILE", help="A file with the address for --log, password included."),
    ] = None
    tokens: Annotated[
        Path | None,
        typer.Option(
            envvar="TREETOP_TOKENS_FILE",
            help="A file of tokens, a line each: 'read,write TOKEN'. Or set TREETOP_TOKEN, one for everything.",
        ),
    ] = None


@grouped
def serve(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(envvar="TREETOP_FOLDER", help="The bandit's folder.")],
    listening: Listening,
    secrets: Secrets,
    as_json: Json = False,
) -> None:
    """Serves decisions, rewards, refits and the dashboard over HTTP until SIGTERM or Ctrl-C.

    The service's log is JSON lines on stderr, with or without --json.

    Example: treetop serve shop --port 8700
    """
    _check_extra()
    from treetop.service import serve as serving

    typed = {name for name in ("log", "log_file") if _is_typed(context, name)}
    log = _log_address(secrets, typed)
    serving.become_service(folder, listening.host, listening.port, listening.workers, log, secrets.tokens)


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option comes from the command line, not from the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _log_address(given: Secrets, typed: set[str]) -> str | None:
    """The log's address, from an option, the environment or a file; `typed` options come before the environment."""
    from treetop.service import logs
    from treetop.service.secret_files import password_of, read_address

    if given.log and given.log_file and len(typed) != 1:
        raise ValueError("give the log's address or a file with it, not both (--log, --log-file)")
    if given.log_file is not None and typed != {"log"}:
        return read_address(given.log_file)
    if given.log and "log" in typed and password_of(given.log) is not None:
        logs.set_up()
        why = "everyone on this machine can read them: use TREETOP_LOG, --log-file or PGPASSFILE"
        logs.log_event("a password in the arguments", logging.WARNING, why=why)
    return given.log


def _check_extra() -> None:
    """Refuses to serve without what the extra `serve` installs, before any port is open."""
    for name in ("uvicorn", "starlette", "httptools", "prometheus_client"):
        if find_spec(name) is None:
            raise ValueError(f"serving needs {name}: pip install 'treetop-bandits[serve]'")


def serve_demo(folder: Path, rounds: int, seed: int, port: int, rate: float, as_json: bool) -> None:
    """`treetop demo --serve`: prints the address of the dashboard, as JSON or as text, and serves."""
    _check_extra()
    from treetop.service import demo_traffic

    def announce(url: str) -> None:
        if as_json:
            print(json.dumps({"url": url, "folder": str(folder)}), flush=True)
        else:
            console.print(f"Dashboard: [bold]{url}[/]   folder: {folder}   Ctrl-C ends it.", highlight=False)

    demo_traffic.serve_demo(folder, rounds, seed, port, rate, announce)


def replay(
    folder: Folder,
    event: Annotated[str, typer.Argument(help="The id of a logged decision.")],
    log: LogAt = None,
    as_json: Json = False,
) -> None:
    """Computes a logged decision again from its model and compares the two. Exit code 1 if they differ.

    Example: treetop replay shop visit-1
    """
    with Bandit.open(folder, log) as bandit:
        logged, again = bandit.replay(event)
        agrees, served = same_decision(logged, again), bandit.served(logged)
        facts = {"event_id": event, "model": logged.model, "epoch": served.epoch, "same": agrees}
    if as_json:
        print(json.dumps({**facts, "slots": [asdict(slot) for slot in served.slots]}))
    else:
        console.print(f"{event}: model {logged.model}, epoch {served.epoch}, decided again: ", end="")
        console.print("[green]the same[/]" if agrees else "[red]not the same[/]")
        for place, slot in enumerate(served.slots, 1):
            via = "" if slot.via is None else f" via node {slot.via}"
            how = ("explored" if slot.explored else "greedy") + via
            numbers = f"score {slot.score:+.4f}  propensity {slot.propensity:.3g}"
            line = f"  {place}. {slot.arm!s:<24} {numbers}  {how}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not agrees:
        raise typer.Exit(1)
