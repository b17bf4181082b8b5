"""An experiment grid on threads and on a Ray cluster of two nodes here: the same records, and what Ray costs.

    python benchmarks/many_machines.py debian --init 1000 --horizon 8000

Prints one line of JSON a way: wall seconds, the seconds of all runs by their own clocks, what a task that does nothing
takes, and whether the records are those of one run after the other. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from treetop.experiments.execute import execute
from treetop.experiments.grid import execute_on
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan
from treetop.parallel import Machines, map_shards

EMPTY_TASKS = 500


def timeless(records: list[RunRecord]) -> list[RunRecord]:
    return [replace(record, seconds=0.0) for record in records]


def two_nodes() -> Any:
    """A cluster of two nodes with one CPU each. Ray gives a node 30 s to start, which a busy machine may take twice."""
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="benchmark" * 4, RAY_USAGE_STATS_ENABLED="0")
    os.environ.update(RAY_worker_niceness="0")  # as threads have it; 15 otherwise, which is nothing on a busy machine
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.2"}
    cluster = Cluster()
    for options in ({"include_dashboard": False}, {}):
        for _ in range(3):
            with suppress(Exception):
                cluster.add_node(**node, **options)
                break
        else:
            cluster.shutdown()
            raise RuntimeError("no node of Ray has started within three times 30 s")
    return cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--init", type=int, default=1000)
    parser.add_argument("--horizon", type=int, default=8000)
    given = parser.parse_args()
    sizes: dict[str, Any] = {"init": given.init, "horizon": given.horizon}
    plan = Plan.of(given.data, ["igw", "boltzmann", "epsilon", "greedy"], seeds=(0, 1), **sizes)
    started = time.perf_counter()
    cluster = two_nodes()
    print(json.dumps({"cluster": "two nodes", "start_seconds": round(time.perf_counter() - started, 1)}), flush=True)
    try:
        with tempfile.TemporaryDirectory() as place:
            expected = None
            for name, machines in (
                ("in order", None),
                ("threads", Machines(workers=2)),
                ("ray", Machines(cluster.address)),
            ):
                began, folder = time.perf_counter(), Path(place, name)
                found = execute(folder, plan) if machines is None else execute_on(machines, folder, plan)
                wall = time.perf_counter() - began
                expected = expected or timeless(found)
                empty = 0.0
                if machines is not None:
                    began = time.perf_counter()
                    map_shards(operator.index, list(range(EMPTY_TASKS)), machines)
                    empty = (time.perf_counter() - began) / EMPTY_TASKS
                facts = {
                    "where": name,
                    "runs": len(found),
                    "seconds": round(wall, 1),
                    "seconds_in_runs": round(sum(record.seconds for record in found), 1),
                    "milliseconds_an_empty_task": round(1000 * empty, 2),
                    "same_records": timeless(found) == expected,
                }
                print(json.dumps(facts), flush=True)
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
