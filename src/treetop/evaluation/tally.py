"""All that is kept of the rounds judged for one candidate. Two tallies add up, of any stretches of the log."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from treetop.arrays import Floats
from treetop.evaluation.bets import Bets, Wager, joint_lower_bound
from treetop.evaluation.doubly_robust import doubly_robust_terms
from treetop.evaluation.interval import Interval, Moments
from treetop.evaluation.ips import centred_terms, slate_terms, slot_terms
from treetop.evaluation.judged import Judged
from treetop.evaluation.mips import node_weights
from treetop.evaluation.offcem import offcem_terms
from treetop.evaluation.snips import WeightSums

SLATE, SLOTS = "slate", "slots"


def node_way(height: int) -> str:
    """The name of weights by nodes, `height` levels above the leaves.

    >>> node_way(0)
    'nodes-0'
    """
    return f"nodes-{height}"


@dataclass(frozen=True, eq=False)
class WayTally:
    """One way to weigh rounds: values and complements as in `ips`, and their differences to what was served.

    >>> one = np.ones((4, 1))
    >>> even = Judged(one, one, one, np.ones(4), 0 * one, 0 * one, np.zeros((4, 1, 0)), one > 0)
    >>> way = WayTally.of(even, even.prefix_weights(), whole=False, baseline=np.zeros(1))
    >>> way.terms.mean, way.difference.mean, way.gap(most=1, served_most=1, confidence=0.95)
    (1.0, 0.0, Interval(low=-1.0, high=1.0))
    """

    sums: WeightSums
    value: Bets
    complement: Bets
    better: Bets
    worse: Bets
    centred: Bets
    centred_gap: Bets
    terms: Moments
    difference: Moments
    largest: float  # weight

    @classmethod
    def of(cls, rounds: Judged, weights: Floats, whole: bool, baseline: Floats) -> WayTally:
        """From weights, of whole slates or slot by slot, and a baseline for each slot."""
        value, complement = slate_terms(rounds, weights) if whole else slot_terms(rounds, weights)
        centred = centred_terms(rounds, weights, baseline, whole)
        difference = value - rounds.served
        return cls(
            WeightSums.of(rounds, weights, whole),
            Bets.of(value),
            Bets.of(complement),
            Bets.of(difference),
            Bets.of(complement - (rounds.slots - rounds.served)),
            Bets.of(centred),
            Bets.of(centred - rounds.served),
            Moments.of(value),
            Moments.of(centred - rounds.served),
            float((weights[:, -1] if whole else weights).max()),
        )

    def __add__(self, other: WayTally) -> WayTally:
        names = [f.name for f in fields(WayTally) if f.name != "largest"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return WayTally(**sums, largest=max(self.largest, other.largest))

    def interval(self, most: int, slots: float, confidence: float, bound: float | None = None) -> Interval:
        """Of the reward of a round, at all times at once; `most` slots in a round at most, `slots` on average.

        `bound` is what no weight can exceed, if that is known.
        """
        alpha = (1 - confidence) / 2
        earned, missed = Wager(self.value, 0, most), Wager(self.complement, 0, most, slots)
        above, below = [earned], [missed]
        if bound is not None:
            above.append(Wager(self.centred, -bound * most, most))
            below.append(Wager(self.centred.mirrored(), -bound * most, 0))
        low = max(0.0, joint_lower_bound(above, alpha))
        return Interval(low, max(low, min(slots, -joint_lower_bound(below, alpha))))

    def gap(self, most: int, served_most: int, confidence: float, bound: float | None = None) -> Interval:
        """Of the difference to the reward of a round as it was served, in `served_most` slots at most."""
        alpha = (1 - confidence) / 2
        above, below = [Wager(self.better, -served_most, most)], [Wager(self.worse, -most, served_most)]
        if bound is not None:
            least = -bound * most - served_most
            above.append(Wager(self.centred_gap, least, most))
            below.append(Wager(self.centred_gap.mirrored(), least, served_most))
        low = joint_lower_bound(above, alpha)
        return Interval(low, max(low, -joint_lower_bound(below, alpha)))


@dataclass(frozen=True, eq=False)
class Tally:
    """Of one candidate, or of what was served.

    >>> one = np.ones((4, 1))
    >>> even = Judged(one, one, one, np.ones(4), 0 * one, 0 * one, np.zeros((4, 1, 0)), one > 0)
    >>> both = Tally.of(even) + Tally.of(even)
    >>> both.rounds, sorted(both.ways), both.slots
    (8, ['slate', 'slots'], 8.0)
    >>> both.served_interval(0.95).high
    1.0
    """

    rounds: int = 0
    shown: Floats = field(default_factory=lambda: np.zeros((2, 1)))  # of each slot: how often filled, rewards
    most: int = 1
    served_slots: float = 0.0  # of all rounds as they were served
    served_most: int = 1
    served: Moments = Moments()  # noqa: RUF009
    earned: Bets = field(default_factory=Bets)
    missed: Bets = field(default_factory=Bets)
    ways: dict[str, WayTally] = field(default_factory=dict)
    model_based: dict[str, Moments] = field(default_factory=dict)  # estimators that a reward model has a say in

    @classmethod
    def of(cls, rounds: Judged, baseline: Floats | None = None) -> Tally:
        """Of some rounds; the baseline of each slot (`baseline` of the rounds before them) must not depend on them."""
        if len(rounds) == 0:
            return cls()
        weights, k = rounds.prefix_weights(), rounds.rewards.shape[1]
        c = np.zeros(k) if baseline is None else np.pad(baseline, (0, max(0, k - len(baseline))))[:k]
        ways = {name: WayTally.of(rounds, weights, whole, c) for name, whole in ((SLATE, True), (SLOTS, False))}
        model_based = {"dr": Moments.of(doubly_robust_terms(rounds, weights))}
        if rounds.node_ratio.shape[2] and not np.isnan(rounds.node_ratio).any():
            for height in range(rounds.node_ratio.shape[2]):
                ways[node_way(height)] = WayTally.of(rounds, node_weights(rounds, height), False, c)
                model_based[f"offcem-{height}"] = Moments.of(offcem_terms(rounds, height))
        bets = Bets.of(rounds.served), Bets.of(np.maximum(rounds.all_slots - rounds.served, 0))
        slots, rewards = rounds.filled.sum(axis=0), rounds.rewards.sum(axis=0)
        shown = np.array([slots, rewards], np.float64)
        most, served_most = int(rounds.slots.max()), int(rounds.all_slots.max())
        as_served = float(rounds.all_slots.sum()), served_most, Moments.of(rounds.served)
        return cls(len(rounds), shown, most, *as_served, *bets, ways, model_based)

    @property
    def slots(self) -> float:
        """How many slots all rounds have."""
        return float(self.shown[0].sum())

    def baseline(self) -> Floats:
        """(k,): the mean reward of each slot so far, for `of` the next rounds.

        >>> one = np.ones((4, 1))
        >>> even = Judged(one, one, one, np.ones(4), 0 * one, 0 * one, np.zeros((4, 1, 0)), one > 0)
        >>> Tally.of(even).baseline()
        array([1.])
        """
        return np.asarray(self.shown[1] / np.maximum(self.shown[0], 1))

    def __add__(self, other: Tally) -> Tally:
        if not self.rounds or not other.rounds:
            return self if self.rounds else other
        return Tally(
            self.rounds + other.rounds,
            _padded(self.shown, other.shown) + _padded(other.shown, self.shown),
            max(self.most, other.most),
            self.served_slots + other.served_slots,
            max(self.served_most, other.served_most),
            self.served + other.served,
            self.earned + other.earned,
            self.missed + other.missed,
            {name: way + other.ways[name] for name, way in self.ways.items() if name in other.ways},
            {name: m + other.model_based[name] for name, m in self.model_based.items() if name in other.model_based},
        )

    def served_interval(self, confidence: float) -> Interval:
        """Of the reward of a round as it was served, at all times at once."""
        alpha, slots = (1 - confidence) / 2, self.served_slots / max(self.rounds, 1)
        low = self.earned.lower_bound(0, self.served_most, alpha)
        return Interval(low, max(low, slots - self.missed.lower_bound(0, self.served_most, alpha)))


def _padded(array: Floats, other: Floats) -> Floats:
    return np.asarray(np.pad(array, ((0, 0), (0, max(0, other.shape[1] - array.shape[1])))))
