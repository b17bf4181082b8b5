"""A model of ten million arms behind HTTP: a bandit's folder from it, `treetop serve`, decisions, rewards, a refit on
the log of the whole history while decisions go on, a restart, and decisions again.

    python benchmarks/serve_large.py [--shape 10m] [--cache DIR] [--rounds 800000] [--requests 500] [--json]

The log is filled beforehand with the first `--rounds` rounds of the made-up history that the model was fitted from
(0: none), in the way that the service writes them. Everything is on this machine, in a folder that is removed in the
end; 9 GB of memory and 15 GB of disk at the shape 10m.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from treetop.arrays import Rows
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, LearnerConfig, PolicyConfig, RefitConfig
from treetop.bandit.results import ServedDecision, same_decision
from treetop.bandit.snapshot import tree_id
from treetop.bench import http_load
from treetop.bench.shape import CONTEXTS, SHAPES, BenchModel, Shape, cached_model, default_cache, made_up_log
from treetop.bench.table import markdown
from treetop.bench.timing import Row, commit, load_average, machine
from treetop.client.blocking import Client
from treetop.data.synthetic import generate
from treetop.log.records import Event, Reward
from treetop.records import Feedback
from treetop.tree.tree import Tree

BATCH = 2048  # rounds that are written to the log at a time
SECONDS = 3.0  # of requests on one connection that stays open, for the times
TIMEOUT = 1800.0  # seconds that a start or a refit may take


def rounds_of(shape: Shape, tree: Tree, n: int) -> Feedback:
    """The first rounds of the history that the model of this shape was fitted from."""
    X, Y, _, _ = generate(shape.spec(shape.rounds + CONTEXTS))
    whole = made_up_log(shape, tree, X, Y)
    return Feedback(whole.contexts.head(n), whole.arms[:n], whole.nodes[:n], whole.rewards[:n])


def fill(bandit: Bandit, history: Feedback) -> None:
    """Writes rounds to the log, as decisions with certain slots and their rewards."""
    tree, now, k = tree_id(bandit.snapshot.model.tree), time.time(), history.arms.shape[1]
    chances = np.ones(k), np.zeros(k, np.float32), np.zeros(k, np.bool_)  # propensities, scores, explored
    for first in range(0, len(history), BATCH):
        events, rewards = [], []
        for t in range(first, min(first + BATCH, len(history))):
            x, name, arms = history.contexts.row(t), f"round-{t}", history.arms[t]
            request, model = t.to_bytes(16, "little"), bandit.snapshot.name
            slots = (arms, *chances, history.nodes[t])
            events.append(Event(name, 0, *slots, now, request, x.index, x.value, model, tree, "{}"))
            observed = dict(zip(arms.tolist(), history.rewards[t].tolist(), strict=True))  # an arm counts once
            rewards += [Reward(name, arm, value, now) for arm, value in observed.items()]
        bandit.log.append(events)
        bandit.log.reward(rewards)


class Service:
    """`treetop serve` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.client = Client(f"http://127.0.0.1:{self.port}", timeout=120)
        began = time.perf_counter()
        words = [sys.executable, "-m", "treetop", "serve", str(folder), "--port", str(self.port)]
        with (folder.parent / "said").open("ab") as said:
            self.process = subprocess.Popen(words, stderr=said)
        while not self.client.ready():
            if self.process.poll() is not None or time.perf_counter() - began > TIMEOUT:
                raise OSError(f"the service did not start: {(folder.parent / 'said').read_text()[-500:]}")
            time.sleep(0.05)
        self.start_seconds = round(time.perf_counter() - began, 2)

    def end(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)

    def memory(self) -> Row:
        """GB of its own and of mapped files, of the process and its children."""
        own = mapped = 0.0
        for pid in family(self.process.pid):
            with suppress(OSError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
                own += sizes.get("RssAnon", 0) * 1024 / 1e9
                mapped += sizes.get("RssFile", 0) * 1024 / 1e9
        return {"own_gb": round(own, 2), "mapped_gb": round(mapped, 2)}

    def times(self, requests: list[bytes]) -> Row:
        """Of decisions, one after the other on one connection."""
        return spread(http_load.send_load(self.port, 1, SECONDS, requests)["times"])


def spread(times: list[float]) -> Row:
    p50, p99 = 1e3 * np.percentile(times, [50, 99])
    return {"answers": len(times), "p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}


def family(root: int) -> list[int]:
    """A process and all below it."""
    parent = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended meanwhile
            parent[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, above in parent.items() if above == pid]
    return found


def refitted(service: Service, requests: list[bytes]) -> Row:
    """Asks for a refit and goes on deciding until its model serves; the most memory meanwhile."""
    before, began, most, times = service.client.model()["model"], time.perf_counter(), 0.0, []
    service.client.refit()
    while service.client.model()["model"] == before:
        if time.perf_counter() - began > TIMEOUT:
            raise TimeoutError(f"no new model after {TIMEOUT:g} s: {service.client.model()}")
        times += http_load.send_load(service.port, 1, 0.5, requests)["times"]
        most = max(most, service.memory()["own_gb"])
    return {"seconds": round(time.perf_counter() - began, 1), "own_gb": most, **spread(times)}


def asked_again(client: Client, shown: dict[str, tuple[dict[str, float], ServedDecision]]) -> int:
    """How many decisions the service answers as it did before."""
    return sum(client.decide(x, event_id=name) == answer for name, (x, answer) in shown.items())


def served(folder: Path, contexts: Rows, n: int) -> tuple[list[Row], dict[str, int]]:
    """Every step as a row, and what was checked."""
    features = [
        dict(zip(map(str, row.index.tolist()), row.value.tolist(), strict=True))
        for row in (contexts.row(i) for i in range(2 * n))
    ]
    file = folder.parent / "requests"
    http_load.write_requests(file, [json.dumps({"features": x}).encode() for x in features[n:]])
    requests, service = http_load.read_requests(file), Service(folder)
    rows: list[Row] = []
    try:
        rows.append({"what": "start", "seconds": service.start_seconds, **service.memory()})
        shown = {f"visit-{i}": (x, service.client.decide(x, event_id=f"visit-{i}")) for i, x in enumerate(features[:n])}
        for name, (_, answer) in shown.items():
            service.client.reward(name, {answer.arms[0]: 1.0, **dict.fromkeys(answer.arms[1:], 0.0)})
        rows.append({"what": "decisions", **service.times(requests), **service.memory()})
        rows.append({"what": "refit, and decisions meanwhile", **refitted(service, requests)})
        rows.append({"what": "decisions of the new model", **service.times(requests), **service.memory()})
    finally:
        service.end()
    service = Service(folder)
    try:
        rows.append({"what": "start again", "seconds": service.start_seconds, **service.memory()})
        checks = {"answers": n, "same after the restart": asked_again(service.client, shown)}
        rows.append({"what": "decisions after it", **service.times(requests), **service.memory()})
    finally:
        service.end()
    with Bandit.open(folder) as bandit:
        checks["decided again by their model"] = sum(same_decision(*bandit.replay(name)) for name in list(shown)[:5])
        checks["decisions in the log"] = bandit.log.counts().decisions
    return rows, checks


@contextmanager
def timed(rows: list[Row], what: str) -> Iterator[Row]:
    began, row = time.perf_counter(), Row(what=what)
    yield row
    rows.append(row | {"seconds": round(time.perf_counter() - began, 1)})


def size_gb(folder: Path, names: str = "*") -> float:
    return round(sum(path.stat().st_size for path in folder.rglob(names) if path.is_file()) / 1e9, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="10m", choices=SHAPES)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where made-up models are kept")
    parser.add_argument("--rounds", type=int, help="of the log; all of the history if not given")
    parser.add_argument("--requests", type=int, default=500, help="decisions that get rewards")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    before, shape, rows = load_average(), SHAPES[asked.shape], list[Row]()
    found: BenchModel = cached_model(shape, asked.cache)
    never = Config(PolicyConfig(strategy="igw"), learner=LearnerConfig("paper"), refit=RefitConfig(first=10**9))
    with tempfile.TemporaryDirectory(dir=asked.cache, prefix="serve-") as place:
        folder, contexts = Path(place) / "home", found.contexts
        with timed(rows, "folder of the model") as row:
            names = (f"item-{i}" for i in range(shape.arms))
            bandit = Bandit.create(folder, names, model=found.model, config=never)
            row["gb"] = size_gb(folder)
        del found
        rounds = shape.rounds if asked.rounds is None else asked.rounds
        if rounds:
            history = rounds_of(shape, bandit.snapshot.model.tree, rounds)
            with timed(rows, f"log of {rounds:,} rounds") as row:
                fill(bandit, history)
                row["gb"] = size_gb(folder, "log.*")
            del history
        bandit.close()
        del bandit
        steps, checks = served(folder, contexts, asked.requests)
    about_all = {"bench": f"serve {asked.shape}", "name": "treetop", "arms": shape.arms}
    found_rows = [about_all | row for row in rows + steps]
    about = {
        "rows": found_rows,
        "checks": checks,
        "left_out": [],
        "command": f"python {' '.join(sys.argv)}",
        "commit": commit(),
        "machine": machine(),
        "load_average": [before, load_average()],
    }
    print(json.dumps(about, indent=1) if asked.json else f"{markdown(found_rows)}\n\n{checks}")


if __name__ == "__main__":
    main()
