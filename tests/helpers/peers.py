"""The peers' environment (`make bench-peers`), where tests meet the real libraries of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.running import PLAIN

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"


def needs_peer(module: str) -> None:
    """Skips a test whose peer is not there."""
    if not PYTHON.exists():
        pytest.skip(f"there is no .venv-peers with {module} (make bench-peers)")
    code = f"import importlib.util as u; raise SystemExit(u.find_spec({module!r}) is None)"
    if subprocess.run([PYTHON, "-c", code], env=PLAIN).returncode:
        pytest.skip(f".venv-peers has no {module} (make bench-peers)")


def run_peer(*command: object) -> str:
    """What the peers' Python printed; fails with what it said if it fails."""
    ended = subprocess.run([PYTHON, *map(str, command)], env=PLAIN, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def peer_packages() -> Path:
    """Where the peers' packages lie, for pure Python that has to meet treetop in one process."""
    found = next((PYTHON.parents[1] / "lib").glob("python*")) / "site-packages"
    if found.parent.name != f"python{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(
            f".venv-peers has {found.parent.name}; this is Python {sys.version_info.major}.{sys.version_info.minor}"
        )
    return found
