"""The experiment as HTML, with buttons to start, stop and promote."""

from __future__ import annotations

from html import escape

from treetop.evaluation.live import VariantResult
from treetop.evaluation.verdict import Estimate
from treetop.service.dashboard.board import Board
from treetop.service.dashboard.models import button
from treetop.service.dashboard.text import NONE, OOB, moment, number

HEADS = ("Variant", "Differs in", "Traffic", "Visits", "Reward per visit", "Uplift over the baseline", "Verdict")
FORM = "/dashboard/experiment"


def experiment(board: Board) -> str:
    """The part of the section that changes: the variants, or what can be started."""
    if board.experiment is None or board.result is None:
        body = "<p class='soft'>None has run. <code>[experiments]</code> in config.toml defines them.</p>"
        return f"<div id='experiment' {OOB} class='card'>{body}{_starts(board)}</div>"
    found, result = board.experiment, board.result
    state = "runs since" if result.running else "ended; it ran from"
    rows = "".join(_row(board, variant) for variant in result.variants)
    heads = "".join(f"<th scope='col'>{head}</th>" for head in HEADS)
    stop = button(board, FORM, {"action": "stop"}, "Stop", f"Stop experiment {found.name}?") if board.admin else ""
    return (
        f"<div id='experiment' {OOB} class='card'><p><b>{escape(found.name)}</b> {state} {moment(found.started)}, "
        f"by <code>{escape(found.unit)}</code>. <span class='soft'>{result.confidence:.0%} intervals hold at all "
        f"times at once: look as often as you like.</span></p>{stop if result.running else ''}"
        f"<table class='stack'><thead><tr>{heads}<td></td></tr></thead><tbody>{rows}</tbody></table>"
        f"{'' if result.running else _starts(board)}</div>"
    )


def _row(board: Board, variant: VariantResult) -> str:
    assert board.experiment is not None
    assert board.result is not None
    settings = board.experiment.settings(variant.name)
    said = ", ".join(f"{key} = {value}" for key, value in settings.items()) or "nothing"
    kind = {"better": " class='good'", "worse": " class='bad'"}.get(variant.verdict, "")
    values = (
        f"<b>{escape(variant.name)}</b>",
        escape(said),
        f"{float(board.experiment.variants[variant.name]['share']):.0%}",
        f"{variant.visits:,}",
        _interval(variant.reward),
        NONE if variant.difference is None else _interval(variant.difference, signed=True),
        f"<span{kind}>{escape(variant.verdict)}</span>",
    )
    text = "".join(f"<td data-head='{head}'>{value}</td>" for head, value in zip(HEADS, values, strict=True))
    ask = f"Let variant {variant.name} decide all visits from now on? [policy] of config.toml is rewritten."
    fields = {"action": "promote", "name": variant.name}
    act = button(board, FORM, fields, "Promote", ask) if board.admin and board.result.running else ""
    return f"<tr data-variant='{escape(variant.name)}'>{text}<td class='act'>{act}</td></tr>"


def over_baseline(board: Board) -> tuple[str, str]:
    """By how much the variant with most visits beats the baseline of the experiment, and which the two are."""
    if board.experiment is None or board.result is None:
        return NONE, "no experiment has run"
    baseline, *others = board.result.variants
    found = max(others, key=lambda variant: variant.visits)
    names = f"a visit, <b>{escape(found.name)}</b> over <b>{escape(baseline.name)}</b>"
    if found.difference is None or not found.visits or not baseline.visits:
        return NONE, names
    return _interval(found.difference, signed=True), names


def _interval(found: Estimate, signed: bool = False) -> str:
    if not found.high < float("inf"):
        return NONE if found.value != found.value else number(found.value)
    sign = "+" if signed else ""
    return f"{found.value:{sign}.3f} <span class='soft'>[{found.low:{sign}.3f}, {found.high:{sign}.3f}]</span>"


def _starts(board: Board) -> str:
    if not board.admin:
        return ""
    return "".join(
        button(board, FORM, {"action": "start", "name": name}, f"Start {name}", f"Start experiment {name}?")
        for name in board.service.defined
    )
