"""The pages as HTML. Every text from outside is escaped where it enters. Fetches nothing itself.

The parts that change carry `hx-swap-oob`: /dashboard/updates answers with all of them, and each replaces the element on
the page with the same id.
"""

from __future__ import annotations

import json
from html import escape
from urllib.parse import quote

from treetop.service import schema
from treetop.service.dashboard import charts, words
from treetop.service.dashboard.assets import ICON, SCRIPTS, STYLES, address
from treetop.service.dashboard.board import Board, LogData
from treetop.service.dashboard.models import models
from treetop.service.dashboard.text import OOB, arm_name, mean, milliseconds, moment, share

HTMX = json.dumps({"includeIndicatorStyles": False, "allowEval": False, "historyEnabled": False})
EVERY = "2s"


def document(title: str, body: str, scripts: bool = False) -> str:
    head = [f"<link rel='stylesheet' href='{address(name)}'>" for name in STYLES]
    head += [f"<link rel='icon' type='image/svg+xml' href='{address(ICON)}'>"]
    if scripts:
        head += [f"<meta name='htmx-config' content='{escape(HTMX)}'>"]
        head += [f"<script src='{address(name)}' defer></script>" for name in SCRIPTS]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{escape(title)}</title>{''.join(head)}</head>\n<body>{body}</body></html>\n"
    )


def login(why: str = "") -> str:
    said = f"<p class='bad' role='alert'>{escape(why)}</p>" if why else ""
    return document(
        "treetop: log in",
        "<main class='narrow'><h1>treetop</h1><p class='soft'>This service asks for a token that may read.</p>"
        f"{said}<form method='post' action='/dashboard/login' class='card'>"
        "<label for='token'>Token</label>"
        "<input id='token' name='token' type='password' autocomplete='current-password' required autofocus>"
        "<button>Log in</button></form></main>",
    )


def problem(status: int, message: str) -> str:
    return document(
        f"treetop: {status}",
        f"<main class='narrow'><h1>{status}</h1><p>{escape(message[:1].upper() + message[1:])}.</p>"
        "<p><a href='/'>To the dashboard</a></p></main>",
    )


def sentence(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def page(board: Board, admin: bool, tokens: bool, done: bool) -> str:
    """The whole page. `done` says that a form of it was just carried out."""
    out = "<form method='post' action='/dashboard/logout'><button class='quiet'>Log out</button></form>"
    said = f"<p class='banner good' role='status'>Model {escape(board.snapshot.name)} serves now.</p>" if done else ""
    body = (
        f"<header><h1>treetop <span class='soft'>{escape(board.folder)}</span></h1>"
        f"<span id='pulse' role='status'>live</span>{out if tokens else ''}</header><main>{said}"
        f"<div hx-get='/dashboard/updates' hx-trigger='every {EVERY}' hx-swap='none'></div>"
        "<noscript><p class='banner'>Charts and updates need JavaScript; the numbers below are of now.</p></noscript>"
        f"{_state(board)}{_tiles(board)}"
        f"<section class='charts'>{CHARTS}{_coverage(board)}</section>"
        f"{models(board, admin)}{_recent(board)}{_data(board)}</main>"
        "<footer class='soft'>Times are in your time zone. <a href='/openapi.json'>openapi.json</a> "
        "<a href='/metrics'>metrics</a></footer>"
    )
    return document(f"treetop: {board.folder}", body, scripts=True)


def updates(board: Board, admin: bool) -> str:
    """The parts of the page that change."""
    parts = [_state(board), _tiles(board), _coverage(board), models(board, admin), _recent(board), _data(board)]
    return "".join(parts)


def _chart(name: str, title: str, note: str, wide: bool = False) -> str:
    return (
        f"<figure class='card{' wide' if wide else ''}'><figcaption><h2>{title}</h2><p class='soft'>{note}</p>"
        f"</figcaption><div class='chart' id='chart-{name}' role='img' aria-label='{title}'></div></figure>"
    )


CHARTS = (
    _chart("reward", "Mean reward", "of a slot, by the time of its decision; bands are epochs", wide=True)
    + _chart("explored", "Slots explored", "share of all slots, drawn by the strategy")
    + _chart("latency", "Decision latency", "milliseconds, of the last hour")
    + _chart("propensity", "Propensities", "slots by the chance they were shown with")
)


def _state(board: Board) -> str:
    """What is wrong, or that nothing is."""
    lines = []
    if board.logged is None:
        lines.append("The log cannot be read at the moment. Decisions are refused until it is back.")
    if board.snapshot.trouble:
        lines.append(f"An older model serves, because the current one cannot be read: {board.snapshot.trouble}.")
    if board.refits.in_a_row:
        times = "once" if board.refits.in_a_row == 1 else f"{board.refits.in_a_row} times in a row"
        lines.append(f"The refit failed {times}: {board.refits.error}. It is tried again.")
    banners = "".join(f"<p class='banner bad' role='alert'>{escape(line)}</p>" for line in lines)
    return f"<div id='state' {OOB}>{banners}{_behind(board.logged)}</div>"


def _behind(logged: LogData | None) -> str:
    if logged is None or logged.figures.counted >= logged.figures.newest:
        return ""
    counted, newest = logged.figures.counted, logged.figures.newest
    return (
        f"<p class='banner' id='behind'>Charts and coverage are behind: {counted:,} of {newest:,} entries of the log "
        f"are counted. <progress max='{newest}' value='{counted}'></progress></p>"
    )


def _tile(name: str, label: str, value: str, note: str) -> str:
    return f"<div class='card tile'><dt>{label}</dt><dd id='{name}'>{value}</dd><dd class='soft'>{note}</dd></div>"


def _tiles(board: Board) -> str:
    if board.logged is None:
        return f"<dl id='tiles' {OOB}></dl>"
    counts, cells = board.logged.counts, board.logged.figures.cells
    slots = [sum(cell.slots[how] for cell in cells) for how in (0, 1)]
    observed = [sum(cell.observed[how] for cell in cells) for how in (0, 1)]
    reward = [sum(cell.reward[how] for cell in cells) for how in (0, 1)]
    greedy, explored = (mean(reward[how], observed[how]) for how in (0, 1))
    policy = board.config.policy
    p50, p90, p99 = ("–", "–", "–") if board.latency is None else map(milliseconds, board.latency)
    snapshot = board.snapshot
    tiles = [
        _tile("model", "Model", escape(snapshot.name), f"learned from {snapshot.model.n_seen:,} rounds"),
        _tile("decisions", "Decisions", f"{counts.decisions:,}", f"{counts.slots:,} slots"),
        _tile(
            "mean-reward",
            "Mean reward",
            mean(sum(reward), sum(observed)),
            f"<span class='greedy'>greedy {greedy}</span> <span class='drawn'>explored {explored}</span>",
        ),
        _tile(
            "explored-share",
            "Slots explored",
            share(slots[1], sum(slots)),
            f"{policy.explore} of {policy.k} by the settings",
        ),
        _tile("latency", "Decision, median", p50, f"<span>90 % {p90}</span> <span>99 % {p99}</span>"),
        _tile(
            "rewards",
            "Rewards",
            f"{counts.rewards:,}",
            f"for {share(counts.observed, counts.decisions)} of the decisions",
        ),
        _tile("pending", "Rewards pending", f"{counts.pending:,}", "slots without one"),
        _tile("late", "Rewards late", f"{counts.late:,}", "after a refit had read the decision"),
    ]
    return f"<dl id='tiles' {OOB}>{''.join(tiles)}</dl>"


def _coverage(board: Board) -> str:
    begin = f"<figure class='card' id='coverage' {OOB}><figcaption><h2>Catalogue coverage</h2>"
    if board.logged is None:
        return f"{begin}</figcaption></figure>"
    found, arms = board.logged.figures.coverage, len(board.snapshot.arms)
    slots = max(1, sum(sum(cell.slots) for cell in board.logged.figures.cells))
    most = found.top[0][1] if found.top else 1
    rows = "".join(
        f"<li><span class='name'>{escape(arm_name(board, arm))}</span> <span class='soft'>{share(count, slots)}</span>"
        f"<meter min='0' max='{most}' value='{count}'></meter></li>"
        for arm, count in found.top
    )
    return (
        f"{begin}<p class='soft'>arms ever shown, and how evenly</p></figcaption><dl class='pair'>"
        f"<div><dt>Arms shown</dt><dd><span id='arms-shown'>{found.shown:,}</span> "
        f"<span class='soft'>of {arms:,} ({share(found.shown, arms)})</span></dd></div>"
        f"<div><dt>Gini of exposure</dt><dd id='gini'>{found.gini:.3f}</dd></div></dl>"
        f"<h3>Shown most</h3><ol class='top'>{rows or '<li class=soft>nothing yet</li>'}</ol></figure>"
    )


def _recent(board: Board) -> str:
    stored = board.logged.recent if board.logged else []
    if not stored:
        body = "<p class='soft'>None yet: POST /v1/decide makes one.</p>"
    else:
        body = "<ol class='decisions'>" + "".join(_decision(board, i) for i in range(len(stored))) + "</ol>"
    return f"<section id='recent' class='card' {OOB}><h2>Recent decisions</h2>{body}</section>"


def _decision(board: Board, place: int) -> str:
    assert board.logged is not None
    stored = board.logged.recent[place]
    event, tree = stored.event, board.snapshot.model.tree

    def size(node: int) -> int | None:
        return int(tree.sizes[node]) if event.tree == board.snapshot.tree else None

    said = words.decision(stored, lambda arm: arm_name(board, arm), size)
    slots = "".join(
        _slot(arm_name(board, int(arm)), bool(drawn), float(reward))
        for arm, drawn, reward in zip(event.arms, event.explored, stored.rewards, strict=True)
    )
    why = f"/dashboard/why/{quote(event.event_id, safe='')}"
    return (
        f"<li data-event='{escape(event.event_id)}'><div class='line'><code>{escape(event.event_id)}</code>"
        f"<span class='soft'>{moment(event.time)} · epoch {event.model_epoch}</span></div>"
        f"<ul class='slots'>{slots}</ul><p class='words'>{escape(said)}</p>"
        f"<details hx-get='{escape(why)}' hx-trigger='toggle once' hx-target='find .why'>"
        "<summary>What else it could have shown</summary><div class='why soft'>Asking the model …</div></details></li>"
    )


def _slot(arm: str, drawn: bool, reward: float) -> str:
    how = "drawn" if drawn else "greedy"
    known = reward == reward
    state = ("good" if reward > 0 else "zero") if known else "open"
    title = f"{'explored' if drawn else 'greedy'}, {f'reward {reward:g}' if known else 'no reward yet'}"
    value = f" <b>{reward:g}</b>" if known else ""
    return f"<li class='{how} {state}' title='{title}'>{escape(arm)}{value}</li>"


def explanation(answer: schema.ExplainAnswer) -> str:
    """The effective arms most likely to be drawn first."""
    rows = []
    for e in answer.effective:
        who = escape(str(e.arm)) if e.node is None else f"<i>any of {e.arms_below:,} arms below node {e.node}</i>"
        rows.append(f"<tr><td>{who}</td><td>{e.score:.3f}</td><td>{words.chance(e.probability)}</td></tr>")
    return (
        f"<p>{escape(answer.words)}</p><div class='scroll'><table><thead><tr><th>could show</th><th>score</th>"
        f"<th>chance of a first draw</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _data(board: Board) -> str:
    return f"<div id='data' {OOB} hidden data-charts='{escape(json.dumps(charts.series(board)))}'></div>"
