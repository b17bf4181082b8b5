"""A made-up shop whose truth is known: a bandit with the owner's vectors beside what a user would build without one.

    python benchmarks/shop.py [--items 300000] [--visits 35000] [--seed 1] [--world ../shared/worlds/shop.py]
    python benchmarks/shop.py --turn               # visitors in a space of their own, and a past log of 50,000 rows
    python benchmarks/shop.py --examined 0.85      # lower positions are seen less often
    python benchmarks/shop.py --beside none|parts|age      # what a context has beside its vector

Every row is expected clicks a visit, by the truth, on the same visitors (at most 2,000 of each stretch): cold (before
any refit; with a log, the first 1,024 visits) and in the last fifth. A bandit is created from ids and vectors, defaults
only, and told the clicks of what it showed. With --turn it is told that the spaces differ, with --examined that slots
are positions. What is built without a bandit has the rotation that fits the log's clicked pairs best (Procrustes).

- exact: the five largest dot products, all items looked at (NumPy)
- shortlist: the five largest of an index of nearest neighbours (faiss, if `make bench-peers` installed it)
- squarecb: a shortlist of 140, re-ranked by a curve over the dot product and a mean of what each item had left over,
  shrunk, learned at the same times; the last three slots drawn by inverse gap weighting (Foster and Rakhlin 2020)
- truth: the five best, which nobody knows
- `top5_found`: how much of the exact top 5 is shown; `beam_recall`: how much of it the search finds, before the draw
- in stock: without --turn, the bandit with `where={"in_stock": true}` in every request, beside the dot product of that
"""

from __future__ import annotations

import argparse
import csv
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
from treetop.bandit.config import Config, RewardConfig
from treetop.bandit.past_log import import_past
from treetop.bandit.past_values import PastColumns
from treetop.learning.measured import fitted_curve
from treetop.policy.eligibility import EVERY_ARM
from treetop.policy.search import search_batch

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
SHORTLIST = 140
SHRINK = 40.0  # impressions that say nothing of an item, for squarecb
JUDGED = 2000  # visits of a stretch
PAST = 50_000  # rows of the past log, with --turn


def load_world(path: Path) -> Any:
    """The module that makes shops."""
    spec = importlib.util.spec_from_file_location("shop_world", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"{path} is not there: --world names the file that makes shops")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def epochs(visits: int, past: int = 0) -> list[int]:
    """Visits at which a model is fitted again: the bandit's own schedule, after a log of so many rounds."""
    schedule, at = Config().refit, []
    while (following := schedule.next_at(at[-1] + past if at else past) - past) < visits:
        at.append(following)
    return at


def parts(world: Any, beside: str) -> dict[str, Any]:
    """What a context has."""
    vector = {"vector": world.dimensions}
    named = {"device": list(world.devices), "country": list(world.countries)}
    return vector if beside == "none" else {**vector, **named, **({"age": None} if beside == "age" else {})}


def context(world: Any, visitors: dict[str, Any], i: int, beside: str) -> dict[str, Any]:
    """A vector, and beside it nothing, device and country, or an age that says nothing, too."""
    device, country = world.devices[visitors["device"][i]], world.countries[visitors["country"][i]]
    known = {"vector": visitors["vector"][i], "device": device, "country": country, "age": 18.0 + i * 7919 % 60}
    return {name: known[name] for name in parts(world, beside)}


def part(visitors: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    return {name: values[first:end] for name, values in visitors.items()}


def play_bandit(
    world: Any,
    visitors: dict[str, Any],
    clicks: Any,
    folder: Path,
    asked: argparse.Namespace,
    past: Any,
    where: dict[str, Any] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """What a bandit shows; (visits, 5) items. `clicks` are uniform numbers that decide who clicks."""
    started = time.perf_counter()
    attributes = None if where is None else {"in_stock": world.in_stock}
    items = treetop.Catalogue(world.ids, vectors=world.vectors, attributes=attributes, same_space=past is None)
    config = Config(rewards=RewardConfig(positions=asked.examined < 1))
    bandit = treetop.Bandit.create(folder, items, features=parts(world, asked.beside), config=config)
    made, n = time.perf_counter() - started, len(clicks)
    shown, due = np.zeros((n, 5), np.int64), set(epochs(n, PAST if past else 0))
    refits, logged, decided = list[float](), list[float](), list[float]()
    place = {name: i for i, name in enumerate(world.ids)}
    with bandit:
        if past is not None:
            features = "" if asked.beside == "none" else "device,country"
            columns = "item=item,reward=clicked,propensity=propensity,position=position,time=time,context=visitor"
            import_past(bandit, past[0], PastColumns.of(columns, features), contexts=past[1])
            due.add(0)
        for i in range(n):
            if i in due:
                started = time.perf_counter()
                bandit.refit()
                refits.append(time.perf_counter() - started)
            event, x = f"visit-{i}", context(world, visitors, i, asked.beside)
            started = time.thread_time()
            arms = bandit.decide(x, event_id=event, where=where).arms
            logged.append(time.thread_time() - started)
            shown[i] = [place[str(arm)] for arm in arms]
            chance = world.click(part(visitors, i, i + 1), shown[i : i + 1], asked.examined)[0]
            bandit.reward(event, dict(zip(arms, (clicks[i] < chance).astype(float).tolist(), strict=True)))
        policy, model = bandit.config.policy.make_policy(), bandit.snapshot.model
        for i in range(min(n, 2000)):
            ready = bandit.row(context(world, visitors, i, asked.beside))
            started = time.perf_counter()
            policy.decide(model, ready, str(i))
            decided.append(time.perf_counter() - started)
        facts: dict[str, Any] = {"create_seconds": made, "refit_seconds": refits[-1:]}
        if past is None and where is None:
            facts["beam_recall"] = beam_recall(world, bandit, visitors, asked.beside)
    examined = [round(f, 3) for f in model.pooled.examined] if model.pooled else []
    # Search and draw by the clock; a whole call of `Bandit.decide`, with the log and without its writer, in CPU time.
    facts |= {"decide_ms": 1e3 * float(np.median(decided)), "logged_cpu_ms": 1e3 * float(np.median(logged[-2000:]))}
    return shown, {**facts, **({"examined": examined} if examined else {})}


def beam_recall(world: Any, bandit: treetop.Bandit, visitors: dict[str, Any], beside: str, count: int = 500) -> float:
    """How much of the exact top 5 of the first visitors is among the single items that the bandit's search finds."""
    count = min(count, len(visitors["device"]))
    best, hits = best_dots(world, visitors["vector"][:count]), 0
    model, beam = bandit.snapshot.model, bandit.config.policy.make_policy().beam
    for i, five in enumerate(best):
        found = search_batch(model, bandit.row(context(world, visitors, i, beside)), beam, None, 5, EVERY_ARM)
        hits += int(np.isin(five, found.id[~found.is_node]).sum())
    return round(hits / best.size, 4)


def past_log(world: Any, folder: Path) -> tuple[tuple[Path, Path], Any]:
    """Files of what another system has shown, and the rotation that fits its clicked pairs best."""
    file, contexts = folder / "past.csv", folder / "visitors.npy"
    seen = world.legacy_log(file, PAST)
    np.save(contexts, seen["vector"])
    place = {name: i for i, name in enumerate(world.ids)}
    with file.open(newline="") as lines:
        pairs = [(int(row["visitor"]), place[row["item"]]) for row in csv.DictReader(lines) if row["clicked"] == "1"]
    who, item = np.array(pairs).T
    left, _, right = np.linalg.svd(seen["vector"][who].T @ world.vectors[item])
    return (file, contexts), (left @ right).astype(np.float32)


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


def play_squarecb(world: Any, visitors: dict[str, Any], clicks: Any, near: Any, vectors: Any, examined: float) -> Any:
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
        m = world.vectors[items] @ vectors[i]
        score = 1 / (1 + np.exp(-(slope * m + offset))) + extra[items]
        chosen = _squarecb(score, i, rng)
        shown[i], dots[i] = items[chosen], m[chosen]
        clicked[i] = clicks[i] < world.click(part(visitors, i, i + 1), shown[i : i + 1], examined)[0]
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


def some_of(first: int, end: int) -> Any:
    """At most JUDGED of these visits, evenly spaced."""
    return np.unique(np.linspace(first, end - 1, min(end - first, JUDGED)).astype(np.int64))


def best_dots(world: Any, vectors: Any, in_stock: bool = False) -> Any:
    """The five largest dot products of each visitor, all items looked at, or all in stock; best first."""
    return world.best({"_true": vectors}, in_stock=in_stock, truth=False)


def measure(
    world: Any, asked: argparse.Namespace, say: Callable[[str], None] = print, peers: bool = True
) -> list[dict[str, Any]]:
    """A record a way to choose, on the same visitors and with the same luck."""
    visits, seed, out = asked.visits, asked.seed, list[dict[str, Any]]()
    visitors = world.visitors(visits, seed=seed)
    clicks = np.random.default_rng([seed, 7]).random((visits, 5))
    first, fifth = min(Config().refit.first, visits), visits // 5
    cold, late = some_of(0, first), some_of(visits - fifth, visits)
    judged = np.concatenate([cold, late])
    some = {name: values[judged] for name, values in visitors.items()}
    truth = world.best(some)
    best = world.click(some, truth, asked.examined).sum(axis=1)

    def judge(name: str, items: Any, facts: dict[str, Any], exact: Any) -> None:
        earned, dots = (world.click(some, chosen, asked.examined).sum(axis=1) for chosen in (items, exact))
        record = {"way": name, "items": world.items, "visits": visits, "seed": seed, **facts}
        for stretch, where in (("cold", slice(0, len(cold))), ("last_fifth", slice(len(cold), None))):
            record[stretch] = round(float(earned[where].mean()), 4)
            record[f"{stretch}_over_dot"] = round(float(earned[where].sum() / dots[where].sum()), 4)
            record[f"{stretch}_over_truth"] = round(float(earned[where].sum() / best[where].sum()), 4)
        record["top5_found"] = round(
            float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, items, strict=True)])), 4
        )
        say(json.dumps(record))
        out.append(record)

    with tempfile.TemporaryDirectory() as place:
        past, turn = past_log(world, Path(place)) if asked.turn else (None, None)
        vectors = visitors["vector"] if turn is None else visitors["vector"] @ turn
        exact = best_dots(world, vectors[judged])
        judge("exact dot product", exact, {"decide_ms": _flat_ms(world, visitors)}, exact)
        if turn is not None:
            judge("dot product without a map", best_dots(world, some["vector"]), {}, exact)
        judge("truth", truth, {}, exact)
        shown, facts = play_bandit(world, visitors, clicks, Path(place) / "shop", asked, past)
        judge("treetop", shown[judged], facts, exact)
        if turn is None:
            in_stock = best_dots(world, vectors[judged], in_stock=True)
            judge("exact dot product, in stock", in_stock, {}, in_stock)
            shown, facts = play_bandit(
                world, visitors, clicks, Path(place) / "in stock", asked, past, {"in_stock": True}
            )
            facts["out_of_stock"] = int((~world.in_stock[shown]).sum())
            judge("treetop, in stock", shown[judged], facts, in_stock)
        if peers:
            near, index = shortlists(world.vectors, vectors, Path(place))
            judge("shortlist", near[judged, :5], index, exact)
            played = play_squarecb(world, visitors, clicks, near, vectors, asked.examined)
            judge("squarecb", played[judged], index, exact)
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
    parser.add_argument("--turn", action="store_true", help="visitors in a space of their own, with a past log")
    parser.add_argument("--examined", type=float, default=1.0, help="how often a position is seen, of the one before")
    parser.add_argument("--beside", choices=("none", "parts", "age"), default="parts")
    parser.add_argument("--no-peers", action="store_true", help="leave out shortlist and squarecb")
    parser.add_argument("--world", type=Path, default=ROOT.parent / "shared" / "worlds" / "shop.py")
    asked = parser.parse_args()
    world = load_world(asked.world).Shop(items=asked.items, turn=asked.turn)
    measure(world, asked, peers=not asked.no_peers)


if __name__ == "__main__":
    main()
