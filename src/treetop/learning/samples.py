"""Rewards of arms in contexts: one record, grouped by the regressor that learns from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints, Rows, as_rows
from treetop.model.model import Model
from treetop.records import Feedback

FAR = 4.0  # times the median norm: contexts beyond are outliers
BLOCK = 65_536  # contexts whose squares are in memory at a time


@dataclass(frozen=True, eq=False)
class Samples:
    """One reward of one arm in one context at each place.

    - `contexts`: the rows; `row` (n,): which of them each sample is of
    - `arm`, `reward` (n,)
    - `log_route` (n,): log of the routing score down to the arm's leaf
    - `weight` (n,): how much the sample counts for the pooled means

    Samples add up; the contexts of the second stand behind those of the first.
    """

    contexts: Rows
    row: Ints
    arm: Ints
    reward: Float32s
    log_route: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.arm)

    def take(self, some: Bools) -> Samples:
        """Some of the samples; all contexts stay."""
        names = ("row", "arm", "reward", "log_route", "weight")
        return Samples(self.contexts, *(getattr(self, name)[some] for name in names))

    def __add__(self, later: Samples) -> Samples:
        return Samples(
            as_rows(sp.vstack([self.contexts.csr(), later.contexts.csr()], format="csr")),
            np.concatenate([self.row, later.row + np.int32(len(self.contexts))]),
            np.concatenate([self.arm, later.arm]),
            np.concatenate([self.reward, later.reward]),
            np.concatenate([self.log_route, later.log_route]),
            np.concatenate([self.weight, later.weight]),
        )


def without_outliers(contexts: Rows, usual: slice | Bools = slice(None)) -> Rows:
    """The contexts with those of a norm beyond FAR times the median of the `usual` ones scaled down to it.

    A regressor fits a sample of a large norm whatever the others say. Scaled down, it moves weights no more than others
    do. Contexts of which none is so large are returned as they are.

    >>> without_outliers(as_rows([[3.0, 4.0], [0.0, 5.0], [600.0, 800.0]])).value
    array([3., 4., 5., 3., 4.], dtype=float32)
    """
    n = len(contexts)
    blocks = (contexts.slice(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK))
    norms = np.concatenate([np.zeros(0), *map(context_norms, blocks)])
    known = norms[usual]
    return scaled_down(contexts, norms, np.median(known[known > 0]) if known.any() else 0.0)


def scaled_down(contexts: Rows, norms: Floats, ordinary: float) -> Rows:
    """Contexts with those of a norm beyond FAR times the ordinary one scaled down to it.

    >>> scaled_down(as_rows([[3.0], [5.0]]), np.array([3.0, 5.0]), 1.0).value
    array([3., 1.], dtype=float32)
    """
    far = np.flatnonzero(norms > FAR * ordinary)
    if len(far) == 0:
        return contexts
    value = contexts.value.copy()
    for row in far.tolist():
        value[contexts.start[row] : contexts.start[row + 1]] *= ordinary / norms[row]
    return replace(contexts, value=value)


def context_norms(contexts: Rows) -> Floats:
    """The length of each context.

    >>> context_norms(as_rows([[3.0, 4.0]]))
    array([5.])
    """
    squares = contexts.csr().astype(np.float64)
    squares.data **= 2
    return np.sqrt(np.asarray(squares.sum(axis=1)).ravel())


def context_fingerprints(contexts: Rows) -> Int64s:
    """64 bits a context that tell what it contains.

    >>> a, b, c = context_fingerprints(as_rows([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])).tolist()
    >>> a == c, a == b
    (True, False)
    """
    n = len(contexts)
    each = np.arange(n + 1, dtype=np.int64)
    X = contexts.start, contexts.index, contexts.value, contexts.columns
    found = _core.fingerprints(*X, each, each[:-1].astype(np.int32), np.zeros(n, np.float32), 0, 0)
    return np.asarray(found, np.int64)


def typical_square(norms: Iterable[Floats]) -> float:
    """About the mean square of the length of [x; 1], by the lengths of x: a power of 2, so that it is the same while
    contexts are alike. They are added up one by one, so that their pieces make no difference.

    >>> typical_square([np.array([3.0]), np.array([2.0])])  # 7.5
    8.0
    """
    square, count = 0.0, 0
    for some in norms:
        square, count = float(np.cumsum(np.append(square, some**2))[-1]), count + len(some)
    return float(2 ** np.rint(np.log2(1 + square / max(1, count))))


def by_group(group: Ints, groups: int) -> tuple[Int64s, Ints]:
    """Where each group begins, and the samples group by group, each in its order: a counting sort, as scipy does it.

    >>> by_group(np.array([2, 0, 2], np.int32), 3)
    (array([0, 1, 1, 3]), array([1, 0, 2], dtype=int32))
    """
    n = len(group)
    one_a_row = sp.csr_matrix((np.ones(n, np.int8), group, np.arange(n + 1)), shape=(n, groups))
    sorted_ = one_a_row.tocsc()
    return sorted_.indptr.astype(np.int64), sorted_.indices.astype(np.int32)


def latest_step(start: Int64s, order: Ints, new: Bools, growth: float) -> tuple[Int64s, Ints]:
    """Cuts the new samples of each group to the largest step (1, growth, growth^2, ...) that it has reached.

    Samples beyond it wait: a group that has reached no new step is unchanged and is not solved again, however often
    there is a refit. `new` marks the new samples; the others are kept. `growth` 1 keeps all.

    >>> start, order = np.array([0, 8]), np.arange(8, dtype=np.int32)
    >>> latest_step(start, order, np.ones(8, bool), 1.1)[1]
    array([0, 1, 2, 3, 4, 5, 6, 7], dtype=int32)
    >>> latest_step(np.array([0, 12]), np.arange(12, dtype=np.int32), np.ones(12, bool), 1.1)[0]  # the next step is 13
    array([ 0, 11])
    """
    if growth == 1:
        return start, order
    fresh = np.flatnonzero(new[order])
    before = np.searchsorted(fresh, start)  # new samples before each group
    kept = reached_step(np.diff(before), growth)
    group = np.repeat(np.arange(len(kept)), np.diff(before))
    waits = fresh[np.arange(len(fresh)) - before[group] >= kept[group]]
    return start - np.searchsorted(waits, start), np.delete(order, waits)


def reached_step(counts: Int64s, growth: float) -> Int64s:
    """The largest step (1, growth, growth^2, ...) that each number has reached; 0 of 0.

    >>> reached_step(np.array([0, 8, 12]), 1.1).tolist()  # the next step is 13
    [0, 8, 11]
    """
    if growth == 1:
        return counts
    steps = np.unique([0, *(growth ** np.arange(int(22 / np.log(growth)))).astype(np.int64)])
    return np.asarray(steps[np.searchsorted(steps, counts, side="right") - 1])


def latest(start: Int64s, order: Ints, window: int) -> tuple[Int64s, Ints]:
    """At most the last `window` samples of every group.

    >>> latest(np.array([0, 3, 4]), np.arange(4, dtype=np.int32), window=2)
    (array([0, 2, 3]), array([1, 2, 3], dtype=int32))
    """
    size = np.diff(start)
    if len(size) == 0 or size.max() <= window:
        return start, order
    kept = np.minimum(size, window)
    first = np.repeat(start[1:] - kept, kept)
    begin = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    return begin, order[first + np.arange(len(first)) - np.repeat(begin[:-1], kept)]


def paper_samples(feedback: Feedback, model: Model) -> tuple[Int64s, Ints, Float32s]:
    """Observed rewards by reward model, as (start, contexts, rewards): a node's own choices, every showing of an arm.

    Row g of the model's `rewards` owns samples start[g]:start[g + 1].

    >>> from treetop.tree.tree import Tree
    >>> X = Y = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
    >>> seen = Feedback(X, arms=[[0], [0]], nodes=[[-1], [1]], rewards=[[1], [0]])
    >>> paper_samples(seen, model)[0]  # nodes 0-2, arms 0-1
    array([0, 0, 1, 1, 3, 3])
    """
    tree = model.tree
    check_fits(feedback, model)
    t, slot = np.nonzero(feedback.observed)
    arm, node, reward = (a[t, slot] for a in (feedback.arms, feedback.nodes, feedback.rewards))
    through = node >= 0
    group = np.concatenate([node[through], tree.n_nodes + arm])
    start, order = by_group(group, tree.n_nodes + tree.n_arms)
    context = np.concatenate([t[through], t]).astype(np.int32)
    return start, context[order], np.concatenate([reward[through], reward])[order]


def check_fits(feedback: Feedback, model: Model, any_tree: bool = False) -> None:
    """Refuses feedback on arms, nodes or features that the model does not have.

    With `any_tree`, nodes may be of trees that the arms had before they moved.

    >>> from treetop.tree.tree import Tree
    >>> X = Y = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
    >>> check_fits(Feedback(X, arms=[[7], [0]], nodes=None, rewards=[[1], [0]]), model)
    Traceback (most recent call last):
    ValueError: feedback on arm 7, outside [0, 2)
    """
    tree, arms, nodes = model.tree, feedback.arms, feedback.nodes
    if feedback.contexts.columns != model.n_features:
        raise ValueError(f"feedback has {feedback.contexts.columns} features; the model has {model.n_features}")
    for name, ids, limit in (("arm", arms, tree.n_arms), *([] if any_tree else [("node", nodes, tree.n_nodes)])):
        if ids.size and ids.max() >= limit:
            raise ValueError(f"feedback on {name} {ids.max()}, outside [0, {limit})")
    if feedback.appeared is not None and len(feedback.appeared) > tree.n_arms:
        raise ValueError(f"feedback says when {len(feedback.appeared)} arms appeared; the model has {tree.n_arms}")
    if any_tree:
        return
    place = tree.position_of[np.maximum(arms, 0)]
    above = np.maximum(nodes, 0)
    outside = (nodes >= 0) & (arms >= 0) & ((place < tree.begin[above]) | (place >= tree.end[above]))
    if outside.any():
        r, s = np.argwhere(outside)[0]
        raise ValueError(f"round {r}, slot {s}: arm {arms[r, s]} is not below node {nodes[r, s]}")
