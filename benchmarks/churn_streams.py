"""A twentieth of the arms is replaced at every epoch: arms put into the tree that is there, or all of it made anew.

    python benchmarks/churn_streams.py debian [--epochs 6] [--seed 1] [--way told] [--new-arms-budget 0.01]

An arm that is replaced goes, and a new one comes with the same labels: nobody has shown it yet, and its owner has a
vector for it: the mean of the initial contexts that have its label, none if no context has. Kept: `grow` puts it into
the tree. Told: the same, and the initial contexts that have its label are given as examples of it. Rebuilt: tree,
routing and first model are made again from the labels of all arms that are there, so that it knows what told does.
Alike: the same, but it knows of a new arm what kept does: tree, routing and first model are made from the labels of the
arms that were never replaced, and the others join by their vectors. All then learn the same feedback. To rebuilt no arm
is new, so it makes no trials of new arms; `--new-arms-budget 0` takes them from the others too. Says rewards a round,
and the CPU seconds of what happens to the arms, without the refit that all have.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

import treetop
from treetop.arrays import as_rows
from treetop.bandit.growth import grow
from treetop.data.datasets import Stream, load
from treetop.learning.label_samples import LabelSamples
from treetop.learning.learners import make_learner
from treetop.learning.new_arm_routes import with_new_arm_routes
from treetop.learning.refit import initial_fit
from treetop.tree.labels import pifa

REPLACED = 20  # one of so many arms
MAX_LEAF = 10


class Kept:
    """The tree stays; `label_of` says which label each arm, removed ones too, stands for."""

    def __init__(self, X: Any, Y: Any, max_leaf: int, first: tuple[Any, Any]) -> None:
        self.max_leaf, self.label_of = max_leaf, np.arange(Y.shape[1])
        self.model, self.samples = first
        self.vectors = as_rows(pifa(X, Y)).csr()
        self.arm_of = self.label_of.copy()  # of each label, the arm that has it now
        self.appeared = np.zeros_like(self.label_of)  # before how many rounds each arm could not be shown
        self.feedback: Any = None
        self.seconds = 0.0

    def replace(self, labels: Any) -> None:
        begin = time.process_time()
        removed = np.ones(len(self.label_of), np.bool_)
        removed[self.arm_of] = False
        removed[self.arm_of[labels]] = True
        self.model = grow(self.model, len(labels), self.max_leaf, self.vectors[labels], removed=removed)
        self.seconds += time.process_time() - begin
        self.appeared = np.concatenate([self.appeared, np.full(len(labels), len(self.feedback))])
        self.arm_of[labels] = np.arange(len(self.label_of), len(self.label_of) + len(labels))
        self.label_of = np.concatenate([self.label_of, labels])

    def eligible(self) -> Any:
        return np.sort(self.arm_of)

    def learn(self) -> None:
        removed = np.ones(len(self.label_of), np.bool_)
        removed[self.arm_of] = False
        learner = make_learner("treetop", label_samples=self.samples.without(removed))
        self.model = treetop.refit(self.model, replace(self.feedback, appeared=self.appeared), learner)


class Told(Kept):
    """The tree stays, and labelled rows of the new arms join those that are there."""

    def __init__(self, X: Any, Y: Any, max_leaf: int, first: tuple[Any, Any]) -> None:
        super().__init__(X, Y, max_leaf, first)
        self.X, self.Y = X, Y.tocsc()

    def replace(self, labels: Any) -> None:
        super().replace(labels)
        begin = time.process_time()
        rows, which = self.Y[:, labels].nonzero()
        self.samples = self.samples.with_examples(as_rows(self.X[rows]), self.arm_of[labels[which]].astype(np.int32))
        self.model = with_new_arm_routes(self.model, self.samples, len(self.label_of) - len(labels))
        self.seconds += time.process_time() - begin


class Rebuilt(Kept):
    """All of it is made again; what was shown of arms that are gone is forgotten."""

    def __init__(self, X: Any, Y: Any, max_leaf: int, first: tuple[Any, Any]) -> None:
        super().__init__(X, Y, max_leaf, first)
        self.X, self.Y = X, Y

    def replace(self, labels: Any) -> None:
        begin = time.process_time()
        self.model, self.samples = first_model(self.X, self.Y, self.max_leaf)
        self.seconds += time.process_time() - begin
        gone = np.isin(self.feedback.arms, labels)
        rewards = np.where(gone, np.nan, self.feedback.rewards)
        arms = np.where(gone, -1, self.feedback.arms)
        self.feedback = replace(
            self.feedback, arms=arms, rewards=rewards, nodes=np.full(arms.shape, -1), components=None
        )


class Alike(Rebuilt):
    """The same from the labels of the arms that were never replaced; the others join by their vectors."""

    def replace(self, labels: Any) -> None:
        began = np.zeros(self.Y.shape[1], np.int64)  # rounds before which each label's arm could not be shown
        began[self.label_of] = self.appeared
        began[labels] = len(self.feedback)
        late = self.label_of[self.appeared > 0]
        late = np.concatenate([late[~np.isin(late, labels)], labels])
        order = np.concatenate([np.setdiff1d(np.arange(self.Y.shape[1]), late), late])
        begin = time.process_time()
        first, self.samples = first_model(self.X, self.Y[:, order[: -len(late)]], self.max_leaf)
        self.model = grow(first, len(late), self.max_leaf, self.vectors[late])
        self.seconds += time.process_time() - begin
        shown = np.where(self.feedback.arms < 0, -1, self.label_of[self.feedback.arms])
        self.arm_of[order] = np.arange(len(order))
        self.label_of, self.appeared = order, began[order]
        gone = (shown < 0) | np.isin(shown, labels)
        arms = np.where(gone, -1, self.arm_of[shown])
        self.feedback = replace(
            self.feedback,
            arms=arms,
            rewards=np.where(gone, np.nan, self.feedback.rewards),
            nodes=np.full(arms.shape, -1),
            components=None,
        )


KINDS = {"kept": Kept, "told": Told, "rebuilt": Rebuilt, "alike": Alike}


def first_model(X: Any, Y: Any, max_leaf: int) -> tuple[Any, Any]:
    tree = treetop.Tree.from_labels_separated(X, Y, max_leaf=max_leaf)
    model = treetop.Model.initial(tree, X, Y)
    samples = LabelSamples.of(tree, as_rows(X, model.n_features), Y, beam=10)
    return initial_fit(model, make_learner("treetop", label_samples=samples)), samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--init", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", action="append", choices=KINDS, help="repeatable; all of them if none is named")
    parser.add_argument("--new-arms-budget", type=float, default=treetop.Budgeted().new_arms_budget)
    given = parser.parse_args()
    dataset = load(given.data)
    stream = Stream.draw(dataset, given.init, given.epochs * given.rounds, given.seed)
    X, Y = as_rows(stream.X_init).csr(), as_rows(stream.Y_init).csr()
    rows, labels = as_rows(stream.X).csr(), sp.csr_matrix(as_rows(dataset.Y).csr()[stream.rows])
    strategy = treetop.Budgeted(new_arms_budget=given.new_arms_budget)
    policy = treetop.Policy(k=5, explore=3, beam=10, strategy=strategy)
    first = first_model(X, Y, MAX_LEAF)
    ways = {name: KINDS[name](X, Y, MAX_LEAF, first) for name in given.way or KINDS}
    rng, earned = np.random.default_rng([given.seed, 5]), {name: list[float]() for name in ways}
    for epoch in range(given.epochs):
        here = slice(epoch * given.rounds, (epoch + 1) * given.rounds)
        changed = rng.choice(Y.shape[1], Y.shape[1] // REPLACED, replace=False)
        for name, way in ways.items():
            if epoch:
                way.replace(changed)
                way.learn()
            shown = policy.decide_batch(way.model, rows[here], seed=given.seed + epoch, eligible=way.eligible())
            of = way.label_of[np.maximum(shown.arms, 0)]
            told = np.asarray(labels[np.arange(here.start, here.stop)[:, None], of].todense())
            new = treetop.Feedback.of(rows[here], shown, np.where(shown.arms < 0, np.nan, told))
            new = replace(new, components=None)
            way.feedback = new if way.feedback is None else way.feedback + new
            earned[name].append(float(np.nansum(told) / given.rounds))
    later = {name: float(np.mean(each[1:])) for name, each in earned.items()}
    seconds = {name: way.seconds for name, way in ways.items()}
    pairs = ("told", "rebuilt"), ("kept", "alike"), ("kept", "rebuilt")
    ratio = {
        f"{one}/{other}": {"reward": later[one] / later[other], "cost": seconds[one] / seconds[other]}
        for one, other in pairs
        if {one, other} <= ways.keys()
    }
    print(json.dumps({"data": given.data, "epochs": earned, "later": later, "cpu_seconds": seconds, "ratio": ratio}))


if __name__ == "__main__":
    main()
