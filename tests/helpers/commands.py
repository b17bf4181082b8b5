"""The command line, called in this process or in one of its own."""

import subprocess
import sys
from typing import Any

from typer.testing import CliRunner

from treetop.cli.main import app


def call(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def shell(*words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from treetop.cli.main import main; sys.argv[0] = 'treetop'; main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300)
