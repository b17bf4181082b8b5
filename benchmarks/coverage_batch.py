"""Whether betting intervals hold a known truth, for many repetitions at once: what `Tally` computes one by one.

The terms, control variates and stakes are those of the package; capital is summed over all repetitions of a
block, from the values themselves, which are counted at edges there. Capital is larger so by up to a few percent:
intervals hold the truth no more often than those of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from treetop.arrays import Bools, Floats
from treetop.evaluation.bets import lowest
from treetop.evaluation.control import Lines, LineSums, controlled_terms
from treetop.evaluation.judged import Judged
from treetop.evaluation.tally import CAPS, FIRST, LAST, PLANS, SHARES, SLATES_SHARE


def joined(parts: Sequence[Judged]) -> Judged:
    """Rounds of several repetitions, one behind the other."""
    names = [field.name for field in fields(Judged) if getattr(parts[0], field.name) is not None]
    return Judged(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def steps(n: int, looks: int) -> list[tuple[int, int]]:
    """Which rounds share control variates, as in `Tally.after`, which is called once a look."""
    found: list[tuple[int, int]] = []
    for look in range(looks):
        at, end = look * n // looks, (look + 1) * n // looks
        while at < end:
            step = min(max(at, FIRST), LAST, end - at)
            found.append((at, at + step))
            at += step
    return found


def held(plays: Sequence[Judged], truth: float, most: int, confidence: float, looks: int) -> Bools:
    """(repetitions, looks): whether the intervals by slates and by slots both hold the truth at each look, whichever
    the rule takes."""
    R, n, k = len(plays), len(plays[0]), plays[0].rewards.shape[1]
    rounds = joined(plays)
    weights = rounds.prefix_weights()
    ends = [(look + 1) * n // looks - 1 for look in range(looks)]
    limit = np.log(2 / (1 - confidence))
    by_way = []
    for whole in (True, False):
        used = np.broadcast_to(weights[:, -1:], weights.shape) if whole else weights
        lines = row_lines(plays, used.reshape(R, n, k), steps(n, looks))
        values, complements = controlled_terms(rounds, weights, lines, whole, CAPS)
        log_capital = []
        for terms, mean in ((values, truth), (complements, most - truth)):
            grown = np.full((R, looks), -np.inf)
            for z, cap, plan, share in zip(terms, CAPS, PLANS, SHARES, strict=True):
                gain = ((z - mean) / (mean - lowest(-cap))).reshape(R, n)
                for stake, log_share in zip(plan.stakes, plan.log_shares, strict=True):
                    along = np.cumsum(np.log1p(stake * np.maximum(gain, -1)), axis=1)[:, ends]
                    grown = np.logaddexp(grown, along + log_share + np.log(share))
            log_capital.append(grown)
        by_way.append(np.stack(log_capital))
    slates, slots = by_way
    if most > 1:  # whatever the share of slates refutes is refuted by all capital too
        slots = np.logaddexp(slates + np.log(SLATES_SHARE), slots + np.log(1 - SLATES_SHARE))
        slates = slates + np.log(SLATES_SHARE)
    held: Bools = (np.maximum(slates, slots) <= limit).all(axis=0)
    return held


def row_lines(plays: Sequence[Judged], weights: Floats, bounds: Sequence[tuple[int, int]]) -> Lines:
    """For each round of each repetition, the lines that its control variates go by."""
    k = weights.shape[2]
    level, slope, mean = (np.empty(weights.shape) for _ in range(3))
    for r, play in enumerate(plays):
        sums = LineSums()
        for at, end in bounds:
            lines = sums.lines(k)
            level[r, at:end], slope[r, at:end], mean[r, at:end] = lines.level, lines.slope, lines.mean
            sums += LineSums.of(play.part(slice(at, end)), weights[r, at:end])
    return Lines(*(each.reshape(-1, k) for each in (level, slope, mean)))
