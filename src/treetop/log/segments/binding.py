"""Whether segments are those of a log. Positions say which round is which, so they mean nothing for another log.

The log keeps an id and the number of the newest manifest. A log that was put back from a backup knows an older number
than the segments, which may then hold rounds that the log has lost: they do not count, and are made again.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

from treetop.log.base import Log
from treetop.log.records import Counts
from treetop.log.segments.manifest import Manifest, SegmentFolder

NAME = "segments"


def belongs(log: Log, manifest: Manifest, counts: Counts) -> bool:
    """Whether a manifest is of this log, though decisions may have been deleted from the log since."""
    kept = log.kept(NAME)
    if kept is None:
        return False
    known = json.loads(kept)
    newer = manifest.generation > known["generation"] or manifest.rewards > counts.position
    return manifest.log == known["id"] and not newer


def agrees(log: Log, manifest: Manifest) -> bool:
    """Whether segments have exactly what the log has, as far as they reach."""
    counts = log.counts()
    return belongs(log, manifest, counts) and manifest.forgotten == counts.forgotten


def own_manifest(log: Log, found: Manifest | None, counts: Counts) -> Manifest:
    """The manifest to go on from: the one found, or an empty one if that is of another log."""
    if found is not None and belongs(log, found, counts):
        return found
    kept = log.kept(NAME)
    if found is not None or kept is None:  # a new id: segments that other hosts have of it must not count either
        return Manifest(os.urandom(16).hex(), next=1 if found is None else found.next, forgotten=counts.forgotten)
    known = json.loads(kept)
    return Manifest(known["id"], known["generation"], forgotten=counts.forgotten)


def store(folder: SegmentFolder, log: Log, manifest: Manifest) -> Manifest:
    """Makes a manifest the one that counts; the log knows of it before. Its number is above that of every host."""
    kept = log.kept(NAME)
    known = 0 if kept is None else json.loads(kept)["generation"]
    manifest = replace(manifest, generation=max(manifest.generation, known) + 1)
    log.keep(NAME, json.dumps({"id": manifest.log, "generation": manifest.generation}).encode())
    return folder.store(manifest)
