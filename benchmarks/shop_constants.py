"""Half and twice of the constants of catalogues with vectors: `python benchmarks/shop_constants.py [--out FILE]`.

The shop of `benchmarks/shop.py`, of 20,000 items, played by a bandit with defaults, once as it is and once for each
other value of each constant; those of the map between two spaces with visitors in a space of their own and a past log,
those of positions where lower ones are seen less often. A number is expected clicks a visit by the truth, over all
visits after the first 1,024, in per cent above or below that of the value of now. The file of `--out` keeps every run;
what is in it is not played again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cells
from constants import Constant, other, report
from shop import ROOT, load_world, part, past_log, play_bandit

STREAMS = {"shop": {}, "shop, two spaces": {"turn": True}, "shop, positions": {"examined": 0.85}}
CONSTANTS = (
    Constant("learning.pooled", "MEASURED_COST", (0.0025, 0.01), "shop"),
    Constant("model.pooled_state", "MEASURED_WEIGHTS", ((1.0, 0.375, 1.0), (1.0, 1.5, 1.0)), "shop"),
    Constant("learning.component_weights", "FORCE", (500, 2000), "shop"),
    Constant("learning.component_weights", "HALF_LIFE", (2500, 10_000), "shop"),
    Constant("learning.component_weights", "LARGEST", ((5.0, 0.5, 5.0), (20.0, 2.0, 20.0)), "shop"),
    Constant("model.measure", "FIRST_SLOPE", (4.0, 16.0), "shop"),
    Constant("model.measure", "KNOTS", (33, 129), "shop"),
    Constant("learning.measured", "FLATTEST", (0.005, 0.02), "shop"),
    Constant("learning.measured", "STEEPEST", (4.0, 16.0), "shop"),
    Constant("tree.tree", "MEASURED_BRANCHING", (64, 256), "shop"),
    Constant("tree.tree", "MEASURED_ROUNDS", (5, 20), "shop"),
    Constant("learning.context_map", "STRENGTH", (4.0, 16.0), "shop, two spaces"),
    Constant("learning.context_map", "STEPS", (15, 60), "shop, two spaces"),
    Constant("learning.context_map", "LATEST", (1 << 17, 1 << 19), "shop, two spaces"),
    Constant("learning.examination", "FORCE", (5.0, 20.0), "shop, positions"),
    Constant("learning.examination", "LATEST", (1 << 15, 1 << 17), "shop, positions"),
)


def play(shops: Any, stream: str, items: int, visits: int, seed: int) -> dict[str, float]:
    """Expected clicks a visit after the first model, and among those the last fifth."""
    asked = argparse.Namespace(**{"turn": False, "examined": 1.0, "beside": "parts", **STREAMS[stream]})
    world = shops.Shop(items=items, turn=asked.turn)
    visitors, clicks = world.visitors(visits, seed=seed), np.random.default_rng([seed, 7]).random((visits, 5))
    with tempfile.TemporaryDirectory() as place:
        past = past_log(world, Path(place))[0] if asked.turn else None
        shown, _ = play_bandit(world, visitors, clicks, Path(place) / "shop", asked, past)
    first, late = min(1024, visits // 2), visits - visits // 5
    earned = world.click(part(visitors, first, visits), shown[first:], asked.examined).sum(axis=1)
    return {
        "mean_reward": round(float(earned.mean()), 6),
        "late_reward": round(float(earned[late - first :].mean()), 6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--visits", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--world", type=Path, default=ROOT.parent / "shared" / "worlds" / "shop.py")
    parser.add_argument("--out", type=Path, default=Path("docs/results/shop-constants.json"))
    asked = parser.parse_args()
    shops, cells = load_world(asked.world), Cells.opened(asked.out, sys.argv)
    for stream in STREAMS:
        for constant in (None, *(constant for constant in CONSTANTS if constant.stream == stream)):
            for value in constant.values if constant else (None,):
                facts = {"data": "shop", "stream": stream, "rounds": asked.visits, "seed": asked.seed}
                named = {"where": constant.where, "constant": constant.name} if constant else {"constant": ""}
                with other(constant, value):
                    run = lambda: play(shops, stream, asked.items, asked.visits, asked.seed)  # noqa: B023, E731
                    cells.play({**facts, **named, "value": str(value)}, run)
    print(f"{report(cells, CONSTANTS)}\n\n{cells.about()}")


if __name__ == "__main__":
    main()
