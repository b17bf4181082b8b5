"""What a model has learned, apart from what it cost: `python benchmarks/fresh.py DATA [--rounds N] [--seed N ...]`.

A stream of `--rounds` is played with the default strategy and with greedy, as `treetop simulate --learner treetop` has
it, with the refits of the service. The model of a last refit then decides greedily for rows that come after the stream.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from treetop.data.datasets import Dataset, Stream, load
from treetop.experiments.execute import Starter, prepare_learner
from treetop.experiments.settings import Settings, strategies_for
from treetop.learning.refit import refit
from treetop.policy.policy import Policy
from treetop.policy.strategies import Greedy
from treetop.simulation.play import Learning, run
from treetop.simulation.worlds import Labels

SIZES: dict[str, Any] = {"k": 5, "explore": 3, "beam": 10, "max_leaf": 10, "init": 5000}
FRESH = 5000  # rows that are decided in the end


def measure(dataset: Dataset, rounds: int, seed: int) -> Iterator[dict[str, Any]]:
    """A record a strategy: its rewards, the arms that it ever got one for, and what its model brings on fresh rows."""
    starter, labels = Starter(dataset), Labels(dataset.Y)
    later = Stream.draw(dataset, SIZES["init"], rounds + FRESH, seed)
    for strategy in strategies_for("treetop", ["default", "greedy"]):
        settings = Settings(
            strategy, horizon=rounds, learner="treetop", first_epoch=1024, factor=1.2, **SIZES
        ).resolved(dataset)
        stream, model, _ = starter(settings, seed)
        learner, model = prepare_learner(settings, stream, model)
        learning = Learning(learner, settings.epochs())
        played = run(stream, model, settings.policy(model.tree.n_nodes), seed=seed, learning=learning)
        policy = Policy(k=settings.k, explore=0, beam=settings.beam or 10, strategy=Greedy())
        decided = policy.decide_batch(
            refit(played.model, played.feedback, learner), later.X.slice(rounds, rounds + FRESH)
        )
        rewarded = played.feedback.arms[np.nan_to_num(played.feedback.rewards) > 0]
        yield {
            "data": dataset.name,
            "strategy": strategy,
            "seed": seed,
            "rounds": rounds,
            "rewards": len(rewarded),
            "arms_rewarded": len(np.unique(rewarded)),
            "fresh": float(np.nansum(labels.rewards(later.rows[rounds:], decided.arms)) / FRESH),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--rounds", type=int, default=40_000)
    parser.add_argument("--seed", type=int, action="append")
    asked = parser.parse_args()
    dataset = load(asked.data)
    for seed in asked.seed or [0]:
        for record in measure(dataset, asked.rounds, seed):
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
