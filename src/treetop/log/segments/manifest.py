"""Which files count: one manifest, replaced in one step, so that a reader sees all of a change or nothing of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from treetop.errors import SegmentError
from treetop.files import locked, put, sync_folder
from treetop.log.segments.schema import FORMAT, MANIFEST, VERSION
from treetop.model.storage import manifest_checksum

LOCK_TIMEOUT = 600.0  # seconds that another process may take to seal, or to read all segments


@dataclass(frozen=True)
class Segment:
    """A sealed segment: its folder's name, how much it has, the positions and times it reaches from and to.

    `crc32` is that of the manifest in its folder, which has those of its files.
    """

    name: str
    rounds: int
    samples: int
    bytes: int
    first: int
    last: int
    oldest: float
    newest: float
    crc32: int


@dataclass(frozen=True)
class Delta:
    """Rewards that came after their rounds were sealed: a folder's name and how many."""

    name: str
    rewards: int
    bytes: int
    crc32: int


@dataclass(frozen=True)
class ShardPiece:
    """The shards of some more arms: a folder's name, and how many arms."""

    name: str
    arms: int
    bytes: int
    crc32: int


@dataclass(frozen=True)
class NormPiece:
    """The lengths of the contexts of some more rounds that are summed up: a folder's name, and how many rounds."""

    name: str
    rounds: int
    bytes: int
    crc32: int


@dataclass(frozen=True)
class Sums:
    """What the first rounds add up to: a folder's name, and for each time that some were summed up the position of the
    last of them and the position up to which their rewards count; later ones do not.

    Those of them that are older than `before` are deleted, or will be. Their segments have only the samples that are
    still read. `norms`, a number a round, is in pieces, so that more rounds do not write all of it again.
    """

    name: str
    steps: tuple[tuple[int, int], ...]
    before: float
    norms: tuple[NormPiece, ...]
    bytes: int
    crc32: int

    @classmethod
    def read(cls, facts: Any) -> Sums:
        """From what was stored of it."""
        norms = tuple(NormPiece(**piece) for piece in facts["norms"])
        return cls(**{**facts, "steps": tuple((a, b) for a, b in facts["steps"]), "norms": norms})

    def names(self) -> set[str]:
        return {self.name, *(piece.name for piece in self.norms)}


@dataclass(frozen=True)
class Manifest:
    """What is sealed of a log.

    Every decision up to the position `decisions` is in a segment; every reward of these up to the position `rewards` is
    in a segment or in a delta. `id` is what the log knows these segments by, `generation` counts the manifests,
    `forgotten` is how many decisions had been deleted from the log when the segments last agreed with it. `shards` is
    their number so far, `next` the number of the next folder: no name is used twice.
    """

    id: str
    generation: int = 0
    next: int = 1
    decisions: int = 0
    rewards: int = 0
    forgotten: int = 0
    shards: int = 0
    shard_pieces: tuple[ShardPiece, ...] = ()
    segments: tuple[Segment, ...] = ()
    deltas: tuple[Delta, ...] = ()
    sums: Sums | None = None

    @property
    def summed(self) -> int:
        """The position up to which rounds are summed up; 0 if none is."""
        return 0 if self.sums is None else self.sums.steps[-1][0]

    @property
    def rounds(self) -> int:
        return sum(segment.rounds for segment in self.segments)

    def names(self) -> set[str]:
        """The folders that count."""
        listed = [*(p.name for p in self.shard_pieces), *(s.name for s in self.segments)]
        return {*listed, *(d.name for d in self.deltas), *([] if self.sums is None else self.sums.names())}

    def named(self, kind: str) -> tuple[str, Manifest]:
        """A name for a new folder, and the manifest that does not give it again."""
        return f"{kind}-{self.next:08d}", replace(self, next=self.next + 1)

    def text(self) -> bytes:
        facts = {"format": FORMAT, "version": VERSION, **asdict(self)}
        facts = json.loads(json.dumps(facts))  # lists for tuples, as they are read again
        return json.dumps({**facts, "crc32": manifest_checksum(facts)}, indent=1).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Raises SegmentError for a manifest that cannot be trusted."""
        try:
            facts: Any = json.loads(path.read_bytes())
            kind, version, checksum = facts.pop("format"), facts.pop("version"), facts.pop("crc32")
        except (ValueError, KeyError, AttributeError, TypeError, OSError) as error:
            raise SegmentError(f"{path} cannot be read: {error}") from None
        if (kind, version) != (FORMAT, VERSION):
            raise SegmentError(f"{path} is {kind} {version}; this treetop reads {FORMAT} {VERSION}")
        if checksum != manifest_checksum({"format": kind, "version": version, **facts}):
            raise SegmentError(f"{path} does not have its own checksum; it is corrupt")
        for name, made in (("shard_pieces", ShardPiece), ("segments", Segment), ("deltas", Delta)):
            facts[name] = tuple(made(**part) for part in facts[name])
        if facts["sums"] is not None:
            facts["sums"] = Sums.read(facts["sums"])
        return cls(**facts)


@dataclass(frozen=True)
class SegmentFolder:
    """The folder of a bandit's segments. Any number of processes may use it: they take turns by a lock beside it."""

    path: Path

    @property
    def lock_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}.lock")

    @contextmanager
    def reading(self) -> Iterator[Manifest | None]:
        """The manifest, None if nothing is sealed; what it lists stays until the end."""
        if not self.path.is_dir():
            yield None
            return
        with locked(self.lock_path, LOCK_TIMEOUT, shared=True):
            yield self.manifest()

    @contextmanager
    def changing(self) -> Iterator[Manifest | None]:
        """The same for who changes something: nobody else reads or writes. Deletes what a killed process left."""
        with locked(self.lock_path, LOCK_TIMEOUT):
            if not self.path.is_dir():
                self.path.mkdir(mode=0o700)
                sync_folder(self.path.parent)
            found = self.manifest()
            self.clear(found)
            yield found

    def delete(self) -> int:
        """Deletes all of it; how many folders it had."""
        with locked(self.lock_path, LOCK_TIMEOUT):
            return self._delete()

    def delete_other_version(self) -> None:
        """Deletes all of it if it has another version than this software writes; the log has what it held."""
        with locked(self.lock_path, LOCK_TIMEOUT):
            if _version(self.path / MANIFEST) not in (None, VERSION):
                self._delete()

    def _delete(self) -> int:
        count = sum(path.is_dir() for path in self.path.iterdir())
        (self.path / MANIFEST).unlink(missing_ok=True)  # first: without it, nothing else counts
        sync_folder(self.path)
        shutil.rmtree(self.path)
        return count

    def manifest(self) -> Manifest | None:
        path = self.path / MANIFEST
        return Manifest.read(path) if path.exists() else None

    def store(self, manifest: Manifest) -> Manifest:
        """Makes a manifest the one that counts, and deletes what it does not list."""
        sync_folder(self.path)
        put(self.path / MANIFEST, lambda file: file.write(manifest.text()))
        self.clear(manifest)
        return manifest

    def clear(self, manifest: Manifest | None) -> None:
        """Deletes the folders that a manifest does not list. A name that is in use is never given again."""
        kept = set() if manifest is None else manifest.names()
        for path in self.path.iterdir():
            if path.is_dir() and path.name not in kept:
                shutil.rmtree(path)
            elif path.name.endswith(".part"):
                path.unlink()


def _version(path: Path) -> int | None:
    """The version that a manifest says it has; None if there is none, or if nothing can be read from it."""
    try:
        facts: Any = json.loads(path.read_bytes())
        return int(facts["version"]) if facts["format"] == FORMAT else None
    except (ValueError, KeyError, TypeError, OSError):
        return None
