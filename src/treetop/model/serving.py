"""What the parts of a model are to the core: weights in the order in which a decision reads them, terms of scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treetop import _core
from treetop.arrays import Float32s, Rows
from treetop.model.coverage import Coverage
from treetop.model.measure import Measure
from treetop.model.pooled_state import PooledState
from treetop.tree.tree import Tree


def plain_engine(
    tree: Tree, routes: Rows, rewards: Rows, geometric: bool, layout: NDArray[np.uint8] | None, file: str = ""
) -> _core.Engine:
    """The weights alone: mapped, if there is a layout, or else laid out now, in a new file if there is a name for it.

    >>> from treetop.arrays import as_rows
    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> len(plain_engine(tree, as_rows(np.eye(3)), as_rows(np.ones((5, 3))), False, None).layout()) % 64
    0
    """
    routing = tree.parents, tree.leaf_of, routes.start, routes.index, routes.value
    if layout is not None:
        return _core.Engine(*routing, routes.columns, geometric, layout)
    weights = rewards.start, rewards.index, rewards.value
    return _core.Engine(*routing, *weights, routes.columns, geometric, 0, file)


def add_terms(
    engine: _core.Engine,
    pooled: PooledState | None = None,
    measure: Measure | None = None,
    item_vectors: Float32s | None = None,
    context_map: Float32s | None = None,
    coverage: Coverage | None = None,
) -> None:
    """What scores have besides weights, as far as a model has it.

    >>> from treetop.arrays import as_rows
    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> engine = plain_engine(tree, as_rows(np.eye(3)), as_rows(np.ones((5, 3))), False, None)
    >>> add_terms(engine, coverage=Coverage.of_categories(["tea", "coffee", None]))
    Traceback (most recent call last):
    ValueError: coverage of 3 arms, 2 groups and 2 shares does not fit 2 arms
    """
    if pooled is not None:
        _add_pooled(engine, pooled)
    if measure is not None:
        _add_measure(engine, measure, pooled, item_vectors, context_map)
    if coverage is not None:
        shares = coverage.start, coverage.group, coverage.share
        engine.set_coverage(*shares, coverage.groups, coverage.saturation)


def _add_pooled(engine: _core.Engine, pooled: PooledState) -> None:
    """What treetop's learner adds to scores."""
    counts = pooled.sample_count, pooled.trial_value
    new = np.full(len(pooled.sample_count), -1, np.int32) if pooled.new_trials is None else pooled.new_trials
    engine.set_pooled(pooled.means, pooled.node_mean, *counts, new, pooled.exploration_net, pooled.weights)


def _add_measure(
    engine: _core.Engine,
    measure: Measure,
    pooled: PooledState | None,
    item_vectors: Float32s | None,
    context_map: Float32s | None,
) -> None:
    """How contexts are compared with nodes and, where items have vectors, with these."""
    vectors, means, ends = np.zeros(0, np.float32), np.zeros(0, np.float32), (0.0, 1.0)
    if item_vectors is not None and pooled is not None and pooled.measure_means is not None:
        vectors, means, ends = item_vectors.reshape(-1), pooled.measure_means, pooled.measure_range
    facts = measure.kind, measure.first, measure.dims, measure.scale, measure.routes
    map_ = np.zeros(0, np.float32) if context_map is None else context_map.reshape(-1)
    engine.set_measure(*facts, vectors, means, ends, measure.place[1], map_)
