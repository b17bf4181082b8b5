"""Whether segments are those of a log. Positions say which round is which, so they mean nothing for another log.

Every folder of segments has an id of its own, and the log keeps the number of the newest manifest of each. A log that
was put back from a backup knows an older number than a folder has, or none: the folder may hold rounds that the log has
lost, so it does not count, and is made again under a new id. Hosts that share a log thus never touch each other's.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

from treetop.log.base import Log
from treetop.log.blocks import RewardRows
from treetop.log.records import Counts
from treetop.log.segments.manifest import Manifest, SegmentFolder

NAME = "segment folders"
MAX_FOLDERS = 1024  # that the log remembers; one that is forgotten is made again


def belongs(log: Log, manifest: Manifest, counts: Counts) -> bool:
    """Whether a manifest is of this log, though decisions may have been deleted from the log since."""
    newest = _generations(log.kept(NAME)).get(manifest.id, 0)
    return manifest.generation <= newest and manifest.rewards <= counts.position


def agrees(log: Log, manifest: Manifest) -> bool:
    """Whether segments have exactly what the log has, as far as they reach."""
    counts = log.counts()
    return belongs(log, manifest, counts) and manifest.forgotten == counts.forgotten


def own_manifest(log: Log, found: Manifest | None, counts: Counts) -> Manifest:
    """The manifest to go on from: the one found, or an empty one if that is not of this log."""
    if found is not None and belongs(log, found, counts):
        return found
    return Manifest(os.urandom(16).hex(), next=1 if found is None else found.next, forgotten=counts.forgotten)


def store(folder: SegmentFolder, log: Log, manifest: Manifest) -> Manifest:
    """Makes a manifest the one that counts; the log knows of it before."""

    def change(kept: bytes | None) -> bytes:
        known = _generations(kept)
        generation = max(manifest.generation, known.pop(manifest.id, 0)) + 1  # a copied folder may be ahead
        return json.dumps(dict([*known.items(), (manifest.id, generation)][-MAX_FOLDERS:])).encode()

    generation = _generations(log.keep_changed(NAME, change))[manifest.id]
    return folder.store(replace(manifest, generation=generation))


def newer_rewards(log: Log, manifest: Manifest, until: int) -> RewardRows:
    """Rewards up to a position that neither segments nor deltas have; for rounds that are summed up none counts."""
    found = log.late_rewards(manifest.rewards, max(until, manifest.rewards), manifest.decisions)
    return found.take(found.decisions > manifest.summed)


def _generations(kept: bytes | None) -> dict[str, int]:
    """The number of the newest manifest of each folder, that of the last one to seal last."""
    return {} if kept is None else dict(json.loads(kept))
