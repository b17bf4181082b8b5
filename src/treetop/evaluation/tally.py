"""All that is kept of the rounds judged for one candidate. Two tallies add up, of any stretches of the log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from treetop.arrays import Floats
from treetop.evaluation.bernstein import BernsteinSums
from treetop.evaluation.bets import Bets, Wager, joint_log_capital, joint_lower_bound
from treetop.evaluation.control import Lines, LineSums, controlled_terms
from treetop.evaluation.doubly_robust import doubly_robust_slate_terms, doubly_robust_terms
from treetop.evaluation.estimators import SLATE, SLOTS, node_way
from treetop.evaluation.interval import Interval, Moments, Stakes
from treetop.evaluation.ips import slate_terms, slot_terms
from treetop.evaluation.judged import Judged
from treetop.evaluation.mips import node_weights
from treetop.evaluation.offcem import offcem_terms
from treetop.evaluation.snips import WeightSums

# Control variates take a term at most so far below 0 (`cap` of `control`). What can be lost by a bet is then larger, so
# a larger cap is for smaller stakes, which are for longer logs: 3 and 7 decide for some thousand rounds, 400 for a
# million. One large stake a cap, and the share of the capital on it.
CAPS = (0.0, 3.0, 7.0, 20.0, 50.0, 140.0, 400.0)
PLANS = (*(Stakes.single(0.9) for _ in CAPS[:-1]), Stakes.halved(4, 14))
SHARES = (0.02, 0.2, 0.4, 0.17, 0.08, 0.06, 0.07)
SLATES_SHARE = 0.4  # of the capital where a rule chooses between slates and slots; the rest is on slots
UNIT = BernsteinSums(0.0, 1.0)
FIRST, LAST = 64, 8192  # rounds after which control variates are fitted again: as many as there were, from and up to


@dataclass(frozen=True, eq=False)
class WayTally:
    """One way to weigh rounds: values and complements as in `ips`, and their differences to what was served.

    Of each there are bets on the terms as they are and on those with control variates, one a cap of CAPS.

    >>> one = np.ones((4, 1))
    >>> even = Judged(one, one, one, np.ones(4), 0 * one, 0 * one, np.zeros((4, 1, 0)), one > 0)
    >>> way = WayTally.of(even, even.prefix_weights(), whole=False)
    >>> way.terms.mean, way.difference.mean, 0.0 in way.gap(most=1, served_most=1, confidence=0.95)
    (1.0, 0.0, True)
    """

    sums: WeightSums
    value: tuple[Bets, ...]
    complement: tuple[Bets, ...]
    better: tuple[Bets, ...]
    worse: tuple[Bets, ...]
    terms: Moments
    controlled: Moments  # of the terms with control variates of the largest cap
    difference: Moments
    squares: tuple[BernsteinSums, BernsteinSums]  # of the terms as they are: of values and of complements
    largest: float  # weight, of any slot

    @classmethod
    def of(
        cls, rounds: Judged, weights: Floats, whole: bool, lines: Lines | None = None, bound: float | None = None
    ) -> WayTally:
        """From weights, of whole slates or slot by slot; `lines` are the control variates, if there are any."""
        if lines is None:
            value, complement = slate_terms(rounds, weights) if whole else slot_terms(rounds, weights)
            values, complements = value[None, :], complement[None, :]
        else:
            values, complements = controlled_terms(rounds, weights, lines, whole, CAPS, bound)
        differences = values - rounds.served
        return cls(
            WeightSums.of(rounds, weights, whole),
            Bets.several(values),
            Bets.several(complements),
            Bets.several(differences),
            Bets.several(complements - (rounds.slots - rounds.served)),
            Moments.of(values[0]),
            Moments.of(values[-1]),
            Moments.of(differences[-1]),
            (UNIT.after(values[0]), UNIT.after(complements[0])),
            float(weights.max()),
        )

    def __add__(self, other: WayTally) -> WayTally:
        names = ("sums", "terms", "controlled", "difference")
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        for name in ("value", "complement", "better", "worse"):
            pairs = zip(getattr(self, name), getattr(other, name), strict=True)
            sums[name] = tuple(mine + theirs for mine, theirs in pairs)
        squares = (self.squares[0] + other.squares[0], self.squares[1] + other.squares[1])
        return WayTally(**sums, squares=squares, largest=max(self.largest, other.largest))

    def interval(self, most: int, slots: float, confidence: float, beside: WayTally | None = None) -> Interval:
        """Of the reward of a round, at all times at once; `most` slots in a round at most, `slots` on average.

        `beside` is another way to weigh, of the same mean: SLATES_SHARE of the capital is bet on its terms.
        """
        alpha, ways = (1 - confidence) / 2, _ways(self, beside)
        low = max(0.0, joint_lower_bound(wagers([way.value for way in ways], 0, most), alpha))
        left = joint_lower_bound(wagers([way.complement for way in ways], 0, most, slots), alpha)
        return Interval(low, max(low, min(slots, -left)))

    def bernstein(self, most: int, slots: float, confidence: float) -> Interval:
        """As `interval`, by empirical Bernstein bounds of the plain terms: wider, and made of a few sums alone."""
        alpha, (value, complement) = (1 - confidence) / 2, self.squares
        low, left = (sums.lower_bound(alpha, most) for sums in (value, complement))
        return Interval(low, max(low, slots - left))

    def holds(self, mean: float, most: int, slots: float, confidence: float) -> bool:
        """Whether `interval` has a number in it."""
        limit = math.log(2 / (1 - confidence))
        sides = (mean, wagers([self.value], 0, most)), (-mean, wagers([self.complement], 0, most, slots))
        return all(joint_log_capital(side, at) <= limit for at, side in sides)

    def gap(self, most: int, served_most: int, confidence: float, beside: WayTally | None = None) -> Interval:
        """Of the difference to the reward of a round as it was served, in `served_most` slots at most."""
        alpha, ways = (1 - confidence) / 2, _ways(self, beside)
        low = joint_lower_bound(wagers([way.better for way in ways], -served_most, most), alpha)
        worse = joint_lower_bound(wagers([way.worse for way in ways], -most, served_most), alpha)
        return Interval(low, max(low, -worse))


def _ways(way: WayTally, beside: WayTally | None) -> list[WayTally]:
    return [way] if beside is None else [way, beside]


def wagers(ways: Sequence[Sequence[Bets]], low: float, high: float, shift: float = 0.0) -> list[Wager]:
    """On values from `low` on, of one way to weigh or of two, the second with SLATES_SHARE of the capital, and on those
    that control variates take further down; see `Wager`.

    >>> [wager.low for wager in wagers([[Bets(), Bets()]], low=-1.0, high=1.0)]
    [-1.0, -4.0]
    """
    found = []
    for bets, part in zip(ways, (1.0,) if len(ways) == 1 else (1 - SLATES_SHARE, SLATES_SHARE), strict=True):
        if len(bets) == 1:
            found.append(Wager(bets[0], low, high, shift, share=part))
            continue
        found += [
            Wager(each, low - cap, high, shift, plan, share * part)
            for each, cap, plan, share in zip(bets, CAPS, PLANS, SHARES, strict=False)
        ]
    return found


@dataclass(frozen=True)
class ModelTally:
    """An estimator that a reward model has a say in: its values, and their differences to what was served.

    >>> both = ModelTally.of(np.ones(2), np.zeros(2)) + ModelTally.of(np.zeros(2), np.zeros(2))
    >>> both.value.mean, both.difference.n
    (0.5, 4)
    """

    value: Moments
    difference: Moments

    @classmethod
    def of(cls, terms: Floats, served: Floats) -> ModelTally:
        return cls(Moments.of(terms), Moments.of(terms - served))

    def __add__(self, other: ModelTally) -> ModelTally:
        return ModelTally(self.value + other.value, self.difference + other.difference)


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
    slots: float = 0.0  # of all rounds
    most: int = 1
    served_slots: float = 0.0  # of all rounds as they were served
    served_most: int = 1
    served: Moments = Moments()  # noqa: RUF009
    earned: Bets = field(default_factory=Bets)
    missed: Bets = field(default_factory=Bets)
    ways: dict[str, WayTally] = field(default_factory=dict)
    model_based: dict[str, ModelTally] = field(default_factory=dict)
    fits: dict[str, LineSums] = field(default_factory=dict)  # of SLATE and SLOTS: what control variates are fitted on
    unsupported: float = 0.0  # of all rounds: the candidate's chance of what the log cannot show; NaN: not known

    @classmethod
    def of(cls, rounds: Judged, bound: float | None = None) -> Tally:
        """Of some rounds; `bound` is what no weight can exceed, if that is known."""
        return cls().after(rounds, bound)

    def after(self, rounds: Judged, bound: float | None = None) -> Tally:
        """With more rounds, in their order. Control variates of a round are fitted on rounds before it."""
        tally, at = self, 0
        while at < len(rounds):
            step = min(max(tally.rounds, FIRST), LAST)
            tally += tally._next(rounds.part(slice(at, at + step)), bound)
            at += step
        return tally

    def _next(self, rounds: Judged, bound: float | None) -> Tally:
        weights, k = rounds.prefix_weights(), rounds.rewards.shape[1]
        lasts = {SLATE: np.broadcast_to(weights[:, -1:], weights.shape), SLOTS: weights}
        ways, fits = {}, {name: LineSums.of(rounds, w) for name, w in lasts.items()}
        for name in (SLATE, SLOTS):
            lines = self.fits.get(name, LineSums()).lines(k)
            ways[name] = WayTally.of(rounds, weights, name == SLATE, lines, bound)
        means = self.fits.get(SLATE, LineSums()).lines(k).mean
        terms = {
            "dr-slots": doubly_robust_terms(rounds, weights),
            "dr-slate": doubly_robust_slate_terms(rounds, weights, means),
        }
        if rounds.node_ratio.shape[2] and not np.isnan(rounds.node_ratio).any():
            for height in range(rounds.node_ratio.shape[2]):
                ways[node_way(height)] = WayTally.of(rounds, node_weights(rounds, height), False)
                terms[f"offcem-{height}"] = offcem_terms(rounds, height)
        model_based = {name: ModelTally.of(each, rounds.served) for name, each in terms.items()}
        served = Tally.as_served(rounds.served, rounds.all_slots)
        slots, most = float(rounds.filled.sum()), int(rounds.slots.max())
        found = replace(served, slots=slots, most=most, ways=ways, model_based=model_based, fits=fits)
        return replace(found, unsupported=float(rounds.unsupported().sum()))

    @classmethod
    def as_served(cls, rewards: Floats, slots: Floats) -> Tally:
        """Of rounds that brought these rewards in so many slots, for no candidate.

        >>> Tally.as_served(np.array([1.0, 0.0]), np.array([2.0, 2.0])).served.mean
        0.5
        """
        if len(rewards) == 0:
            return cls()
        bets = Bets.of(rewards), Bets.of(np.maximum(slots - rewards, 0))
        return cls(len(rewards), 0.0, 1, float(slots.sum()), int(slots.max()), Moments.of(rewards), *bets)

    def __add__(self, other: Tally) -> Tally:
        if not self.rounds or not other.rounds:
            return self if self.rounds else other
        return Tally(
            self.rounds + other.rounds,
            self.slots + other.slots,
            max(self.most, other.most),
            self.served_slots + other.served_slots,
            max(self.served_most, other.served_most),
            self.served + other.served,
            self.earned + other.earned,
            self.missed + other.missed,
            {name: way + other.ways[name] for name, way in self.ways.items() if name in other.ways},
            {name: m + other.model_based[name] for name, m in self.model_based.items() if name in other.model_based},
            {name: sums + other.fits[name] for name, sums in self.fits.items()},
            self.unsupported + other.unsupported,
        )

    def served_interval(self, confidence: float) -> Interval:
        """Of the reward of a round as it was served, at all times at once."""
        alpha, slots = (1 - confidence) / 2, self.served_slots / max(self.rounds, 1)
        low = self.earned.lower_bound(0, self.served_most, alpha)
        return Interval(low, max(low, slots - self.missed.lower_bound(0, self.served_most, alpha)))
