"""The examples in the documentation: where they stand, which of them are run, and a process that runs those of a page.

`python -m helpers.snippets PAGE REPLACEMENTS` runs the examples of one page in the order in which they stand: Python in
this process, sh in one shell beside it, both in the current folder. REPLACEMENTS is JSON: texts to replace, such as the
port of the service, which may be taken.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.running import PLAIN
from treetop.bandit.config_file import parse_config

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*) *$")
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+) -->$")
RUN = ("python", "pycon", "sh", "toml")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FAILED = "--- a command failed ---"
# What the shell does before a page's first line: a command that fails ends it, and so does an answer that is an error.
PROLOGUE = f"""
trap "printf '\\n%s\\n' '{FAILED}'" EXIT
set -eo pipefail
curl() {{ command curl --fail-with-body "$@"; }}
"""
END_TIMEOUT = 60.0  # seconds for the services of a page to end


@dataclass(frozen=True)
class Block:
    """A fenced block; `not_run` is the reason that stands before it, if it must not run."""

    line: int
    language: str
    text: str
    not_run: str = ""
    output: str | None = None  # what it must print, if the next block is `output`


def pages() -> list[Path]:
    """The pages whose examples are run."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    return blocks_of(page.read_text())


def blocks_of(markdown: str) -> list[Block]:
    """The fenced blocks of a text; an `output` block belongs to the one before it."""
    found: list[Block] = []
    lines = markdown.splitlines()
    number, reason = 0, ""
    while number < len(lines):
        line, number = lines[number], number + 1
        if match := NOT_RUN.search(line):
            reason = match["reason"]
        elif match := FENCE.match(line):
            end = next(i for i in range(number, len(lines)) if lines[i].strip() == "```")
            text = "".join(line.removeprefix(match["indent"]) + "\n" for line in lines[number:end])
            if match["language"] == "output":
                last = found.pop()
                found.append(Block(last.line, last.language, last.text, last.not_run, text))
            else:
                found.append(Block(number, match["language"], text, reason))
            number, reason = end + 1, ""
        elif line.strip():
            reason = ""
    return found


class Shell:
    """One bash that runs a page's blocks one after the other: variables, functions and background jobs stay."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            ["bash"], stdin=pipe, stdout=pipe, text=True, start_new_session=True, env=_environment()
        )
        self.number = 0
        self.run(PROLOGUE)

    def run(self, text: str) -> str:
        """Runs a text, returns what it printed; raises RuntimeError if one of its commands failed."""
        self.number += 1
        end = f"--- end of block {self.number} ---"
        script = Path(f".block-{self.number}.sh").absolute()
        script.write_text(text)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f". '{script}' </dev/null; printf '\\n%s\\n' '{end}'\n")
            self.process.stdin.flush()
        printed: list[str] = []
        for line in self.process.stdout:
            if line.rstrip("\n") == end:
                return "".join(printed)[:-1]
            if line.rstrip("\n") == FAILED:
                break
            printed.append(line)
        raise RuntimeError(f"a command failed; printed:\n{''.join(printed)}")

    def close(self) -> None:
        """Ends everything that the blocks started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.kill()  # the shell itself waits for nothing
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=END_TIMEOUT)  # its output ends when the last service has ended
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """For the shell: a sanitizer that is preloaded is for Python and our core alone, so these get it back."""
    if "LD_PRELOAD" not in os.environ:
        return PLAIN
    folder = Path(".commands").absolute()
    folder.mkdir()
    for name in ("treetop", "python"):
        command = folder / name
        found = Path(sys.executable).with_name(name)
        command.write_text(f"#!/bin/sh\nLD_PRELOAD='{os.environ['LD_PRELOAD']}' exec '{found}' \"$@\"\n")
        command.chmod(0o755)
    return {**PLAIN, "PATH": f"{folder}{os.pathsep}{PLAIN['PATH']}"}


def run_page(page: Path, replacements: Mapping[str, str]) -> None:
    """Runs the examples of a page in the current folder; raises if one fails or prints something else."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.closing(Shell()) as shell:
        for block in blocks(page):
            if block.language not in RUN or block.not_run:
                continue
            text = block.text
            for old, new in replacements.items():
                text = text.replace(old, new)
            place = f"{os.path.relpath(page, ROOT)}:{block.line}"
            try:
                printed = _run(block.language, text, place, names, shell)
            except BaseException as error:
                raise RuntimeError(f"the example at {place} failed:\n{text}\n{error}") from error
            sys.stdout.write(printed)
            if block.output is not None and not doctest.OutputChecker().check_output(block.output, printed, FLAGS):
                raise RuntimeError(f"the example at {place} printed\n{printed}\nwhere the page says\n{block.output}")


def _run(language: str, text: str, place: str, names: dict[str, Any], shell: Shell) -> str:
    if language == "toml":
        parse_config(text)
        return ""
    if language == "sh":
        return shell.run(text)
    if ">>> " in text:
        _run_session(text, place, names)
        return ""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, place, "exec"), names)
    return printed.getvalue()


def _run_session(text: str, place: str, names: dict[str, Any]) -> None:
    session = doctest.DocTestParser().get_doctest(text, names, place, place, 0)
    session.globs = names  # get_doctest makes a copy; blocks of a page share their names
    printed: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(session, out=printed.append, clear_globs=False)
    if printed:
        raise RuntimeError("".join(printed))


def indented_commands(page: Path) -> Iterator[str]:
    """Commands and Python in blocks that are only indented, where nothing would run them."""
    inside = False
    for line in page.read_text().splitlines():
        if line.strip().startswith("```"):
            inside = not inside
        elif not inside and re.match(
            r" {4,}(treetop|pip|make|curl|python|sqlite3|pg_dump|docker|>>>|import|from) ", line
        ):
            yield line.strip()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it took too long"))  # the shell and its services are ended too
    run_page(Path(sys.argv[1]), json.loads(sys.argv[2]))
