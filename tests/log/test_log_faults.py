"""Logs under fire: killed writers, full disks, read-only folders, servers that come and go.

Whatever happens, what was acknowledged is there, once, the log opens, and its counts are those of its rows.
"""

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.logs import check_whole, event, same
from helpers.postgres import Server, new_schema
from helpers.waiting import wait_until

from treetop.errors import LogError
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Reward
from treetop.log.schema import VERSION

WORKER = Path(__file__).parents[1] / "helpers" / "log_worker.py"
ACKNOWLEDGED = 10  # writes of a process before anything happens to it
LIMIT = 400_000  # bytes of a file in the test of the full disk


@dataclass
class Writer:
    """A process that writes to a log. What it says goes to a file, which is whole up to the moment of a kill."""

    process: "subprocess.Popen[bytes]"
    said: Path

    def lines(self) -> list[str]:
        return self.said.read_text().split("\n")[:-1]  # the last may have been cut off

    def wait_for_lines(self, count: int) -> None:
        def there() -> bool:
            assert self.process.poll() is None, self.said.with_suffix(".err").read_text()
            return len(self.lines()) >= count

        wait_until(there)

    def kill(self) -> list[list[str]]:
        """Ends it with kill -9; what had been acknowledged."""
        self.process.kill()
        self.process.wait()
        assert not (error := self.said.with_suffix(".err").read_text()), error
        return [line.split() for line in self.lines()[1:]]


@contextmanager
def writers(folder: Path, place: str, names: list[str], threads: int = 4) -> Iterator[list[Writer]]:
    """Processes that write to one log, each with some writes acknowledged; whatever happens, none stays behind."""
    with ExitStack() as stack:
        started = []
        for name in names:
            said = folder / f"{name}.out"
            out, err = (stack.enter_context(said.with_suffix(end).open("wb")) for end in (".out", ".err"))
            command = [sys.executable, str(WORKER), place, name, str(threads)]
            process = stack.enter_context(subprocess.Popen(command, stdout=out, stderr=err))
            stack.callback(process.kill)
            started.append(Writer(process, said))
        for writer in started:
            writer.wait_for_lines(1 + ACKNOWLEDGED)
        yield started


def kill_two_writers(folder: Path, place: str, round: int, wait: float) -> list[list[str]]:
    """Two processes write to one log; both are killed at moments of their own."""
    lines = []
    with writers(folder, place, [f"w{round}a", f"w{round}b"]) as started:
        time.sleep(wait)
        for writer in started:
            lines += writer.kill()
            time.sleep(random.random() * 0.05)
    return lines


def check_acknowledged(log: Log, lines: list[list[str]]) -> None:
    everything = [entry.stored for chunk in log.entries(log.summary()) for entry in chunk]
    found = {stored.event.event_id: stored for stored in everything}
    assert len(found) == len(everything) == log.counts().decisions
    for what, name, *reward in lines:
        assert name in found, f"{name} was acknowledged and is gone"
        stored = found[name]
        expected = event(name, time=stored.event.time)
        assert same(stored.event, expected)
        if what == "r":
            slot = expected.arms.tolist().index(int(reward[0]))
            assert stored.rewards[slot] == float(reward[1])
    check_whole(log)


def rounds_of_kills(folder: Path, place: str, rounds: int) -> None:
    lines: list[list[str]] = []
    for round in range(rounds):
        lines += kill_two_writers(folder, place, round, wait=random.random() * 0.1)
        with open_log(place) as log:
            check_acknowledged(log, lines[-500:])
            log.seal(f"refit-{round}")
    assert len(lines) >= 2 * ACKNOWLEDGED * rounds
    with open_log(place) as log:
        check_acknowledged(log, lines)
        print(
            f"{rounds} rounds, two writers killed in each: {len(lines):,} writes were acknowledged and are there, once"
        )


def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path, place: str) -> None:
    rounds_of_kills(tmp_path, place, 2)


@pytest.mark.long
def test_fifty_rounds_of_killed_writers(tmp_path: Path, place: str) -> None:
    rounds_of_kills(tmp_path, place, 50)


def test_processes_that_open_a_new_log_at_the_same_time(tmp_path: Path, place: str) -> None:
    with writers(tmp_path, place, [f"w{i}" for i in range(4)], threads=2) as started:
        lines = [writer.kill() for writer in started]
    assert all(lines)
    with open_log(place) as log:
        check_acknowledged(log, [line for part in lines for line in part])


FULL = f"""
import resource, sys
sys.path.insert(0, {str(WORKER.parents[1])!r})
from helpers.logs import check_whole, event
from treetop.log.open import open_log
from treetop.errors import LogError

log = open_log(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, resource.RLIM_INFINITY))
written, errors = [], []
for i in range(20_000):
    try:
        log.append([event(i)])
        written.append(i)
    except LogError as error:
        errors.append(str(error))
        if len(errors) == 5:
            break
assert len(errors) == 5, "the limit was never met"
print(errors[0])
assert all(log.event(f"event-{{i}}") is not None for i in written), "reading goes on"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for i in range(20_000, 20_100):
    log.append([event(i)])
    written.append(i)
check_whole(log)
print(*written)
"""


def test_a_full_disk_is_an_error_that_passes(tmp_path: Path) -> None:
    place = tmp_path / "log.sqlite"
    done = subprocess.run([sys.executable, "-c", FULL, str(place)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    error, written = done.stdout.strip().split("\n")
    assert str(place) in error
    assert "disk" in error
    with open_log(place) as log:
        check_acknowledged(log, [["d", f"event-{i}"] for i in written.split()])


READ_ONLY = """
import os, pwd, sys
from treetop.log import sqlite
from treetop.log.open import open_log
from treetop.errors import LogError
if os.getuid() == 0:  # root may write anywhere
    user = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
try:
    open_log(sys.argv[1])
except LogError as error:
    print(error)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("there", [False, True])
def test_a_read_only_folder_is_a_clear_error(shared: Path, there: bool) -> None:
    place = shared / "log.sqlite"
    if there:
        with open_log(place) as log:
            log.append([event("a")])
        place.chmod(0o444)
    shared.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(place)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(place) in done.stdout
    assert "cannot be written: Permission denied" in done.stdout
    shared.chmod(0o755)
    if there:
        place.chmod(0o644)
        with open_log(place) as log:
            assert log.event("a") is not None


def test_no_folder_no_database_and_another_version(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no folder"):
        open_log(tmp_path / "missing" / "log.sqlite")
    (tmp_path / "text").write_text("this is not a database\n" * 100)
    with pytest.raises(LogError, match="not a database"):
        open_log(tmp_path / "text")
    open_log(tmp_path / "new").close()
    for version in (0, 1, 2, 3, 4, 5, 999):
        with sqlite3.connect(tmp_path / "new") as db:
            db.execute("UPDATE treetop_schema SET version = ?", (version,))
        db.close()
        with pytest.raises(
            LogError, match=f"new has tables of version {version}; this treetop reads version {VERSION}$"
        ):
            open_log(tmp_path / "new")


def test_a_server_that_is_not_there(server: Server) -> None:
    with pytest.raises(LogError, match=r"127\.0\.0\.1:1/") as found:
        open_log("postgresql://user:secret@127.0.0.1:1/db")
    assert "secret" not in str(found.value)
    with pytest.raises(ValueError, match="not one that PostgreSQL understands"):
        open_log("postgresql://host:port:port/db?nonsense=1")


def test_a_server_that_was_gone_while_nobody_asked(server: Server) -> None:
    with open_log(new_schema(server)) as log:
        log.append([event("before")])
        assert log.counts().decisions == 1
        server.stop()
        server.start()
        log.append([event("after")])
        assert log.counts().decisions == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_a_server_that_stops_and_starts_under_load(server: Server, how: signal.Signals) -> None:
    place = new_schema(server)
    acknowledged: list[list[str]] = []
    failures: list[str] = []
    end = threading.Event()

    def write(thread: int, log: Log) -> None:
        i = 0
        while not end.is_set():
            made = event(f"t{thread}-{i}")
            reward = Reward(made.event_id, int(made.arms[0]), 0.5, 1.0)
            try:
                log.append([made])
                acknowledged.append(["d", made.event_id])
                assert log.reward([reward])[0].ok
                acknowledged.append(["r", made.event_id, str(reward.arm), "0.5"])
                i += 1
            except LogError as error:  # the same ids again
                failures.append(str(error))
                time.sleep(0.02)

    with open_log(place) as log:
        threads = [threading.Thread(target=write, args=(t, log)) for t in range(4)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(acknowledged) > 50)
            server.stop(how)
            before = len(acknowledged)
            wait_until(lambda: len(failures) > 4)
            with pytest.raises(LogError):
                log.counts()
            server.start()
            wait_until(lambda: len(acknowledged) > before + 50)
        finally:
            end.set()
            for thread in threads:
                thread.join()
        check_acknowledged(log, acknowledged)
