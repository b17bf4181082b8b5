"""Native hierarchies: balance, determinism, and splits against the twins."""

from typing import Any

import numpy as np
import pytest
from helpers.reference import (
    Floats,
    Ints,
    Tree,
    balanced_two_means,
    halves,
    pifa,
    second_singular_vector,
    two_means_centroids,
    two_means_step,
    unit,
)
from helpers.strategies import csr, few, many, seeds
from hypothesis import given
from hypothesis import strategies as st

from treetop import _core


def build(
    vectors: Floats,
    branching: int = 2,
    max_leaf: int = 10,
    cocluster: bool = False,
    iterations: int = 20,
    seed: int = 0,
    threads: int = 1,
) -> Tree:
    how: Any = branching, max_leaf, cocluster, iterations, seed, threads
    return Tree(*_core.build_hierarchy(*csr(vectors), vectors.shape[1], *how))


def first_split(vectors: Floats, parts: int = 2, cocluster: bool = False, iterations: int = 100, seed: int = 0) -> Ints:
    """Which child of the root each arm went to."""
    tree = build(vectors, parts, -(-len(vectors) // parts), cocluster, iterations, seed)
    assert tree.n_nodes == parts + 1
    return tree.leaf_of - 1


def single(vectors: Floats) -> Floats:
    """Rounded to what the native core is given."""
    return vectors.astype(np.float32).astype(np.float64)


def random_vectors(seed: int, n: int, d: int, empty: float = 0.0) -> Floats:
    """Unit vectors with no negative entry, as PIFA makes them; some arms have none."""
    rng = np.random.default_rng(seed)
    vectors = rng.random((n, d)) * np.where(rng.random((n, d)) < 0.5, 1.0, 0.01)
    vectors[rng.random(n) < empty] = 0.0
    return single(unit(vectors))


def clusters(seed: int, parts: int, size: int, noise: float) -> tuple[Floats, Ints]:
    """Blocks of features of their own plus noise everywhere, shuffled, and who belongs together."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.repeat(np.arange(parts), size)).astype(np.int32)
    vectors = noise * rng.random((parts * size, 8 * parts))
    for i, c in enumerate(label):
        vectors[i, 8 * c : 8 * c + 8] += rng.random(8)
    return single(vectors), label


def same_partition(a: Ints, b: Ints) -> bool:
    """Equal up to the names of the parts."""
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


def check_balance(tree: Tree, arms: int, branching: int, max_leaf: int) -> None:
    assert tree.n_arms == arms
    sizes = np.bincount(tree.leaf_of, minlength=tree.n_nodes)
    for node in range(tree.n_nodes - 1, 0, -1):
        assert tree.parents[node] < node
        sizes[tree.parents[node]] += sizes[node]
    assert sizes[0] == arms
    depths = np.zeros(tree.n_nodes, dtype=int)
    for node in range(1, tree.n_nodes):
        depths[node] = depths[tree.parents[node]] + 1
    assert (np.diff(depths) >= 0).all(), "nodes are numbered level by level"
    children = [np.flatnonzero(tree.parents == node) for node in range(tree.n_nodes)]
    leaves = [node for node in range(tree.n_nodes) if not len(children[node])]
    assert {int(depths[leaf]) for leaf in leaves} == {int(depths.max())}, "all leaves at one depth"
    assert set(tree.leaf_of.tolist()) <= set(leaves)
    assert max(sizes[leaf] for leaf in leaves) <= max_leaf
    for family in children:
        if len(family):
            assert len(family) == branching
            assert np.ptp(sizes[family]) <= 1
    if len(tree.parents) > 1:  # no level too many
        above = [node for node in range(tree.n_nodes) if depths[node] == depths.max() - 1]
        assert max(sizes[node] for node in above) > max_leaf


# -------------------- balance


@many
@given(
    seeds, st.integers(1, 120), st.integers(2, 5), st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]), st.booleans()
)
def test_trees_are_balanced(seed: int, arms: int, branching: int, max_leaf: int, empty: float, cocluster: bool) -> None:
    vectors = random_vectors(seed, arms, 7, empty)
    tree = build(vectors, branching, max_leaf, cocluster, iterations=3, seed=seed)
    check_balance(tree, arms, branching, max_leaf)


@pytest.mark.parametrize("branching", [2, 3, 4, 5])
@pytest.mark.parametrize("arms", [997, 1024])
def test_larger_trees_are_balanced(branching: int, arms: int) -> None:
    check_balance(build(random_vectors(1, arms, 20, 0.1), branching, 7), arms, branching, 7)


def test_arms_without_vectors_are_spread() -> None:
    vectors = random_vectors(2, 64, 6)
    bare = np.arange(0, 64, 4)
    vectors[bare] = 0.0
    leaves = build(vectors, 2, 16).leaf_of
    assert sorted(np.bincount(leaves[bare])[-4:].tolist()) == [4, 4, 4, 4]


def test_identical_vectors_still_split() -> None:
    check_balance(build(np.ones((50, 3)), 3, 4), 50, 3, 4)
    check_balance(build(np.ones((50, 3)), 3, 4, cocluster=True), 50, 3, 4)


def test_few_arms_are_one_leaf() -> None:
    tree = build(random_vectors(3, 10, 4), 2, 10)
    assert tree.parents.tolist() == [-1]
    assert not tree.leaf_of.any()


# -------------------- determinism


@few
@given(seeds, st.integers(2, 300), st.integers(2, 5), st.booleans())
def test_number_of_threads_is_invisible(seed: int, arms: int, branching: int, cocluster: bool) -> None:
    vectors = random_vectors(seed, arms, 9, 0.1)
    one, two, three = (build(vectors, branching, 5, cocluster, 5, seed, threads) for threads in (1, 2, 3))
    for other in (two, three):
        assert other.parents.tobytes() == one.parents.tobytes()
        assert other.leaf_of.tobytes() == one.leaf_of.tobytes()


def test_threads_within_a_split_are_invisible() -> None:
    """Past the size at which one split is shared out among threads."""
    vectors = random_vectors(4, 3000, 10)
    one, three = (build(vectors, 2, 500, threads=threads).leaf_of.tobytes() for threads in (1, 3))
    assert one == three


def test_the_seed_matters() -> None:
    vectors = random_vectors(5, 100, 8)
    assert len({build(vectors, seed=seed, iterations=1).leaf_of.tobytes() for seed in range(5)}) > 1


# -------------------- the splits themselves


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [2, 9, 40, 101])
def test_two_means_ends_at_a_fixed_point(seed: int, n: int) -> None:
    vectors = random_vectors(seed, n, 6)
    label = first_split(vectors, seed=seed)
    assert (two_means_step(vectors, two_means_centroids(vectors, label)) == label).all()


@pytest.mark.parametrize("seed", range(10))
def test_two_means_is_the_twin_from_some_pair_of_arms(seed: int) -> None:
    """The first centroids are two of the arms: the twin, run from every pair, meets the native answer."""
    vectors = random_vectors(seed, 11, 5)
    label = first_split(vectors, seed=seed)
    pairs = [(a, b) for a in range(11) for b in range(11) if a != b]
    assert any((balanced_two_means(vectors, vectors[[a, b]]) == label).all() for a, b in pairs)


@pytest.mark.parametrize("cocluster", [False, True], ids=["two-means", "cocluster"])
@pytest.mark.parametrize("seed", range(5))
def test_two_clusters_are_recovered(seed: int, cocluster: bool) -> None:
    vectors, label = clusters(seed, parts=2, size=25, noise=0.15)
    assert same_partition(first_split(vectors, cocluster=cocluster, seed=seed), label)


# k-means may end in a poor place, but not from every start: one of these must do.
STARTS = range(8)


@pytest.mark.parametrize("cocluster", [False, True], ids=["k-means", "cocluster"])
@pytest.mark.parametrize("parts", [3, 4, 5])
def test_several_clusters_are_recovered(parts: int, cocluster: bool) -> None:
    vectors, label = clusters(1, parts, size=20, noise=0.02)
    assert any(same_partition(first_split(vectors, parts, cocluster, 100, seed), label) for seed in STARTS)


def test_nested_clusters_are_leaves() -> None:
    """Four clusters, two and two alike: 2-means finds the pairs first and each cluster below."""
    vectors, label = clusters(2, parts=4, size=16, noise=0.05)
    pair = np.eye(2)[label // 2]
    grown = [build(np.hstack([vectors, 4 * pair]), 2, 16, seed=seed) for seed in STARTS]
    pairs_first = [tree for tree in grown if same_partition(tree.parents[tree.leaf_of], label // 2)]
    assert pairs_first
    assert all(same_partition(tree.leaf_of, label) for tree in pairs_first)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("n", [20, 31])
def test_coclustering_splits_by_the_second_singular_vector(seed: int, n: int) -> None:
    """On matrices without any structure but noise, where a wrong vector would show; its sign is free."""
    vectors = single(np.random.default_rng(seed).random((n, 12)) ** 2)
    key = second_singular_vector(vectors)
    label = first_split(vectors, cocluster=True, iterations=400, seed=seed)
    assert label.tolist() in (halves(key).tolist(), halves(-key).tolist())


def test_coclustering_blocks_agree_with_the_singular_vector() -> None:
    vectors, label = clusters(3, parts=2, size=30, noise=0.3)
    twin = halves(second_singular_vector(vectors))
    assert same_partition(twin, label)
    assert same_partition(first_split(vectors, cocluster=True), twin)


def test_pifa_averages_positive_instances() -> None:
    X = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    Y = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    expected = [[1.0, 0.0], [0.0, 0.0], [1 / np.sqrt(5), 2 / np.sqrt(5)]]
    np.testing.assert_allclose(pifa(X, Y), expected)
