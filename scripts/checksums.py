"""Checksums of a tree, its routing, what three learners make of some rounds, and what is then shown.

Two builds of the core, or two machines, that print the same lines compute the same bytes; `make portable` compares
three. A change of an algorithm changes them.
"""

import zlib
from typing import Any

import numpy as np
import scipy.sparse as sp

import treetop

ROWS, FEATURES, ARMS, FILLED = 600, 400, 900, 20
STRATEGIES = (treetop.IGW(C=1.0), treetop.Boltzmann(1.0), treetop.EpsilonGreedy(0.1), treetop.Budgeted(budget=0.1))
LEARNERS = {"squared": treetop.Linear(), "absolute": treetop.Linear(loss="absolute"), "pooled": treetop.Pooled()}


def checksum(*arrays: Any) -> int:
    return zlib.crc32(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))


def made_up(columns: int, filled: int, rng: np.random.Generator) -> sp.csr_matrix:
    """Rows with values of few digits, which are the same everywhere."""
    start = np.arange(0, ROWS * filled + 1, filled)
    values = rng.integers(1, 64, ROWS * filled).astype(np.float32) / 64
    matrix = sp.csr_matrix((values, rng.integers(0, columns, ROWS * filled), start), shape=(ROWS, columns))
    matrix.sum_duplicates()
    return matrix


def main() -> None:
    rng = np.random.default_rng(0)
    X, Y = made_up(FEATURES, FILLED, rng), made_up(ARMS, 3, rng).minimum(1)
    tree = treetop.Tree.from_labels(X, Y, max_leaf=10)
    model = treetop.Model.initial(tree, X, Y)
    print("tree", checksum(tree.parents, tree.leaf_of))
    print("routing", checksum(model.routing.data, model.routing.indices))
    rows = np.arange(ROWS)
    for name, learner in LEARNERS.items():
        shown = treetop.Policy(k=5, explore=3, beam=10).decide_batch(model, X, seed=0)
        rewards = Y[rows[:, None], shown.arms].toarray()
        learned = treetop.refit(model, treetop.Feedback.of(X, shown, rewards), learner)
        print(name, checksum(learned.rewards.data, learned.rewards.indices))
        for strategy in STRATEGIES:
            policy = treetop.Policy(k=5, explore=3, beam=10, strategy=strategy)
            later = policy.decide_batch(learned, X, seed=1)
            print(name, type(strategy).__name__, checksum(later.arms, later.propensities, later.scores))


if __name__ == "__main__":
    main()
