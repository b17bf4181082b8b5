"""The commands that show the paper beside ours: reproduce and report. Parse, call, print."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from treetop.cli.options import DataDir, Json, Seeds, grouped
from treetop.cli.output import console
from treetop.cli.progress import bars
from treetop.display import counted
from treetop.paper import reproduce as reproducing
from treetop.paper import results_folder, run_cache
from treetop.report import html
from treetop.report.sections import write_file


@dataclass(frozen=True)
class Datasets:
    """What it is reproduced on."""

    data: Annotated[
        list[str] | None, typer.Option(help="As for simulate; repeatable; debian and synthetic sets if none.")
    ] = None
    data_dir: DataDir = None
    seed: Seeds = field(default_factory=lambda: [0])


@dataclass(frozen=True)
class Lengths:
    """For how long, and with how much noise."""

    quick: Annotated[bool, typer.Option("--quick", help="Short runs on small sets: minutes.")] = False
    horizon: Annotated[int | None, typer.Option(help="Rounds at most; those of Table 1 if not given.")] = None
    flat_horizon: Annotated[int | None, typer.Option(help="Rounds at most of realizable over all arms.")] = None
    sigma: Annotated[float, typer.Option(help="Of the noise of realizable; the paper gives none.")] = run_cache.SIGMA


@grouped
def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(help="tables, realizable, inference, curves, flat-vs-tree, wdl, all; hierarchy; or claims."),
    ],
    on: Datasets,
    lengths: Lengths,
    out: Annotated[Path, typer.Option(help="Folder for tables, pictures and runs.")] = Path("runs/paper"),
    as_json: Json = False,
) -> None:
    """The paper's figures and tables beside ours: Markdown, JSON and a picture each, and which claims hold.

    Example: treetop reproduce all --quick --out runs/quick
    """
    if what == ["claims"]:
        found = reproducing.claims(out)
        print(json.dumps(found.records()) if as_json else found.markdown())
        return
    began = time.perf_counter()
    with bars(as_json) as bar:
        cache = run_cache.RunCache(
            tuple(on.data or (run_cache.QUICK_DATA if lengths.quick else run_cache.DATA)),
            tuple(on.seed),
            out,
            lengths.quick,
            lengths.horizon,
            on.data_dir,
            None if as_json else bar,
            lengths.sigma,
            large=None if on.data or lengths.quick else run_cache.LARGE,
            flat_horizon=lengths.flat_horizon,
        )
        sections = reproducing.reproduce(cache, what)
    if as_json:
        print(json.dumps({section.name: section.data for section in sections}))
        return
    for text in [*(section.markdown() for section in sections), reproducing.claims(out).markdown()]:
        _print_markdown(text)
    seconds = time.perf_counter() - began
    console.print(f"\n{counted(len(sections), 'section')} in {seconds:.0f} s. One page: treetop report {out}")


def _print_markdown(text: str) -> None:
    """Paragraphs as wide as the terminal, tables as wide as they are: a narrow one would lose the ends of the words."""
    from rich.markdown import Markdown  # a parser of its own, for this command alone

    for part in text.split("\n\n"):
        table = max(map(len, part.splitlines()), default=0) if part.startswith("|") else 0
        Console(width=max(console.width, table)).print(Markdown(part))


def report(
    run: Annotated[Path, typer.Argument(help="A folder that reproduce, simulate --out or demo left behind.")],
    out: Annotated[Path | None, typer.Option(help="The page; report.html in the folder if not given.")] = None,
    as_json: Json = False,
) -> None:
    """One HTML page of a run, with everything in it: curves, tables, win/draw/loss, settings, versions, checksums.

    Example: treetop report runs/paper
    """
    content = html.html(results_folder.read_results(run)).encode()
    path = write_file(out or run / "report.html", content)
    if as_json:
        print(json.dumps({"page": str(path), "bytes": len(content)}))
    else:
        console.print(f"{path} ({len(content) / 1024:,.0f} KB, one file, nothing to fetch)", soft_wrap=True)
