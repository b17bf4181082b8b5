"""The owner's items on the command line: which files and columns, and what a bandit made of them knows at first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.item_files import ItemColumns, read_items
from treetop.bandit.past_log import PastSummary
from treetop.cli.output import errors
from treetop.data.datasets import Dataset


@dataclass(frozen=True)
class InitialItems:
    """The items of the owner's catalogue."""

    items: Annotated[
        Path | None, typer.Option(help="The items, a row each: a .csv, .jsonl or .parquet file. Needs no DATA.")
    ] = None
    id: Annotated[str, typer.Option(help="Their column of ids.")] = "id"
    vectors: Annotated[Path | None, typer.Option(help="A .npy file with a vector for each item.")] = None
    vector_column: Annotated[str | None, typer.Option(help="Their column of vectors, instead of a file.")] = None
    other_space: Annotated[
        bool, typer.Option("--other-space", help="Contexts' vectors lie in another space: the map is learned.")
    ] = False
    category: Annotated[str | None, typer.Option(help="Their column of categories: 'dept 3 > cat 7', or lists.")] = None
    attributes: Annotated[
        str | None,
        typer.Option(
            help="Columns that requests may filter by: in_stock,price,brand, as flags, numbers or text, "
            "whatever their values are; code:text, in_stock:flag and price:number say it."
        ),
    ] = None

    def columns(self) -> ItemColumns:
        names = tuple(name.strip() for name in (self.attributes or "").split(",") if name.strip())
        return ItemColumns(self.id, self.vector_column, self.category, names)

    def check(self) -> None:
        """Raises ValueError for an option that says something about items that are not given."""
        about = ("vectors", "vector_column", "category", "attributes")
        if self.items is None and (wrong := next((name for name in about if getattr(self, name) is not None), None)):
            raise ValueError(f"--{wrong.replace('_', '-')} says something about --items, which are not given")
        if self.other_space and self.vectors is None and self.vector_column is None:
            raise ValueError("--other-space says something about vectors, which are not given")

    def read(self, dataset: Dataset | None, quiet: bool) -> Catalogue | None:
        """The catalogue of the items, None if they are not given; those of a dataset in the order of its arms."""
        if self.items is None:
            return None
        with _progress(quiet) as progress:
            found = read_items(self.items, self.columns(), self.vectors, progress)
        found = replace(found, same_space=not self.other_space)
        return found if dataset is None or dataset.arm_names is None else _in_order(found, dataset.arm_names)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.completed:>9,} items read"), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=quiet, transient=True) as bars:
        task = bars.add_task("items", total=None)
        yield lambda done: bars.update(task, completed=done)


def _in_order(found: Catalogue, names: Any) -> Catalogue:
    """The items that a dataset's arms are called by, in their order."""
    ids = found.ids or ()
    place = {str(arm): i for i, arm in enumerate(ids)}
    if missing := next((name for name in names if str(name) not in place), None):
        raise ValueError(f"the data has an arm {missing!r}, which is not among the {len(ids):,} items")
    if len(ids) != len(names):
        raise ValueError(f"{len(ids):,} items for the {len(names):,} arms of the data")
    at = [place[str(name)] for name in names]
    vectors: Any = found.vectors
    return replace(
        found,
        ids=[ids[i] for i in at],
        vectors=None if vectors is None else vectors.csr()[at],
        categories=None if found.categories is None else [found.categories[i] for i in at],
        attributes={name: [values[i] for i in at] for name, values in (found.attributes or {}).items()},
    )


def first_knowledge(bandit: Bandit, catalogue: Catalogue, past: PastSummary | None) -> list[str]:
    """What a new bandit knows when it decides for the first time, in sentences; `past` is the log that it learned."""
    snapshot = bandit.snapshot
    model, table, tree = snapshot.model, snapshot.attributes, snapshot.model.tree
    leaves = tree.n_nodes - len(np.unique(tree.parents[1:]))
    how = "the order of the items"
    if table.categories is not None:
        without = int((table.categories.code == 0).sum())
        how = f"{len(table.categories.paths) - 1:,} categories"
        how += f" ({without:,} items have none)" if without else ""
    elif catalogue.vectors is not None:
        how = "the items' vectors"
    said = [f"Tree: {leaves:,} leaves of at most {bandit.config.tree.max_leaf} items, by {how}."]
    names = bandit.vocabulary.names
    given = len(names) if names else bandit.vocabulary.given
    features = f"{given:,} {'named ' if names else ''}features" if given else "no features"
    if bandit.vocabulary.room:
        features += f" and room for {bandit.vocabulary.room:,} more"
    near, learned = "", past is not None and past.rewards > 0
    if catalogue.vectors is not None:
        numbers = model.n_features if model.measure is None else model.measure.place[1]
        how = "are near"
        if model.context_map is not None:
            how = "the learned map finds near" if learned else "a map at random, until one is learned, finds near"
        near = f"items whose vectors {how} the context's {numbers:,} numbers"
    if past is not None and learned:
        share = f"{past.items:,} of {model.n_arms:,} items"
        said.append(
            f"First decision: learned from {past.decisions:,} decisions of the log with {past.rewards:,} rewards, "
            f"which showed {share}; {f'else {near}' if near else f'contexts have {features}'}."
        )
    elif near:
        said.append(f"First decision: {near}.")
    else:
        first = bandit.config.refit.first
        said.append(
            f"First decision: nothing is known of any item, so the first ones are shown most; contexts have "
            f"{features}. "
            f"It learns from the first refit on, after {first:,} rewarded decisions, or from a log: treetop import."
        )
    if past is not None:
        left = {"rows of unknown items": past.skipped, "unknown features": past.unknown_features}
        said += [f"Left out: {count:,} {what} of the log." for what, count in left.items() if count]
        if not past.rewards:
            said.append("The log has no reward: nothing was learned from it.")
    if vectors := bandit.vocabulary.vectors:
        parts = ", ".join(f"{name} ({dims:,} numbers)" for name, (_, dims) in vectors.items())
        others = given - sum(dims for _, dims in vectors.values())
        said.append(f"Contexts have {parts} and {others:,} features more." if others else f"Contexts have {parts}.")
    if model.n_features == 0:
        said.append("Without features all contexts are the same: --features names those that requests will carry.")
    kinds = [f"{name} ({column.kind}, {len(column.order):,})" for name, column in table.columns.items()]
    if kinds:
        said.append(f"Requests may filter by {', '.join(kinds)}.")
    return said
