"""How far intervals of `treetop.evaluate` are from the narrowest that hold, where the log has little of a candidate.

    python benchmarks/coverage_floor.py [--cells flat,synthetic,refitted,debian,670k,shop,FOLDER] [--reps 100]
        [--rounds 2000] [--pairs "default, beam 30; igw, epsilon 0.1"] [--shop ../shared/worlds/shop.py]
        [--out benchmarks/results/coverage-floor.json]

In such cells the normal approximation misses the truth, so that an interval of twice its width may have to miss it,
too. Two other yardsticks, over the logs of coverage.py:

- `stretched`: the normal approximation's width times the one factor that makes it hold the truth in 95 % of these logs.
  Nobody who does not know the truth can know the factor.
- `unseen`: of what the candidate shows, the slots that a log shows with so small chances that it tells less of them
  than not to look; they may have brought 0 or 1 each. The `floor` adds the normal approximation's width of the rest.
  Whatever assumes nothing of these slots cannot be much narrower. Measured on the pool that logs are drawn from.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from cells import Cell, table
from coverage import CONFIDENCE, LOGGED, LOOKS, play_cells

from treetop.arrays import Floats
from treetop.evaluation.estimators import SLATE
from treetop.evaluation.interval import Moments
from treetop.evaluation.judged import Judged
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import chosen_way, intervals

LARGEST = 2.0 ** np.arange(31)  # weights beyond which a log tells less of a slot than not to look, tried in turn


def floor(judged: Judged, weights: Floats, n: int) -> tuple[float, float]:
    """How many slots a visit are unseen by a log of n rounds, and how wide an interval must be.

    Slots of larger weights are taken as never shown; which weight that is, is chosen so that the interval is narrowest.
    """
    found = []
    for largest in LARGEST:
        seen = np.where(weights <= largest, weights, 0.0)
        unseen = float(judged.slots.mean() - seen.sum(axis=1).mean())
        width = Moments.of((seen * judged.rewards).sum(axis=1)).interval(CONFIDENCE).width
        found.append((max(unseen, 0.0) + width * np.sqrt(len(judged) / n), max(unseen, 0.0)))
    width, unseen = min(found)
    return unseen, width


def measure(world: Any, n: int, reps: int) -> Cell:
    """One cell: mean widths, the factor that the normal approximation wants, and the floor."""
    widths: list[float] = []
    normal: list[float] = []
    misses: list[float] = []
    ways: list[str] = []
    for seed in range(reps):
        judged, tally = world.play(n, seed), Tally()
        for look in range(LOOKS):
            tally = tally.after(judged.part(slice(look * n // LOOKS, (look + 1) * n // LOOKS)))
        name, _ = chosen_way(tally)
        ways.append(name)
        terms = tally.ways[name].terms
        widths.append(intervals(tally, name, CONFIDENCE, by_rule=True)[0].width)
        normal.append(terms.interval(CONFIDENCE).width)
        with np.errstate(divide="ignore"):
            misses.append(float(np.divide(abs(terms.mean - world.truth), normal[-1] / 2)))
    judged = world.play(LOGGED, seed=10**6)
    weights = judged.prefix_weights()
    if 2 * ways.count(SLATE) > reps:
        weights = np.broadcast_to(weights[:, -1:], weights.shape)
    unseen, least = floor(judged, weights, n)
    factor = float(np.quantile(misses, CONFIDENCE))
    return {
        "mean_reward": world.truth,
        "slots": world.slots,
        "width": float(np.mean(widths)),
        "normal": float(np.mean(normal)),
        "held": float(np.mean(np.array(misses) <= 1)),
        "factor": factor,
        "unseen": unseen,
        "floor": least,
        "ways": {name: ways.count(name) for name in sorted(set(ways))},
    }


def printed(cells: Sequence[Cell]) -> str:
    """Widths a visit, and how many times as wide as each yardstick the intervals are."""
    heads = [
        "cell",
        "arms",
        "served, candidate",
        "normal holds",
        "unseen",
        "width",
        "/ normal",
        "/ stretched",
        "/ floor",
    ]
    rows = []
    for c in cells:
        over = c["width"] / c["normal"], c["width"] / (c["normal"] * c["factor"]), c["width"] / c["floor"]
        facts = [c["cell"], f"{c['arms']:,}", c["pair"], f"{c['held']:.0%}", f"{c['unseen']:.3f}", f"{c['width']:.3f}"]
        rows.append([*facts, *(f"{each:.2f}" for each in over)])
    return table(heads, rows)


if __name__ == "__main__":
    play_cells(sys.argv, __doc__, ("synthetic", 100), measure, printed)
