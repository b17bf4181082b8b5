"""How requests went, by time: each worker adds a line to requests.jsonl every few seconds, the dashboard reads them.

A line has what one worker counted since its last one, and is written only if there was a request. The file is renamed
when it is large, and the one before is dropped, so both together are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from treetop.arrays import Int64s
from treetop.files import locked
from treetop.log.timeline import Timeline
from treetop.service import logs
from treetop.service.metrics import SECONDS, Metrics, Sample

CURRENT, BEFORE, LOCK = "requests.jsonl", "requests.before.jsonl", ".requests.lock"
INTERVAL = 10.0  # seconds between two lines
VISITED_INTERVAL = 2.0  # while somebody looks
LARGEST = 8 << 20  # bytes of a file
BATCH = 2000  # lines that are added up at a time
SHORTEST, DETAIL = 2, 100  # of the timeline, as in log/series.py
DECIDE = "/v1/decide"
FEATURES = {"unknown": "treetop_unknown_features_total", "clipped": "treetop_clipped_features_total"}


class Recorder:
    """Writes the lines of one worker."""

    def __init__(self, folder: Path, metrics: Metrics) -> None:
        self._folder, self._metrics = folder, metrics
        self._seen, self._at = metrics.samples(), time.time()
        self._failed, self._lock = "", threading.Lock()

    async def run(self) -> None:
        """Writes a line every INTERVAL until it is cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await asyncio.to_thread(self.record)

    def visited(self) -> None:
        """Writes a line if the last one is a little old, so that a visitor sees what has just happened."""
        if time.time() - self._at >= VISITED_INTERVAL:
            self.record()

    def record(self) -> None:
        """Writes what was counted since the last time. A disk that is full costs the line and nothing else."""
        with self._lock:
            found, now = self._metrics.samples(), time.time()
            line = _line(self._seen, found, (self._at + now) / 2)
            self._seen, self._at = found, now
            try:
                if line is not None:
                    _append(self._folder, json.dumps(line, separators=(",", ":")).encode() + b"\n")
                self._failed = ""
            except OSError as error:
                if str(error) != self._failed:
                    logs.log_event("requests.jsonl cannot be written", logging.WARNING, why=str(error))
                self._failed = str(error)


def _line(before: Mapping[Sample, float], now: Mapping[Sample, float], at: float) -> dict[str, Any] | None:
    """What was counted between two readings; None if nothing was."""
    changed = {sample: int(value - before.get(sample, 0.0)) for sample, value in now.items()}
    requests: dict[str, dict[str, int]] = {}
    below: dict[float, int] = {}
    for (name, labels), count in changed.items():
        label = dict(labels)
        if name == "treetop_requests_total" and count and label["route"].startswith("/v1/"):
            requests.setdefault(label["route"], {})[label["status"]] = count
        elif name == "treetop_request_seconds_bucket" and label["route"] == DECIDE:
            below[float(label["le"])] = count
    if not requests:
        return None
    took = np.diff([below[edge] for edge in sorted(below)], prepend=0).tolist()
    features = {short: changed[name, frozenset()] for short, name in FEATURES.items() if (name, frozenset()) in changed}
    return {"time": round(at, 1), "requests": requests, "took": took, **features}


def _append(folder: Path, line: bytes) -> None:
    path = folder / CURRENT
    with path.open("ab") as file:
        file.write(line)
        size = file.tell()
    if size > LARGEST:
        with locked(folder / LOCK, 1.0):  # of several workers that find it too large, one renames it
            if path.stat().st_size > LARGEST:
                path.replace(folder / BEFORE)


@dataclass(eq=False)
class RequestTotals:
    """Requests by (route, status), how long decisions took by the buckets of SECONDS, and odd features.

    `features` has "unknown" and, if the service counts them, "clipped".
    """

    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    took: Int64s = field(default_factory=lambda: np.zeros(len(SECONDS) + 1, np.int64))
    features: dict[str, int] = field(default_factory=dict)

    def absorb(self, other: RequestTotals) -> None:
        for key, count in other.requests.items():
            self.requests[key] = self.requests.get(key, 0) + count
        for name, count in other.features.items():
            self.features[name] = self.features.get(name, 0) + count
        self.took = self.took + other.took

    def add(self, line: dict[str, Any]) -> None:
        for route, by_status in line["requests"].items():
            for status, count in by_status.items():
                self.requests[route, status] = self.requests.get((route, status), 0) + count
        for name in FEATURES:
            if name in line:
                self.features[name] = self.features.get(name, 0) + line[name]
        if len(line["took"]) == len(self.took):
            self.took = self.took + np.array(line["took"], np.int64)


class RequestSeries:
    """The lines of all workers, added up by time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.timeline = Timeline(RequestTotals, SHORTEST, DETAIL)
        self._file: BinaryIO | None = None
        self._inode = 0  # of the file that is open
        self._rest = b""  # of a line that is being written
        with contextlib.suppress(FileNotFoundError), (folder / BEFORE).open("rb") as file:
            self._read(file)
        self._rest = b""

    def update(self) -> None:
        """Reads the lines that are new."""
        self.timeline.advance(time.time())
        if self._file is not None:
            self._read(self._file)
        with contextlib.suppress(FileNotFoundError):
            if self._file is None or _inode(self.folder / CURRENT) != self._inode:
                self.close()
                self._file = (self.folder / CURRENT).open("rb")
                self._inode = _inode(self.folder / CURRENT)
                self._read(self._file)

    def total(self, begin: float, end: float) -> RequestTotals:
        """The totals of a range of time."""
        out = RequestTotals()
        for stretch in self.timeline.between(begin, end):
            out.absorb(stretch.sums)
        return out

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file, self._rest = None, b""

    def _read(self, file: BinaryIO) -> None:
        self.timeline.advance(time.time())
        lines = (self._rest + file.read()).split(b"\n")
        self._rest = lines.pop()
        for begin in range(0, len(lines), BATCH):
            found = [line for text in lines[begin : begin + BATCH] if (line := _parsed(text)) is not None]
            if found:
                sums, which = self.timeline.at(np.array([float(line["time"]) for line in found]))
                for line, i in zip(found, which.tolist(), strict=True):
                    sums[i].add(line)


def _parsed(text: bytes) -> dict[str, Any] | None:
    """A line, or None for what a crash left of one."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and {"time", "requests", "took"} <= line.keys() else None


def _inode(path: Path) -> int:
    return path.stat().st_ino
