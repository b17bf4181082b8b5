"""Balanced spherical k-means with any number of parts: the native split is the twin's, point by point.

The twin draws its first centroids by the same keyed generator, written here once more with Python's whole numbers.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.keyed import Stream, derive
from helpers.reference import Floats

from treetop import _core


def first_points(key: int, n: int, parts: int) -> list[int]:
    """Distinct points, drawn by a shuffle that stops early."""
    order, stream = list(range(n)), Stream(key)
    for c in range(parts):
        at = c + stream.below(n - c)
        order[c], order[at] = order[at], order[c]
    return order[:parts]


def share(n: int, parts: int, c: int) -> int:
    return n // parts + (c < n % parts)


def assign(affinity: Floats) -> list[int]:
    """The most decided point chooses first among the clusters that have room; ties: the earlier point, then cluster."""
    n, parts = affinity.shape
    top = np.sort(affinity, axis=1)
    margin = top[:, -1] - top[:, -2]
    room, label = [share(n, parts, c) for c in range(parts)], [0] * n
    for i in sorted(range(n), key=lambda i: (-margin[i], i)):
        open_clusters = [c for c in range(parts) if room[c] > 0]
        label[i] = max(open_clusters, key=lambda c: (affinity[i, c], -c))
        room[label[i]] -= 1
    return label


def halve(affinity: Floats) -> list[int]:
    """Two parts: by the lead of the first cluster, cut in the middle."""
    lead = affinity[:, 0] - affinity[:, 1]
    first = sorted(range(len(lead)), key=lambda i: (-lead[i], i))[: share(len(lead), 2, 0)]
    return [0 if i in first else 1 for i in range(len(lead))]


def balanced_kmeans(vectors: Floats, parts: int, key: int) -> list[int]:
    centres = vectors[first_points(key, len(vectors), parts)]
    label: list[int] = []
    for _ in range(20):
        unit = centres / np.linalg.norm(centres, axis=1, keepdims=True)
        found = (halve if parts == 2 else assign)(vectors @ unit.T)
        if found == label:
            break
        label = found
        centres = np.stack([vectors[np.array(label) == c].sum(axis=0) for c in range(parts)])
    return label


@pytest.mark.parametrize("parts", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("seed", range(25))
def test_a_split_is_the_twins(parts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2 * parts + 1, 60)), int(rng.integers(2, 12))
    dense = (rng.random((n, d)) * (rng.random((n, d)) < 0.8) + 1e-3).astype(np.float32)
    rows = sp.csr_matrix(dense)
    parents, leaf_of = _core.build_hierarchy(
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int32),
        rows.data,
        d,
        parts,
        -(-n // parts),
        False,
        20,
        seed,
        2,
    )
    assert parents.tolist() == [-1] + [0] * parts
    want = balanced_kmeans(dense.astype(np.float64), parts, derive(seed, 0))
    assert (leaf_of - 1).tolist() == want
