"""What the slowest decisions waited for: syncs and checkpoints of the log, garbage, models, the dashboard, a core.

    python benchmarks/latency_profile.py [TREE] [--seconds 10] [--connections 16] [--data debian] [--json FILE]

Serves the tree's code under strace (syncs and writes only) with `latency_probe` in every process, asks over connections
that stay open, and lays the slowest 1 % of the requests beside what happened meanwhile. A kind of work explains
a slow request as far as more of it overlaps with the request than with an ordinary one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from latency import end, family, free_port, make_bandit, wait_until_ready, write_bodies

from treetop.bench import http_load

TRACE = ["strace", "-f", "--seccomp-bpf", "-y", "-ttt", "-T", "-e", "trace=fsync,fdatasync"]
CALL = re.compile(r"^(\d+) +([\d.]+) (\w+)\(\d+<([^>]*)>.*<([\d.]+)>$")
RESUMED = re.compile(r"^(\d+) +([\d.]+) <\.\.\. (\w+) resumed>.*<([\d.]+)>$")
BEGUN = re.compile(r"^(\d+) +([\d.]+) (\w+)\(\d+<([^>]*)>.*<unfinished \.\.\.>$")
SLOW = 0.01  # of the requests
Span = tuple[str, float, float]


def requests_over_time(port: int, connections: int, seconds: float, requests: list[bytes]) -> np.ndarray:
    """When each request was sent and when its answer was there."""
    made = [http_load.Connection(port) for _ in range(connections)]
    by_number = {one.socket.fileno(): one for one in made}
    found: list[tuple[float, float]] = []
    sent, until = 0, time.time() + seconds
    offset = time.time() - time.perf_counter()
    with select.epoll() as watch:
        for number, one in by_number.items():
            watch.register(number, select.EPOLLIN)
            one.send(requests[sent % len(requests)])
            sent += 1
        while len(found) < sent:
            for number, _ in watch.poll(60):
                one = by_number[number]
                if one.receive() is None:
                    continue
                now = time.time()
                found.append((one.began + offset, now))
                if now < until:
                    one.send(requests[sent % len(requests)])
                    sent += 1
    return np.array(found)


def system_calls(path: Path) -> list[Span]:
    """Syncs and writes that strace saw, by file."""
    found: list[Span] = []
    begun: dict[tuple[str, str], str] = {}
    for line in path.read_text(errors="replace").splitlines():
        if match := CALL.match(line):
            _, at, call, file, took = match.groups()
            found.append((f"{call} {kind_of(file)}", float(at), float(at) + float(took)))
        elif match := BEGUN.match(line):
            pid, _, call, file = match.groups()
            begun[pid, call] = file
        elif match := RESUMED.match(line):
            pid, at, call, took = match.groups()
            ended = float(at)  # strace stamps the moment when the call came back
            found.append((f"{call} {kind_of(begun.pop((pid, call), ''))}", ended - float(took), ended))
    return found


def kind_of(file: str) -> str:
    name = Path(file).name
    return {"log.sqlite-wal": "of the write-ahead log", "log.sqlite": "of the log's file"}.get(
        name, f"of {name or '?'}"
    )


def waits_for_a_core(pids: list[int], stop: threading.Event, found: list[Span]) -> None:
    """Every 5 ms: how long the threads of a service were ready to run and did not."""
    last: dict[str, int] = {}
    while not stop.wait(0.005):
        now = time.time()
        for path in [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]:
            with suppress(OSError):
                waited = int(path.read_text().split()[1])
                delta = (waited - last.get(str(path), waited)) / 1e9
                last[str(path)] = waited
                if delta > 0.0005:
                    found.append(("wait for a core", now - min(delta, 0.005), now))


def overlaps(spans: list[Span], requests: np.ndarray) -> dict[str, np.ndarray]:
    """Seconds of each kind of work within each request."""
    by_kind: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for kind, began, ended in spans:
        by_kind[kind].append((began, ended))
    found = {}
    for kind, list_ in by_kind.items():
        times = np.array(sorted(list_))
        # Work of a kind until t: the sum of all that ended, and a part of what runs. Exact if none of a kind overlap.
        starts, lengths = times[:, 0], np.maximum(times[:, 1] - times[:, 0], 0)
        before = np.concatenate([[0.0], np.cumsum(lengths)])

        def until(t: np.ndarray, starts: Any = starts, lengths: Any = lengths, before: Any = before) -> np.ndarray:
            at = np.searchsorted(starts, t) - 1
            part = np.where(at >= 0, np.minimum(t - starts[np.maximum(at, 0)], lengths[np.maximum(at, 0)]), 0.0)
            return np.where(at >= 0, before[np.maximum(at, 0)] + part, 0.0)

        found[kind] = until(requests[:, 1]) - until(requests[:, 0])
    return found


def profile(asked: argparse.Namespace, place: Path) -> dict[str, Any]:
    python = (asked.tree / ".venv" / "bin" / "python").absolute()
    make_bandit(python, place / "bandit", asked.data)
    write_bodies(place / "bodies", asked.data)
    http_load.write_requests(place / "requests", (place / "bodies").read_bytes().splitlines())
    requests = http_load.read_requests(place / "requests")
    port = free_port()
    words = [*TRACE, "-o", str(place / "calls"), str(python), "-m", "treetop", "serve", str(place / "bandit")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TREETOP_", "PYTHON"))}
    probe = str(Path(__file__).parent / "latency_probe")
    process = subprocess.Popen(
        [*words, "--port", str(port), "--workers", str(asked.workers)],
        env={**clean, "PYTHONPATH": probe, "LATENCY_PROBE": str(place / "spans")},
        stderr=(place / "lines").open("wb"),
    )
    waits: list[Span] = []
    stop = threading.Event()
    try:
        wait_until_ready(port, process)
        served = sorted(set(family(process.pid)) - {process.pid})  # without strace itself
        requests_over_time(port, asked.connections, 1.0, requests)
        threading.Thread(target=waits_for_a_core, args=(served, stop, waits), daemon=True).start()
        times = requests_over_time(port, asked.connections, asked.seconds, requests)
        stop.set()
        os.kill(served[0], signal.SIGTERM)
        process.wait(60)
    finally:
        stop.set()
        end(process)
    calls = system_calls(place / "calls")
    noted = [tuple(span) for path in place.glob("spans.*") for span in json.loads(path.read_text())]
    return summary(times, calls + waits + with_checkpoints(noted, calls))


def with_checkpoints(spans: list[Span], calls: list[Span]) -> list[Span]:
    """The same, but commits that also moved pages from the write-ahead log into the file have a name of their own."""
    moved = np.sort([began for kind, began, _ in calls if kind == "fdatasync of the log's file"])
    found = []
    for kind, began, ended in spans:
        both = np.searchsorted(moved, began) < np.searchsorted(moved, ended)
        found.append((f"{kind} with checkpoint" if kind == "commit" and both else kind, began, ended))
    return found


def summary(times: np.ndarray, spans: list[Span]) -> dict[str, Any]:
    took = times[:, 1] - times[:, 0]
    p50, p99 = np.percentile(took, [50, 100 - 100 * SLOW])
    slow, ordinary = took >= p99, np.abs(took - p50) < 0.2 * p50
    rows = []
    for kind, within in overlaps(spans, times).items():
        usual, then = float(within[ordinary].mean()), float(within[slow].mean())
        inside = [(b, e) for k, b, e in spans if k == kind and b < times[:, 1].max() and e > times[:, 0].min()]
        lengths = [e - b for b, e in inside] or [0.0]
        rows.append(
            {
                "kind": kind,
                "count": len(inside),
                "median_ms": 1e3 * float(np.median(lengths)),
                "most_ms": 1e3 * max(lengths),
                "in_ordinary_ms": 1e3 * usual,
                "in_slow_ms": 1e3 * then,
                "explains": (then - usual) / float(took[slow].mean() - took[ordinary].mean()),
            }
        )
    rows = sorted((row for row in rows if row["count"]), key=lambda row: -row["explains"])
    facts = {"requests": len(took), "p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99, "p99_of_p50": p99 / p50}
    return {**{name: float(value) for name, value in facts.items()}, "kinds": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data", default="debian")
    parser.add_argument("--place", type=Path, help="a folder on the disk to measure on; a temporary one without it")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.place, prefix="treetop-latency-") as place:
        found = profile(asked, Path(place))
    print(f"{found['requests']:.0f} requests: p50 {found['p50_ms']:.2f} ms, p99 {found['p99_ms']:.2f} ms")
    print(f"  {'':34}  count  median     most  in ordinary  in slow requests  explains")
    for row in found["kinds"]:
        print(
            f"  {row['kind']:34}  {row['count']:5}  {row['median_ms']:6.2f}  {row['most_ms']:7.2f}  "
            f"{row['in_ordinary_ms']:11.2f}  {row['in_slow_ms']:16.2f}  {row['explains']:8.0%}"
        )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
