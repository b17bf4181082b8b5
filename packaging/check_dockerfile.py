"""Runs the Dockerfile step by step without an engine: each stage in a clean Debian root of its own.

    sudo python3 packaging/check_dockerfile.py --python PREFIX      # Debian, with debootstrap; some minutes

`PREFIX` is an installed Python of the version that the images have; it is copied to /usr/local, where theirs is. Then
the container's command is run as its first process and user: a bandit is made, served and asked, the health check is
tried before and after, and SIGTERM must end it with code 0.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOKEN = "a-token-for-the-check-of-the-image"
FROM_HOST = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")  # to fetch packages with
ASK = f"""
import urllib.request
body = b'{{"event_id": "visit-1", "features": {{"python": 0.7}}}}'
headers = {{"content-type": "application/json", "authorization": "Bearer {TOKEN}"}}
request = urllib.request.Request("http://127.0.0.1:8700/v1/decide", body, headers)
print(urllib.request.urlopen(request, timeout=10).read().decode())
"""


@dataclass
class Stage:
    """A root, and what the instructions so far have said of its processes."""

    root: Path
    environment: dict[str, str]
    folder: str = "/"
    user: str = "0"
    commands: dict[str, list[str]] = field(default_factory=dict)  # ENTRYPOINT, CMD, HEALTHCHECK

    def prefix(self) -> list[str]:
        return ["chroot", f"--userspec={self.user}:{self.user}", str(self.root), "env", "-i", "-C", self.folder]

    def command(self, words: list[str], **more: str) -> list[str]:
        return [*self.prefix(), *(f"{name}={value}" for name, value in {**self.environment, **more}.items()), *words]

    def run(self, *words: str, **more: str) -> str:
        ended = subprocess.run(self.command(list(words), **more), capture_output=True, text=True, check=False)
        if ended.returncode:
            sys.exit(
                f"{ended.stdout[-4000:]}{ended.stderr[-4000:]}\nfailed with {ended.returncode}: {shlex.join(words)}"
            )
        return ended.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, required=True, help="prefix of the Python that stands for the image's")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", help="where debootstrap fetches from")
    given = parser.parse_args()
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        sys.exit("debootstrap (apt-get install debootstrap) and root are needed")
    with tempfile.TemporaryDirectory(prefix="treetop-image-") as folder:
        stage = build(Path(folder), given.python.resolve(), given.mirror)
        try_out(stage)


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, rest) in order, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def build(folder: Path, python: Path, mirror: str) -> Stage:
    """The last stage's root, after every instruction."""
    clean = folder / "clean"
    print("+ debootstrap", flush=True)
    include = "--include=ca-certificates,libssl3,libsqlite3-0,libffi8,zlib1g,libbz2-1.0,liblzma5,libreadline8"
    quiet(["debootstrap", "--variant=minbase", include, "bookworm", str(clean), mirror])
    for file in FROM_HOST:
        if Path(file).exists():
            shutil.copy(file, clean / file.lstrip("/"))
    put_python(python, clean / "usr" / "local")
    quiet(["chroot", str(clean), "ldconfig"])
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for word, rest in instructions((ROOT / "Dockerfile").read_text()):
        print(f"+ {word} {rest}", flush=True)
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            check_image(image, python)
            quiet(["cp", "-a", str(clean), str(folder / f"stage{len(stages)}")])
            stage = Stage(folder / f"stage{len(stages)}", {"PATH": PATH})
            stages[name or "last"] = stage
            continue
        assert stage is not None, "FROM comes first"
        follow(stage, word, rest, stages)
    assert stage is not None
    return stage


def put_python(python: Path, to: Path) -> None:
    """A copy of an installed Python whose scripts find it."""
    shutil.copytree(python, to, symlinks=True, dirs_exist_ok=True)
    for script in (to / "bin").iterdir():
        first, _, rest = script.read_bytes().partition(b"\n")
        if first.startswith(f"#!{python}".encode()):
            script.write_bytes(b"#!/usr/local/bin/python3\n" + rest)


def check_image(image: str, python: Path) -> None:
    wanted = re.fullmatch(r"python:(3\.\d+)-slim-bookworm", image)
    assert wanted, f"{image}: only python:3.x-slim-bookworm is known here"
    assert (python / "bin" / f"python{wanted[1]}").exists(), f"{python} has no Python {wanted[1]}"


def follow(stage: Stage, word: str, rest: str, stages: dict[str, Stage]) -> None:
    if word in ("ARG", "ENV"):
        name, _, value = rest.partition("=")
        stage.environment[name] = value
    elif word == "RUN":
        passed = {name: value for name, value in os.environ.items() if name in ("PIP_CERT", "PIP_DEFAULT_TIMEOUT")}
        stage.run("/bin/sh", "-c", rest, **passed)
    elif word == "WORKDIR":
        stage.folder = rest
        (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif word == "USER":
        stage.user = rest
    elif word == "COPY":
        copy(stage, rest.split(), stages)
    elif word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
        listed = json.loads(rest[rest.index("[") :])  # the exec form: no shell stands between signals and service
        stage.commands[word] = listed
    else:
        assert word in ("VOLUME", "EXPOSE"), f"{word} is not known here"


def copy(stage: Stage, words: list[str], stages: dict[str, Stage]) -> None:
    *sources, to = [word for word in words if not word.startswith("--")]
    from_stage = next((word.partition("=")[2] for word in words if word.startswith("--from=")), None)
    base = stages[from_stage].root if from_stage else ROOT
    target = stage.root / os.path.join(stage.folder, to).lstrip("/")
    for source in sources:
        whole = base / source.lstrip("/")
        assert from_stage or kept(source), f"{source} is left out by .dockerignore"
        into = target / whole.name if to.endswith("/") and whole.is_file() else target
        into.parent.mkdir(parents=True, exist_ok=True)
        if whole.is_dir():
            shutil.copytree(whole, into, symlinks=True, ignore=None if from_stage else unwanted)
        else:
            shutil.copy(whole, into)


def ignore_lines() -> list[str]:
    return [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]


def kept(source: str) -> bool:
    return f"!{source}" in ignore_lines()


def unwanted(folder: str, names: list[str]) -> set[str]:
    patterns = [line.removeprefix("**/") for line in ignore_lines() if line.startswith("**/")]
    return {name for name in names for pattern in patterns if fnmatch.fnmatch(name, pattern)}


def try_out(stage: Stage) -> None:
    """Uses the image as the Dockerfile's head says; the service is the first process of a space of its own."""
    entry, served = stage.commands["ENTRYPOINT"], stage.commands["CMD"]
    assert stage.user not in ("0", "root")
    assert not any((stage.root / path).exists() for path in ("usr/bin/g++", "usr/bin/cc", "src"))
    print(stage.run(*entry, "--version"), end="")
    print(stage.run(*entry, "init", "shop", "debian"), end="")
    health = stage.command(stage.commands["HEALTHCHECK"])
    assert subprocess.run(health, capture_output=True, check=False).returncode != 0, "healthy before it was started"
    alone = ["unshare", "--pid", "--fork", "--kill-child"]
    service = subprocess.Popen([*alone, *stage.command([*entry, *served], TREETOP_TOKEN=TOKEN)])
    try:
        until = time.monotonic() + 120
        while subprocess.run(health, capture_output=True, check=False).returncode != 0:
            assert service.poll() is None, "the service has ended"
            assert time.monotonic() < until, "not healthy in 2 minutes"
            time.sleep(0.5)
        print(stage.run("python", "-c", ASK), end="")
        first = int(subprocess.check_output(["pgrep", "-P", str(service.pid)]))
        os.kill(first, signal.SIGTERM)
        code = service.wait(60)
    finally:
        service.kill()
    assert code == 0, f"SIGTERM ended it with {code}"
    owners = {path.stat().st_uid for path in (stage.root / "data").rglob("*")}
    assert owners == {int(stage.user)}, f"owners of /data: {owners}"
    print("every step of the Dockerfile ran; healthy, decided, ended by SIGTERM with code 0")


def quiet(words: list[str]) -> None:
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{ended.stdout[-2000:]}{ended.stderr[-2000:]}\nfailed: {shlex.join(words)}")


if __name__ == "__main__":
    main()
