"""A refit of many arms on threads and on a Ray cluster of two nodes here: the same bytes, and what Ray costs.

    python benchmarks/refit_machines.py [--shape 670k] [--arms N] [--rounds 1000000] [--cache DIR]

The bandit and its rounds are those of `treetop bench learn-scale`: rounds that never happened, in segments. A first
refit learns from 1 / 1.2 of them, then all of them are learned from that model: by two threads, by two nodes with one
CPU each, and by these with a node lost in the middle. One line of JSON a way: seconds by the clock and CPU of the
driver, its memory, every call of `map_shards` with its tasks and seconds, and whether the files are those of the
threads. The first call on a cluster waits for its processes of Python. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from many_machines import two_nodes

from treetop.bench import learn_steps
from treetop.bench.learn_scale import FACTOR
from treetop.bench.shape import Shape, default_cache, shape_of
from treetop.bench.timing import commit, load_average, machine
from treetop.learning import shards
from treetop.parallel import map_shards

BASE = "base"


class Calls:
    """Every call of `map_shards` by a refit, with its tasks and seconds; `during` is called in the first one."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self.during: Callable[[], object] | None = None

    def __call__(self, task: Any, parts: Sequence[Any], *more: Any) -> Any:
        began = time.perf_counter()
        if self.during is not None and not self.found:
            threading.Timer(5.0, self.during).start()
        result = map_shards(task, parts, *more)
        spent = round(time.perf_counter() - began, 1)
        self.found.append({"task": task.__name__, "tasks": len(parts), "seconds": spent})
        return result


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def files(folder: Path) -> dict[str, bytes]:
    """What is in a model, by digests."""
    return {path.name: hashlib.sha256(path.read_bytes()).digest() for path in sorted(folder.iterdir())}


def refit(place: Path, rounds: int, ray: str, during: Callable[[], object] | None = None) -> dict[str, Any]:
    """Learns from the base; leaves the new model as that of the place."""
    shutil.rmtree(place / learn_steps.MODEL)
    shutil.copytree(place / BASE, place / learn_steps.MODEL)
    calls = shards.map_shards = Calls()  # type: ignore[assignment]
    calls.during = during
    facts = learn_steps.refit(str(place), rounds, ray)
    return {key: facts[key] for key in ("seconds", "cpu_seconds", "peak_gb")} | {"calls": calls.found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="670k")
    parser.add_argument("--arms", type=int)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--cache", type=Path, default=default_cache())
    asked = parser.parse_args()
    shape = shape_of(asked.shape, asked.arms, {"rounds": asked.rounds})
    say(shape=asdict(shape), commit=commit(), machine=machine(), load_average=load_average())
    asked.cache.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    cluster = two_nodes()
    say(cluster="two nodes", start_seconds=round(time.perf_counter() - began, 1))
    try:
        compare(asked, shape, cluster)
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()


def compare(asked: argparse.Namespace, shape: Shape, cluster: Any) -> None:
    """All ways, one after the other."""
    with tempfile.TemporaryDirectory(dir=asked.cache, prefix="refit-machines-") as name:
        place = Path(name)
        learn_steps.begin(asdict(shape), name)
        before = round(asked.rounds / FACTOR)
        learn_steps.seal(asdict(shape), name, before)
        say(way="the first", rounds=before, **learn_steps.refit(name, before))
        (place / learn_steps.MODEL).rename(place / BASE)
        shutil.copytree(place / BASE, place / learn_steps.MODEL)
        learn_steps.seal(asdict(shape), name, asked.rounds)
        say(way="two threads", rounds=asked.rounds, **refit(place, asked.rounds, ""))
        wanted = files(place / learn_steps.MODEL)
        for way, during in (
            ("Ray, two nodes", None),
            ("Ray, a node lost", lambda: cluster.remove_node(sorted(cluster.worker_nodes, key=str)[0], False)),
        ):
            facts = refit(place, asked.rounds, cluster.address, during)
            same = files(place / learn_steps.MODEL) == wanted
            say(way=way, rounds=asked.rounds, **facts, same_bytes=same, load_average=load_average())


if __name__ == "__main__":
    main()
