"""The commands that play labelled data: simulate and tune. Parse, call, print."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from treetop.cli.options import (
    BEAM_HELP,
    EXPLORE_HELP,
    K_HELP,
    OBSERVER_HELP,
    Data,
    GridOptions,
    ModelOptions,
    StreamOptions,
    grouped,
)
from treetop.cli.output import console, draw, errors, store
from treetop.cli.progress import bars
from treetop.data.datasets import Dataset, load
from treetop.data.orders import BLOCK_ROUNDS
from treetop.experiments import tuning
from treetop.experiments.execute import execute
from treetop.experiments.full_information import check_ceiling, full_information
from treetop.experiments.grid import execute_on
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import DEFAULT, Plan, Settings, strategies_for
from treetop.learning.learners import DEFAULT_STRATEGY
from treetop.parallel import Machines
from treetop.policy.budgeted import RUNTIME_PARAMETERS, Budgeted
from treetop.report import pictures
from treetop.report.tables import runs_table

CEILING_HELP = (
    "Add what a learner that is shown every label gets; takes minutes to hours above 20,000 features and as many rows."
)
ORDER_HELP = (
    "shuffled; file: the first --init rows initialise, the rows after them come as they stand, round and round; "
    f"blocks: two kinds of contexts (the sides of the first principal component) in turns of {BLOCK_ROUNDS:,} rounds."
)


@dataclass(frozen=True)
class SimulatedPolicies:
    """What is crossed: every strategy with every learner, k, explore, beam and observer, one run each."""

    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="igw, greedy, boltzmann, epsilon or budgeted; default, or none: that of the learner, igw for paper "
            "and budgeted for treetop. Repeatable."
        ),
    ] = None
    k: Annotated[list[int], typer.Option(help=f"{K_HELP} Repeatable.")] = field(default_factory=lambda: [5])
    explore: Annotated[list[int], typer.Option(help=f"{EXPLORE_HELP} Repeatable.")] = field(default_factory=lambda: [3])
    beam: Annotated[list[int], typer.Option(help=f"{BEAM_HELP} Repeatable.")] = field(default_factory=lambda: [10])
    learner: Annotated[
        list[str],
        typer.Option(help="paper: the faithful algorithm; treetop: what Bandit and the service use. Repeatable."),
    ] = field(default_factory=lambda: ["paper"])
    observer: Annotated[list[str], typer.Option(help=f"{OBSERVER_HELP} Repeatable.")] = field(
        default_factory=lambda: ["all"]
    )


BUDGETED = Budgeted()


@dataclass(frozen=True)
class StrategyParameters:
    """The parameters of the strategies."""

    igw_c: Annotated[float, typer.Option("--igw-c", help="C of igw.")] = 1.0
    beta: Annotated[float, typer.Option(help="beta of boltzmann.")] = 1.0
    epsilon: Annotated[float, typer.Option(help="epsilon of epsilon.")] = 0.167
    budget: Annotated[float, typer.Option(help="budgeted: share of the reward that draws may cost.")] = BUDGETED.budget
    paying_budget: Annotated[float, typer.Option(help="budgeted: the same at most, while draws have paid.")] = (
        BUDGETED.paying_budget
    )
    evaluation_share: Annotated[float, typer.Option(help="budgeted: share of the events that draw every slot.")] = (
        BUDGETED.evaluation_share
    )
    evaluation_floor: Annotated[float, typer.Option(help="budgeted: chance of a uniform draw in these events.")] = (
        BUDGETED.evaluation_floor
    )
    new_arms_budget: Annotated[float, typer.Option(help="budgeted: share of the reward for arms that were added.")] = (
        BUDGETED.new_arms_budget
    )
    new_arm_trials: Annotated[int, typer.Option(help="budgeted: showings that an added arm gets.")] = (
        BUDGETED.new_arm_trials
    )
    largest_chance: Annotated[float, typer.Option(help="budgeted: chance of a draw, where it costs nothing.")] = (
        BUDGETED.largest_chance
    )

    def of(self, strategy: str) -> dict[str, float]:
        known = {
            "igw": {"C": self.igw_c},
            "boltzmann": {"beta": self.beta},
            "epsilon": {"epsilon": self.epsilon},
            "budgeted": {name: getattr(self, name) for name in asdict(BUDGETED) if name not in RUNTIME_PARAMETERS},
        }
        return known.get(strategy, {})


@dataclass(frozen=True)
class SimulatedWorld:
    """What happens in the stream, and what else is measured on it."""

    scenario: Annotated[str, typer.Option(help="stationary, new-arms, drift or half-init.")] = "stationary"
    order: Annotated[str, typer.Option(help=ORDER_HELP)] = "shuffled"
    cold: Annotated[
        bool, typer.Option("--cold", help="Leave the labels of the initialisation set out of the learner.")
    ] = False
    ceiling: Annotated[bool, typer.Option("--ceiling", help=CEILING_HELP)] = False


@grouped
def simulate(
    data: Data,
    policies: SimulatedPolicies,
    parameters: StrategyParameters,
    stream: StreamOptions,
    model: ModelOptions,
    world: SimulatedWorld,
    output: GridOptions,
) -> None:
    """Plays labelled data as a bandit: only the rewards of the arms shown are revealed.

    Every strategy with every learner, k, explore, beam, observer and seed given, one run each; with --ray on a cluster
    whose machines see DATA and --out under the same paths.

    Example: treetop simulate debian --strategy igw --strategy greedy --init 3000 --horizon 50000
    """
    p = policies
    settings = tuple(
        Settings(
            strategy,
            parameters.of(strategy),
            k,
            explore,
            beam,
            learner=learner,
            observer=observer,
            scenario=world.scenario,
            order=world.order,
            label_samples=not world.cold,
            **_shared(stream, model),
        )
        for learner, k, explore, beam, observer in product(p.learner, p.k, p.explore, p.beam, p.observer)
        for strategy in strategies_for(learner, p.strategy or [DEFAULT])
    )
    plan = Plan(data, settings, tuple(stream.seed))
    dataset = load(data, data_dir=stream.data_dir)
    if world.ceiling:
        check_ceiling(dataset, max(p.k))
    _say_what_default_is(p)
    records = _played(plan, dataset, stream, output)
    facts = records[0].dataset
    _warn_of_no_refit(records)
    result: dict[str, Any] = {"dataset": facts, "runs": [record.summary() for record in records]}
    if world.ceiling:
        result["ceiling"] = full_information(dataset, max(p.k))
    if output.out:
        store(result, output.out / "result.json")
        title = f"{facts['name']}: {facts['arms']:,} arms"
        draw(lambda path: pictures.plot(records, path, title), output.out / "curves.png")
    if output.as_json:
        print(json.dumps(result))
        return
    console.print(f"{escape(str(facts['name']))}: {facts['arms']:,} arms", highlight=False, soft_wrap=True)
    console.print(runs_table(records))
    if world.ceiling:
        best, rows = result["ceiling"]["mean_reward"], result["ceiling"]["rows"]
        console.print(f"shown every label, ridge regression gets {best:.3f} on {rows:,} rows it has not seen")


def _played(plan: Plan, dataset: Dataset, stream: StreamOptions, output: GridOptions) -> list[RunRecord]:
    """The records of a plan, played here or on a cluster."""
    machines = Machines(output.ray)
    if machines.ray and output.out is None:
        raise ValueError("--ray needs --out: a folder that all machines see")
    with bars(output.as_json) as bar:
        if not machines.ray or output.out is None:
            return execute(output.out, plan, bar, dataset=dataset, building=bar.building)
        return execute_on(
            machines,
            output.out,
            plan,
            dataset=dataset,
            data_dir=stream.data_dir,
            progress=lambda done, total: bar.building("runs", done, total),
        )


def _say_what_default_is(policies: SimulatedPolicies) -> None:
    """On stderr, where somebody asked for `default` and none of the learners is that of Bandit and the service."""
    if DEFAULT in (policies.strategy or []) and "treetop" not in policies.learner:
        ours, theirs = DEFAULT_STRATEGY["treetop"], DEFAULT_STRATEGY["paper"]
        words = f"note: default is {theirs} with the learner paper; Bandit and the service use {ours} with treetop: "
        errors.print(f"{words}--learner treetop", highlight=False, soft_wrap=True)


def _warn_of_no_refit(records: list[RunRecord]) -> None:
    """Says on stderr which runs ended before their first refit, and an option that gives them some."""
    ended = [record for record in records if not record.settings["refits"]]
    for learner in dict.fromkeys(str(record.settings["learner"]) for record in ended):
        mine = [record for record in ended if record.settings["learner"] == learner]
        names = ", ".join(dict.fromkeys(record.strategy for record in mine))
        rounds, first = mine[0].rounds, mine[0].settings["first_epoch"]
        words = f"{names} ({learner}): nothing was refitted in {rounds:,} rounds, the first refit is after {first:,}"
        words += f"; try --first-epoch {1 << max(1, rounds // 8).bit_length() - 1}"
        errors.print(f"[bold yellow]warning:[/] {escape(words)}", highlight=False, soft_wrap=True)


def _shared(stream: StreamOptions, model: ModelOptions) -> dict[str, Any]:
    """The settings that all runs of a command have in common."""
    return {
        "init": stream.init,
        "horizon": stream.horizon,
        "max_leaf": model.max_leaf,
        "split": model.split,
        "loss": model.loss,
        "first_epoch": model.first_epoch,
        "factor": model.factor,
    }


@dataclass(frozen=True)
class TunedPolicy:
    """What is tuned, and how it decides."""

    strategy: Annotated[list[str] | None, typer.Option(help="igw, boltzmann, epsilon or greedy; all if none.")] = None
    grid: Annotated[str, typer.Option(help="paper: 15 values of C and beta, 10 of epsilon; small: 3 each.")] = "paper"
    k: Annotated[int, typer.Option(help=K_HELP)] = 5
    explore: Annotated[int, typer.Option(help=EXPLORE_HELP)] = 3
    beam: Annotated[int, typer.Option(help=BEAM_HELP)] = 10
    observer: Annotated[str, typer.Option(help=OBSERVER_HELP)] = "all"


@grouped
def tune(data: Data, policy: TunedPolicy, stream: StreamOptions, model: ModelOptions, output: GridOptions) -> None:
    """Searches the paper's grids for the best C of igw, beta of boltzmann and epsilon of epsilon, on all cores, or with
    --ray on a cluster.

    Example: treetop tune debian --strategy igw --grid small --init 3000 --horizon 20000 --out tuned
    """
    own = {"k": policy.k, "explore": policy.explore, "beam": policy.beam, "observer": policy.observer}
    names = policy.strategy or list(tuning.PARAMETER)
    plan = tuning.plan(data, names, policy.grid, stream.seed, **own, **_shared(stream, model))
    dataset = load(data, data_dir=stream.data_dir)
    records = _played(plan, dataset, stream, output)
    _warn_of_no_refit(records)
    points = tuning.points(plan, records)
    result = {"dataset": records[0].dataset, "seeds": stream.seed, **tuning.summary(points)}
    if output.out:
        store(result, output.out / "tuned.json")
    if output.as_json:
        print(json.dumps(result))
    else:
        console.print(_tuning_table(points, policy.k))


def _tuning_table(points: list[tuning.Point], k: int) -> Table:
    table = Table(title=f"Mean reward a round (at most {k} hits)", title_justify="left")
    words = ("strategy", "parameter", "")
    for head in ("strategy", "parameter", "mean reward", "lowest", "highest", "seconds", ""):
        table.add_column(head, justify="left" if head in words else "right")
    for p in points:
        text = ", ".join(f"{name} {value:g}" for name, value in p.parameters.items())
        numbers = (f"{number:.3f}" for number in (p.mean_reward, p.low, p.high))
        mark = "tie" if p.tie else "best" if p.best else ""
        table.add_row(p.strategy, text, *numbers, f"{p.seconds:.1f}", mark, style="bold green" if p.best else None)
    return table
