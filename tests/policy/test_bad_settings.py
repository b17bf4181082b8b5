"""Bad trees, models, settings, sets of arms, strategies and feedback: like the clean twin, or refused by name."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.bad_input import ARMS, F32, TYPE, VALUE, Call, Table, Uniform, refused, same, table
from helpers.problems import Problem

import treetop
from treetop import IGW, Boltzmann, Epochs, EpsilonGreedy, FlatPolicy, Linear, Policy, Tree
from treetop.effort import Effort

INT_MAX = 2**31 - 1


# ------------------------------------------------------------------------------------------------- trees

X, Y = np.eye(6, 5), np.eye(6, 4)


def tree(parents: Any, leaf_of: Any) -> Tree:
    return Tree(parents, leaf_of)


def labels(X: Any = X, Y: Any = Y, **settings: Any) -> Tree:
    return Tree.from_labels(X, Y, **{"max_leaf": 2, **settings})


BAD_TREES: Table = {
    "no nodes": (lambda: tree([], [0]), VALUE, "leaf 0 is outside [0, 0)"),
    "no arms": (lambda: tree([-1], []), VALUE, "at least one arm"),
    "root with a parent": (lambda: tree([0], [0]), VALUE, "its parent must be -1, not 0"),
    "parent behind": (lambda: tree([-1, 2, 0], [1]), VALUE, "node 1 has parent 2; a parent must precede"),
    "two roots": (lambda: tree([-1, -1], [1]), VALUE, "node 1 has parent -1"),
    "parent -2": (lambda: tree([-1, -2], [1]), VALUE, "parent -2 is outside [-1, 2)"),
    "parent 2**32": (lambda: tree([-1, 2**32], [1]), VALUE, "parent 4294967296 is outside [-1, 2)"),
    "leaf 2": (lambda: tree([-1, 0], [2]), VALUE, "leaf 2 is outside [0, 2)"),
    "leaf -1": (lambda: tree([-1, 0], [-1]), VALUE, "leaf -1 is outside [0, 2)"),
    "leaf 2**32 + 1": (lambda: tree([-1, 0], [2**32 + 1]), VALUE, "leaf 4294967297 is outside [0, 2)"),
    "arm in an inner node": (lambda: tree([-1, 0], [0]), VALUE, "arm 0 is in node 0, which has children"),
    "fractions": (lambda: tree([-1.0, 0.0], [1]), TYPE, "parent must be whole numbers, not float64"),
    "leaves of text": (lambda: tree([-1, 0], ["1"]), TYPE, "leaf must be whole numbers, not <U1"),
    "truth values": (lambda: tree([-1, 0], [True]), TYPE, "leaf must be whole numbers, not bool"),
    "matrix of parents": (lambda: tree([[-1, 0]], [1]), VALUE, "parents must be a list, not an array of shape (1, 2)"),
    "matrix of leaves": (lambda: tree([-1, 0], [[1]]), VALUE, "leaf_of must be a list, not an array of shape (1, 1)"),
    "one number": (lambda: tree(-1, 0), VALUE, "parents must be a list, not an array of shape ()"),
    "node -1": (lambda: tree([-1], [0]).arms_below(-1), VALUE, "node is -1; it must lie in [0, 0]"),
    "no contexts": (lambda: labels(X[:0], Y[:0]), VALUE, "the matrix of contexts is empty: 0 rows"),
    "no labels": (lambda: labels(Y=Y * 0), VALUE, "the label matrix of shape (6, 4) has no labels; at least 1"),
    "explicit zeros": (lambda: labels(Y=sp.csr_matrix(Y) * 0), VALUE, "the label matrix of shape (6, 4) has no labels"),
    "no arms in labels": (lambda: labels(Y=Y[:, :0]), VALUE, "the label matrix of shape (6, 0) has no labels"),
    "label -1": (lambda: labels(Y=Y * 2 - 1), VALUE, "labels hold -1; they must lie in [0, 1]"),
    "label 2": (lambda: labels(Y=Y * 2), VALUE, "labels hold 2; they must lie in [0, 1]"),
    "label nan": (lambda: labels(Y=Y * np.nan), VALUE, "labels row 0: value nan"),
    "fewer labels": (lambda: labels(Y=Y[:5]), VALUE, "there are 6 contexts, but 5 rows of labels"),
    "sums beyond float32": (lambda: labels(X + 3e38, np.ones((6, 4))), VALUE, f"beyond the limit {F32}"),
    "max_leaf 0": (lambda: labels(max_leaf=0), VALUE, f"max_leaf is 0; it must lie in [1, {INT_MAX}]"),
    "max_leaf 2": (lambda: labels(branching=3), VALUE, "max_leaf is 2; it must be at least the branching, 3"),
    "branching 1": (lambda: labels(branching=1), VALUE, f"branching is 1; it must lie in [2, {INT_MAX}]"),
    "branching 2.0": (lambda: labels(branching=2.0), TYPE, "branching must be a whole number, not 2.0"),
    "seed 2**63": (lambda: labels(seed=2**63), VALUE, f"seed is {2**63}; it must lie in"),
    "seed None": (lambda: labels(seed=None), TYPE, "seed must be a whole number, not None"),
    "threads -1": (lambda: labels(effort=Effort(-1)), VALUE, "threads is -1; it must lie in [0, 4096]"),
    "split": (lambda: labels(split="magic"), VALUE, "split is 'magic'; it must be one of kmeans, cocluster"),
    "no vectors": (lambda: Tree.from_vectors(np.zeros((0, 3))), VALUE, "there are 0 arms; a tree needs at least 1"),
    "negative cocluster": (lambda: Tree.from_vectors(-X, split="cocluster"), VALUE, "negative values; -1 is one"),
    "unknown parent": (lambda: Tree.from_taxonomy({"a": "b"}, ["a"]), VALUE, "'a' has parent 'b', which is not"),
    "own ancestor": (lambda: Tree.from_taxonomy({"a": "b", "b": "a"}, ["a"]), VALUE, "'a' is its own ancestor"),
    "own parent": (lambda: Tree.from_taxonomy({"a": "a"}, ["a"]), VALUE, "'a' is its own ancestor"),
    "unknown category": (lambda: Tree.from_taxonomy({"a": None}, ["a", "z"]), VALUE, "arm 1 is in category 'z', which"),
    "None as category": (lambda: Tree.from_taxonomy({None: None}, []), VALUE, "None cannot be a category"),  # type: ignore[dict-item]
    "no arms in categories": (lambda: Tree.from_taxonomy({"a": None}, []), VALUE, "at least one arm"),
}


@table(BAD_TREES)
def test_bad_trees_are_refused(call: Call, error: Any, message: str) -> None:
    with refused(error, message):
        call()


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint16, ">i4", list])
def test_trees_of_any_whole_numbers(kind: Any) -> None:
    parents, leaf_of = np.array([-1, 0, 0, 1, 1]), np.array([3, 2, 4, 4, 3])
    cast: Any = list if kind is list else lambda a: np.repeat(a, 2).astype(kind)[::2]
    mine = parents if kind is np.uint16 else cast(parents)  # which has no -1
    same(tree(mine, cast(leaf_of)), tree(parents, leaf_of))


@pytest.mark.parametrize("scale", [2.0**-120, 2.0**-60, 2.0**60, 2.0**110])
def test_the_size_of_contexts_does_not_change_the_tree(scale: float, problem: Problem) -> None:
    small, large = (Tree.from_labels(problem.X[:99] * s, problem.Y[:99], max_leaf=4) for s in (1.0, scale))
    same(small, large)


# ------------------------------------------------------------------------------------------------- models

PAIR = tree([-1, 0, 0], [1, 2])


def initial(**settings: Any) -> Any:
    return treetop.Model.initial(PAIR, X, Y[:, :2], **settings)


def weights(routing: Any = (3, 6), rewards: Any = (5, 6), fill: float = 1.0, **settings: Any) -> Any:
    return treetop.Model.from_weights(PAIR, np.full(routing, fill), np.ones(rewards), **settings)


BAD_MODELS: Table = {
    "labels of other arms": (lambda: treetop.Model.initial(PAIR, X, Y), VALUE, "labels have 4 columns; the tree has 2"),
    "vectors of other arms": (lambda: treetop.Model.from_vectors(PAIR, X), VALUE, "6 arm vectors; the tree has 2"),
    "cost 0": (lambda: initial(cost=0), VALUE, "cost is 0; it must be finite and lie in [1e-12, 1e+12]"),
    "cost nan": (lambda: initial(cost=np.nan), VALUE, "cost is nan; it must be finite"),
    "cost of text": (lambda: initial(cost="1"), TYPE, "cost must be a number, not '1'"),
    "tolerance -1": (lambda: initial(tolerance=-1), VALUE, "tolerance is -1; it must be finite and lie in [1e-12"),
    "threshold -1": (lambda: initial(threshold=-1), VALUE, "threshold is -1; it must be finite and lie in [0, inf]"),
    "seed 1.5": (lambda: initial(seed=1.5), TYPE, "seed must be a whole number, not 1.5"),
    "threads 1e6": (lambda: initial(threads=10**6), VALUE, "threads is 1000000; it must lie in [0, 4096]"),
    "rows of routing": (lambda: weights((4, 6)), VALUE, "routing have shape (4, 6); 3 nodes and 2 arms with 5"),
    "rows of rewards": (lambda: weights(rewards=(4, 6)), VALUE, "rewards have shape (4, 6); 3 nodes and 2 arms with 5"),
    "columns": (lambda: weights(rewards=(5, 7)), VALUE, "rewards have shape (5, 7); 3 nodes and 2 arms with 5"),
    "no bias": (lambda: weights((3, 0), (5, 0)), VALUE, "routing has 0 columns; there must be at least 1"),
    "epoch -1": (lambda: weights(epoch=-1), VALUE, f"epoch is -1; it must lie in [0, {2**62}]"),
    "n_seen 0.5": (lambda: weights(n_seen=0.5), TYPE, "n_seen must be a whole number, not 0.5"),
    "geometric by name": (lambda: weights(geometric="yes"), TYPE, "geometric must be True or False, not 'yes'"),
    "radius -2": (lambda: weights(fill=-2.0, geometric=True), VALUE, "the radius -2 in the last column must be at"),
}


@table(BAD_MODELS)
def test_bad_models_are_refused(call: Call, error: Any, message: str) -> None:
    with refused(error, message):
        call()


# ------------------------------------------------------------------------------------------------- settings

THEOREM: dict[str, Any] = {"gamma": "theorem1", "functions": 1e6, "delta": 0.1, "horizon": 1000}
THEOREM2: dict[str, Any] = {**THEOREM, "gamma": "theorem2"}


def policies(strategy: Any, explore: int = 1) -> list[Call]:
    return [lambda: Policy(3, explore, strategy=strategy), lambda: FlatPolicy(3, explore, strategy)]


BAD_SETTINGS: Table = {
    "k 0": (lambda: Policy(k=0), VALUE, "k is 0; it must lie in [1, 65536]"),
    "k -1": (lambda: FlatPolicy(k=-1), VALUE, "k is -1; it must lie in [1, 65536]"),
    "k 65537": (lambda: Policy(k=65_537), VALUE, "k is 65537; it must lie in [1, 65536]"),
    "k 2.0": (lambda: Policy(k=2.0), TYPE, "k must be a whole number, not 2.0"),  # type: ignore[arg-type]
    "k True": (lambda: FlatPolicy(k=True), VALUE, "k is True; it must lie in"),
    "explore above k": (lambda: Policy(k=3, explore=4), VALUE, "explore is 4; it must lie in [0, 3]"),
    "explore -1": (lambda: FlatPolicy(k=3, explore=-1), VALUE, "explore is -1; it must lie in [0, 3]"),
    "beam 0": (lambda: Policy(beam=0), VALUE, f"beam is 0; it must lie in [1, {INT_MAX}]"),
    "beam 2**31": (lambda: Policy(beam=2**31), VALUE, f"beam is {2**31}; it must lie in [1, {INT_MAX}]"),
    "search beta 2": (lambda: Policy(beta=2.0), VALUE, "beta is 2.0; it must be finite and lie in [0, 1]"),
    "search beta nan": (lambda: Policy(beta=np.nan), VALUE, "beta is nan; it must be finite and lie in [0, 1]"),
    "C -1": (lambda: IGW(C=-1), VALUE, "C is -1; it must be finite and lie in [0, 1e+100]"),
    "C nan": (lambda: IGW(C=np.nan), VALUE, "C is nan; it must be finite"),
    "C 1e308": (lambda: IGW(C=1e308), VALUE, "C is 1e+308; it must be finite and lie in [0, 1e+100]"),
    "C 10**400": (lambda: IGW(C=10**400), VALUE, "it must be finite and lie in [0, 1e+100]"),
    "C of text": (lambda: IGW(C="1"), TYPE, "C must be a number, not '1'"),  # type: ignore[arg-type]
    "gamma": (lambda: IGW(gamma="magic"), VALUE, "gamma is 'magic'; it must be one of experiments, "),
    "theorem 1 without": (lambda: IGW(gamma="theorem1", delta=0.1), VALUE, "gamma='theorem1' needs functions, horizon"),
    "theorem 2 without": (lambda: IGW(**THEOREM2), VALUE, "gamma='theorem2' needs epsilon"),
    "epsilon -1": (lambda: IGW(**{**THEOREM2, "epsilon": -1}), VALUE, "epsilon is -1; it must be finite"),
    "c 2": (lambda: IGW(**THEOREM, c=2), VALUE, "c is 2; it must be finite and lie in [1e-12, 1]"),
    "delta 0": (lambda: IGW(**{**THEOREM, "delta": 0}), VALUE, "delta is 0; it must be finite and lie in [1e-300, 1]"),
    "functions inf": (lambda: IGW(**{**THEOREM, "functions": np.inf}), VALUE, "functions is inf; it must be finite"),
    "horizon 0": (lambda: IGW(**{**THEOREM, "horizon": 0}), VALUE, f"horizon is 0; it must lie in [1, {2**62}]"),
    "a log of 0": (lambda: IGW(gamma="theorem1", functions=1, delta=1, horizon=1), VALUE, "all 1; log"),
    "Boltzmann -1": (lambda: Boltzmann(-1), VALUE, "beta is -1; it must be finite and lie in [0, 1e+100]"),
    "Boltzmann inf": (lambda: Boltzmann(np.inf), VALUE, "beta is inf; it must be finite"),
    "epsilon 2": (lambda: EpsilonGreedy(2), VALUE, "epsilon is 2; it must be finite and lie in [0, 1]"),
    "epsilon nan": (lambda: EpsilonGreedy(np.nan), VALUE, "epsilon is nan; it must be finite and lie in [0, 1]"),
    "theorem, explore 2": (policies(IGW(**THEOREM), 2)[0], VALUE, "is proved for explore=1, not for explore=2"),
    "theorem, flat explore 0": (policies(IGW(**THEOREM), 0)[1], VALUE, "proved for explore=1, not for explore=0"),
    "a class": (policies(IGW)[0], TYPE, "IGW is a class; the strategy is an instance of it: IGW()"),
    "a flat class": (policies(Uniform)[1], TYPE, "Uniform is a class"),
    "a name": (policies("igw")[0], TYPE, "'igw' is not a strategy: it has no probabilities"),
    "a flat None": (policies(None)[1], TYPE, "None is not a strategy"),
    "loss": (lambda: Linear(loss="magic"), VALUE, "loss is 'magic'; it must be one of squared, absolute"),
    "Linear cost 0": (lambda: Linear(cost=0), VALUE, "cost is 0; it must be finite and lie in [1e-12, 1e+12]"),
    "Linear tolerance": (lambda: Linear(tolerance=np.inf), VALUE, "tolerance is inf; it must be finite"),
    "Linear threads": (lambda: Linear(threads=-2), VALUE, "threads is -2; it must lie in [0, 4096]"),
    "unfitted": (lambda: Linear().predict(X), VALUE, "has not been fitted yet"),
    "target nan": (lambda: Linear().fit(X, [np.nan] * 6), VALUE, "target nan is not finite"),
    "1e300": (lambda: Linear().fit(X, [1e300] * 6), VALUE, f"value 1e+300 is beyond the limit {F32}"),
    "complex targets": (lambda: Linear().fit(X, [1j] * 6), TYPE, "targets hold complex128 values"),
    "fewer targets": (lambda: Linear().fit(X, [1.0]), VALUE, "6 contexts, but targets of shape (1,)"),
    "weights": (lambda: Linear(cost=1e12).fit([[2e-3], [1e-3]], [3e38, -3e38]), VALUE, f"beyond the limit {F32}"),
    "first 0": (lambda: Epochs.doubling(0), VALUE, f"first is 0; it must lie in [1, {2**62}]"),
    "factor 1": (lambda: Epochs.geometric(5, 1.0), VALUE, "factor is 1.0; it must be finite and lie in [1.000000001"),
    "factor nan": (lambda: Epochs.geometric(5, np.nan), VALUE, "factor is nan; it must be finite"),
    "factor inf": (lambda: Epochs.geometric(5, np.inf), VALUE, "factor is inf; it must be finite"),
    "every -1": (lambda: Epochs.linear(-1), VALUE, f"every is -1; it must lie in [1, {2**62}]"),
    "no rounds": (lambda: Epochs.explicit([]), VALUE, "rounds must rise strictly and not be empty: []"),
    "equal rounds": (lambda: Epochs.explicit([5, 5]), VALUE, "rounds must rise strictly and not be empty: [5, 5]"),
    "round 0": (lambda: Epochs.explicit([0, 5]), VALUE, f"round is 0; it must lie in [1, {2**62}]"),
    "round 1.5": (lambda: Epochs.explicit([1.5]), TYPE, "round must be a whole number, not 1.5"),  # type: ignore[list-item]
    "horizon inf": (lambda: Epochs.doubling().until(np.inf), TYPE, "horizon must be a whole number, not inf"),  # type: ignore[arg-type]
    "standing still": (lambda: Epochs(5, lambda n: n).until(9), VALUE, "at round 5 follows one at round 5"),
}


@table(BAD_SETTINGS)
def test_bad_settings_are_refused(call: Call, error: Any, message: str) -> None:
    with refused(error, message):
        call()


def test_the_largest_settings_still_work(learned: treetop.Model, problem: Problem) -> None:
    for strategy in (IGW(C=1e100), Boltzmann(1e100), EpsilonGreedy(1), EpsilonGreedy(0), IGW(C=0)):
        policy = Policy(k=4, explore=2, beam=3, strategy=strategy)
        assert (policy.decide(learned, problem.X[0], 1).propensities > 0).all()
        assert policy.explain(learned, problem.X[0]).probability.sum() == pytest.approx(1)
    assert Epochs.geometric(2**60, 1e100).until(2**62) == [2**60]
    assert len(Policy(k=65_536, explore=3, beam=INT_MAX).decide(learned, problem.X[0])) == ARMS
