"""The commands of logs, export, import and forget: parse, call, print."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from treetop.arrays import check_float
from treetop.bandit.bandit import Bandit
from treetop.bandit.config_file import CONFIG, read_config
from treetop.bandit.folder import CURRENT, LOG, BanditFolder
from treetop.bandit.forgetting import sum_up_before
from treetop.bandit.ownership import check_owner, claim_log
from treetop.bandit.past_log import import_past
from treetop.bandit.retention import DAY, RetentionState
from treetop.bandit.sealing import follow_deletions, segment_folder
from treetop.cli.dsjson import DsjsonIn, DsjsonOut, is_dsjson
from treetop.cli.folder import Folder, LogAt
from treetop.cli.options import Json, grouped
from treetop.cli.output import console
from treetop.cli.past import PastOptions, shown_progress
from treetop.display import counted
from treetop.errors import LogError
from treetop.log.open import open_log
from treetop.log.records import Restored
from treetop.log.retention import forget_in_steps
from treetop.log.slot_table import export_slots
from treetop.log.transfer import export_log, form, import_log

Where = Annotated[str, typer.Argument(help="A bandit's folder, a log file, or a postgresql:// address.")]
FILE = "name.jsonl (JSON lines) or name.parquet (needs pyarrow)."


@grouped
def export(
    log: Where,
    file: Annotated[Path, typer.Argument(help=f"The file to write: {FILE}")],
    rows: Annotated[
        str, typer.Option(help="decisions, with all that belongs to each; or slots, a row each (Parquet).")
    ] = "decisions",
    dsjson: DsjsonOut = DsjsonOut(),  # noqa: B008
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Json = False,
) -> None:
    """Writes all of a log to one file: decisions, rewards, marks. The log may be in use.

    With --rows slots the file is for analysis, by DuckDB or pandas, and cannot be imported again. With --format dsjson
    Vowpal Wabbit trains on it (docs/bridges.md); --log says where the log of the folder is.

    Example: treetop export shop slots.parquet --rows slots
    """
    as_dsjson = is_dsjson(dsjson)
    if not as_dsjson:
        form(file)
        if rows not in ("decisions", "slots"):
            raise ValueError(f"--rows is {rows!r}; it must be decisions or slots")
    if file.exists() and not force:
        raise ValueError(f"{file} is there already; --force replaces it")
    if as_dsjson:
        with shown_progress(as_json, "exported") as progress:
            dsjson.write(log, file, as_json, progress)
        return
    where = _address(log)
    _check_there(where)
    with open_log(where) as opened, shown_progress(as_json, "exported") as progress:
        if rows == "slots":
            folder = BanditFolder(Path(log)) if (Path(log) / CURRENT).exists() else None
            segments = None if folder is None else segment_folder(folder)
            ids = None if folder is None else folder.arm_index(folder.state()).ids
            n = export_slots(opened, file, segments, ids, progress)
        else:
            n = export_log(opened, file, progress)
    if as_json:
        print(json.dumps({"file": str(file), rows: n}))
    else:
        console.print(f"{file}: {counted(n, rows.removesuffix('s'))}", highlight=False, soft_wrap=True)


def _import_past(folder: str, log: str | None, file: Path, past: PastOptions, as_json: bool) -> None:
    if not (Path(folder) / CURRENT).exists():
        raise ValueError(
            f"{folder} is not a bandit's folder, which the log of another system needs: items have its ids"
        )
    with Bandit.open(folder, log) as bandit, shown_progress(as_json, "imported") as progress:
        found, restored = import_past(
            bandit, file, past.roles(), contexts=past.contexts, skip_unknown=past.skip_unknown, progress=progress
        )
    if as_json:
        print(json.dumps({**asdict(found), "known": restored.known, "imported": restored.decisions}))
        return
    words = _restored(restored)
    words += f"; {counted(found.skipped, 'row')} of unknown items left out" if found.skipped else ""
    words += f"; {counted(found.unknown_features, 'unknown feature')} left out" if found.unknown_features else ""
    console.print(words, highlight=False, soft_wrap=True)


@grouped
def import_(
    log: Where,
    file: Annotated[
        Path, typer.Argument(help="An exported log, .jsonl or .parquet; or another system's, .csv, .jsonl or .parquet.")
    ],
    past: PastOptions,
    new: Annotated[bool, typer.Option("--new", help="Make a log file that is not there yet.")] = False,
    dsjson: DsjsonIn = DsjsonIn(),  # noqa: B008
    as_json: Json = False,
) -> None:
    """Adds all of an exported file to a log, or nothing of it; what is there already is left as it is.

    Only a file of the same bandit is taken, unless the log is empty and nobody's. With --columns it is a log of what
    another system has shown instead, an item a row, as .csv, .jsonl or .parquet, for a bandit's folder; a .csv file is
    always one, with the columns item and reward if --columns does not say it. With --format dsjson, lines of Vowpal
    Wabbit's become decisions of a bandit's folder (docs/bridges.md).

    Example: treetop import postgresql://shop@127.0.0.1/shop decisions.parquet
    Example: treetop import shop past.csv --columns item=sku,reward=clicked,propensity=p,position=place
    """
    if is_dsjson(dsjson):
        with shown_progress(as_json, "imported") as progress:
            dsjson.read(log, file, as_json, progress)
        return
    if past.columns is not None or ".csv" in (file.suffix, file.with_suffix("").suffix):
        _import_past(log, dsjson.log_at, file, past, as_json)
        return
    past.check()
    form(file)
    folder = BanditFolder(Path(log)) if (Path(log) / CURRENT).exists() else None
    where = (dsjson.log_at if folder else None) or _address(log)
    if folder is None and not new:
        _check_there(where, "; --new makes one")
    with file.open("rb"), open_log(where) as opened, shown_progress(as_json, "imported") as progress:
        if folder is None:
            found = import_log(opened, file, progress)
        else:
            claim_log(folder, opened)
            limits = read_config(folder.path / CONFIG).rewards.limits
            found = import_log(opened, file, progress, lambda owner: check_owner(folder, owner, str(file)), limits)
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        console.print(_restored(found), highlight=False, soft_wrap=True)


def _restored(found: Restored) -> str:
    were = "was" if found.known == 1 else "were"
    counts = f"{counted(found.decisions, 'decision')} and {counted(found.rewards, 'reward')}"
    return f"{counts}; {counted(found.known, 'decision')} {were} known"


def forget(
    folder: Folder,
    before: Annotated[
        str | None,
        typer.Option(help="What was decided before: 2025-01-31 or 2025-01-31T12:00+01:00; UTC if it is bare."),
    ] = None,
    days: Annotated[float | None, typer.Option(help="What is older than so many days.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it; otherwise only say how much it is.")] = False,
    log: LogAt = None,
    as_json: Json = False,
) -> None:
    """Says how many old decisions a log has, and with --yes deletes them and their rewards. The log may be in use.

    The service does this by itself if keep_days is set. If it refuses to, because the clock jumped or because all
    decisions look too old, --yes confirms that the clock is right, and the service goes on.

    Example: treetop forget shop --days 90 --yes
    """
    until = _moment_before(before, days)
    where = (folder / LOG) if log is None else _address(log)
    owner = BanditFolder(folder)
    owner.state()
    _check_there(where)
    with open_log(where) as opened:
        claim_log(owner, opened)
        counts, older, newest = opened.counts(), opened.count_before(until), opened.newest_time()
        refused, deleted = RetentionState.read(opened).refused, 0
        if yes:
            with Bandit.open(folder, log) as bandit:  # what is deleted counts on as sums
                now = bandit.snapshot
                owner = bandit.folder  # with what replicas share
                sum_up_before(owner, bandit.log, bandit.config, now.model, now.arms, until, time.time())
            with shown_progress(as_json, "deleted") as progress:
                for count, pause in forget_in_steps(opened, until):
                    deleted += count
                    progress(deleted)
                    time.sleep(pause)
            follow_deletions(owner, opened)
            RetentionState(confirmed=time.time()).store(opened)
            owner.note("decisions forgotten", count=deleted, before=until)
    facts = {
        "before": _text(until),
        "decisions": counts.decisions - counts.forgotten,
        "newest": None if newest is None else _text(newest),
        "older": older,
        "deleted": deleted,
        "refused": refused or None,
    }
    if as_json:
        print(json.dumps(facts))
        return
    words = f"{older:,} of {facts['decisions']:,} decisions are from before {facts['before']}"
    words += "" if newest is None else f"; the newest is of {facts['newest']}"
    console.print(words, highlight=False, soft_wrap=True)
    if refused:
        console.print(f"The service refused to delete: {refused}.", highlight=False, markup=False, soft_wrap=True)
    console.print(f"Deleted {deleted:,}." if yes else "Nothing was deleted; --yes does it.", highlight=False)


def _moment_before(before: str | None, days: float | None) -> float:
    """The time before which decisions are old, in seconds since 1970."""
    if (before is None) == (days is None):
        raise ValueError("give --before or --days, one of the two")
    if days is not None:
        return time.time() - check_float("days", days, 0, 1e6) * DAY
    assert before is not None
    return moment("--before", before)


def moment(option: str, text: str) -> float:
    """A time on the command line, in seconds since 1970; UTC if it is bare."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{option} is {text!r}; a date such as 2025-01-31 or 2025-01-31T12:00 is needed") from None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _address(log: str) -> str | Path:
    if log.startswith(("postgresql://", "postgres://")):
        return log
    return Path(log) / LOG if Path(log).is_dir() else Path(log)


def _check_there(where: str | Path, hint: str = "") -> None:
    if isinstance(where, Path) and not where.is_file():
        raise LogError(f"there is no log {where}{hint}")
