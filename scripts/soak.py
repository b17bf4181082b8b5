"""A service under load with faults at random times, on SQLite and PostgreSQL, with 1 and 2 workers.

    python scripts/soak.py [--minutes 30] [--seed 0] [--only sqlite-2] [--fault "disk full"] [--json out.json]

Clients keep a ledger of everything that was acknowledged and send again what was not. In the end all of it must be in
the log once, as it was answered, a sample must be decided again to the same bytes, no request may have hung, and memory
must be flat. Exit code 1 if anything of that does not hold. As root each cell has a small disk of its own, which can be
full; elsewhere limits on the sizes of files stand for it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from treetop.bench.timing import commit, load_average, machine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.soak.cell import Cell
from helpers.soak.plan import DATA, Plan

CELLS = [(store, workers) for store in ("sqlite", "postgres") for workers in (1, 2)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="of all cells together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], help="a cell such as postgres-1; may be repeated")
    parser.add_argument("--fault", action="append", default=[], help="a fault by its name; may be repeated")
    parser.add_argument("--data", default=DATA, help="the set that the bandit is made from")
    parser.add_argument("--json", type=Path, help="where to write everything that was found")
    words = parser.parse_args()
    cells = [cell for cell in CELLS if not words.only or f"{cell[0]}-{cell[1]}" in words.only]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that everything is cleaned up
    results = []
    for number, (store, workers) in enumerate(CELLS):
        if (store, workers) not in cells:
            continue
        seconds, seed = words.minutes * 60 / len(cells), words.seed * len(CELLS) + number
        plan = Plan(store, workers, seconds, seed, tuple(words.fault), words.data)
        results.append(Cell(plan, say).run())
        print_cell(results[-1])
    findings = [f"{result['cell']}: {found}" for result in results for found in result["findings"]]
    if words.json:
        about = {"command": sys.argv, "commit": commit(), "machine": machine(), "load_average": load_average()}
        words.json.write_text(json.dumps({"cells": results, "findings": findings, **about}, indent=1))
    print_all(results)
    return 1 if findings else 0


def say(words: str) -> None:
    print(f"  {words}", file=sys.stderr, flush=True)


def print_cell(result: dict[str, Any]) -> None:
    print(f"\n{result['cell']}, {result['seconds']:.0f} s")
    columns = ("fault", "seconds", "ready_after", "healthy_after", "slowest_health", "longest_gap")
    rows = [[str(fault.get(name, "")) for name in columns] for fault in result["faults"]]
    for row, fault in zip(rows, result["faults"], strict=True):
        rest = {name: value for name, value in fault.items() if name not in (*columns, "trouble")}
        trouble = ", ".join(f"{count} {kind}" for kind, count in fault.get("trouble", {}).items())
        row.append("; ".join([*(f"{name} {value}" for name, value in rest.items()), trouble]).strip("; "))
    print_rows([[*(name.replace("_", " ") for name in columns), "what clients saw"], *rows])
    for found in result["findings"][:40]:
        print(f"  {found[:400]}")
    if len(result["findings"]) > 40:
        print(f"  and {len(result['findings']) - 40} more")


def print_all(results: list[dict[str, Any]]) -> None:
    columns = ("cell", "requests", "decisions", "rewards", "forgotten", "replayed", "hung", "refits", "log_mb")
    rows = [[f"{result[name]:,}" if name != "cell" else result[name] for name in columns] for result in results]
    for row, result in zip(rows, results, strict=True):
        lost = ", ".join(f"{count} {kind}" for kind, count in result["problems"].items()) or "none"
        row += [lost, " ".join(f"{size:.0f}" for size in result["memory"]["resident_mb"]), str(len(result["findings"]))]
    print()
    print_rows([[*(name.replace("_", " ") for name in columns), "contradictions", "MB by quarter", "findings"], *rows])


def print_rows(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
