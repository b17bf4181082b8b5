"""Visits of an experiment and their rewards, as they come: what a stretch of the log adds to it. Knows no interval."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetop.arrays import Floats, Ints
from treetop.log.connection import Connection

BUCKETS = 512  # that units are counted in
_UNIT = "LEFT JOIN treetop_keys k ON k.decision = d.position AND k.key_name = ?"
_WHO = "coalesce(k.key_value, d.event_id)"
_VISITS = f"SELECT d.time, d.settings, {_WHO} FROM treetop_decisions d {_UNIT}"
_BEFORE = """(SELECT b.value FROM treetop_rewards b WHERE b.decision = r.decision AND b.slot = r.slot
    AND b.position < r.position ORDER BY b.position DESC LIMIT 1)"""  # what a correction replaces
_REWARDS = f"""SELECT d.time, d.settings, {_WHO}, r.value - coalesce({_BEFORE}, 0) FROM treetop_rewards r
    JOIN treetop_decisions d ON d.position = r.decision {_UNIT}"""


@dataclass(frozen=True, eq=False)
class VariantRows:
    """For each visit, or reward, the time of its visit, which of `names` it was decided by, and the bucket of its unit.

    `values` are those of the rewards, 1 for visits; that of a correction is what it adds to the reward it replaces.
    """

    names: tuple[str, ...]
    times: Floats
    variants: Ints
    buckets: Ints
    values: Floats


def bucket_of(unit: str) -> int:
    """Units are many, buckets few: which one a unit is counted in, by a hash.

    >>> 0 <= bucket_of("visitor-1") < BUCKETS, bucket_of("visitor-1") == bucket_of("visitor-1")
    (True, True)
    """
    return int.from_bytes(hashlib.blake2b(b"bucket " + unit.encode(), digest_size=4).digest(), "big") % BUCKETS


def read_variant_rows(
    connection: Connection, experiment: str, unit: str, low: int, high: int
) -> tuple[VariantRows, VariantRows]:
    """The visits at positions in (low, high] that an experiment decided, and the rewards there of its visits.

    `unit` is the name of the key that says who asked.
    """
    named = {}
    for number, policy in connection.rows("SELECT id, policy FROM treetop_settings"):
        said = json.loads(policy) if '"experiment"' in policy else {}
        if said.get("experiment") == experiment:
            named[number] = str(said["variant"])
    if not named:
        return _rows([], named), _rows([], named)
    among = f"AND d.settings {connection.among}"
    chosen = connection.several(list(named))
    visits = connection.rows(f"{_VISITS} WHERE d.position > ? AND d.position <= ? {among}", unit, low, high, chosen)
    rewards = connection.rows(f"{_REWARDS} WHERE r.position > ? AND r.position <= ? {among}", unit, low, high, chosen)
    return _rows([(*row, 1.0) for row in visits], named), _rows(rewards, named)


def _rows(rows: Sequence[tuple[Any, ...]], named: dict[int, str]) -> VariantRows:
    names = tuple(sorted(set(named.values())))
    times, settings, units, values = zip(*rows, strict=True) if rows else ((), (), (), ())
    return VariantRows(
        names,
        np.array(times, np.float64),
        np.array([names.index(named[number]) for number in settings], np.int32),
        np.array([bucket_of(who) for who in units], np.int32),
        np.array(values, np.float64),
    )
