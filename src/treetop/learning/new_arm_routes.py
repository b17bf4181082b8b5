"""Routing functions of arms that were just added, from labelled rows alone: until the next refit, which fits all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Rows, as_rows
from treetop.learning.arm_routing import TOLERANCES, fold_of
from treetop.learning.label_samples import LabelSamples
from treetop.learning.routing_samples import LabelledRows, RoutingFit, thresholds
from treetop.model.model import Model


def with_new_arm_routes(model: Model, labels: LabelSamples, first: int) -> Model:
    """The model with routing functions for the arms from number `first` on that have labels. A model whose routing ends
    at the leaf stays as it is.

    >>> from treetop.learning.label_samples import pair_routes
    >>> from treetop.learning.learners import make_learner
    >>> from treetop.learning.refit import initial_fit
    >>> from treetop.tree.tree import Tree
    >>> X, tree = np.tile(np.eye(4, dtype=np.float32), (8, 1)), Tree(parents=[-1, 0, 0], leaf_of=[1, 1, 2, 2])
    >>> labels = LabelSamples.of(tree, X, np.pad(X[:, :3], ((0, 0), (0, 1))))
    >>> model = initial_fit(Model.initial(tree, X, X), make_learner("treetop", label_samples=labels))
    >>> more = labels.with_examples(as_rows(X[3:4]), np.array([3], np.int32))
    >>> taught = with_new_arm_routes(model, more, first=3)
    >>> [int(pair_routes(each, as_rows(X[3]), np.zeros(4, int), np.arange(4)).argmax()) for each in (model, taught)]
    [0, 3]
    """
    learned, tree = model.learned_routing, model.tree
    if learned is None or not model.has_arm_routes or first == tree.n_arms:
        return model
    right, low, high = labels.reward > 0, tree.n_nodes + first, tree.n_nodes + tree.n_arms
    at = labels.row[right], labels.arm[right]
    Y = sp.csr_matrix((np.ones(len(at[0]), np.float32), at), shape=(len(labels.contexts), tree.n_arms))
    none = np.zeros(0, np.int32)
    problems = LabelledRows.of(tree, Y).problems(low, high, none, none, none.astype(np.bool_))
    fit = RoutingFit(TOLERANCES, thresholds(labels.contexts))
    unknown, fold = model.route_rows.slice(low, high), fold_of(labels.contexts) == 1
    *folds, of_arms = fit(labels.contexts, problems, fold, unknown, None)
    held_out = tuple(_with_last(rows, new) for rows, new in zip(learned.held_out, folds, strict=True))
    routing = replace(learned, held_out=held_out)
    return replace(model, route_rows=_with_last(model.route_rows, of_arms), learned_routing=routing)


def _with_last(rows: Rows, last: Rows) -> Rows:
    """Rows with others in place of the last ones."""
    return as_rows(sp.vstack([rows.head(len(rows) - len(last)).csr(), last.csr()], format="csr"))
