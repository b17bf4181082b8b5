"""Tallies of candidates by tasks of other machines, the same as those of `Tallies`, byte for byte.

Whoever reads the log writes questions into a folder that all machines see, about as many rounds a file as are read at
a time. A wave of such files is answered by a task each; then a task a candidate adds up its answers in the order of the
log, as control variates of a round are fitted on the rounds before it. So disk and memory stay bounded.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any

from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.candidate_chances import HEIGHTS, Answering, Question
from treetop.bandit.logged_batches import CHUNK
from treetop.errors import FolderInUse
from treetop.evaluation.judged import Judged
from treetop.evaluation.tally import Tally
from treetop.files import locked
from treetop.model.model import Model
from treetop.parallel import Machines, map_shards, write_piece

WAVE = 64  # files of questions that are answered before their answers are added up
PREFIX, LOCK = "evaluate-work-", "lock"  # of folders; the file in each that is held while it is in use


@dataclass(frozen=True, eq=False)
class Known:
    """What answers need beside questions: where models lie by their names, the arms, from scores to rewards, and how
    many cuts of the tree are weighed by."""

    models: Mapping[str, str]
    arms: ArmIndex
    line: tuple[float, float]
    heights: int = HEIGHTS


@dataclass(frozen=True)
class QuestionFile:
    """Some questions, as a task gets them: the file is in the folder, beside what is `Known`."""

    folder: str
    number: int


@dataclass(frozen=True)
class CandidateWave:
    """The answers to the files `first` to `end` for one candidate, as a task gets them; before the first there is no
    tally yet."""

    folder: str
    candidate: int
    first: int
    end: int
    bound: float | None


class SpreadTallies:
    """One tally a candidate, as `Tallies` has them; works in a new folder below the given one, which is gone at the end
    of the context. One that a killed evaluation left is deleted by the next.

    >>> known = Known({}, ArmIndex.of(["tea", "jam"]), line=(0.0, 1.0))
    >>> with tempfile.TemporaryDirectory() as place, SpreadTallies(2, None, known, Machines(), place) as tallies:
    ...     tallies.of(1).rounds
    0
    """

    def __init__(
        self, candidates: int, bound: float | None, known: Known, machines: Machines, folder: str | os.PathLike[str]
    ) -> None:
        self.candidates, self.bound, self.machines = candidates, bound, machines
        self.differing = 0  # rounds whose propensities are not those that their model and settings give
        clear_evaluations(Path(folder))
        self._held = ExitStack()
        self.path = _new_folder(Path(folder), self._held)
        self._waiting: list[Question] = []
        self._first, self._next = 0, 0  # files of this wave
        _write(self.path / "known", known)

    def ask(self, question: Question) -> None:
        """Adds a batch to the tallies of the candidates that are asked about."""
        self._waiting.append(question)
        if sum(len(each.batch) for each in self._waiting) >= CHUNK:
            self._put()
        if self._next - self._first >= WAVE:
            self._finish_wave()

    def of(self, candidate: int) -> Tally:
        """What has been added to a candidate so far."""
        self._put()
        self._finish_wave()
        return _tally(self.path, candidate, self._next)

    def _put(self) -> None:
        if self._waiting:
            _write(_questions(self.path, self._next), self._waiting)
            self._waiting, self._next = [], self._next + 1

    def _finish_wave(self) -> None:
        first, end = self._first, self._next
        if first == end:
            return
        folder = str(self.path)
        self.differing += sum(map_shards(_answer, [QuestionFile(folder, n) for n in range(first, end)], self.machines))
        waves = [CandidateWave(folder, i, first, end, self.bound) for i in range(self.candidates)]
        map_shards(_add_answers, waves, self.machines)
        for n in range(first, end):
            _questions(self.path, n).unlink()
            shutil.rmtree(_answers(self.path, n))
        if first:
            shutil.rmtree(_tallies(self.path, first))
        self._first = end

    def __enter__(self) -> SpreadTallies:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def clear_evaluations(folder: Path) -> None:
    """Deletes the folders that killed evaluations left; one that is in use stays, and is gone at its own end.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     (Path(place) / "evaluate-work-left").mkdir()
    ...     clear_evaluations(Path(place))
    ...     list(Path(place).iterdir())
    []
    """
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(FolderInUse, FileNotFoundError), locked(path / LOCK):  # not there: somebody else deleted it
            shutil.rmtree(path)


def _new_folder(parent: Path, held: ExitStack) -> Path:
    """A folder that is held before anybody can take it for one that was left."""
    path = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent)).resolve()
    held.enter_context(locked(path / LOCK))
    return path.rename(path.with_name(path.name.removeprefix(".")))


def _answer(asked: QuestionFile) -> int:
    """Writes what a file of questions says about each candidate; how many rounds have other propensities."""
    folder = Path(asked.folder)
    answering, found = _answering(asked.folder, get_ident()), dict[int, list[Judged]]()

    def add(candidate: int, rounds: Callable[[], Judged]) -> None:
        found.setdefault(candidate, []).append(rounds())

    differing = sum(answering.answer(question, add) for question in _read(_questions(folder, asked.number)))
    target = _answers(folder, asked.number)
    target.mkdir(exist_ok=True)
    for candidate, rounds in found.items():
        _write(target / str(candidate), rounds)
    return differing


def _add_answers(wave: CandidateWave) -> str:
    """Writes the tally of a candidate with the answers of a wave; its path."""
    folder = Path(wave.folder)
    tally = _tally(folder, wave.candidate, wave.first)
    for n in range(wave.first, wave.end):
        if (file := _answers(folder, n) / str(wave.candidate)).exists():
            for rounds in _read(file):
                tally = tally.after(rounds, wave.bound)
    _tallies(folder, wave.end).mkdir(exist_ok=True)
    return str(_write(_tallies(folder, wave.end) / str(wave.candidate), tally))


@lru_cache(maxsize=4)
def _answering(folder: str, thread: int) -> Answering:
    """Tasks that follow each other in a thread share models and sets of arms."""
    known: Known = _read(Path(folder) / "known")
    return Answering(lambda name: Model.load(known.models[name]), known.arms, known.line, known.heights)


def _questions(folder: Path, number: int) -> Path:
    return folder / f"questions-{number}"


def _answers(folder: Path, number: int) -> Path:
    return folder / f"answers-{number}"


def _tallies(folder: Path, end: int) -> Path:
    return folder / f"tallies-{end}"


def _tally(folder: Path, candidate: int, end: int) -> Tally:
    """What the files before a number said about a candidate."""
    found: Tally = _read(_tallies(folder, end) / str(candidate)) if end else Tally()
    return found


def _write(path: Path, what: object) -> Path:
    """Pickled: the folder is this evaluation's own, and whoever reads it has the same version."""
    return write_piece(path, lambda file: pickle.dump(what, file, protocol=5))


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)
