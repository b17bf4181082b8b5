"""How often intervals of `treetop.evaluate` hold the truth, how wide they are, and how far estimators err.

    python benchmarks/coverage.py [--cells flat,synthetic,refitted,debian,670k,shop,FOLDER] [--reps 1000]
        [--rounds 2000] [--pairs "epsilon 0.3, greedy; igw, epsilon 0.1"] [--shop ../shared/worlds/shop.py]
        [--out benchmarks/results/coverage.json]

Every cell plays the same log `--reps` times over and knows what the candidate earns: by the chances of clicks that the
rewards are drawn with, averaged over the contexts and, where the candidate draws, over 200 draws. `anytime` is the
share of repetitions in which the betting interval was wrong at any of four looks along the way. Coverage of betting is
computed for many repetitions at once (coverage_batch.py); the first hundred are judged one by one, too, as the package
does it, for widths, for the other intervals and for errors of estimators. Flat cells are bandits
of one slot; the others are decisions of three slots over a tree. Every repetition draws rounds anew; those over a tree
draw from a pool of contexts and of decisions for them, whose chances are computed once. In `refitted` cells a refit
serves the second half of every log. A folder is that of a labelled set. `gap` is the coverage of the difference to what
was served, which decides the verdict. The file keeps every cell, and one that is in it is not played again.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import coverage_batch
import numpy as np
from cells import Cell, Cells, table

import treetop
from treetop.arrays import Floats, as_rows
from treetop.bandit.candidate_chances import cuts
from treetop.evaluation.bernstein import BernsteinSums
from treetop.evaluation.estimators import SLATE, SLOTS
from treetop.evaluation.ips import slate_terms, slot_terms
from treetop.evaluation.judged import Judged
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import chosen_way, intervals
from treetop.policy.eligibility import EVERY_ARM
from treetop.policy.probability import shared_chances

CONFIDENCE, LOOKS, POOL, DRAWS, LOGGED = 0.95, 4, 2_000, 200, 100_000
BLOCK, SINGLE = 50, 100  # repetitions at once; those that widths and errors are measured by
SHOP_ITEMS = 35_000
CLICK, MISS = 0.7, 0.02  # chances of a click on a right arm and on any other


@dataclass(frozen=True, eq=False)
class Flat:
    """A bandit of one slot and five kinds of contexts. The log explores; the candidate is a softmax of its scores."""

    arms: int
    epsilon: float

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.arms)
        good = rng.beta(1, 4, (5, self.arms))
        scores = np.clip(good + 0.1 * rng.normal(size=good.shape), 0, 1)
        logged = np.full(good.shape, self.epsilon / self.arms)
        logged[np.arange(5), scores.argmax(axis=1)] += 1 - self.epsilon
        target = np.exp(8 * scores)
        target /= target.sum(axis=1, keepdims=True)
        group = np.argsort(np.argsort(-good.mean(axis=0))) // 5  # arms that earn about the same
        for name, value in (("good", good), ("scores", scores), ("logged", logged), ("target", target)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "group", group)

    @property
    def slots(self) -> int:
        return 1

    @property
    def truth(self) -> float:
        return float((self.target * self.good).sum(axis=1).mean())

    @property
    def true_gap(self) -> float:
        """What the candidate earns more than the log."""
        return self.truth - float((self.logged * self.good).sum(axis=1).mean())

    def play(self, n: int, seed: int) -> Judged:
        rng = np.random.default_rng([seed, self.arms])
        x = rng.integers(0, 5, n)
        arm = (rng.random(n)[:, None] > np.cumsum(self.logged[x], axis=1)).sum(axis=1).clip(max=self.arms - 1)
        reward = (rng.random(n) < self.good[x, arm]).astype(float)
        same = self.group[None, :] == self.group[arm][:, None]
        ratio = (self.target[x] * same).sum(axis=1) / (self.logged[x] * same).sum(axis=1)
        expected = (self.target * self.scores).sum(axis=1)[x]
        largest = (self.target / self.logged).max(axis=1)[x]
        columns = self.logged[x, arm], self.target[x, arm], reward, self.scores[x, arm], expected, largest
        logged, target, rewards, score, expect, most = (column[:, None] for column in columns)
        known = {"covered": np.ones_like(most), "largest": most}
        return Judged(logged, target, rewards, reward, score, expect, ratio[:, None, None], rewards > -1, **known)


@dataclass(frozen=True, eq=False)
class Slates:
    """Decisions over a tree. `click(rows, arms)` are the chances of clicks for rows of the contexts."""

    model: treetop.Model
    X: Any
    click: Callable[[Any, Any], Floats]
    served: treetop.Policy
    candidate: treetop.Policy

    @property
    def slots(self) -> int:
        return self.served.k

    @cached_property
    def earned(self) -> Floats:
        """What the candidate earns in each context; one that draws is drawn many times."""
        rows, total = np.arange(self.X.shape[0]), np.zeros(self.X.shape[0])
        draws = 1 if self.candidate.explore == 0 else DRAWS
        for seed in range(draws):
            shown = self.candidate.decide_batch(self.model, self.X, seed=10**6 + seed)
            total += self.click(rows, shown.arms).sum(axis=1)
        return total / draws

    @property
    def truth(self) -> float:
        return float(self.earned.mean())

    @cached_property
    def true_gap(self) -> float:
        """What the candidate earns more than the served policy, in the contexts of the pool."""
        return float(self.earned[self.rows].mean() - self.pool[1].sum(axis=1).mean())

    @cached_property
    def rows(self) -> Any:
        """The contexts of the pool."""
        return np.random.default_rng(5).integers(0, self.X.shape[0], LOGGED)

    @cached_property
    def pool(self) -> tuple[Judged, Floats]:
        """Many decisions for contexts drawn at random, as the candidate sees them; and chances of clicks on them."""
        rows, x = self.rows, as_rows(self.X[self.rows])
        shown = self.served.decide_batch(self.model, x, seed=5)
        policies, groups = [self.candidate, self.served], cuts(self.model.tree)
        beside = self.served, self.model
        mine, theirs = shared_chances(policies, self.model, x, shown.arms, EVERY_ARM, groups, beside)
        ratio, nothing = mine.grouped / theirs.grouped, np.zeros(shown.arms.shape)
        slots = shown.propensities, mine.probability, nothing, nothing.sum(axis=1), mine.score, mine.expected, ratio
        judged = Judged(*slots, shown.arms >= 0, covered=mine.covered, largest=mine.largest)
        return judged, self.click(rows, shown.arms)

    def play(self, n: int, seed: int) -> Judged:
        rng, (pool, chance) = np.random.default_rng([seed, 7]), self.pool
        rows = rng.integers(0, len(pool), n)
        rewards = (rng.random((n, self.slots)) < chance[rows]).astype(float)
        return replace(pool.part(rows), rewards=rewards, served=rewards.sum(axis=1))


@dataclass(frozen=True, eq=False)
class Refitted:
    """A log whose second half was served by another model, which the candidate then has as well."""

    first: Slates
    second: Slates

    @property
    def slots(self) -> int:
        return self.first.slots

    @property
    def truth(self) -> float:
        return (self.first.truth + self.second.truth) / 2

    @property
    def true_gap(self) -> float:
        return (self.first.true_gap + self.second.true_gap) / 2

    def truths(self, looks: int) -> list[float]:
        """The mean over the rounds so far, at each look."""
        shares = [min(1.0, looks / 2 / look) for look in range(1, looks + 1)]  # of the first half
        return [share * self.first.truth + (1 - share) * self.second.truth for share in shares]

    def play(self, n: int, seed: int) -> Judged:
        return coverage_batch.joined([self.first.play(n // 2, seed), self.second.play(n // 2, seed + 10**6)])


def measure(world: Any, n: int, reps: int) -> Cell:
    """One cell: shares of intervals that hold the truth, mean widths, and errors of the estimators."""
    truth, most = world.truth, world.slots
    truths = world.truths(LOOKS) if isinstance(world, Refitted) else [truth] * LOOKS
    held: dict[str, list[bool]] = {}
    width: dict[str, list[float]] = {}
    error: dict[str, list[float]] = {}
    ways: list[str] = []
    along: list[Any] = []

    def note(name: str, low: float, high: float) -> None:
        held.setdefault(name, []).append(low <= truth <= high)
        width.setdefault(name, []).append(high - low)

    for first in range(0, reps, BLOCK):
        plays = [world.play(n, seed) for seed in range(first, min(reps, first + BLOCK))]
        at = {each: coverage_batch.held(plays, each, most, CONFIDENCE, LOOKS) for each in dict.fromkeys(truths)}
        along.append(np.stack([at[each][:, look] for look, each in enumerate(truths)], axis=1))
    for seed in range(min(reps, SINGLE)):
        judged, tally = world.play(n, seed), Tally()
        for look in range(LOOKS):
            tally = tally.after(judged.part(slice(look * n // LOOKS, (look + 1) * n // LOOKS)))
        name, _ = chosen_way(tally)
        ways.append(name)
        weights = judged.prefix_weights()
        found, gap = intervals(tally, name, CONFIDENCE, by_rule=True)
        note("betting, one by one", found.low, found.high)
        held.setdefault("betting, gap", []).append(gap.low <= world.true_gap <= gap.high)
        for key in (key for key in tally.ways if key.startswith("nodes")):
            held.setdefault(f"betting, {key}", []).append(tally.ways[key].holds(truth, most, most, CONFIDENCE))
        terms, complements = slot_terms(judged, weights)
        sums = [BernsteinSums(0.0, float(most)).after(each) for each in (terms, complements)]
        low, high = sums[0].lower_bound(0.025), most - sums[1].lower_bound(0.025)
        note("Bernstein, slots", low, high)
        for label in (SLOTS, SLATE):
            for kind, moments in (("", tally.ways[label].terms), (" controlled", tally.ways[label].controlled)):
                found = moments.interval(CONFIDENCE)
                note(f"normal, {label}{kind}", found.low, found.high)
                if label == name:
                    note(f"normal, rule{kind}", found.low, found.high)
        estimates = {
            "ips, slate": slate_terms(judged, weights)[0].mean(),
            "ips, slots": terms.mean(),
            "snips, slate": tally.ways[SLATE].sums.value,
            "snips, slots": tally.ways[SLOTS].sums.value,
            "controlled, slate": tally.ways[SLATE].controlled.mean,
            "controlled, slots": tally.ways[SLOTS].controlled.mean,
            **{label: each.value.mean for label, each in tally.model_based.items()},
            **{f"mips, {key}": tally.ways[key].terms.mean for key in tally.ways if key.startswith("nodes")},
        }
        for label, value in estimates.items():
            error.setdefault(label, []).append(float(value) - truth)
    holds = np.concatenate(along)
    return {
        "mean_reward": truth,
        "reps": reps,
        "coverage": {"betting, rule": float(holds[:, -1].mean())}
        | {name: float(np.mean(each)) for name, each in held.items()},
        "width": {name: float(np.mean(each)) for name, each in width.items()},
        "anytime": float(1 - holds.all(axis=1).mean()),
        "bias": {name: float(np.mean(each)) for name, each in error.items()},
        "rmse": {name: float(np.sqrt(np.mean(np.square(each)))) for name, each in error.items()},
        "ways": {name: ways.count(name) for name in sorted(set(ways))},
    }


def learned(X: Any, Y: Any, max_leaf: int) -> treetop.Model:
    """A model that has learned labels and a stretch of rounds, as a bandit's has."""
    tree = treetop.Tree.from_labels(X, Y, max_leaf=max_leaf)
    model = treetop.Model.initial(tree, X, Y)
    shown = treetop.Policy(k=3, explore=1).decide_batch(model, X, seed=1)
    rewards = np.asarray(Y[np.arange(X.shape[0])[:, None], shown.arms].todense())
    return treetop.refit(model, treetop.Feedback.of(X, shown, rewards), treetop.Pooled())


def labelled_world(data: str, rows: int, max_leaf: int) -> tuple[treetop.Model, Any, Callable[[Any, Any], Floats]]:
    dataset = treetop.load(data)
    X, Y = dataset.X.csr(), dataset.Y.csr()
    order = np.random.default_rng(0).permutation(X.shape[0])
    first, later = order[:rows], order[rows : rows + POOL]
    model = learned(X[first], Y[first], max_leaf)
    pool, labels = X[later], Y[later]

    def click(at: Any, arms: Any) -> Floats:
        right = np.asarray(labels[at[:, None], arms].todense())
        return np.asarray(MISS + (CLICK - MISS) * (right > 0))

    return model, pool, click


def taught(model: treetop.Model, X: Any, click: Callable[[Any, Any], Floats]) -> treetop.Model:
    """The model after a refit on two rounds in each of these contexts: more than it had seen."""
    rows = np.tile(np.arange(X.shape[0]), 2)
    shown = treetop.Policy(k=3, explore=1).decide_batch(model, X[rows], seed=2)
    chance = click(rows, shown.arms)
    rewards = (np.random.default_rng(2).random(chance.shape) < chance).astype(float)
    return treetop.refit(model, treetop.Feedback.of(X[rows], shown, rewards), treetop.Pooled())


def shop_world(path: Path) -> tuple[treetop.Model, Any, Callable[[Any, Any], Floats]]:
    spec = importlib.util.spec_from_file_location("shop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shop = module.Shop(items=SHOP_ITEMS)
    teaching, visitors = shop.visitors(4_000, seed=1), shop.visitors(POOL, seed=2)
    tree = treetop.Tree.from_vectors(shop.vectors, max_leaf=100)
    import scipy.sparse as sp

    best = shop.best(teaching)
    rows = np.repeat(np.arange(len(best)), best.shape[1])
    Y = sp.csr_matrix((np.ones(best.size, np.float32), (rows, best.ravel())), shape=(len(best), shop.items))
    X = sp.csr_matrix(teaching["vector"])
    model = treetop.Model.initial(tree, X, Y)
    shown = treetop.Policy(k=3, explore=1).decide_batch(model, X, seed=1)
    clicks = (np.random.default_rng(0).random(shown.arms.shape) < shop.click(teaching, shown.arms)).astype(float)
    model = treetop.refit(model, treetop.Feedback.of(X, shown, clicks), treetop.Pooled())

    def click(at: Any, arms: Any) -> Floats:
        return np.asarray(shop.click({name: value[at] for name, value in visitors.items()}, arms))

    return model, sp.csr_matrix(visitors["vector"]), click


# Served and candidate policies over trees: the default against greedy and a wider beam, and plenty of exploration.
BUDGETED = treetop.Budgeted()
PAIRS = {
    "default, greedy": (treetop.Policy(3, 2, 10, BUDGETED), treetop.Policy(3, 0, 10, treetop.Greedy())),
    "default, beam 30": (treetop.Policy(3, 2, 10, BUDGETED), treetop.Policy(3, 2, 30, BUDGETED)),
    "epsilon 0.3, greedy": (
        treetop.Policy(3, 2, 10, treetop.EpsilonGreedy(0.3)),
        treetop.Policy(3, 0, 10, treetop.Greedy()),
    ),
    "igw, epsilon 0.1": (
        treetop.Policy(3, 1, 10, treetop.IGW(C=0.1)),
        treetop.Policy(3, 1, 10, treetop.EpsilonGreedy(0.1)),
    ),
}
WORLDS: dict[str, Callable[[Path], tuple[treetop.Model, Any, Callable[[Any, Any], Floats]]]] = {
    "synthetic": lambda _: labelled_world("synthetic:arms=1000,features=500,rows=6000,init=1000", 3_000, 10),
    "debian": lambda _: labelled_world("debian", 3_000, 10),
    "670k": lambda _: labelled_world("synthetic:like=amazon-670k,rows=6000,init=1000", 3_000, 100),
    "shop": shop_world,
}
REFITTED = ("default, greedy", "epsilon 0.3, greedy")


def worlds(name: str, shop: Path, rounds: int, pairs: Sequence[str] = tuple(PAIRS)) -> Iterator[tuple[Cell, Any]]:
    """The cells of one kind, with what tells them apart."""
    if name == "flat":
        for arms in (10, 100):
            for epsilon in (1.0, 0.3):
                for n in (1_000, 10_000):
                    yield {"cell": "flat", "arms": arms, "pair": f"epsilon {epsilon:g}", "n": n}, Flat(arms, epsilon)
        return
    if name == "refitted":
        model, X, click = WORLDS["synthetic"](shop)
        again = taught(model, X, click)
        for pair in (pair for pair in REFITTED if pair in pairs):
            both = (Slates(each, X, click, *PAIRS[pair]) for each in (model, again))
            yield {"cell": name, "arms": model.n_arms, "pair": pair, "n": rounds}, Refitted(*both)
        return
    folder = Path(name)
    model, X, click = WORLDS[name](shop) if name in WORLDS else labelled_world(name, 3_000, 10)
    for pair in pairs:
        served, candidate = PAIRS[pair]
        facts = {"cell": folder.name, "arms": model.n_arms, "pair": pair, "n": rounds}
        yield facts, Slates(model, X, click, served, candidate)


def printed(cells: Sequence[Cell]) -> str:
    """Coverage of betting by the rule, at the end and at all looks, of the difference to what was served (the first
    hundred logs; - where a cell was played before that was kept), and of the normal approximation; widths of betting
    divided by the normal approximation's of the way that the rule took in each repetition, and of the same with control
    variates."""
    heads = ["cell", "arms", "served, candidate", "rounds", "covered", "always", "gap", "normal", "width", "controlled"]
    rows = []
    for cell in cells:
        c, w, base = cell["coverage"], cell["width"], "normal, rule"
        if base not in w:  # played before they were kept: by the way of most repetitions
            base = "normal, slate" if cell["ways"].get(SLATE, 0) > cell["ways"].get(SLOTS, 0) else "normal, slots"
        shares = c["betting, rule"], 1 - cell["anytime"], c[base]
        widths = (w["betting, one by one"] / w[name] for name in (base, f"{base} controlled"))
        said = [f"{share:.1%}" for share in shares]
        said.insert(2, f"{c['betting, gap']:.0%}" if "betting, gap" in c else "-")
        numbers = [*said, *(f"{width:.2f}" for width in widths)]
        rows.append([cell["cell"], f"{cell['arms']:,}", cell["pair"], f"{cell['n']:,}", *numbers])
    return table(heads, rows)


def play_cells(
    argv: Sequence[str],
    about: str | None,
    defaults: tuple[str, int],
    measure: Callable[..., Any],
    printed: Callable[[list[Any]], str],
) -> None:
    """What a command of coverage does: plays the cells that are asked for, and prints all that are in the file."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=defaults[0])
    parser.add_argument("--reps", type=int, default=defaults[1])
    parser.add_argument("--rounds", type=int, default=2_000, help="of each log over a tree")
    parser.add_argument("--pairs", default=";".join(PAIRS), help="of served and candidate policies over a tree")
    parser.add_argument("--shop", type=Path, default=Path("../shared/worlds/shop.py"))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(argv[1:])
    pairs = [pair.strip() for pair in asked.pairs.split(";")]
    if unknown := set(pairs) - set(PAIRS):
        raise SystemExit(f"--pairs has {', '.join(map(repr, unknown))}; there are {'; '.join(PAIRS)}")
    cells = Cells.opened(asked.out, argv)
    for name in asked.cells.split(","):
        for facts, world in worlds(name, asked.shop, asked.rounds, pairs):
            known = {**facts, "reps": asked.reps}
            cells.play(known, lambda world=world, n=facts["n"]: measure(world, n, asked.reps))
    print(printed(cells.cells))
    print(cells.about())


def main(argv: Sequence[str]) -> None:
    play_cells(argv, __doc__, ("flat,synthetic,debian", 1_000), measure, printed)


if __name__ == "__main__":
    main(sys.argv)
