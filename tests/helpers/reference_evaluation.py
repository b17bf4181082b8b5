"""Slow, obvious twins of the estimators and intervals, one round and one slot at a time. Share no code with them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Slot:
    """One slot of a logged round."""

    logged: float
    target: float
    reward: float
    score: float = 0.0
    expected: float = 0.0
    node_ratio: float = 1.0


Round = Sequence[Slot]


def weight(slots: Round, nodes: bool = False) -> float:
    """How much more likely all these slots are under the candidate."""
    return math.prod(slot.node_ratio if nodes else slot.target / slot.logged for slot in slots)


def ips_slate(rounds: Sequence[Round]) -> float:
    return sum(weight(r) * sum(slot.reward for slot in r) for r in rounds) / len(rounds)


def ips_slots(rounds: Sequence[Round], nodes: bool = False) -> float:
    return sum(weight(r[: s + 1], nodes) * r[s].reward for r in rounds for s in range(len(r))) / len(rounds)


def snips_slate(rounds: Sequence[Round]) -> float:
    return ips_slate(rounds) / (sum(weight(r) for r in rounds) / len(rounds))


def snips_slots(rounds: Sequence[Round]) -> float:
    total = 0.0
    for s in range(max(map(len, rounds))):
        long = [r for r in rounds if len(r) > s]
        weights = [weight(r[: s + 1]) for r in long]
        if sum(weights) > 0:
            mean = sum(w * r[s].reward for w, r in zip(weights, long, strict=True)) / sum(weights)
            total += mean * len(long) / len(rounds)
    return total


def doubly_robust(rounds: Sequence[Round], nodes: bool = False) -> float:
    total = 0.0
    for r in rounds:
        for s, slot in enumerate(r):
            total += weight(r[:s], nodes) * slot.expected + weight(r[: s + 1], nodes) * (slot.reward - slot.score)
    return total / len(rounds)


def doubly_robust_slate(rounds: Sequence[Round], means: Sequence[float]) -> float:
    """Of whole slates: slots that were shown count as scored, those to come by their means."""
    total = 0.0
    for r in rounds:
        total += weight(r) * sum(slot.reward for slot in r)
        for s, slot in enumerate(r):
            others = sum(before.score for before in r[:s]) + sum(means[s + 1 : len(r)])
            total -= weight(r[: s + 1]) * (others + slot.score) - weight(r[:s]) * (others + slot.expected)
    return total / len(rounds)


def effective_size(weights: Sequence[float]) -> float:
    return sum(weights) ** 2 / sum(w * w for w in weights)


def log_mixture(logs: Sequence[float], shares: Sequence[float]) -> float:
    """log of sum_j share_j exp(logs_j)."""
    top = max(logs)
    return top + math.log(sum(share * math.exp(each - top) for each, share in zip(logs, shares, strict=True)))


def log_capital(values: Sequence[float], mean: float, stakes: Sequence[float], shares: Sequence[float]) -> float:
    """Of bets that values, at least 0, have a mean above `mean`: every bet by itself."""
    return log_mixture([sum(math.log1p(b * (z - mean)) for z in values) for b in stakes], shares)


def bernstein_log_capital(
    values: Sequence[float], mean: float, stakes: Sequence[float], shares: Sequence[float]
) -> float:
    squares = 0.0
    for i, z in enumerate(values):
        centre = min(1.0, (0.5 + sum(values[:i])) / (1 + i))
        squares += (z - centre) ** 2
    logs = [b * sum(z - mean for z in values) - (-math.log(1 - b) - b) * squares for b in stakes]
    return log_mixture(logs, shares)


def normal_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 %."""
    half = 1.959964 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)) - half, float(np.mean(values)) + half


@dataclass(frozen=True)
class Line:
    """The control variate of one slot: g = level + slope * score, and the slot's mean reward."""

    level: float
    slope: float
    mean: float


def controlled(
    slots: Round, lines: Sequence[Line], support: Sequence[tuple[float, float]], whole: bool, cap: float
) -> tuple[float, float]:
    """What one round says of the value and of its complement, less control variates that keep it at -cap or above.

    `support` has how much of a slot the log can show, and the largest ratio of chances that the slot can have.
    """
    m = len(slots)
    taken_off = [0.0, 0.0]
    for s, slot in enumerate(slots):
        line, (covered, largest) = lines[s], support[s]
        g, expected = line.level + line.slope * slot.score, line.level * covered + line.slope * slot.expected
        others = sum(later.mean for later in lines[s + 1 : m])
        if whole:
            others += sum(lines[j].level + lines[j].slope * slots[j].score for j in range(s))
        all_slots = m if whole else m - s
        ends = line.level, line.level + line.slope
        before = weight(slots[:s])
        sides = (
            (others + g, others * covered + expected, others + max(ends)),
            (all_slots - others - g, (all_slots - others) * covered - expected, all_slots - others - min(ends)),
        )
        for side, (found, mean, top) in enumerate(sides):
            rise = before * largest * top - before * mean
            share = 1.0 if math.isinf(cap) or rise <= 0 else min(1.0, max(0.0, (cap - taken_off[side]) / rise))
            taken_off[side] += share * (weight(slots[: s + 1]) * found - before * mean)
    weights = [weight(slots) if whole else weight(slots[: s + 1]) for s in range(m)]
    value = sum(w * slot.reward for w, slot in zip(weights, slots, strict=True))
    missed = sum(w * (1 - slot.reward) for w, slot in zip(weights, slots, strict=True))
    return value - taken_off[0], missed - taken_off[1]


def counted(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    """How often each value came, shared out in proportion between the two edges around it."""
    counts = [0.0] * len(edges)
    for each in values:
        value = min(each, edges[-1])
        at = min(max(sum(edge < value for edge in edges), 1), len(edges) - 1)
        share = (value - edges[at - 1]) / (edges[at] - edges[at - 1])
        counts[at] += share
        counts[at - 1] += 1 - share
    return counts
