"""kill -9 of a whole service under load, and of refits at every point: nothing acknowledged is lost, nothing half made
is ever loaded."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.playing import Acknowledged, Load, X, Y, goes_on_until_mended, play, processes
from helpers.postgres import new_schema
from helpers.running import running, small_bandit
from helpers.waiting import is_alive

from treetop.bandit.bandit import Bandit
from treetop.bandit.folder import BanditFolder
from treetop.model.model import Model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest) -> str | None:
    """Where the service's log is, if not in its folder."""
    return None if request.param == "sqlite" else new_schema(request.getfixturevalue("server"))


def kill_all(folder: Path) -> int:
    """The whole service at once: parent, workers, a refit. A worker that sees its parent gone would end by itself."""
    killed = 0
    while pids := [pid for pid in processes(folder) if is_alive(pid)]:
        random.shuffle(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.01)
    return killed


def kill_under_load(folder: Path, log: str | None, round: int, wait: float) -> Acknowledged:
    workers = 1 + round % 2
    options = ["--workers", str(workers), *(("--log", log) if log else ())]
    with running(folder, *options) as service:
        load = Load(service, threads=8, tag=f"round-{round}")
        with load:
            service.wait_for(lambda: load.decisions > 5)
            if round % 3 == 1:  # so that some are killed while they refit
                service.post("/v1/refit", {})
            time.sleep(wait)
            assert kill_all(folder) >= workers
            service.process.wait(30)
            load.stop()
    return load.acknowledged


def rounds_of_kills(folder: Path, log: str | None, rounds: int) -> None:
    total = Acknowledged()
    for round in range(rounds):
        said = kill_under_load(folder, log, round, random.random() * 0.6)
        assert len(said) > 5
        total.decisions |= said.decisions
        total.rewards |= said.rewards
        with Bandit.open(folder, log) as bandit:
            said.check(bandit)
            before = bandit.snapshot.model.epoch
            assert bandit.refit().rounds >= len(total.decisions)
            assert bandit.snapshot.model.epoch > before
    with Bandit.open(folder, log) as bandit:
        total.check(bandit)
    print(
        f"{rounds} kills under load on {'PostgreSQL' if log else 'SQLite'}: {len(total.decisions):,} decisions and "
        f"{len(total.rewards):,} rewards were acknowledged and are there, once; {rounds} refits after them succeeded"
    )


def test_a_killed_service_has_all_that_it_acknowledged(folder: Path, log: str | None) -> None:
    rounds_of_kills(folder, log, 2)


@pytest.mark.long
def test_fifty_kills(folder: Path, log: str | None) -> None:
    rounds_of_kills(folder, log, 50)


# A refit that ends itself at the nth step that touches the disk or names a file: what a kill leaves is what was done so
# far, so these are all the moments that differ.
REFIT = """
import os, signal, sys
at, done = int(sys.argv[2]), 0
def counted(call):
    def step(*words, **named):
        global done
        done += 1
        if done == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*words, **named)
    return step
import treetop.service.refit_process as refit
for name in ("fsync", "replace", "rename", "truncate", "rmdir", "unlink", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
code = refit.main(sys.argv[1])
print("steps", done)
sys.exit(code)
"""


def refit_killed_at(folder: Path, step: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", REFIT, str(folder), str(step)], capture_output=True, text=True)


def check_models(folder: Path) -> None:
    """Every model that has a name can be loaded, the current one too."""
    kept = BanditFolder(folder)
    assert kept.state().model in kept.models()
    for name in kept.models():
        Model.load(kept.model_path(name))


def kill_refits(folder: Path, steps: int) -> None:
    """Refits killed at `steps` of their steps, spread over all, while a service is asked."""
    with running(folder) as service:
        play(service, 20, "before")
        whole = refit_killed_at(folder, 0)
        assert whole.returncode == 0, whole.stderr
        count = int(whole.stdout.split()[-1])
        assert count >= 10
        chosen = sorted({1 + round(i * (count - 1) / (steps - 1)) for i in range(min(steps, count))})
        with Load(service) as load:
            for step in chosen:
                ended = refit_killed_at(folder, step)
                assert ended.returncode == -signal.SIGKILL, ended.stderr
                check_models(folder)
                said = service.get("/v1/model").json
                assert said["trouble"] is None
                assert said["model"] in BanditFolder(folder).models()
            asked = load.decisions
            service.wait_for(lambda: load.decisions > asked)
            service.wait_for(lambda: service.post("/v1/refit", {}).status == 202)
            last = BanditFolder(folder).state().next_epoch
            service.wait_for(lambda: service.model_is(f"{last:06d}"))
        assert load.failures == []
        assert not [path for path in (folder / "models").iterdir() if path.name.startswith(".")]
        assert service.end() == 0
    with Bandit.open(folder) as bandit:
        load.acknowledged.check(bandit)


def test_refits_killed_at_some_of_their_steps(folder: Path) -> None:
    kill_refits(folder, 3)


@pytest.mark.long
def test_refits_killed_at_each_of_their_steps(folder: Path) -> None:
    kill_refits(folder, 1000)


def test_a_refit_of_the_service_that_is_killed_is_a_failed_refit(folder: Path) -> None:
    with running(folder) as service:
        play(service, 30, "a")
        killed = 0
        while not killed:
            service.wait_for(lambda: service.post("/v1/refit", {}).status == 202)
            for _ in range(200):
                if pids := processes(folder, "treetop.service.refit_process"):
                    os.kill(pids[0], signal.SIGKILL)
                    killed += 1
                    break
                time.sleep(0.005)
        service.wait_for(lambda: service.said("refit failed"))
        assert service.get("/v1/model").json["model"] == "000000"
        assert [p.name for p in (folder / "models").iterdir() if not p.name.startswith(".")] == ["000000"]
        service.wait_for(lambda: service.post("/v1/refit", {}).status == 202)
        service.wait_for(lambda: service.model_is("000001"))


def test_a_model_that_is_broken_when_it_becomes_current_is_not_loaded(folder: Path) -> None:
    """Nor is any request failed: the old model serves on, and the new one when it is whole."""
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")
        bandit.refit()
        kept, state = bandit.folder, bandit.folder.state()
        whole = (kept.model_path("000001") / "leaf_of.npy").read_bytes()
        broken = kept.model_path("000002") / "leaf_of.npy"
    with running(folder) as service, Load(service) as load:
        service.wait_for(lambda: load.decisions > 10)
        with kept.locked_state():
            shutil.copytree(kept.model_path("000001"), kept.model_path("000002"))
            broken.write_bytes(whole[:-8])
            kept._write_state(state, state.with_model("000002", state.schedule, keep=5))
        service.wait_for(lambda: service.get("/v1/model").json["trouble"])
        goes_on_until_mended(service, broken, whole)
        load.stop()
        assert load.failures == []
