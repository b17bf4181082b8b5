"""The command evaluate: parse, call, print."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from treetop.bandit.bandit import Bandit
from treetop.bandit.evaluation import NO_VISITS, Evaluation, evaluate
from treetop.bandit.policy_search import PolicySearch, search_policies
from treetop.cli.experiment import show_experiment
from treetop.cli.folder import Folder, LogAt
from treetop.cli.log import moment
from treetop.cli.options import Json, Ray, grouped
from treetop.cli.output import check_picture, console, errors, is_shown
from treetop.display import counted
from treetop.effort import Effort
from treetop.evaluation.picture import draw_results
from treetop.evaluation.verdict import ROUNDING, UNKNOWN, CandidateResult, short_verdict

POLICY_HELP = (
    "A candidate: settings of the visits with some replaced, such as strategy=greedy, beam=30, explore=1, "
    "strategy=igw,C=2 or model=000012; repeatable."
)
SINCE_HELP = "Only visits from then on: 2025-01-31 or 2025-01-31T12:00+01:00; UTC if it is bare."
SEARCH_HELP = "Judge the neighbours of the settings that serve, and confirm the best on the newest visits."
EXPERIMENT_HELP = "Compare the variants of an experiment on live traffic, which the visits themselves have shown."
POSITION_HELP = (
    "What a slot's reward may depend on: any (slot of the decision) or cascade (itself and the slots above). Without "
    "it a rule chooses, see docs/evaluation.md."
)
ESTIMATOR_HELP = (
    "An estimator by its name in `others` of --json, such as snips-nodes-0 or dr-slots, instead of the one that "
    "the rule takes; docs/evaluation.md says what each assumes."
)
POSITION_MODELS = {"any": "snips-slate", "cascade": "snips-slots"}
ALONE = {
    "--search": "--search makes its own candidates",
    "--experiment": "--experiment compares the variants that visits have shown",
}
SEGMENTS_HELP = "Read sealed segments, such as shop/segments; --log is then not read (docs/segments.md)."
BOUND_HELP = "What no weight can exceed, if propensities have a floor; narrows the intervals."


@dataclass(frozen=True)
class EvaluationOptions:
    """Which visits count, and how sure the intervals are."""

    since: Annotated[str | None, typer.Option(help=SINCE_HELP)] = None
    confidence: Annotated[float, typer.Option(help="Of the intervals, which hold at all times at once.")] = 0.95
    weight_bound: Annotated[float | None, typer.Option(help=BOUND_HELP)] = None
    experiment: Annotated[str | None, typer.Option(help=EXPERIMENT_HELP)] = None
    position_model: Annotated[str | None, typer.Option(help=POSITION_HELP)] = None
    estimator: Annotated[str | None, typer.Option(help=ESTIMATOR_HELP)] = None
    segments: Annotated[Path | None, typer.Option(help=SEGMENTS_HELP)] = None
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
    begin = _check(options, policy or [], search, picture)
    if options.segments is not None and not policy:
        raise ValueError("--segments is for --policy; --search and --experiment need the log")
    if options.experiment is not None:
        with Bandit.open(folder, log) as bandit:
            show_experiment(bandit, options.experiment, options.confidence, as_json)
        return
    sure, bound = options.confidence, options.weight_bound
    columns = TextColumn("evaluated"), BarColumn(), TextColumn("{task.completed:>9,} visits"), TimeRemainingColumn()
    searched: PolicySearch | None = None
    where = log if options.segments is None else options.segments
    source = folder if where is None else (folder, where)
    with Progress(*columns, console=errors, disable=not is_shown(as_json), transient=True) as bars:
        task = bars.add_task("evaluated", total=None)
        effort = Effort(progress=lambda done, total: bars.update(task, completed=done, total=total), ray=options.ray)
        if search:
            searched = search_policies(source, since=begin, confidence=sure, weight_bound=bound, effort=effort)
            found = searched.searched
        else:
            more: dict[str, Any] = {"since": begin, "weight_bound": bound, "estimator": _estimator(options)}
            found = evaluate(source, policy or [], confidence=sure, effort=effort, **more)
    if found.rounds == 0:
        raise ValueError(NO_VISITS)
    if picture is not None:
        draw_results(found.candidates, found.served, picture)
    if as_json:
        print(json.dumps({**(searched or found).to_dict(), "picture": None if picture is None else str(picture)}))
        return
    _print(found)
    if searched is not None:
        _print_confirmed(searched)
    if picture is not None:
        _say(str(picture))


def _check(options: EvaluationOptions, policy: list[str], search: bool, picture: Path | None) -> float | None:
    """What can be said before anything is read; returns the time of --since."""
    given = {"--policy": bool(policy), "--search": search, "--experiment": options.experiment is not None}
    named = [name for name, there in given.items() if there]
    if len(named) > 1:
        raise ValueError(f"{' and '.join(named)} do not go together: {ALONE[named[-1]]}")
    if not named:
        raise ValueError("give --policy, once or more, or --search, or --experiment")
    chosen = {"--position-model": options.position_model, "--estimator": options.estimator}
    if not policy and (wrong := next((name for name, value in chosen.items() if value is not None), None)):
        raise ValueError(f"{wrong} is for --policy; --search chooses by the rule, an experiment needs none")
    begin = None if options.since is None else moment("--since", options.since)
    if begin is not None and begin > time.time():
        raise ValueError(f"--since is {options.since!r}, which is in the future: {NO_VISITS}")
    if options.experiment is not None:
        others = {"--since": begin, "--picture": picture, "--weight-bound": options.weight_bound}
        if wrong := next((name for name, value in others.items() if value is not None), None):
            raise ValueError(f"{wrong} is for --policy and --search; an experiment counts its own visits")
    if picture is not None:
        check_picture("--picture", picture)
    return begin


def _estimator(options: EvaluationOptions) -> str | None:
    """The name of the estimator that the options choose; None leaves it to the rule."""
    said = options.position_model
    if said is None:
        return options.estimator
    if said not in POSITION_MODELS:
        raise ValueError(f"--position-model is {said!r}; it must be one of {', '.join(POSITION_MODELS)}")
    if options.estimator is not None:
        raise ValueError(f"--position-model {said} and --estimator {options.estimator}: only one can choose")
    return POSITION_MODELS[said]


def _say(words: str) -> None:
    console.print(words, highlight=False, markup=False, soft_wrap=True)


def _print_confirmed(found: PolicySearch) -> None:
    gain = f"{found.gain:+.3f}"
    words = f"Best of them: {found.chosen}."
    if float(gain) <= 0:
        words = f"None of them gains; the surest not to lose is {found.chosen}, with {gain} a visit against served."
    _say(f"{words} On {found.held_out.rounds:,} newer visits, which did not choose it:")
    for result in found.held_out.candidates:
        words = f"{result.per_visit} a visit, {result.difference.value:+.3f} against served: {result.verdict}."
        if not result.answered:
            words = f"{result.described(result.per_visit)} a visit: {result.verdict}."
        _say(words if result.rounds else f"{result.verdict}.")


def _print(found: Evaluation) -> None:
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
    for note, names in _notes(found.candidates).items():
        whose = "all" if len(names) == len(found.candidates) > 1 else "; ".join(names)
        _say(f"{whose}: {note}")


def _notes(candidates: Sequence[CandidateResult]) -> dict[str, list[str]]:
    """What stands below the table, each once, with the candidates that it is about; first verdicts that are long."""
    about: dict[str, list[str]] = {}
    for result in candidates:
        left = (f"{counted(count, 'visit')} left out: {why}" for why, count in result.left_out.items())
        weighed = [support(result), f"weighed by {result.way}, which assumes: {result.assumes}"]
        long = [result.verdict] if result.verdict != short_verdict(result.verdict) else []
        for note in (*long, *result.notes, *left, *(weighed if result.rounds else [])):
            about.setdefault(note, []).append(result.name)
    return about


def support(result: CandidateResult) -> str:
    """How large weights are, and how much of what the candidate would show the log cannot.

    >>> from dataclasses import replace
    >>> from treetop.evaluation.verdict import Estimate
    >>> nothing = Estimate(1.0, 1.0, 1.0)
    >>> known = CandidateResult("c", 9, "slots", "", *[nothing] * 4, 9, 1, 1, "better", largest_weight=3.51)
    >>> support(known)
    'weights up to 3.5; which decisions the log cannot show is not known: models that served are gone or differ'
    >>> support(replace(known, unsupported=0.123))
    'weights up to 3.5; the log cannot show 12.3% of its decisions'
    >>> support(replace(known, unsupported=0.0))
    'weights up to 3.5; the log can show all its decisions'
    """
    share, words = result.unsupported, "the log can show all its decisions"
    if math.isnan(share):
        words = "which decisions the log cannot show is not known: models that served are gone or differ"
    elif share > ROUNDING:
        small = share < 5e-4
        words = f"the log {'can show more than 99.9%' if small else f'cannot show {share:.1%}'} of its decisions"
    return f"weights up to {result.largest_weight:,.1f}; {words}"


def _row(result: CandidateResult) -> list[str]:
    name = result.name.replace(",", "\n")  # a setting a line: they would be cut anywhere
    if not result.rounds:
        return [name, "-", "-", "0", short_verdict(result.verdict)]
    visit, gap = result.per_visit, result.difference
    values = f"{visit.value:.3f}", f"\n{result.per_slot.value:.3f}", f"{gap.value:+.3f}"
    if not result.answered:  # the log has not all of it: a number would be taken for the answer
        values = UNKNOWN, "", UNKNOWN
    return [
        name,
        f"{values[0]}\n[{visit.low:.3f}, {visit.high:.3f}]{values[1]}",
        f"{values[2]}\n[{gap.low:+.3f}, {gap.high:+.3f}]",
        f"{result.share:.1%}\nas {result.effective:,.0f}",
        short_verdict(result.verdict),
    ]
