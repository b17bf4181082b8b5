"""A refit on a cluster of two nodes: the model's files are those of one machine, or the old model serves."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.problems import topics
from helpers.ray_cluster import TwoNodes
from helpers.running import named, settings, small_bandit
from helpers.waiting import wait_until

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import RefitConfig
from treetop.bandit.config_file import config_text
from treetop.bandit.logged_history import WORK
from treetop.errors import ShardError
from treetop.learning.array_folder import ArrayFolder
from treetop.parallel import Machines, map_shards
from treetop.tree import subtrees

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]
X, Y = topics()


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
    with Bandit.open(there) as bandit:
        assert bandit.rebuild().model == made.model
    assert model_files(there, made.model) == model_files(here, made.model)
    assert min(built, default=0) > 1


def test_a_node_lost_during_a_refit(nodes: TwoNodes, shop: Path, tmp_path: Path) -> None:
    here, there = copy(shop, tmp_path / "here", ""), copy(shop, tmp_path / "there", nodes.address)
    with Bandit.open(here) as bandit:
        made = bandit.refit()

    def lose() -> None:
        wait_until(lambda: list((there / WORK).rglob("facts.json")))
        nodes.lose_node()

    loser = threading.Thread(target=lose)
    loser.start()
    with Bandit.open(there) as bandit:
        bandit.refit()
    loser.join()
    assert model_files(there, made.model) == model_files(here, made.model)


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
