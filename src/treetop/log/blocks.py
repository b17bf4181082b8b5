"""Rounds in columns without padding, as segments hold them, and how the log is read into them. Knows no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints
from treetop.log.connection import Connection
from treetop.log.decided import DecidedRounds
from treetop.log.origins import Origins
from treetop.log.pack import COMPONENT, PAIR, SLOT
from treetop.log.records import Mark
from treetop.log.rounds import LoggedRounds
from treetop.log.write import Settings

_DECISIONS = (
    "SELECT position, time, settings, eligible, removals, context, slots, components FROM treetop_decisions "
    "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_REWARDS = (
    "SELECT decision, slot, value, position FROM treetop_rewards WHERE decision BETWEEN ? AND ? AND position <= ? "
    "ORDER BY decision, slot, position"
)
# The sign keeps SQLite from looking by decision: it would read the rewards of every older one.
_LATE = (
    "SELECT decision, slot, value, position FROM treetop_rewards "
    "WHERE position > ? AND position <= ? AND +decision <= ? ORDER BY position"
)


@dataclass(frozen=True, eq=False)
class RewardRows:
    """Rewards by decision and slot, with the position at which each was committed, in the order of these."""

    decisions: Int64s
    slots: Ints
    values: Floats
    positions: Int64s

    def __len__(self) -> int:
        return len(self.decisions)

    @classmethod
    def of(cls, rows: Sequence[tuple[Any, ...]]) -> RewardRows:
        """From rows of (decision, slot, value, position)."""
        kinds = (np.int64, np.int32, np.float64, np.int64)
        return cls(*(np.fromiter(map(itemgetter(i), rows), kind, len(rows)) for i, kind in enumerate(kinds)))

    @classmethod
    def join(cls, parts: Sequence[RewardRows]) -> RewardRows:
        """Several as one, in the order in which they were committed.

        >>> one, two = RewardRows.of([(1, 0, 0.5, 8)]), RewardRows.of([(3, 1, 1.0, 4)])
        >>> RewardRows.join([one, two]).positions.tolist(), len(RewardRows.join([]))
        ([4, 8], 0)
        """
        every = [cls.of([]), *parts]
        return cls(*(np.concatenate([getattr(part, f.name) for part in every]) for f in fields(cls))).sorted()

    def take(self, places: Any) -> RewardRows:
        return RewardRows(*(getattr(self, f.name)[places] for f in fields(self)))

    def sorted(self) -> RewardRows:
        return self.take(np.argsort(self.positions, kind="stable"))


@dataclass(frozen=True, eq=False)
class Block:
    """n rounds in the order of their positions, with the rewards known when they were read.

    `trees` says which of `tree_ids` each round was decided with, `slots` how many slots it has, `component_counts` how
    many components each of these has. Contexts are compressed sparse rows. The other columns have an entry a slot,
    round by round; a slot without a reward has NaN and position 0. `components` has those of slot after slot. `origins`
    say what else the log has of how each round was decided.
    """

    positions: Int64s
    times: Floats
    epochs: Int64s
    trees: Ints
    slots: Ints
    component_counts: Ints
    start: Int64s
    index: Ints
    value: Float32s
    arms: Ints
    nodes: Ints
    propensities: Floats
    scores: Float32s
    explored: Bools
    rewards: Floats
    reward_positions: Int64s
    components: Float32s
    tree_ids: tuple[str, ...]
    origins: Origins

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def rows(self) -> Ints:
        """The round of each slot."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.slots)

    @property
    def columns(self) -> Ints:
        """The place of each slot in its round."""
        return places(self.slots)

    def take(self, rounds: Bools) -> Block:
        """Some of the rounds."""
        of_slots = np.repeat(rounds, self.slots)
        of_pairs = np.repeat(rounds, np.diff(self.start))
        of_components = np.repeat(rounds, self.slots * self.component_counts)
        lengths = np.diff(self.start)[rounds]
        kept = {name: getattr(self, name)[rounds] for name in ROUND}
        kept |= {name: getattr(self, name)[of_slots] for name in SLOTS}
        kept |= {name: getattr(self, name)[of_pairs] for name in ("index", "value")}
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        components, origins = self.components[of_components], self.origins.take(rounds)
        return replace(self, **kept, start=start, components=components, origins=origins)

    def with_slots(self, kept: Bools) -> Block:
        """Some of the slots, and the rounds that have any of them; slots count on as if there were no others."""
        left = np.bincount(self.rows[kept], minlength=len(self)).astype(np.int32)
        of_components = np.repeat(kept, np.repeat(self.component_counts, self.slots))
        some = {name: getattr(self, name)[kept] for name in SLOTS}
        return replace(self, **some, slots=left, components=self.components[of_components]).take(left > 0)

    def head(self, n: int) -> Block:
        """The first n rounds."""
        return self if n >= len(self) else self.take(np.arange(len(self)) < n)

    def with_rewards(self, late: RewardRows) -> Block:
        """With rewards that came later put into their places; of several for one slot, the one committed last."""
        near = late.take((late.decisions >= self.positions[:1]) & (late.decisions <= self.positions[-1:]))
        mine = near.take(np.isin(near.decisions, self.positions)).sorted()
        if not len(mine):
            return self
        first = np.cumsum(self.slots) - self.slots
        at = first[np.searchsorted(self.positions, mine.decisions)] + mine.slots
        rewards, positions = self.rewards.copy(), self.reward_positions.copy()
        newer = mine.positions > positions[at]
        rewards[at[newer]], positions[at[newer]] = mine.values[newer], mine.positions[newer]
        return replace(self, rewards=rewards, reward_positions=positions)

    def logged(self, until: Mark, overdue: float, default: float | None, tree: str | None) -> LoggedRounds:
        """As `Log.samples` gives them: the rounds up to a mark, with the rewards known at it."""
        if len(self) and self.positions[-1] > until.position:
            return self.head(int(np.searchsorted(self.positions, until.position, side="right"))).logged(
                until, overdue, default, tree
            )
        at = self.rows, self.columns
        shape = (len(self), int(self.slots.max(initial=0)))
        known = np.where(self.reward_positions <= until.position, self.rewards, np.nan)
        arms, rewards = _table(at, shape, self.arms, -1), _table(at, shape, known, np.nan)
        if default is not None:
            rewards[(arms >= 0) & np.isnan(rewards) & (self.times <= overdue)[:, None]] = default
        nodes = self.nodes
        if tree is not None:
            mine = np.array([name == tree for name in self.tree_ids], np.bool_)
            nodes = np.where(mine[self.trees[at[0]]], nodes, np.int32(-1))
        return LoggedRounds(
            self.positions,
            self.times,
            self.epochs,
            self.start,
            self.index,
            self.value,
            arms,
            _table(at, shape, nodes, -1),
            _table(at, shape, self.propensities, 0),
            _table(at, shape, self.scores, 0),
            _table(at, shape, self.explored, False),
            rewards,
            np.ones(len(self), np.bool_),
            self._component_table(at, shape),
            self.component_counts.astype(np.int64),
        )

    def decided(self) -> DecidedRounds:
        """As `Log.decided` gives them, with the rewards that they have here."""
        at, shape = (self.rows, self.columns), (len(self), int(self.slots.max(initial=0)))
        how = self.origins.compact()
        return DecidedRounds(
            self.positions,
            self.times,
            how.settings.astype(np.int64),
            how.made,
            tuple(map(how.names.__getitem__, how.filters.tolist())),
            how.removals,
            self.start,
            self.index,
            self.value,
            _table(at, shape, self.arms, -1),
            _table(at, shape, self.propensities, 0),
            _table(at, shape, self.rewards, np.nan),
        )

    def _component_table(self, at: tuple[Ints, Ints], shape: tuple[int, int]) -> Float32s:
        table = np.full((*shape, int(self.component_counts.max(initial=0))), np.nan, np.float32)
        counts = self.component_counts[at[0]]
        if len(counts) and (counts == counts[0]).all():
            table[at] = self.components.reshape(len(counts), counts[0])
        else:
            table[np.repeat(at[0], counts), np.repeat(at[1], counts), places(counts)] = self.components
        return table


ROUND = ("positions", "times", "epochs", "trees", "slots", "component_counts")
SLOTS = ("arms", "nodes", "propensities", "scores", "explored", "rewards", "reward_positions")


def places(counts: Ints) -> Ints:
    """0, 1, ... for each of several lists of these lengths.

    >>> places(np.array([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    first = np.cumsum(counts) - counts
    return np.asarray(np.arange(int(counts.sum()), dtype=np.int32) - np.repeat(first, counts), np.int32)


def _table(at: tuple[Ints, Ints], shape: tuple[int, int], values: NDArray[Any], empty: float) -> NDArray[Any]:
    if len(values) == shape[0] * shape[1]:
        return np.ascontiguousarray(values).reshape(shape)
    table = np.full(shape, empty, values.dtype)
    table[at] = values
    return table


def join(blocks: Sequence[Block]) -> Block:
    """Several blocks, one after the other; their tree ids are numbered anew."""
    if len(blocks) == 1:
        return blocks[0]
    names = tuple(dict.fromkeys(name for block in blocks for name in block.tree_ids))
    number = {name: i for i, name in enumerate(names)}
    trees = [np.array([number[name] for name in b.tree_ids], np.int32)[b.trees] for b in blocks]
    lengths = [np.zeros(1, np.int64), *(np.diff(b.start) for b in blocks)]
    joined = {
        name: np.concatenate([getattr(b, name) for b in blocks])
        for name in (*ROUND, *SLOTS, "index", "value", "components")
    }
    start = np.cumsum(np.concatenate(lengths))
    origins = Origins.join([b.origins for b in blocks])
    return Block(**{**joined, "trees": np.concatenate(trees)}, start=start, tree_ids=names, origins=origins)


Table = list[tuple[Any, ...]]


def read_rows(connection: Connection, after: int, until: int, size: int) -> tuple[Table, Table]:
    """The next decisions after a position, at most `size`, and their rewards up to the position `until`, as rows."""
    rows = connection.rows(_DECISIONS, after, until, size)
    return rows, connection.rows(_REWARDS, rows[0][0], rows[-1][0], until) if rows else []


def read_block(connection: Connection, after: int, until: int, size: int) -> Block:
    """The same as columns."""
    rows, rewarded = read_rows(connection, after, until, size)
    columns: Any = zip(*rows, strict=True) if rows else ((),) * 8
    positions, times, numbers, eligible, removals, contexts, slots, components = columns
    rewards = RewardRows.of(rewarded)
    pairs, flat = np.frombuffer(b"".join(contexts), PAIR), np.frombuffer(b"".join(slots), SLOT)
    widths = np.fromiter(map(len, contexts), np.int64, len(rows)) // PAIR.itemsize
    counts = np.fromiter(map(len, slots), np.int32, len(rows)) // np.int32(SLOT.itemsize)
    floats = np.fromiter(map(len, components), np.int32, len(rows)) // np.int32(COMPONENT.itemsize)
    made = _made(connection, numbers)
    tree_ids = tuple(sorted({tree for _, _, tree, _ in made.values()}))
    block = Block(
        np.array(positions, np.int64),
        np.array(times, np.float64),
        np.array([made[number][0] for number in numbers], np.int64),
        np.array([tree_ids.index(made[number][2]) for number in numbers], np.int32),
        counts,
        floats // np.maximum(counts, 1),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)]),
        np.ascontiguousarray(pairs["index"], np.int32),
        np.ascontiguousarray(pairs["value"], np.float32),
        np.ascontiguousarray(flat["arm"], np.int32),
        np.ascontiguousarray(flat["node"], np.int32),
        np.ascontiguousarray(flat["propensity"], np.float64),
        np.ascontiguousarray(flat["score"], np.float32),
        flat["explored"].astype(np.bool_),
        np.full(len(flat), np.nan),
        np.zeros(len(flat), np.int64),
        np.frombuffer(b"".join(components), COMPONENT).astype(np.float32),
        tree_ids,
        Origins.of(numbers, made, eligible, removals),
    )
    first = np.cumsum(counts) - counts
    at = first[np.searchsorted(block.positions, rewards.decisions)] + rewards.slots
    block.rewards[at], block.reward_positions[at] = rewards.values, rewards.positions
    return block


def _made(connection: Connection, numbers: Sequence[int]) -> dict[int, Settings]:
    """Epoch, model, tree and policy by the number of the settings."""
    sql = f"SELECT id, epoch, model, tree, policy FROM treetop_settings WHERE id {connection.among}"
    return {row[0]: row[1:] for row in connection.rows(sql, connection.several(sorted({*numbers})))}


def read_late(connection: Connection, low: int, high: int, last: int) -> RewardRows:
    """The rewards committed at positions in (low, high] for decisions up to the position `last`."""
    return RewardRows.of(connection.rows(_LATE, low, high, last) if low < high and last else [])
