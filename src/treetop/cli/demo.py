"""The command demo: the bundled data played, or served to made-up visitors. Parse, call, print."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from treetop import demo as demos
from treetop.cli import folder
from treetop.cli.options import Json, grouped
from treetop.cli.output import console, draw, store
from treetop.cli.progress import bars
from treetop.report.tables import runs_table
from treetop.simulation.play import Run


@dataclass(frozen=True)
class ServeOptions:
    """The service instead of the comparison."""

    serve: Annotated[bool, typer.Option("--serve", help="Run the service with made-up visitors instead.")] = False
    port: Annotated[int, typer.Option(help="Port of the service on this machine; 0 takes a free one.")] = 8700
    rate: Annotated[float, typer.Option(help="Visitors a second.")] = 30.0


@grouped
def demo(
    serving: ServeOptions,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the results.")] = Path("treetop-demo"),
    rounds: Annotated[int, typer.Option(help="Rounds to play, or visitors with --serve.")] = demos.ROUNDS,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    as_json: Json = False,
) -> None:
    """The paper's strategies and treetop's own way learn which packages a Debian package depends on, from clicks alone.

    With --serve: the service and its dashboard on the same data, with visitors, until Ctrl-C.

    Example: treetop demo --out /tmp/demo
    """
    if serving.serve:
        folder.serve_demo(out / "bandit", rounds, seed, serving.port, serving.rate, as_json)
        return
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    playing = demos.Demo.prepare(rounds, seed)
    if not as_json:
        _introduce(playing, time.perf_counter() - began)
    with bars(as_json) as bar:
        runs = [playing.play(name, seed, bar(name, rounds)) for name in demos.NAMES]
    examples = playing.examples(runs)
    picture = draw(lambda path: playing.picture(runs, path), out / "demo.png")
    facts = playing.dataset.facts()
    result = {"dataset": facts, "runs": [run.summary() for run in runs], "examples": examples, "plot": picture}
    store(result, out / "result.json")
    if as_json:
        print(json.dumps(result))
        return
    _show_results(playing, runs, examples)
    console.print(f"\nPicture: {picture or 'none (install matplotlib)'}   Results: {out / 'result.json'}")
    console.print(f"Done in {time.perf_counter() - began:.0f} s.")


def _introduce(playing: demos.Demo, seconds: float) -> None:
    facts = playing.dataset.facts()
    console.print(
        f"[bold]debian[/]: {facts['rows']:,} packages as contexts, {facts['arms']:,} packages to depend on as arms.\n"
        f"A round shows 5 arms for one package and reveals only whether those are right.\n"
        f"{playing.model.tree} built from {len(playing.stream.X_init):,} packages in {seconds:.1f} s.\n"
    )


def _show_results(playing: demos.Demo, runs: list[Run], examples: list[dict[str, Any]]) -> None:
    console.print()
    console.print(runs_table(runs))
    console.print(
        f"Always the right arms would earn {playing.attainable():.2f}, arms at random {playing.by_chance():.4f}.\n"
        f"Most of the arms are right for one or two packages, so most explored ones are wrong. "
        f"[bold]{demos.OURS}[/] is what Bandit and the service do: arms share what is known of their routes, the "
        f"labels that the tree was built from are samples too, and explored slots mostly take the best arm left. The "
        f"others are the paper's."
    )
    best = max(runs, key=lambda run: run.mean_reward)
    console.print(f"\n{len(examples)} late decisions of [bold]{best.strategy}[/]:")
    for example in examples:
        _show_example(example)


def _show_example(example: dict[str, Any]) -> None:
    what = escape(example["description"])
    console.print(f"\n  [bold]{example['context']}[/]: {what}", highlight=False, soft_wrap=True)
    for slot in example["shown"]:
        mark = "[green]right[/]" if slot["right"] else "[dim]wrong[/]"
        how = "explored" if slot["explored"] else "greedy  "
        console.print(f"    {how}  {slot['arm']:<34} {mark}", highlight=False)
    if example["missed"]:
        console.print(f"    [dim]missed: {', '.join(example['missed'][:6])}[/]", highlight=False)
