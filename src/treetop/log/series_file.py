"""The totals of a log in a file, so that the next process continues from there.

The log itself keeps a random tag, and the file of its totals carries the same: the totals of another log are not taken.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from treetop.log.arm_counts import ARM, ArmCounts
from treetop.log.base import Log
from treetop.log.series import LogSeries
from treetop.log.timeline import Stretch, Timeline
from treetop.log.visit_totals import COLUMNS, EDGES, VisitTotals

NAME = "series"  # of the tag in the log
FORMAT = 4


def save_series(series: LogSeries, path: Path) -> None:
    """Replaces the file. It is not synced: if it is lost, everything is counted again."""
    visits, arms = list(series.visits), list(series.arms)
    tables = [stretch.sums.table() for stretch in arms]
    part = path.with_name(path.name + ".new")  # not .part: who opens the folder clears those away
    with part.open("wb") as file:
        np.savez_compressed(
            file,
            format=np.array([FORMAT]),
            tag=np.frombuffer(_tag(series.log), np.uint8),
            edges=EDGES,
            position=np.array([series.position, series.last[0]]),
            last=np.array([series.last[1]]),
            visits_about=_about(series.visits),
            visits_bounds=_bounds(visits),
            row_counts=np.array([len(stretch.sums.rows) for stretch in visits], np.int64),
            keys=np.array([key for stretch in visits for key in stretch.sums.rows], np.int64).reshape(-1, 2),
            rows=np.array([row for stretch in visits for row in stretch.sums.rows.values()]).reshape(-1, COLUMNS),
            propensities=np.array([stretch.sums.propensities for stretch in visits], np.int64),
            arms_about=_about(series.arms),
            arms_bounds=_bounds(arms),
            found_by=series.found_by,
            table_sizes=np.array([len(table) for table in tables], np.int64),
            table=np.concatenate([np.zeros(0, ARM), *tables]),
        )
    part.replace(path)


def load_series(log: Log, path: Path) -> LogSeries:
    """Totals that continue from a file; from the beginning if there is none, or none of this log."""
    series = LogSeries(log)
    try:
        with np.load(path) as found:
            arrays = dict(found)
    except (OSError, zipfile.BadZipFile, ValueError, EOFError):
        return series
    if arrays["format"].tolist() == [FORMAT] and np.array_equal(arrays["edges"], EDGES) and _belongs(log, arrays):
        _restore(series, arrays)
    return series


def _tag(log: Log) -> bytes:
    tag = log.kept(NAME)
    if tag is None:
        tag = os.urandom(16)
        log.keep(NAME, tag)
    return tag


def _belongs(log: Log, arrays: dict[str, Any]) -> bool:
    """Whether totals are of this log, and of no more than is in it: it may have been restored from a backup."""
    position, last = arrays["position"].tolist()
    if arrays["tag"].tobytes() != log.kept(NAME) or position > log.counts().position:
        return False
    newest = log.events_at([last])
    return not newest or newest[0].event.time == float(arrays["last"][0])  # retention may have deleted it


def _about(timeline: Timeline[Any]) -> Any:
    return np.array([timeline.shortest, timeline.detail, timeline.now, timeline.floor], np.int64)


def _bounds(stretches: list[Stretch[Any]]) -> Any:
    return np.array([(stretch.begin, stretch.end) for stretch in stretches], np.int64).reshape(-1, 2)


def _restore(series: LogSeries, arrays: dict[str, Any]) -> None:
    position, last = arrays["position"].tolist()
    series.position, series.last = position, (last, float(arrays["last"][0]))
    for timeline, about in ((series.visits, arrays["visits_about"]), (series.arms, arrays["arms_about"])):
        timeline.shortest, timeline.detail, timeline.now, timeline.floor = about.tolist()
    series.found_by = arrays["found_by"]
    ends = np.cumsum(arrays["row_counts"])
    keys, rows = np.split(arrays["keys"], ends[:-1]), np.split(arrays["rows"], ends[:-1])
    for i, (begin, end) in enumerate(arrays["visits_bounds"].tolist()):
        by_key = {(epoch, k): row for (epoch, k), row in zip(keys[i].tolist(), rows[i], strict=True)}
        series.visits.put(begin, end, VisitTotals(by_key, arrays["propensities"][i]))
    tables = np.split(arrays["table"], np.cumsum(arrays["table_sizes"])[:-1])
    for (begin, end), table in zip(arrays["arms_bounds"].tolist(), tables, strict=False):
        series.arms.put(begin, end, ArmCounts(table.copy()))
