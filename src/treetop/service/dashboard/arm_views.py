"""The table of arms as HTML, and why an arm was shown."""

from __future__ import annotations

from html import escape

import numpy as np

from treetop.bandit.new_arms import TRIALS
from treetop.log.records import StoredEvent
from treetop.service.dashboard import words
from treetop.service.dashboard.arms import ArmPage, ArmRow
from treetop.service.dashboard.board import Board
from treetop.service.dashboard.decisions import alternatives
from treetop.service.dashboard.query import Query
from treetop.service.dashboard.text import NONE, OOB, amount, hidden, moment, number, share

COLUMNS = {
    "arm": "Arm",
    "impressions": "Impressions",
    "unlikely": "Unlikely",
    "reward": "Reward",
    "rate": "Per impression",
}


def arm_section(board: Board) -> str:
    """The table with its search, and the place where it is said why an arm was shown."""
    keep = {k: v for k, v in board.query.parameters().items() if k not in ("search", "page", "arm")}
    why = why_arm(board) if board.query.arm is not None else ""
    return (
        "<section aria-labelledby='h-arms'><div class='line'><h2 id='h-arms'>Arms</h2>"
        "<form id='search-form' role='search' action='/' method='get' hx-get='/dashboard/arms' hx-swap='none' "
        f"hx-trigger='submit, input delay:300ms'>{hidden(keep)}<label for='search'>Search by id</label> "
        f"<input id='search' name='search' type='search' maxlength='512' value='{escape(board.query.search)}'>"
        f"</form></div><div class='card'>{arms(board)}{new_arms(board)}"
        f"<div id='arm-why' aria-live='polite'>{why}</div></div></section>"
    )


def arms(board: Board) -> str:
    """The page of the table that the query asks for."""
    if board.logged is None:
        return f"<div id='arms' {OOB}></div>"
    found = board.logged.arms
    heads = "".join(_head(board.query, name) for name in COLUMNS)
    rows = "".join(_row(board.query, row, board.category(row.arm)) for row in found.rows)
    body = rows or f"<tr><td colspan='{len(COLUMNS)}' class='soft'>No arm has this in its id.</td></tr>"
    return (
        f"<div id='arms' {OOB}><p class='soft'>{_coverage(found)}</p>"
        f"<table class='numbers arms'><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        f"{_pages(board.query, found)}</div>"
    )


def new_arms(board: Board) -> str:
    """How many of the arms that were added lately were shown often enough, and how long that took."""
    cohorts = board.logged.cohorts if board.logged else []
    if not cohorts:
        return f"<div id='new-arms' {OOB}></div>"
    heads = f"<th>New arms</th><th>Added</th><th>Shown</th><th>{TRIALS} times</th><th>Half of them after</th>"
    rows = "".join(
        f"<tr data-cohort='{escape(c.model)}'><th scope='row'>{c.arms:,}</th>"
        f"<td>{NONE if c.time is None else moment(c.time)}</td><td>{c.shown:,}</td>"
        f"<td>{c.enough:,} ({share(c.enough, c.arms)})</td>"
        f"<td>{NONE if c.median_seconds is None else f'{c.median_seconds / 60:,.1f} min'}</td></tr>"
        for c in cohorts
    )
    return (
        f"<div id='new-arms' {OOB}><table class='numbers'><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _coverage(found: ArmPage) -> str:
    counted = f", from {moment(found.begin)} to {moment(found.end)}" if found.begin > 0 else ""
    return (
        f"<span id='arms-shown'>{found.shown:,}</span> of {found.arms:,} arms shown ({share(found.shown, found.arms)})"
        f"{counted}. Gini of exposure <span id='gini'>{found.gini:.3f}</span>."
    )


def _link(query: Query, **changes: object) -> str:
    """The attributes of a link that changes the table: by script in place, without one by loading the page."""
    there = query.link(arm=None, **changes)
    part = query.link("/dashboard/arms", arm=None, **changes)
    return f"href='{escape(there)}' hx-get='{escape(part)}' hx-swap='none'"


def _head(query: Query, name: str) -> str:
    chosen = query.sort == name
    first = "up" if name == "arm" else "down"
    order = first if not chosen else ("up" if query.order == "down" else "down")
    sign = ("▼" if query.order == "down" else "▲") if chosen else ""
    said = f" aria-sort='{'descending' if query.order == 'down' else 'ascending'}'" if chosen else ""
    link = _link(query, sort=name, order=order, page=1)
    text = f"{COLUMNS[name]} <span aria-hidden='true'>{sign}</span>"
    return f"<th scope='col'{said}><a id='sort-{name}' {link}>{text}</a></th>"


def _row(query: Query, row: ArmRow, category: str) -> str:
    removed = " <span class='badge gone'>removed</span>" if row.removed else ""
    there, part = query.link(arm=row.arm), query.link("/dashboard/arm", arm=row.arm)
    why = (
        f"<a class='ask' href='{escape(there)}#arm-why' hx-get='{escape(part)}' hx-target='#arm-why' "
        f"aria-label='Why was {escape(row.name)} shown?'>why?</a>"
    )
    below = f"<span class='path'>{escape(category)}</span>" if category else ""
    return (
        f"<tr data-arm='{escape(row.name)}'><th scope='row'><span class='name'>{escape(row.name)}</span>{removed} "
        f"{why if row.impressions else ''}{below}</th><td>{row.impressions:,}</td><td>{row.unlikely:,}</td>"
        f"<td>{amount(row.reward)}</td><td>{number(row.rate)}</td></tr>"
    )


def _pages(query: Query, found: ArmPage) -> str:
    if found.pages == 1:
        return ""
    before = f"<a id='page-before' rel='prev' {_link(query, page=found.page - 1)}>Before</a>" if found.page > 1 else ""
    after = (
        f"<a id='page-after' rel='next' {_link(query, page=found.page + 1)}>Next</a>"
        if found.page < found.pages
        else ""
    )
    return (
        f"<nav class='pages' aria-label='Pages of arms'>{before}<span>page {found.page:,} of {found.pages:,}, "
        f"{found.found:,} arms</span>{after}</nav>"
    )


def why_arm(board: Board) -> str:
    """Recent decisions that showed an arm, each with the reason and on demand with its alternatives."""
    arm = board.query.arm
    if arm is None or board.logged is None:
        return ""
    found = "".join(_shown(arm, stored) for stored in board.logged.shown_by)
    body = (
        f"<ol class='decisions'>{found}</ol>"
        if found
        else "<p class='soft'>No decision of this range is left in the log.</p>"
    )
    name, category = escape(board.names.name(arm)), board.category(arm)
    of = f" <span class='path'>{escape(category)}</span>" if category else ""
    return f"<h3 id='h-why' tabindex='-1'>Why was {name} shown?{of}</h3>{body}"


def _shown(arm: int, stored: StoredEvent) -> str:
    event = stored.event
    place = int(np.flatnonzero(event.arms == arm)[0])
    reward = float(stored.rewards[place])
    came = f"Reward {reward:g}." if reward == reward else "No reward yet."
    return (
        f"<li data-event='{escape(event.event_id)}'><div class='line'><code>{escape(event.event_id)}</code>"
        f"<span class='soft'>{moment(event.time)} · model {escape(event.model)}</span></div>"
        f"<p class='words'>{escape(words.slot(stored, place))} {came}</p>{alternatives(event.event_id)}</li>"
    )
