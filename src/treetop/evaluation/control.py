"""Control variates: terms of mean 0 that follow the weights, taken off what a round says, so that it varies less.

Given the slots before, the weight of a slot times any function q of its arm has the mean that the candidate's chances
give it. So

    z = W r - sum_s e_s (W_s q_s(a_s) - W_{s-1} E[q_s])

has the mean of W r, whatever q is, and varies least if q is what the round goes on to bring. q is a line through the
score of the candidate's model, fitted for each slot on earlier rounds by squared errors times squared weights: the
doubly robust estimator with a corrected model, for slots (q_s = g_s and means of the slots to come, whose weights
follow that of this slot: the recursion of Jiang and Li 2016) and for whole slates (and the slots so far). E[q] leaves
out what the log cannot show, as W r does, so nothing is assumed of support.

Bets need values that cannot fall far below 0: e_s <= 1 keeps what is taken off at most `cap`, whatever slot s shows. It
is known before that slot, since the largest weight that the slot can have is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from treetop import _core
from treetop.arrays import Floats
from treetop.evaluation.judged import Judged

CAREFUL = 10.0  # weights beyond it count as that while lines are fitted: a single one should not decide
PRIOR = 10.0  # rounds that speak for the model's own scores


@dataclass(frozen=True, eq=False)
class Lines:
    """For each slot g = level + slope * score, within [0, 1] where scores are, and the mean reward of the slot."""

    level: Floats
    slope: Floats
    mean: Floats

    @classmethod
    def identity(cls, k: int, mean: Floats | None = None) -> Lines:
        """The model's own scores.

        >>> Lines.identity(2).slope.tolist()
        [1.0, 1.0]
        """
        return cls(np.zeros(k), np.ones(k), np.zeros(k) if mean is None else mean)


@dataclass(frozen=True, eq=False)
class LineSums:
    """Sums over rounds (7, k): of what `lines` needs; those of two stretches add up.

    >>> one = np.ones((400, 1))
    >>> half = Judged(one, one, 0.5 * one, 0.5 * np.ones(400), 0 * one, 0 * one, np.zeros((400, 1, 0)), one > 0)
    >>> LineSums.of(half, half.prefix_weights()).lines(1).level.round(2)
    array([0.49])
    """

    sums: Floats = field(default_factory=lambda: np.zeros((7, 0)))

    @classmethod
    def of(cls, rounds: Judged, weights: Floats) -> LineSums:
        w = np.where(rounds.filled, np.minimum(weights, CAREFUL) ** 2, 0.0)
        f, r = rounds.score, rounds.rewards
        columns = w, w * f, w * f * f, w * r, w * f * r, rounds.filled, r
        return cls(np.array([column.sum(axis=0) for column in columns], np.float64))

    def __add__(self, other: LineSums) -> LineSums:
        width = max(self.sums.shape[1], other.sums.shape[1])
        parts = [np.pad(s.sums, ((0, 0), (0, width - s.sums.shape[1]))) for s in (self, other)]
        return LineSums(parts[0] + parts[1])

    def lines(self, k: int) -> Lines:
        """By weighted least squares, drawn to the model's own scores while there are few rounds."""
        sums = np.pad(self.sums, ((0, 0), (0, max(0, k - self.sums.shape[1]))))[:, :k]
        w, wf, wff, wr, wfr, n, r = sums
        a, b, c = w + PRIOR, wf, wff + PRIOR
        u, v = wr, wfr + PRIOR
        level, slope = (c * u - b * v) / (a * c - b * b), (a * v - b * u) / (a * c - b * b)
        low, high = np.clip(level, 0, 1), np.clip(level + slope, 0, 1)
        return Lines(low, high - low, np.clip(r / np.maximum(n, 1), 0, 1))


def controlled_terms(
    rounds: Judged, weights: Floats, lines: Lines, whole: bool, caps: Sequence[float], bound: float | None = None
) -> tuple[Floats, Floats]:
    """(caps, n) each: what a round says of the value, and of its complement (see `ips`), less control variates.

    It is never below -cap. `bound` is what no weight can exceed, for rounds whose largest weights are not known.

    >>> one = np.ones((1, 1))
    >>> known = {"covered": one, "largest": 2 * one}
    >>> half = Judged(0.5 * one, one, one, np.ones(1), 0.6 * one, 0.6 * one, np.zeros((1, 1, 0)), one > 0, **known)
    >>> value, complement = controlled_terms(half, half.prefix_weights(), Lines.identity(1), False, caps=[0.0, 4.0])
    >>> value.tolist(), complement.round(9).tolist()  # 2, 2 - (2 * 0.6 - 0.6); 0, 0 - (2 * 0.4 - 0.4)
    ([[2.0], [1.4]], [[0.0], [-0.4]])
    """
    unknown = np.full(weights.shape, np.nan)
    found: tuple[Floats, Floats] = _core.controlled_terms(
        _flat(weights),
        _flat(rounds.rewards),
        _flat(rounds.score),
        _flat(rounds.expected),
        _flat(unknown if rounds.covered is None else rounds.covered),
        _flat(unknown if rounds.largest is None else rounds.largest),
        rounds.slots.astype(np.int32),
        _flat(lines.level),
        _flat(lines.slope),
        _flat(lines.mean),
        whole,
        np.array(caps, np.float64),
        np.inf if bound is None else bound,
    )
    return found


def _flat(array: Floats) -> Floats:
    return np.ascontiguousarray(array, np.float64).reshape(-1)
