"""Decisions in columns with how each was made, as judging other policies reads them. Knows no files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from treetop.arrays import Float32s, Floats, Int64s, Ints
from treetop.log.connection import Connection
from treetop.log.pack import unpack_contexts, unpack_slots
from treetop.log.write import Settings

_DECISIONS = (
    "SELECT position, time, settings, eligible, removals, context, slots FROM treetop_decisions "
    "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_REWARDS = (
    "SELECT decision, slot, value FROM treetop_rewards WHERE decision BETWEEN ? AND ? AND position <= ? "
    "ORDER BY position"  # the last one counts
)


@dataclass(frozen=True, eq=False)
class DecidedRounds:
    """n decisions in the order of their commits, with the rewards known when they were read.

    `settings` says with which of `made` (epoch, model, tree, policy) each was decided, `eligible` which list of arms it
    named, `removals` how many arms had been removed. Slots are (n, k), padded with arm -1; a reward is NaN where none
    is known. Contexts are compressed sparse rows.
    """

    positions: Int64s
    times: Floats
    settings: Int64s
    made: tuple[Settings, ...]
    eligible: tuple[str, ...]
    removals: Int64s
    start: Int64s
    index: Ints
    value: Float32s
    arms: Ints
    propensities: Floats
    rewards: Floats

    def __len__(self) -> int:
        return len(self.positions)


def decided_rounds(
    reading: Callable[[], AbstractContextManager[Connection]], until: int, size: int, after: int = 0
) -> Iterator[DecidedRounds]:
    """Every decision behind a position and up to another, in chunks, each read in a transaction of its own."""
    at = after
    while True:
        with reading() as connection:
            chunk = _read(connection, at, until, size)
        if chunk is None:
            return
        at = int(chunk.positions[-1])
        yield chunk


def _read(connection: Connection, after: int, until: int, size: int) -> DecidedRounds | None:
    rows = connection.rows(_DECISIONS, after, until, size)
    if not rows:
        return None
    rewarded = connection.rows(_REWARDS, rows[0][0], rows[-1][0], until)
    at, times, numbers, eligible, removals, packed_contexts, packed_slots = zip(*rows, strict=True)
    positions = np.array(at, np.int64)
    contexts, slots = unpack_contexts(packed_contexts), unpack_slots(packed_slots)
    rewards = np.full(slots.arms.shape, np.nan)
    if rewarded:
        decision, slot, value = zip(*rewarded, strict=True)
        rewards[np.searchsorted(positions, decision), np.array(slot)] = value
    used, settings = np.unique(np.array(numbers, np.int64), return_inverse=True)
    return DecidedRounds(
        positions,
        np.array(times, np.float64),
        settings.astype(np.int64),
        _made(connection, used),
        eligible,
        np.array(removals, np.int64),
        contexts.start,
        contexts.index,
        contexts.value,
        slots.arms,
        slots.propensities,
        rewards,
    )


def _made(connection: Connection, numbers: Int64s) -> tuple[Settings, ...]:
    sql = f"SELECT id, epoch, model, tree, policy FROM treetop_settings WHERE id {connection.among}"
    found = {row[0]: tuple(row[1:]) for row in connection.rows(sql, connection.several(numbers.tolist()))}
    return tuple(found[number] for number in numbers.tolist())
