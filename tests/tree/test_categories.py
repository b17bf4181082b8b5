"""Trees from categories of any depth and fan-out, real ones among them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treetop.tree.categories import FAN_OUT, Categories, category_path
from treetop.tree.tree import Tree

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def check_legal(tree: Tree, max_leaf: int) -> None:
    inner = set(tree.parents.tolist())
    leaves = [node for node in range(tree.n_nodes) if node not in inner]
    assert tree.sizes[leaves].max() <= max_leaf
    assert tree.sizes.min() >= 1
    assert np.bincount(tree.parents[1:], minlength=1).max(initial=0) <= FAN_OUT


def check_together(tree: Tree, categories: Categories, max_leaf: int) -> None:
    """A category that fits into a leaf is in one leaf; one that does not has no other arms among its own leaves, but
    for those that share one with what is left of it."""
    by_path: dict[tuple[str, ...], list[int]] = {}
    for arm in range(len(categories)):
        path = categories.path(arm)
        for depth in range(1, len(path) + 1):
            by_path.setdefault(path[:depth], []).append(arm)
    for arms in by_path.values():
        if len(arms) <= max_leaf:
            assert len(set(tree.leaf_of[arms].tolist())) == 1


PATHS = st.lists(st.sampled_from(["a", "b", "c", "d e"]), max_size=5)


@settings(deadline=None, max_examples=60)
@given(st.lists(PATHS, min_size=1, max_size=200), st.integers(2, 12))
def test_any_categories_become_a_legal_tree(paths: list[list[str]], max_leaf: int) -> None:
    categories = Categories.of(paths)
    tree = categories.tree(max_leaf)
    assert tree.n_arms == len(paths)
    check_legal(tree, max_leaf)
    check_together(tree, categories, max_leaf)
    for node in range(tree.n_nodes):
        arms = tree.arms_below(node)
        shared = categories.common(arms)
        assert all(categories.path(int(arm))[: len(shared)] == shared for arm in arms)
        deeper = {categories.path(int(arm))[: len(shared) + 1] for arm in arms}
        assert len(deeper) > 1 or len(categories.path(int(arms[0]))) == len(shared)


def test_a_wide_and_a_deep_one() -> None:
    wide = Categories.of([f"shelf {i % 3000}" for i in range(9000)])
    tree = wide.tree(max_leaf=20)
    check_legal(tree, 20)
    check_together(tree, wide, 20)
    assert tree.depth <= 4
    deep = Categories.of([["x"] * (1 + i % 1500) for i in range(3000)])
    check_legal(deep.tree(max_leaf=10), 10)


def test_vectors_split_a_category_and_order_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 60)
    vectors = np.eye(2)[group] + 0.05 * rng.normal(size=(120, 2))
    mixed = rng.permutation(120)
    tree = Categories.of(["all"] * 120).tree(60, vectors=vectors[mixed])
    assert {frozenset(group[mixed][tree.arms_below(int(leaf))].tolist()) for leaf in set(tree.leaf_of)} == {
        frozenset({0}),
        frozenset({1}),
    }
    # 32 shelves of two kinds, their names in an order that says nothing: the kinds part at the top.
    kind = rng.permutation(np.repeat([0, 1], 16))
    shelves = np.repeat(np.arange(32), 5)
    tree = Categories.of([f"s{shelf:02d}" for shelf in shelves]).tree(5, vectors=np.eye(2)[kind[shelves]])
    top = [node for node in range(1, tree.n_nodes) if tree.parents[node] == 0]
    assert len(top) == FAN_OUT
    assert all(len(set(kind[shelves[tree.arms_below(node)]])) == 1 for node in top)


@pytest.mark.parametrize(
    ("wrong", "why"), [("a > > b", "without a name"), ([1], "text or a list of texts"), ("a\x00b", "cannot be printed")]
)
def test_what_is_no_category_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        category_path(wrong)
    with pytest.raises(ValueError, match="3 vectors for 2 arms"):
        Categories.of(["a", "b"]).tree(2, vectors=np.eye(3))
    with pytest.raises(ValueError, match="max_leaf is 1; it must be at least the branching, 2"):
        Categories.of(["a", "b"]).tree(1)


def test_a_chain_of_one_category_below_the_other_is_one_node() -> None:
    tree = Categories.of(["a > b > c > d"] * 3 + ["a > b > x"] * 3).tree(3)
    assert (tree.n_nodes, tree.depth) == (3, 1)


def paths_of(arms: list[str], parents: dict[str, str], names: dict[str, str]) -> list[list[str]]:
    """The path of each arm from the top; one without a name is called by its number."""
    found = []
    for arm in arms:
        path = [arm]
        while (above := parents.get(path[0])) is not None and above not in path:
            path.insert(0, above)
        found.append([names.get(each, each) for each in path])
    return found


def eurlex() -> list[list[str]]:
    found = json.loads((SHARED / "eurlex57k" / "label_desc.json").read_text())
    parents = {key: entry["parents"][0] for key, entry in found.items() if entry["parents"]}
    return paths_of(list(found), parents, {key: entry["label"] for key, entry in found.items()})


def tate() -> list[list[str]]:
    found = json.loads((SHARED / "tate" / "labels.json").read_text())
    arms = [str(i) for i in found["ids"]]
    parents = {key: str(above) for key, above in found["parent"].items()}
    return paths_of(arms, parents, dict(zip(arms, found["names"], strict=True)))


@pytest.mark.parametrize("read", [eurlex, tate])
def test_real_taxonomies(read: Any) -> None:
    if not SHARED.is_dir():
        pytest.skip("the real taxonomies are not beside this checkout (../shared/data)")
    categories = Categories.of(read())
    assert len(categories.paths) > 3000
    tree = categories.tree(max_leaf=10)
    check_legal(tree, 10)
    check_together(tree, categories, 10)
    named = [categories.common(tree.arms_below(node)) for node in range(1, tree.n_nodes)]
    assert sum(map(bool, named)) > 0.5 * len(named)
