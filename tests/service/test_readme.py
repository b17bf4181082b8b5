"""The README's "Serve it" works as typed, but for the port, which may be taken."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def section() -> str:
    return README.read_text().partition("## Serve it\n")[2].partition("\n## ")[0]


def test_it_is_short() -> None:
    assert 10 < len(section().strip().splitlines()) < 25


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_it_works_as_typed(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    typed = re.findall(r"```sh\n(.*?)```", section(), re.DOTALL)[0]
    script = typed.replace("8700", str(port)).replace("serve shop", f"serve shop --port {port}")
    script = 'curl() { LD_PRELOAD= command curl "$@"; }\n' + script  # which hangs with a sanitizer that is for Python
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TREETOP_")}
    ended = subprocess.run(
        ["bash", "-e", "-c", script + "\nkill %1; wait"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**clean, "PATH": path},
        start_new_session=True,
    )
    assert ended.returncode in (0, -signal.SIGTERM), ended.stderr
    for words in (
        '{"status":"ready"}',
        '"arm":"python3"',
        '"stored":1',
        '{"status":"started"}',
        '"model":',
        "the same",
    ):
        assert words in ended.stdout, (words, ended.stdout, ended.stderr)
