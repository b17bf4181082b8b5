"""The dashboard's page as HTML, made from a Board. Every text from outside is escaped where it enters.

The parts that change carry `hx-swap-oob`: `updates` answers with all of them, and each replaces the element on the page
with the same id.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from treetop.log.greedy_slates import spent_error, spent_reward, spent_share
from treetop.log.timeline import Stretch
from treetop.log.visit_totals import Cell, VisitTotals
from treetop.service.dashboard import charts
from treetop.service.dashboard.arm_views import arm_section, arms, new_arms, why_arm
from treetop.service.dashboard.board import Board, LogData
from treetop.service.dashboard.category_views import categories
from treetop.service.dashboard.decisions import decision
from treetop.service.dashboard.experiment_views import experiment, over_baseline
from treetop.service.dashboard.latency import percentiles
from treetop.service.dashboard.layout import document
from treetop.service.dashboard.models import models
from treetop.service.dashboard.query import ALL, CUSTOM, RANGES
from treetop.service.dashboard.requests import RequestTotals
from treetop.service.dashboard.text import NONE, OOB, amount, hidden, mean, milliseconds, share

EVERY = "2s"
NORMAL = 1.96  # standard errors on either side in a 95 % interval
MIN_BATCHES, MIN_UNLIKELY = 10, 30  # stretches of time and unlikely slots, for an error to be known
CHANCE = "drawn at 50 % or less"  # `UNLIKELY` of log/series.py
MOST = 0.1  # of the reward: the half of an interval with which a share of it is shown
Part = Callable[[Board], str]


def page(board: Board) -> str:
    """The whole page."""
    service = board.service
    out = "<form method='post' action='/dashboard/logout'><button class='quiet'>Log out</button></form>"
    body = (
        f"<header><h1>treetop <span class='soft'>{escape(service.folder)}</span></h1>"
        f"<span id='pulse' role='status'>live</span>{out if service.tokens else ''}</header><main>"
        f"<div hx-get='/dashboard/updates' hx-trigger='every {EVERY}' hx-swap='none'></div>"
        "<noscript><p class='banner'>Charts and updates need JavaScript; the numbers below are of now, times are UTC."
        f"</p></noscript>{_range(board)}{_done(board)}{''.join(section(board) for section in SECTIONS)}</main>"
        "<footer class='soft'>Times are in your time zone. <a href='/openapi.json'>openapi.json</a> "
        "<a href='/metrics'>metrics</a></footer>"
    )
    return document(f"treetop: {service.folder}", body, scripts=True)


def updates(board: Board) -> str:
    """The parts of the page that change."""
    return "".join(part(board) for part in CHANGING)


def _range(board: Board) -> str:
    query = board.query
    names = {**{name: label for name, (label, _) in RANGES.items()}, ALL: "All"}
    links = "".join(
        f"<a href='{escape(query.link(range=name, begin=None, end=None, page=1))}'"
        f"{' aria-current=true' if query.range == name else ''}>{label}</a>"
        for name, label in names.items()
    )
    keep = {k: v for k, v in query.parameters().items() if k not in ("range", "from", "to", "page", "arm")}
    inputs = "".join(
        f"<label>{label} <input type='datetime-local' name='{name}'"
        f"{f' data-seconds={value:.0f}' if value is not None else ''}></label>"
        for label, name, value in (("from", "from", query.begin), ("to", "to", query.end))
    )
    return (
        f"<nav class='range' aria-label='Range of time'><div class='choices'>{links}</div>"
        f"<form action='/' method='get' class='custom{' chosen' if query.range == CUSTOM else ''}' data-times>"
        f"{hidden({'range': CUSTOM, **keep})}{inputs}<button>Show</button></form></nav>"
    )


def _done(board: Board) -> str:
    if not board.done:
        return ""
    pinned = ", pinned" if board.service.pinned else ""
    return f"<p class='banner good' role='status'>Model {escape(board.service.model)} serves now{pinned}.</p>"


def _state(board: Board) -> str:
    """What is wrong, or that nothing is."""
    service, lines = board.service, []
    if board.logged is None:
        lines.append("The log cannot be read at the moment. Decisions are refused until it is back.")
    if service.trouble:
        lines.append(f"An older model serves, because the current one cannot be read: {service.trouble}.")
    if service.refit_failures:
        times = "once" if service.refit_failures == 1 else f"{service.refit_failures} times in a row"
        lines.append(f"The refit failed {times}: {service.refit_error}. It is tried again.")
    if service.refit_aside:
        lines.append(f"The last refit is kept aside, the model before it serves on: {service.refit_aside}.")
    said = "".join(f"<p class='banner bad' role='alert'>{escape(line)}</p>" for line in lines)
    return f"<div id='state' {OOB}>{said}{_behind(board.logged) if board.logged else ''}</div>"


def _behind(logged: LogData) -> str:
    left = logged.counts.position - logged.counted
    if left <= 0:
        return ""
    return (
        f"<p class='banner' id='behind' role='status'>The log is being counted: {logged.counted:,} of "
        f"{logged.counts.position:,} entries. <progress max='{logged.counts.position}' value='{logged.counted}'>"
        "</progress></p>"
    )


def _tile(name: str, title: str, value: str, note: str) -> str:
    return f"<div class='tile card'><dt>{title}</dt><dd id='{name}'>{value}</dd><dd class='soft'>{note}</dd></div>"


def _tiles(board: Board) -> str:
    if board.logged is None:
        return f"<dl id='tiles' {OOB}></dl>"
    cells = board.logged.total.cells()
    visits, reward = sum(c.visits for c in cells), sum(sum(c.reward) for c in cells)
    slots, unlikely = sum(sum(c.slots) for c in cells), sum(c.slots[1] for c in cells)
    observed, drawn = sum(sum(c.observed) for c in cells), sum(c.drawn for c in cells)
    total, found = board.request_total, percentiles(board.request_total.took)
    p50, p90, p99 = (NONE, NONE, NONE) if found is None else map(milliseconds, found)
    asked = sum(total.requests.values())
    refused, broken = charts.failed(total, "4"), charts.failed(total, "5")
    error = _spent_error(board.logged.stretches, unlikely)
    tiles = [
        _tile("reward-per-visit", "Reward per visit", mean(reward, visits), f"{amount(reward)} in all"),
        _tile("uplift-greedy", "Uplift over greedy", *_over_greedy(cells, error)),
        _tile("uplift-baseline", "Uplift over the baseline", *over_baseline(board)),
        _tile("visits", "Visits", f"{visits:,}", f"{slots:,} slots"),
        _tile("rewards", "Slots with a reward", f"{observed:,}", f"{share(observed, slots)} of all slots"),
        _tile("pending", "Rewards pending", f"{slots - observed:,}", "slots without one"),
        _tile(
            "unlikely-share", "Unlikely slots", share(unlikely, slots), f"{CHANCE}; {share(drawn, slots)} drawn at all"
        ),
        _tile("spent-share", "Spent on exploration", *_spent(cells, error)),
        _tile("found-arms", "Arms found by exploring", f"{sum(c.found_arms for c in cells):,}", _earned(cells, reward)),
        _tile("latency", "Request, written to disk", p50, f"median; <span>90 % {p90}</span> <span>99 % {p99}</span>"),
        _tile(
            "errors",
            "Requests failed",
            share(broken, asked),
            f"<span>{broken:,} failed</span> <span>{refused:,} refused</span>",
        ),
        _tile("unknown-features", "Unknown features", f"{total.features.get('unknown', 0):,}", _clipped(total)),
    ]
    return f"<dl id='tiles' {OOB}>{''.join(tiles)}</dl>"


def _greedy_sums(cells: list[Cell]) -> tuple[float, float, float, float]:
    weight, weighted = sum(c.weight for c in cells), sum(c.weighted_reward for c in cells)
    return sum(c.visits for c in cells), sum(sum(c.reward) for c in cells), weight, weighted


def _spent_error(stretches: Sequence[Stretch[VisitTotals]], unlikely: int) -> float:
    """The half of a 95 % interval of what was spent on exploration; infinite as long as too little was seen."""
    batches = np.array([_greedy_sums(cells) for s in stretches if (cells := s.sums.cells())])
    error = spent_error(batches) if len(batches) >= MIN_BATCHES and unlikely >= MIN_UNLIKELY else 0.0
    return NORMAL * error or math.inf  # without any difference there are no rewards yet


def _spent(cells: list[Cell], error: float) -> tuple[str, str]:
    """Per cent of what the best of every slot would have brought; nothing if every decision explores."""
    sums = _greedy_sums(cells)
    found, off = spent_share(*sums), error / (sums[1] + spent_reward(*sums) or math.nan)
    if math.isnan(found) or not off <= MOST:
        return NONE, _why_unknown(sums)
    return f"{100 * found:.1f} %", f"± {100 * off:.1f} % of the reward, by the log"


def _over_greedy(cells: list[Cell], error: float) -> tuple[str, str]:
    """The reward of a visit less what the best of every slot would have brought, by the same models."""
    sums = _greedy_sums(cells)
    lost = spent_reward(*sums)
    if math.isnan(lost) or math.isinf(error):
        return NONE, _why_unknown(sums)
    return f"{round(-lost / sums[0], 3) + 0.0:+.3f}", f"± {error / sums[0]:.3f} a visit, by the log"


def _why_unknown(sums: tuple[float, float, float, float]) -> str:
    return "not known yet" if sums[2] > 0 or not sums[0] else "every visit explored"


def _earned(cells: list[Cell], reward: float) -> str:
    """What arms whose first reward an unlikely slot brought have earned here."""
    found = sum(c.found_reward for c in cells)
    part = (
        f" ({share(found, reward)} of the reward)" if 0 <= found <= reward and reward else ""
    )  # no share of what may be a loss
    return f"first rewarded in an unlikely slot; brought {amount(found)}{part}"


def _clipped(total: RequestTotals) -> str:
    """How many values were clipped or refused, if the service counts them."""
    found = total.features.get("clipped")
    return (
        "ignored"
        if found is None
        else f"ignored; <span id='clipped-features'>{found:,}</span> values clipped or refused"
    )


def _chart(name: str, title: str, note: str, wide: bool = False) -> str:
    return (
        f"<figure class='card{' wide' if wide else ''}' id='figure-{name}'><figcaption><h3>{title}</h3>"
        f"<p class='soft'>{note}</p></figcaption>"
        f"<div class='chart' id='chart-{name}' role='img' aria-label='{title}'></div></figure>"
    )


def _reward(board: Board) -> str:
    by_k = "a line for each number of slots"
    note = "by the time of the visit, without rewards that are pending; bands are models"
    return (
        "<section aria-labelledby='h-reward'><h2 id='h-reward'>Reward</h2><div class='charts'>"
        f"{_chart('reward', 'Reward per visit', note, wide=True)}"
        f"{_chart('variants', 'Reward per visit by k', by_k, wide=True)}</div></section>"
    )


def _experiment(board: Board) -> str:
    note = "of all visits up to each moment; shades are intervals that hold at all times at once"
    return (
        f"<section aria-labelledby='h-experiment'><h2 id='h-experiment'>Experiment</h2>{experiment(board)}"
        f"<div class='charts'>{_chart('experiment', 'Reward per visit by variant', note, wide=True)}</div></section>"
    )


def _exploration(board: Board) -> str:
    return (
        "<section aria-labelledby='h-exploration'><h2 id='h-exploration'>Exploration</h2><div class='charts'>"
        f"{_chart('unlikely', 'Unlikely slots', f'share of slots {CHANCE}')}"
        f"{_chart('slots', 'Reward per slot', 'with a known reward, likely and unlikely')}"
        f"{_chart('propensity', 'Propensities', 'slots by the chance they were shown with', wide=True)}</div></section>"
    )


def _service(board: Board) -> str:
    return (
        "<section aria-labelledby='h-service'><h2 id='h-service'>Service</h2><div class='charts'>"
        f"{_chart('traffic', 'Traffic', 'visits and rewards a minute, by the time of the visit')}"
        f"{_chart('latency', 'Latency', 'milliseconds of a request for decisions, written to disk')}"
        f"{_chart('errors', 'Errors', 'requests refused (4xx) and failed (5xx) a minute')}{_routes(board)}"
        "</div></section>"
    )


def _routes(board: Board) -> str:
    total = board.request_total
    routes = sorted({route for route, _ in total.requests})
    rows = "".join(_route(board, route) for route in routes)
    heads = "<th>Route</th><th>Requests</th><th>Refused</th><th>Failed</th>"
    body = rows or "<tr><td class='soft'>none in this range</td></tr>"
    return (
        f"<figure class='card' id='routes' {OOB}><figcaption><h3>Requests by route</h3></figcaption>"
        f"<table class='numbers'><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></figure>"
    )


def _route(board: Board, route: str) -> str:
    total = board.request_total
    asked = sum(n for (to, _), n in total.requests.items() if to == route)
    refused, broken = (charts.failed(total, kind, route) for kind in "45")
    statuses = ", ".join(
        f"{n:,} x {s}" for (to, s), n in sorted(total.requests.items()) if to == route and s[0] in "45"
    )
    title = f" title='{escape(statuses)}'" if statuses else ""
    return (
        f"<tr data-route='{escape(route)}'{title}><th scope='row'><code>{escape(route)}</code></th>"
        f"<td>{asked:,}</td><td>{refused:,}</td><td{' class=bad' if broken else ''}>{broken:,}</td></tr>"
    )


def _recent(board: Board) -> str:
    stored = board.logged.recent if board.logged else []
    body = "<p class='soft'>None in this range: POST /v1/decide makes one.</p>"
    if stored:
        body = "<ol class='decisions'>" + "".join(decision(board, one) for one in stored) + "</ol>"
    return f"<section id='recent' {OOB}><h2>Recent decisions</h2><div class='card'>{body}</div></section>"


def _data(board: Board) -> str:
    return f"<div id='data' {OOB} hidden data-charts='{escape(json.dumps(charts.series(board)))}'></div>"


# The page from top to bottom.
SECTIONS: tuple[Part, ...] = (
    *(_state, _tiles, _reward, _experiment, arm_section, categories, _exploration, _service, models, _recent, _data),
)
CHANGING: tuple[Part, ...] = (_state, _tiles, experiment, arms, new_arms, categories, _routes, models, _recent, _data)
PARTS: dict[str, Part] = {"page": page, "updates": updates, "arms": arms, "arm": why_arm, "categories": categories}
