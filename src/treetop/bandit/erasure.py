"""Takes somebody's events out of a bandit's folder: log, segments, deltas. The next refit learns from what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from treetop.bandit.folder import BanditFolder
from treetop.bandit.logged_history import clear_work
from treetop.bandit.sealing import follow_deletions, segment_folder
from treetop.bandit.spread_tallies import clear_evaluations
from treetop.errors import FolderInUse, SegmentError
from treetop.log.base import Log
from treetop.log.keys import check_keys
from treetop.log.segments.storage import read_sums


@dataclass(frozen=True)
class Erased:
    """How many events were erased, how many segments and deltas were written again or deleted for it, and of how many
    events sums are left: what windows and retention have forgotten was added up, and cannot be told apart."""

    events: int
    files: int
    summed: int = 0


def erase_events(
    folder: BanditFolder,
    log: Log,
    keys: Sequence[tuple[str, str]],
    progress: Callable[[int], None] = lambda events: None,
) -> Erased:
    """Erases every event that carries one of these keys, and writes anew what could still hold bytes of it.

    Nothing of the keys is noted. If it ends half-way, call it again: what is left is erased, and all is written anew.

    >>> import tempfile
    >>> import numpy as np
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     for visitor in (123, 124, 123):
    ...         _ = tea.decide(np.ones(4), keys={"visitor": visitor})
    ...     erase_events(tea.folder, tea.log, [("visitor", "123")]).events, tea.log.counts().forgotten
    (2, 2)
    """
    if not keys:
        raise ValueError("there are no keys to erase by")
    events = 0
    for key in keys:
        check_keys((key,))
    sums = _Summed(folder, log)
    for key in keys:
        while count := log.erase(key):
            events += count
            progress(events)
    left, deleted = sums.after_erasure()
    files = deleted + follow_erasure(folder, log)
    log.scrub()
    folder.note("events erased", count=events)
    return Erased(events, files, left)


class _Summed:
    """Whether erased events were summed up, and can be taken out of the sums: all of these are then made again."""

    def __init__(self, folder: BanditFolder, log: Log) -> None:
        self._segments, self._log, self._shared = segment_folder(folder), log, folder.shared
        self._until, self._rounds = 0, 0  # the position up to which rounds are summed up, and how many
        with suppress(SegmentError), self._segments.reading() as manifest:
            if manifest is not None and manifest.sums is not None:
                self._until = manifest.summed
                self._rounds = read_sums(self._segments.path, manifest.sums)[1]["rounds"]
        self._there = log.count_between(1, self._until)

    def after_erasure(self) -> tuple[int, int]:
        """Of how many erased events sums are left, and how many folders of segments were deleted.

        While the log has all that is summed up, segments are deleted: the next sealing makes them again from it.
        """
        erased = self._there - self._log.count_between(1, self._until)
        if erased == 0 or self._there != self._rounds:
            return erased, 0
        if self._shared is not None:
            self._shared.sums.drop()  # other replicas then do the same
        return 0, self._segments.delete()


def follow_erasure(folder: BanditFolder, log: Log) -> int:
    """Takes what is not in the log any more out of this folder's files, whoever deleted it; how many it replaced.

    >>> import tempfile
    >>> import numpy as np
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     follow_erasure(tea.folder, tea.log)
    0
    """
    files = follow_deletions(folder, log)
    with suppress(FolderInUse), folder.refit_lock():  # a refit that runs deletes it at its end
        clear_work(folder)
    clear_evaluations(folder.path)  # the same: one that runs deletes its own
    return files
