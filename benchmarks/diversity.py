"""What `diversity` brings where a slate's reward is no sum: right arms of one subject group earn less and less.

    python benchmarks/diversity.py ../shared/data/tate [--init 5000] [--rows 5000] [--seed 0]

The groups are the topmost subjects of the set's own taxonomy (labels.json). A model learns from labelled rows;
then other rows are decided greedily with several weights. The j-th right arm of a group in a slate earns 0.3^(j - 1).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cells import table

import treetop
from treetop.arrays import Floats, Ints, as_rows
from treetop.bench.timing import commit, machine
from treetop.learning.label_samples import LabelSamples
from treetop.learning.pooled import Pooled
from treetop.learning.refit import initial_fit
from treetop.model.coverage import Coverage

WEIGHTS, LESS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5), 0.3


def subject_groups(folder: Path) -> list[int]:
    """The ancestor of each label below the root; a label without one is a group of its own."""
    said = json.loads((folder / "labels.json").read_text())
    parents = next(value for value in said.values() if isinstance(value, dict) and all(map(_whole, value.values())))
    roots = {parent for parent in parents.values() if str(parent) not in parents}

    def top(label: int) -> int:
        while str(label) in parents and parents[str(label)] not in roots:
            label = parents[str(label)]
        return label

    return [top(label) for label in said["ids"]]


def _whole(value: Any) -> bool:
    return isinstance(value, int)


def saturating(right: Any, groups: Ints) -> Floats:
    """(n,): rewards of slates, given which slots are right and their groups."""
    n, k = right.shape
    earned = np.zeros(n)
    for slot in range(k):
        above = (right[:, :slot] & (groups[:, :slot] == groups[:, slot : slot + 1])).sum(axis=1)
        earned += right[:, slot] * LESS**above
    return earned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--init", type=int, default=5_000)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    data = treetop.load(str(asked.folder))
    X, Y = data.X.csr(), data.Y.csr()
    order = np.random.default_rng(asked.seed).permutation(X.shape[0])
    first, later = order[: asked.init], order[asked.init : asked.init + asked.rows]
    tree = treetop.Tree.from_labels_separated(X[first], Y[first], max_leaf=10)
    model = treetop.Model.initial(tree, X[first], Y[first])
    samples = LabelSamples.of(tree, as_rows(X[first]), Y[first], beam=10)
    model = initial_fit(model, Pooled(label_samples=samples))
    names = subject_groups(asked.folder)
    model = replace(model, coverage=Coverage.of_categories(names))
    number = np.unique(names, return_inverse=True)[1]
    rows, without = [], np.zeros(len(later))
    for weight in WEIGHTS:
        shown = treetop.Policy(5, 0, 10, treetop.Greedy(), diversity=weight).decide_batch(model, X[later], seed=1)
        right = np.asarray(Y[later[:, None], shown.arms].todense()) > 0
        groups = number[shown.arms]
        different = np.mean([len(set(row)) for row in groups.tolist()])
        values = saturating(right, groups)
        without = values if weight == 0 else without
        more = values - without
        error = 1.96 * more.std() / np.sqrt(len(more))
        numbers = f"{values.mean():.3f}", f"{more.mean():+.3f} +- {error:.3f}", f"{right.sum(axis=1).mean():.3f}"
        rows.append([f"{weight:g}", *numbers, f"{different:.2f}"])
    print(table(["diversity", "saturating reward", "against 0", "right arms", "groups shown"], rows))
    print(f"\nCommit {commit()}; {machine()}.")


if __name__ == "__main__":
    main()
