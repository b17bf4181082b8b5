"""Whatever ends sealing at whatever point: nothing is lost, nothing is there twice, and the next one goes on."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.sealing import START, check_same, fill, late, manifest, seal

from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.segments.manifest import SegmentFolder

WORKER = Path(__file__).parents[2] / "helpers" / "seal_worker.py"


class Crash(BaseException):
    """Nothing catches it, as nothing catches the end of a process."""


def crash_at(patch: pytest.MonkeyPatch, n: int) -> None:
    """The n-th sync of a file or folder from now on, and every later one, does not come back."""
    left = [n]

    def sync(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    patch.setattr(os, "fsync", sync)


def check_whole(folder: SegmentFolder, log: Log) -> None:
    """Sealed to the end, segments have every round of the log once."""
    check_same(folder, log)
    seal(folder, log, rest=True)
    check_same(folder, log)
    counts = log.counts()
    assert manifest(folder).rounds == counts.decisions - counts.forgotten
    assert {path.name for path in folder.path.iterdir()} == {"manifest.json", *manifest(folder).names()}


def steps(tmp_path: Path, patch: pytest.MonkeyPatch, n: int) -> bool:
    """Seals, seals again with late rewards, and after deletions, and crashes at the n-th sync; whether it did."""
    folder, crashed = SegmentFolder(tmp_path / f"segments-{n}"), False
    with open_log(tmp_path / f"log-{n}.sqlite") as log:
        fill(log, range(12))
        with patch.context() as inner:
            crash_at(inner, n)
            try:
                seal(folder, log, rounds=6)
                late(log, range(4))
                fill(log, range(12, 16))
                seal(folder, log, rounds=6, rest=True)
                log.forget(START + 3)
                seal(folder, log, rounds=6)
            except Crash:
                crashed = True
        check_whole(folder, log)
    return crashed


def test_a_crash_at_any_sync_leaves_the_manifest_as_before_or_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 0
    while steps(tmp_path, monkeypatch, n):
        n += 7 if n > 30 else 3  # 22 syncs a segment: other points of it each time
    assert n > 80


def test_sealing_killed_at_random_points_loses_and_doubles_nothing(place: str, tmp_path: Path) -> None:
    folder = SegmentFolder(tmp_path / "segments")
    generations = [0]
    for round in range(20 if place.endswith(".sqlite") else 5):
        first = round * 100_000
        command = [sys.executable, str(WORKER), place, str(folder.path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(random.random() * 0.4)
            process.kill()
        with open_log(place) as log:
            check_same(folder, log)
            generations.append(manifest(folder).generation)
    assert generations == sorted(set(generations))  # each of them sealed, and went on from the one before
    with open_log(place) as log:
        check_whole(folder, log)
