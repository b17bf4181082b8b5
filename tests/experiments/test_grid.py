"""A plan's runs as tasks: the same records as in order, taken up again, on threads. On Ray: tests/cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treetop.errors import ShardError
from treetop.experiments.execute import execute
from treetop.experiments.grid import RunShard, execute_on, play_shard
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan
from treetop.parallel import Machines

SPEC = "synthetic:arms=50,features=30,rows=300,init=100"
PLAN = Plan.of(SPEC, ["igw", "greedy"], seeds=(0, 1), max_leaf=10, first_epoch=64)
HERE = Machines(workers=2, pauses=(0.0, 0.0))


def timeless(records: list[RunRecord]) -> list[RunRecord]:
    return [replace(record, seconds=0.0) for record in records]


def test_records_and_order_are_those_of_one_machine(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = execute_on(HERE, tmp_path / "grid", PLAN, progress=lambda *counts: seen.append(counts))
    assert timeless(found) == timeless(execute(tmp_path / "order", PLAN))
    assert sorted(path.name for path in (tmp_path / "grid").iterdir()) == ["plan.json", "runs.jsonl"]
    assert seen[-1] == (4, 4)
    assert (tmp_path / "grid" / "plan.json").read_bytes() == (tmp_path / "order" / "plan.json").read_bytes()


def test_a_grid_that_was_stopped_goes_on_with_what_is_there(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute_on(Machines(workers=1), tmp_path, PLAN, progress=stop)
    counts: list[int] = []
    found = execute_on(HERE, tmp_path, PLAN, progress=lambda done, total: counts.append(done))
    assert counts[0] >= 2
    assert timeless(found) == timeless(execute(None, PLAN))
    assert execute(tmp_path, PLAN) == found  # the folder is one that `execute` knows


def test_other_data_on_a_machine_is_refused(tmp_path: Path) -> None:
    shard = RunShard(str(tmp_path), 0, PLAN.settings[0], 0, SPEC, None, "another")
    with pytest.raises(ValueError, match="not the same here as where the runs were started"):
        play_shard(shard)


def test_a_run_that_cannot_be_played_names_it(tmp_path: Path) -> None:
    plan = Plan.of(SPEC, ["igw"], max_leaf=10, init=10**6)
    with pytest.raises((ShardError, ValueError), match=r"1000000|1,000,000"):
        execute_on(HERE, tmp_path, plan)
