"""Which strategy is better, and how sure that is: win/draw/loss, bands over seeds, regret exponents. Plays nothing.

The rule of the paper's Table 2 is that of Bietti et al. 2018 ("A Contextual Bandit Bake-off"): with p = mean reward / k
over n rounds, a wins over b if 1 - Phi((p_a - p_b) / sqrt(p_a (1 - p_a) / n + p_b (1 - p_b) / n)) < 0.05. Their own
code (albietz/cb_bakeoff, rank_algos.py) has the error function for Phi, which asks for 1.386 standard errors where the
normal distribution asks for 1.645: `law="erf"` is that one. Both treat the two runs as independent; `paired` does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import scipy  # its parts are loaded when they are first used, which most commands never do
from numpy.typing import ArrayLike

from treetop.arrays import Floats, check_float, check_int

LEVEL = 0.05
LAWS: dict[str, Callable[[float], float]] = {
    "normal": lambda x: float(scipy.special.ndtr(x)),
    "erf": lambda x: float(scipy.special.erf(x)),
}


def bakeoff(p_a: float, p_b: float, n: int, law: str = "normal") -> float:
    """The p-value of "a is better than b" from mean rewards a slot, p = mean reward / k, over n rounds each.

    >>> round(bakeoff(0.21, 0.20, 10_000), 4), round(bakeoff(0.21, 0.20, 1_000), 4)
    (0.0399, 0.2898)
    """
    if law not in LAWS:
        raise ValueError(f"law is {law!r}; it must be one of {', '.join(LAWS)}")
    for name, p in (("p_a", p_a), ("p_b", p_b)):
        check_float(name, p, 0, 1)
    error = math.sqrt((p_a * (1 - p_a) + p_b * (1 - p_b)) / check_int("n", n, 1, 2**62))
    if error == 0:
        return 0.0 if p_a > p_b else 1.0
    return 1 - float(LAWS[law]((p_a - p_b) / error))


def paired(a: ArrayLike, b: ArrayLike) -> float:
    """The p-value of "a is better than b" from what both collected in the same blocks of the same streams.

    A one-sided t-test of the differences: what makes a block easy or hard for both cancels out.

    >>> hard = np.array([5.0, 1.0, 9.0, 3.0, 7.0, 2.0])
    >>> round(paired(hard + [0.2, 0.1, 0.3, 0.2, 0.1, 0.2], hard), 4)
    0.0009
    """
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"blocks of shapes {first.shape} and {second.shape}; two lists of one length are needed")
    if len(first) < 2:
        raise ValueError(f"{len(first)} blocks; at least 2 are needed to tell a difference from noise")
    difference = first - second
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    mean = float(difference.mean())
    if error <= 1e-12 * abs(mean) or error == 0:
        return 0.0 if mean > 0 else 1.0
    return 1 - float(scipy.special.stdtr(len(difference) - 1, mean / error))


def verdict(better: float, worse: float, level: float = LEVEL) -> int:
    """1 if a wins, -1 if it loses, 0 for a draw, from the p-values of "a is better" and "b is better".

    >>> verdict(better=0.01, worse=0.99), verdict(better=0.4, worse=0.6)
    (1, 0)
    """
    return int(better < level) - int(worse < level)


@dataclass(frozen=True)
class Tally:
    """Wins, draws and losses.

    >>> print(Tally(4, 1, 1)), print(Tally() + 1 + 0 + -1 + 1)
    4W/1D/1L
    2W/1D/1L
    (None, None)
    """

    wins: int = 0
    draws: int = 0
    losses: int = 0

    def __add__(self, outcome: int) -> Tally:
        return Tally(self.wins + (outcome > 0), self.draws + (outcome == 0), self.losses + (outcome < 0))

    def __str__(self) -> str:
        return f"{self.wins}W/{self.draws}D/{self.losses}L"


Outcomes = dict[tuple[str, str], int]  # (a, b) -> 1, 0 or -1
Matrix = dict[tuple[str, str], Tally]


def outcomes(names: Sequence[str], p_value: Callable[[str, str], float], level: float = LEVEL) -> Outcomes:
    """Every name against every other: `p_value(a, b)` is the p-value of "a is better than b".

    >>> outcomes(["x", "y"], lambda a, b: 0.01 if a == "x" else 0.99)
    {('x', 'y'): 1, ('y', 'x'): -1}
    """
    return {(a, b): verdict(p_value(a, b), p_value(b, a), level) for a, b in permutations(names, 2)}


def tally(votes: Iterable[Outcomes]) -> Matrix:
    """The win/draw/loss matrix of many comparisons: one vote a dataset, or a dataset and seed.

    >>> tally([{("x", "y"): 1}, {("x", "y"): 0}])
    {('x', 'y'): Tally(wins=1, draws=1, losses=0)}
    """
    found: Matrix = {}
    for vote in votes:
        for pair, outcome in vote.items():
            found[pair] = found.get(pair, Tally()) + outcome
    return found


@dataclass(frozen=True)
class Band:
    """The mean over seeds of one curve, and where the mean of all seeds lies with the given confidence."""

    rounds: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    seeds: int


def band(curves: Sequence[Sequence[tuple[int, float]]], confidence: float = 0.95) -> Band:
    """Curves of [(round, value), ...] as one band: t intervals at every round; one curve has no width.

    Curves of other rounds are read off at the rounds of the first, between two of their points linearly.

    >>> band([[(1, 0.0), (2, 1.0)], [(1, 0.0), (2, 3.0)]]).mean
    (0.0, 2.0)
    """
    if not curves or not all(len(curve) for curve in curves):
        raise ValueError(
            f"{len(curves)} curves of {[len(curve) for curve in curves]} points; at least 1 of 1 is needed"
        )
    rounds = np.array([t for t, _ in curves[0]])
    values = np.array([np.interp(rounds, [t for t, _ in curve], [v for _, v in curve]) for curve in curves])
    mean, half = values.mean(axis=0), half_width(values, confidence)
    low, high = ((mean + sign * half).tolist() for sign in (-1, 1))
    return Band(tuple(rounds.tolist()), tuple(mean.tolist()), tuple(low), tuple(high), len(curves))


def half_width(values: ArrayLike, confidence: float = 0.95) -> Floats:
    """Half the width of the t interval of the mean over the first axis; 0 for one value.

    >>> half_width([1.0, 2.0, 3.0]).round(3)
    np.float64(2.484)
    """
    array = np.asarray(values, np.float64)
    if (n := len(array)) < 2:
        return np.zeros(array.shape[1:])
    quantile = scipy.special.stdtrit(n - 1, (1 + check_float("confidence", confidence, 0, 1)) / 2)
    return np.asarray(quantile * array.std(axis=0, ddof=1) / math.sqrt(n))[()]


def exponent(rounds: ArrayLike, regret: ArrayLike) -> float:
    """The growth of cumulative regret: the least-squares slope of log regret against log t over the second half.

    1 is a strategy that learns nothing, 1/2 is what Theorem 1 promises.

    >>> t = np.arange(1, 1001)
    >>> round(exponent(t, 3 * np.sqrt(t)), 6)
    0.5
    """
    t, r = np.asarray(rounds, np.float64), np.asarray(regret, np.float64)
    if t.shape != r.shape or t.ndim != 1:
        raise ValueError(f"rounds of shape {t.shape}, regret of shape {r.shape}; two lists of one length are needed")
    late = t >= t.max(initial=0) / 2
    if late.sum() < 2 or not (t[late] > 0).all():
        raise ValueError(f"{late.sum()} points in the second half; at least 2 are needed")
    if not (r[late] > 0).all():
        raise ValueError(f"regret {r[late].min():g} in the second half; its logarithm needs it above 0")
    return float(np.polyfit(np.log(t[late]), np.log(r[late]), 1)[0])


def ranks(means: Mapping[str, float]) -> dict[str, int]:
    """The place of every name, best first; equals share the better place.

    >>> ranks({"igw": 0.8, "greedy": 0.4, "epsilon": 0.8})
    {'igw': 1, 'greedy': 3, 'epsilon': 1}
    """
    return {name: 1 + sum(other > mean for other in means.values()) for name, mean in means.items()}


@dataclass(frozen=True)
class Series:
    """One strategy on one dataset: what its runs collected, seed by seed.

    `blocks` holds the reward collected in every block of rounds, for runs that kept it. `setting` says how it was
    played, where that is not the same for all: greedy of the same setting is what others are compared with. `late` has
    the mean rewards over the last fifth, for runs that kept them.
    """

    name: str
    style: str
    k: int
    rounds: int
    seeds: tuple[int, ...]
    means: tuple[float, ...]
    curves: tuple[tuple[tuple[int, float], ...], ...]
    blocks: tuple[tuple[float, ...], ...] = ()
    setting: str = ""
    late: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        return float(np.mean(self.means))

    def seed(self, seed: int) -> Series:
        """The same, of one seed only."""
        i = self.seeds.index(seed)
        return replace(
            self,
            seeds=(seed,),
            means=self.means[i : i + 1],
            curves=self.curves[i : i + 1],
            blocks=self.blocks[i : i + 1],
            late=self.late[i : i + 1],
        )


RULES = ("bakeoff", "bakeoff erf", "paired")


def votes(series: Sequence[Series], rule: str = "bakeoff") -> Outcomes:
    """Every strategy of one dataset against every other, by name.

    The bake-off rules compare the mean over seeds with n = the rounds of one run: seeds shuffle the same rows, and are
    no new data. The paired rule compares block by block over the seeds that both have.

    >>> one = Series("X-IGW-topk", "igw", k=5, rounds=1000, seeds=(0,), means=(0.9,), curves=(((1000, 0.9),),))
    >>> two = Series("X-Greedy", "greedy", k=5, rounds=1000, seeds=(0,), means=(0.5,), curves=(((1000, 0.5),),))
    >>> votes([one, two])
    {('X-IGW-topk', 'X-Greedy'): 1, ('X-Greedy', 'X-IGW-topk'): -1}
    """
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}")
    by_name = {s.name: s for s in series}

    def p_value(a: str, b: str) -> float:
        one, two = by_name[a], by_name[b]
        if rule == "paired":
            return paired(*_common_blocks(one, two))
        law = "erf" if rule.endswith("erf") else "normal"
        return bakeoff(one.mean / one.k, two.mean / two.k, min(one.rounds, two.rounds), law)

    return outcomes(list(by_name), p_value)


def _common_blocks(a: Series, b: Series) -> tuple[Floats, Floats]:
    common = [seed for seed in a.seeds if seed in b.seeds]
    if not common or not (a.blocks and b.blocks):
        raise ValueError(f"{a.name} of seeds {a.seeds} and {b.name} of seeds {b.seeds} have no blocks in common")
    one, two = (np.concatenate([s.blocks[s.seeds.index(seed)] for seed in common]) for s in (a, b))
    return one, two
