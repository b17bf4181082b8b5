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
from treetop.datasets import load
from treetop.explore import IGW, Boltzmann, EpsilonGreedy, Greedy, Strategy
from treetop.learn import Epochs, Linear
from treetop.policy import Policy
from treetop.simulate import Run, begin, run

app = typer.Typer(
    help="Top-k contextual bandits over millions of arms.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
console, errors = Console(), Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables for people.")]
Seeds = Annotated[list[int], typer.Option("--seed", help="Seed of shuffling, tree and draws; repeatable.")]


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
def _bars(quiet: bool) -> Iterator[Callable[[str, int], Callable[[int, float], None]]]:
    """A progress bar per run with the running mean reward; silent for machines."""
    with Progress(
        TextColumn("{task.description:<10}"), BarColumn(bar_width=18),
        TextColumn("{task.completed:>9,} rounds  mean reward [bold]{task.fields[mean]:.3f}[/]"),
        TextColumn("{task.fields[rate]:>7,.0f}/s"), TimeRemainingColumn(),
        console=errors, disable=quiet,
    ) as progress:  # fmt: skip

        def add(name: str, total: int) -> Callable[[int, float], None]:
            task, began = progress.add_task(name, total=total, mean=0.0, rate=0.0), time.perf_counter()

            def update(done: int, mean: float) -> None:
                rate = done / max(1e-9, time.perf_counter() - began)
                progress.update(task, completed=done, mean=mean, rate=rate)

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
    data: Annotated[str, typer.Argument(help="debian, synthetic:like=amazon-670k, or a folder of X/Y.trn/tst.npz.")],
    strategy: Annotated[list[str], typer.Option(help="igw, greedy, boltzmann or epsilon; repeatable.")] = ["igw"],  # noqa: B006
    k: Annotated[int, typer.Option(help="Arms shown a round.")] = 5,
    explore: Annotated[int, typer.Option(help="How many of them are drawn by the strategy.")] = 3,
    beam: Annotated[int, typer.Option(help="Nodes that survive on each level of the search.")] = 10,
    max_leaf: Annotated[int | None, typer.Option(help="Arms in a leaf at most [10; 100 from 100,000 arms on].")] = None,
    init: Annotated[int | None, typer.Option(help="Rows for tree and routing [5000; a synthetic set's own].")] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds; beyond the data, with replacement [all rows].")] = None,
    seed: Seeds = [0],  # noqa: B006
    first_epoch: Annotated[int, typer.Option(help="Rounds before the first refit; doubled after each.")] = 4096,
    factor: Annotated[float, typer.Option(help="Growth of the rounds between refits.")] = 2.0,
    c: Annotated[float, typer.Option("--igw-c", help="C of igw.")] = 1.0,
    beta: Annotated[float, typer.Option(help="beta of boltzmann.")] = 1.0,
    epsilon: Annotated[float, typer.Option(help="epsilon of epsilon.")] = 0.167,
    loss: Annotated[str, typer.Option(help="Reward models: squared or absolute (the paper's LinearSVR).")] = "squared",
    split: Annotated[str, typer.Option(help="Tree: kmeans or cocluster.")] = "kmeans",
    learner: Annotated[str, typer.Option(help="paper: the faithful algorithm.")] = "paper",
    out: Annotated[Path | None, typer.Option(help="Folder for result.json and curves.png.")] = None,
    as_json: Json = False,
) -> None:
    """Plays labelled data as a bandit: only the rewards of the arms shown are revealed.

    Example: treetop simulate debian --strategy igw --strategy greedy --init 3000 --horizon 50000
    """
    if learner != "paper":
        raise ValueError(f"learner is {learner!r}; it must be paper")
    known: dict[str, Strategy] = {
        "igw": IGW(C=c), "greedy": Greedy(), "boltzmann": Boltzmann(beta), "epsilon": EpsilonGreedy(epsilon)
    }  # fmt: skip
    if wrong := [name for name in strategy if name not in known]:
        raise ValueError(f"strategy is {wrong[0]!r}; it must be one of {', '.join(known)}")
    policies = {name: Policy(k, explore, beam, known[name]) for name in strategy}
    epochs, regressor = Epochs.geometric(first_epoch, factor), Linear(loss=loss)
    dataset = load(data)
    leaf = max_leaf or (10 if dataset.n_arms < 100_000 else 100)
    if init is None:
        init = len(dataset.X_init) if dataset.X_init is not None and dataset.synthetic else 5000
    left = len(dataset.X) - (init if dataset.X_init is None else 0)
    rounds = horizon or max(1, left)
    runs: list[Run] = []
    with _bars(as_json) as bar:
        for s in seed:
            stream, model = begin(dataset, init, rounds, leaf, s, split=split)
            for name, policy in policies.items():
                title = name if len(seed) == 1 else f"{name} seed {s}"
                played = run(
                    stream, model, policy, name=name, seed=s, epochs=epochs, regressor=regressor,
                    progress=bar(title, rounds),
                )  # fmt: skip
                played.settings.update(init=init, horizon=rounds, max_leaf=leaf, learner=learner, split=split)
                runs.append(played)
    result = {"dataset": dataset.facts(), "runs": [r.summary() for r in runs]}
    if out:
        _store(result, out / "result.json")
        _draw(lambda path: report.plot(runs, path, f"{dataset.name}: {dataset.n_arms:,} arms"), out / "curves.png")
    if as_json:
        print(json.dumps(result))
    else:
        console.print(f"{escape(dataset.name)}: {dataset.n_arms:,} arms", highlight=False, soft_wrap=True)
        console.print(report.table(runs, k))


@app.command()
def bench(
    what: Annotated[list[str] | None, typer.Argument(help="decide, batch, build, refit [all].")] = None,
    data: Annotated[str, typer.Option(help="debian, synthetic:..., or a folder as for simulate.")] = "debian",
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
