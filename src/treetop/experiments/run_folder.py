"""A folder that outlives kill -9: a plan, one line a finished run, the histories of runs under way.

Knows nothing of what plans and lines mean. Whole files are written beside their place, synced and renamed; lines are
appended and synced, and a last line without its end is one that was never written.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.files import append, cut_unfinished_line, locked, put
from treetop.parallel import write_piece
from treetop.simulation.history import History

PLAN, RUNS, STATE, PIECES = "plan.json", "runs.jsonl", "state", "pieces"


@dataclass(frozen=True)
class Folder:
    """The files of one experiment; `opened` gives one that no other process writes to."""

    path: Path

    def append(self, line: bytes, index: int = 0) -> None:
        """Adds run `index`, which is finished, and drops what was kept of it; runs after it may be under way."""
        append(self.path / RUNS, line + b"\n")
        for file in (self._state(index), self.piece(index)):
            file.unlink(missing_ok=True)

    def piece(self, index: int) -> Path:
        """The line of a run that was finished elsewhere, before it is the turn of its line."""
        return self.path / PIECES / f"{index}.json"

    def save(self, index: int, history: History, versions: dict[str, str]) -> None:
        """Keeps the history of run `index` so far; the one before it is replaced."""
        (self.path / STATE).mkdir(exist_ok=True)
        about = json.dumps({"done": history.done, "seconds": history.seconds, "versions": versions})
        arrays: dict[str, Any] = {"about": np.array(about), **history.arrays()}
        write_piece(self._state(index), lambda file: np.savez(file, **arrays))

    def saved(self, index: int, versions: dict[str, str]) -> History | None:
        """The history of run `index`, if there is one; what other versions began is begun anew."""
        arrays = load_arrays(self._state(index))
        about: dict[str, Any] = json.loads(str(arrays.pop("about"))) if arrays else {}
        if about.get("versions") != versions:
            return None
        return History(**arrays, done=about["done"], seconds=about["seconds"])

    def _state(self, index: int) -> Path:
        return self.path / STATE / f"{index}.npz"

    def drop(self) -> None:
        """Forgets the histories when all runs are finished, also those of runs that were killed on the way."""
        for folder in (self.path / STATE, self.path / PIECES):
            shutil.rmtree(folder, ignore_errors=True)


def lines(path: Path) -> list[bytes]:
    """The finished runs of a folder, also while another process adds to them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with opened(Path(folder), {"plan": "mine"}) as kept:
    ...         kept.append(b"{}")
    ...     lines(Path(folder))
    [b'{}']
    """
    file = path / RUNS
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


@contextmanager
def opened(path: Path, plan: dict[str, Any]) -> Iterator[Folder]:
    """The folder for this plan, made if need be; refused if it holds another plan or another process uses it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with opened(Path(folder), {"plan": "mine"}) as kept:
    ...         sorted(path.name for path in kept.path.iterdir())
    ['plan.json']
    """
    path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        if (path / PLAN).exists():
            _check_same(path, json.loads((path / PLAN).read_bytes()), plan)
        elif (path / RUNS).exists():
            raise ValueError(f"{path} holds {RUNS} without {PLAN}, which says what they are; choose another folder")
        else:
            put(path / PLAN, lambda file: file.write(json.dumps(plan, indent=1).encode() + b"\n"))
        cut_unfinished_line(path / RUNS)
        yield Folder(path)


def _check_same(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    here = json.loads(json.dumps(here))
    if difference := _difference(there, here):
        raise ValueError(f"{path} holds the results of another plan: {difference}. Choose another folder or delete it")


def _difference(there: Any, here: Any, where: str = "") -> str:
    """The first place where two JSON values differ, in words; nothing if they are the same."""
    if isinstance(there, dict) and isinstance(here, dict):
        pairs = [(f"{where}.{key}".lstrip("."), there.get(key), here.get(key)) for key in {**there, **here}]
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(there, here, strict=True))]
    elif isinstance(there, list) and isinstance(here, list):
        return f"{where} are {len(there)} there, {len(here)} here"
    else:
        return "" if there == here else f"{where} is {there!r} there, {here!r} here"
    return next((found for name, a, b in pairs if (found := _difference(a, b, name))), "")


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """What is in a file of arrays; nothing if there is none or it is not whole (a zip file has its own checksums).

    >>> load_arrays(Path("no/such/file.npz"))
    {}
    """
    try:
        with path.open("rb") as file, np.load(file) as found:
            return dict(found)
    except (FileNotFoundError, zipfile.BadZipFile, ValueError, EOFError):
        return {}
