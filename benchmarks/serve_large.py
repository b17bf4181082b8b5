"""A model of ten million arms behind HTTP: a bandit's folder from it, `treetop serve`, decisions, rewards, a refit on
the log of the whole history while decisions go on, a restart, and decisions again.

    python benchmarks/serve_large.py [--shape 10m] [--cache DIR] [--rounds 800000] [--requests 500]

The log is filled beforehand with the first `--rounds` rounds of the made-up history that the model was fitted from
(0: none), in the way that the service writes them. Everything is on this machine, in a folder that is removed in the
end; 14 GB of memory and 15 GB of disk at the shape 10m. Prints what it measured as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from treetop.answers import Shown, same
from treetop.bandit import Bandit
from treetop.bench import knock
from treetop.bench.shape import CONTEXTS, SHAPES, Made, Shape, default_cache, log, made
from treetop.bench.timing import commit, load_average, machine
from treetop.client import Client
from treetop.config import Config, Deciding, Learning, Refitting
from treetop.live import tree_id
from treetop.log import Event, Reward
from treetop.synthetic import generate
from treetop.tree import Tree
from treetop.types import Feedback, Rows

BATCH = 2048  # rounds that are written to the log at a time
SECONDS = 3.0  # of requests on one connection that stays open, for the times
PATIENCE = 1800.0
Facts = dict[str, Any]


def rounds_of(shape: Shape, tree: Tree, n: int) -> Feedback:
    """The first rounds of the history that the model of this shape was fitted from."""
    X, Y, _, _ = generate(shape.spec(shape.rounds + CONTEXTS))
    whole = log(shape, tree, X, Y)
    return Feedback(whole.contexts.head(n), whole.arms[:n], whole.nodes[:n], whole.rewards[:n])


def fill(bandit: Bandit, history: Feedback) -> None:
    """Writes rounds to the log, as decisions with certain slots and their rewards."""
    tree, now, k = tree_id(bandit.live.model.tree), time.time(), history.arms.shape[1]
    chances = np.ones(k), np.zeros(k, np.float32), np.zeros(k, np.bool_)  # propensities, scores, explored
    for first in range(0, len(history), BATCH):
        events, rewards = [], []
        for t in range(first, min(first + BATCH, len(history))):
            x, name, arms = history.contexts.row(t), f"round-{t}", history.arms[t]
            shown = arms, history.nodes[t], *chances
            request = t.to_bytes(16, "little")
            events.append(Event(name, now, request, x.index, x.value, *shown, 0, bandit.live.name, tree, "{}"))
            slots = dict(zip(arms.tolist(), history.rewards[t].tolist(), strict=True))  # an arm counts once
            rewards += [Reward(name, arm, value, now) for arm, value in slots.items()]
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
        self.process = subprocess.Popen(words, stderr=(folder.parent / "said").open("ab"))
        while not self.client.ready():
            if self.process.poll() is not None or time.perf_counter() - began > PATIENCE:
                raise OSError(f"the service did not start: {(folder.parent / 'said').read_text()[-500:]}")
            time.sleep(0.05)
        self.start_seconds = time.perf_counter() - began

    def end(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)

    def memory(self) -> tuple[float, float]:
        """GB of its own and of mapped files, of the process and its children."""
        own = mapped = 0.0
        for pid in family(self.process.pid):
            with suppress(OSError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
                own += sizes.get("RssAnon", 0) * 1024 / 1e9
                mapped += sizes.get("RssFile", 0) * 1024 / 1e9
        return round(own, 2), round(mapped, 2)

    def times(self, requests: list[bytes], seconds: float = SECONDS) -> Facts:
        """Of decisions, one after the other on one connection."""
        found = knock.knock(self.port, 1, seconds, requests)
        p50, p99 = 1e3 * np.percentile(found["times"], [50, 99])
        return {"answers": found["answers"], "p50_ms": round(p50, 3), "p99_ms": round(p99, 3)}


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


def refitted(service: Service, requests: list[bytes]) -> Facts:
    """Asks for a refit and goes on deciding until its model serves."""
    before, began, most, times = service.client.model()["model"], time.perf_counter(), 0.0, []
    service.client.refit()
    while service.client.model()["model"] == before:
        if time.perf_counter() - began > PATIENCE:
            raise TimeoutError(f"no new model after {PATIENCE:g} s: {service.client.model()}")
        times += knock.knock(service.port, 1, 0.5, requests)["times"]
        most = max(most, service.memory()[0])
    p50, p99 = 1e3 * np.percentile(times, [50, 99])
    return {
        "seconds": round(time.perf_counter() - began, 1), "most_own_gb": most, "answers_meanwhile": len(times),
        "p50_ms": round(p50, 3), "p99_ms": round(p99, 3),
    }  # fmt: skip


def asked_again(client: Client, shown: dict[str, tuple[dict[str, float], Shown]]) -> int:
    """How many decisions the service answers as it did before."""
    return sum(client.decide(x, event_id=name) == answer for name, (x, answer) in shown.items())


def served(folder: Path, contexts: Rows, n: int) -> Facts:
    features = [dict(zip(map(str, row.index.tolist()), row.value.tolist(), strict=True))
                for row in (contexts.row(i) for i in range(2 * n))]  # fmt: skip
    file = folder.parent / "requests"
    knock.write_requests(file, [json.dumps({"features": x}).encode() for x in features[n:]])
    requests, service = knock.read_requests(file), Service(folder)
    try:
        facts: Facts = {"start_seconds": round(service.start_seconds, 2), "memory_gb": service.memory()}
        began = time.perf_counter()
        shown = {f"visit-{i}": (x, service.client.decide(x, event_id=f"visit-{i}")) for i, x in enumerate(features[:n])}
        facts["decisions"] = {"n": n, "mean_ms": round(1e3 * (time.perf_counter() - began) / n, 3)}
        began = time.perf_counter()
        for name, (_, answer) in shown.items():
            service.client.reward(name, {answer.arms[0]: 1.0, **dict.fromkeys(answer.arms[1:], 0.0)})
        facts["rewards"] = {"n": n, "mean_ms": round(1e3 * (time.perf_counter() - began) / n, 3)}
        facts["one_connection"] = service.times(requests)
        facts["memory_after_gb"] = service.memory()
        facts["refit"] = refitted(service, requests)
        facts["one_connection_new_model"] = service.times(requests)
    finally:
        service.end()
    service = Service(folder)
    try:
        facts["restart_seconds"] = round(service.start_seconds, 2)
        facts["same_answers_after_restart"] = asked_again(service.client, shown)
        facts["model"] = {key: service.client.model()[key] for key in ("model", "arms")}
        facts["one_connection_after_restart"] = service.times(requests)
        facts["memory_after_restart_gb"] = service.memory()
    finally:
        service.end()
    with Bandit.open(folder) as bandit:
        facts["decided_again_by_its_model"] = sum(same(*bandit.replay(name)) for name in list(shown)[:5])
        facts["in_the_log"] = bandit.log.counts().decisions
    return facts


@contextmanager
def timed(facts: Facts, name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    facts[name] = round(time.perf_counter() - began, 1)
    print(f"{name}: {facts[name]}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="10m", choices=SHAPES)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where made-up models are kept")
    parser.add_argument("--rounds", type=int, help="of the log; all of the history if not given")
    parser.add_argument("--requests", type=int, default=500, help="decisions that get rewards")
    asked = parser.parse_args()
    shape, facts = SHAPES[asked.shape], Facts()
    found: Made = made(shape, asked.cache)
    never = Config(Deciding(strategy="igw"), learner=Learning("paper"), refit=Refitting(first=10**9))
    with tempfile.TemporaryDirectory(dir=asked.cache, prefix="serve-") as place:
        folder = Path(place) / "home"
        names = (f"item-{i}" for i in range(shape.arms))
        with timed(facts, "folder_seconds"):
            bandit = Bandit.create(folder, model=found.model, arms=names, config=never)
        contexts = found.contexts
        del found
        rounds = shape.rounds if asked.rounds is None else asked.rounds
        if rounds:
            with timed(facts, "history_seconds"):
                history = rounds_of(shape, bandit.live.model.tree, rounds)
            with timed(facts, "log_seconds"):
                fill(bandit, history)
            del history
        bandit.close()
        del bandit
        sizes = {path: path.stat().st_size / 1e9 for path in folder.rglob("*") if path.is_file()}
        facts["folder_gb"] = round(sum(sizes.values()), 2)
        facts["log_gb"] = round(sum(size for path, size in sizes.items() if path.name.startswith("log.")), 2)
        facts |= {"arms": shape.arms, "rounds": rounds, **served(folder, contexts, asked.requests)}
    facts |= {"commit": commit(), "machine": machine(), "load_average": load_average(), "cores": os.cpu_count()}
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
