"""The hierarchy of arms: from labels, from vectors, from a taxonomy. Knows nothing of contexts once it is built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from treetop import _core
from treetop.arrays import Int64s, Ints, Matrix, as_indices, as_rows, check_int
from treetop.effort import Effort
from treetop.tree.labels import pifa
from treetop.tree.subtrees import TreeSettings, build_spread
from treetop.tree.vectors import check_metric, dense_vectors, unit_vectors

SPLITS = ("kmeans", "cocluster")
FAMILY = 640  # arms below the parent of a leaf, about, in a tree for the learner of treetop
KMEANS_ROUNDS = 20  # of balanced k-means, at most
MEASURED_BRANCHING = 128  # children of a node, about, in a tree for a measure: fewer levels lose less
MEASURED_ROUNDS = 10  # of k-means for it: after that recall no longer rises

SMALL_LEAF, LARGE_LEAF, MANY_ARMS = 10, 100, 100_000


def usual_max_leaf(n_arms: int, labelled: bool = True) -> int:
    """Arms in a leaf where nobody says how many. Labelled rows alone lead a search to small leaves; otherwise large
    ones earn more, whether vectors, categories or nothing say which arms belong together.

    >>> usual_max_leaf(20_000), usual_max_leaf(20_000, labelled=False), usual_max_leaf(100_000)
    (10, 100, 100)
    """
    return SMALL_LEAF if labelled and n_arms < MANY_ARMS else LARGE_LEAF


@dataclass(frozen=True, eq=False)
class Tree:
    """Arms under nodes. Node 0 is the root; a parent precedes its children; every arm is in exactly one leaf.

    >>> Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1])
    Tree(3 arms, 3 nodes, depth 1)
    """

    parents: Ints
    leaf_of: Ints
    begin: Ints = field(init=False)  # per node: its arms are arm_at[begin:end]
    end: Ints = field(init=False)
    arm_at: Ints = field(init=False)
    position_of: Ints = field(init=False)
    depth: int = field(init=False)  # levels below the root

    def __post_init__(self) -> None:
        parents, leaf_of = np.asarray(self.parents), np.asarray(self.leaf_of)
        for name, array in (("parents", parents), ("leaf_of", leaf_of)):
            if array.ndim != 1:
                raise ValueError(f"{name} must be a list, not an array of shape {array.shape}")
        parents, leaf_of = as_indices(parents, len(parents), "parent", -1), as_indices(leaf_of, len(parents), "leaf")
        parents, leaf_of = parents.copy(), leaf_of.copy()  # what was checked stays as it was
        derived = _core.layout(parents, leaf_of)
        names = ("parents", "leaf_of", "begin", "end", "arm_at", "position_of", "depth")
        for name, value in zip(names, (parents, leaf_of, *derived), strict=True):
            object.__setattr__(self, name, value)

    @property
    def n_arms(self) -> int:
        return len(self.leaf_of)

    @property
    def n_nodes(self) -> int:
        return len(self.parents)

    @property
    def sizes(self) -> Ints:
        """How many arms are below each node."""
        return self.end - self.begin

    def arms_below(self, node: int) -> Ints:
        """The arms under a node, in the order of the tree.

        >>> Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1]).arms_below(1)
        array([0, 2], dtype=int32)
        """
        check_int("node", node, 0, self.n_nodes - 1)
        return self.arm_at[self.begin[node] : self.end[node]]

    def levels(self) -> Ints:
        """Each node's distance from the root.

        >>> Tree(parents=[-1, 0, 0, 1], leaf_of=[3, 2]).levels()
        array([0, 1, 1, 2], dtype=int32)
        """
        level = np.zeros(self.n_nodes, np.int32)
        for node in range(1, self.n_nodes):
            level[node] = level[self.parents[node]] + 1
        return level

    def __repr__(self) -> str:
        return f"Tree({self.n_arms:,} arms, {self.n_nodes:,} nodes, depth {self.depth})"

    @classmethod
    def from_labels(
        cls,
        X: Matrix,
        Y: Matrix,
        max_leaf: int = 100,
        branching: int = 2,
        seed: int = 0,
        *,
        split: str = "kmeans",
        effort: Effort = Effort(),  # noqa: B008
    ) -> Tree:
        """Similar arms together, judged by the contexts in which they are positive (PIFA; Prabhu et al. 2018).

        Arms without a positive context are spread over the leaves. `split` is that of `from_vectors`. The same seed
        gives the same tree on any number of threads; progress is in arms times levels.

        >>> X = Y = np.eye(4, dtype=np.float32)  # four contexts, each with an arm of its own
        >>> Tree.from_labels(X, Y, max_leaf=2)
        Tree(4 arms, 3 nodes, depth 1)
        """
        return cls.from_vectors(pifa(X, Y), max_leaf, branching, seed, split=split, effort=effort)

    @classmethod
    def from_labels_flattened(
        cls,
        X: Matrix,
        Y: Matrix,
        max_leaf: int = 100,
        branching: int = 2,
        seed: int = 0,
        *,
        split: str = "kmeans",
        effort: Effort = Effort(),  # noqa: B008
    ) -> Tree:
        """The same; a binary tree is flattened (`family_levels`). What treetop's learner builds on without labels.

        >>> X = Y = np.eye(16, dtype=np.float32)
        >>> Tree.from_labels_flattened(X, Y, max_leaf=2)
        Tree(16 arms, 9 nodes, depth 1)
        """
        tree = cls.from_labels(X, Y, max_leaf, branching, seed, split=split, effort=effort)
        return tree.flattened(family_levels(max_leaf)) if branching == 2 else tree

    @classmethod
    def from_labels_separated(
        cls,
        X: Matrix,
        Y: Matrix,
        max_leaf: int = 100,
        branching: int = 2,
        seed: int = 0,
        *,
        split: str = "kmeans",
        effort: Effort = Effort(),  # noqa: B008
    ) -> Tree:
        """The same, but arms without a positive context stand in leaves of their own below one child of the root.

        No beam is spent on them then, and draws still reach them through that child. A binary tree is flattened
        (`family_levels`). What treetop's learner builds on with labels.

        >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, 6, dtype=np.float32)  # nobody knows arms 4 and 5
        >>> Tree.from_labels_separated(X, Y, max_leaf=2).leaf_of[4:]
        array([3, 3], dtype=int32)
        """
        vectors = pifa(X, Y)
        positive = np.diff(vectors.start) > 0
        tree = cls.from_vectors(vectors.csr()[positive], max_leaf, branching, seed, split=split, effort=effort)
        if branching == 2:
            tree = tree.flattened(family_levels(max_leaf))
        if positive.all():
            return tree
        return _with_others(tree, np.flatnonzero(positive), np.flatnonzero(~positive), max_leaf, branching)

    @classmethod
    def from_vectors(
        cls,
        vectors: Matrix,
        max_leaf: int = 100,
        branching: int | None = None,
        seed: int = 0,
        *,
        split: str = "kmeans",
        metric: str | None = None,
        effort: Effort = Effort(),  # noqa: B008
    ) -> Tree:
        """A tree over one vector per arm: balanced spherical k-means, or `split="cocluster"` (Dhillon 2001).

        With `metric`, "cosine", "inner_product" or "euclidean", a tree whose search finds what that measure ranks
        highest (`Model.from_vectors` has the routing): dense vectors of up to thousands of dimensions, few levels of
        many children, leaves of at most `max_leaf` arms but not of equal size. Without `branching` a node has 2
        children, or with a metric about 128. On a cluster (`effort.ray`) the tree is the same; one with a metric is
        built here.

        >>> Tree.from_vectors([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], max_leaf=2).leaf_of.tolist() in (
        ...     [1, 1, 2, 2], [2, 2, 1, 1])
        True
        >>> rng = np.random.default_rng(0)
        >>> Tree.from_vectors(rng.normal(size=(1000, 8)), max_leaf=50, metric="cosine").depth
        1
        """
        if metric is not None:
            if split != "kmeans":
                raise ValueError(f"split is {split!r}; a tree for a metric is built by kmeans")
            return cls._measured(vectors, check_metric(metric), max_leaf, branching, seed, effort)
        rows = as_rows(vectors, what="arm vectors")
        if len(rows) == 0:
            raise ValueError("there are 0 arms; a tree needs at least 1")
        branching = check_int("branching", 2 if branching is None else branching, 2)
        max_leaf = check_int("max_leaf", max_leaf, 1)
        if max_leaf < branching:
            raise ValueError(f"max_leaf is {max_leaf}; it must be at least the branching, {branching}")
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}; it must be one of {', '.join(SPLITS)}")
        if split == "cocluster" and (rows.value < 0).any():
            raise ValueError(f"cocluster needs vectors without negative values; {rows.value.min():g} is one")
        seed = check_int("seed", seed, -(2**63), 2**63 - 1)
        settings = TreeSettings(branching, max_leaf, split == "cocluster", KMEANS_ROUNDS, seed)
        if effort.ray:
            return cls(*build_spread(rows, settings, effort))
        return cls(*settings.build(rows, effort.threads, effort.progress))

    @classmethod
    def _measured(
        cls, vectors: Matrix, metric: str, max_leaf: int, branching: int | None, seed: int, effort: Effort
    ) -> Tree:
        dense = dense_vectors(vectors)
        spherical = metric == "cosine"
        parents, leaf_of = _core.build_vector_tree(
            (unit_vectors(dense) if spherical else dense).reshape(-1),
            dense.shape[1],
            check_int("branching", MEASURED_BRANCHING if branching is None else branching, 2, 65_536),
            check_int("max_leaf", max_leaf, 1),
            spherical,
            MEASURED_ROUNDS,
            check_int("seed", seed, -(2**63), 2**63 - 1),
            effort.threads,
            effort.progress,
        )
        return cls(parents, leaf_of)

    def flattened(self, levels: int) -> Tree:
        """The same leaves below fewer nodes: of every `levels` levels above the leaves one is kept, and the root.

        A binary tree of three levels becomes one of eight children a node. Routing scores are products along a path: on
        a shorter one fewer factors can be wrong.

        >>> tall = Tree.from_vectors(np.eye(8), max_leaf=1 + 1)
        >>> tall, tall.flattened(2)
        (Tree(8 arms, 7 nodes, depth 2), Tree(8 arms, 5 nodes, depth 1))
        """
        check_int("levels", levels, 1)
        above, height = self.parents.copy(), np.zeros(self.n_nodes, np.int64)
        for node in range(self.n_nodes - 1, 0, -1):
            height[above[node]] = max(height[above[node]], height[node] + 1)
        kept = height % levels == 0
        kept[0] = True
        for node in range(1, self.n_nodes):
            if not kept[above[node]]:
                above[node] = above[above[node]]
        number = np.cumsum(kept, dtype=np.int32) - 1
        parents = np.concatenate([[-1], number[above[kept][1:]]]).astype(np.int32)
        return Tree(parents, number[self.leaf_of].astype(np.int32))

    @classmethod
    def from_taxonomy(cls, parent_of: Mapping[str, str | None], category_of: list[str]) -> Tree:
        """The user's own hierarchy: each category's parent (None at the top) and each arm's category.

        Categories that hold arms as well as categories get a leaf of their own for those arms.

        >>> Tree.from_taxonomy({"food": None, "tea": "food", "tools": None}, ["tea", "food", "tools"])
        Tree(3 arms, 5 nodes, depth 2)
        """
        parents, number = [-1], {}
        children: dict[str | None, list[str]] = {}
        for name, above in parent_of.items():
            if name is None:
                raise ValueError("None cannot be a category: as a parent it stands for the top")
            if above is not None and above not in parent_of:
                raise ValueError(f"category {name!r} has parent {above!r}, which is not a category")
            children.setdefault(above, []).append(name)
        queue: list[tuple[str, int]] = [(name, 0) for name in children.get(None, [])]
        for name, above_id in queue:  # breadth first: the list grows while it is read
            number[name] = len(parents)
            parents.append(above_id)
            queue += [(child, number[name]) for child in children.get(name, [])]
        if len(number) < len(parent_of):
            lost = next(name for name in parent_of if name not in number)
            raise ValueError(f"category {lost!r} is its own ancestor")
        leaf_for: dict[str, int] = {}
        for arm, name in enumerate(category_of):
            if name not in number:
                raise ValueError(f"arm {arm} is in category {name!r}, which is not a category")
            if name not in leaf_for:
                leaf_for[name] = number[name]
                if name in children:
                    leaf_for[name] = len(parents)
                    parents.append(number[name])
        return cls(np.array(parents, np.int32), np.array([leaf_for[name] for name in category_of], np.int32))


def family_levels(max_leaf: int) -> int:
    """How many levels of a binary tree become one, so that about FAMILY arms are below the parent of a leaf.

    With labels an arm's routing function learns against all of these: more of them teach it more, and cost more to fit.

    >>> [family_levels(max_leaf) for max_leaf in (10, 20, 100, 1000)]
    [6, 5, 3, 1]
    """
    return max(1, round(math.log2(FAMILY / max_leaf)))


def _with_others(tree: Tree, known: Int64s, others: Int64s, max_leaf: int, branching: int) -> Tree:
    """A tree of the arms `known`, and `others` in the order of their ids below one more child of the root."""
    parents = tree.parents.tolist()
    leaf_of = np.zeros(len(known) + len(others), np.int32)
    leaf_of[known] = tree.leaf_of
    if len(parents) == 1:  # the root was a leaf
        parents, leaf_of[known] = [-1, 0], 1
    waiting = [(others, 0)]
    for arms, parent in waiting:
        parents.append(parent)
        if len(arms) <= max_leaf:
            leaf_of[arms] = len(parents) - 1
        else:
            waiting += [(part, len(parents) - 1) for part in np.array_split(arms, branching)]
    return Tree(np.array(parents, np.int32), leaf_of)
