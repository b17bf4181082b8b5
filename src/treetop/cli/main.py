"""The command line: parse, call, print."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from treetop import demo as demos
from treetop.cli import folder, log
from treetop.cli.progress import bars
from treetop.data.datasets import load
from treetop.errors import TreetopError
from treetop.experiments import tuning
from treetop.experiments.execute import execute
from treetop.experiments.full_information import full_information
from treetop.experiments.settings import Plan, Settings
from treetop.paper import reproduce as reproducing
from treetop.paper import results_folder, run_cache
from treetop.report import html, pictures
from treetop.report.sections import write_file
from treetop.report.tables import runs_table

app = typer.Typer(
    help="Top-k contextual bandits over millions of arms.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
console, errors = Console(), Console(stderr=True)
for command in (folder.init, folder.serve, folder.replay):
    app.command()(command)
app.command("export")(log.export)
app.command("import")(log.import_)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables for people.")]
DATA = "debian, synthetic:like=amazon-670k, a set of the paper such as eurlex-4k, or a file or folder."
OBSERVED = "Slots the learner hears of: all, each:c=0.5, cascade (to the first click) or position:decay=0.8."
Seeds = Annotated[list[int], typer.Option("--seed", help="Seed of shuffling, tree and draws; repeatable.")]
SLOTS = "Arms shown a round."
EXPLORED = "How many of them are drawn by the strategy."
SURVIVORS = "Nodes that survive on each level of the search; leaves 7/5 as many once the learner treetop has learned."
Slots = Annotated[int, typer.Option(help=SLOTS)]
Explore = Annotated[int, typer.Option(help=EXPLORED)]
Beam = Annotated[int, typer.Option(help=SURVIVORS)]
MaxLeaf = Annotated[int | None, typer.Option(help="Arms in a leaf at most; 10 if not given, 100 from 100,000 arms on.")]
Init = Annotated[
    int | None, typer.Option(help="Rows for tree and routing; 5000, or all of a synthetic set's own, or the paper's.")
]
Horizon = Annotated[
    int | None, typer.Option(help="Rounds, with replacement beyond the data; all rows if not given, or the paper's.")
]
DataDir = Annotated[Path | None, typer.Option(help="Where the files of a set of the paper lie; here if not given.")]
FIRST = "Rounds before the first refit, --factor times as many before the next: 4096 for paper, 256 for treetop."
FirstEpoch = Annotated[int | None, typer.Option(help=FIRST)]
Factor = Annotated[float | None, typer.Option(help="How the rounds seen grow from refit to refit: 2 or 1.05.")]
Loss = Annotated[str, typer.Option(help="Reward models: squared or absolute (the paper's LinearSVR).")]
Split = Annotated[str, typer.Option(help="Tree: kmeans or cocluster.")]
Observed = Annotated[str, typer.Option("--feedback", help=OBSERVED)]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; called again, it goes on there.")]


def main() -> None:
    """Runs a command; what the user got wrong is one line on stderr and exit code 2, not a stack trace."""
    try:
        app()
    except (TreetopError, ValueError, TypeError, OSError) as error:
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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the results.")] = Path("treetop-demo"),
    rounds: Annotated[int, typer.Option(help="Rounds to play, or visitors with --serve.")] = demos.ROUNDS,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    serve: Annotated[bool, typer.Option("--serve", help="Run the service with made-up visitors instead.")] = False,
    port: Annotated[int, typer.Option(help="Port of the service on this machine; 0 takes a free one.")] = 8700,
    rate: Annotated[float, typer.Option(help="Visitors a second.")] = 30.0,
    as_json: Json = False,
) -> None:
    """The paper's strategies and treetop's own way learn which packages a Debian package depends on, from clicks alone.

    With --serve: the service and its dashboard on the same data, with visitors, until Ctrl-C.

    Example: treetop demo --out /tmp/demo
    """
    if serve:
        folder.serve_demo(out / "bandit", rounds, seed, port, rate, as_json)
        return
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    playing = demos.Demo.prepare(rounds, seed)
    facts = playing.dataset.facts()
    if not as_json:
        console.print(
            f"[bold]debian[/]: {facts['rows']:,} packages as contexts, {facts['arms']:,} packages to depend on as "
            f"arms.\n"
            f"A round shows 5 arms for one package and reveals only whether those are right.\n"
            f"{playing.model.tree} built from {len(playing.stream.X_init):,} packages in "
            f"{time.perf_counter() - began:.1f} s.\n"
        )
    with bars(as_json) as bar:
        runs = [playing.play(name, seed, bar(name, rounds)) for name in demos.NAMES]
    examples = playing.examples(runs)
    picture = _draw(lambda path: playing.picture(runs, path), out / "demo.png")
    result = {"dataset": facts, "runs": [r.summary() for r in runs], "examples": examples, "plot": picture}
    _store(result, out / "result.json")
    if as_json:
        print(json.dumps(result))
        return
    console.print()
    console.print(runs_table(runs))
    console.print(
        f"Always the right arms would earn {playing.attainable():.2f}, arms at random {playing.by_chance():.4f}.\n"
        f"Most of the arms are right for one or two packages, so most explored ones are wrong.\n"
        f"[bold]{demos.BETTER}[/] is what Bandit and the service do: arms share what is known of their routes,\n"
        f"the labels that the tree was built from are samples too, exploration is rare. The others are the paper's."
    )
    best = max(runs, key=lambda r: r.mean_reward)
    console.print(f"\n{len(examples)} late decisions of [bold]{best.strategy}[/]:")
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
    strategy: Annotated[
        list[str] | None, typer.Option(help="igw, greedy, boltzmann, epsilon or thrifty; repeatable.")
    ] = None,
    k: Annotated[list[int], typer.Option(help=f"{SLOTS} Repeatable.")] = [5],  # noqa: B006
    explore: Annotated[list[int], typer.Option(help=f"{EXPLORED} Repeatable.")] = [3],  # noqa: B006
    beam: Annotated[list[int], typer.Option(help=f"{SURVIVORS} Repeatable.")] = [10],  # noqa: B006
    max_leaf: MaxLeaf = None,
    init: Init = None,
    horizon: Horizon = None,
    seed: Seeds = [0],  # noqa: B006
    first_epoch: FirstEpoch = None,
    factor: Factor = None,
    c: Annotated[float, typer.Option("--igw-c", help="C of igw.")] = 1.0,
    beta: Annotated[float, typer.Option(help="beta of boltzmann.")] = 1.0,
    epsilon: Annotated[float, typer.Option(help="epsilon of epsilon.")] = 0.167,
    loss: Loss = "squared",
    split: Split = "kmeans",
    learner: Annotated[
        list[str], typer.Option(help="paper: the faithful algorithm; treetop: shares strength. Repeatable.")
    ] = ["paper"],  # noqa: B006
    warm: Annotated[
        bool, typer.Option("--warm/--cold", help="Whether treetop learns the labels of the initialisation set.")
    ] = True,
    scenario: Annotated[str, typer.Option(help="stationary, new-arms, drift or half-init.")] = "stationary",
    zeal: Annotated[float, typer.Option(help="zeal of thrifty.")] = 1.0,
    ceiling: Annotated[bool, typer.Option(help="Adds what a learner that is shown every label gets.")] = False,
    feedback: Annotated[list[str], typer.Option(help=f"{OBSERVED} Repeatable.")] = ["all"],  # noqa: B006
    data_dir: DataDir = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Plays labelled data as a bandit: only the rewards of the arms shown are revealed.

    Every strategy with every learner, k, explore, beam, feedback and seed given, one run each.

    Example: treetop simulate debian --strategy igw --strategy greedy --init 3000 --horizon 50000
    """
    parameters = {
        "igw": {"C": c},
        "boltzmann": {"beta": beta},
        "epsilon": {"epsilon": epsilon},
        "thrifty": {"zeal": zeal},
    }
    settings = tuple(
        Settings(
            name,
            parameters.get(name, {}),
            slots,
            drawn,
            width,
            max_leaf,
            init,
            horizon,
            first_epoch,
            factor,
            loss,
            split,
            learn,
            heard,
            scenario,
            warm,
        )
        for learn, slots, drawn, width, heard in product(learner, k, explore, beam, feedback)
        for name in strategy or ["thrifty" if learn == "treetop" else "igw"]
    )
    plan = Plan(data, settings, tuple(seed))
    dataset = load(data, data_dir=data_dir)
    with bars(as_json) as bar:
        records = execute(out, plan, bar, dataset=dataset, building=bar.building)
    facts = records[0].dataset
    result: dict[str, Any] = {"dataset": facts, "runs": [record.summary() for record in records]}
    if ceiling:
        result["ceiling"] = full_information(dataset, max(k))
    if out:
        _store(result, out / "result.json")
        title = f"{facts['name']}: {facts['arms']:,} arms"
        _draw(lambda path: pictures.plot(records, path, title), out / "curves.png")
    if as_json:
        print(json.dumps(result))
    else:
        console.print(f"{escape(str(facts['name']))}: {facts['arms']:,} arms", highlight=False, soft_wrap=True)
        console.print(runs_table(records))
        if ceiling:
            best, rows = result["ceiling"]["mean_reward"], result["ceiling"]["rows"]
            console.print(f"shown every label, ridge regression gets {best:.3f} on {rows:,} rows it has not seen")


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
    first_epoch: FirstEpoch = None,
    factor: Factor = None,
    loss: Loss = "squared",
    split: Split = "kmeans",
    feedback: Observed = "all",
    data_dir: DataDir = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Searches the paper's grids for the best C of igw, beta of boltzmann and epsilon of epsilon, on all cores.

    Example: treetop tune debian --strategy igw --grid small --init 3000 --horizon 20000 --out tuned
    """
    plan = tuning.plan(
        data,
        strategy or list(tuning.PARAMETER),
        grid,
        seed,
        k=k,
        explore=explore,
        beam=beam,
        max_leaf=max_leaf,
        init=init,
        horizon=horizon,
        first_epoch=first_epoch,
        factor=factor,
        loss=loss,
        split=split,
        feedback=feedback,
    )
    dataset = load(data, data_dir=data_dir)
    with bars(as_json) as bar:
        records = execute(out, plan, bar, dataset=dataset, building=bar.building)
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
    what: Annotated[list[str] | None, typer.Argument(help="decide, batch, refit, build, scale, load; serve.")] = None,
    shape: Annotated[str, typer.Option(help="Sizes: small, amazon-3m or 10m; changed by those below.")] = "small",
    arms: Annotated[int | None, typer.Option(help="Arms; rounds follow if not given.")] = None,
    features: Annotated[int | None, typer.Option(help="Features of a context.")] = None,
    nnz: Annotated[float | None, typer.Option(help="Features that a context has, on average.")] = None,
    init: Annotated[int | None, typer.Option(help="Rows for tree and routing.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of 5 samples that the model has learned from.")] = None,
    max_leaf: Annotated[int | None, typer.Option(help="Arms in a leaf at most.")] = None,
    beam: Annotated[list[int], typer.Option(help="Nodes that survive on each level; repeatable.")] = [10, 30, 100],  # noqa: B006
    contexts: Annotated[int, typer.Option(help="Contexts timed, 10 to 10,000; others get fewer.")] = 1000,
    data: Annotated[str | None, typer.Option(help=f"Real data instead of made-up ones: {DATA}")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where made-up models are kept; ~/.cache/treetop/bench.")] = None,
    peers: Annotated[bool, typer.Option(help="Time others' software too, where `make bench-peers` set it up.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the data.")] = 0,
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

    sizes = {"features": features, "nonzeros": nnz, "init": init, "rounds": rounds, "max_leaf": max_leaf, "seed": seed}
    with errors.status("") as status:
        setting = Setting(
            shape_of(shape, arms, sizes),
            tuple(beam),
            contexts,
            cache or default_cache(),
            runner() if peers else None,
            load(data) if data else None,
            (lambda text: None) if as_json else status.update,
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


@app.command()
def reproduce(
    what: Annotated[
        list[str], typer.Argument(help="tables, realizable, inference, curves, flat-vs-tree, wdl, all; or claims.")
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Short runs on small sets: minutes.")] = False,
    data: Annotated[
        list[str] | None, typer.Option(help="As for simulate; repeatable; debian and synthetic sets if none.")
    ] = None,
    data_dir: DataDir = None,
    seed: Seeds = [0],  # noqa: B006
    horizon: Annotated[int | None, typer.Option(help="Rounds at most; those of Table 1 if not given.")] = None,
    flat_horizon: Annotated[int | None, typer.Option(help="Rounds at most of realizable over all arms.")] = None,
    sigma: Annotated[float, typer.Option(help="Of the noise of realizable; the paper gives none.")] = run_cache.SIGMA,
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
    specs = tuple(data or (run_cache.QUICK_DATA if quick else run_cache.DATA))
    began = time.perf_counter()
    with bars(as_json) as bar:
        shown, large = None if as_json else bar, None if data or quick else run_cache.LARGE
        cache = run_cache.RunCache(specs, tuple(seed), out, quick, horizon, data_dir, shown, sigma, large, flat_horizon)
        sections = reproducing.reproduce(cache, what)
    if as_json:
        print(json.dumps({section.name: section.data for section in sections}))
        return
    from rich.markdown import Markdown  # a parser of its own, for this command alone

    for section in sections:
        console.print(Markdown(section.markdown()))
    console.print(Markdown(reproducing.claims(out).markdown()))
    console.print(f"\n{len(sections)} sections in {time.perf_counter() - began:.0f} s. One page: treetop report {out}")


@app.command()
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
