"""Cells of a table, kept in a JSON file as they are played: a script that was killed plays only what is missing.

Knows nothing of what a cell is: a few facts that tell it from the others, and what was measured.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treetop.bench.timing import commit, machine

Cell = dict[str, Any]


@dataclass(frozen=True)
class Cells:
    """The file and what is in it; every new cell is written at once, with commit and seconds. No path keeps nothing."""

    path: Path | None
    commands: list[str]
    cells: list[Cell]
    commit: str = field(default_factory=commit)  # of the code that runs, whatever is committed meanwhile

    @classmethod
    def opened(cls, path: Path | None, argv: Sequence[str]) -> Cells:
        """With the cells that earlier calls left; refuses a file that is something else before anything is played."""
        if path is None:
            return cls(None, [spoken(argv)], [])
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            return cls(path, [spoken(argv)], [])
        try:
            kept = json.loads(path.read_text())
            return cls(path, list(dict.fromkeys([*kept["commands"], spoken(argv)])), list(kept["cells"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{path} does not hold cells of such a script ({error!r}); nothing was played") from None

    def found(self, **facts: Any) -> list[Cell]:
        return [cell for cell in self.cells if all(cell.get(name) == value for name, value in facts.items())]

    def play(self, facts: Cell, measure: Callable[[], Cell], title: str = "") -> None:
        """Measures the cell with these facts, unless it is there, and prints a line: the title, or else the facts."""
        if self.found(**facts):
            return
        began = time.perf_counter()
        measured = measure()
        self.cells.append(
            {**facts, **measured, "seconds": round(time.perf_counter() - began, 1), "commit": self.commit}
        )
        self.write()
        words = title or " ".join(f"{value}" for value in facts.values())
        print(words, f"{measured['mean_reward']:.4f}", flush=True)

    def write(self, **more: Any) -> None:
        """One line a cell; in one step, so that a kill leaves the old file or the new one. `more` is kept beside them
        until the next cell.
        """
        if self.path is None:
            return
        about = {"commands": self.commands, "machine": machine(), **more}
        head = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in about.items())
        head = f'{{{head}"cells": [\n'
        lines = ",\n".join(json.dumps(cell) for cell in self.cells)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{head}{lines}\n]}}\n")
        os.replace(fresh, self.path)

    def about(self) -> str:
        """Where the numbers of a table come from."""
        commits = ", ".join(dict.fromkeys(cell["commit"] for cell in self.cells))
        commands = "\n".join(f"    {command}" for command in self.commands)
        return f"{commands}\n\nCommit {commits}; {machine()}."


def spoken(argv: Sequence[str]) -> str:
    """The command as one would type it elsewhere: folders by their names."""
    words = [Path(word).name if Path(word).is_dir() else word for word in argv[1:]]
    return shlex.join(["python", f"benchmarks/{Path(argv[0]).name}", *words])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, the first column to the left."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
