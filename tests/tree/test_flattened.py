"""Flattened trees: the same leaves with the same arms, below fewer nodes."""

import numpy as np
import pytest
from helpers.strategies import few, many, random_tree, seeds
from hypothesis import given
from hypothesis import strategies as st

import treetop


def slow(parents: list[int], levels: int) -> list[int]:
    """The nodes that stay, by their heights above the lowest leaf below them."""

    def height(node: int) -> int:
        return max((1 + height(child) for child, above in enumerate(parents) if above == node), default=0)

    return [node for node in range(len(parents)) if node == 0 or height(node) % levels == 0]


@many
@given(seeds, st.integers(1, 5))
def test_it_is_the_tree_without_the_nodes_between(seed: int, levels: int) -> None:
    drawn = random_tree(np.random.default_rng(seed))
    tree = treetop.Tree(drawn.parents, drawn.leaf_of)
    flat, kept = tree.flattened(levels), slow(tree.parents.tolist(), levels)
    assert flat.n_nodes == len(kept)
    assert (flat.parents[1:] < np.arange(1, flat.n_nodes)).all()  # a parent precedes its children
    for new, old in enumerate(kept):
        assert sorted(flat.arms_below(new)) == sorted(tree.arms_below(old))
    for new, old in enumerate(kept[1:], 1):
        above = int(tree.parents[old])
        while above not in kept:
            above = int(tree.parents[above])
        assert kept[flat.parents[new]] == above
    leaves = [node for node in range(tree.n_nodes) if node not in tree.parents]
    assert [kept[node] for node in range(flat.n_nodes) if node not in flat.parents] == leaves
    assert [kept[leaf] for leaf in flat.leaf_of] == tree.leaf_of.tolist()
    assert flat.depth == -(-tree.depth // levels)


@few
@given(seeds)
def test_one_level_to_one_is_the_tree_itself(seed: int) -> None:
    drawn = random_tree(np.random.default_rng(seed))
    flat = treetop.Tree(drawn.parents, drawn.leaf_of).flattened(1)
    assert np.array_equal(flat.parents, drawn.parents)
    assert np.array_equal(flat.leaf_of, drawn.leaf_of)


def test_a_root_that_is_a_leaf_stays_one() -> None:
    flat = treetop.Tree(np.full(1, -1, np.int32), np.zeros(2, np.int32)).flattened(3)
    assert (flat.parents.tolist(), flat.leaf_of.tolist()) == ([-1], [0, 0])


@pytest.mark.parametrize(("arms", "levels", "depth"), [(64, 3, 2), (32, 3, 2), (16, 3, 1), (64, 2, 3), (64, 9, 1)])
def test_a_balanced_binary_tree(arms: int, levels: int, depth: int) -> None:
    """Leaves of one arm or two: 64 are 5 levels of halves, which are 2 levels of which the lower has 8 children."""
    tree = treetop.Tree.from_vectors(np.eye(arms), max_leaf=2)
    flat = tree.flattened(levels)
    assert flat.depth == depth
    children = np.bincount(flat.parents[1:])
    assert set(children[1:][children[1:] > 0].tolist()) <= {2**levels}
    assert np.array_equal(np.bincount(flat.leaf_of)[flat.leaf_of], np.bincount(tree.leaf_of)[tree.leaf_of])


@pytest.mark.parametrize("levels", [0, -1])
def test_no_levels_are_refused(levels: int) -> None:
    with pytest.raises(ValueError, match=f"levels is {levels}; it must lie in"):
        treetop.Tree(np.array([-1, 0, 0], np.int32), np.array([1, 2], np.int32)).flattened(levels)
