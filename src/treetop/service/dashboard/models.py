"""The kept models and their history as HTML, with buttons to make each of them current, pin and unpin it."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import urlencode

from treetop.log.visit_totals import Cell
from treetop.service.dashboard import charts
from treetop.service.dashboard.board import Board
from treetop.service.dashboard.text import OOB, hidden, mean, moment, share

HEADS = ("Model", "Made", "From", "Visits", "Reward per visit", "Rewards known", "Likely slot", "Unlikely slot")
HISTORY = 12  # entries
MADE = ("refit", "refit kept aside", "arms added")


def models(board: Board) -> str:
    made = {entry["model"]: entry for entry in board.history if entry["kind"] in MADE}
    cells = charts.by_epoch(board.logged.total) if board.logged else {}
    rows = "".join(_row(board, name, made.get(name, {}), cells.get(int(name), [])) for name in reversed(board.models))
    heads = "".join(f"<th scope='col'>{head}</th>" for head in HEADS)
    note = "" if board.admin else "<p class='soft'>To roll back or pin, a token needs the scope <code>admin</code>.</p>"
    return (
        f"<section id='models' {OOB} ><h2>Models</h2><div class='card'>{_next(board)}"
        f"<table class='stack'><thead><tr>{heads}<td></td></tr></thead><tbody>{rows}</tbody></table>{note}"
        f"<h3>History</h3><ol class='history'>{_history(board)}</ol></div></section>"
    )


def _next(board: Board) -> str:
    service = board.service
    text = f"<b>{escape(service.model)}</b> serves, learned from {service.n_seen:,} rounds."
    if service.pinned:
        return f"<p>{text} It is pinned: no refit replaces it until it is unpinned.</p>"
    if service.refit_running:
        return f"<p>{text} A refit is running.</p>"
    if board.logged is None:
        return f"<p>{text}</p>"
    due, new = service.refit_due, max(0, board.logged.counts.observed_ever - service.refit_from)
    return (
        f"<p>{text} <span class='soft'>The next refit is due after {due:,} new decisions with a reward; there are "
        f"{new:,}.</span> <progress max='{due}' value='{new}' aria-label='Until the next refit'></progress></p>"
    )


def _row(board: Board, name: str, made: dict[str, Any], cells: list[Cell]) -> str:
    visits, slots = sum(c.visits for c in cells), sum(sum(c.slots) for c in cells)
    observed, reward = (
        [sum(getattr(c, what)[how] for c in cells) for how in (0, 1)] for what in ("observed", "reward")
    )
    serves = name == board.service.model
    badges = "<span class='badge'>serves</span> " if serves else ""
    badges += "<span class='badge pin'>pinned</span>" if serves and board.service.pinned else ""
    if name in board.aside:
        badges += f"<span class='badge aside' title='{escape(board.aside[name])}'>kept aside</span>"
    values = (
        f"<b>{escape(name)}</b> {badges}",
        moment(made["time"]) if made else "at the beginning",
        f"{made['rounds']:,} rounds" if "rounds" in made else f"{made['count']:,} new arms" if made else "–",
        f"{visits:,}",
        mean(sum(reward), visits),
        share(sum(observed), slots),
        mean(reward[0], observed[0]),
        mean(reward[1], observed[1]),
    )
    text = "".join(f"<td data-head='{head}'>{value}</td>" for head, value in zip(HEADS, values, strict=True))
    buttons = _buttons(board, name, serves) if board.admin else ""
    return f"<tr data-model='{escape(name)}'>{text}<td class='act'>{buttons}</td></tr>"


def _buttons(board: Board, name: str, serves: bool) -> str:
    current, pinned = board.service.model, board.service.pinned
    pin = f"Let model {name} serve until it is unpinned? No refit replaces it meanwhile."
    if serves and pinned:
        ask = f"Unpin model {name}? Refits replace it again when they are due."
        return button(board, "/dashboard/unpin", {}, "Unpin", ask)
    if serves:
        return button(board, "/dashboard/rollback", {"model": name, "pin": "1"}, "Pin", pin)
    ask = f"Let model {name} serve in place of {current}? Decisions go on meanwhile."
    label = "Roll back" if name < current else "Use again"
    return button(board, "/dashboard/rollback", {"model": name}, label, ask) + button(
        board, "/dashboard/rollback", {"model": name, "pin": "1"}, "Pin", pin
    )


def button(board: Board, action: str, fields: dict[str, str], label: str, ask: str) -> str:
    """A form of one button, which asks before it is sent."""
    back = {"back": urlencode(board.query.parameters())}
    return (
        f"<form method='post' action='{action}' data-confirm='{escape(ask)}'>{hidden(fields | back)}"
        f"<button>{label}</button></form>"
    )


def _history(board: Board) -> str:
    begin, end = board.bounds
    chosen = [entry for entry in board.history if begin <= entry["time"] < end][:HISTORY]
    lines = [f"<li>{moment(entry['time'])} {_describe(entry)}</li>" for entry in chosen]
    return "".join(lines) or "<li class='soft'>nothing in this range</li>"


def _describe(entry: dict[str, Any]) -> str:
    kind, model = entry["kind"], escape(str(entry.get("model", "")))
    if kind == "refit":
        warned = "".join(f" <span class='bad'>{escape(text)}</span>" for text in entry["warnings"])
        return (
            f"Refit: model {model} from {entry['rounds']:,} rounds with {entry['rewards']:,} rewards "
            f"in {entry['seconds']:.1f} s.{warned}"
        )
    if kind == "refit kept aside":
        return (
            f"<span class='bad'>Refit kept aside: model {model} from {entry['rounds']:,} rounds. "
            f"{escape(entry['aside'][:1].upper() + entry['aside'][1:])}.</span>"
        )
    if kind.startswith("experiment"):
        name, variant = escape(str(entry["name"])), escape(str(entry.get("variant", "")))
        if variant:
            return f"Experiment {name} ended: variant {variant} decides all visits."
        return f"Experiment {name} {'started' if kind.endswith('started') else 'stopped'}."
    if kind == "refit failed":
        return f"<span class='bad'>Refit failed after {entry['seconds']:.1f} s: {escape(entry['error'])}</span>"
    if kind == "rollback":
        base, pinned = escape(entry["base"]), " It is pinned." if entry.get("pinned") else ""
        return f"Model {model} pinned." if base == model else f"Rollback: model {model} in place of {base}.{pinned}"
    if kind == "unpinned":
        return f"Model {model} unpinned."
    if kind == "arms added":
        return f"{entry['count']:,} arms added: model {model}."
    return f"{entry['count']:,} arms removed." if kind == "arms removed" else f"{escape(kind.capitalize())}."
