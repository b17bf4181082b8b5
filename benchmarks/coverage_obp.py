"""Estimates and intervals of `treetop.evaluate` beside those of obp, on logs whose truth is known.

    make bench-peers
    python benchmarks/coverage_obp.py [--cells synthetic,debian] [--reps 100] [--rounds 2000] [--contexts 2000]
        [--peers .venv-peers/bin/python] [--out benchmarks/results/coverage_obp.json]

obp needs the chance and the score of every arm in every round, as arrays; it has no slates that are drawn without
replacement. So logs have one slot, over the trees of `coverage.py`, and the cells are those whose arrays fit into 4 GB.
Printed are coverage, mean width and root mean squared error. obp's intervals are bootstrap intervals for one look;
treetop's hold at all times at once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cell, Cells, table
from coverage import CONFIDENCE, POOL, WORLDS, Slates

import treetop
from treetop.arrays import Floats
from treetop.evaluation.estimators import SLOTS
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import intervals

FITS = 4 << 30  # bytes of the arrays of one repetition
EPSILON, GREEDY = treetop.EpsilonGreedy(0.3), treetop.Policy(1, 0, 10, treetop.Greedy())
PAIRS = {
    "epsilon 0.3, greedy": (treetop.Policy(1, 1, 10, EPSILON), GREEDY),
    "igw, epsilon 0.1": (
        treetop.Policy(1, 1, 10, treetop.IGW(C=0.1)),
        treetop.Policy(1, 1, 10, treetop.EpsilonGreedy(0.1)),
    ),
}


def dense(world: Slates) -> tuple[Floats, Floats]:
    """(contexts, arms) each: the candidate's chance of every arm, and its model's score, cut to [0, 1]."""
    tree, n = world.model.tree, world.X.shape[0]
    chances, scores = np.zeros((n, tree.n_arms)), np.zeros((n, tree.n_arms))
    for i in range(n):
        view = world.candidate.explain(world.model, world.X[i])
        p = view.probability
        if world.candidate.explore == 0:
            p = np.zeros(len(view))
            p[np.lexsort((view.id, view.is_node, -view.score))[0]] = 1
        for node, name, chance, score in zip(view.is_node, view.id, p, view.score, strict=True):
            arms = tree.arms_below(int(name)) if node else [int(name)]
            chances[i, arms], scores[i, arms] = chance / len(arms), min(max(float(score), 0.0), 1.0)
    return chances, scores


def measure(world: Slates, n: int, reps: int, peers: Path) -> Cell:
    """One cell: both on the same logs."""
    pool, chance = world.pool
    contexts = world.rows
    shown = world.served.decide_batch(world.model, world.X[contexts], seed=5)
    assert np.array_equal(shown.propensities, pool.logged)
    played, found = [], {"treetop": [], "treetop, controlled": []}  # type: ignore[var-annotated]
    for seed in range(reps):
        rng = np.random.default_rng([seed, 7])
        rows = rng.integers(0, len(pool), n)
        rewards = (rng.random((n, 1)) < chance[rows]).astype(float)
        tally = Tally.of(replace(pool.part(rows), rewards=rewards, served=rewards.sum(axis=1)))
        interval, _ = intervals(tally, SLOTS, CONFIDENCE, by_rule=True)
        way = tally.ways[SLOTS]
        found["treetop"].append([way.sums.value, interval.low, interval.high])
        normal = way.controlled.interval(CONFIDENCE)
        found["treetop, controlled"].append([way.controlled.mean, normal.low, normal.high])
        played.append((contexts[rows], shown.arms[rows, 0], rewards[:, 0], shown.propensities[rows, 0]))
    with tempfile.TemporaryDirectory() as folder:
        chances, scores = dense(world)
        np.save(f"{folder}/chances.npy", chances)
        np.save(f"{folder}/scores.npy", scores)
        names = ("contexts", "arms", "rewards", "propensities")
        np.savez(f"{folder}/log.npz", **{name: np.stack([log[i] for log in played]) for i, name in enumerate(names)})
        del chances, scores
        script = Path(__file__).with_name("peer_obp.py")
        ran = subprocess.run([str(peers), str(script), folder], check=True, stdout=subprocess.PIPE)
    found |= {f"obp, {name}": each for name, each in json.loads(ran.stdout).items()}
    return {"mean_reward": world.truth, "estimators": {name: summary(e, world.truth) for name, e in found.items()}}


def summary(found: Any, truth: float) -> dict[str, float]:
    value, low, high = np.array(found).T
    covered, error = ((low <= truth) & (truth <= high)).mean(), np.sqrt(((value - truth) ** 2).mean())
    return {"covered": float(covered), "width": float((high - low).mean()), "rmse": float(error)}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="synthetic,debian")
    parser.add_argument("--reps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--contexts", type=int, default=POOL, help="of the world: so many rows the tables of obp have")
    parser.add_argument("--peers", type=Path, default=Path(".venv-peers/bin/python"))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(argv[1:])
    if not asked.peers.exists():
        raise SystemExit(f"there is no {asked.peers}; make bench-peers makes it")
    cells = Cells.opened(asked.out, argv)
    for name in asked.cells.split(","):
        model, X, click = WORLDS[name](Path())
        X = X[: asked.contexts]
        if 3 * 8 * asked.rounds * model.n_arms > FITS:
            raise SystemExit(f"{name}: obp's arrays of {asked.rounds:,} rounds and {model.n_arms:,} arms do not fit")
        for pair, (served, candidate) in PAIRS.items():
            world = Slates(model, X, click, served, candidate)
            facts = {"cell": name, "arms": model.n_arms, "pair": pair, "n": asked.rounds, "reps": asked.reps}
            if asked.contexts != POOL:
                facts["contexts"] = asked.contexts
            cells.play(facts, lambda world=world: measure(world, asked.rounds, asked.reps, asked.peers))
    rows = [
        [
            cell["cell"],
            f"{cell['arms']:,}",
            cell["pair"],
            name,
            f"{e['covered']:.0%}",
            f"{e['width']:.4f}",
            f"{e['rmse']:.4f}",
        ]
        for cell in cells.cells
        for name, e in cell["estimators"].items()
    ]
    print(table(["cell", "arms", "served, candidate", "estimator", "covered", "width", "RMSE"], rows))
    print(cells.about())


if __name__ == "__main__":
    main(sys.argv)
