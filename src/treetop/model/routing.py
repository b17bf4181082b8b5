"""Routing functions: which way a context goes at every node. Learned from labels, or given by geometry."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Float32s, Floats, Int64s, Ints, Matrix, Rows, as_rows, check_float, check_int
from treetop.effort import Progress
from treetop.tree.labels import check_labelled
from treetop.tree.tree import Tree

SQUARED_HINGE = 1


def fit_routing(
    tree: Tree,
    X: Matrix,
    Y: Matrix,
    *,
    cost: float = 1.0,
    tolerance: float = 0.01,
    threshold: float = 0.0,
    seed: int = 0,
    threads: int = 0,
    progress: Progress | None = None,
) -> Rows:
    """One linear classifier on [x; 1] per node but the root: l2-regularised squared hinge, one against its siblings.

    Positive are the contexts with a label below the node, negative the others below its parent (Prabhu et al. 2018).
    Weights of magnitude up to `threshold` are dropped. `progress(done, total)` is called ten times a second, in
    samples.

    >>> X = Y = np.eye(4, dtype=np.float32)
    >>> fit_routing(Tree.from_labels(X, Y, max_leaf=2), X, Y).csr().shape  # a row a node; features and the bias
    (3, 5)
    """
    contexts, labels = check_labelled(X, Y)
    if labels.shape[1] != tree.n_arms:
        raise ValueError(f"labels have {labels.shape[1]} columns; the tree has {tree.n_arms} arms")
    start, rows, target = one_against_siblings(tree, labels)
    weights = _core.fit(
        contexts.start,
        contexts.index,
        contexts.value,
        contexts.columns,
        start,
        rows,
        target,
        SQUARED_HINGE,
        check_float("cost", cost, 1e-12, 1e12),
        check_float("tolerance", tolerance, 1e-12, 1e3),
        1000,
        0,
        np.full(contexts.columns + 1, check_float("threshold", threshold, 0), np.float32),
        check_int("seed", seed, -(2**63), 2**63 - 1),
        check_int("threads", threads, 0, 4096),
        progress,
    )
    return Rows(*weights, contexts.columns + 1)


def one_against_siblings(tree: Tree, labels: sp.csr_matrix) -> tuple[Int64s, Ints, Float32s]:
    """Samples of every node's classifier as (start, contexts, +1 or -1).

    >>> one_against_siblings(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), sp.csr_matrix(np.eye(2)))[2]
    array([ 1., -1., -1.,  1.], dtype=float32)
    """
    n, m = labels.shape[0], tree.n_nodes
    row = np.repeat(np.arange(n, dtype=np.int64), np.diff(labels.indptr))
    below = rows_below(tree, row, labels.indices, n)
    sizes = np.bincount(below // n, minlength=m)
    first = np.concatenate([[0], np.cumsum(sizes)])
    child = np.arange(1, m)
    counts = sizes[tree.parents[1:]]  # a child sees all contexts of its parent
    start = np.concatenate([[0, 0], np.cumsum(counts)]).astype(np.int64)
    within = np.arange(start[-1]) - np.repeat(start[1:-1], counts)
    rows = below[np.repeat(first[tree.parents[1:]], counts) + within] % n
    target = np.where(np.isin(np.repeat(child, counts) * n + rows, below, assume_unique=True), 1.0, -1.0)
    return start, rows.astype(np.int32), target.astype(np.float32)


def rows_below(tree: Tree, row: Int64s, arm: Ints, n: int) -> Int64s:
    """All pairs (node, context with a label below it) as sorted numbers node * n + context.

    >>> rows_below(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), np.array([0, 1]), np.array([0, 1]), n=2).tolist()
    [0, 1, 2, 5]
    """
    level = np.unique(tree.leaf_of[arm].astype(np.int64) * n + row)
    found = [level]
    while True:
        node, context = level // n, level % n
        inner = node > 0
        if not inner.any():
            return np.unique(np.concatenate(found))
        level = np.unique(tree.parents[node[inner]].astype(np.int64) * n + context[inner])
        found.append(level)


def geometric_routing(tree: Tree, vectors: Matrix) -> Rows:
    """Centre and, in the last column, radius of the arms below every node, for g = rad / |x - ctr| (Section 4).

    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 1, 2])
    >>> geometric_routing(tree, [[0.0], [2.0], [5.0]]).csr().toarray()[1:]
    array([[1., 1.],
           [5., 0.]], dtype=float32)
    """
    V = as_rows(vectors, what="arm vectors")
    if len(V) != tree.n_arms:
        raise ValueError(f"there are {len(V)} arm vectors; the tree has {tree.n_arms} arms")
    arms = V.csr().astype(np.float64)
    squares = np.asarray(arms.multiply(arms).sum(axis=1)).ravel()
    total, far = sp.csr_matrix((tree.n_nodes, V.columns)), np.zeros(tree.n_nodes)
    steps, node = [], tree.leaf_of.astype(np.int64)
    while (node >= 0).any():  # every arm climbs to the root
        arm = np.flatnonzero(node >= 0)
        steps.append((arm, node[arm]))
        climb = sp.csr_matrix((np.ones(len(arm)), (node[arm], arm)), shape=(tree.n_nodes, tree.n_arms))
        total = total + climb @ arms
        node = np.where(node >= 0, tree.parents[node], -1)
    centre: Any = sp.csr_matrix(sp.diags_array(1 / np.maximum(tree.sizes, 1)) @ total)
    centre_squares: Floats = np.asarray(centre.multiply(centre).sum(axis=1)).ravel()
    for arm, at in steps:
        dots = np.asarray(arms[arm].multiply(centre[at]).sum(axis=1)).ravel()
        np.maximum.at(far, at, np.maximum(0, squares[arm] - 2 * dots + centre_squares[at]))
    return as_rows(sp.hstack([centre, sp.csr_matrix(np.sqrt(far)[:, None])]), what="routing")
