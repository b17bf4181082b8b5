"""Workers that die and are replaced, models that are damaged while they serve, and starts that must fail."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.playing import Load, X, Y, goes_on_until_mended, play, processes
from helpers.postgres import free_port, new_schema
from helpers.running import COMMAND, PLAIN, named, running, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.service.supervisor import LONGEST_PAUSE, METRICS, Supervisor, Worker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


@pytest.fixture
def refitted(folder: Path) -> Path:
    """A folder with the models 000000 to 000002."""
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")
        bandit.refit()
        bandit.refit()
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_is_killed_is_replaced_at_once(folder: Path, workers: int) -> None:
    with running(folder, "--workers", str(workers)) as service:
        service.wait_for(lambda: len(service.said("ready")) == workers)
        shown = play(service, 5, "a")
        victim = service.workers()[0]
        os.kill(victim, signal.SIGBUS)
        service.wait_for(lambda: len(service.said("ready")) == workers + 1)
        (line,) = service.said("a worker ended")
        assert (line["worker"], line["code"], line["signal"], line["restart_in"]) == (victim, -7, "SIGBUS", 0.0)
        with service.client() as client:
            assert play(service, 5, "a", client) == shown
        assert service.end() == 0


def test_a_worker_that_dies_again_and_again_is_given_more_and_more_time() -> None:
    worker = Worker()
    pauses = [worker.died(now=float(second)) for second in range(9)]
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE]
    worker.started = 100.0
    assert worker.died(now=1000.0) == 0.0


def test_a_model_file_that_is_cut_while_it_serves(refitted: Path) -> None:
    """Nobody asks meanwhile: the damage is noticed and the last good model serves before a decision needs the file."""
    broken = refitted / "models" / "000002" / "serving.bin"
    whole = broken.read_bytes()
    with running(refitted) as service:
        assert service.model_is("000002")
        os.truncate(broken, 0)
        service.wait_for(lambda: service.said("an older model serves"))
        goes_on_until_mended(service, broken, whole)
        assert service.said("a worker ended") == []
        assert str(broken) in service.said("an older model serves")[0]["why"]


def test_the_only_model_is_cut_while_it_serves(folder: Path) -> None:
    """What the file held is made again from the others."""
    broken = folder / "models" / "000000" / "serving.bin"
    whole = broken.read_bytes()
    with running(folder) as service:
        before = service.post("/v1/decide", {"features": named(X, 0), "event_id": "a"}).json
        os.truncate(broken, 0)
        (line,) = service.wait_for(lambda: service.said("the model serves without its layout file"))
        assert str(broken) in line["why"]
        assert service.post("/v1/decide", {"features": named(X, 0), "event_id": "b"}).json["epoch"] == 0
        assert service.post("/v1/decide", {"features": named(X, 0), "event_id": "a"}).json == before
        assert broken.name in service.get("/v1/model").json["trouble"]
        os.kill(service.workers()[0], signal.SIGKILL)
        service.wait_for(lambda: len(service.said("ready")) == 2)  # a new worker can begin with it too
        assert service.post("/v1/decide", {"features": named(X, 0), "event_id": "c"}).status == 200
        broken.write_bytes(whole)
        service.wait_for(lambda: service.get("/v1/model").json["trouble"] is None)
        assert [line["signal"] for line in service.said("a worker ended")] == ["SIGKILL"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_file_that_is_cut_under_load(refitted: Path, workers: int) -> None:
    """Whether a decision or the service finds the damage first: the last good model serves, and nothing is lost."""
    broken = refitted / "models" / "000002" / "serving.bin"
    whole = broken.read_bytes()
    with running(refitted, "--workers", str(workers)) as service:
        service.wait_for(lambda: len(service.said("ready")) == workers)
        with Load(service, through=True) as load:
            service.wait_for(lambda: load.decisions > 30)
            os.truncate(broken, 0)
            service.wait_for(lambda: len({line["pid"] for line in service.said("an older model serves")}) >= workers)
            before = load.decisions
            service.wait_for(lambda: load.decisions > before + 30)
        broken.write_bytes(whole)
        service.wait_for(lambda: all(service.model_is("000002") for _ in range(10)))
        assert {line["signal"] for line in service.said("a worker ended")} <= {"SIGBUS"}
        assert service.end() == 0
    with Bandit.open(refitted) as bandit:
        load.acknowledged.check(bandit)


def start(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in PLAIN.items() if not key.startswith(("TREETOP_", "PG"))}
    command = [*COMMAND, "serve", str(folder), "--port", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**clean, **environment})


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_log_that_cannot_be_opened_ends_the_start(folder: Path, server: Any, workers: str) -> None:
    address, nobody = new_schema(server), free_port()
    with Bandit.open(folder, address):
        pass
    import psycopg

    with psycopg.connect(address, autocommit=True) as db:
        db.execute("UPDATE treetop_schema SET version = 999")
    for where, why in [
        (f"postgresql://nobody:s3cr3t@127.0.0.1:{server.port}/postgres", 'role "nobody" does not exist'),
        (f"postgresql://treetop:s3cr3t@127.0.0.1:{nobody}/postgres", f"127.0.0.1:{nobody}/postgres: "),
        (f"postgresql://treetop:s3cr3t/x@127.0.0.1:{nobody}/postgres", "not one that PostgreSQL understands"),
        (f"postgresql://treetop:x@s3cr3t@127.0.0.1:{nobody}/postgres", "not one that PostgreSQL understands"),
        (address, "has tables of version 999"),
    ]:
        ended = start(folder, "--workers", workers, TREETOP_LOG=where)
        assert ended.returncode == 2, ended.stderr
        (line,) = ended.stderr.strip().splitlines()
        assert line.startswith("error: ")
        assert why in line
        assert "s3cr3t" not in line


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_worker_that_cannot_start_ends_the_start(folder: Path, workers: str) -> None:
    """What only a worker finds out, here that no model can be read, ends the service too, without a stack trace."""
    os.truncate(folder / "models" / "000000" / "leaf_of.npy", 10)
    ended = start(folder, "--workers", workers)
    assert ended.returncode == 2
    assert "no model of" in ended.stderr
    assert "leaf_of.npy: 10 bytes" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("another_serves", [True, False])
def test_a_worker_that_cannot_start_while_another_serves_is_tried_again(another_serves: bool) -> None:
    """A database that goes just after the first worker has begun does not end the service."""
    with socket.socket() as listening:
        supervisor = Supervisor("shop", listening, 2)
        scripts = iter([f"import os; os.write({supervisor.told}, b'1')" * another_serves, "import sys; sys.exit(3)"])

        def start() -> subprocess.Popen[bytes]:
            process = subprocess.Popen([sys.executable, "-c", next(scripts, "")], pass_fds=(supervisor.told,))
            process.wait()
            return process

        supervisor._start = start  # type: ignore[method-assign]
        assert supervisor._look_after(0.0) == 0  # both are started
        assert supervisor._look_after(1.0) == (0 if another_serves else 2)
        assert supervisor.workers[1].deaths == another_serves


def test_no_process_has_the_password_in_its_arguments(folder: Path, tmp_path: Path, server: Any) -> None:
    address = new_schema(server).replace("treetop@", "treetop:s3cr3t@")
    file = tmp_path / "address"
    file.write_text(f"# the shop's\n{address}\n")
    file.chmod(0o600)
    for options, environment in (
        (["--log-file", str(file)], {}),
        ([], {"TREETOP_LOG": address}),
        (["--log", address], {}),
    ):
        with running(folder, *options, environment=environment) as service:
            play(service, 3, "a")
            assert service.post("/v1/refit", {}).status == 202
            seen = service.wait_for(lambda: processes(folder, "treetop.service.refit_process"))
            pids = [service.process.pid, *service.workers(), *seen]
            lines = [Path(f"/proc/{pid}/cmdline") for pid in pids]
            assert not any(b"s3cr3t" in line.read_bytes() for line in lines if line.exists())
            service.wait_for(lambda: service.said("refit done") or service.said("refit given up"))
            assert service.end() == 0
            warned = service.said("a password in the arguments")
            assert len(warned) == (1 if "--log" in options else 0)
        assert "s3cr3t" not in service.lines.read_text()
        service.lines.unlink()


def test_the_supervisor_is_light(folder: Path) -> None:
    """It has no part of this package or of another in its memory."""
    with running(folder) as service:
        maps = Path(f"/proc/{service.process.pid}/maps").read_text()
        assert "site-packages" not in maps
        assert "_core" not in maps
        kilobytes = int(Path(f"/proc/{service.process.pid}/status").read_text().partition("VmRSS:")[2].split()[0])
        assert kilobytes < 40_000


def test_what_killed_services_left_behind_is_removed(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    with running(folder, "--workers", "2", environment={"TMPDIR": str(place)}) as service:
        (left,) = place.glob(METRICS + "*")
        service.wait_for(lambda: len(service.said("ready")) == 2)
        for pid in (service.process.pid, *service.workers()):
            os.kill(pid, signal.SIGKILL)
        service.process.wait(60)
        assert left.exists()
    os.utime(left, (0, 0))
    with running(folder, "--workers", "2", environment={"TMPDIR": str(place)}) as service:
        (new,) = place.glob(METRICS + "*")
        assert new != left
        os.utime(new, (0, 0))
        other = small_bandit(tmp_path / "other", X, Y)
        with running(other, "--workers", "2", environment={"TMPDIR": str(place)}) as second:
            assert new.exists()  # it is in use
            assert second.end() == 0
        assert service.end() == 0
    assert list(place.iterdir()) == []
