"""A refit on a cluster of two nodes: the model's files are those of one machine, or the old model serves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import call
from helpers.problems import topics
from helpers.ray_cluster import TwoNodes
from helpers.running import named, settings, small_bandit
from helpers.shard_tasks import GATE, SOLVING, solve_when_open
from helpers.waiting import is_alive, wait_until

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import RefitConfig
from treetop.bandit.config_file import config_text
from treetop.bandit.logged_history import WORK
from treetop.errors import ShardError
from treetop.learning import streamed
from treetop.learning.array_folder import ArrayFolder
from treetop.parallel import Machines, map_shards
from treetop.tree import subtrees

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]
X, Y = topics()
DRIVER = """
import sys
from helpers.shard_tasks import solve_when_open
from treetop.bandit.bandit import Bandit
from treetop.learning import streamed
streamed._solve_shard = solve_when_open
with Bandit.open(sys.argv[1]) as bandit:
    bandit.refit()
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bandit that has something to learn."""
    folder = small_bandit(tmp_path_factory.mktemp("refit") / "shop", X, Y, config=settings(refit=refits("")))
    with Bandit.open(folder) as bandit:
        for i in range(300):
            served = bandit.decide(named(X, i), f"visit-{i}")
            bandit.reward(f"visit-{i}", {arm: float(Y[i, int(str(arm)[1:])] > 0) for arm in served.arms})
    return folder


def refits(ray: str) -> RefitConfig:
    return RefitConfig(first=10**9, ray=ray, memory=0.01)


def copy(shop: Path, folder: Path, ray: str) -> Path:
    shutil.copytree(shop, folder)
    (folder / "config.toml").write_text(config_text(replace(settings(), refit=refits(ray))))
    return folder


def model_files(folder: Path, name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "models" / name).iterdir()}


def test_the_model_is_that_of_one_machine(
    nodes: TwoNodes, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = copy(shop, tmp_path / "here", ""), copy(shop, tmp_path / "there", nodes.address)
    with Bandit.open(here) as bandit:
        made = bandit.refit()
    monkeypatch.chdir(tmp_path)
    with Bandit.open("there") as bandit:  # a relative path, which is another one for a worker
        assert bandit.refit().model == made.model
    assert model_files(there, made.model) == model_files(here, made.model)
    assert not (there / WORK).exists()


def test_a_rebuilt_tree_is_that_of_one_machine(
    nodes: TwoNodes, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []

    def counted(task: Any, shards: Any, machines: Machines, progress: Any) -> Any:
        assert machines.ray == nodes.address
        built.append(len(shards))
        return map_shards(task, shards, machines, progress)

    here, there = copy(shop, tmp_path / "here", ""), copy(shop, tmp_path / "there", nodes.address)
    with Bandit.open(here) as bandit:
        made = bandit.rebuild()
    monkeypatch.setattr(subtrees, "map_shards", counted)
    text = (there / "config.toml").read_text().replace(f'ray = "{nodes.address}"', 'ray = ""')
    (there / "config.toml").write_text(text)
    runner = call("rebuild", str(there), "--ray", nodes.address, "--json")
    assert json.loads(runner.stdout)["model"] == made.model
    assert model_files(there, made.model) == model_files(here, made.model)
    assert min(built, default=0) > 1


class Held:
    """A refit on the cluster whose tasks on regressors wait at a gate, each after a sign of life."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begun(self) -> list[tuple[str, int]]:
        """The shard and the process of every attempt, in turn."""
        names = sorted(path.name for path in self.folder.glob(f"{SOLVING}*"))
        return [(name.partition(".")[0].removeprefix(SOLVING), int(name.rpartition("-")[2])) for name in names]

    def failures(self) -> int:
        """How many attempts were made beyond one a shard."""
        return len(self.begun()) - len({shard for shard, _ in self.begun()})

    def open(self) -> None:
        (self.folder / GATE).touch()

    def during(self, harm: Callable[[], None]) -> None:
        """Refits; once a task is there, harm is done, and the gate is opened if that has not been done then."""

        def doing() -> None:
            wait_until(self.begun)
            harm()
            self.open()

        doer = threading.Thread(target=doing)
        doer.start()
        try:
            with Bandit.open(self.folder) as bandit:
                bandit.refit()
        finally:
            doer.join()


@pytest.fixture
def held(nodes: TwoNodes, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Held:
    monkeypatch.setattr(streamed, "_solve_shard", solve_when_open)
    return Held(copy(shop, tmp_path / "there", nodes.address))


@pytest.fixture(scope="module")
def right(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The model that one machine makes."""
    with Bandit.open(copy(shop, tmp_path_factory.mktemp("right") / "here", "")) as bandit:
        return model_files(bandit.folder.path, bandit.refit().model)


def test_a_worker_killed_during_a_refit(held: Held, right: dict[str, bytes]) -> None:
    held.during(lambda: os.kill(held.begun()[0][1], signal.SIGKILL))
    assert held.failures() >= 1
    assert model_files(held.folder, "000001") == right


def test_a_node_lost_during_a_refit(nodes: TwoNodes, held: Held, right: dict[str, bytes]) -> None:
    """With a task of the refit on it."""

    def lose() -> None:
        def there() -> set[int]:
            return {pid for _, pid in held.begun()} & nodes.processes_of_second()

        wait_until(there)
        lost = there()
        nodes.lose_node()
        wait_until(lambda: not any(is_alive(pid) for pid in lost))

    held.during(lose)
    assert held.failures() >= 1
    assert model_files(held.folder, "000001") == right


def test_a_refit_waits_for_storage_that_cannot_be_written_for_a_while(held: Held, right: dict[str, bytes]) -> None:
    """For root too: where a task puts its piece a file stands in its place."""

    def refuse() -> None:
        stage = next(held.folder.glob(f"{WORK}/*/refit/rewards"))
        places = [stage / f"shard-{shard}" for shard, _ in held.begun()]
        for place in places:
            place.touch()
        held.open()
        wait_until(held.failures)
        for place in places:
            place.unlink()

    held.during(refuse)
    assert held.failures() >= 1
    assert model_files(held.folder, "000001") == right


def test_a_driver_killed_during_a_refit_is_called_again(held: Held, right: dict[str, bytes]) -> None:
    """The old model serves meanwhile; nothing is left of the first attempt."""
    command = [sys.executable, "-c", DRIVER, str(held.folder)]
    driver = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        wait_until(held.begun)
        assert (held.folder / WORK).exists()
    finally:
        driver.kill()
        driver.wait()
    held.open()
    with Bandit.open(held.folder) as bandit:
        assert bandit.snapshot.name == "000000"
        assert bandit.refit().model == "000001"
    assert held.failures() >= 1
    assert model_files(held.folder, "000001") == right
    assert not (held.folder / WORK).exists()


def test_a_refit_that_cannot_write_fails_and_the_old_model_serves(
    nodes: TwoNodes, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of what shards make is taken away before the tasks write into it."""
    put_facts = ArrayFolder.put_facts

    def taken_away(folder: ArrayFolder, **facts: Any) -> None:
        put_facts(folder, **facts)
        shutil.rmtree(folder.path)

    monkeypatch.setattr(ArrayFolder, "put_facts", taken_away)
    with Bandit.open(copy(shop, tmp_path / "there", nodes.address)) as bandit:
        with pytest.raises(ShardError, match="failed 3 times"):
            bandit.refit()
        assert bandit.snapshot.name == "000000"
        assert bandit.decide(named(X, 0)).arms
