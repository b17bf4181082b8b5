"""The command evaluate: parse, call, print."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from treetop.bandit.bandit import Bandit
from treetop.bandit.evaluation import Evaluation, evaluate
from treetop.bandit.policy_search import PolicySearch, search_policies
from treetop.cli.experiment import show_experiment
from treetop.cli.folder import Folder, LogAt
from treetop.cli.log import moment
from treetop.cli.options import Json, Ray, grouped
from treetop.cli.output import console, draw, errors
from treetop.effort import Effort
from treetop.evaluation.picture import draw_results
from treetop.evaluation.verdict import CandidateResult

POLICY_HELP = (
    "A candidate: settings of the visits with some replaced, such as strategy=greedy, beam=30, explore=1, "
    "strategy=igw,C=2 or model=000012; repeatable."
)
SINCE_HELP = "Only visits from then on: 2025-01-31 or 2025-01-31T12:00+01:00; UTC if it is bare."
SEARCH_HELP = "Judge the neighbours of the settings that serve, and confirm the best on the newest visits."
EXPERIMENT_HELP = "Compare the variants of an experiment on live traffic, which the visits themselves have shown."
POSITION_HELP = (
    "What a slot's reward may depend on: any (slot of the decision) or cascade (itself and the slots above). Without "
    "it the weights choose, see docs/evaluation.md."
)
BOUND_HELP = "What no weight can exceed, if propensities have a floor; narrows the intervals."


@dataclass(frozen=True)
class EvaluationOptions:
    """Which visits count, and how sure the intervals are."""

    since: Annotated[str | None, typer.Option(help=SINCE_HELP)] = None
    confidence: Annotated[float, typer.Option(help="Of the intervals, which hold at all times at once.")] = 0.95
    weight_bound: Annotated[float | None, typer.Option(help=BOUND_HELP)] = None
    experiment: Annotated[str | None, typer.Option(help=EXPERIMENT_HELP)] = None
    position_model: Annotated[str | None, typer.Option(help=POSITION_HELP)] = None
    ray: Ray = ""


@grouped
def evaluate_(
    folder: Folder,
    options: EvaluationOptions,
    policy: Annotated[list[str] | None, typer.Option("--policy", help=POLICY_HELP)] = None,
    search: Annotated[bool, typer.Option("--search", help=SEARCH_HELP)] = False,
    picture: Annotated[Path | None, typer.Option(help="Where to draw it, such as results.png.")] = None,
    log: LogAt = None,
    as_json: Json = False,
) -> None:
    """Says what other policies would have earned on the visits in the log, with intervals. Changes nothing.

    Example: treetop evaluate shop --policy strategy=greedy --policy beam=30 --policy model=000012
    """
    if bool(policy) + search + (options.experiment is not None) != 1:
        raise ValueError("give --policy, once or more, or --search, or --experiment")
    if options.position_model and not policy:
        raise ValueError("--position-model is for --policy; --search chooses by the rule, an experiment needs none")
    if options.experiment is not None:
        with Bandit.open(folder, log) as bandit:
            show_experiment(bandit, options.experiment, options.confidence, as_json)
        return
    begin = None if options.since is None else moment("--since", options.since)
    sure, bound = options.confidence, options.weight_bound
    columns = TextColumn("evaluated"), BarColumn(), TextColumn("{task.completed:>9,} visits"), TimeRemainingColumn()
    searched: PolicySearch | None = None
    with (
        Bandit.open(folder, log) as bandit,
        Progress(*columns, console=errors, disable=as_json, transient=True) as bars,
    ):
        task = bars.add_task("evaluated", total=None)
        effort = Effort(progress=lambda done, total: bars.update(task, completed=done, total=total), ray=options.ray)
        if search:
            searched = search_policies(bandit, since=begin, confidence=sure, weight_bound=bound, effort=effort)
            found = searched.searched
        else:
            more: dict[str, Any] = {"since": begin, "weight_bound": bound, "position_model": options.position_model}
            found = evaluate(bandit, policy or [], confidence=sure, effort=effort, **more)
    drawn = None
    if picture is not None:
        drawn = draw(lambda path: draw_results(found.candidates, found.served, path), picture)
    if as_json:
        print(json.dumps({**(searched or found).to_dict(), "picture": drawn}))
        return
    _print(found)
    if searched is not None:
        _print_confirmed(searched)
    if picture is not None:
        console.print(drawn or "No picture: matplotlib is not installed (pip install 'treetop-bandits[plot]').")


def _print_confirmed(found: PolicySearch) -> None:
    words = f"Best of them: {found.chosen}. On {found.held_out.rounds:,} newer visits, which did not choose it:"
    console.print(words, highlight=False, markup=False, soft_wrap=True)
    for result in found.held_out.candidates:
        words = f"{result.per_visit} a visit, {result.difference.value:+.3f} against served: {result.verdict}."
        words = words if result.rounds else f"{result.verdict}."
        console.print(words, highlight=False, markup=False, soft_wrap=True)


def _print(found: Evaluation) -> None:
    if found.rounds == 0:
        console.print("There are no visits with rewards to judge by.")
        return
    words = f"{found.rounds:,} visits brought {found.served} each as served ({found.confidence:.0%} intervals)."
    console.print(words, highlight=False, markup=False)
    if found.differing:
        words = f"{found.differing:,} visits have other propensities than their model and settings give today."
        console.print(words, highlight=False, markup=False)
    table = Table(title="What candidates would have earned", title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for head in ("a visit\nand a slot", "against\nserved", "rounds\nthat count"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for result in found.candidates:
        table.add_row(*_row(result))
    console.print(table)
    for result in found.candidates:
        for note in (*result.notes, *(f"{count:,} visits left out: {why}" for why, count in result.left_out.items())):
            console.print(f"{result.name}: {note}", highlight=False, markup=False, soft_wrap=True)
        if result.rounds:
            words = f"{result.name}: weighed by {result.way}, which assumes: {result.assumes}"
            console.print(words, highlight=False, markup=False, soft_wrap=True)


def _row(result: CandidateResult) -> list[str]:
    name = result.name.replace(",", "\n")  # a setting a line: they would be cut anywhere
    if not result.rounds:
        return [name, "-", "-", "0", result.verdict]
    visit, gap = result.per_visit, result.difference
    return [
        name,
        f"{visit.value:.3f}\n[{visit.low:.3f}, {visit.high:.3f}]\n{result.per_slot.value:.3f}",
        f"{gap.value:+.3f}\n[{gap.low:+.3f}, {gap.high:+.3f}]",
        f"{result.share:.1%}\nas {result.effective:,.0f}",
        result.verdict,
    ]
