"""A cluster as the README starts it, with a token: found by `--ray auto` and `ray://`, closed to another token."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.postgres import free_port
from helpers.ray_cluster import ENVIRONMENT, require_ray
from helpers.running import PLAIN
from helpers.waiting import wait_until

from treetop.experiments.execute import execute
from treetop.experiments.records import read_records
from treetop.experiments.settings import Plan

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]
DATA = "synthetic:arms=60,features=40,rows=3000,init=200"
PLAN = Plan.of(DATA, ["greedy"], seeds=(0,), max_leaf=10)
HOST = "127.0.0.2"
PATIENT = {  # a busy machine takes longer to start what serves ray:// than Ray waits by itself
    "RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S": "60",
    "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S": "60",
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "60",
}


class Commands:
    """A head of its own, and a command for each kind of address, all of which run at the same time."""

    def __init__(self, folder: Path, ray: Path) -> None:
        self.folder, self.port, self.client = folder, free_port(), free_port()
        self.env = {**PLAIN, **ENVIRONMENT, **PATIENT, "RAY_TMPDIR": str(ray), "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        words = ["start", "--head", "--block", f"--port={self.port}", f"--ray-client-server-port={self.client}"]
        words += [f"--node-ip-address={HOST}", "--num-cpus=2", "--object-store-memory=80000000"]
        command = [str(Path(sys.executable).with_name("ray")), *words, "--include-dashboard=false"]
        with (folder / "head").open("wb") as out:
            self.head = subprocess.Popen(command, env=self.env, stdout=out, stderr=out)
        self.running: dict[str, subprocess.Popen[str]] = {}

    def begin(self) -> None:
        wait_until(lambda: b"Ray runtime started" in (self.folder / "head").read_bytes())
        self._simulate("auto", "auto", self.env)
        self._simulate("client", f"ray://{HOST}:{self.client}", self.env)
        self._simulate("stranger", "auto", {**self.env, "RAY_AUTH_TOKEN": secrets.token_hex(32)})

    def _simulate(self, name: str, address: str, env: dict[str, str]) -> None:
        words = ["simulate", DATA, "--strategy", "greedy", "--seed", "0", "--max-leaf", "10", "--json"]
        command = [sys.executable, "-m", "treetop", *words, "--out", str(self.folder / name), "--ray", address]
        self.running[name] = subprocess.Popen(
            command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ended(self, name: str) -> tuple[int, str]:
        """The exit code of a command and what it said of errors."""
        said = self.running[name].communicate(timeout=120)[1]
        return self.running[name].returncode, said

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self.head.terminate()  # ends what it has started
        self.head.wait(60)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    require_ray()
    short = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # for the names of its sockets
    made = Commands(tmp_path_factory.mktemp("addresses"), short)
    try:
        made.begin()
        yield made
    finally:
        made.close()
        shutil.rmtree(short, ignore_errors=True)


@pytest.mark.parametrize("address", ["auto", "client"])
def test_a_cluster_is_found_by_its_address(commands: Commands, address: str) -> None:
    code, said = commands.ended(address)
    assert code == 0, said
    there, here = read_records(commands.folder / address), execute(None, PLAN)
    assert [replace(record, seconds=0.0) for record in there] == [replace(record, seconds=0.0) for record in here]


def test_another_token_is_refused_and_named_as_the_likely_cause(commands: Commands) -> None:
    code, said = commands.ended("stranger")
    assert code == 2
    assert "no Ray cluster answers at 'auto'" in " ".join(said.split())
    assert "it has another token" in " ".join(said.split())
    assert not (commands.folder / "stranger/runs.jsonl").exists()
