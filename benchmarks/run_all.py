"""Every measurement of docs/performance.md, one after the other; what is asked for by name alone if names are given.

    python benchmarks/run_all.py [NAME ...] [--cache DIR]     # make bench-all ARGS="decide batch"

Each run leaves benchmarks/results/NAME.json with command, commit and machine. In the end results.md and the table of
targets in docs/performance.md are written again from all results there are; `--fill` does only that. Serving layouts
are read anew by every run but `load`: what copying or memory pressure has left of a file in the system's cache is in
small pages, and stays so (see "The file" in docs/performance.md).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import targets

from treetop.bench.shape import default_cache
from treetop.bench.table import by_bench, markdown

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results", HERE.parent / "docs" / "performance.md"
RUNS = {
    "decide": "decide --shape amazon-3m",
    "batch": "batch --shape amazon-3m",
    "refit": "refit --shape amazon-3m --rounds 1717899",
    "build": "build --shape amazon-3m",
    "load": "load --shape amazon-3m",
    "scale": "scale --shape 10m --arms 1000000",
    "decide-10m": "decide --shape 10m --no-peers",
    "load-10m": "load --shape 10m --no-peers",
    "small": "decide batch --contexts 1000",
    "serve": "serve --no-peers",
}
SCRIPTS = {
    "replay": "lines.py --beam 10 --beam 30 --beam 100 --count 500",
    "causes": "causes.py",
    "serve-10m": "serve_large.py --shape 10m",
}
ALL = (*RUNS, *SCRIPTS)


def measure(name: str, more: list[str]) -> None:
    if name in SCRIPTS:
        script, *options = SCRIPTS[name].split()
        words, command = [str(HERE / script), *options], f"python benchmarks/{SCRIPTS[name]}"
    else:
        words, command = ["-m", "treetop", "bench", *RUNS[name].split()], f"treetop bench {RUNS[name]}"
    print(f"{time.strftime('%H:%M:%S')} {command}", flush=True)
    if not name.startswith("load"):
        let_go(Path(more[-1]) if more else default_cache())
    done = subprocess.run([sys.executable, *words, *more, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} ended with code {done.returncode}")
    document = json.loads(done.stdout)
    document["command"] = command  # without the place of the cache
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def let_go(cache: Path) -> None:
    """Drops the layouts of made-up models from the system's cache."""
    for path in cache.glob("*/model/serving.bin"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def page(found: targets.Documents) -> str:
    """results.md: every run with command, commit, machine and tables."""
    parts = [
        "# Results\n",
        "Written by `make bench-all` from the JSON in `results/`; `docs/performance.md` says what they mean.\n"
        "Times by the clock are medians; other work on the machine shows in the load average.\n",
        targets.table(found),
    ]
    for name, document in benches(found).items():
        busy = " to ".join(f"{load:g}" for load in document["load_average"])
        about = f"Commit {document['commit']}, {document['machine']}, load average {busy}."
        tables = [f"{bench}\n\n{markdown(rows)}" for bench, rows in by_bench(document).items()]
        left = [f"Left out: {line}." for line in document["left_out"]]
        parts.append("\n\n".join([f"## {name}", f"    {document['command']}", about, *tables, *left]))
    return "\n\n".join(parts) + "\n"


def benches(found: targets.Documents) -> targets.Documents:
    """The results of runs of this script: other scripts leave theirs in the same folder, in forms of their own."""
    return {name: document for name, document in found.items() if name in ALL}


def fill() -> None:
    """results.md, and what stands between `<!-- targets -->` and `<!-- end -->` in docs/performance.md."""
    found = targets.read(RESULTS)
    (HERE / "results.md").write_text(page(found))
    content = f"<!-- targets -->\n{targets.table(found)}\n\n{_facts(found)}\n<!-- end -->"
    text = PAGE.read_text()
    PAGE.write_text(re.sub(r"<!-- targets -->\n.*?<!-- end -->", lambda _: content, text, flags=re.S))


def _facts(found: targets.Documents) -> str:
    """On which commits, machine and load average the table stands."""
    runs = list(benches(found).values())
    commits = ", ".join(sorted({run["commit"] for run in runs}))
    machines = "; ".join(sorted({run["machine"] for run in runs}))
    busy = [load for run in runs for load in run["load_average"]]
    return f"Commit {commits}; {machines}; load average {min(busy):g} to {max(busy):g}." if runs else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the benches and writes the tables.")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ALL)}; all if none is given")
    parser.add_argument("--cache", help="where made-up models are kept")
    parser.add_argument("--fill", action="store_true", help="only write the tables again")
    asked = parser.parse_args()
    if wrong := [name for name in asked.names if name not in ALL]:
        parser.error(f"no run {wrong[0]!r}; it must be one of {', '.join(ALL)}")
    for name in [] if asked.fill else asked.names or ALL:
        measure(name, ["--cache", asked.cache] if asked.cache else [])
    fill()


if __name__ == "__main__":
    main()
