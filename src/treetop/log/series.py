"""Running totals of a log, for the dashboard. An update reads only what is new in the log."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Floats, Int64s, check_float, check_int
from treetop.log.base import Log
from treetop.log.records import LoggedRounds, Mark

NAME = "series"
CELLS = 2000  # with more than this many, buckets become twice as long
EDGES = np.concatenate([[0.0], 10.0 ** np.linspace(-6, 0, 25)])  # of the bins of propensities


@dataclass(frozen=True)
class Cell:
    """The totals of one bucket of time and one epoch; pairs are for (greedy, explored) slots."""

    time: float
    epoch: int
    decisions: int
    slots: tuple[int, int]
    observed: tuple[int, int]
    reward: tuple[float, float]


class LogSeries:
    """Running totals of a log. `update` does a bounded amount of work; `save` lets the next process continue from here.

    A reward counts for the time and the epoch of its decision, whenever it arrived. Not thread-safe.
    """

    def __init__(self, log: Log, bucket: float = 60.0) -> None:
        self.log, self.bucket, self.position = log, check_float("bucket", bucket, 1e-3), 0
        self._cells: dict[tuple[int, int], Floats] = {}  # decisions, then slots, observed and reward as pairs
        self.propensities: Int64s = np.zeros((2, len(EDGES) - 1), np.int64)  # greedy and explored slots by bin of EDGES
        self.exposure: Int64s = np.zeros(0, np.int64)  # how often each arm was shown
        if kept := log.kept(NAME):
            self._load(kept)

    def update(self, limit: int = 50_000) -> bool:
        """Reads up to `limit` more entries of the log; returns True when there is nothing more to read."""
        newest = self.log.counts().position
        until = min(newest, self.position + check_int("limit", limit, 1))
        for chunk in self.log.samples(Mark("", until, 0.0), Mark("", self.position, 0.0)):
            self._add(chunk)
        self.position = until
        return until == newest

    def cells(self) -> list[Cell]:
        """Oldest first, then by epoch."""
        rows = ((at, epoch, self._cells[at, epoch].tolist()) for at, epoch in sorted(self._cells))
        return [
            Cell(at * self.bucket, epoch, int(c[0]), (int(c[1]), int(c[2])), (int(c[3]), int(c[4])), (c[5], c[6]))
            for at, epoch, c in rows
        ]

    def coverage(self, arms: int) -> tuple[int, float]:
        """How many arms were ever shown, and the Gini coefficient of their exposure among `arms` arms (0: equal)."""
        shown = self.exposure[self.exposure > 0]
        n = max(arms, len(self.exposure))
        if not len(shown):
            return 0, 0.0
        ordered = np.sort(shown).astype(np.float64)
        rank = np.arange(n - len(ordered) + 1, n + 1)
        return len(shown), float(2 * (rank * ordered).sum() / (n * ordered.sum()) - (n + 1) / n)

    def _add(self, chunk: LoggedRounds) -> None:
        real_slots = chunk.arms >= 0
        fresh = real_slots & chunk.new[:, None]
        known = ~np.isnan(chunk.rewards)
        self._add_cells(chunk, fresh, known)
        shown = chunk.arms[fresh]
        if len(shown):
            counts = np.bincount(shown, minlength=len(self.exposure))
            counts[: len(self.exposure)] += self.exposure
            self.exposure = counts
        for how in (0, 1):
            slots = fresh & (chunk.explored == bool(how))
            self.propensities[how] += np.histogram(np.minimum(chunk.propensities[slots], 1.0), EDGES)[0]

    def _add_cells(self, chunk: LoggedRounds, fresh: Bools, known: Bools) -> None:
        at = np.floor(chunk.times / self.bucket).astype(np.int64)
        keys, cell = np.unique(np.stack([at, chunk.epochs], axis=1), axis=0, return_inverse=True)
        sums = np.zeros((len(keys), 7))
        explored = chunk.explored
        rewards = np.where(known, chunk.rewards, 0.0)
        columns: list[NDArray[np.float64 | np.bool_ | np.int64]] = [
            chunk.new,
            (fresh & ~explored).sum(1),
            (fresh & explored).sum(1),
            (known & ~explored).sum(1),
            (known & explored).sum(1),
            (rewards * ~explored).sum(1),
            (rewards * explored).sum(1),
        ]
        for column, values in enumerate(columns):
            np.add.at(sums[:, column], cell.ravel(), values)
        for (bucket, epoch), row in zip(keys.tolist(), sums, strict=True):
            self._cells[bucket, epoch] = self._cells.get((bucket, epoch), np.zeros(7)) + row
        while len(self._cells) > max(CELLS, 2 * len({epoch for _, epoch in self._cells})):
            self._coarsen()

    def _coarsen(self) -> None:
        self.bucket *= 2
        halves, self._cells = self._cells, {}
        for (bucket, epoch), row in halves.items():
            key = (bucket // 2, epoch)
            self._cells[key] = self._cells.get(key, np.zeros(7)) + row

    def save(self) -> None:
        """Stores the totals in the log itself."""
        out = io.BytesIO()
        keys = np.array(list(self._cells), np.int64).reshape(-1, 2)
        sums = np.array(list(self._cells.values()), np.float64).reshape(-1, 7)
        np.savez_compressed(
            out,
            about=np.array([self.bucket, self.position]),
            keys=keys,
            sums=sums,
            edges=EDGES,
            propensities=self.propensities,
            exposure=self.exposure,
        )
        self.log.keep(NAME, out.getvalue())

    def _load(self, kept: bytes) -> None:
        """Continues from stored totals; if they cannot be read, everything is counted again."""
        try:
            with np.load(io.BytesIO(kept)) as found:
                arrays = dict(found)
        except (zipfile.BadZipFile, ValueError, EOFError):
            return
        if np.array_equal(arrays["edges"], EDGES):
            self.bucket, self.position = float(arrays["about"][0]), int(arrays["about"][1])
            self._cells = {(b, e): row for (b, e), row in zip(arrays["keys"].tolist(), arrays["sums"], strict=True)}
            self.propensities, self.exposure = arrays["propensities"], arrays["exposure"]
