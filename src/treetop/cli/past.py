"""The log of another system on the command line: which columns are what, for `import` and for `init`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from treetop.arrays import as_rows
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.past_log import PastSummary, import_past
from treetop.bandit.past_values import ROLES, PastColumns, context_columns, feature_names
from treetop.bandit.vocabulary import VECTOR, Vocabulary, part_names
from treetop.cli.output import errors, is_shown
from treetop.cli.progress import steps
from treetop.display import counted

COLUMNS_HELP = (
    f"Which column is what, as role=column,...; the roles are {', '.join(ROLES)}. Not named: item and reward are the "
    "columns called so, the others are not there."
)


@dataclass(frozen=True)
class PastOptions:
    """What the columns of another system's log are."""

    columns: Annotated[str | None, typer.Option(help=f"For the log of another system. {COLUMNS_HELP}")] = None
    features: Annotated[str, typer.Option(help="With --columns: those that are features of the context.")] = ""
    contexts: Annotated[
        Path | None, typer.Option(help="With --columns: a .npy file of contexts; context=COLUMN says which row.")
    ] = None
    context_key: Annotated[
        str | None, typer.Option(help="With --contexts: the column that says which row; the same as context=COLUMN.")
    ] = None
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="With --columns: leave out rows of items that are not known.")
    ] = False

    def check(self) -> None:
        """Raises ValueError for an option that needs --columns."""
        if self.features or self.contexts or self.context_key or self.skip_unknown:
            raise ValueError("--features, --contexts, --context-key and --skip-unknown go with --columns")

    def roles(self) -> PastColumns:
        found = PastColumns.of(self.columns or "", self.features)
        return found if self.context_key is None else replace(found, context=self.context_key)


@dataclass(frozen=True)
class InitialLog:
    """What another system has shown: the bandit learns it before its first decision."""

    log: Annotated[
        Path | None, typer.Option(help="A log of what another system showed of the items, an item a row.")
    ] = None
    columns: Annotated[str, typer.Option(help=f"Of --log. {COLUMNS_HELP}")] = ""
    log_features: Annotated[str, typer.Option(help="Columns of --log that are features of the context.")] = ""
    contexts: Annotated[Path | None, typer.Option(help="A .npy file of contexts, for --context-key.")] = None
    context_key: Annotated[str | None, typer.Option(help="The column of --log that says which row it is.")] = None
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out rows of --log whose items are not known.")
    ] = False

    def check(self) -> None:
        """Raises ValueError for an option that says something about a log that is not given."""
        given = {"columns", "log_features", "contexts", "context_key", "skip_unknown"}
        if self.log is None and (wrong := next((name for name in sorted(given) if getattr(self, name)), None)):
            raise ValueError(f"--{wrong.replace('_', '-')} says something about --log, which is not given")

    def roles(self) -> PastColumns:
        return PastOptions(self.columns, self.log_features, self.contexts, self.context_key).roles()

    def feature_names(self, catalogue: Catalogue) -> Sequence[str] | None:
        """The features that contexts of the log have, for a bandit that was not told any; None if vectors say it."""
        if self.log is None:
            return None
        roles, vectors = self.roles(), catalogue.vectors
        given = 0 if vectors is None else as_rows(vectors).columns
        named = feature_names(self.log, roles if self.contexts is None else replace(roles, context=None))
        width = given if self.contexts is None else context_columns(self.contexts)
        if not named and width == given:
            return None
        by_name = width and len(named) >= width and not any("=" in name for name in named[:width])
        if not width or by_name or Vocabulary(len(named), named).vectors:
            return named
        if not named and vectors is None:
            return [str(i) for i in range(width)]
        return *part_names({VECTOR: width}), *named

    def learn(self, bandit: Bandit, quiet: bool) -> PastSummary | None:
        """Imports the log and learns it; None if there is none."""
        if self.log is None:
            return None
        with shown_progress(quiet, "imported") as progress:
            found, _ = import_past(
                bandit,
                self.log,
                self.roles(),
                contexts=self.contexts,
                skip_unknown=self.skip_unknown,
                progress=progress,
            )
        if found.rewards:
            with steps(quiet) as step:
                step(f"learning {counted(found.decisions, 'decision')} of the log")
                bandit.refit()
        return found

    @contextmanager
    def place(self, folder: Path) -> Iterator[Path]:
        """Where to make the folder: beside it if a log is to be learned, so that it appears when all of it is done."""
        if self.log is None:
            yield folder
            return
        work = folder.with_name(f".{folder.name}.treetop-log-{os.getpid()}")
        try:
            yield work
            os.replace(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def shown_progress(quiet: bool, what: str) -> Iterator[Callable[[int], None]]:
    """Counts decisions on stderr while it works."""
    columns = (TextColumn(what), TextColumn("{task.completed:>9,} decisions"), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=not is_shown(quiet), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done: bars.update(task, completed=done)
