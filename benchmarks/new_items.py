"""Are new items shown? 1,000 of them come into the made-up shop, and visits go on.

    python benchmarks/new_items.py [--items 300000] [--new 1000] [--visits 12000] [--seed 1]

The bandit, defaults only, is created from all other items with vectors and categories and sees `--before` visits; then
the new ones are added, and `--visits` follow with refits by its own schedule. On a dozen shelves: the new items lie
there, and half of the visits aim at these shelves. Everywhere: they lie on all shelves, and visits are as ever. Each is
played again without the budget for new arms, on the same visitors and with the same luck: the difference in clicks, by
the truth, is what showing them costs (`reward_lost`), beside what is charged to the budget and what the
model's scores say.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from shop import ROOT, context, epochs, load_world, part, parts

from treetop import Bandit, Catalogue
from treetop.bandit.config import Config, PolicyConfig
from treetop.bandit.new_arms import TRIALS, NewArms

SHELVES = 12
BESIDE = "parts"  # contexts have device and country beside their vectors


def newcomers(world: Any, count: int, on_shelves: bool, seed: int) -> Any:
    """Items that come later: those of a dozen shelves, or of all."""
    rng = np.random.default_rng([seed, 3])
    if not on_shelves:
        return np.sort(rng.choice(world.items, count, replace=False))
    shelf = np.ravel_multi_index(tuple(world.path.T), (12, 10, 25))
    on = rng.permutation(np.unique(shelf))
    some = [np.flatnonzero(shelf == each) for each in on[:SHELVES]]
    there = rng.permutation(np.concatenate(some))
    return np.sort(there[:count])


def aimed(world: Any, visitors: dict[str, Any], new: Any, begin: int, seed: int) -> dict[str, Any]:
    """Visitors of whom, from `begin` on, every second comes for something on the shelves of the new items."""
    rng = np.random.default_rng([seed, 4])
    shelf = np.ravel_multi_index(tuple(world.path.T), (12, 10, 25))
    there = np.flatnonzero(np.isin(shelf, np.unique(shelf[new])))
    rows = np.arange(begin, len(visitors["device"]), 2)
    near = world.vectors[rng.choice(there, len(rows))] + 0.08 * rng.normal(size=(len(rows), world.dimensions))
    near = (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32)
    moved = {name: values.copy() for name, values in visitors.items()}
    moved["vector"][rows] = moved["_true"][rows] = near
    return moved


def play(
    world: Any, visitors: dict[str, Any], clicks: Any, new: Any, before: int, budget: float | None
) -> dict[str, Any]:
    """How often the new items were shown after `before` visits, and the clicks a visit since, by the truth."""
    old = np.setdiff1d(np.arange(world.items), new)
    parameters = {} if budget is None else {"new_arms_budget": budget}
    config = Config(policy=PolicyConfig(parameters=parameters))
    categories = [world.categories[i] for i in old.tolist()]
    n, due, spent = len(clicks), set(epochs(len(clicks))), np.zeros(5)
    shown = np.zeros((n, 5), np.int64)
    with tempfile.TemporaryDirectory() as place:
        catalogue = Catalogue(old.tolist(), world.vectors[old], categories)
        with Bandit.create(Path(place) / "shop", catalogue, features=parts(world, BESIDE), config=config) as bandit:
            for i in range(n):
                if i == before:
                    bandit.add_arms(new.tolist(), world.vectors[new], [world.categories[j] for j in new.tolist()])
                if i in due:
                    spent += bandit.snapshot.model.engine.new_arm_spending() if i > before else 0.0
                    bandit.refit()
                event = f"visit-{i}"
                shown[i] = bandit.decide(context(world, visitors, i, BESIDE), event_id=event).arms
                chance = world.click(part(visitors, i, i + 1), shown[i : i + 1])[0]
                told = (clicks[i] < chance).astype(float).tolist()
                bandit.reward(event, dict(zip(shown[i].tolist(), told, strict=True)))
            spent += bandit.snapshot.model.engine.new_arm_spending()
            counted = NewArms()
            counted.update(bandit.log, bandit.snapshot.arms, bandit.folder.history())
            cohort = counted.cohorts(bandit.snapshot.arms)[0]
    since = part(visitors, before, n)
    return {
        "shown": cohort.shown,
        "enough": cohort.enough,
        "impressions": cohort.impressions,
        "charged": float(spent[2] / spent[0]),  # of the rewards expected
        "by_scores": float(spent[3] / spent[0]),
        "clicks": float(world.click(since, shown[before:]).sum(axis=1).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=300_000)
    parser.add_argument("--new", type=int, default=1000)
    parser.add_argument("--before", type=int, default=3000, help="visits before the new items come")
    parser.add_argument("--visits", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, help="new_arms_budget, if not the default")
    parser.add_argument("--only", choices=("shelves", "everywhere"))
    parser.add_argument("--world", type=Path, default=ROOT.parent / "shared" / "worlds" / "shop.py")
    asked = parser.parse_args()
    world = load_world(asked.world).Shop(items=asked.items)
    total = asked.before + asked.visits
    for where in ("shelves", "everywhere"):
        if asked.only not in (None, where):
            continue
        new = newcomers(world, asked.new, where == "shelves", asked.seed)
        visitors = world.visitors(total, seed=asked.seed)
        if where == "shelves":
            visitors = aimed(world, visitors, new, asked.before, asked.seed)
        clicks = np.random.default_rng([asked.seed, 7]).random((total, 5))
        facts = {"where": where, "items": asked.items, "new": len(new), "visits": asked.visits, "trials": TRIALS}
        found = play(world, visitors, clicks, new, asked.before, asked.budget)
        print(json.dumps({**facts, "new_arms_budget": asked.budget or "default", **found}), flush=True)
        without = play(world, visitors, clicks, new, asked.before, 0.0)
        lost = {"reward_lost": 1 - found["clicks"] / without["clicks"]}
        print(json.dumps({**facts, "new_arms_budget": 0, **without, **lost}), flush=True)


if __name__ == "__main__":
    main()
