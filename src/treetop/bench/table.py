"""What a bench found, as tables for people and Markdown for pages."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

LABELS = ("how", "what", "eligible", "threads", "batch")  # one column of words
FIRST = ("name", "detail", "arms", "beam", "samples")
LEFT = ("name", "detail")
MAKING = (
    "data_seconds",
    "tree_seconds",
    "tree_cpu_seconds",
    "routing_seconds",
    "routing_cpu_seconds",
    "refit_seconds",
    "refit_cpu_seconds",
    "save_seconds",
    "samples",
)
HIDDEN = {
    "decide": ("cpu_ms",),
    "refit": ("median_ms", "p99_ms", "cpu_ms"),
    "scale": ("cpu_ms", "routing_weights", "node_weights", *MAKING),
}
WIDTH = 116


def by_bench(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each bench as people read them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in document["rows"]:
        hidden = {"bench", *LABELS, *HIDDEN.get(row["bench"], ())}
        shown = {"name": row["name"], "detail": detail(row)} | {k: v for k, v in row.items() if k not in hidden}
        found.setdefault(row["bench"], []).append(shown)
    return found


def detail(row: dict[str, Any]) -> str:
    units = {
        "threads": "thread" if row.get("threads") == 1 else "threads",
        "batch": "at a time",
        "eligible": "eligible",
    }
    return ", ".join(
        f"{row[key]:,} {units[key]}" if isinstance(row[key], int) else f"{row[key]} {units.get(key, '')}".strip()
        for key in LABELS
        if key in row
    )


def columns(rows: list[dict[str, Any]]) -> list[str]:
    """The keys that any of the rows has a value for: those that say what was measured first."""
    found = dict.fromkeys(key for row in rows for key, value in row.items() if value != "")
    return [*(key for key in FIRST if key in found), *(key for key in found if key not in FIRST)]


def text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def tables(document: dict[str, Any]) -> list[Table]:
    found = []
    for name, rows in by_bench(document).items():
        table = Table(title=f"bench {name}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in (names := columns(rows)):
            left = column in LEFT
            table.add_column(column.replace("_", " "), justify="left" if left else "right", no_wrap=left)
        for row in rows:
            table.add_row(*(text(row.get(column, "")) for column in names))
        found.append(table)
    return found


def markdown(rows: list[dict[str, Any]]) -> str:
    names = columns(rows)
    lines = [" | ".join(names), " | ".join("---" for _ in names)]
    lines += [" | ".join(text(row.get(name, "")) for name in names) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def summary(document: dict[str, Any]) -> list[str]:
    """What a person wants to know beside the tables."""
    checks = ", ".join(f"{bench} ({len(found)})" for bench, found in document["checks"].items())
    busy = max(document["load_average"])
    lines = [
        f"Agreed with the slow reference: {checks}.",
        f"{document['machine']}; commit {document['commit'] or '?'}.",
    ]
    lines += [f"Load average up to {busy:g}: other work disturbed these timings."] if busy > 1.5 else []
    return lines + [f"Left out: {line}." for line in document["left_out"]]
