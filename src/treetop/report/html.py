"""Results as one HTML page that needs nothing else: pictures inlined, light and dark, one column on a phone."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from treetop.report.pictures import svg
from treetop.report.sections import Panel, Section, Table, number
from treetop.report.style import STYLE

VERDICTS = {"holds": "good", "does not hold": "bad", "not measured": "none"}
WIDE = 4  # columns of a grid that do not fit beside another panel
FACTS = {
    "arms": "arms",
    "rows": "contexts",
    "features": "features",
    "labels_per_row": "labels a context",
    "features_per_row": "features a context",
}


@dataclass(frozen=True)
class Results:
    """What a results folder holds, in the order in which the page shows it."""

    title: str
    lead: str
    datasets: tuple[Mapping[str, Any], ...] = ()
    claims: Table | None = None
    sections: tuple[Section, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    verdicts: Table | None = None


def html(results: Results, picture: Callable[[Panel, str], bytes] | None = svg) -> str:
    """The page. `picture` draws a panel for a theme; without matplotlib, or with None, the tables stand alone.

    >>> text = html(Results("A title", "A lead.", (), None, (), (), {}, {}, {}))
    >>> text.startswith("<!doctype html>"), "A lead." in text
    (True, True)
    """
    body = [
        f"<header><h1>{escape(results.title)}</h1><p class='lead'>{escape(results.lead)}</p>"
        f"{_contents(results)}</header>",
        _cards(results.datasets),
    ]
    if results.claims:
        more = ""
        if results.verdicts and len(results.verdicts.columns) > 2:
            more = f"<h3>{escape(results.verdicts.title)}</h3>{_table(results.verdicts, 'stack')}"
        body.append(
            f"<section id='claims'><h2>{escape(results.claims.title)}</h2>"
            f"{_table(results.claims, 'stack')}{more}</section>"
        )
    body += [_section(section, picture) for section in results.sections]
    body += [_examples(results.examples), _footer(results)]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(results.title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main></body></html>\n"
    )


def _contents(results: Results) -> str:
    links = [("claims", "Claims")] if results.claims else []
    links += [(section.name, section.title.split(" (")[0]) for section in results.sections]
    links += [("examples", "Decisions")] if results.examples else []
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


def _section(section: Section, picture: Callable[[Panel, str], bytes] | None) -> str:
    panels = "".join(_panel(panel, picture) for panel in section.panels)
    drawn = {panel.title for panel in section.panels if panel.kind == "grid"}  # a grid is its own table
    tables = "".join(_table(table) for table in section.tables if table.title not in drawn)
    settings = f"<details><summary>Settings</summary>{_pairs(section.settings)}</details>" if section.settings else ""
    return (
        f"<section id='{escape(section.name)}'><h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>"
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
    wide = " class='wide'" if len(panel.labels) >= WIDE else ""
    return f"<figure{wide}><h3>{escape(panel.title)}</h3><div class='scroll'>{table}</div></figure>"


def _table(table: Table, kind: str = "") -> str:
    def cell(i: int, text: str) -> str:
        side = "left" if i < table.left else ""
        long = " long" if kind == "stack" and len(text) > 40 else ""
        verdict = VERDICTS.get(text) or ("some" if table.columns[i] == "verdict" else "")
        shown = f"<span class='badge {verdict}'>{escape(text)}</span>" if verdict else _with_badges(escape(text))
        return f"<td class='{side}{long}' data-head='{escape(table.columns[i], quote=True)}'>{shown}</td>"

    head = "".join(
        f"<th class='{'left' if i < table.left else ''}'>{escape(c)}</th>" for i, c in enumerate(table.columns)
    )
    rows = "".join(f"<tr>{''.join(cell(i, text) for i, text in enumerate(row))}</tr>" for row in table.rows)
    title = f"<h3>{escape(table.title)}</h3>" if table.title and not kind else ""
    note = f"<p class='note'>{escape(table.note)}</p>" if table.note else ""
    text = f"<table class='{kind}'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"{title}<div class='scroll'>{text}</div>{note}"


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


def _footer(results: Results) -> str:
    parts = [
        f"<details{' open' if title == 'Versions' else ''}><summary>{title}</summary>{_pairs(values)}</details>"
        for title, values in (
            ("Commands", results.commands),
            ("Versions", results.versions),
            ("Checksums", results.checksums),
        )
        if values
    ]
    return f"<footer>{''.join(parts)}</footer>"
