"""The mean reward by routing score, pooled over all arms: what an arm that nobody has tried is expected to bring."""

from __future__ import annotations

import numpy as np

from treetop.arrays import Float32s, Floats, Int64s, Ints

KNOTS, WIDEST = 65, 4.0  # places of the means over the slack of a route; the core interpolates the same way
FITTED = 1 << 20  # rounds, a power of 2: what is a few numbers is fitted to no more of them than twice as many
BLOCK = 16_384  # samples that are added at a time: what they take stays in the cache


def slack(log_route: Floats) -> Floats:
    """cbrt(-log_route), at most WIDEST. For linear routing on one level: 1 - w.[x; 1] where that is positive.

    >>> slack(np.array([-1.0, -8.0, -1e9]))
    array([1., 2., 4.])
    """
    found = np.negative(log_route)
    return np.minimum(np.cbrt(found, out=found), WIDEST, out=found)


def interpolate(means: Floats, slacks: Floats) -> Floats:
    """Means at evenly spaced slacks in [0, WIDEST], linear in between.

    >>> interpolate(np.array([1.0, 0.0]), np.array([1.0]))
    array([0.75])
    """
    return np.interp(slacks, np.linspace(0, WIDEST, len(means)), means)


def resampled(means: Float32s) -> Floats:
    """The same means at KNOTS places.

    >>> resampled(np.array([1.0, 0.0], np.float32))[[0, 16, -1]]
    array([1.  , 0.75, 0.  ])
    """
    return interpolate(means.astype(np.float64), np.linspace(0, WIDEST, KNOTS))


def pooled_means(slacks: Floats, reward: Floats | Float32s, weight: Floats) -> Floats:
    """Mean reward at KNOTS places: each sample counts for the two places around it; the means never rise.

    >>> pooled_means(np.array([0.0, 0.0, 4.0]), np.array([1.0, 0.0, 0.0]), np.ones(3))[[0, -1]]
    array([0.5, 0. ])
    """
    sums = MeanSums()
    sums.add(slacks, reward, weight)
    return sums.means()


class MeanSums:
    """What pooled means are made of. Samples are added one by one: the sums are the same whatever the pieces."""

    def __init__(self) -> None:
        self._total, self._mass = np.zeros((2, KNOTS)), np.zeros((2, KNOTS))

    def add(self, slacks: Floats, reward: Floats | Float32s, weight: Floats) -> None:
        counts = np.flatnonzero(weight)
        for first in range(0, len(counts), BLOCK):
            some = counts[first : first + BLOCK]
            self._add(slacks[some], reward[some], weight[some])

    def _add(self, slacks: Floats, reward: Floats | Float32s, weight: Floats) -> None:
        place = slacks / WIDEST * (KNOTS - 1)
        i = np.minimum(place.astype(np.int64), KNOTS - 2)
        part = place - i
        for side, share in enumerate((weight * (1 - part), weight * part)):
            np.add.at(self._total[side], i + side, share * reward)
            np.add.at(self._mass[side], i + side, share)

    def means(self) -> Floats:
        return _never_rising(self._total.sum(axis=0), self._mass.sum(axis=0))


def _never_rising(total: Floats, mass: Floats) -> Floats:
    """The weighted least-squares fit of means that never rise (pool adjacent violators).

    A place without data takes the mean to its left.
    """
    blocks: list[list[float]] = []  # total, mass, places
    for y, w in zip(total, mass, strict=True):
        blocks.append([y, w, 1])
        while len(blocks) > 1 and blocks[-1][1] * blocks[-2][0] <= blocks[-1][0] * blocks[-2][1]:
            y, w, n = blocks.pop()
            blocks[-1] = [blocks[-1][0] + y, blocks[-1][1] + w, blocks[-1][2] + n]
    return np.concatenate([np.full(int(n), y / w if w > 0 else 0.0) for y, w, n in blocks])


def pooled_rounds(rounds: int) -> int:
    """How many rounds, the first ones, the means are made of without labels, from `first_fitted` on: they change when
    there are twice as many, later at every FITTED rounds.

    Meanwhile the residuals of old samples are the same at every refit, and an arm without new ones keeps its weights to
    the bit. The number depends on nothing but how many rounds there are, so that a refit from scratch is the same.

    >>> pooled_rounds(0), pooled_rounds(1), pooled_rounds(1023), pooled_rounds(1024)
    (0, 1, 512, 1024)
    >>> pooled_rounds(5 * FITTED - 1) == 4 * FITTED
    True
    """
    if rounds >= FITTED:
        return rounds // FITTED * FITTED
    return 1 << (rounds.bit_length() - 1) if rounds else 0


def first_fitted(rounds: int) -> int:
    """The first of so many rounds that means, curves, scales and maps are still fitted to: what says a few numbers for
    all arms needs no more than the latest FITTED to 2 * FITTED rounds. It never falls.

    >>> first_fitted(2 * FITTED - 1), first_fitted(2 * FITTED) == FITTED
    (0, True)
    """
    return max(0, pooled_rounds(rounds) - FITTED)


def round_weights(t: Ints | Int64s, rounds: int, share: float | None) -> Floats:
    """How much samples of rounds t count for the means: the `share` that they have beside labels, or, if that is None,
    1 in the rounds that the means are made of without.

    >>> round_weights(np.arange(3), 3, None).tolist(), round_weights(np.arange(3), 3, 0.5).tolist()
    ([1.0, 1.0, 0.0], [0.5, 0.5, 0.5])
    """
    end = pooled_rounds(rounds) if share is None else rounds
    counts = (t >= first_fitted(rounds)) & (t < end)
    return np.where(counts, 1.0 if share is None else share, 0.0)
