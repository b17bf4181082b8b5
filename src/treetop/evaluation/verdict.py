"""What a tally says: which way to weigh is believed, the estimate with its interval, and whether it beats what served.

The rule. Whole slates assume nothing about rewards. They are taken if the log has nearly all that the candidate shows:
their effective sample size is at least 1,000 rounds, their mean weight at least 0.9, and their interval is not much
wider, by WIDER_THAN_SLOTS and WIDER_THAN_NORMAL, than both that by slots and the normal approximation's, which does not
see what was hardly ever shown. Otherwise slots are taken, which assume that a slot's reward does not depend on the
slots below it, and said to be too few if they are worth less than 100 rounds. Both intervals hold at once, so that the
rule may look at them. Other estimators are taken if they are asked for: where arms of one node do not earn alike,
intervals by nodes miss the truth, and nothing in the log says whether they do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from treetop.display import counted
from treetop.evaluation.estimators import SLATE, SLOTS, Estimator
from treetop.evaluation.interval import Interval
from treetop.evaluation.tally import SLATES_SHARE, Tally, WayTally

ENOUGH_SLATES, ENOUGH = 1_000, 100  # effective sample sizes
WIDER_THAN_SLOTS, WIDER_THAN_NORMAL = 1.25, 2.0  # intervals of slates that are not taken
SUPPORTED = 0.9  # a mean weight below this says that much of what the candidate shows was never logged
EXCESS, NO_CHANCE = 0.01, math.log(1e6)  # of the mean weight: what matters, and what is no chance (`WeightSums.excess`)
ROUNDING = 1e-9  # how far beyond its bound, in relation to it, a product of ratios may come
FAR = 1_000  # times as many visits as there are: beyond it a number says nothing
SAME = "the same: every visit was as likely under it"
UNKNOWN = "not known"  # in place of a number that leaves much out


@dataclass(frozen=True)
class Estimate:
    """A number with where it lies.

    >>> str(Estimate(1.25, 1.2, 1.3))
    '1.250 [1.200, 1.300]'
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def divided(self, by: float) -> Estimate:
        """Of a part.

        >>> Estimate(1.0, 0.5, 2.0).divided(2)
        Estimate(value=0.5, low=0.25, high=1.0)
        """
        return Estimate(self.value / by, self.low / by, self.high / by)

    def within(self, limits: tuple[float, float], slots: float) -> Estimate:
        """In the units of the rewards, which `limits` were scaled to [0, 1] from: of a sum over so many slots, or of a
        difference of two sums, the first over so many slots more.

        >>> Estimate(0.5, 0.25, 1.0).within((-5.0, 15.0), slots=2)
        Estimate(value=0.0, low=-5.0, high=10.0)
        """
        if limits == (0.0, 1.0):
            return self
        low, high = limits
        return Estimate(*(low * slots + (high - low) * each for each in (self.value, self.low, self.high)))


@dataclass(frozen=True)
class CandidateResult:
    """What a candidate would have earned, a visit and a slot, and whether that beats what served on the same visits.

    `way` is how rounds were weighed, `estimator` what was made of that, and `assumes` what it asks of the rewards.
    `effective` is the effective sample size, `share` the share of rounds that say anything, `mean_weight` 1 if the log
    has all that the candidate shows, `largest_weight` of any slot, `unsupported` the candidate's chance of showing what
    the log cannot, NaN if that is not known, and `missing` the share of what it shows that the log never or hardly ever
    did. `bernstein` is `per_visit` with an empirical Bernstein interval, which holds at all times too, by other means;
    NaN where a reward model has a say. `others` has all estimators by name: value and standard error (or NaN).
    `left_out` counts rounds by reason.
    Rewards are in their own units, not scaled to [0, 1].
    """

    name: str
    rounds: int
    way: str
    assumes: str
    per_visit: Estimate
    per_slot: Estimate
    served: Estimate
    difference: Estimate
    effective: float
    share: float
    mean_weight: float
    verdict: str
    notes: tuple[str, ...] = ()
    others: dict[str, tuple[float, float]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    estimator: str = ""
    largest_weight: float = math.nan
    unsupported: float = math.nan
    missing: float = 0.0
    bernstein: Estimate = Estimate(math.nan, math.nan, math.nan)

    @property
    def answered(self) -> bool:
        """Whether the log has nearly all of it: `value` is then what it would have earned, and otherwise leaves out, or
        guesses, what is missing. The interval allows for that either way."""
        return self.missing <= 1 - SUPPORTED

    def described(self, estimate: Estimate) -> str:
        """`per_visit` or `difference` in words.

        >>> found = CandidateResult("c", 9, "slots", "", *[Estimate(0.5, 0.2, 1.4)] * 4, 9, 1, 1, "better", missing=0.3)
        >>> found.described(found.per_visit)
        'not known [0.200, 1.400]'
        """
        return str(estimate) if self.answered else f"{UNKNOWN} [{estimate.low:.3f}, {estimate.high:.3f}]"


def chosen_way(tally: Tally, confidence: float = 0.95) -> tuple[str, bool]:
    """By the rule above; and whether it has enough rounds.

    >>> chosen_way(Tally())
    ('slots', False)
    """
    if SLATE in tally.ways:
        sums = tally.ways[SLATE].sums
        if sums.effective >= ENOUGH_SLATES and sums.mean_weight >= SUPPORTED and not _too_wide(tally, confidence):
            return SLATE, True
    return SLOTS, SLOTS in tally.ways and tally.ways[SLOTS].sums.effective >= ENOUGH


def _too_wide(tally: Tally, confidence: float) -> bool:
    """Whether the interval of slates says that what they hardly ever showed decides it."""
    if tally.most == 1:
        return False
    slates, slots = (intervals(tally, way, confidence, by_rule=True)[0] for way in (SLATE, SLOTS))
    normal = tally.ways[SLATE].terms.interval(confidence)
    return slates.width > WIDER_THAN_SLOTS * slots.width and slates.width > WIDER_THAN_NORMAL * normal.width


def intervals(tally: Tally, way: str, confidence: float, by_rule: bool) -> tuple[Interval, Interval]:
    """Of the reward of a round and of its difference to what was served, weighed in a way that was given or that the
    rule took.

    Which way the rule takes depends on the rounds, so that slates and slots together may go wrong in 5 % of logs. One
    capital is shared out, SLATES_SHARE to slates. If slots assume what is so, both have the same mean, and whatever the
    two shares together refute is refuted; slates, which assume nothing, are taken at the word of their own share alone.
    Whenever an interval of either misses, the whole capital has grown twentyfold at the truth. Decisions of one slot
    are the same in both ways, and nothing has to be shared.

    >>> import numpy as np
    >>> from treetop.evaluation.judged import Judged
    >>> even = np.ones((4, 1))
    >>> rounds = Judged(even, even, even, np.ones(4), 0 * even, 0 * even, np.zeros((4, 1, 0)), even > 0)
    >>> intervals(Tally.of(rounds), SLOTS, 0.95, by_rule=True)[0].high
    1.0
    """
    found, beside, slots = tally.ways[way], None, tally.slots / tally.rounds
    if by_rule and tally.most > 1:
        if way == SLOTS:
            beside = tally.ways[SLATE]
        else:
            confidence = 1 - (1 - confidence) * SLATES_SHARE
    interval = found.interval(tally.most, slots, confidence, beside)
    return interval, found.gap(tally.most, tally.served_most, confidence, beside)


def judge(
    name: str,
    tally: Tally,
    left_out: dict[str, int],
    confidence: float = 0.95,
    estimator: str | None = None,
    weight_bound: float | None = None,
    limits: tuple[float, float] = (0.0, 1.0),
) -> CandidateResult:
    """The result of a candidate by an estimator; without one the rule chooses between snips-slate and snips-slots.

    `weight_bound` is what no weight can exceed, as it was given to the tally. A weight beyond it is an error. Rewards
    lie in `limits`, and were scaled from there to the [0, 1] of the tally. A slot less is no loss of what [0, 1] makes
    of a reward of 0, so the verdict is by rewards as they are.

    >>> import numpy as np
    >>> from treetop.evaluation.judged import Judged
    >>> one = np.ones((3000, 1))
    >>> hits = (np.arange(3000) % 2)[:, None].astype(float)  # two arms, each shown half of the time, one of them right
    >>> rest = 0 * one, 0 * one, np.zeros((3000, 1, 0)), one > 0
    >>> found = judge("always right", Tally.of(Judged(0.5 * one, hits, hits, hits[:, 0], *rest)), {})
    >>> found.verdict, round(found.per_visit.value, 3), found.estimator
    ('better', 1.0, 'snips-slate')
    """
    if tally.rounds == 0:
        nothing = Estimate(math.nan, math.nan, math.nan)
        words = "cannot tell: there are no rounds to judge it by"
        return CandidateResult(
            name, 0, "none", "", nothing, nothing, nothing, nothing, 0.0, 0.0, math.nan, words, (), {}, left_out
        )
    if estimator is not None:
        way, enough = "", True
    else:
        _check_bound(name, tally.ways[SLOTS], weight_bound)
        way, enough = chosen_way(tally, confidence)
    chosen = Estimator("snips", way) if estimator is None else Estimator.of(estimator)
    if chosen.way not in tally.ways:
        raise ValueError(
            f"estimator is {chosen.name!r}; it needs the chances of nodes as they were served: models that are kept, "
            f"with one tree. {name} has {', '.join(tally.ways)}"
        )
    found, slots = tally.ways[chosen.way], tally.slots / tally.rounds
    _check_bound(name, found, weight_bound)
    value, interval, gap = _estimated(tally, chosen, confidence, estimator is None, limits)
    per_visit = Estimate(value, interval.low, interval.high).within(limits, slots)
    served_slots, served = tally.served_slots / tally.rounds, tally.served_interval(confidence)
    difference = Estimate(_within(value - tally.served.mean, gap), gap.low, gap.high)
    difference = difference.within(limits, slots - served_slots)
    missing = _missing(tally, found, chosen)
    said = verdict(tally.rounds, difference.value, Interval(difference.low, difference.high), missing)
    guessed = f"{chosen.supposes}: {per_visit.value:.3f} a visit, {difference.value:+.3f} against served"
    return CandidateResult(
        name,
        tally.rounds,
        chosen.way,
        chosen.assumes,
        per_visit,
        per_visit.divided(slots),
        Estimate(tally.served.mean, served.low, served.high).within(limits, served_slots),
        difference,
        found.sums.effective,
        found.sums.share,
        found.sums.mean_weight,
        SAME if tally.slots == tally.served_slots and tally.ways[SLOTS].sums.all_one else said,
        (*_notes(found, enough, missing, guessed), *chosen.notes),
        _others(tally, limits),
        left_out,
        chosen.name,
        found.largest,
        min(tally.unsupported / tally.rounds, 1.0),
        missing,
        _bernstein(tally, chosen, confidence, estimator is None, value).within(limits, slots),
    )


def _bernstein(tally: Tally, by: Estimator, confidence: float, by_rule: bool, value: float) -> Estimate:
    """Slates and slots share what may go wrong where the rule chooses between them, as in `intervals`."""
    if by.by_model:
        return Estimate(math.nan, math.nan, math.nan)
    if by_rule and tally.most > 1:
        confidence = 1 - (1 - confidence) * (SLATES_SHARE if by.way == SLATE else 1 - SLATES_SHARE)
    found = tally.ways[by.way].bernstein(tally.most, tally.slots / tally.rounds, confidence)
    return Estimate(_within(value, found), found.low, found.high)


def _missing(tally: Tally, found: WayTally, by: Estimator) -> float:
    """The share of what the candidate shows that the log never showed, or hardly ever; by nodes: no arm of the node."""
    never = tally.unsupported / tally.rounds if by.height is None else 0.0
    return max(found.sums.lacking, 0.0 if math.isnan(never) else min(never, 1.0))


def _check_bound(name: str, found: WayTally, bound: float | None) -> None:
    if bound is not None and found.largest > bound * (1 + ROUNDING):
        raise ValueError(f"weight_bound is {bound:g}; {name} has a weight of {found.largest:g}")


def _estimated(
    tally: Tally, by: Estimator, confidence: float, by_rule: bool, limits: tuple[float, float]
) -> tuple[float, Interval, Interval]:
    """The reward of a round with its interval, and that of the difference to what was served, scaled to [0, 1]."""
    if by.by_model:
        found = tally.model_based[by.name]
        return found.value.mean, found.value.interval(confidence), found.difference.interval(confidence)
    way = tally.ways[by.way]
    interval, gap = intervals(tally, by.way, confidence, by_rule)
    unknown = way.sums.unknown * tally.slots / tally.rounds * _nothing(limits)
    values = {"ips": way.terms.mean, "controlled": way.controlled.mean, "snips": way.sums.value + unknown}
    return _within(values[by.kind], interval), interval, gap


def verdict(rounds: int, difference: float, gap: Interval, missing: float = 0.0) -> str:
    """Against what served, by the interval of the difference. No more visits are promised to tell where much of what
    the candidate shows is `missing`: the difference is not known then, and how many would show the rest neither.

    >>> verdict(100, 0.2, Interval(0.1, 0.3)), verdict(100, -0.2, Interval(-0.3, -0.1))
    ('better', 'worse')
    >>> verdict(100, 0.1, Interval(-0.1, 0.3))
    'cannot tell yet: about 300 more visits'
    >>> verdict(100, 0.1, Interval(-0.1, 0.3), missing=0.4)
    'cannot tell: the log lacks 40% of it'
    """
    if gap.low > 0:
        return "better"
    if gap.high < 0:
        return "worse"
    if missing > 1 - SUPPORTED:
        return f"cannot tell: the log lacks {missing:.0%} of it"
    half = difference - gap.low if difference > 0 else gap.high - difference
    more = rounds * ((half / abs(difference)) ** 2 - 1) if difference else math.inf
    if more > FAR * rounds:
        return f"cannot tell yet: more than {_round(FAR * rounds):,} more visits"
    return f"cannot tell yet: about {_round(max(more, 1)):,} more visits"


def short_verdict(verdict: str) -> str:
    """A verdict without the guess of how many more visits would do.

    >>> short_verdict("cannot tell yet: about 300 more visits"), short_verdict("better")
    ('cannot tell yet', 'better')
    """
    return verdict.partition(":")[0]


def _round(number: float) -> int:
    """Two digits are all that a guess has."""
    size = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(round(number / size) * size)


def _within(value: float, interval: Interval) -> float:
    return min(max(value, interval.low), interval.high)


def _notes(found: WayTally, enough: bool, missing: float, guessed: str) -> tuple[str, ...]:
    notes = []
    if not enough:
        notes.append(
            f"only {counted(round(found.sums.effective), 'effective round')}: the log says next to nothing about it"
        )
    if missing > 1 - SUPPORTED:
        words = f"about {missing:.0%} of what it would show was hardly ever shown, and may bring anything"
        notes.append(f"{words}; {guessed}")
    if found.sums.mean_weight > 1 + EXCESS and found.sums.excess > NO_CHANCE:
        weights = f"{found.sums.mean_weight:.2f}"
        notes.append(f"weights are {weights} on average, and should be 1: propensities or chances are wrong")
    return tuple(notes)


def _nothing(limits: tuple[float, float]) -> float:
    """What is nearest to a reward of 0, as limits are scaled to [0, 1]."""
    low, high = limits
    return (min(max(0.0, low), high) - low) / (high - low)


def _others(tally: Tally, limits: tuple[float, float]) -> dict[str, tuple[float, float]]:
    others = {}
    for name, way in tally.ways.items():
        others[f"ips-{name}"] = way.terms.mean, way.terms.error
        others[f"snips-{name}"] = way.sums.value, math.nan
        if name in (SLATE, SLOTS):
            others[f"controlled-{name}"] = way.controlled.mean, way.controlled.error
    others |= {name: (each.value.mean, each.value.error) for name, each in tally.model_based.items()}
    slots, span = tally.slots / tally.rounds, limits[1] - limits[0]
    if limits == (0.0, 1.0):
        return others
    return {name: (limits[0] * slots + span * value, span * error) for name, (value, error) in others.items()}
