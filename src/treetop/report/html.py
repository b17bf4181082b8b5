"""Results as one HTML page that needs nothing else: pictures inlined, light and dark, one column on a phone."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from treetop.report.pictures import svg
from treetop.report.tables import Chapter, Panel, Sheet, number

VERDICTS = {"holds": "good", "does not hold": "bad", "not measured": "none"}
FACTS = {
    "arms": "arms",
    "rows": "contexts",
    "features": "features",
    "labels_per_row": "labels a context",
    "features_per_row": "features a context",
}

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --ground: #ffffff; --card: #f5f7f9; --rule: #dde2e7;
  --accent: #0072b2; --good: #1a7f37; --bad: #c0392b; --win: 0, 114, 178; --lose: 213, 94, 0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #9aa4ae; --ground: #14171a; --card: #1d2125;
  --rule: #343a40; --accent: #56b4e9; --good: #57c774; --bad: #ff7b6b; --win: 86, 180, 233; --lose: 255, 140, 66; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 28px 18px 64px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 52px 0 6px; padding-top: 18px; border-top: 1px solid var(--rule); }
h3 { font-size: 0.98rem; margin: 26px 0 8px; }
p { margin: 6px 0 12px; max-width: 46rem; }
.lead, .note { color: var(--soft); }
.note { font-size: 0.88rem; }
nav { margin: 14px 0 0; font-size: 0.92rem; line-height: 2; }
nav a { margin-right: 16px; white-space: nowrap; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
.cards { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); margin: 22px 0; }
.card { background: var(--card); border-radius: 10px; padding: 13px 16px; }
.card b { display: block; overflow-wrap: break-word; margin-bottom: 4px; }
.card dl { display: grid; grid-template-columns: 1fr auto; gap: 1px 12px; margin: 0; font-size: 0.88rem; }
.card dt { color: var(--soft); }
.card dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.badge { display: inline-block; border: 1px solid currentColor; border-radius: 99px; padding: 0 9px; font-size: 0.78rem;
  font-weight: 600; white-space: nowrap; color: var(--soft); vertical-align: 1px; }
.some { white-space: normal; border-radius: 10px; }
.good { color: var(--good); } .bad { color: var(--bad); } .none { color: var(--soft); }
.panels { display: grid; gap: 18px 26px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr));
  margin: 18px 0; }
figure { margin: 0; min-width: 0; }
figure img { display: block; width: 100%; max-width: 540px; height: auto; }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; margin: 6px 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; min-width: 60%; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: 0.82rem; vertical-align: bottom; }
th.left, td.left { text-align: left; }
td.long { min-width: 12rem; }
table.grid { min-width: 0; font-size: 0.85rem; }
table.grid td { text-align: center; padding: 9px 7px; white-space: nowrap; border: 2px solid var(--ground); }
table.grid th { text-align: center; padding: 6px 4px; font-size: 0.78rem; }
table.grid tr > th:first-child { text-align: left; padding-left: 0; white-space: nowrap; vertical-align: middle; }
td { white-space: nowrap; } table.stack td, td.mono { white-space: normal; }
.shown { margin: 14px 0; } .shown ul { margin: 4px 0; padding-left: 20px; }
details { margin: 12px 0; } summary { cursor: pointer; color: var(--accent); }
code, .mono { font: 0.85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
footer { margin-top: 48px; padding-top: 16px; border-top: 1px solid var(--rule); font-size: 0.86rem;
  color: var(--soft); }
@media (max-width: 600px) {
  main { padding: 20px 14px 48px; } h1 { font-size: 1.45rem; }
  table { font-size: 0.82rem; } th, td { padding-right: 8px; } th { font-size: 0.74rem; }
  table.grid { font-size: 0.72rem; } table.grid td { padding: 7px 4px; } table.grid th { padding: 4px 2px; }
  table.grid th, table.grid tr > th:first-child { font-size: 0.68rem; white-space: normal; }
  table.stack thead { display: none; } table.stack, table.stack tbody { display: block; }
  table.stack tr { display: block; padding: 10px 0; border-bottom: 1px solid var(--rule); }
  table.stack td { display: block; border: 0; padding: 1px 0; text-align: left; min-width: 0; }
  table.stack td::before { content: attr(data-head) " "; color: var(--soft); font-size: 0.82rem; }
  table.stack td:first-child { font-weight: 600; } table.stack td:first-child::before { content: ""; }
}
@media print { details { display: block; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Story:
    """All that a page tells, in the order in which it tells it."""

    title: str
    lead: str
    datasets: tuple[Mapping[str, Any], ...] = ()
    claims: Sheet | None = None
    chapters: tuple[Chapter, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    verdicts: Sheet | None = None


def html(story: Story, picture: Callable[[Panel, str], bytes] | None = svg) -> str:
    """The page. `picture` draws a panel for a theme; without matplotlib, or with None, the tables stand alone.

    >>> text = html(Story("A title", "A lead.", (), None, (), (), {}, {}, {}))
    >>> text.startswith("<!doctype html>"), "A lead." in text
    (True, True)
    """
    body = [
        f"<header><h1>{escape(story.title)}</h1><p class='lead'>{escape(story.lead)}</p>{_contents(story)}</header>",
        _cards(story.datasets),
    ]
    if story.claims:
        more = ""
        if story.verdicts and len(story.verdicts.columns) > 2:
            more = f"<h3>{escape(story.verdicts.title)}</h3>{_table(story.verdicts, 'stack')}"
        body.append(
            f"<section id='claims'><h2>{escape(story.claims.title)}</h2>{_table(story.claims, 'stack')}{more}</section>"
        )
    body += [_chapter(chapter, picture) for chapter in story.chapters]
    body += [_examples(story.examples), _footer(story)]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(story.title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main></body></html>\n"
    )


def _contents(story: Story) -> str:
    links = [("claims", "Claims")] if story.claims else []
    links += [(chapter.name, chapter.title.split(" (")[0]) for chapter in story.chapters]
    links += [("examples", "Decisions")] if story.examples else []
    if len(links) < 3:
        return ""
    return "<nav>" + "".join(f"<a href='#{escape(at)}'>{escape(text)}</a> " for at, text in links) + "</nav>"


def _cards(datasets: Sequence[Mapping[str, Any]]) -> str:
    cards = []
    for facts in datasets:
        badge = " <span class='badge'>synthetic</span>" if facts.get("synthetic") else ""
        rows = "".join(
            f"<dt>{word}</dt><dd>{number(float(facts[key]))}</dd>" for key, word in FACTS.items() if facts.get(key)
        )
        name = escape(str(facts["name"])).replace(",", ",<wbr>")
        cards.append(f"<div class='card'><b>{name}{badge}</b><dl>{rows}</dl></div>")
    return f"<div class='cards'>{''.join(cards)}</div>" if cards else ""


def _chapter(chapter: Chapter, picture: Callable[[Panel, str], bytes] | None) -> str:
    panels = "".join(_panel(panel, picture) for panel in chapter.panels)
    drawn = {panel.title for panel in chapter.panels if panel.kind == "grid"}  # a grid is its own table
    tables = "".join(_table(sheet) for sheet in chapter.sheets if sheet.title not in drawn)
    settings = f"<details><summary>Settings</summary>{_pairs(chapter.settings)}</details>" if chapter.settings else ""
    return (
        f"<section id='{escape(chapter.name)}'><h2>{escape(chapter.title)}</h2><p>{escape(chapter.text)}</p>"
        + (f"<div class='panels'>{panels}</div>" if panels else "")
        + f"{tables}{settings}</section>"
    )


def _panel(panel: Panel, picture: Callable[[Panel, str], bytes] | None) -> str:
    if panel.kind == "grid":
        return _grid(panel)
    try:
        light, dark = ("" if picture is None else _uri(picture(panel, theme)) for theme in ("light", "dark"))
    except ModuleNotFoundError:
        return ""
    if not light:
        return ""
    words = ", ".join(f"{line.name} ends at {line.y[-1]:.3g}" for line in panel.lines)
    return (
        f"<figure><picture><source media='(prefers-color-scheme: dark)' srcset='{dark}'>"
        f"<img src='{light}' alt='{escape(panel.title + ': ' + words, quote=True)}'></picture></figure>"
    )


def _uri(image: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(image).decode()


def _grid(panel: Panel) -> str:
    """Win/draw/loss as a table of coloured cells, which a phone shows better than a picture."""
    head = "".join(f"<th>{escape(label)}</th>" for label in panel.labels)
    rows = []
    for line in panel.lines:
        cells = []
        for value, text in zip(line.y, line.texts, strict=True):
            colour = f"rgba(var(--{'win' if value >= 0 else 'lose'}), {0.08 + 0.42 * abs(value):.2f})"
            ground = "" if text == "-" else f" style='background: {colour}'"
            cells.append(f"<td{ground}>{escape(text)}</td>")
        rows.append(f"<tr><th>{escape(line.name)}</th>{''.join(cells)}</tr>")
    table = f"<table class='grid'><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<figure><h3>{escape(panel.title)}</h3><div class='scroll'>{table}</div></figure>"


def _table(sheet: Sheet, kind: str = "") -> str:
    def cell(i: int, text: str) -> str:
        side = "left" if i < sheet.left else ""
        long = " long" if kind == "stack" and len(text) > 40 else ""
        verdict = VERDICTS.get(text) or ("some" if sheet.columns[i] == "verdict" else "")
        shown = f"<span class='badge {verdict}'>{escape(text)}</span>" if verdict else _with_badges(escape(text))
        return f"<td class='{side}{long}' data-head='{escape(sheet.columns[i], quote=True)}'>{shown}</td>"

    head = "".join(
        f"<th class='{'left' if i < sheet.left else ''}'>{escape(c)}</th>" for i, c in enumerate(sheet.columns)
    )
    rows = "".join(f"<tr>{''.join(cell(i, text) for i, text in enumerate(row))}</tr>" for row in sheet.rows)
    title = f"<h3>{escape(sheet.title)}</h3>" if sheet.title and not kind else ""
    note = f"<p class='note'>{escape(sheet.note)}</p>" if sheet.note else ""
    table = f"<table class='{kind}'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"{title}<div class='scroll'>{table}</div>{note}"


def _with_badges(text: str) -> str:
    """A verdict before a colon stands out."""
    return re.sub("(does not hold|holds): ", lambda at: f"<span class='badge {VERDICTS[at[1]]}'>{at[1]}</span> ", text)


def _examples(examples: Sequence[Mapping[str, Any]]) -> str:
    if not examples:
        return ""
    shown = []
    for example in examples:
        slots = "".join(
            f"<li>{escape(str(slot['arm']))} <span class='badge {'good' if slot['right'] else 'none'}'>"
            f"{'right' if slot['right'] else 'wrong'}</span> "
            f"<span class='note'>{'explored' if slot['explored'] else 'greedy'}</span></li>"
            for slot in example["shown"]
        )
        missed = (
            f"<span class='note'>missed: {escape(', '.join(example['missed'][:6]))}</span>" if example["missed"] else ""
        )
        what = escape(str(example["description"]))
        shown.append(
            f"<div class='shown'><b>{escape(str(example['context']))}</b> {what}<ul>{slots}</ul>{missed}</div>"
        )
    return f"<section id='examples'><h2>Late decisions of the best run</h2>{''.join(shown)}</section>"


def _pairs(values: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td class='left'>{escape(str(k))}</td><td class='left mono'>{escape(str(v))}</td></tr>"
        for k, v in values.items()
    )
    return f"<div class='scroll'><table>{rows}</table></div>"


def _footer(story: Story) -> str:
    parts = [
        f"<details{' open' if title == 'Versions' else ''}><summary>{title}</summary>{_pairs(values)}</details>"
        for title, values in (
            ("Commands", story.commands),
            ("Versions", story.versions),
            ("Checksums", story.checksums),
        )
        if values
    ]
    return f"<footer>{''.join(parts)}</footer>"
