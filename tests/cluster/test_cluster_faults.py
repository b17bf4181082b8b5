"""Tasks on a real cluster of two nodes, and what goes wrong there: the same bytes in the end, or a clean error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.commands import call, shell
from helpers.ray_cluster import TwoNodes
from helpers.shard_tasks import attempts, digest, digest_after_deaths, digest_after_failures, digest_when_open, pids
from helpers.waiting import is_alive, wait_until

from treetop.errors import ClusterError, ShardError
from treetop.experiments.execute import execute
from treetop.experiments.grid import execute_on
from treetop.experiments.records import RunRecord, read_records
from treetop.experiments.settings import Plan
from treetop.parallel import Machines, map_shards

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]
PLAN = Plan.of("synthetic:arms=60,features=40,rows=6000,init=200", ["igw", "greedy"], seeds=(0, 1), max_leaf=10)
DRIVER = """
import sys
from test_cluster_faults import PLAN
from treetop.experiments.grid import execute_on
from treetop.parallel import Machines
execute_on(Machines(sys.argv[1]), sys.argv[2], PLAN)
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for i in range(6):
        (tmp_path / f"{i}.bin").write_bytes(bytes([i]) * 1000)
    return [str(tmp_path / f"{i}.bin") for i in range(6)]


def on(nodes: TwoNodes, *pauses: float) -> Machines:
    return Machines(nodes.address, pauses=pauses or (0.2, 0.2))


def contents(paths: list[str]) -> list[bytes]:
    return [Path(path).read_bytes() for path in paths]


def timeless(records: list[RunRecord]) -> list[RunRecord]:
    return [replace(record, seconds=0.0) for record in records]


def when_open(files: list[str], gate: Path) -> list[tuple[str, str]]:
    return [(file, str(gate)) for file in files]


def begun(files: list[str]) -> set[int]:
    return {pid for file in files for pid in pids(Path(file))}


def test_both_nodes_work_and_the_bytes_are_those_of_threads(nodes: TwoNodes, files: list[str], tmp_path: Path) -> None:
    here = contents(map_shards(digest, files))
    for file in files:
        Path(file).with_suffix(".sha256").unlink()
    gate = tmp_path / "open"

    def open_gate() -> None:
        wait_until(lambda: len(begun(files)) == 2)  # a task on each, neither of which ends before
        gate.touch()

    opener = threading.Thread(target=open_gate)
    opener.start()
    assert contents(map_shards(digest_when_open, when_open(files, gate), on(nodes))) == here
    opener.join()
    assert gate.exists()


def test_a_worker_that_is_killed_is_replaced(nodes: TwoNodes, files: list[str], tmp_path: Path) -> None:
    gate = tmp_path / "open"

    def kill() -> None:
        wait_until(lambda: attempts(Path(files[0])))
        os.kill(pids(Path(files[0]))[0], signal.SIGKILL)
        gate.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    found = contents(map_shards(digest_when_open, when_open(files[:1], gate), on(nodes)))
    killer.join()
    assert attempts(Path(files[0])) == 2
    assert found == contents([digest(files[0])])


def test_a_task_that_always_ends_its_worker_is_an_error(nodes: TwoNodes, files: list[str]) -> None:
    with pytest.raises(ShardError, match="failed 3 times, the last time with WorkerCrashedError"):
        map_shards(digest_after_deaths, [(files[0], 99)], on(nodes))
    assert attempts(Path(files[0])) == 3


def test_a_lost_node_loses_nothing(nodes: TwoNodes, files: list[str], tmp_path: Path) -> None:
    """Tasks end once the gate is open: after the node that one of them was begun on is gone, and its process too."""
    gate = tmp_path / "open"

    def lose() -> None:
        wait_until(lambda: begun(files) & nodes.processes_of_second())
        lost = begun(files) & nodes.processes_of_second()
        nodes.lose_node()
        wait_until(lambda: not any(is_alive(pid) for pid in lost))
        gate.touch()

    loser = threading.Thread(target=lose)
    loser.start()
    found = contents(map_shards(digest_when_open, when_open(files, gate), on(nodes, 0.5, 0.5)))
    loser.join()
    assert found == contents([digest(file) for file in files])
    assert sum(attempts(Path(file)) for file in files) > len(files)


def test_a_task_that_fails_three_times_is_an_error_and_others_are_ended(nodes: TwoNodes, files: list[str]) -> None:
    with pytest.raises(ShardError, match=r"shard 1 of 1 .* failed 3 times, .* Read-only file system") as caught:
        map_shards(digest_after_failures, [(files[0], 3)], on(nodes))
    assert "digest_after_failures" in caught.value.details
    assert map_shards(digest, files[1:2], on(nodes))  # the cluster works on


def test_storage_that_is_read_only_for_a_while_is_waited_for(nodes: TwoNodes, tmp_path: Path) -> None:
    """A folder that cannot be written, for root too: a file stands in its place."""
    plan = replace(PLAN, seeds=(0,))
    away = tmp_path / "grid" / "pieces"
    away.parent.mkdir()
    away.write_bytes(b"")

    def mend() -> None:
        time.sleep(3)
        away.unlink()

    mender = threading.Thread(target=mend)
    mender.start()
    found = execute_on(on(nodes, 2.0, 4.0), tmp_path / "grid", plan)
    mender.join()
    assert timeless(found) == timeless(execute(None, plan))


def test_a_driver_that_is_killed_goes_on_where_it_stopped(nodes: TwoNodes, tmp_path: Path) -> None:
    grid = tmp_path / "grid"
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    command = [sys.executable, "-c", DRIVER, nodes.address, str(grid)]
    driver = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths})
    wait_until(lambda: (grid / "runs.jsonl").exists())
    driver.kill()
    driver.wait()
    done = read_records(grid)
    assert len(done) > 0
    found = execute_on(on(nodes), grid, PLAN)
    assert found[: len(done)] == done  # to the second: not played again
    assert timeless(found) == timeless(execute(None, PLAN))
    assert sorted(path.name for path in grid.iterdir()) == ["plan.json", "runs.jsonl"]


def test_the_command_gives_the_records_of_one_machine(nodes: TwoNodes, tmp_path: Path) -> None:
    words = [
        "simulate",
        PLAN.data,
        "--strategy",
        "igw",
        "--strategy",
        "greedy",
        "--horizon",
        "2000",
        "--max-leaf",
        "10",
    ]
    here, there = tmp_path / "here", tmp_path / "there"
    call(*words, "--out", str(here), "--json")
    call(*words, "--out", str(there), "--ray", nodes.address, "--json")
    assert timeless(read_records(there)) == timeless(read_records(here))
    assert "--ray needs --out" in shell(*words, "--ray", nodes.address).stderr


def test_a_cluster_that_is_not_there_is_a_clean_error(cluster: TwoNodes) -> None:
    code = "from treetop.parallel import *; map_shards(len, ['x'], Machines('127.0.0.1:1'))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert f"{ClusterError.__name__}: no Ray cluster answers at '127.0.0.1:1'" in ended.stderr
