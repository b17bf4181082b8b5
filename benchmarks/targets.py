"""The targets of docs/performance.md against the results in a folder. Knows the numbers wanted, not how they are made.

A target is met, missed, or not measured where its result is not in the folder. Ratios are within one run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Documents = dict[str, dict[str, Any]]
Verdict = tuple[str, bool]  # what was measured, and whether that is enough


@dataclass(frozen=True)
class Target:
    """One line of the table; `judge` reads the documents of the runs that it needs."""

    what: str
    wanted: str
    judge: Callable[[Documents], Verdict]


def read(folder: Path) -> Documents:
    return {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def rows(document: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    """The rows with these values; None for a key that a row must not have."""
    return [row for row in document["rows"] if all(row.get(key) == value for key, value in wanted.items())]


def decision(found: Documents) -> Verdict:
    document = found["decide"]
    ours = rows(document, name="treetop", beam=10, eligible=None, arms=document["shape"]["arms"])[0]["median_ms"]
    call, bare = (rows(document, name="pecos", beam=10, how=how)[0]["times_treetop"] for how in ("predict", "C call"))
    return f"{ours:.3f} ms; PECOS takes {call:.1f}x (its bare C call {bare:.1f}x)", ours <= 0.12 and call >= 5


def batches(found: Documents) -> Verdict:
    ratios = [rows(found["batch"], name="pecos", beam=beam, threads=1)[0]["times_treetop"] for beam in (10, 30, 100)]
    return " / ".join(f"{ratio:.1f}x" for ratio in ratios), min(ratios) >= 2


def replay(found: Documents) -> Verdict:
    line = rows(found["replay"], beam=10)[0]  # of the widest instruction set
    ratio, lines = line["times_replay"], line["lines"]
    return f"{ratio:.1f}x with {lines:,.0f} lines", ratio <= 3 and lines <= 2700


def flat(found: Documents) -> Verdict:
    line = rows(found["decide"], name="flat")[0]
    ratio, speed = line["times_treetop"], line["g_per_second"]
    return f"{ratio:.0f}x (flat: {line['median_ms']:.1f} ms, {speed:.2f} G multiply-adds/s)", ratio >= 40


def growth(found: Documents) -> Verdict:
    largest = max(row["arms"] for row in found["scale"]["rows"])
    by_beam = {row["beam"]: row["times_smallest"] for row in rows(found["scale"], arms=largest)}
    others = ", ".join(f"{ratio:.2f}x at {beam}" for beam, ratio in by_beam.items() if beam != 10)
    return f"{by_beam[10]:.2f}x at beam 10 ({others})", by_beam[10] <= 1.6


def eligibility(found: Documents) -> Verdict:
    line = rows(found["decide"], name="treetop", beam=10, eligible="half")[0]
    return f"{line['times_treetop']:.2f}x; prepared in {line['prepare_ms']:.0f} ms", line["times_treetop"] <= 1.3


def solving(found: Documents) -> Verdict:
    ours = rows(found["refit"], name="treetop", samples="5-50", threads=1)[0]["arms_per_second"]
    theirs = rows(found["refit"], name="pecos", samples="5-50")[0]["times_treetop"]
    return f"{ours:,.0f} arms/s; PECOS takes {theirs:.1f}x", ours >= 20_000 and theirs >= 5


def whole_refit(found: Documents) -> Verdict:
    line = rows(found["refit"], what="whole refit")[0]
    minutes, peak = line["seconds"] / 60, line["peak_gb"]
    return f"{minutes:.1f} minutes ({line['cpu_seconds']:.0f} CPU s), {peak:.1f} GB", minutes <= 6 and peak <= 12


def building(found: Documents) -> Verdict:
    line = rows(found["build"], what="tree and routing")[0]
    minutes, cpu = line["seconds"] / 60, line["cpu_seconds"]
    return f"{minutes:.1f} minutes ({cpu:.0f} CPU s), {line['peak_gb']:.1f} GB", minutes <= 10


def serving(found: Documents) -> Verdict:
    line = rows(found["load"], name="treetop")[0]
    size, first = line["bytes_per_weight"], line["first_decision_seconds"]
    cpu = f" ({line['cpu_seconds']:.1f} CPU s)" if "cpu_seconds" in line else ""
    return f"{size:.1f} bytes / {first:.2f} s{cpu}", size <= 9 and first <= 1


TARGETS = (
    Target("whole decision, Python API, amazon-3m shape, beam 10", "<= 0.12 ms; PECOS single call >= 5x", decision),
    Target("batch on one thread, beam 10 / 30 / 100, PECOS batch", ">= 2x", batches),
    Target("distance to the cache-line replay, beam 10", "<= 3x, <= 2,700 lines", replay),
    Target("best flat scorer at 2.8 M arms, beam 10", ">= 40x", flat),
    Target("decision at 10 M arms over 1 M arms", "<= 1.6x", growth),
    Target("half of the arms eligible, prepared once, beam 10", "<= 1.3x", eligibility),
    Target("exact refit, 5 to 50 samples an arm, a core", ">= 20,000 arms/s; PECOS's solver >= 5x", solving),
    Target("refit on 8.6 M samples at 2.8 M arms, 2 cores", "<= 6 minutes, <= 12 GB", whole_refit),
    Target("tree and routing from 50,000 rows at 2.8 M arms, 2 cores", "<= 10 minutes", building),
    Target("serving memory a stored weight / open to first decision", "<= 9 bytes / <= 1 s", serving),
)


def table(found: Documents) -> str:
    """The table in Markdown."""
    lines = ["| what | target | measured | |", "|---|---|---|---|"]
    for target in TARGETS:
        try:
            measured, met = target.judge(found)
            verdict = "met" if met else "missed"
        except (KeyError, IndexError):
            measured, verdict = "", "not measured"
        lines.append(f"| {target.what} | {target.wanted} | {measured} | {verdict} |")
    return "\n".join(lines)
