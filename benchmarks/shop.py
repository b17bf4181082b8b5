"""A made-up shop whose truth is known: a bandit with the owner's vectors beside what a user would build without one.

    python benchmarks/shop.py [--items 300000] [--visits 35000] [--seed 1] [--world ../shared/worlds/shop.py]

Every row is expected clicks a visit, by the truth, on the same visitors: cold (before any refit) and in
the last fifth. A bandit is created from ids and vectors, defaults only, and told the clicks of what it showed.

- exact: the five largest dot products, all items looked at (NumPy)
- shortlist: the five largest of an index of nearest neighbours (faiss, if `make bench-peers` installed it)
- squarecb: a shortlist of 140, re-ranked by a curve over the dot product and a mean of what each item had left over,
  shrunk, learned at the same times; the last three slots drawn by inverse gap weighting (Foster and Rakhlin 2020)
- truth: the five best, which nobody knows
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import treetop
from treetop.bandit.config import Config
from treetop.learning.measured import fitted_curve

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
SHORTLIST = 140
SHRINK = 40.0  # impressions that say nothing of an item, for squarecb
Rows = Any


def load_world(path: Path) -> Any:
    """The module that makes shops."""
    spec = importlib.util.spec_from_file_location("shop_world", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"{path} is not there: --world names the file that makes shops")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def epochs(visits: int) -> list[int]:
    """Visits at which a model is fitted again: the bandit's own schedule."""
    schedule, at = Config().refit, []
    while (following := schedule.next_at(at[-1] if at else 0)) < visits:
        at.append(following)
    return at


def context(visitors: dict[str, Any], i: int) -> Rows:
    """A vector, and one-hot device and country beside it."""
    row = np.zeros(visitors["vector"].shape[1] + 9, np.float32)
    row[:-9] = visitors["vector"][i]
    row[-9 + visitors["device"][i]] = row[-6 + visitors["country"][i]] = 1.0
    return row


def part(visitors: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    return {name: values[first:end] for name, values in visitors.items()}


def play_bandit(world: Any, visitors: dict[str, Any], clicks: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """What a bandit shows; (visits, 5) items. `clicks` are uniform numbers that decide who clicks."""
    names = [f"v{i}" for i in range(world.dimensions)] + [*world.devices, *world.countries]
    started = time.perf_counter()
    bandit = treetop.Bandit.create(folder, treetop.Catalogue(range(world.items), vectors=world.vectors), features=names)
    made, n = time.perf_counter() - started, len(clicks)
    shown, due, refits, decided = np.zeros((n, 5), np.int64), set(epochs(n)), [], []
    with bandit:
        for i in range(n):
            if i in due:
                started = time.perf_counter()
                bandit.refit()
                refits.append(time.perf_counter() - started)
            row = context(visitors, i)
            event = f"visit-{i}"
            shown[i] = bandit.decide(row, event_id=event).arms
            chance = world.click(part(visitors, i, i + 1), shown[i : i + 1])[0]
            bandit.reward(event, dict(zip(shown[i].tolist(), (clicks[i] < chance).astype(float).tolist(), strict=True)))
        policy, model = bandit.config.policy.make_policy(), bandit.snapshot.model
        for i in range(min(n, 2000)):
            ready = bandit.row(context(visitors, i))
            started = time.perf_counter()
            policy.decide(model, ready, str(i))
            decided.append(time.perf_counter() - started)
    return shown, {"create_seconds": made, "refit_seconds": refits[-1:], "decide_ms": 1e3 * float(np.median(decided))}


def shortlists(vectors: Any, rows: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """(visits, 140) items, best first, by faiss where the peers' environment has it, else by looking at all."""
    if PEERS.exists() and subprocess.run([PEERS, "-c", "import faiss"], capture_output=True).returncode == 0:
        np.save(folder / "items.npy", vectors)
        np.save(folder / "rows.npy", rows)
        files = [str(folder / "items.npy"), str(folder / "rows.npy"), str(SHORTLIST), str(folder / "found.npy")]
        run = subprocess.run([PEERS, ROOT / "benchmarks" / "shortlist.py", *files], capture_output=True, check=True)
        return np.load(folder / "found.npy"), {"index": "faiss hnsw", **json.loads(run.stdout)}
    out, count = [], min(SHORTLIST, len(vectors) - 1)
    for at in range(0, len(rows), 200):
        scores = rows[at : at + 200] @ vectors.T
        top = np.argpartition(-scores, count, axis=1)[:, :count]
        out.append(np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1), axis=1))
    return np.concatenate(out).astype(np.int32), {"index": "exact: faiss is not installed"}


def play_squarecb(world: Any, visitors: dict[str, Any], clicks: Any, near: Any) -> Any:
    """What the shortlist with SquareCB over it shows."""
    rng, n = np.random.default_rng(0), len(clicks)
    measure = treetop.Measure(metric="cosine", dims=world.dimensions)
    slope, offset = measure.first_curve()
    extra, shown, clicked = np.zeros(world.items), np.zeros((n, 5), np.int64), np.zeros((n, 5))
    dots, due = np.zeros((n, 5)), set(epochs(n))
    for i in range(n):
        if i in due:
            flat, y, m = shown[:i].ravel(), clicked[:i].ravel(), dots[:i].ravel()
            slope, offset = fitted_curve(measure, m, y, np.ones(len(m)))
            left = y - 1 / (1 + np.exp(-(slope * m + offset)))
            extra = np.bincount(flat, left, world.items) / (np.bincount(flat, minlength=world.items) + SHRINK)
        items = near[i]
        m = world.vectors[items] @ visitors["vector"][i]
        score = 1 / (1 + np.exp(-(slope * m + offset))) + extra[items]
        chosen = _squarecb(score, i, rng)
        shown[i], dots[i] = items[chosen], m[chosen]
        clicked[i] = clicks[i] < world.click(part(visitors, i, i + 1), shown[i : i + 1])[0]
    return shown


def _squarecb(score: Any, seen: int, rng: np.random.Generator) -> list[int]:
    """Two slots greedily, three by inverse gap weighting with gamma = sqrt(1000 x rounds x candidates)."""
    chosen: list[int] = np.argsort(-score)[:2].tolist()
    for _ in range(3):
        left = np.setdiff1d(np.arange(len(score)), chosen)
        best = left[np.argmax(score[left])]
        p = 1 / (len(left) + np.sqrt(1000.0 * seen * len(left)) * (score[best] - score[left]))
        p[left == best] = 0.0
        p[left == best] = 1 - p.sum()
        chosen.append(int(rng.choice(left, p=p / p.sum())))
    return chosen


def measure(
    world: Any, visits: int, seed: int, say: Callable[[str], None] = print, peers: bool = True
) -> list[dict[str, Any]]:
    """A record a way to choose, on the same visitors and with the same luck."""
    visitors = world.visitors(visits, seed=seed)
    clicks = np.random.default_rng([seed, 7]).random((visits, 5))
    first, fifth = (epochs(visits) or [visits])[0], visits // 5
    judged = np.concatenate([np.arange(first), np.arange(visits - fifth, visits)])
    some = {name: values[judged] for name, values in visitors.items()}
    exact = world.best(some, truth=False)
    dots = world.click(some, exact).sum(axis=1)

    def judge(name: str, items: Any, facts: dict[str, Any]) -> dict[str, Any]:
        earned = world.click(some, items).sum(axis=1)
        record = {"way": name, "items": world.items, "visits": visits, "seed": seed, **facts}
        for stretch, where in (("cold", slice(0, first)), ("last_fifth", slice(first, None))):
            record[stretch] = float(earned[where].mean())
            record[f"{stretch}_over_dot"] = float(earned[where].sum() / dots[where].sum())
        record["top5_found"] = float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, items, strict=True)]))
        say(json.dumps(record))
        return record

    out = [judge("exact dot product", exact, {"decide_ms": _flat_ms(world, visitors)})]
    out.append(judge("truth", world.best(some), {}))
    with tempfile.TemporaryDirectory() as place:
        shown, facts = play_bandit(world, visitors, clicks, Path(place) / "shop")
        out.append(judge("treetop", shown[judged], facts))
        if peers:
            near, index = shortlists(world.vectors, visitors["vector"], Path(place))
            out.append(judge("shortlist", near[judged, :5], index))
            out.append(judge("squarecb", play_squarecb(world, visitors, clicks, near)[judged], index))
    return out


def _flat_ms(world: Any, visitors: dict[str, Any]) -> float:
    """Milliseconds that looking at all items takes, a visit at a time."""
    few = visitors["vector"][:20]
    started = time.perf_counter()
    for row in few:
        np.argpartition(-(world.vectors @ row), 5)
    return 1e3 * (time.perf_counter() - started) / len(few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=300_000)
    parser.add_argument("--visits", type=int, default=35_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-peers", action="store_true", help="leave out shortlist and squarecb")
    parser.add_argument("--world", type=Path, default=ROOT.parent / "shared" / "worlds" / "shop.py")
    asked = parser.parse_args()
    measure(load_world(asked.world).Shop(items=asked.items), asked.visits, asked.seed, peers=not asked.no_peers)


if __name__ == "__main__":
    main()
