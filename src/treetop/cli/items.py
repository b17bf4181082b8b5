"""The owner's items on the command line: which files and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from treetop.bandit.catalogue import Catalogue
from treetop.bandit.item_files import ItemColumns, read_items
from treetop.cli.output import errors, is_shown
from treetop.data.datasets import Dataset
from treetop.tree.vectors import METRICS, check_metric


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
    metric: Annotated[
        str | None,
        typer.Option(help=f"How contexts and vectors are compared: {', '.join(METRICS)}; cosine if not given."),
    ] = None
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
        said = {"--other-space": self.other_space, "--metric": self.metric is not None}
        wrong = next((name for name, is_given in said.items() if is_given), None)
        if wrong and self.vectors is None and self.vector_column is None:
            raise ValueError(f"{wrong} says something about vectors, which are not given")
        if self.metric is not None:
            check_metric(self.metric)

    def read(self, dataset: Dataset | None, quiet: bool) -> Catalogue | None:
        """The catalogue of the items, None if they are not given; those of a dataset in the order of its arms."""
        if self.items is None:
            return None
        with _progress(quiet) as progress:
            found = read_items(self.items, self.columns(), self.vectors, progress)
        found = replace(found, same_space=not self.other_space, metric=self.metric or found.metric)
        return found if dataset is None or dataset.arm_names is None else _in_order(found, dataset.arm_names)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.completed:>9,} items read"), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=not is_shown(quiet), transient=True) as bars:
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
