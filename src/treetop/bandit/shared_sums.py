"""What replicas have summed up, in their store: whoever takes over goes on from it.

The log holds an entry that says which sums count, and the store their files. They are there before the entry is, the
entry before the segments of whoever made them list them, and these before anything is deleted from the log: so sums
that a host has, and the entry has not, are void.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from treetop.bandit.pieces import Pieces, delete, extend, names, retire, upload
from treetop.bandit.stores import Store
from treetop.errors import LogError, ReplicaConflict, SegmentError
from treetop.log.base import Log
from treetop.log.segments.manifest import Sums

NAME = "sums of replicas"
PREFIX = "sums-"  # of their pieces in the store: those of models come and go by themselves
CHANGED = "another replica has summed up rounds at the same moment: try again"


@dataclass(frozen=True)
class SumsEntry:
    """The sums that count, if any do; their files by folder and name; pieces that are retired."""

    sums: Sums | None = None
    files: Mapping[str, Pieces] = field(default_factory=dict)
    retired: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, text: bytes) -> SumsEntry:
        try:
            found = cls(**json.loads(text))
            return replace(found, sums=None if found.sums is None else Sums.read(found.sums))
        except (ValueError, TypeError, KeyError) as error:
            raise LogError(f"what the replicas say of their sums cannot be read: {error}") from None

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class SharedSums:
    """The sums of one bandit's replicas."""

    store: Store
    log: Log

    def entry(self) -> SumsEntry | None:
        """What counts for all; None before anybody has shared sums."""
        found = self.log.kept(NAME)
        return SumsEntry.read(found) if found else None

    def check(self, sums: Sums | None) -> None:
        """Raises ReplicaConflict unless these are the sums that count."""
        if (entry := self.entry()) is not None and not same_sums(entry.sums, sums):
            raise ReplicaConflict(CHANGED)

    def publish(self, folder: Path, before: Sums | None, after: Sums) -> None:
        """Makes sums those that count, from a folder with their files, if `before` still are: else ReplicaConflict."""
        kept = self.log.kept(NAME) or b""
        entry = SumsEntry.read(kept) if kept else SumsEntry()
        if kept and not same_sums(entry.sums, before):
            raise ReplicaConflict(CHANGED)
        there = names(entry.files)
        paths = [path for name in sorted(after.names()) for path in sorted((folder / name).iterdir())]
        files = {path.relative_to(folder).as_posix(): upload(self.store, path, there, prefix=PREFIX) for path in paths}
        self._replace(kept, entry, SumsEntry(after, files))

    def drop(self) -> None:
        """Lets no sums count, and deletes them, as after an erasure: the log has what they were made of."""
        if kept := self.log.kept(NAME) or b"":
            before = SumsEntry.read(kept)
            self._replace(kept, before, SumsEntry())
            delete(self.store, names(before.files))

    def fetch(self, entry: SumsEntry, name: str, to: Path) -> None:
        """Brings one of the folders of an entry. Raises SegmentError if the store has lost a piece of it."""
        to.mkdir(mode=0o700)
        for path, pieces in entry.files.items():
            if Path(path).parent.name != name:
                continue
            try:
                extend(self.store, to / Path(path).name, 0, pieces)
            except FileNotFoundError as error:
                again = "`treetop seal FOLDER --anew` goes on without them"
                raise SegmentError(f"the store has lost sums of the replicas: {error}; {again}") from None

    def _replace(self, kept: bytes, before: SumsEntry, after: SumsEntry) -> None:
        retired, late = retire(names(before.files), before.retired, names(after.files), time.time())
        text = replace(after, retired=retired).text()
        if self.log.keep_changed(NAME, lambda found: text if (found or b"") == kept else found or b"") != text:
            raise ReplicaConflict(CHANGED)
        delete(self.store, late)


def same_sums(one: Sums | None, other: Sums | None) -> bool:
    """Whether two hosts have the same sums, whatever they call the folders.

    >>> sums = Sums("sums-00000001", ((7, 9),), 0.0, (), 1, 2)
    >>> same_sums(sums, replace(sums, name="sums-00000004")), same_sums(sums, None)
    (True, False)
    """
    if one is None or other is None:
        return one is other
    facts = [(s.steps, s.before, s.crc32, [(n.rounds, n.crc32) for n in s.norms]) for s in (one, other)]
    return facts[0] == facts[1]
