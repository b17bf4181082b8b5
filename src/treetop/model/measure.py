"""The owner's measure between contexts and items: how vectors are compared, where a context has its own, and the
routing that finds what the measure ranks highest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Float32s, Floats, Int64s, Ints, Rows, as_rows, check_float, check_int
from treetop.tree.tree import Tree
from treetop.tree.vectors import METRICS, check_metric, lengths, unit_vectors

KNOTS = 65  # at which the reward that a measure stands for is stored
FIRST_SLOPE = 8.0  # of the logistic curve from measure to reward that a model starts with, over `scale`
PAIRS = 8192  # of contexts and items, measured at a time


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How a context and an item are compared: `metric` of the context's columns first to first + dims and the item's
    vector.

    `scale` is what lengths or distances are divided by where they have to be comparable. With `routes` the model's
    routing rows are centres, compared by the same measure; a node's nearness then is its routing score, whatever the
    nodes above it have.

    Where contexts lie in a space of their own, their vectors have `context_dims` numbers (0: they lie in the items'
    space), and a model has a `context_map` (context_dims, dims): what is compared with items is the vector, for the
    cosine with length 1, times the map.

    >>> Measure(metric="cosine", dims=64)
    Measure(metric='cosine', dims=64, first=0, scale=1.0, routes=True, context_dims=0)
    """

    metric: str
    dims: int
    first: int = 0
    scale: float = 1.0
    routes: bool = True
    context_dims: int = 0

    def __post_init__(self) -> None:
        check_metric(self.metric)
        check_int("dims", self.dims, 1)
        check_int("first", self.first, 0)
        if check_float("scale", self.scale, 0) == 0:
            raise ValueError("scale is 0; it must be positive")
        if not isinstance(self.routes, bool):
            raise TypeError(f"routes must be True or False, not {self.routes!r}")
        if check_int("context_dims", self.context_dims, 0) and self.metric == "euclidean":
            raise ValueError("a map between spaces is learned for cosine and inner_product, not for euclidean")

    @classmethod
    def of(cls, vectors: Float32s, metric: str, first: int = 0, context_dims: int = 0) -> Measure:
        """The measure for these items: scaled by the longest vector, or by the usual distance from their mean.

        >>> Measure.of(np.array([[3, 4], [0, 1]], np.float32), "inner_product").scale
        5.0
        """
        length = lengths(vectors) if metric != "euclidean" else lengths(vectors - vectors.mean(axis=0))
        usual = {"cosine": 1.0, "inner_product": length.max(), "euclidean": float(np.sqrt(np.mean(length**2)))}
        scale = float(usual[check_metric(metric)])
        scale = scale if scale > 0 else 1.0
        return cls(metric=metric, dims=vectors.shape[1], first=first, scale=scale, context_dims=context_dims)

    @property
    def place(self) -> tuple[int, int]:
        """The first column of a context's vector, and how many it has.

        >>> Measure(metric="cosine", dims=2, first=1, context_dims=3).place
        (1, 3)
        """
        return self.first, self.context_dims or self.dims

    @property
    def kind(self) -> int:
        """As the core numbers it."""
        return METRICS.index(self.metric)

    def item_vectors(self, vectors: Float32s) -> Float32s:
        """The vectors as a model keeps them: for the cosine with length 1.

        >>> Measure(metric="cosine", dims=2).item_vectors(np.array([[3, 4]], np.float32))
        array([[0.6, 0.8]], dtype=float32)
        """
        return unit_vectors(vectors) if self.metric == "cosine" else vectors

    def check_fits(self, n_features: int) -> None:
        """Refuses a vector that is not among the features.

        >>> Measure(metric="cosine", dims=3, first=2).check_fits(4)
        Traceback (most recent call last):
        ValueError: the vector is in columns 2 to 4; there are 4 features
        """
        if sum(self.place) > n_features:
            last = sum(self.place) - 1
            raise ValueError(f"the vector is in columns {self.first} to {last}; there are {n_features} features")

    def context_vectors(self, contexts: Rows) -> Float32s:
        """(n, dims), or (n, context_dims): the vectors of contexts, in their own space.

        >>> Measure(metric="cosine", dims=2, first=1).context_vectors(as_rows([[7, 1, 2]]))
        array([[1., 2.]], dtype=float32)
        """
        return np.asarray(contexts.csr()[:, self.first : sum(self.place)].toarray(), np.float32)

    def values(
        self,
        contexts: Rows,
        items: Float32s,
        row: Ints | Int64s,
        arm: Ints,
        context_map: Float32s | None = None,
        *,
        alone: bool = False,
    ) -> Floats:
        """The measure of each pair of a row of the contexts and an arm; `items` are a model's item vectors. Vectors of
        contexts are dense for some pairs at a time. Each number is to its last bit what the pair `alone` would have, if
        that is asked, which is slower; else products may differ in it with the pairs beside.

        >>> measure = Measure(metric="euclidean", dims=2)
        >>> measure.values(as_rows([[3.0, 4.0]]), np.zeros((1, 2), np.float32), np.array([0]), np.array([0]))
        array([-5.])
        """
        every, out = contexts.csr(), np.zeros(len(row))
        used: Any
        for at in range(0, len(row), PAIRS):
            some = slice(at, at + PAIRS)
            used, place = np.unique(row[some], return_inverse=True)
            x = self.context_vectors(as_rows(every[used])).astype(np.float64)
            if self.metric == "cosine":
                x = x / np.maximum(np.sqrt((x**2).sum(axis=1)), 1e-300)[:, None]
            if context_map is not None:
                x = (x[:, None] @ context_map.astype(np.float64))[:, 0] if alone else x @ context_map
            a, b = x[place], items[arm[some]]
            if self.metric == "euclidean":
                out[some] = -np.sqrt(((a - b) ** 2).sum(axis=1))
            else:
                out[some] = (a * b).sum(axis=1) if alone else np.einsum("nd,nd->n", a, b)
        return out

    def first_range(self) -> tuple[float, float]:
        """Measures that can be expected before any was seen.

        >>> Measure(metric="euclidean", dims=2, scale=3.0).first_range()
        (-12.0, 0.0)
        """
        if self.metric == "cosine":
            return -1.0, 1.0
        return (-4 * self.scale, 0.0) if self.metric == "euclidean" else (-(self.scale**2), self.scale**2)

    def first_curve(self) -> tuple[float, float]:
        """Slope and offset of the logistic curve from measure to reward, before any reward was seen: it ranks items as
        the measure does.

        >>> Measure(metric="cosine", dims=2).first_curve()
        (8.0, -4.0)
        """
        unit = self.scale**2 if self.metric == "inner_product" else self.scale
        middle = -1.0 if self.metric == "euclidean" else 0.5
        return FIRST_SLOPE / unit, -FIRST_SLOPE * middle

    def numbers(self) -> dict[str, Any]:
        """What is saved of it.

        >>> Measure(**Measure(metric="cosine", dims=2).numbers()) == Measure(metric="cosine", dims=2)
        True
        """
        names = ["metric", "dims", "first", "scale", "routes"] + (["context_dims"] if self.context_dims else [])
        return {name: getattr(self, name) for name in names}


def curve(slope: float, offset: float, low: float, high: float) -> Float32s:
    """(KNOTS,): the logistic curve at evenly spaced measures in [low, high]; never flat, so that it keeps the order.

    >>> curve(8.0, -4.0, -1.0, 1.0)[[0, -1]].round(3)
    array([0.   , 0.982], dtype=float32)
    """
    place = np.linspace(0, 1, KNOTS)
    z = np.clip(slope * (low + place * (high - low)) + offset, -500, 500)
    return (1 / (1 + np.exp(-z)) + 1e-4 * place).astype(np.float32)


def first_map(measure: Measure) -> Float32s | None:
    """The map that a model starts with where contexts lie in a space of their own: nobody knows which, so at random,
    and lengths stay. Different contexts find different items by it, of which rewards tell.

    >>> first_map(Measure(metric="cosine", dims=2, context_dims=3)).shape
    (3, 2)
    """
    if not measure.context_dims:
        return None
    shape = measure.context_dims, measure.dims
    normal = np.random.default_rng(0).normal(size=(max(shape), min(shape)))
    found = np.linalg.qr(normal)[0]
    return np.ascontiguousarray(found if shape[0] >= shape[1] else found.T, np.float32)


def measured_routing(
    tree: Tree, vectors: Float32s, measure: Measure, n_features: int, context_map: Float32s | None = None
) -> Rows:
    """A centre per node but the root, as a linear function of [x; 1].

    Cosine: the mean of the arms below, with length 1. Inner product: the same with the length of the longest arm.
    Distance: the mean, and minus half its square as the bias. `vectors` are a model's item vectors. With a map, the
    function of a context is the centre's of what the map makes of it.

    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 1, 2])
    >>> V = np.array([[3, 4], [3, 4], [0, 1]], np.float32)
    >>> measured_routing(tree, V, Measure.of(V, "inner_product"), 2).csr().toarray()[1:]
    array([[3., 4., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    shape = tree.parents, tree.begin, tree.end, tree.arm_at
    total = _core.node_sums(*shape, np.ascontiguousarray(vectors).reshape(-1), vectors.shape[1], 0)
    bias = np.zeros(tree.n_nodes)
    if measure.metric == "euclidean":
        centre = total / np.maximum(tree.sizes, 1)[:, None]
        bias = -(centre**2).sum(axis=1) / 2
    else:
        length = np.sqrt((total**2).sum(axis=1))
        centre = total / np.where(length > 0, length, 1.0)[:, None]
        if measure.metric == "inner_product":
            centre *= _longest_below(tree, lengths(vectors))[:, None]
    centre[0], bias[0] = 0.0, 0.0
    centre = centre if context_map is None else centre @ context_map.T.astype(np.float64)
    after = n_features - sum(measure.place)
    before, behind = (sp.csr_matrix((tree.n_nodes, columns)) for columns in (measure.first, after))
    return as_rows(sp.hstack([before, sp.csr_matrix(centre), behind, sp.csr_matrix(bias[:, None])]), what="routing")


def _longest_below(tree: Tree, length: Floats) -> Floats:
    """(n_nodes,): the length of the longest arm below each node."""
    longest = np.zeros(tree.n_nodes)
    np.maximum.at(longest, tree.leaf_of, length)
    for node in range(tree.n_nodes - 1, 0, -1):
        longest[tree.parents[node]] = max(longest[tree.parents[node]], longest[node])
    return longest


def load_measure(arrays: dict[str, Any], numbers: dict[str, Any] | None) -> dict[str, Any]:
    """The owner's measure, the items' vectors and the map to their space, as fields of a model.

    >>> load_measure({}, None)
    {}
    """
    items = arrays.get("item_vectors")
    if numbers is None:
        if items is not None:
            raise ValueError("there is a file of item vectors, but no measure to compare them by")
        return {}
    measure = Measure(**numbers)
    if items is not None and len(items) % measure.dims:
        raise ValueError(f"{len(items)} numbers are not item vectors of {measure.dims} dimensions")
    if items is not None and not np.isfinite(items).all():
        raise ValueError("an item vector holds a value that is not finite")
    map_ = arrays.get("context_map")
    if map_ is not None and len(map_) != measure.context_dims * measure.dims:
        raise ValueError(f"{len(map_)} numbers are no map from {measure.context_dims} to {measure.dims} dimensions")
    return {
        "measure": measure,
        "item_vectors": None if items is None else items.reshape(-1, measure.dims),
        "context_map": None if map_ is None else map_.reshape(-1, measure.dims),
    }


def check_vectors(measure: Measure | None, items: Float32s | None, context_map: Float32s | None, arms: int) -> None:
    """Refuses item vectors, and a map to their space, that a measure and so many arms do not fit.

    >>> check_vectors(None, np.ones((2, 3), np.float32), None, arms=2)
    Traceback (most recent call last):
    ValueError: there are item vectors, but no measure to compare them by
    """
    if items is not None:
        if measure is None:
            raise ValueError("there are item vectors, but no measure to compare them by")
        if items.shape != (arms, measure.dims) or items.dtype != np.float32:
            wanted = f"float32 {(arms, measure.dims)}"
            raise ValueError(f"item vectors are {items.dtype} {items.shape}; the model needs {wanted}")
    wanted_map = (measure.context_dims, measure.dims) if measure is not None and measure.context_dims else None
    found_map = None if context_map is None else context_map.shape
    if found_map != wanted_map:
        raise ValueError(f"the map to the items' space has shape {found_map}; the measure needs {wanted_map}")
    if context_map is not None and not np.isfinite(context_map).all():
        raise ValueError("the map to the items' space holds a value that is not finite")
