"""Trees from labels, vectors and taxonomies, on made-up and real data."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.problems import topics

import treetop
from treetop.effort import Effort
from treetop.tree.labels import pifa
from treetop.tree.tree import family_levels


def check_balanced(tree: treetop.Tree, max_leaf: int, branching: int) -> None:
    levels = tree.levels()
    leaves = np.unique(tree.leaf_of)
    assert (levels[leaves] == tree.depth).all()
    assert (tree.sizes[leaves] <= max_leaf).all()
    assert sorted(np.concatenate([tree.arms_below(leaf) for leaf in leaves])) == list(range(tree.n_arms))
    for node in range(tree.n_nodes):
        children = np.flatnonzero(tree.parents == node)
        if len(children):
            assert len(children) == branching
            assert np.ptp(tree.sizes[children]) <= 1


@pytest.mark.parametrize("split", ["kmeans", "cocluster"])
@pytest.mark.parametrize("branching", [2, 3])
def test_from_labels_is_balanced_and_the_same_on_any_number_of_threads(split: str, branching: int) -> None:
    X, Y = topics(arms=157)
    trees = [
        treetop.Tree.from_labels(X, Y, max_leaf=5, branching=branching, seed=3, split=split, effort=Effort(threads))
        for threads in (1, 2, 5)
    ]
    check_balanced(trees[0], 5, branching)
    for tree in trees[1:]:
        assert (tree.parents == trees[0].parents).all()
        assert (tree.leaf_of == trees[0].leaf_of).all()
    other = treetop.Tree.from_labels(X, Y, max_leaf=5, branching=branching, seed=4, split=split)
    assert (other.leaf_of != trees[0].leaf_of).any()


def test_labels_without_a_positive_context_are_spread() -> None:
    X, Y = topics(arms=64)
    Y = sp.hstack([Y, sp.csr_matrix((Y.shape[0], 64))]).tocsr()
    tree = treetop.Tree.from_labels(X, Y, max_leaf=4)
    check_balanced(tree, 4, 2)
    empty = np.bincount(tree.leaf_of[64:], minlength=tree.n_nodes)[np.unique(tree.leaf_of)]
    assert empty.min() >= 1
    assert empty.max() <= 3


def test_topics_share_leaves() -> None:
    X, Y = topics(n=2000, arms=64, seed=1)
    tree = treetop.Tree.from_labels(X, Y, max_leaf=8)
    pure = [np.bincount(tree.arms_below(leaf) % 8).max() / 8 for leaf in np.unique(tree.leaf_of)]
    assert np.mean(pure) > 0.9


def test_pifa_is_the_twin() -> None:
    X, Y = topics(n=50, arms=20)
    want = reference.pifa(X.toarray().astype(float), Y.toarray().astype(float))
    np.testing.assert_allclose(pifa(X, Y).csr().toarray(), want, atol=1e-6)


def test_max_leaf_below_branching_is_refused() -> None:
    X, Y = topics(n=50, arms=20)
    with pytest.raises(ValueError, match=r"max_leaf is 2.*branching, 3"):
        treetop.Tree.from_labels(X, Y, max_leaf=2, branching=3)


def test_cocluster_refuses_negative_values() -> None:
    with pytest.raises(ValueError, match=r"-0\.5"):
        treetop.Tree.from_vectors([[1.0, -0.5], [0.2, 1.0], [1.0, 1.0]], max_leaf=2, split="cocluster")


def test_taxonomy_with_arms_at_inner_categories() -> None:
    parents = {"b": "a", "a": None, "c": "b", "d": None}
    tree = treetop.Tree.from_taxonomy(parents, ["c", "b", "d", "c", "a"])
    assert tree.n_arms == 5
    assert tree.depth == 3
    below_a = next(n for n in range(tree.n_nodes) if sorted(tree.arms_below(n)) == [0, 1, 3, 4])
    assert tree.parents[below_a] == 0
    with pytest.raises(ValueError, match="its own ancestor"):
        treetop.Tree.from_taxonomy({"a": "b", "b": "a"}, ["a"])


def test_eurlex_tree(eurlex: treetop.Dataset) -> None:
    stream = treetop.Stream.draw(eurlex, init=5000, horizon=10, seed=0)
    tree = treetop.Tree.from_labels(stream.X_init, stream.Y_init, max_leaf=10)
    assert tree.n_arms == 4271
    check_balanced(tree, 10, 2)


def test_the_callers_matrices_are_left_alone() -> None:
    """Explicit zeros among the labels once made from_labels compact the caller's own arrays."""
    X, Y = topics(n=50, arms=20)
    Y.data[::3] = 0
    before = [a.copy() for m in (X, Y) for a in (m.data, m.indices, m.indptr)]
    treetop.Model.initial(treetop.Tree.from_labels(X, Y, max_leaf=4), X, Y)
    for old, new in zip(before, [a for m in (X, Y) for a in (m.data, m.indices, m.indptr)], strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("labelled", [1, 3, 40])
@pytest.mark.parametrize("branching", [2, 3])
def test_arms_without_labels_apart(labelled: int, branching: int) -> None:
    """They hang below one child of the root, in leaves of their own; the others have the tree they would have alone.

    A binary one is flattened.
    """
    rng = np.random.default_rng(0)
    X, Y = rng.random((60, 8)), np.zeros((60, 100))
    arms = np.sort(rng.permutation(100)[:labelled])
    Y[np.arange(60), arms[np.arange(60) % labelled]] = 1
    tree = treetop.Tree.from_labels_separated(X, Y, max_leaf=4, branching=branching)
    alone = treetop.Tree.from_labels(X, Y[:, arms], max_leaf=4, branching=branching)
    alone = alone.flattened(family_levels(4)) if branching == 2 else alone
    if labelled > 4:
        np.testing.assert_array_equal(tree.parents[: alone.n_nodes], alone.parents)
        np.testing.assert_array_equal(tree.leaf_of[arms], alone.leaf_of)
    others = np.setdiff1d(np.arange(100), arms)
    assert not set(tree.leaf_of[arms]) & set(tree.leaf_of[others])
    assert np.bincount(tree.leaf_of).max() <= 4
    top = tree.leaf_of[others].copy()
    while (inner := tree.parents[top] > 0).any():
        top[inner] = tree.parents[top[inner]]
    assert len(set(top)) == 1
    assert tree.sizes[top[0]] == len(others)


@pytest.mark.parametrize("branching", [2, 3])
def test_apart_there_is_nothing_more_where_all_arms_have_labels(branching: int) -> None:
    X = Y = np.eye(12)
    one, other = (
        make(X, Y, max_leaf=3, branching=branching)
        for make in (treetop.Tree.from_labels, treetop.Tree.from_labels_separated)
    )
    one = one.flattened(3) if branching == 2 else one
    np.testing.assert_array_equal(one.parents, other.parents)
    np.testing.assert_array_equal(one.leaf_of, other.leaf_of)
