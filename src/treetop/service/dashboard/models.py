"""The kept models and their history as HTML, with a button to make each of them current."""

from __future__ import annotations

from html import escape
from typing import Any

from treetop.service.dashboard import charts
from treetop.service.dashboard.board import Board
from treetop.service.dashboard.text import OOB, moment

HEADS = ("Model", "Made", "From", "Refit took", "Decisions", "Greedy", "Explored")


def models(board: Board, admin: bool) -> str:
    made = {entry["model"]: entry for entry in board.history if entry["kind"] in ("refit", "arms added")}
    means = charts.by_epoch(board.logged.figures.cells) if board.logged else {}
    rows = "".join(_row(board, name, made.get(name, {}), means, admin) for name in reversed(board.models))
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    note = "" if admin else "<p class='soft'>Rolling back needs a token with the scope <code>admin</code>.</p>"
    return (
        f"<section id='models' {OOB} class='card'><h2>Models</h2>{_next(board)}"
        f"<table class='stack'><thead><tr>{heads}<th></th></tr></thead><tbody>{rows}</tbody></table>{note}"
        f"<h3>History</h3><ol class='history'>{_history(board)}</ol></section>"
    )


def _next(board: Board) -> str:
    snapshot = board.snapshot
    text = f"<b>{escape(snapshot.name)}</b> serves, learned from {snapshot.model.n_seen:,} rounds."
    if board.refits.running:
        return f"<p>{text} A refit is running.</p>"
    if board.logged is None:
        return f"<p>{text}</p>"
    due, observed = board.config.refit.next_at(board.seen), board.logged.counts.observed
    return (
        f"<p>{text} <span class='soft'>The next refit is due at {due:,} decisions with a reward; there are "
        f"{observed:,}.</span> <progress max='{due - board.seen}' value='{observed - board.seen}'></progress></p>"
    )


def _row(board: Board, name: str, made: dict[str, Any], means: dict[int, Any], admin: bool) -> str:
    decisions, greedy, explored = means.get(int(name), (0, None, None))
    serves = name == board.snapshot.name
    cells = (
        f"<b>{escape(name)}</b>{' <span class=badge>serves</span>' if serves else ''}",
        moment(made["time"]) if made else "at the beginning",
        f"{made['rounds']:,} rounds" if "rounds" in made else f"{made['count']:,} new arms" if made else "–",
        f"{made['seconds']:.1f} s" if "seconds" in made else "–",
        f"{decisions:,}",
        _mean(greedy),
        _mean(explored),
    )
    text = "".join(f"<td data-head='{head}'>{cell}</td>" for head, cell in zip(HEADS, cells, strict=True))
    button = _button(name, board.snapshot.name) if admin and not serves else ""
    return f"<tr data-model='{escape(name)}'>{text}<td class='act'>{button}</td></tr>"


def _mean(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _button(name: str, current: str) -> str:
    ask = f"Let model {name} serve in place of {current}? Decisions go on meanwhile."
    return (
        f"<form method='post' action='/dashboard/rollback' data-confirm='{escape(ask)}'>"
        f"<input type='hidden' name='model' value='{escape(name)}'>"
        f"<button>{'Roll back' if name < current else 'Use again'}</button></form>"
    )


def _history(board: Board) -> str:
    lines = [f"<li>{moment(entry['time'])} {_describe(entry)}</li>" for entry in board.history]
    return "".join(lines) or "<li class='soft'>nothing yet</li>"


def _describe(entry: dict[str, Any]) -> str:
    kind, model = entry["kind"], escape(str(entry.get("model", "")))
    if kind == "refit":
        warned = "".join(f" <span class='bad'>{escape(text)}</span>" for text in entry["warnings"])
        return (
            f"Refit: model {model} from {entry['rounds']:,} rounds with {entry['rewards']:,} rewards "
            f"in {entry['seconds']:.1f} s.{warned}"
        )
    if kind == "refit failed":
        return f"<span class='bad'>Refit failed after {entry['seconds']:.1f} s: {escape(entry['error'])}</span>"
    if kind == "rollback":
        return f"Rollback: model {model} in place of {escape(entry['base'])}."
    if kind == "arms added":
        return f"{entry['count']:,} arms added: model {model}."
    return f"{entry['count']:,} arms removed." if kind == "arms removed" else f"{escape(kind.capitalize())}."
