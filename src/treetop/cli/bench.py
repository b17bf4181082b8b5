"""The command bench: timings beside others. Parse, call, print."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from treetop.cli.options import DATA_HELP, Json, grouped
from treetop.cli.output import console, errors, is_shown
from treetop.data.datasets import load


@dataclass(frozen=True)
class ShapeOptions:
    """The sizes of the made-up data and of the model."""

    shape: Annotated[str, typer.Option(help="Sizes: small, amazon-3m, 670k or 10m; changed by those below.")] = "small"
    arms: Annotated[int | None, typer.Option(help="Arms; rounds follow if not given.")] = None
    features: Annotated[int | None, typer.Option(help="Features of a context.")] = None
    nnz: Annotated[float | None, typer.Option(help="Features that a context has, on average.")] = None
    init: Annotated[int | None, typer.Option(help="Rows for tree and routing.")] = None
    rounds: Annotated[int | None, typer.Option(help="Rounds of 5 samples that the model has learned from.")] = None
    max_leaf: Annotated[int | None, typer.Option(help="Arms in a leaf at most.")] = None
    seed: Annotated[int, typer.Option(help="Seed of the data.")] = 0


@dataclass(frozen=True)
class TimingOptions:
    """What is timed, and beside whom."""

    beam: Annotated[list[int], typer.Option(help="Nodes that survive on each level; repeatable.")] = field(
        default_factory=lambda: [10, 30, 100]
    )
    contexts: Annotated[int, typer.Option(help="Contexts timed, 10 to 10,000; others get fewer.")] = 1000
    data: Annotated[str | None, typer.Option(help=f"Real data instead of made-up ones: {DATA_HELP}")] = None
    cache: Annotated[Path | None, typer.Option(help="Where made-up models are kept; ~/.cache/treetop/bench.")] = None
    peers: Annotated[bool, typer.Option(help="Time others' software too, where `make bench-peers` set it up.")] = True
    late: Annotated[float, typer.Option(help="learn-scale: share of rewards that come after sealing.")] = 0.0


@grouped
def bench(
    sizes: ShapeOptions,
    timing: TimingOptions,
    what: Annotated[
        list[str] | None, typer.Argument(help="decide, batch, refit, build, scale, load; serve, seal, learn-scale.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Times treetop beside PECOS, Vowpal Wabbit, scikit-learn, scipy and a flat index, on a made-up model.

    Example: treetop bench decide batch --arms 200000
    """
    from treetop.bench import subjects  # here: a service that starts again need not wait for it
    from treetop.bench import table as bench_table
    from treetop.bench.peers import runner
    from treetop.bench.setting import Setting
    from treetop.bench.shape import default_cache, shape_of

    changed = {
        "features": sizes.features,
        "nonzeros": sizes.nnz,
        "init": sizes.init,
        "rounds": sizes.rounds,
        "max_leaf": sizes.max_leaf,
        "seed": sizes.seed,
    }
    with errors.status("") if is_shown(as_json) else nullcontext() as status:
        setting = Setting(
            shape_of(sizes.shape, sizes.arms, changed),
            tuple(timing.beam),
            timing.contexts,
            timing.cache or default_cache(),
            runner() if timing.peers else None,
            load(timing.data) if timing.data else None,
            status.update if status else lambda text: None,
            timing.late,
        )
        command = " ".join(["treetop", *sys.argv[1:]])
        document = subjects.run([name for name in what or [] if name != "all"], setting, command)
    if as_json:
        print(json.dumps(document))
        return
    wide = Console(width=max(console.width, bench_table.WIDTH))
    for found in bench_table.tables(document):
        wide.print(found)
    for line in bench_table.summary(document):
        console.print(line, highlight=False, soft_wrap=True)
