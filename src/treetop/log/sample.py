"""Reads decisions and their rewards as arrays, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from treetop.arrays import Floats, Ints
from treetop.log.connection import Connection
from treetop.log.pack import slot_counts, unpack_components, unpack_contexts, unpack_slots
from treetop.log.rounds import LoggedRounds

_DECISIONS = "SELECT position, time, settings, context, slots, components FROM treetop_decisions WHERE position"
_REWARDS = "SELECT decision, slot, value FROM treetop_rewards WHERE position > ? AND position <= ? AND decision"
_LAST = "ORDER BY position"  # of several rewards of a slot, the last one counts
# By position alone: with a condition on decisions, SQLite would read the rewards of every older decision.
NEWER_REWARDS = "SELECT decision FROM treetop_rewards WHERE position > ? AND position <= ?"


@dataclass(frozen=True)
class View:
    """What to read: rewards at positions in (low, high]; `Log.samples` explains the rest."""

    low: int
    high: int
    size: int
    tree: str | None = None
    default: float | None = None
    overdue: float = -np.inf  # unobserved slots of decisions made up to this time count as `default`
    after: int = 0  # decisions up to this position are left out

    def chunks(self, reading: Callable[[], AbstractContextManager[Connection]]) -> Iterator[LoggedRounds]:
        """First older decisions with newer rewards, then newer decisions, each in the order of their positions."""
        if self.low:
            older = iter(self._older(reading))
            while positions := list(islice(older, self.size)):
                with reading() as connection:
                    chunk = self._again(connection, positions)
                if len(chunk):
                    yield chunk
        at = max(self.low, self.after)
        while True:
            with reading() as connection:
                chunk = self._after(connection, at)
            if not len(chunk):
                return
            at = int(chunk.positions[-1])
            yield chunk

    def _older(self, reading: Callable[[], AbstractContextManager[Connection]]) -> list[int]:
        with reading() as connection:
            found = {row[0] for row in connection.rows(NEWER_REWARDS, self.low, self.high)}
        return sorted(decision for decision in found if decision <= self.low)

    def _again(self, connection: Connection, positions: list[int]) -> LoggedRounds:
        chosen = connection.several(positions)
        rows = connection.rows(f"{_DECISIONS} {connection.among} ORDER BY position", chosen)
        rewards = connection.rows(f"{_REWARDS} {connection.among} {_LAST}", self.low, self.high, chosen)
        before = connection.rows(f"{_REWARDS} {connection.among} {_LAST}", 0, self.low, chosen)
        found = self._assemble(connection, rows, rewards, new=False)
        replaced = np.where(np.isnan(found.rewards), np.nan, _table(before, found.positions, found.arms))
        return found if np.isnan(replaced).all() else replace(found, replaced=replaced)

    def _after(self, connection: Connection, at: int) -> LoggedRounds:
        rows = connection.rows(
            f"{_DECISIONS} > ? AND position <= ? ORDER BY position LIMIT ?", at, self.high, self.size
        )
        ends = (rows[0][0], rows[-1][0]) if rows else (0, 0)
        rewards = connection.rows(f"{_REWARDS} BETWEEN ? AND ? {_LAST}", self.low, self.high, *ends)
        return self._assemble(connection, rows, rewards, new=True)

    def _assemble(
        self, connection: Connection, rows: list[tuple[Any, ...]], rewards: list[tuple[Any, ...]], new: bool
    ) -> LoggedRounds:
        positions = np.array([row[0] for row in rows], np.int64)
        times = np.array([row[1] for row in rows], np.float64)
        packed = [row[4] for row in rows]
        contexts, slots = unpack_contexts([row[3] for row in rows]), unpack_slots(packed)
        components = unpack_components([row[5] for row in rows], slot_counts(packed))
        epochs, same_tree = self._settings(connection, [row[2] for row in rows])
        known = _table(rewards, positions, slots.arms)
        if self.default is not None:
            known[(slots.arms >= 0) & np.isnan(known) & (times <= self.overdue)[:, None]] = self.default
        found = LoggedRounds(
            positions,
            times,
            epochs,
            contexts.start,
            contexts.index,
            contexts.value,
            slots.arms,
            slots.nodes,
            slots.propensities,
            slots.scores,
            slots.explored,
            known,
            np.full(len(rows), new),
            components.values,
            components.counts,
        )
        return found if same_tree.all() else replace(found, nodes=np.where(same_tree[:, None], slots.nodes, -1))

    def _settings(self, connection: Connection, numbers: list[int]) -> tuple[Any, Any]:
        """The epoch of each decision, and whether it was made with the requested tree."""
        sql = f"SELECT id, epoch, tree FROM treetop_settings WHERE id {connection.among}"
        found = {row[0]: row[1:] for row in connection.rows(sql, connection.several(sorted(set(numbers))))}
        epochs = np.array([found[n][0] for n in numbers], np.int64)
        return epochs, np.array([self.tree is None or found[n][1] == self.tree for n in numbers], np.bool_)


def _table(rewards: list[tuple[Any, ...]], positions: Any, arms: Ints) -> Floats:
    """Rewards in the places of their decisions and slots; NaN elsewhere."""
    table = np.full(arms.shape, np.nan)
    if rewards:
        decision, slot, value = (np.array(column) for column in zip(*rewards, strict=True))
        table[np.searchsorted(positions, decision), slot] = value
    return table
