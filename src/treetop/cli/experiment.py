"""The command experiment: parse, call, print."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from enum import Enum
from typing import Annotated

import typer
from rich.table import Table

from treetop.bandit.bandit import Bandit
from treetop.bandit.config_file import CONFIG
from treetop.bandit.experiment_config import Experiment
from treetop.bandit.live_experiment import ExperimentResult, LiveExperiment, find_experiment
from treetop.cli.folder import Folder, LogAt
from treetop.cli.options import Json
from treetop.cli.output import console
from treetop.evaluation.verdict import Estimate, short_verdict

CONFIDENCE = 0.95
NAME_HELP = "start, show: the experiment's name in config.toml; promote: that of a variant."


class Action(str, Enum):
    """What to do with an experiment."""

    start = "start"
    stop = "stop"
    promote = "promote"
    show = "show"


def experiment(
    action: Annotated[Action, typer.Argument(help="What to do: start, show, stop, promote.")],
    folder: Folder,
    name: Annotated[str | None, typer.Argument(help=NAME_HELP)] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals, which hold at all times at once.")] = CONFIDENCE,
    log: LogAt = None,
    as_json: Json = False,
) -> None:
    """Starts an experiment of config.toml on live traffic, shows how it goes, stops it, or promotes a variant.

    A running service goes by it within a second, without a restart.

    Example: treetop experiment start shop beams
    """
    if action in (Action.start, Action.promote) and name is None:
        raise ValueError(f"{action.value} needs a name: treetop experiment {action.value} {folder} NAME")
    if action is Action.stop and name is not None:
        raise ValueError("stop takes no name: one experiment runs at a time")
    with Bandit.open(folder, log) as bandit:
        if action is Action.show:
            show_experiment(bandit, name, confidence, as_json)
        elif action is Action.start:
            _say(bandit.start_experiment(str(name)), "runs", as_json)
        elif action is Action.stop:
            _say(bandit.stop_experiment(), "is stopped", as_json)
        else:
            _promote(bandit, str(name), as_json)


def _say(found: Experiment, what: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found.plain()))
        return
    console.print(f"Experiment {found.name} {what}, by {found.unit}:", highlight=False, markup=False)
    for name, settings in found.variants.items():
        words = ", ".join(f"{key} {value}" for key, value in found.settings(name).items()) or "as the settings say"
        console.print(
            f"  {name}: {float(settings['share']):.0%} of the traffic, {words}", highlight=False, markup=False
        )


def _promote(bandit: Bandit, variant: str, as_json: bool) -> None:
    policy = bandit.promote_variant(variant)
    if as_json:
        print(json.dumps({"variant": variant, "model": bandit.snapshot.name, "policy": asdict(policy)}))
        return
    words = (
        f"Variant {variant} decides all visits now, with model {bandit.snapshot.name}; [policy] of config.toml says so."
    )
    console.print(words, highlight=False, markup=False, soft_wrap=True)


def show_experiment(bandit: Bandit, name: str | None, confidence: float, as_json: bool) -> None:
    """Prints how an experiment goes; the one that runs, or else the last, without a name."""
    found, bad = find_experiment(bandit.folder, name), bandit.config.bad_experiments
    if found is None:
        words = "no experiment was ever started" if name is None else f"experiment {name!r} was never started"
        wrong = [why for each, why in bad.items() if name in (None, each)]
        raise ValueError("; ".join([words, *(f"{CONFIG}: {why}" for why in wrong)]))
    live = LiveExperiment(bandit.log, found[0])
    while not live.update():
        pass
    result = live.result(found[1], bandit.config.rewards.reward_wait, confidence)
    if as_json:
        print(json.dumps({**result.to_dict(), "bad": dict(bad)}))
        return
    _print(result)
    for why in bad.values():
        console.print(f"bad, cannot be started: {why}", highlight=False, markup=False)


def _print(found: ExperimentResult) -> None:
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found.started))
    state = "runs" if found.running else "has ended"
    title = f"Experiment {found.name} {state}, since {when}"
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("variant", overflow="fold", min_width=8)
    for head in ("visits", "reward\na visit", "against\nthe baseline"):
        table.add_column(head, justify="right", overflow="fold")
    table.add_column("verdict", overflow="fold", min_width=12)
    for variant in found.variants:
        gap = "" if variant.difference is None else _signed(variant.difference)
        said = short_verdict(variant.verdict)
        table.add_row(variant.name, f"{variant.visits:,}", _number(variant.reward), gap, said)
    console.print(table)
    for variant in found.variants:
        if variant.verdict != short_verdict(variant.verdict):
            console.print(f"{variant.name}: {variant.verdict}", highlight=False, markup=False)
    console.print(f"{found.confidence:.0%} intervals, which hold at all times at once.", highlight=False, markup=False)


def _number(found: Estimate) -> str:
    if found.high == float("inf") or found.value != found.value:
        return "-"
    return f"{found.value:.3f}\n[{found.low:.3f}, {found.high:.3f}]"


def _signed(found: Estimate) -> str:
    if found.high == float("inf") or found.value != found.value:
        return "-"
    return f"{found.value:+.3f}\n[{found.low:+.3f}, {found.high:+.3f}]"
