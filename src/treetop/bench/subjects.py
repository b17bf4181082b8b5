"""The benches by name, and one document of what they found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from treetop.bench.decide import batch, decide, scale
from treetop.bench.learn import build, refits
from treetop.bench.learn_scale import learn_scale
from treetop.bench.load import load
from treetop.bench.seal import seal
from treetop.bench.serve import serve
from treetop.bench.setting import Result, Setting
from treetop.bench.timing import Row, commit, load_average, machine

SUBJECTS: dict[str, Callable[[Setting], Result]] = {
    "decide": decide,
    "batch": batch,
    "refit": refits,
    "build": build,
    "scale": scale,
    "load": load,
    "serve": serve,
    "seal": seal,
    "learn-scale": learn_scale,
}
OF_DATASETS = ("decide", "batch", "load", "serve")
WHEN_ASKED = ("serve", "seal", "learn-scale")  # services and logs, which the others do not need: not part of all
SAME = ("beam", "threads", "samples", "batch")


def subjects(names: list[str], setting: Setting) -> list[str]:
    """The benches asked for, all if none; an error for what there is none of."""
    if wrong := [name for name in names if name not in SUBJECTS]:
        raise ValueError(f"cannot bench {wrong[0]!r}; it must be one of {', '.join(SUBJECTS)}")
    all_ = [name for name in (OF_DATASETS if setting.dataset else SUBJECTS) if name not in WHEN_ASKED]
    chosen = list(dict.fromkeys(names)) or all_
    if setting.dataset and (wrong := [name for name in chosen if name not in OF_DATASETS]):
        raise ValueError(f"bench {wrong[0]} makes its own data; with --data it must be one of {', '.join(OF_DATASETS)}")
    return chosen


def run(names: list[str], setting: Setting, command: str) -> dict[str, Any]:
    """Every bench asked for, as one document: rows, checks, who was left out; command, commit and machine."""
    rows: list[dict[str, Any]] = []
    checks: dict[str, Any] = {}
    left_out: list[str] = []
    load_before = load_average()
    for name in subjects(names, setting):
        setting.say(f"bench {name}")
        found = SUBJECTS[name](setting)
        rows += [{"bench": name, **row} for row in compared(found.rows)]
        checks[name] = found.checks
        left_out += [line for line in found.left_out if line not in left_out]
    about = {"name": setting.dataset.name} if setting.dataset else asdict(setting.shape)
    return {
        "rows": rows,
        "checks": checks,
        "left_out": left_out,
        "shape": about,
        "command": command,
        "commit": commit(),
        "machine": machine(),
        "load_average": [load_before, load_average()],
    }


def compared(rows: list[Row]) -> list[Row]:
    """The rows with `times_treetop`: how many times as long as treetop's row of the same arms, beam, threads, samples.

    A row that has no beam of its own is compared with the first one. On one thread the time that the core worked
    counts: by the clock, other work on the machine would stretch long calls and leave most short ones alone. So it does
    for steps of minutes, on however many threads.
    """
    ours = [row for row in rows if row["name"] == "treetop" and "eligible" not in row]
    return [row if row in ours or "times_treetop" in row else row | _against(row, ours) for row in rows]


def _against(row: Row, ours: list[Row]) -> Row:
    keys = SAME if "each_ms" in row else ("arms", *SAME)  # a time an arm is comparable whatever their number
    same = [base for base in ours if all(row[key] == base[key] for key in keys if key in row and key in base)]
    for base in same:
        alone = row.get("threads", 1) == base.get("threads", 1) == 1
        for key in ("each_ms", "cpu_ms" if alone else "median_ms", "cpu_seconds", "seconds"):
            if row.get(key) and base.get(key):
                return {"times_treetop": round(row[key] / base[key], 2)}
    return {}
