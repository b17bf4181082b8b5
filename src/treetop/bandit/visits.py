"""Where an evaluation reads visits: a bandit's log, another log, or sealed segments; always with the bandit's folder.

A log and segments say what was decided and what it brought. Which arms a candidate would have shown only models and
settings say, and these are in the folder.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from treetop.bandit.bandit import Bandit
from treetop.bandit.config_file import CONFIG, read_config
from treetop.bandit.folder import CURRENT, LOG, BanditFolder
from treetop.bandit.logged_batches import CHUNK
from treetop.bandit.ownership import check_owner
from treetop.errors import SegmentError
from treetop.log.base import Log
from treetop.log.blocks import Block, RewardRows, join
from treetop.log.decided import DecidedRounds
from treetop.log.open import is_address, open_log
from treetop.log.segments.binding import belongs
from treetop.log.segments.manifest import Manifest, SegmentFolder
from treetop.log.segments.schema import FORMAT, MANIFEST
from treetop.log.segments.storage import read_deltas, read_segment

Place: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = Bandit | Place | tuple[Place, Place]
ELSEWHERE = "its log or segments: a path or a postgresql:// address"
SOURCES = f"a Bandit, its folder, {ELSEWHERE}, or a pair of its folder and one of these"
SUMMED = (
    "older visits are summed up in the segments, which do not have all of their slots any more; the log may have them "
    "(docs/segments.md)"
)
UNSAID = (
    "{} was sealed by an older treetop and does not say by which model and settings its rounds were decided; "
    "`treetop seal --anew` makes segments again from the log"
)


@dataclass(frozen=True)
class Visits:
    """Visits in the order of the log, CHUNK at a time; `total` is about how many, `note` what is not among them;
    `sealed`: they are those of segments."""

    chunks: Iterator[DecidedRounds]
    total: int
    note: str = ""
    sealed: bool = False


def logged_visits(log: Log) -> Visits:
    """All that is in a log by now.

    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     served = tea.decide(np.ones(4))
    ...     logged_visits(tea.log).total
    1
    """
    counts = log.counts()
    return Visits(log.decided(counts.position, CHUNK), counts.decisions - counts.forgotten)


@contextmanager
def opened(source: Source) -> Iterator[tuple[Bandit, Visits]]:
    """The bandit whose models and settings judge, and the visits of a source. The bandit's folder stands before a log
    or segments that do not lie in it.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)).close()
    ...     with opened(f"{place}/tea/log.sqlite") as (tea, visits):
    ...         tea.folder.path.name, visits.total
    ('tea', 0)
    """
    if isinstance(source, Bandit):
        yield source, logged_visits(source.log)
        return
    home, where = _found(source)
    if isinstance(where, SegmentFolder):
        with _beside_segments(home) as bandit, where.reading() as manifest:
            yield bandit, _sealed_visits(where, manifest, bandit.log)
    else:
        with Bandit.open(home, where) as bandit:
            yield bandit, logged_visits(bandit.log)


def _found(source: Place | tuple[Place, Place]) -> tuple[Path, SegmentFolder | str | None]:
    """The bandit's folder, and its segments or log; None for the log of the folder."""
    folder, place = source if isinstance(source, tuple) and len(source) == 2 else (None, source)
    if not (isinstance(place, str | os.PathLike) and (folder is None or isinstance(folder, str | os.PathLike))):
        raise TypeError(f"log is a {type(source).__name__}; it must be {SOURCES}")
    where = os.fspath(place)
    path = Path(where)
    if is_address(where) or path.is_file():
        return _home(where, folder), where
    if _are_segments(path) or (path.is_dir() and (path.parent / CURRENT).is_file()):
        return _home(path, folder), SegmentFolder(path)
    if folder is not None:
        why = f"beside a folder there must be {ELSEWHERE}" if path.exists() else "there is no such file or folder"
        raise ValueError(f"log is {where!r}; {why}")
    return path, None


def _home(source: str | Path, folder: Place | None) -> Path:
    """The folder of the bandit whose log or segments these are: the one that was given, or that they lie in."""
    if folder is not None:
        return Path(folder)
    if not is_address(str(source)) and (Path(source).parent / CURRENT).is_file():
        return Path(source).parent
    raise ValueError(
        f"{source} lies in no bandit's folder: name that folder, too (`treetop evaluate FOLDER --log` or `--segments`; "
        "in Python a pair of both). What candidates would have shown only its models and settings say"
    )


def _are_segments(path: Path) -> bool:
    try:
        facts = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and facts.get("format") == FORMAT


@contextmanager
def _reading(home: Path, log: Log) -> Iterator[Bandit]:
    """The bandit of a folder with a log that is open and stays so. Changes neither."""
    folder = BanditFolder(home)
    check_owner(folder, log.owner(), f"the log {log.where}")
    yield Bandit(folder, read_config(home / CONFIG), log)


@contextmanager
def _beside_segments(home: Path) -> Iterator[Bandit]:
    """The bandit of a folder with its own log, which has lists of arms; where there is none, with an empty one."""
    if (home / LOG).exists():
        with Bandit.open(home) as bandit:
            yield bandit
        return
    with tempfile.TemporaryDirectory() as place, open_log(Path(place) / LOG) as empty, _reading(home, empty) as bandit:
        yield bandit


def _sealed_visits(folder: SegmentFolder, manifest: Manifest | None, log: Log) -> Visits:
    """The rounds that segments have as a whole, with the rewards that were sealed."""
    if manifest is None:
        raise SegmentError(f"{folder.path} has no segments; `treetop seal` makes them")
    counts = log.counts()
    if counts.position and not belongs(log, manifest, counts):
        raise SegmentError(f"{folder.path} has segments of another log than {log.where}")
    whole = [segment for segment in manifest.segments if segment.last > manifest.summed]
    if manifest.segments and not whole:
        raise SegmentError(f"{folder.path}: {SUMMED}")

    def blocks() -> Iterator[Block]:
        late: RewardRows = read_deltas(folder.path, manifest.deltas)
        for segment in whole:
            block = read_segment(folder.path, segment).with_rewards(late)
            block = block.take(block.positions > manifest.summed)
            if (block.origins.settings < 0).any():
                raise SegmentError(UNSAID.format(folder.path / segment.name))
            yield block

    chunks = (block.decided() for block in cut(blocks(), CHUNK))
    total = sum(segment.rounds for segment in whole)
    return Visits(chunks, total, SUMMED if manifest.summed else "", sealed=True)


def cut(blocks: Iterator[Block], size: int) -> Iterator[Block]:
    """The same rounds, `size` at a time, as a log gives them: what estimates are fitted on goes by chunks.

    >>> list(cut(iter([]), 10))
    []
    """
    rest: list[Block] = []
    for block in blocks:
        joined = join([*rest, block])
        place = np.arange(len(joined)) // size
        full = len(joined) // size
        for i in range(full):
            yield joined.take(place == i)
        rest = [joined.take(place == full)]
    if rest and len(rest[0]):
        yield rest[0]
