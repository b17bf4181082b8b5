"""Whatever ends sealing at whatever point: nothing is lost, nothing is there twice, and the next one goes on."""

import os
import random
import signal
import time
from itertools import count
from pathlib import Path

import pytest
from helpers.sealing import START, check_same, fill, late, manifest, seal
from helpers.waiting import wait_until

from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.segments.manifest import SegmentFolder


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


def seal_until_killed(place: str, folder: SegmentFolder, first: int, sealed: Path) -> None:
    """Decides, rewards, deletes and seals; `sealed` is there when it has sealed once."""
    with open_log(place) as log:
        for step in count():
            at = first + step * 12
            fill(log, range(at, at + 12), keep=0.4)
            rest = step % 2 == 1
            seal(folder, log, rounds=20, rest=rest)
            late(log, range(at, at + 6))
            if step % 4 == 3:
                log.forget(START + at - 100)
            if rest:
                sealed.touch()


def test_sealing_killed_at_random_points_loses_and_doubles_nothing(place: str, tmp_path: Path) -> None:
    folder = SegmentFolder(tmp_path / "segments")
    generations = [0]
    for round in range(8 if place.endswith(".sqlite") else 5):
        sealed = tmp_path / f"sealed-{round}"
        child = os.fork()  # a new Python would take longer to start than all that it does
        if child == 0:
            try:
                seal_until_killed(place, folder, round * 100_000, sealed)
            finally:
                os._exit(1)
        try:
            wait_until(sealed.exists)
            time.sleep(random.random() * 0.03)  # some steps of it
        finally:
            os.kill(child, signal.SIGKILL)
            assert os.waitpid(child, 0)[1] == signal.SIGKILL  # and did not end before
        with open_log(place) as log:
            check_same(folder, log)
            generations.append(manifest(folder).generation)
    assert generations == sorted(set(generations))  # each of them sealed, and went on from the one before
    with open_log(place) as log:
        check_whole(folder, log)
