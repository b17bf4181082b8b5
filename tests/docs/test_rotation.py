"""A token is rotated by the commands of docs/operations.md while requests come in, and none of them fails."""

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from helpers.problems import topics
from helpers.running import PLAIN, Running, running, small_bandit
from helpers.snippets import ROOT, blocks_of

OLD, NEW = "old-token-of-the-shop", "new-token-of-the-shop"


def step(number: int) -> str:
    """A step of the section's block that changes the file, with the line after it that ends the workers."""
    page = (ROOT / "docs" / "operations.md").read_text()
    (lines,) = (b.text.splitlines() for b in blocks_of(page.partition("## Tokens\n")[2]) if "# 3." in b.text)
    at = next(i for i, line in enumerate(lines) if f"# {number}." in line)
    return "\n".join(lines[at : at + 2])


def is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


class Requests:
    """Requests with a token, each over a connection of its own, and the answers that were not 200."""

    def __init__(self, service: Running, token: str) -> None:
        self.service, self.head = service, {"authorization": f"Bearer {token}"}
        self.answered, self.failed = 0, list[object]()
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.ending.wait(0.02):
            answer = self._ask()
            self.answered += 1
            self.failed += [answer] if answer != 200 else []

    def _ask(self) -> object:
        try:
            return self.service.ask("GET", "/v1/model", headers=self.head).status
        except OSError as error:
            return error

    def __enter__(self) -> "Requests":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.thread.join()


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep is not installed")
def test_no_request_fails_while_a_token_is_rotated(tmp_path: Path) -> None:
    folder, tokens = small_bandit(tmp_path / "shop", *topics()), tmp_path / "tokens"
    tokens.write_text(f"read,write {OLD}\n")
    tokens.chmod(0o600)
    with running(folder, "--tokens", str(tokens)) as service:

        def run(number: int) -> None:
            environment = {**PLAIN, "new": NEW, "service": str(service.process.pid)}
            workers = subprocess.check_output(["pgrep", "-P", environment["service"]], text=True).split()
            subprocess.run(["bash", "-ec", step(number)], cwd=tmp_path, env=environment, check=True, timeout=120)
            service.wait_for(lambda: not any(map(is_alive, workers)))

        def status(token: str) -> int:
            return service.ask("GET", "/v1/model", headers={"authorization": f"Bearer {token}"}).status

        assert (status(OLD), status(NEW)) == (200, 401)
        with Requests(service, OLD) as old:
            run(1)
            assert (status(OLD), status(NEW)) == (200, 200)
        with Requests(service, NEW) as new:
            run(3)
            assert (status(OLD), status(NEW)) == (401, 200)
    assert old.failed == new.failed == []
    assert min(old.answered, new.answered) > 0
    assert os.stat(tokens).st_mode & 0o077 == 0
