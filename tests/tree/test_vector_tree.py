"""Trees for a measure: the native build is its twin's, no leaf is too large, and a beam finds what ranks highest."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.keyed import Stream, derive
from helpers.reference import Floats
from helpers.strategies import few
from hypothesis import given
from hypothesis import strategies as st

from treetop import Effort, Model, Tree
from treetop.arrays import as_rows
from treetop.policy.eligibility import EVERY_ARM
from treetop.policy.search import search_batch
from treetop.tree.vectors import METRICS

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
FILL, PER_CENTRE, ATTEMPTS, ITERATIONS = 0.75, 256, 6, 10


def nearest(points: Floats, centres: Floats, spherical: bool) -> list[int]:
    scores = points @ centres.T - (0 if spherical else (centres**2).sum(axis=1) / 2)
    return [int(c) for c in np.argmax(scores, axis=1)]


def find_centres(points: Floats, k: int, spherical: bool, key: int) -> Floats:
    """Lloyd's iterations from k distinct points; a centre without points begins anew at another one."""
    order, stream = list(range(len(points))), Stream(key)
    for c in range(k):
        at = c + stream.below(len(points) - c)
        order[c], order[at] = order[at], order[c]
    centres, label = points[order[:k]].copy(), None
    for _ in range(ITERATIONS):
        if (now := nearest(points, centres, spherical)) == label:
            break
        label = now
        for c in range(k):
            if c in label:
                total = points[np.array(label) == c].sum(axis=0)
                by = np.sqrt((total**2).sum()) if spherical else label.count(c)
                centres[c] = total / by if by > 0 else 0.0
        for c in range(k):
            if c not in label:
                centres[c] = points[stream.below(len(points))]
    return centres


class Twin:
    """Recursive k-means, in plain Python."""

    def __init__(self, vectors: Floats, spherical: bool, max_leaf: int, branching: int, seed: int) -> None:
        self.vectors, self.spherical, self.max_leaf, self.seed = vectors, spherical, max_leaf, seed
        self.parents, self.leaf_of = [-1], np.zeros(len(vectors), np.int32)
        levels = max(1, math.ceil(math.log(self.wanted(len(vectors))) / math.log(branching) - 1e-9))
        level, first = [(list(range(len(vectors))), levels)], 0
        while level:
            below: list[tuple[list[int], int]] = []
            for i, (items, left) in enumerate(level):
                parts = self.split(items, left, derive(seed, first + i)) if left and len(items) > max_leaf else []
                if not parts:
                    self.leaf_of[items] = first + i
                self.parents += [first + i] * len(parts)
                below += parts
            first, level = first + len(level), below

    def wanted(self, items: int) -> float:
        return max(2.0, items / (FILL * self.max_leaf))

    def split(self, items: list[int], levels: int, key: int) -> list[tuple[list[int], int]]:
        if levels > 1:
            parts = self.cut(items, math.ceil(self.wanted(len(items)) ** (1 / levels) - 1e-9), key)
            if len(parts) > 1:
                return [(part, levels - 1) for part in parts]
        return [(leaf, 0) for leaf in self.leaves(items, key, 0)]

    def leaves(self, items: list[int], key: int, attempt: int) -> list[list[int]]:
        if len(items) <= self.max_leaf:
            return [items]
        parts = self.cut(items, math.ceil(self.wanted(len(items)) - 1e-9), key) if attempt < ATTEMPTS else []
        if len(parts) > 1:
            return [leaf for c, p in enumerate(parts) for leaf in self.leaves(p, derive(key, c + 1), attempt + 1)]
        return [part.tolist() for part in np.array_split(items, math.ceil(len(items) / self.max_leaf))]

    def cut(self, items: list[int], k: int, key: int) -> list[list[int]]:
        k = min(max(k, 2), len(items))
        sample, some, stream = list(items), min(len(items), k * PER_CENTRE), Stream(derive(key, 0))
        for i in range(some if some < len(items) else 0):
            at = i + stream.below(len(items) - i)
            sample[i], sample[at] = sample[at], sample[i]
        centres = find_centres(self.vectors[sample[:some]], k, self.spherical, key)
        label = np.array(nearest(self.vectors[items], centres, self.spherical))
        return [np.array(items)[label == c].tolist() for c in range(k) if (label == c).any()]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("n", "branching", "max_leaf"), [(700, 4, 9), (700, 128, 9), (120, 2, 20), (2500, 3, 900)])
def test_it_is_recursive_kmeans(metric: str, n: int, branching: int, max_leaf: int) -> None:
    rng = np.random.default_rng(n + branching)
    vectors = rng.normal(size=(n, 5)) * rng.uniform(0.5, 2.0, (n, 1)) + 1.5 * rng.normal(size=(6, 5))[np.arange(n) % 6]
    if metric == "cosine":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tree = Tree.from_vectors(vectors, max_leaf, branching, seed=7, metric=metric)
    twin = Twin(vectors.astype(np.float32).astype(float), metric == "cosine", max_leaf, branching, 7)
    assert tree.parents.tolist() == twin.parents
    assert tree.leaf_of.tolist() == twin.leaf_of.tolist()
    assert tree.depth >= (2 if branching < 5 and max_leaf < 10 else 1)


@few
@given(st.integers(1, 300), st.integers(1, 40), st.integers(2, 9), st.sampled_from(METRICS), st.integers(0, 2**32))
def test_no_leaf_is_too_large_whatever_the_vectors(n: int, leaf: int, branching: int, metric: str, seed: int) -> None:
    """With few distinct vectors, some of them zero, among them."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-1, 2, (n, int(rng.integers(1, 4)))).astype(np.float32)
    tree = Tree.from_vectors(vectors, leaf, branching, seed=seed, metric=metric)
    leaves, counts = np.unique(tree.leaf_of, return_counts=True)
    assert counts.max() <= leaf
    assert counts.sum() == n
    assert not np.isin(leaves, tree.parents).any()
    assert set(leaves.tolist()) | set(tree.parents[1:].tolist()) == set(range(tree.n_nodes))


def test_threads_change_nothing() -> None:
    vectors = np.random.default_rng(0).normal(size=(6000, 7))
    one, *others = (Tree.from_vectors(vectors, 10, metric="cosine", effort=Effort(threads=t)) for t in (1, 2, 5))
    for other in others:
        assert np.array_equal(one.leaf_of, other.leaf_of)
        assert np.array_equal(one.parents, other.parents)
    assert not np.array_equal(one.leaf_of, Tree.from_vectors(vectors, 10, seed=1, metric="cosine").leaf_of)


def exact(V: Any, X: Any, metric: str) -> Any:
    """The five best items of each context, by looking at all."""
    if metric == "cosine":
        V = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)
    scores = X @ V.T - ((V**2).sum(axis=1) / 2 if metric == "euclidean" else 0)
    return np.argsort(-scores, axis=1)[:, :5]


def recall(V: Any, X: Any, metric: str, beam: int = 10) -> float:
    """How many of them are among the arms of the leaves that a beam keeps, and no more leaves than that."""
    tree = Tree.from_vectors(V, 100, metric=metric)
    model = Model.from_vectors(tree, V, metric)
    found = search_batch(model, as_rows(X), beam, None, 5, EVERY_ARM)
    top, hits = exact(V, X, metric), 0
    for i, best in enumerate(top):
        mine = slice(*found.start[i : i + 2])
        arms = found.id[mine][~found.is_node[mine]]
        assert len(np.unique(tree.leaf_of[arms])) <= beam
        hits += int(np.isin(best, arms).sum())
    return float(hits / top.size)


@pytest.mark.parametrize(("metric", "least"), [("cosine", 0.9), ("inner_product", 0.85), ("euclidean", 0.85)])
def test_a_beam_finds_what_ranks_highest(metric: str, least: float) -> None:
    """Groups of items, and contexts near items. Lengths differ threefold in every group, which inner product and
    distance find harder (0.895) than the real embeddings below."""
    rng = np.random.default_rng(1)
    group = rng.normal(size=(200, 24))
    V = group[rng.integers(0, 200, 20_000)] + 0.8 * rng.normal(size=(20_000, 24))
    V *= rng.uniform(0.5, 1.5, (20_000, 1))
    X = V[:300] + 0.4 * rng.normal(size=(300, 24))
    assert recall(V.astype(np.float32), X.astype(np.float32), metric) > least


REAL = [(*texts, 64, metric) for texts in (("eurlex57k", False), ("tate", False), ("tate", True)) for metric in METRICS]


@pytest.mark.parametrize(("name", "terms", "dims", "metric"), [*REAL, ("eurlex57k", False, 256, "cosine")])
def test_a_beam_finds_it_among_real_embeddings(name: str, terms: bool, dims: int, metric: str) -> None:
    """Texts (or the terms that they are labelled with: means of their texts) in the space of the first singular
    vectors; other texts ask."""
    if not (folder := SHARED / name).is_dir():
        pytest.skip(f"the set {name} is not beside this checkout (../shared/data/{name})")
    A: Any
    B: Any
    A, B = (sp.load_npz(folder / f"X.{part}.npz").astype(np.float32) for part in ("trn", "tst"))
    basis: Any = np.random.default_rng(0).normal(size=(A.shape[1], dims)).astype(np.float32)
    for _ in range(3):  # orthogonal iteration
        basis = np.linalg.qr(A.T @ (A @ basis))[0]
    V, X = A @ basis, (B @ basis)[:300]
    if terms:
        Y: Any = sp.load_npz(folder / "Y.trn.npz").astype(np.float32)
        count = np.asarray(Y.sum(axis=0)).ravel()
        V = ((Y.T @ V) / np.maximum(count, 1)[:, None])[count > 0]
    assert recall(V, X, metric) >= 0.9


@pytest.mark.parametrize(
    ("vectors", "settings", "message"),
    [
        (np.eye(3), {"metric": "dot"}, "metric is 'dot'; it must be one of cosine, inner_product, euclidean"),
        (np.eye(3), {"metric": "cosine", "split": "cocluster"}, "split is 'cocluster'; a tree for a metric"),
        (np.eye(3), {"metric": "cosine", "branching": 1}, r"branching is 1; it must lie in \[2, 65536\]"),
        (np.eye(3), {"metric": "cosine", "max_leaf": 0}, "max_leaf is 0"),
        (np.zeros((0, 3)), {"metric": "cosine"}, r"arm vectors have shape \(0, 3\); there must be at least 1 row"),
        (np.zeros(3), {"metric": "cosine"}, "arm vectors have 1 dimensions; a row for each is needed"),
        ([[1.0], [np.nan]], {"metric": "cosine"}, "arm vectors: row 1 holds a value that is not finite"),
        (sp.csr_matrix((2, 70_000)), {"metric": "cosine"}, "arm vectors have 70000 columns; dense ones have at most"),
    ],
)
def test_what_cannot_be_is_refused(vectors: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tree.from_vectors(vectors, **settings)


def test_sparse_vectors_are_the_same() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    dense = Tree.from_vectors(vectors, 10, metric="euclidean")
    assert np.array_equal(Tree.from_vectors(sp.csr_matrix(vectors), 10, metric="euclidean").leaf_of, dense.leaf_of)
    assert np.array_equal(Tree.from_vectors(as_rows(vectors), 10, metric="euclidean").leaf_of, dense.leaf_of)
