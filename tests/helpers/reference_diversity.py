"""The slow twin of slates with a bonus for coverage: every sequence of effective arms with its chance.

Shares no code with the package: coverage is a dense table, gains are recomputed from the whole slate.
"""

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from helpers.budgeted import Twin
from helpers.reference import Floats, Sequence


def bonus(shares: Floats, slate: tuple[int, ...]) -> float:
    """What a slate covers: of each group, what the arms together leave uncovered is the product of what each leaves."""
    return float(sum(1 - np.prod([1 - shares[i, g] for i in slate]) for g in range(shares.shape[1])))


def left_of_score(scores: Floats, shares: Floats, slate: tuple[int, ...], i: int, saturation: float) -> float:
    """What a candidate earns below a slate: those of its groups have taken from it by what they earn themselves."""
    free = [
        np.prod([1 - saturation * shares[j, g] * min(1, max(0, scores[j])) for j in slate])
        for g in range(shares.shape[1])
    ]
    part = np.prod([1 - shares[i, g] * (1 - free[g]) for g in range(shares.shape[1])])
    return float(scores[i] * part if scores[i] > 0 else scores[i])


def gains(scores: Floats, shares: Floats, slate: tuple[int, ...], weight: float, saturation: float = 0.0) -> Floats:
    """What is left of the score of each candidate below a slate, with what it adds to the coverage of that."""
    before, n = bonus(shares, slate), len(scores)
    left = [left_of_score(scores, shares, slate, i, saturation) for i in range(n)]
    return np.array([left[i] + weight * (bonus(shares, (*slate, i)) - before) for i in range(n)])


def chances(scores: Floats, strategy: str, rate: float) -> Floats:
    n, best = len(scores), int(np.argmax(scores))
    p = np.zeros(n)
    if strategy == "greedy":
        p[best] = 1
    elif strategy == "epsilon":
        p[:] = rate / n
        p[best] += 1 - rate
    elif strategy == "igw":
        p = 1 / (n + np.sqrt(rate * n) * (scores[best] - scores))
        p[best] = 0
        p[best] = 1 - p.sum()
    else:
        p = np.exp(rate * (scores - scores[best]))
        p /= p.sum()
    return p


def slates(
    scores: Floats,
    shares: Floats,
    k: int,
    explore: int,
    strategy: str,
    rate: float,
    weight: float,
    saturation: float = 0.0,
) -> dict[tuple[int, ...], float]:
    """Every sequence of k candidates with its chance."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for slot in range(k):
        longer: dict[tuple[int, ...], float] = {}
        for slate, chance in found.items():
            left = [i for i in range(len(scores)) if i not in slate]
            now = gains(scores, shares, slate, weight, saturation)[left]
            p = chances(now, "greedy" if slot < k - explore else strategy, rate)
            longer |= {(*slate, i): chance * float(c) for i, c in zip(left, p, strict=True) if c > 0}
        found = longer
    return found


def value(scores: Floats, shares: Floats, slate: tuple[int, ...], weight: float, saturation: float = 0.0) -> float:
    earned = [left_of_score(scores, shares, slate[:s], i, saturation) for s, i in enumerate(slate)]
    return float(sum(earned)) + weight * bonus(shares, slate)


def best_value(scores: Floats, shares: Floats, k: int, weight: float, saturation: float = 0.0) -> float:
    """By trying all slates."""
    return max(value(scores, shares, slate, weight, saturation) for slate in combinations(range(len(scores)), k))


@dataclass(frozen=True)
class CoveringTwin(Twin):
    """Budgeted exploration with a bonus. What a draw gives up is told from values of whole slates, as greedy slots
    would complete them: without it, less with it."""

    shares: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    weight: float = 0.0
    saturation: float = 0.0
    # The same slates are asked for again and again, by every sequence that could lead to them.
    worths: dict[Sequence, float] = field(default_factory=dict, init=False)
    completions: dict[Sequence, list[int]] = field(default_factory=dict, init=False)

    def slate_worth(self, slate: Sequence) -> float:
        if slate not in self.worths:
            self.worths[slate] = value(np.maximum(self.score, 0), self.shares, slate, self.weight, self.saturation)
        return self.worths[slate]

    def completed(self, taken: Sequence) -> list[int]:
        """Who fills the slots that are left, one after the other."""
        if taken not in self.completions:
            self.completions[taken] = self._complete(taken)
        return self.completions[taken]

    def _complete(self, taken: Sequence) -> list[int]:
        rest: list[int] = []
        while len(taken) + len(rest) < self.slots:
            slate = (*taken, *rest)
            now = gains(np.maximum(self.score, 0), self.shares, slate, self.weight, self.saturation)
            rest.append(min(self.in_play(slate), key=lambda i: (-now[i], -self.score[i], i)))
        return rest

    def ranked(self, taken: Sequence) -> list[int]:
        rest = self.completed(taken)
        return rest + [i for i in self.in_play(taken) if i not in rest]

    def worth(self, taken: Sequence = ()) -> Floats:
        rest, found = self.completed(taken), np.zeros(len(self.score))
        for i in self.in_play(taken):
            before = (*taken, *rest[: rest.index(i) if i in rest else -1])
            found[i] = self.slate_worth((*before, i)) - self.slate_worth(before)
        return found

    def lost(self, taken: Sequence, i: int) -> float:
        without, drawn = ((*slots, *self.completed(slots)) for slots in (tuple(taken), (*taken, i)))
        return max(0.0, self.slate_worth(without) - self.slate_worth(drawn))
