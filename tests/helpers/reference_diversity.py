"""The slow twin of slates with a bonus for coverage: every sequence of effective arms with its chance.

Shares no code with the package: coverage is a dense table, gains are recomputed from the whole slate.
"""

from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def bonus(shares: Floats, slate: tuple[int, ...]) -> float:
    """What a slate covers: of each group, what the arms together leave uncovered is the product of what each leaves."""
    return float(sum(1 - np.prod([1 - shares[i, g] for i in slate]) for g in range(shares.shape[1])))


def gains(scores: Floats, shares: Floats, slate: tuple[int, ...], weight: float) -> Floats:
    """The score of each candidate with what it adds to the coverage of a slate."""
    before = bonus(shares, slate)
    return np.array([s + weight * (bonus(shares, (*slate, i)) - before) for i, s in enumerate(scores)])


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
    scores: Floats, shares: Floats, k: int, explore: int, strategy: str, rate: float, weight: float
) -> dict[tuple[int, ...], float]:
    """Every sequence of k candidates with its chance."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for slot in range(k):
        longer: dict[tuple[int, ...], float] = {}
        for slate, chance in found.items():
            left = [i for i in range(len(scores)) if i not in slate]
            now = gains(scores, shares, slate, weight)[left]
            p = chances(now, "greedy" if slot < k - explore else strategy, rate)
            longer |= {(*slate, i): chance * float(c) for i, c in zip(left, p, strict=True) if c > 0}
        found = longer
    return found


def value(scores: Floats, shares: Floats, slate: tuple[int, ...], weight: float) -> float:
    return float(scores[list(slate)].sum()) + weight * bonus(shares, slate)


def best_value(scores: Floats, shares: Floats, k: int, weight: float) -> float:
    """By trying all slates."""
    return max(value(scores, shares, slate, weight) for slate in combinations(range(len(scores)), k))
