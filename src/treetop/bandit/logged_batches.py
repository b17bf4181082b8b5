"""Logged decisions with all that is needed to ask what another policy would have shown, in batches of one setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from treetop.arrays import Bools, Floats, Int64s, Ints, Rows
from treetop.bandit.arm_filter import named_filter
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.config import PolicyConfig
from treetop.bandit.snapshot import logged_policy
from treetop.log.decided import DecidedRounds
from treetop.log.rounds import scaled_rewards
from treetop.policy.eligibility import ALL, EXCEPT, NO_ROWS, ONLY, Eligible
from treetop.tree.tree import Tree

CHUNK = 8192  # decisions read at a time: contexts with neighbouring arms are worked on together
FILTERS = 64  # sets of arms that are kept


def ahead(chunks: Iterator[DecidedRounds]) -> Iterator[DecidedRounds]:
    """The same, each read while the one before is worked on.

    >>> list(ahead(iter([])))
    []
    """
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk


@dataclass(frozen=True, eq=False)
class LoggedBatch:
    """Decisions of one model with one policy: (n, k) arrays, padded with arm -1, reward NaN where none was observed.

    `lists` are the name of each decision's list of arms and how many arms had been removed.
    """

    model: str
    epoch: int
    policy: PolicyConfig
    times: Floats
    lists: Sequence[tuple[str, int]]
    x: Rows
    arms: Ints
    propensities: Floats
    rewards: Floats

    def __len__(self) -> int:
        return len(self.lists)

    def part(self, rows: Bools) -> LoggedBatch:
        """Some of the decisions."""
        if rows.all():
            return self
        lists = [self.lists[i] for i in np.flatnonzero(rows).tolist()]
        arrays = (self.arms[rows], self.propensities[rows], self.rewards[rows])
        return LoggedBatch(
            self.model, self.epoch, self.policy, self.times[rows], lists, chosen_rows(self.x, rows), *arrays
        )


def chosen_rows(x: Rows, rows: Bools) -> Rows:
    """Some of the rows.

    >>> three = Rows(np.array([0, 1, 1, 3]), np.array([4, 0, 2], np.int32), np.ones(3, np.float32), 5)
    >>> chosen_rows(three, np.array([False, True, True])).index.tolist()
    [0, 2]
    """
    lengths = np.diff(x.start)
    there = np.repeat(rows, lengths)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[rows], dtype=np.int64)])
    return Rows(start, x.index[there], x.value[there], x.columns)


def batches(
    rounds: DecidedRounds, columns: int, overdue: float, default: float | None, limits: tuple[float, float] = (0.0, 1.0)
) -> Iterator[LoggedBatch]:
    """The decisions in batches; a slot without a reward has `default` if its decision was made before `overdue`.

    Rewards are scaled from `limits` to [0, 1].

    >>> none, one, two = np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0))
    >>> empty = DecidedRounds(one, none, one, (), (), one, np.zeros(1, np.int64), one, none, two, two, two)
    >>> list(batches(empty, columns=3, overdue=0.0, default=None))
    []
    """
    rewards = rounds.rewards
    if default is not None:
        late = (rounds.times <= overdue)[:, None] & np.isnan(rewards) & (rounds.arms >= 0)
        rewards = np.where(late, default, rewards)
    rewards = scaled_rewards(rewards, limits)
    x = Rows(rounds.start, rounds.index, rounds.value, columns)
    for (epoch, model, policy), rows in _groups(rounds):
        k = int((rounds.arms[rows] >= 0).sum(axis=1).max())
        arms, propensities = np.ascontiguousarray(rounds.arms[rows, :k]), rounds.propensities[rows, :k]
        lists = [(rounds.eligible[i], int(rounds.removals[i])) for i in np.flatnonzero(rows).tolist()]
        contexts, told = x if rows.all() else chosen_rows(x, rows), rewards[rows, :k]
        yield LoggedBatch(
            model, epoch, logged_policy(policy), rounds.times[rows], lists, contexts, arms, propensities, told
        )


def _groups(rounds: DecidedRounds) -> Iterator[tuple[tuple[int, str, str], Bools]]:
    """Which decisions make a batch: of one model and policy, all with lists of eligible arms or all without.

    Those with conditions have a batch each: half of a million arms would be too many to list for every row.
    """
    number: dict[tuple[str, str, str], int] = {}
    first: list[tuple[int, str, str]] = []
    which: Int64s = np.full(len(rounds), -1, np.int64)
    for i, (setting, name) in enumerate(zip(rounds.settings.tolist(), rounds.eligible, strict=True)):
        epoch, model, _, policy = rounds.made[setting]
        key = model, policy, name if name.startswith("?") else name[:1]
        if (found := number.get(key)) is None:
            found = number[key] = len(first)
            first.append((epoch, model, policy))
        which[i] = found
    shown = (rounds.arms >= 0).any(axis=1) if rounds.arms.shape[1] else np.zeros(len(rounds), np.bool_)
    for found, made in enumerate(first):
        rows: Bools = np.asarray((which == found) & shown)
        if rows.any():
            yield made, rows


class ArmSets:
    """Which arms logged decisions could see, as sets of a model's tree. Keeps the sets that come again.

    `find_set` gives the listed arms of a name, as for `logged_filter`.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     _ = tea.decide(np.ones(4), "visit-1", k=1, eligible=[2, 3])
    ...     sets = ArmSets(tea.log.eligible_set, tea.snapshot.arms, tea.snapshot.model.tree)
    ...     sets.of([(tea.event("visit-1").event.eligible, 0)]).positions
    array([2, 3], dtype=int32)
    """

    def __init__(self, find_set: Callable[[str], Ints | None], arms: ArmIndex, tree: Tree) -> None:
        self.find_set, self.arms, self.tree = find_set, arms, tree
        self._listed = lru_cache(FILTERS)(self._find)
        self._prepared = lru_cache(4)(lambda name, removals: Eligible.of(tree, self._listed(name, removals)))

    def _find(self, name: str, removals: int) -> Eligible:
        found = named_filter(name, removals, self.tree, self.arms, self.find_set)
        if found is None:
            raise ValueError(f"the list of arms {name!r} is not in the log any more")
        return found.eligible

    def of(self, lists: Sequence[tuple[str, int]]) -> Eligible:
        """Of decisions that all name lists of eligible arms, or that all do not: one set, or one a row."""
        if len(names := set(lists)) == 1:
            return self._prepared(*lists[0])
        found = {name: self._listed(*name) for name in names}  # may be more than are kept
        listed = [found[name] for name in lists]
        if all(each.kind == ALL for each in listed):
            return listed[0]
        start = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(each.positions) for each in listed], out=start[1:])
        kind = ONLY if any(each.kind == ONLY for each in listed) else EXCEPT
        positions = np.concatenate([each.positions for each in listed]).astype(np.int32)
        return Eligible(kind, positions, start if len(start) > 1 else NO_ROWS, self.tree.arm_at)
