"""`treetop demo --serve`: visitors come, the page has their numbers, Ctrl-C ends it, the folder goes on next time."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

from helpers.commands import shell
from helpers.running import COMMAND, START

from treetop.bandit.bandit import Bandit


def asked(url: str, path: str) -> str:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def play(out: Path, elsewhere: Path, visitors: int, until: int) -> str:
    """Runs a demo until so many decisions are on the page; returns the page."""
    command = [*COMMAND, "demo", "--serve", "--json", "--port", "0", "--rate", "200"]
    command += ["--rounds", str(visitors), "--out", str(out)]
    environment = {**os.environ, "TREETOP_LOG": str(elsewhere), "TREETOP_TOKEN": "of a real service"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:")
        give_up = time.monotonic() + START
        page = ""
        while (found := re.search(r"id='visits'>([\d,]+)<", page)) is None or int(found[1]) < until:
            assert process.poll() is None
            assert time.monotonic() < give_up, page[-2000:]
            time.sleep(0.2)
            try:
                page = asked(url, "/")
            except ConnectionError:
                continue
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        process.stdout.close()
        return page
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_visitors_come_and_go_on_the_next_time(tmp_path: Path) -> None:
    elsewhere = tmp_path / "of-a-real-service.sqlite"
    play(tmp_path / "out", elsewhere, 40, 40)
    with Bandit.open(tmp_path / "out" / "bandit") as bandit:
        counts = bandit.log.counts()
        assert counts.decisions == 40  # no more than were asked for
        assert 3 * 40 < counts.slots < 5 * 40  # some have a small screen
        assert 0 < counts.observed < 40  # some say nothing, or not yet
    play(tmp_path / "out", elsewhere, 10**6, 50)
    with Bandit.open(tmp_path / "out" / "bandit") as bandit:
        assert 50 <= bandit.log.counts().decisions < 10**6  # ended while they came
    assert not elsewhere.exists()  # a demo does not write where the environment says


def test_a_rate_is_limited(tmp_path: Path) -> None:
    ended = shell("demo", "--serve", "--rate", "1e9", "--out", str(tmp_path))
    assert ended.returncode == 2
    assert "rate is 1000000000.0; it must be" in ended.stderr
    assert not (tmp_path / "bandit").exists()


def test_a_port_that_is_taken_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = shell("demo", "--serve", "--port", str(port), "--out", str(tmp_path / "out"))
    assert ended.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "--port 0 takes a free one" in ended.stderr
    assert not (tmp_path / "out").exists()
