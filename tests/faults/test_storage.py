"""Storage that fails under a service that is being asked: full disk, read-only folder, a database that goes and comes.

Errors are clear, nothing acknowledged is lost, and all works again without a restart.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.playing import Load, X, Y
from helpers.postgres import new_schema
from helpers.running import COMMAND, Answer, Running, named, running, small_bandit

from treetop.bandit.bandit import Bandit

PERMISSION = "Permission denied|Operation not permitted"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def refused(service: Running) -> Answer | None:
    """The answer to a decision, if it is a refusal."""
    answer = service.post("/v1/decide", {"features": named(X, 0)})
    return answer if answer.status != 200 else None


def unready(service: Running) -> Answer | None:
    """The answer of /readyz, if it is a refusal."""
    answer = service.get("/readyz")
    return answer if answer.status != 200 else None


def check_refusal(service: Running, answer: Answer) -> None:
    assert (answer.status, answer.code) == (503, "log_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert service.get("/healthz").status == 200
    assert service.said("request refused")[-1]["why"]


def goes_on(service: Running, load: Load, count: int = 30) -> None:
    before = load.decisions
    service.wait_for(lambda: load.decisions > before + count)


def refit_works(service: Running) -> None:
    model = service.get("/v1/model").json["model"]
    service.wait_for(lambda: service.post("/v1/refit", {}).status == 202)
    service.wait_for(lambda: service.get("/v1/model").json["model"] > model)


def only_refusals(load: Load) -> bool:
    """Requests that were sent again had failed with this answer, and in no other way."""
    return bool(load.failures) and all("log_unavailable" in failure for failure in load.failures)


def limit_files(pid: int, size: int) -> None:
    """From now on no file of a process grows past a size: what a full disk looks like to it."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_full_disk(folder: Path) -> None:
    with running(folder) as service, Load(service, through=True) as load:
        goes_on(service, load)
        limit_files(service.workers()[-1], max(500_000, (folder / "log.sqlite-wal").stat().st_size))
        answer = service.wait_for(lambda: refused(service))
        check_refusal(service, answer)
        assert str(folder).encode() not in answer.content
        full = service.get("/readyz")
        assert (full.status, full.code) == (503, "log_unavailable")
        assert str(folder).encode() not in full.content
        assert service.get("/v1/events/load-0-0").status == 200  # reading goes on
        assert service.post("/v1/refit", {}).status == 202
        service.wait_for(lambda: service.said("refit failed"))
        state = service.get("/v1/model").json
        assert state["model"] == "000000"
        assert "disk" in state["refit"]["error"]
        limit_files(service.workers()[-1], resource.RLIM_INFINITY)
        goes_on(service, load)
        refit_works(service)
        load.stop()
        assert only_refusals(load)
        assert service.end() == 0
    with Bandit.open(folder) as bandit:
        load.acknowledged.check(bandit)


def test_readiness_without_requests(folder: Path) -> None:
    """Nobody decides: readiness finds out by itself that the disk is full, and that it is not any more."""
    with running(folder) as service:
        assert service.get("/readyz").json == {"status": "ready"}
        limit_files(service.workers()[-1], 1)
        refusal = service.wait_for(lambda: unready(service))
        assert (refusal.status, refusal.code, refusal.headers["retry-after"]) == (503, "log_unavailable", "1")
        assert refused(service)
        limit_files(service.workers()[-1], resource.RLIM_INFINITY)
        service.wait_for(lambda: not unready(service))
        assert refused(service) is None
        assert service.said("ready again")


def test_readiness_of_a_folder_without_a_model(folder: Path) -> None:
    with running(folder) as service:
        assert unready(service) is None
        (folder / "models").rename(folder / "elsewhere")
        refusal = service.wait_for(lambda: unready(service))
        assert (refusal.status, refusal.code) == (503, "no_model")
        (folder / "elsewhere").rename(folder / "models")
        service.wait_for(lambda: not unready(service))


def writable(folder: Path, yes: bool) -> bool:
    """Whether it could be made so. Root may write anywhere, but not what is immutable.

    A log that is open is left alone: no system takes a file away from who has it open for writing.
    """
    paths = [folder, *(path for path in folder.rglob("*") if not path.name.startswith("log.sqlite"))]
    if os.getuid() == 0:
        words = ["chattr", "-i" if yes else "+i", *map(str, paths)]
        return shutil.which("chattr") is not None and subprocess.run(words, capture_output=True).returncode == 0
    for path in paths:
        path.chmod((0o755 if yes else 0o555) if path.is_dir() else (0o644 if yes else 0o444))
    return True


@pytest.fixture
def closable(disk: Path) -> Iterator[Path]:
    """A folder that can be made read-only, which few systems can in memory, and is not in the end."""
    folder = small_bandit(disk / "shop", X, Y)
    if not (writable(folder, False) and writable(folder, True)):
        pytest.skip("root may write anywhere here: chattr +i is not possible")
    yield folder
    writable(folder, True)


def test_a_read_only_folder(closable: Path) -> None:
    with running(closable) as service, Load(service, through=True) as load:
        goes_on(service, load)
        writable(closable, False)
        assert service.post("/v1/refit", {}).status == 202
        service.wait_for(lambda: service.said("refit failed"))
        state = service.get("/v1/model").json
        assert state["model"] == "000000"
        assert re.search(PERMISSION, state["refit"]["error"])
        for path, body in {"/v1/rollback": {}, "/v1/arms": {"remove": ["a5"]}}.items():
            answer = service.post(path, body)
            assert (answer.status, answer.code) == (503, "folder_unavailable"), path
            assert re.search(PERMISSION, answer.json["error"]["message"])
            assert answer.headers["retry-after"] == "1"
        goes_on(service, load)  # the log is open: what it says it has, it has
        writable(closable, True)
        refit_works(service)
        load.stop()
        assert load.failures == []
        assert service.end() == 0
    with Bandit.open(closable) as bandit:
        load.acknowledged.check(bandit)
    for log in closable.glob("log.sqlite*"):
        log.unlink()
    writable(closable, False)
    ended = subprocess.run([*COMMAND, "serve", str(closable), "--port", "0"], capture_output=True, text=True)
    assert ended.returncode != 0
    assert re.search(PERMISSION, ended.stderr)
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("how", "workers"), [(signal.SIGINT, 1), (signal.SIGQUIT, 2)], ids=["stopped", "crashed"])
def test_postgresql_stops_and_starts(folder: Path, server: Any, how: signal.Signals, workers: int) -> None:
    address = new_schema(server)
    with running(folder, "--workers", str(workers), "--log", address) as service, Load(service, through=True) as load:
        goes_on(service, load)
        server.stop(how)
        try:
            check_refusal(service, service.wait_for(lambda: refused(service)))
            # Each worker finds out for itself: another one than that which refused may answer first.
            gone = service.wait_for(lambda: unready(service))
            assert (gone.status, gone.code) == (503, "log_unavailable")
        finally:
            server.start()
        goes_on(service, load)
        service.wait_for(lambda: not unready(service))
        refit_works(service)
        load.stop()
        assert only_refusals(load)
        assert service.end() == 0
    assert address not in service.lines.read_text()
    with Bandit.open(folder, address) as bandit:
        load.acknowledged.check(bandit)
