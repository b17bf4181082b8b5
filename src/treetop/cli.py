"""The command line: parse, call, print."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from treetop import bench as benches
from treetop import demo as demos
from treetop import report
from treetop import tune as tuning
from treetop.datasets import load
from treetop.experiment import Bars, Plan, Settings, execute

app = typer.Typer(
    help="Top-k contextual bandits over millions of arms.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
console, errors = Console(), Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables for people.")]
DATA = "debian, or a folder with X.trn.npz Y.trn.npz X.tst.npz Y.tst.npz."
OBSERVED = "Slots the learner hears of: all, each:c=0.5, cascade (to the first click) or position:decay=0.8."
Seeds = Annotated[list[int], typer.Option("--seed", help="Seed of shuffling, tree and draws; repeatable.")]
Slots = Annotated[int, typer.Option(help="Arms shown a round.")]
Explore = Annotated[int, typer.Option(help="How many of them are drawn by the strategy.")]
Beam = Annotated[int, typer.Option(help="Nodes that survive on each level of the search.")]
MaxLeaf = Annotated[int | None, typer.Option(help="Arms in a leaf at most; 10 if not given, 100 from 100,000 arms on.")]
Init = Annotated[int | None, typer.Option(help="Rows for tree and routing; 5000 if not given.")]
Horizon = Annotated[int | None, typer.Option(help="Rounds, with replacement beyond the data; all rows if not given.")]
FirstEpoch = Annotated[int, typer.Option(help="Rounds before the first refit; doubled after each.")]
Factor = Annotated[float, typer.Option(help="Growth of the rounds between refits.")]
Loss = Annotated[str, typer.Option(help="Reward models: squared or absolute (the paper's LinearSVR).")]
Split = Annotated[str, typer.Option(help="Tree: kmeans or cocluster.")]
Observed = Annotated[str, typer.Option("--feedback", help=OBSERVED)]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; called again, it goes on there.")]


def main() -> None:
    """Runs a command; what the user got wrong is one line on stderr and exit code 2, not a stack trace."""
    try:
        app()
    except (ValueError, TypeError, OSError) as error:
        errors.print("[bold red]error:[/]", escape(str(error)), highlight=False, soft_wrap=True)
        sys.exit(2)


def _print_version(asked: bool) -> None:
    if asked:
        print(version("treetop"))
        raise typer.Exit


@app.callback()
def front(
    show: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_print_version)] = False,
) -> None:
    """Top-k contextual bandits over millions of arms."""


@contextmanager
def _bars(quiet: bool) -> Iterator[Bars]:
    """A progress bar per run with rounds a second, the running mean reward and the time left; silent for machines."""
    with Progress(
        TextColumn("{task.description:<18}"), BarColumn(bar_width=10),
        TextColumn("{task.completed:>9,}  reward [bold]{task.fields[mean]:.3f}[/]"),
        TextColumn("{task.fields[rate]:>7,.0f}/s"), TimeRemainingColumn(compact=True),
        console=errors, disable=quiet,
    ) as progress:  # fmt: skip

        def add(name: str, total: int, done: int = 0) -> Callable[[int, float], None]:
            task, began = progress.add_task(name, total=total, completed=done, mean=0.0, rate=0.0), time.perf_counter()

            def update(now: int, mean: float) -> None:
                rate = (now - done) / max(1e-9, time.perf_counter() - began)
                progress.update(task, completed=now, mean=mean, rate=rate)

            return update

        yield add


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the results.")] = Path("treetop-demo"),
    rounds: Annotated[int, typer.Option(help="Rounds to play.")] = demos.ROUNDS,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    as_json: Json = False,
) -> None:
    """Four strategies learn which packages a Debian package depends on, from clicks alone.

    Example: treetop demo --out /tmp/demo
    """
    began = time.perf_counter()
    playing = demos.Demo.prepare(rounds, seed)
    facts = playing.dataset.facts()
    if not as_json:
        console.print(
            f"[bold]debian[/]: {facts['rows']:,} packages as contexts, {facts['arms']:,} packages to depend on as "
            f"arms.\n"
            f"Each round shows 5 arms for one package and learns only whether those were right.\n"
            f"{playing.model.tree} built from {len(playing.stream.X_init):,} packages in "
            f"{time.perf_counter() - began:.1f} s.\n"
        )
    with _bars(as_json) as bar:
        runs = [playing.play(name, seed, bar(name, rounds)) for name in demos.STRATEGIES]
    examples = playing.examples(runs)
    picture = _draw(lambda path: playing.picture(runs, path), out / "demo.png")
    result = {"dataset": facts, "runs": [r.summary() for r in runs], "examples": examples, "plot": picture}
    _store(result, out / "result.json")
    if as_json:
        print(json.dumps(result))
        return
    console.print()
    console.print(report.table(runs, k=5))
    best = max(runs, key=lambda r: r.mean_reward)
    console.print(f"\nFive late decisions of [bold]{best.strategy}[/]:")
    for example in examples:
        _show(example)
    console.print(f"\nPicture: {picture or 'none (install matplotlib)'}   Results: {out / 'result.json'}")
    console.print(f"Done in {time.perf_counter() - began:.0f} s.")


def _show(example: dict[str, Any]) -> None:
    what = escape(example["description"])
    console.print(f"\n  [bold]{example['context']}[/]: {what}", highlight=False, soft_wrap=True)
    for slot in example["shown"]:
        mark = "[green]right[/]" if slot["right"] else "[dim]wrong[/]"
        how = "explored" if slot["explored"] else "greedy  "
        console.print(f"    {how}  {slot['arm']:<34} {mark}", highlight=False)
    if example["missed"]:
        console.print(f"    [dim]missed: {', '.join(example['missed'][:6])}[/]", highlight=False)


def _draw(draw: Callable[[Path], None], path: Path) -> str | None:
    try:
        draw(path)
    except ModuleNotFoundError:
        return None
    return str(path)


def _store(result: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


@app.command()
def simulate(
    data: Annotated[str, typer.Argument(help=DATA)],
    strategy: Annotated[list[str], typer.Option(help="igw, greedy, boltzmann or epsilon; repeatable.")] = ["igw"],  # noqa: B006
    k: Slots = 5,
    explore: Explore = 3,
    beam: Beam = 10,
    max_leaf: MaxLeaf = None,
    init: Init = None,
    horizon: Horizon = None,
    seed: Seeds = [0],  # noqa: B006
    first_epoch: FirstEpoch = 4096,
    factor: Factor = 2.0,
    c: Annotated[float, typer.Option("--igw-c", help="C of igw.")] = 1.0,
    beta: Annotated[float, typer.Option(help="beta of boltzmann.")] = 1.0,
    epsilon: Annotated[float, typer.Option(help="epsilon of epsilon.")] = 0.167,
    loss: Loss = "squared",
    split: Split = "kmeans",
    learner: Annotated[str, typer.Option(help="paper: the faithful algorithm.")] = "paper",
    feedback: Observed = "all",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Plays labelled data as a bandit: only the rewards of the arms shown are revealed.

    Example: treetop simulate debian --strategy igw --strategy greedy --init 3000 --horizon 50000
    """
    parameters = {"igw": {"C": c}, "boltzmann": {"beta": beta}, "epsilon": {"epsilon": epsilon}}
    settings = tuple(
        Settings(
            name, parameters.get(name, {}), k, explore, beam, max_leaf, init, horizon, first_epoch, factor, loss, split,
            learner, feedback,
        )
        for name in strategy
    )  # fmt: skip
    plan = Plan(data, settings, tuple(seed))
    with _bars(as_json) as bar:
        records = execute(out, plan, bar, dataset=load(data))
    facts = records[0].dataset
    result = {"dataset": facts, "runs": [record.summary() for record in records]}
    if out:
        _store(result, out / "result.json")
        _draw(lambda path: report.plot(records, path, f"{facts['name']}: {facts['arms']:,} arms"), out / "curves.png")
    if as_json:
        print(json.dumps(result))
    else:
        console.print(report.table(records, k))


@app.command()
def tune(
    data: Annotated[str, typer.Argument(help=DATA)],
    strategy: Annotated[list[str] | None, typer.Option(help="igw, boltzmann, epsilon or greedy; all if none.")] = None,
    grid: Annotated[str, typer.Option(help="paper: 15 values of C and beta, 10 of epsilon; small: 3 each.")] = "paper",
    k: Slots = 5,
    explore: Explore = 3,
    beam: Beam = 10,
    max_leaf: MaxLeaf = None,
    init: Init = None,
    horizon: Horizon = None,
    seed: Seeds = [0],  # noqa: B006
    first_epoch: FirstEpoch = 4096,
    factor: Factor = 2.0,
    loss: Loss = "squared",
    split: Split = "kmeans",
    feedback: Observed = "all",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Searches the paper's grids for the best C of igw, beta of boltzmann and epsilon of epsilon, on all cores.

    Example: treetop tune debian --strategy igw --grid small --init 3000 --horizon 20000 --out tuned
    """
    plan = tuning.plan(
        data, strategy or list(tuning.PARAMETER), grid, seed, k=k, explore=explore, beam=beam, max_leaf=max_leaf,
        init=init, horizon=horizon, first_epoch=first_epoch, factor=factor, loss=loss, split=split, feedback=feedback,
    )  # fmt: skip
    with _bars(as_json) as bar:
        records = execute(out, plan, bar, dataset=load(data))
    points = tuning.points(plan, records)
    result = {"dataset": records[0].dataset, "seeds": seed, **tuning.summary(points)}
    if out:
        _store(result, out / "tuned.json")
    if as_json:
        print(json.dumps(result))
    else:
        console.print(_tuning_table(points, k))


def _tuning_table(points: list[tuning.Point], k: int) -> Table:
    out = Table(title=f"Mean reward a round (at most {k} hits)", title_justify="left")
    for head in ("strategy", "parameter", "mean reward", "lowest", "highest", "seconds"):
        out.add_column(head, justify="left" if head in ("strategy", "parameter") else "right")
    for p in points:
        text = ", ".join(f"{name} {value:g}" for name, value in p.parameters.items())
        numbers = (f"{number:.3f}" for number in (p.mean_reward, p.low, p.high))
        out.add_row(p.strategy, text, *numbers, f"{p.seconds:.1f}", style="bold green" if p.best else None)
    return out


@app.command()
def bench(
    what: Annotated[list[str] | None, typer.Argument(help="decide, batch, build, refit [all].")] = None,
    data: Annotated[str, typer.Option(help="debian, or a folder as for simulate.")] = "debian",
    beam: Annotated[int, typer.Option(help="Nodes that survive on each level of the search.")] = 10,
    rounds: Annotated[int, typer.Option(help="Rounds the model has learned from.")] = 40_000,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    as_json: Json = False,
) -> None:
    """Times decisions, batches, tree building and refits, beside scoring every arm with scipy.

    Example: treetop bench decide batch --data debian
    """
    chosen = tuple(what or benches.WHAT)
    if wrong := [name for name in chosen if name not in benches.WHAT]:
        raise ValueError(f"cannot bench {wrong[0]!r}; it must be one of {', '.join(benches.WHAT)}")
    rows = benches.bench(load(data), chosen, beam, rounds, seed)
    if as_json:
        print(json.dumps({"machine": benches.machine(), "rows": rows}))
        return
    out = Table(title=f"{data}: {rows[0]['arms']:,} arms ({benches.machine()})", title_justify="left")
    columns = ("name", "beam", "median_ms", "p99_ms", "per_second", "seconds")
    for column in columns:
        out.add_column(column, justify="left" if column == "name" else "right")
    for row in rows:
        out.add_row(*(str(row.get(column, "")) for column in columns))
    console.print(out)
