"""The tree of an owner's taxonomy beside a learned one: `python benchmarks/taxonomies.py EURLEX57K TATE`.

Both sets have a real one: `label_desc.json` of eurlex57k (EuroVoc, of several parents the first) and `labels.json` of
tate. A term that has others below it stands with them. Each stream is played as `treetop simulate DATA --learner
treetop --init 5000 --max-leaf 10 --first-epoch 1024 --factor 1.2` plays it, with the same contexts, learner and
strategy and one of these trees:

- learned: from the labels of the initialisation set, the default
- taxonomy: `Categories.tree` of the terms' paths; large categories are split in the order of the terms
- taxonomy and vectors: the same with the mean of the initial contexts of each term; large ones are split by these

Routing is fitted to the labels of the initialisation set in all three.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from cells import Cells, table

from treetop.arrays import as_rows
from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments.execute import Starter, execute
from treetop.experiments.settings import Plan, Settings
from treetop.learning.learners import DEFAULT_STRATEGY
from treetop.model.model import Model
from treetop.simulation.play import TreeBuilding
from treetop.simulation.scenario import Scenario
from treetop.tree.categories import Categories
from treetop.tree.labels import pifa

FIRST = 1024  # rounds before the first refit
TREES = ("learned", "taxonomy", "taxonomy and vectors")


def parents_of(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The ids of the arms, and the parent of every term that has one."""
    labels = json.loads((folder / "labels.json").read_text())
    if isinstance(labels, dict):
        return [str(each) for each in labels["ids"]], {term: str(up) for term, up in labels["parent"].items()}
    described = json.loads((folder / "label_desc.json").read_text())
    return labels, {term: each["parents"][0] for term, each in described.items() if each["parents"]}


def taxonomy(folder: Path) -> Categories:
    """The category of each arm: the terms above it, from the top, and its own if there are others below it."""
    ids, parent = parents_of(folder)
    inner = set(parent.values())
    paths = []
    for term in ids:
        path = [term] if term in inner else []
        while (term := parent.get(term, "")) and term not in path:
            path.insert(0, term)
        paths.append(path or None)
    return Categories.of(paths)


class TaxonomyStarter(Starter):
    """The same streams with the tree of the taxonomy."""

    def __init__(self, dataset: Dataset, categories: Categories, by_vectors: bool) -> None:
        super().__init__(dataset)
        self._categories, self._by_vectors = categories, by_vectors

    def _started(self, settings: Settings, tree: TreeBuilding, seed: int) -> tuple[Stream, Model, Scenario | None]:
        init, horizon, max_leaf = self._dataset.sizes(settings.init, settings.horizon, settings.max_leaf)
        stream = Stream.draw(self._dataset, init, horizon, seed, settings.order)
        vectors = pifa(as_rows(stream.X_init).csr(), as_rows(stream.Y_init).csr()) if self._by_vectors else None
        built = self._categories.tree(max_leaf, seed=seed, vectors=vectors)
        return stream, Model.initial(built, stream.X_init, stream.Y_init), None


def play(dataset: Dataset, starter: Starter, rounds: int, seed: int) -> dict[str, Any]:
    sizes: dict[str, Any] = {"init": 5000, "max_leaf": 10, "horizon": rounds, "first_epoch": FIRST, "factor": 1.2}
    settings = Settings(DEFAULT_STRATEGY["treetop"], learner="treetop", **sizes)
    run = execute(None, Plan(dataset.name, (settings,), (seed,)), dataset=dataset, starter=starter)[0]
    start = next(mean for rounds, mean in run.checkpoints if rounds >= FIRST)
    tree = starter(settings.resolved(dataset), seed)[1].tree
    return {
        "start": round(start, 4),  # the rounds before the first refit
        "late_reward": round(run.late_reward, 4),
        "mean_reward": round(run.mean_reward, 4),
        "nodes": tree.n_nodes,
        "depth": tree.depth,
    }


def report(cells: Cells) -> str:
    """A row a set and tree: means over seeds, and over the learned tree's."""
    rows = []
    for data in dict.fromkeys(cell["data"] for cell in cells.cells):
        for tree in TREES:
            found, learned = cells.found(data=data, tree=tree), cells.found(data=data, tree=TREES[0])
            if not found or not learned:
                continue
            mean = {what: statistics.fmean(cell[what] for cell in found) for what in ("start", "late_reward")}
            over = {what: mean[what] / statistics.fmean(cell[what] for cell in learned) for what in mean}
            shape = f"{found[0]['nodes']:,} nodes, depth {found[0]['depth']}"
            rows.append([f"{data}, {tree}", shape, *(f"{mean[what]:.3f} ({over[what]:.3f})" for what in mean)])
    return table(["tree", "shape", "before the first refit", "last fifth"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, help="folders with a taxonomy")
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 41, 42 and 43 if not given")
    parser.add_argument("--out", type=Path, default=Path("docs/results/taxonomies.json"))
    asked = parser.parse_args()
    cells = Cells.opened(asked.out, sys.argv)
    for folder in asked.data:
        dataset, categories = load(str(folder)), taxonomy(folder)
        starters = (
            Starter(dataset),
            TaxonomyStarter(dataset, categories, by_vectors=False),
            TaxonomyStarter(dataset, categories, by_vectors=True),
        )
        for seed in asked.seed or [41, 42, 43]:
            for name, starter in zip(TREES, starters, strict=True):
                facts = {"data": dataset.name, "tree": name, "seed": seed, "rounds": asked.rounds}
                cells.play(facts, lambda: play(dataset, starter, asked.rounds, seed))  # noqa: B023
    print(f"{report(cells)}\n\n{cells.about()}")


if __name__ == "__main__":
    main()
