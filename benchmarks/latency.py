"""How long `/v1/decide` takes with 16 connections, in two checkouts that take turns on the same machine.

    python benchmarks/latency.py BASE NEW [--turns 8] [--seconds 4] [--workers 1] [--others 0.1] [--bare] [--json FILE]

BASE and NEW are source trees with an environment of their own (`make .venv/.built` in each). Each makes a bandit of the
set and serves it as a process at ordinary priority; wrk (Debian: apt-get install wrk) asks them in turns, with contexts
of the set by the names of their features, every one committed to disk before it is answered. `--bare` adds the app of
`treetop bench serve` that does everything but decide. Each turn says which share of the cores others used meanwhile: on
a machine that is not quiet, `--others` leaves the busy turns out. `latency_profile.py` tells what slow ones waited for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from treetop.bench.timing import load_average, machine
from treetop.data.datasets import load

CONNECTIONS = 16
CONTEXTS = 5000  # different requests
START_TIMEOUT = 120.0  # seconds
# Each thread of wrk goes through the requests from a place of its own.
LUA = """
local threads = 0
function setup(thread) thread:set("number", threads); threads = threads + 1 end
local bodies, at = {}, 0
function init(arguments)
  for line in io.lines(arguments[1]) do
    bodies[#bodies + 1] = wrk.format("POST", "/v1/decide", {["content-type"] = "application/json"}, line)
  end
  at = math.floor(#bodies * (number * 0.37 + tonumber(arguments[2]))) % #bodies
end
function request() at = at % #bodies + 1; return bodies[at] end
function done(summary, latency, requests)
  local wrong = summary.errors.status + summary.errors.read + summary.errors.write + summary.errors.timeout
  local form = '\\n{"p50": %f, "p99": %f, "p999": %f, "most": %f, "per_second": %f, "wrong": %d}\\n'
  io.write(string.format(form, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency:percentile(99.9) / 1e3, latency.max / 1e3, summary.requests / summary.duration * 1e6,
    wrong + summary.errors.connect))
end
"""


@dataclass
class Contestant:
    """A service that runs; `turns` has what wrk said of each turn, times in milliseconds."""

    name: str
    port: int
    pid: int
    turns: list[dict[str, float]] = field(default_factory=list)

    def median(self, what: str) -> float:
        return statistics.median(turn[what] for turn in self.turns)

    @property
    def tail(self) -> float:
        """How many times p50 is p99, in the turn in the middle."""
        return statistics.median(turn["p99"] / turn["p50"] for turn in self.turns)

    def quiet(self, others: float) -> Contestant:
        """The same with only those turns in which others used no more of the cores; with the quietest, if none."""
        least = max(others, min(turn["others"] for turn in self.turns))
        return Contestant(self.name, self.port, self.pid, [turn for turn in self.turns if turn["others"] <= least])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def environment() -> dict[str, str]:
    """Nothing that changes what a service or its Python does."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TREETOP_", "PYTHON"))}


def make_bandit(python: Path, folder: Path, data: str) -> None:
    words = [python, "-m", "treetop", "init", folder, data, "--json"]
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, env=environment())


@contextmanager
def serving(
    python: Path, folder: Path, workers: int, prefix: Sequence[str] = ("-m", "treetop")
) -> Iterator[tuple[int, int]]:
    """`treetop serve` of a tree: its port and process id. `prefix` are the words after python."""
    port = free_port()
    words = [str(python), *prefix, "serve", str(folder), "--port", str(port), "--workers", str(workers)]
    with (folder.parent / f"{folder.name}.lines").open("wb") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, env=environment())
    try:
        wait_until_ready(port, process)
        yield port, process.pid
    finally:
        end(process)


@contextmanager
def bare(python: Path, folder: Path) -> Iterator[tuple[int, int]]:
    """The app of `treetop bench serve` without the decision, as one worker: its port and process id."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        listening.setblocking(False)
        alive, held = os.pipe()
        handles = (listening.fileno(), alive)
        words = [str(python), "-m", "treetop.bench.baseline_app", str(folder), *map(str, handles), "1"]
        with (folder.parent / f"{folder.name}.lines").open("wb") as said:
            process = subprocess.Popen(words, pass_fds=handles, stderr=said, env=environment())
        try:
            lines = folder.parent / f"{folder.name}.lines"
            while '"ready"' not in lines.read_text() and process.poll() is None:
                time.sleep(0.05)
            yield int(listening.getsockname()[1]), process.pid
        finally:
            end(process)
            os.close(alive)
            os.close(held)


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_TIMEOUT
    while True:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return
        if process.poll() is not None or time.monotonic() > until:
            raise OSError(f"the service did not start; its exit code is {process.poll()}")
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def write_bodies(path: Path, data: str) -> None:
    """Requests, one a line: contexts by the names of their features."""
    dataset = load(data)
    X, names = dataset.X.csr(), dataset.feature_names
    rows = random.Random(0).sample(range(X.shape[0]), min(CONTEXTS, X.shape[0]))
    with path.open("w") as file:
        for row in rows:
            x = X[row]
            features = {names[i] if names else str(i): float(v) for i, v in zip(x.indices, x.data, strict=True)}
            file.write(json.dumps({"features": features}) + "\n")


def busy_seconds() -> float:
    """That all cores of the machine have worked so far, for whomever."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return (sum(map(int, words[:8])) - int(words[3]) - int(words[4])) / os.sysconf("SC_CLK_TCK")


def family(root: int) -> dict[int, float]:
    """A process and all below it that live, with the seconds that cores have worked for each."""
    work, parent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parent[pid], work[pid] = int(words[1]), (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    found = {root}
    for pid in sorted(parent):  # a child has the higher number, but for those that start when numbers begin anew
        if parent[pid] in found:
            found.add(pid)
    return {pid: work.get(pid, 0.0) for pid in found}


def worked_seconds(root: int) -> float:
    """That cores have worked for a process and all below it that live."""
    return sum(family(root).values())


def turn(one: Contestant, place: Path, seconds: float, connections: int) -> dict[str, float]:
    """What wrk says of some seconds: times in milliseconds.

    `cpu` are the microseconds that cores worked for a request in the service; `others` is the share of all cores that
    neither the services nor wrk used, but somebody else.
    """
    words = ["wrk", "-t2", f"-c{connections}", f"-d{seconds:g}s", "-s", str(place / "decide.lua")]
    words += [f"http://127.0.0.1:{one.port}", "--", str(place / "bodies"), f"{random.random():.6f}"]
    own, ours, all_, began = worked_seconds(one.pid), worked_seconds(os.getpid()), busy_seconds(), time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    wrk = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    others = busy_seconds() - all_ - (worked_seconds(os.getpid()) - ours) - wrk
    found: dict[str, float] = json.loads(said.strip().splitlines()[-1])
    found["cpu"] = 1e6 * (worked_seconds(one.pid) - own) / (found["per_second"] * seconds)
    found["others"] = max(0.0, others / took / (os.cpu_count() or 1))
    if found["wrong"]:
        raise OSError(f"{found['wrong']:.0f} requests failed:\n{said}")
    return found


def prepare(place: Path, data: str) -> None:
    (place / "decide.lua").write_text(LUA)
    write_bodies(place / "bodies", data)


def measure(asked: argparse.Namespace, place: Path) -> list[Contestant]:
    """All turns; the order changes from round to round."""
    prepare(place, asked.data)
    found: list[Contestant] = []
    with ExitStack() as stack:
        for name, tree in zip(("base", "new"), (asked.base, asked.new), strict=True):
            python = tree / ".venv" / "bin" / "python"
            make_bandit(python, place / name, asked.data)
            found.append(Contestant(name, *stack.enter_context(serving(python, place / name, asked.workers))))
        if asked.bare:
            make_bandit(python, place / "bare", asked.data)
            found.append(Contestant("bare", *stack.enter_context(bare(python, place / "bare"))))
        for one in found:
            turn(one, place, 1.0, asked.connections)  # the first answers find nothing in any cache
        for number in range(asked.turns):
            for one in found if number % 2 else reversed(found):
                one.turns.append(turn(one, place, asked.seconds, asked.connections))
                print_turn(one.name, one.turns[-1])
    return found


def print_turn(name: str, said: dict[str, float]) -> None:
    print(
        f"  {name:5} p50 {said['p50']:7.2f} ms  p99 {said['p99']:7.2f} ms  p99/p50 {said['p99'] / said['p50']:5.1f}  "
        f"p99.9 {said['p999']:7.2f} ms  {said['per_second']:6.0f} a second  cpu {said['cpu']:4.0f} us  "
        f"others {said['others']:4.0%}",
        flush=True,
    )


def commit_of(tree: Path) -> str:
    said = subprocess.run(["git", "-C", str(tree), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--data", default="debian")
    parser.add_argument("--bare", action="store_true", help="beside the app that does not decide")
    parser.add_argument(
        "--others", type=float, default=1.0, help="leave out turns in which others used more of the cores"
    )
    parser.add_argument("--place", type=Path, help="a folder on the disk to measure on; a temporary one without it")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    before = load_average()
    with tempfile.TemporaryDirectory(dir=asked.place, prefix="treetop-latency-") as place:
        found = measure(asked, Path(place))
    print()
    judged = [one.quiet(asked.others) for one in found]
    for one in judged:
        print_turn(one.name, {key: one.median(key) for key in one.turns[0]})
        print(f"        p99/p50 {one.tail:.2f}; medians of {len(one.turns)} turns")
    ratio = judged[1].median("p50") / judged[0].median("p50")
    print(f"  p50 of new is {ratio:.3f} of base's")
    if asked.json:
        about = {"command": sys.argv, "machine": machine(), "load_average": [before, load_average()]}
        trees = {"base": commit_of(asked.base), "new": commit_of(asked.new)}
        tails = {one.name: round(one.tail, 3) for one in judged}
        turns = {one.name: one.turns for one in found}
        result = {"p50_ratio": ratio, "p99_of_p50": tails, "commits": trees, "turns": turns, **about}
        asked.json.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
