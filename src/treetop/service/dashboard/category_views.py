"""Reward by category as HTML, with links to the categories below each."""

from __future__ import annotations

from html import escape

from treetop.service.dashboard.board import Board
from treetop.service.dashboard.categories import CategoryRow
from treetop.service.dashboard.query import Query
from treetop.service.dashboard.text import OOB, amount, number, share
from treetop.tree.categories import CategoryPath, category_path, category_text

HEADS = ("Category", "Arms shown", "Impressions", "Unlikely", "Reward", "Reward per impression")


def categories(board: Board) -> str:
    """Reward by category; empty if the owner named none."""
    if not board.categories and not board.query.category:
        return f"<div id='categories' {OOB}></div>"
    heads = "".join(f"<th scope='col'>{head}</th>" for head in HEADS)
    rows = []
    for row in board.categories:
        values = (
            _deeper(board.query, row),
            f"{row.arms:,}",
            f"{row.impressions:,}",
            share(row.unlikely, row.impressions),
            amount(row.reward),
            number(row.rate),
        )
        cells = zip(HEADS, values, strict=True)
        rows.append("<tr>" + "".join(f"<td data-head='{head}'>{value}</td>" for head, value in cells) + "</tr>")
    return (
        f"<div id='categories' {OOB} class='card'><h3>Reward by category</h3>{_trail(board.query)}"
        f"<table class='stack'><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _deeper(query: Query, row: CategoryRow) -> str:
    """A category's name, with a link to those below it."""
    return _link(query, row.path, row.name) if row.deeper else escape(row.name)


def _trail(query: Query) -> str:
    """The way back from the category whose parts are shown, level by level."""
    path = category_path(query.category)
    if not path:
        return ""
    steps = [_link(query, path[:i], path[i - 1] if i else "all") for i in range(len(path))]
    return f"<nav class='trail' aria-label='Categories above'>{' &gt; '.join([*steps, escape(path[-1])])}</nav>"


def _link(query: Query, path: CategoryPath, text: str) -> str:
    there = query.link(category=category_text(path), arm=None)
    part = query.link("/dashboard/categories", category=category_text(path), arm=None)
    return f"<a href='{escape(there)}#categories' hx-get='{escape(part)}' hx-swap='none'>{escape(text)}</a>"
