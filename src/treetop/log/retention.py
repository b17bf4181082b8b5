"""What retention and erasure delete: decisions with their rewards, in steps between which others write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from treetop.log.base import Log
from treetop.log.connection import Connection
from treetop.log.pack import SLOT
from treetop.log.write import State

SHARE = 0.1  # of the log's time that deleting may take


def forget(connection: Connection, state: State, before: float, limit: int) -> int:
    """Deletes up to `limit` decisions older than `before`."""
    sql = "SELECT position, slots, eligible, settings FROM treetop_decisions WHERE time < ? ORDER BY time LIMIT ?"
    return _delete(connection, state, connection.rows(sql, before, limit))


def erase(connection: Connection, state: State, key: tuple[str, str], limit: int) -> int:
    """Deletes up to `limit` decisions that carry a key."""
    sql = (
        "SELECT d.position, d.slots, d.eligible, d.settings FROM treetop_keys k "
        "JOIN treetop_decisions d ON d.position = k.decision "
        "WHERE k.key_name = ? AND k.key_value = ? ORDER BY d.position LIMIT ?"
    )
    return _delete(connection, state, connection.rows(sql, *key, limit))


def _delete(connection: Connection, state: State, found: list[tuple[Any, ...]]) -> int:
    """Deletes decisions, of which (position, slots, eligible, settings) are given, with their rewards and keys, and the
    sets and settings that no other decision has."""
    if not found:
        return 0
    positions = connection.several([row[0] for row in found])
    sql = f"SELECT count(DISTINCT decision) FROM treetop_rewards WHERE decision {connection.among}"
    observed = connection.rows(sql, positions)[0][0]
    slots = f"SELECT DISTINCT decision, slot FROM treetop_rewards WHERE decision {connection.among}"
    rewards = connection.rows(f"SELECT count(*) FROM ({slots}) AS rewarded", positions)[0][0]
    connection.run(f"DELETE FROM treetop_rewards WHERE decision {connection.among}", positions)
    connection.run(f"DELETE FROM treetop_keys WHERE decision {connection.among}", positions)
    connection.run(f"DELETE FROM treetop_decisions WHERE position {connection.among}", positions)
    if sets := {row[2] for row in found} - {""}:
        connection.run(
            f"DELETE FROM treetop_eligible WHERE fingerprint {connection.among} AND NOT EXISTS "
            "(SELECT 1 FROM treetop_decisions d WHERE d.eligible = treetop_eligible.fingerprint AND d.eligible <> '')",
            connection.several(sorted(sets)),
        )
    _delete_settings(connection, {row[3] for row in found})
    state.pending -= sum(len(row[1]) for row in found) // SLOT.itemsize - rewards
    state.forgotten += len(found)
    state.observed -= observed
    state.forgotten_observed += observed
    return len(found)


def _delete_settings(connection: Connection, numbers: set[int]) -> None:
    """Deletes those of some settings that no decision has. The highest number stays: none is given twice."""
    connection.run(
        f"DELETE FROM treetop_settings WHERE id {connection.among} AND NOT EXISTS "
        "(SELECT 1 FROM treetop_decisions d WHERE d.settings = treetop_settings.id) "
        "AND id < (SELECT max(id) FROM treetop_settings)",
        connection.several(sorted(numbers)),
    )


def forget_in_steps(log: Log, before: float) -> Iterator[tuple[int, float]]:
    """Deletes what is older than `before`, a step at a time; yields how many it deleted and the seconds to wait then.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.log.open import open_log
    >>> with TemporaryDirectory() as folder, open_log(f"{folder}/log.sqlite") as log:
    ...     list(forget_in_steps(log, 1e9))
    []
    """
    while True:
        start = time.perf_counter()
        if not (count := log.forget(before)):
            return
        yield count, (1 / SHARE - 1) * (time.perf_counter() - start)
