"""The command line, called in this process or in one of its own."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest
from typer.testing import CliRunner

from treetop.cli.main import app, main

# Of `simulate`, for a set of 400 rows: played in less than a second, with refits.
SHORT = ["--init", "100", "--horizon", "300", "--max-leaf", "4", "--first-epoch", "64"]


def call(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def shell(*words: str) -> subprocess.CompletedProcess[str]:
    """What typing it gives. In this process: starting one takes longer than most commands."""
    out, err, code = io.StringIO(), io.StringIO(), None
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["treetop", *words])
        patch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces
        try:
            main()
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(words, int(code or 0), out.getvalue(), err.getvalue())


def process(*words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from treetop.cli.main import main; sys.argv[0] = 'treetop'; main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300)
