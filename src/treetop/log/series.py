"""What happened, by time: running totals of a log by model, number of slots and arm. An update reads only what is new.

A reward counts for the time and the model of its decision, whenever it arrived. A slot is unlikely if it was
explored and something else was at least as likely: a draw with propensity 1 explores nothing, nor does one of 0.999
that shows what a greedy slot would have shown.
"""

from __future__ import annotations

import time

import numpy as np

from treetop.arrays import Bools, Floats, Int64s, Ints, check_int
from treetop.log.arm_counts import ARM, ArmCounts, Table, merged, rows_of
from treetop.log.base import Log
from treetop.log.greedy_slates import greedy_weights
from treetop.log.records import Mark
from treetop.log.rounds import LoggedRounds
from treetop.log.timeline import Timeline
from treetop.log.visit_totals import EDGES, VisitTotals, added_up

UNLIKELY = 0.5  # the highest propensity of an explored slot that is unlikely
CERTAIN = 1 - 1e-9  # a propensity from here on left nothing to chance
SHORTEST, DETAIL = 1, 100  # of the timeline of visits: seconds of a stretch, and how many times its length it is old
ARM_SHORTEST, ARM_DETAIL = 10, 64  # of the timeline of arms
ARM_ROWS = 4_000_000  # rows of the timeline of arms; with more, its stretches become longer
LIKELY_SLOT, UNLIKELY_SLOT = 1, 2  # what brought the first reward of an arm
NEWEST = 4096  # decisions whose arms are remembered one by one


def is_unlikely(explored: Bools, propensities: Floats) -> Bools:
    """Which slots are unlikely: explored ones that show something else than what was likeliest by far."""
    found: Bools = explored & (propensities <= UNLIKELY)
    return found


class LogSeries:
    """Running totals of a log. `update` does a bounded amount of work. Not thread-safe.

    Memory: at most 1.5 * `ARM_ROWS` rows of 44 bytes, or one for each arm ever shown if those are more, and a few MB.
    """

    def __init__(self, log: Log) -> None:
        self.log, self.position = log, 0
        self.last = (0, 0.0)  # position and time of the newest decision that was counted
        self.visits = Timeline(VisitTotals, SHORTEST, DETAIL)
        self.arms = Timeline(ArmCounts, ARM_SHORTEST, ARM_DETAIL)
        self.found_by = np.zeros(0, np.int8)  # of each arm: what brought its first reward, or 0
        self._newest: list[tuple[Int64s, Floats, Ints]] = []  # positions, times and arms of the last decisions

    def update(self, limit: int = 50_000) -> bool:
        """Reads up to `limit` more entries of the log; returns True when there is nothing more to read."""
        newest = self.log.counts().position
        until = min(newest, self.position + check_int("limit", limit, 1))
        now = time.time()
        self.visits.advance(now)
        self.arms.advance(now)
        if until > self.position:
            for chunk in self.log.samples(Mark("", until, 0.0), Mark("", self.position, 0.0)):
                self._add(chunk)
        self.position = until
        return until == newest

    def total(self, begin: float, end: float) -> VisitTotals:
        """The totals of a range of time."""
        return added_up(stretch.sums for stretch in self.visits.between(begin, end))

    def arm_table(self, begin: float, end: float) -> Table:
        """The counts of the arms that were shown in a range of time, by arm."""
        return merged([np.zeros(0, ARM), *(stretch.sums.table() for stretch in self.arms.between(begin, end))])

    def decisions_with(self, arm: int, begin: float, end: float, count: int) -> list[int]:
        """Positions of decisions that showed an arm in a range of time, newest first: those of the last decisions of
        all, then the newest one of each older stretch of time."""
        found: set[int] = set()
        for positions, times, arms in self._newest:
            shown = (arms == arm).any(axis=1) & (times >= begin) & (times < end)
            found.update(positions[shown].tolist())
        for stretch in self.arms.between(begin, end):
            table = stretch.sums.table()
            place = int(np.searchsorted(table["arm"], arm))
            if place < len(table) and table["arm"][place] == arm:
                found.add(int(table["last"][place]))
        return sorted(found, reverse=True)[:count]

    def _add(self, chunk: LoggedRounds) -> None:
        new = (chunk.arms >= 0) & chunk.new[:, None]
        unlikely = is_unlikely(chunk.explored, chunk.propensities)
        self._add_visits(chunk, new, unlikely)
        self._add_arms(chunk, new, unlikely)
        if chunk.new.any():
            fresh = chunk.positions[chunk.new], chunk.times[chunk.new], chunk.arms[chunk.new]
            self.last = int(fresh[0][-1]), float(fresh[1][-1])
            self._newest.append(fresh)
            while sum(len(part[0]) for part in self._newest[1:]) >= NEWEST:
                del self._newest[0]

    def _add_visits(self, chunk: LoggedRounds, new: Bools, unlikely: Bools) -> None:
        totals, which = self.visits.at(chunk.times)
        known, rewards = _new_rewards(chunk)
        weight = greedy_weights(chunk.explored, chunk.propensities, chunk.nodes)
        found = self._found(chunk.arms, rewards, unlikely)
        columns = [
            chunk.new,
            (new & chunk.explored & (chunk.propensities < CERTAIN)).sum(1),
            *((new & how).sum(1) for how in (~unlikely, unlikely)),
            *((known & how).sum(1) for how in (~unlikely, unlikely)),
            *((rewards * how).sum(1) for how in (~unlikely, unlikely)),
            weight * chunk.new,
            weight * rewards.sum(1),
            *found,
        ]
        keys = np.stack([which, chunk.epochs, (chunk.arms >= 0).sum(1)], axis=1)
        groups, group = np.unique(keys, axis=0, return_inverse=True)
        sums = np.stack([np.bincount(group.ravel(), column, len(groups)) for column in columns], axis=1)
        for (stretch, epoch, k), row in zip(groups.tolist(), sums, strict=True):
            totals[stretch].add(epoch, k, row)
        bins = np.searchsorted(EDGES, chunk.propensities, side="right").clip(1, len(EDGES) - 1) - 1
        for stretch, total in enumerate(totals):
            here = new & (which == stretch)[:, None]
            for how, slots in enumerate((here & ~unlikely, here & unlikely)):
                total.propensities[how] += np.bincount(bins[slots], minlength=len(EDGES) - 1)

    def _found(self, arms: Ints, rewards: Floats, unlikely: Bools) -> tuple[Int64s, Floats]:
        """(n,): how many arms had their first reward in each decision, from an unlikely slot; and what such brought."""
        row, slot = np.nonzero((rewards > 0) & (arms >= 0))
        who = arms[row, slot]
        if (more := int(who.max(initial=-1)) + 1 - len(self.found_by)) > 0:
            self.found_by = np.concatenate([self.found_by, np.zeros(more, np.int8)])
        rewarded, first = np.unique(who, return_index=True)
        fresh = self.found_by[rewarded] == 0
        rewarded, first = rewarded[fresh], first[fresh]
        self.found_by[rewarded] = np.where(unlikely[row[first], slot[first]], UNLIKELY_SLOT, LIKELY_SLOT)
        mine = first[self.found_by[rewarded] == UNLIKELY_SLOT]
        known = self.found_by[who] == UNLIKELY_SLOT
        brought = np.bincount(row[known], rewards[row[known], slot[known]], len(arms)).astype(np.float64)
        return np.bincount(row[mine], minlength=len(arms)).astype(np.int64), brought

    def _add_arms(self, chunk: LoggedRounds, new: Bools, unlikely: Bools) -> None:
        counts, which = self.arms.at(chunk.times)
        known, rewards = _new_rewards(chunk)
        changed = new | ~np.isnan(chunk.rewards)
        positions = np.broadcast_to(chunk.positions[:, None], changed.shape)
        for stretch, count in enumerate(counts):
            here = changed & (which == stretch)[:, None]
            rows = rows_of(chunk.arms[here], new[here], unlikely[here], known[here], rewards[here], positions[here])
            count.add(merged([rows]))
        if sum(stretch.sums.size for stretch in self.arms) > 1.5 * ARM_ROWS:
            while sum(len(stretch.sums.table()) for stretch in self.arms) > ARM_ROWS and len(self.arms) > 1:
                self.arms.coarsen()


def _new_rewards(chunk: LoggedRounds) -> tuple[Bools, Floats]:
    """Which slots have their first reward, and what that adds to the rewards; a correction adds the difference."""
    known = ~np.isnan(chunk.rewards)
    rewards = np.where(known, chunk.rewards, 0.0)
    if not len(chunk.replaced):
        return known, rewards
    corrected = ~np.isnan(chunk.replaced)
    return known & ~corrected, rewards - np.where(corrected, chunk.replaced, 0.0)
