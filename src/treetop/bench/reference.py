"""Slow twins that a timing is checked against in the same run: plain NumPy in float64, straight from the matrices.

They share nothing with the core but the model's arrays. A difference is an error, not a timing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from treetop.arrays import Floats, Int64s, Rows
from treetop.bench.peers import take
from treetop.errors import Disagreement
from treetop.model.model import Model
from treetop.policy.policy import Policy
from treetop.records import Feedback
from treetop.tree.tree import Tree

TOLERANCE, APART = 1e-5, 1e-6


def dense(x: Rows) -> Floats:
    """[x; 1]"""
    out = np.zeros(x.columns + 1)
    out[x.index] = x.value
    out[-1] = 1.0
    return out


def dots(rows: Rows, ids: Int64s, x: Floats) -> Floats:
    """rows[ids] @ x, row by row."""
    sums = [np.dot(rows.value[a:b].astype(np.float64), x[rows.index[a:b]]) for a, b in _spans(rows, ids)]
    return np.array(sums, np.float64)


def _spans(rows: Rows, ids: Int64s) -> list[tuple[int, int]]:
    return list(zip(rows.start[ids].tolist(), rows.start[np.asarray(ids) + 1].tolist(), strict=True))


class SlowSearch:
    """Algorithm 2 on a model with linear routing, node by node."""

    def __init__(self, model: Model) -> None:
        if model.geometric:
            raise ValueError("the slow search knows linear routing only")
        self.model = model
        parents = model.tree.parents[1:]
        order = np.argsort(parents, kind="stable")
        self._child = order + 1
        self._first = np.searchsorted(parents[order], np.arange(model.tree.n_nodes + 1))

    def __call__(self, x: Rows, beam: int) -> tuple[Int64s, Int64s, float]:
        """Surviving leaves, pruned nodes, and the smallest gap in log route between the last to stay and the first
        to go, which says how near the result is to another one."""
        vector, codes, route = dense(x), np.zeros(1, np.int64), np.zeros(1)
        pruned: list[Int64s] = []
        nearest = np.inf
        while not (leaf := self._first[codes] == self._first[codes + 1]).all():
            below = [self._child[self._first[c] : self._first[c + 1]] for c in codes[~leaf]]
            above = np.repeat(route[~leaf], [len(b) for b in below])
            children = np.concatenate(below)
            logs = -(np.maximum(0.0, 1.0 - dots(self.model.route_rows, children, vector)) ** 3)
            labels, scores = np.concatenate([codes[leaf], children]), np.concatenate([route[leaf], above + logs])
            order = np.lexsort((labels, -scores))
            if len(order) > beam:
                nearest = min(nearest, float(scores[order[beam - 1]] - scores[order[beam]]))
            codes, route = labels[order[:beam]], scores[order[:beam]]
            pruned.append(labels[order[beam:]])
        return np.sort(codes), np.sort(np.concatenate(pruned or [np.zeros(0, np.int64)])), nearest

    def effective(self, x: Rows, beam: int) -> tuple[Int64s, Int64s, Floats, float]:
        """Ids of single arms, ids of nodes, the scores of both in that order, and the gap as above."""
        tree = self.model.tree
        leaves, nodes, nearest = self(x, beam)
        arms = np.sort(np.concatenate([tree.arms_below(int(leaf)) for leaf in leaves])).astype(np.int64)
        score = dots(self.model.reward_rows, np.concatenate([tree.n_nodes + arms, nodes]), dense(x))
        return arms, nodes, score, nearest


def check_decisions(model: Model, policy: Policy, contexts: Sequence[Rows]) -> dict[str, Any]:
    """Same effective arms, scores within 1e-5, same ranking where scores differ by more. How much was compared.

    A context whose beam is cut between two routes less than 1e-6 apart may go either way in float32: it is left out.
    """
    slow, compared, worst, ties = SlowSearch(model), 0, 0.0, 0
    for x in contexts:
        arms, nodes, score, nearest = slow.effective(x, policy.beam)
        if nearest < APART:
            ties += 1
            continue
        found = policy.explain(model, x)
        if not (np.array_equal(found.id[~found.is_node], arms) and np.array_equal(found.id[found.is_node], nodes)):
            raise Disagreement(f"beam {policy.beam}: the search finds other effective arms than the slow one")
        worst = max(worst, float(np.abs(found.score - score).max(initial=0.0)))
        if worst > TOLERANCE:
            raise Disagreement(f"beam {policy.beam}: a score differs from the slow one by {worst:.3g}")
        check_ranking(found.score, score)
        compared += len(score)
    return {"contexts": len(contexts) - ties, "near_ties": ties, "scores": compared, "largest_difference": worst}


def check_ranking(found: Any, wanted: Floats) -> None:
    """Going down by `found`, the slow score never rises by more than 1e-6."""
    falling = wanted[np.argsort(-np.asarray(found, np.float64), kind="stable")]
    if len(falling) and (rise := float((falling - np.minimum.accumulate(falling)).max())) > APART:
        raise Disagreement(f"the ranking differs: a score {rise:.3g} higher comes after a lower one")


def ridge(X: Rows, rows: Int64s, y: Floats, cost: float) -> tuple[Int64s, Floats]:
    """min 1/2 |w|^2 + cost * sum (w.[x; 1] - y)^2 over some rows, by the normal equations: features and weights."""
    spans = _spans(X, rows)
    features = np.unique(np.concatenate([X.index[a:b] for a, b in spans])).astype(np.int64)
    Z = np.zeros((len(spans), len(features) + 1))
    Z[:, -1] = 1.0
    for sample, (a, b) in enumerate(spans):
        Z[sample, np.searchsorted(features, X.index[a:b])] = X.value[a:b]
    w = np.linalg.solve(np.eye(Z.shape[1]) + 2 * cost * Z.T @ Z, 2 * cost * Z.T @ y)
    return np.append(features, X.columns), np.asarray(w)


def check_ridge(model: Model, feedback: Feedback, arms: Iterable[int], cost: float = 1.0) -> dict[str, Any]:
    """The arms' weights are those of the normal equations on the rounds that showed them."""
    compared, worst = 0, 0.0
    for arm in arms:
        rounds, slot = np.nonzero(feedback.arms == arm)
        row = model.tree.n_nodes + arm
        a, b = model.reward_rows.start[row], model.reward_rows.start[row + 1]
        if not 0 < len(rounds) <= 400:  # more samples would make large dense equations
            continue
        features, w = ridge(feedback.contexts, rounds, feedback.rewards[rounds, slot].astype(np.float64), cost)
        found = np.zeros(feedback.contexts.columns + 1)
        found[model.reward_rows.index[a:b]] = model.reward_rows.value[a:b]
        worst = max(worst, float(np.abs(found[features] - w).max()))
        compared += len(features)
        if worst > 2e-3 or np.count_nonzero(found) > len(features):
            raise Disagreement(f"arm {arm}: a weight differs from the normal equations' by {worst:.3g}")
    return {"weights": compared, "largest_difference": worst}


def check_tree(tree: Tree, max_leaf: int) -> dict[str, Any]:
    """Leaves of at most max_leaf arms, siblings of nearly one size, every arm once."""
    inner = np.zeros(tree.n_nodes, bool)
    inner[tree.parents[1:]] = True
    sizes = tree.sizes
    if sizes[~inner].max() > max_leaf or not np.array_equal(np.sort(tree.arm_at), np.arange(tree.n_arms)):
        raise Disagreement(f"a leaf holds {sizes[~inner].max()} arms of at most {max_leaf}, or an arm is lost")
    children = np.bincount(tree.parents[1:], minlength=tree.n_nodes)
    even = sizes[tree.parents[1:]] / children[tree.parents[1:]]
    if (np.abs(sizes[1:] - even) >= 1).any():
        raise Disagreement("siblings differ by more than one arm")
    return {"leaves": int((~inner).sum()), "largest_leaf": int(sizes[~inner].max())}


def check_routing(model: Model, X: Rows, Y: Rows, nodes: int = 3) -> dict[str, Any]:
    """Some nodes' classifiers cost at most 1 % more than what L-BFGS finds for the same problem."""
    tree, worst, some = model.tree, 1.0, np.random.default_rng(0).permutation(np.arange(1, model.tree.n_nodes))
    place, row = tree.position_of[Y.index], np.repeat(np.arange(len(Y)), np.diff(Y.start))
    checked = 0
    for node in some:
        parent = tree.parents[node]
        mine = np.unique(row[(place >= tree.begin[node]) & (place < tree.end[node])])
        rows = np.unique(row[(place >= tree.begin[parent]) & (place < tree.end[parent])])
        if not 0 < len(mine) < len(rows) <= 2000:
            continue
        sign = np.where(np.isin(rows, mine), 1.0, -1.0)
        a, b = model.route_rows.start[node], model.route_rows.start[node + 1]
        w = np.zeros(X.columns + 1)
        w[model.route_rows.index[a:b]] = model.route_rows.value[a:b]
        Z: Any = sp.hstack([take(X, rows).csr(), sp.csr_matrix(np.ones((len(rows), 1)))], format="csr")

        def cost(v: Floats, Z: Any = Z, sign: Floats = sign) -> tuple[float, Floats]:
            slack = np.maximum(0.0, 1.0 - sign * (Z @ v))
            return float(0.5 * v @ v + slack @ slack), v - 2 * (Z.T @ (sign * slack))

        best = minimize(cost, w, jac=True, method="L-BFGS-B").fun
        worst = max(worst, cost(w)[0] / best)
        if worst > 1.01:
            raise Disagreement(f"node {node}: its classifier costs {worst:.3f} times the least")
        checked += 1
        if checked == nodes:
            break
    return {"nodes": checked, "largest_cost_ratio": worst}
