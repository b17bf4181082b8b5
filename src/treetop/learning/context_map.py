"""The map from the space of contexts to that of the items, learned from rewards where the two differ.

    log odds of a reward = slope * (u' M v) + offset

u is the vector of a context (with length 1 for the cosine), v that of an item, `slope` that of the measure's first
curve. M (context_dims, dims) and the offset minimise the log loss of all samples plus STRENGTH * dims / 2 times the
squares of M - c R. R is the rotation nearest to the sum of u v' over what was rewarded (Procrustes), c how long it has
to be: two spaces that differ by a rotation are known from few rewards, all others by what rewards say beyond it. A
vector with more than 128 numbers has its 128 main directions in M and no others, so the rank of M is 128 at most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from treetop.arrays import Float32s, Floats, as_rows
from treetop.learning.measured import fitted_curve
from treetop.learning.samples import Samples
from treetop.model.measure import Measure, first_map, measured_routing
from treetop.model.model import Model

STEPS = 30  # of L-BFGS, at most
STRENGTH = 8.0  # of the rotation: every number of M has the variance 1 / (STRENGTH * dims) around it
LATEST = 1 << 18  # samples, the latest ones, that the map is learned from
WIDEST = 128  # dimensions in which it is learned
CHUNK = 1 << 14  # samples multiplied at a time
MARGIN = 1e-6  # of the loss: a step that gains less is the last


def with_learned_map(model: Model, samples: Samples, rewarded: bool) -> Model:
    """The model with the map that the latest of these samples teach, and routing by it; with its first map if no sample
    at all was `rewarded`.

    The map depends on the samples alone, not on the one before: what is erased from the log is forgotten.

    >>> from treetop.arrays import as_rows
    >>> from treetop.tree.tree import Tree
    >>> v = np.eye(2, dtype=np.float32)
    >>> model = Model.from_vectors(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), v, "cosine", context_dims=2)
    >>> row, arm = np.arange(2, dtype=np.int32), np.array([1, 0], np.int32)
    >>> samples = Samples(as_rows(v), row, arm, np.ones(2, np.float32), np.zeros(2), np.ones(2))
    >>> with_learned_map(model, samples, True).context_map.round(1)
    array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    measure = model.measure
    if measure is None or model.context_map is None:
        return model
    some = slice(max(0, len(samples) - LATEST), None)
    row, used = np.unique(samples.row[some], return_inverse=True)
    contexts = unit_contexts(measure, measure.context_vectors(as_rows(samples.contexts.csr()[row])))
    return with_taught_map(model, contexts, used, samples.arm[some], samples.reward[some], rewarded)


def with_taught_map(
    model: Model, contexts: Float32s, row: Any, arm: Any, reward: Float32s | Floats, rewarded: bool
) -> Model:
    """The same by samples that are chosen already, each of a row of the contexts and an arm.

    >>> from treetop.tree.tree import Tree
    >>> v, tree = np.eye(2, dtype=np.float32), Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> model, one = Model.from_vectors(tree, v, "cosine", context_dims=2), np.zeros(1, np.int64)
    >>> with_taught_map(model, v, one, one, np.ones(1, np.float32), rewarded=True).context_map.shape
    (2, 2)
    """
    measure, items = model.measure, model.item_vectors
    assert measure is not None
    assert items is not None
    found = (
        learned_map(measure, contexts, items, row, arm, reward.astype(np.float64)) if rewarded else first_map(measure)
    )
    routing = measured_routing(model.tree, items, measure, model.n_features, found) if measure.routes else None
    return replace(model, context_map=found, route_rows=model.route_rows if routing is None else routing)


def map_bytes(model: Model, samples: int, rewarded: int) -> float:
    """About what learning the map holds in memory, of so many samples in all.

    >>> from treetop.tree.tree import Tree
    >>> v, tree = np.eye(2, dtype=np.float32), Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
    >>> map_bytes(Model.from_vectors(tree, v, "cosine", context_dims=2), 1000, 100), map_bytes(
    ...     Model.from_vectors(tree, v, "cosine"), 1000, 100
    ... )
    (76800.0, 0.0)
    """
    measure = model.measure
    if measure is None or model.context_map is None:
        return 0.0
    wide, some = min(WIDEST, max(measure.dims, measure.context_dims)), min(samples, LATEST)
    contexts, rewarded_pairs = 4 * some, 24 * min(rewarded, some)
    return float(some * 64 + wide * (contexts + rewarded_pairs))  # 64: what tells a sample's row and arm


def unit_contexts(measure: Measure, vectors: Float32s) -> Float32s:
    """Vectors of contexts as the map takes them: for the cosine with length 1.

    >>> unit_contexts(Measure(metric="cosine", dims=2, context_dims=2), np.array([[3, 4]], np.float32))
    array([[0.6, 0.8]], dtype=float32)
    """
    if measure.metric != "cosine":
        return vectors
    length = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1))
    return np.asarray(vectors / np.maximum(length, 1e-30)[:, None], np.float32)


def learned_map(measure: Measure, contexts: Float32s, items: Float32s, row: Any, arm: Any, reward: Floats) -> Float32s:
    """(context_dims, dims): the map by samples, each of a row of the contexts and an arm.

    >>> turned = Measure(metric="cosine", dims=2, context_dims=2)
    >>> u, v = np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)
    >>> every = np.repeat([0, 0, 1, 1], 100), np.tile([0, 1], 200)
    >>> np.sign(learned_map(turned, u, v, *every, (every[0] != every[1]).astype(float)))  # each likes the other's
    array([[-1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    from scipy.optimize import minimize

    into, out = main_directions(contexts), main_directions(items)
    u = contexts if into is None else contexts @ into
    v = items if out is None else items @ out
    shape, slope = (u.shape[1], v.shape[1]), measure.first_curve()[0]
    centre, first_offset = rotation(measure, u, v, row, arm, reward)

    def loss(at: Floats) -> tuple[float, Floats]:
        m, offset = at[:-1].reshape(shape).astype(np.float32), at[-1]
        total, fall, fall_offset = 0.0, np.zeros(shape), 0.0
        for first in range(0, len(reward), CHUNK):
            some = slice(first, first + CHUNK)
            a, b, y = u[row[some]], v[arm[some]], reward[some]
            z = slope * np.einsum("nd,nd->n", a @ m, b, dtype=np.float64) + offset
            total += float((np.logaddexp(0, z) - y * z).sum())
            wrong = 1 / (1 + np.exp(-np.clip(z, -500, 500))) - y
            fall += slope * (a.T @ (b * wrong[:, None].astype(np.float32)))
            fall_offset += float(wrong.sum())
        away, force = at[:-1] - centre.ravel(), STRENGTH * measure.dims
        return total + force / 2 * float(away @ away), np.append(fall.ravel() + force * away, fall_offset)

    start = np.append(centre.ravel(), first_offset)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": MARGIN}).x
    m = found[:-1].reshape(shape)
    m = m if into is None else into @ m
    m = m if out is None else m @ out.T
    return np.ascontiguousarray(m, np.float32)


def rotation(measure: Measure, u: Float32s, v: Float32s, row: Any, arm: Any, reward: Floats) -> tuple[Floats, float]:
    """The rotation that leads rewarded contexts nearest to their items, as long as rewards say, and the offset.

    >>> turned, u, v = Measure(metric="cosine", dims=2, context_dims=2), np.eye(2, dtype=np.float32), np.eye(2)
    >>> found, _ = rotation(turned, u, v[::-1].astype(np.float32), np.array([0, 1]), np.array([0, 1]), np.ones(2))
    >>> (found / found.max()).round(3)
    array([[0., 1.],
           [1., 0.]])
    """
    near = reward > 0
    pairs = (u[row[near]].T * reward[near]) @ v[arm[near]].astype(np.float64)
    left, _, right = np.linalg.svd(pairs, full_matrices=False)
    turn = left @ right
    values = np.zeros(len(reward))
    for first in range(0, len(reward), CHUNK):
        some = slice(first, first + CHUNK)
        values[some] = np.einsum("nd,nd->n", u[row[some]] @ turn, v[arm[some]])
    slope, offset = fitted_curve(measure, values, reward, np.ones(len(reward)))
    return turn * (slope / measure.first_curve()[0]), offset


def main_directions(vectors: Float32s) -> Float32s | None:
    """(columns, WIDEST): the orthogonal directions in which vectors are longest; None if they are not wider than that.

    >>> main_directions(np.eye(3, dtype=np.float32)) is None, main_directions(np.eye(200, dtype=np.float32)).shape
    (True, (200, 128))
    """
    if vectors.shape[1] <= WIDEST:
        return None
    squares = np.zeros((vectors.shape[1], vectors.shape[1]))
    for first in range(0, len(vectors), CHUNK):
        some = vectors[first : first + CHUNK].astype(np.float64)
        squares += some.T @ some
    return np.asarray(np.linalg.eigh(squares)[1][:, -WIDEST:], np.float32)
