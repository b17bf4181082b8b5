"""A PostgreSQL server for tests: its own data folder and a free port on loopback, ended by its process id."""

from __future__ import annotations

import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from helpers.running import PLAIN

PLACES = ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/bin", "/usr/local/bin"]


def binaries() -> Path | None:
    """Where initdb and postgres are, if they are installed."""
    found = [Path(path).resolve().parent for path in [shutil.which("initdb")] if path]
    found += [p for place in PLACES for p in sorted(Path("/").glob(place.lstrip("/")), reverse=True)]
    return next((p for p in found if all((p / name).exists() for name in ("initdb", "postgres", "pg_isready"))), None)


class Server:
    """One cluster, in a folder of its own below `parent`. It survives `stop` and `start`; `close` removes it."""

    def __init__(self, bin: Path, *settings: str, parent: Path = Path("/tmp")) -> None:
        self.bin, self.settings = bin, settings
        # The server refuses to run as root; Debian's packages bring a user for it.
        self.user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        self.folder = Path(tempfile.mkdtemp(prefix="treetop-pg-", dir=parent))
        if os.getuid() == 0:
            shutil.chown(self.folder, self.user)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        words = ["-D", str(self.folder / "data"), "-U", "treetop", "-A", "trust", "-E", "UTF8", "--no-sync"]
        try:
            self._run("initdb", *words)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return f"postgresql://treetop@127.0.0.1:{self.port}/postgres"

    def _command(self, *words: str) -> list[str]:
        command = [str(self.bin / words[0]), *words[1:]]
        if os.getuid() == 0:
            user = pwd.getpwnam(self.user)
            command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]
        return command

    def _run(self, *words: str) -> None:
        subprocess.run(self._command(*words), check=True, capture_output=True, cwd="/", env=PLAIN, timeout=120)

    def start(self) -> None:
        words = ["-D", str(self.folder / "data"), "-p", str(self.port), "-h", "127.0.0.1", "-k", str(self.folder)]
        words += [word for setting in self.settings for word in ("-c", setting)]
        with (self.folder / "log").open("ab") as out:
            command = self._command("postgres", *words)
            self.process = subprocess.Popen(command, stdout=out, stderr=out, cwd="/", env=PLAIN)
        until = time.monotonic() + 60
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        words = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "treetop", "-d", "postgres", "-q"]
        return subprocess.run([str(self.bin / "pg_isready"), *words], cwd="/", env=PLAIN).returncode == 0

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends every session at once and shuts down; SIGQUIT is a crash, which the next start recovers from."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(timeout=60)
        self.process = None

    def close(self) -> None:
        if self.process is not None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    """Below those that the system gives away: nobody takes it while a server is stopped. At random: others look too."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as s, suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def new_schema(server: Server) -> str:
    """The address of an empty log: a schema of its own in the one database."""
    import psycopg

    name = f"log{next(_schemas)}"
    with psycopg.connect(server.address, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.address}?options=-csearch_path%3D{name}"


def new_database(server: Server) -> str:
    """The address of an empty database of its own."""
    import psycopg

    name = f"database{next(_schemas)}"
    with psycopg.connect(server.address, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}".encode())
    return server.address.removesuffix("/postgres") + f"/{name}"


_schemas = itertools.count()
