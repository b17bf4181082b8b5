"""The data of the charts, of bounded length, in the form that the page's script takes."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from treetop.arrays import Floats
from treetop.log.series import EDGES, Cell
from treetop.service.dashboard.board import Board

MAX_POINTS = 150  # in a line
GAP = 8  # times the usual step between two points: no line is drawn across


def series(board: Board) -> dict[str, Any]:
    """Data of every chart; null where there is nothing to draw."""
    times = [now for now, _ in board.latencies]
    lines = [[None if found is None else 1000 * found[i] for _, found in board.latencies] for i in range(3)]
    charts: dict[str, Any] = {"latency": [times, *lines]}
    if board.logged is not None:
        figures = board.logged.figures
        charts.update(over_time(figures.cells, figures.bucket, time.time()))
        charts["propensity"] = {"counts": figures.propensities.tolist(), "edges": EDGES.tolist()}
    return charts


def over_time(cells: tuple[Cell, ...], bucket: float, now: float) -> dict[str, Any]:
    """Mean reward of greedy and explored slots, share of slots explored, and the epoch that served, by time.

    A stretch of time that is not over yet is left out, if there are others: its few rewards would look like a jump.
    """
    if not cells:
        return {"reward": [[], [], [], []], "explored": [[], []]}
    times = np.array([cell.time for cell in cells])
    numbers = np.array([[cell.decisions, *cell.slots, *cell.observed, *cell.reward] for cell in cells])
    epochs = np.array([cell.epoch for cell in cells])
    step = bucket * max(1, math.ceil((times[-1] - times[0] + bucket) / bucket / MAX_POINTS))
    over = np.floor(times / step) < np.floor(now / step)
    if over.any():
        times, numbers, epochs = times[over], numbers[over], epochs[over]
    stretch = np.floor(times / step).astype(np.int64)
    at, where = np.unique(stretch, return_inverse=True)
    sums = np.zeros((len(at), numbers.shape[1]))
    np.add.at(sums, where.ravel(), numbers)
    reward = [_ratio(sums[:, 5], sums[:, 3]), _ratio(sums[:, 6], sums[:, 4])]
    explored = [_ratio(sums[:, 2], sums[:, 1] + sums[:, 2])]
    served = _busiest(where.ravel(), epochs, numbers[:, 0], len(at))
    return {"reward": _broken(at * step, [*reward, served]), "explored": _broken(at * step, explored)}


def _broken(times: Floats, lines: list[list[Any]]) -> list[list[Any]]:
    """Inserts an empty point into every long gap, so that no line is drawn across it; the epoch goes on."""
    gaps = np.diff(times)
    wide = np.flatnonzero(gaps > GAP * np.median(gaps)) if len(gaps) else np.zeros(0, np.int64)
    out = [times.tolist(), *(list(line) for line in lines)]
    for i in reversed(wide.tolist()):
        out[0].insert(i + 1, float(times[i] + gaps[i] / 2))
        for line in out[1:]:
            line.insert(i + 1, line[i] if isinstance(line[i], int) else None)
    return out


def _ratio(part: Floats, whole: Floats) -> list[float | None]:
    return [float(a / b) if b else None for a, b in zip(part, whole, strict=True)]


def _busiest(where: Any, epochs: Any, decisions: Any, count: int) -> list[int]:
    """The epoch with most decisions in each stretch."""
    order = np.lexsort((epochs, decisions, where))
    last = np.flatnonzero(np.diff(where[order], append=count))
    return [int(epoch) for epoch in epochs[order][last]]


def by_epoch(cells: tuple[Cell, ...]) -> dict[int, tuple[int, float | None, float | None]]:
    """Decisions, and mean reward of greedy and of explored slots, of each epoch."""
    sums: dict[int, list[float]] = {}
    for cell in cells:
        row = sums.setdefault(cell.epoch, [0.0] * 5)
        for i, value in enumerate((cell.decisions, *cell.observed, *cell.reward)):
            row[i] += value
    return {
        epoch: (int(s[0]), s[3] / s[1] if s[1] else None, s[4] / s[2] if s[2] else None) for epoch, s in sums.items()
    }
