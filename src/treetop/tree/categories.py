"""A legal tree from the owner's categories, of any depth and fan-out: large ones are split, tiny ones share leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Int64s, Ints, Matrix, as_rows, check_int
from treetop.effort import Effort
from treetop.tree.tree import Tree, family_levels

SEPARATOR = ">"
FAN_OUT = 8  # children of a node at most: what the search looks at below each node that survives
CategoryPath: TypeAlias = tuple[str, ...]
Range: TypeAlias = tuple[int, int]  # of numbers of paths


def category_path(category: str | Sequence[str] | None) -> CategoryPath:
    """A category as a path from the top: text with > between its levels, or a list of them. None is no category.

    >>> category_path("dept 3 > cat 7"), category_path(["dept 3", "cat 7"]), category_path(None)
    (('dept 3', 'cat 7'), ('dept 3', 'cat 7'), ())
    """
    if category is None:
        return ()
    if isinstance(category, str):
        return _path_of(category)
    if not isinstance(category, Sequence | np.ndarray):
        raise TypeError(f"a category is text or a list of texts, not {category!r}")
    return _checked(list(category), category)


@lru_cache(65_536)  # many arms have the same
def _path_of(category: str) -> CategoryPath:
    return _checked(category.split(SEPARATOR), category)


def _checked(parts: list[str], category: str | Sequence[str]) -> CategoryPath:
    if wrong := next((part for part in parts if not isinstance(part, str)), None):
        raise TypeError(f"a category is text or a list of texts; {wrong!r} is in {category!r}")
    path = tuple(part.strip() for part in parts)
    if path == ("",):
        return ()
    if not all(path) or not all(part.isprintable() for part in path):
        raise ValueError(f"the category {category!r} has a level without a name, or one that cannot be printed")
    return path


def category_text(path: Sequence[str]) -> str:
    """A path as people read it.

    >>> category_text(("dept 3", "cat 7"))
    'dept 3 > cat 7'
    """
    return f" {SEPARATOR} ".join(path)


@dataclass(frozen=True, eq=False)
class Categories:
    """The category of each arm: `paths` are the different ones, in order, and `code` says which of them an arm has.

    >>> found = Categories.of(["food > tea", "food > jam", "tools", None])
    >>> found.path(0), found.path(3), found.common(np.array([0, 1]))
    (('food', 'tea'), (), ('food',))
    """

    paths: tuple[CategoryPath, ...]
    code: Ints

    @classmethod
    def of(cls, categories: Iterable[str | Sequence[str] | None]) -> Categories:
        known: dict[object, CategoryPath] = {}
        each = []
        for category in categories:
            key = category if category is None or isinstance(category, str) else tuple(category)
            if key not in known:
                known[key] = category_path(category)
            each.append(known[key])
        paths = sorted(set(known.values()))
        number = {path: i for i, path in enumerate(paths)}
        return cls(tuple(paths), np.array([number[path] for path in each], np.int32))

    def __len__(self) -> int:
        return len(self.code)

    def path(self, arm: int) -> CategoryPath:
        """The category of an arm; empty if it has none, or is not known here."""
        return self.paths[self.code[arm]] if arm < len(self.code) else ()

    def common(self, arms: Ints) -> CategoryPath:
        """The deepest category that all of some arms are in."""
        if len(arms) == 0 or int(arms.max()) >= len(self.code):
            return ()
        codes = self.code[arms]
        first, last = self.paths[codes.min()], self.paths[codes.max()]  # in order: what these share, all share
        return first[: _shared(first, last)]

    @cached_property
    def counts(self) -> Int64s:
        """How many arms come before each path, in the order of paths; and all of them."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.code, minlength=len(self.paths)))])

    def tree(self, max_leaf: int = 100, branching: int = 2, seed: int = 0, vectors: Matrix | None = None) -> Tree:
        """A tree in which the arms of a category stand together, below at most 8 children a node.

        A category that fits into a leaf is one, with all that is below it; neighbouring ones share a leaf while they
        fit. A larger one has its own categories below it; one without, or the arms that are in none of them, is split
        by `vectors`, or else in the order of the arms. Where there are vectors, similar categories are neighbours.

        >>> shelves = Categories.of([f"food > shelf {i % 30}" for i in range(600)])
        >>> shelves.tree(max_leaf=50)
        Tree(600 arms, 23 nodes, depth 2)
        """
        if len(self) == 0:
            raise ValueError("there are 0 arms; a tree needs at least 1")
        check_int("branching", branching, 2)
        if check_int("max_leaf", max_leaf, 1) < branching:
            raise ValueError(f"max_leaf is {max_leaf}; it must be at least the branching, {branching}")
        rows = None if vectors is None else as_rows(vectors, what="arm vectors").csr()
        if rows is not None and rows.shape[0] != len(self):
            raise ValueError(f"{rows.shape[0]} vectors for {len(self)} arms")
        return _Builder(self, max_leaf, branching, seed, rows).build()


def _shared(one: CategoryPath, other: CategoryPath) -> int:
    """How many levels two paths share, from the top."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class _Builder:
    """A tree while it is built, level by level. What waits is a node and what is to be put below it."""

    def __init__(
        self, categories: Categories, max_leaf: int, branching: int, seed: int, vectors: sp.csr_matrix | None
    ) -> None:
        self.categories, self.max_leaf, self.branching, self.seed = categories, max_leaf, branching, seed
        self.vectors = vectors
        self.order = np.argsort(categories.code, kind="stable")  # arms by path
        self.parents: list[int] = [-1]
        self.leaf_of = np.zeros(len(categories), np.int32)
        self.waiting: deque[tuple[int, list[list[Range]]]] = deque()

    def build(self) -> Tree:
        self.waiting.append((0, [[(0, len(self.categories.paths))]]))
        while self.waiting:
            node, groups = self.waiting.popleft()
            if len(groups) == 1:
                groups = self._opened(node, groups[0])
            for part in self._parts(groups):
                self.parents.append(node)
                self.waiting.append((len(self.parents) - 1, part))
        return Tree(np.array(self.parents, np.int32), self.leaf_of)

    def _arms(self, group: list[Range]) -> Int64s:
        counts = self.categories.counts
        return np.concatenate([self.order[counts[first] : counts[last]] for first, last in group])

    def _size(self, group: list[Range]) -> int:
        counts = self.categories.counts
        return int(sum(counts[last] - counts[first] for first, last in group))

    def _opened(self, node: int, group: list[Range]) -> list[list[Range]]:
        """What a group becomes: nothing more, if its arms were put into leaves, or the groups below it."""
        size = self._size(group)
        if size <= self.max_leaf:
            self.leaf_of[self._arms(group)] = node
            return []
        ((first, last),) = group  # only what fits into a leaf is put together of several ranges
        if last - first == 1:
            self._split(node, self._arms(group))
            return []
        paths = self.categories.paths
        level = _shared(paths[first], paths[last - 1])
        names = [path[level] if len(path) > level else None for path in paths[first:last]]
        ends = [i for i in range(1, len(names)) if names[i] != names[i - 1]]
        below = [(first + a, first + b) for a, b in zip([0, *ends], [*ends, len(names)], strict=True)]
        return self._packed(self._neighbours(below))

    def _neighbours(self, ranges: list[Range]) -> list[Range]:
        """Categories of one parent, similar ones side by side if there are vectors to tell."""
        if self.vectors is None or len(ranges) <= FAN_OUT:
            return ranges
        means = np.concatenate([np.asarray(self.vectors[self._arms([part])].mean(axis=0)) for part in ranges])
        similar = Tree.from_vectors(means, 2, 2, self.seed, effort=Effort(threads=1))
        return [ranges[i] for i in similar.arm_at]

    def _packed(self, ranges: list[Range]) -> list[list[Range]]:
        """Neighbours that fit into one leaf together become one group."""
        groups: list[list[Range]] = []
        room = 0
        for part in ranges:
            size = self._size([part])
            if groups and size <= room:
                groups[-1].append(part)
                room -= size
            else:
                groups.append([part])
                room = self.max_leaf - size
        return groups

    def _parts(self, groups: list[list[Range]]) -> list[list[list[Range]]]:
        """Groups as the children of a node; where they are too many, some of them below a child together."""
        if len(groups) <= FAN_OUT:
            return [[group] for group in groups]
        cuts = np.linspace(0, len(groups), FAN_OUT + 1).astype(int).tolist()
        return [groups[a:b] for a, b in pairwise(cuts)]

    def _split(self, node: int, arms: Int64s) -> None:
        """The arms of one category below a node, in several leaves."""
        if self.vectors is None:
            leaves = -(-len(arms) // self.max_leaf)
            if leaves == 1:
                self.leaf_of[arms] = node
                return
            for part in np.array_split(arms, min(FAN_OUT, leaves)):
                self.parents.append(node)
                self._split(len(self.parents) - 1, part)
            return
        mine = Tree.from_vectors(self.vectors[arms], self.max_leaf, self.branching, self.seed)
        mine = mine.flattened(family_levels(self.max_leaf)) if self.branching == 2 else mine
        number = np.concatenate([[node], len(self.parents) + np.arange(mine.n_nodes - 1)]).astype(np.int32)
        self.parents += number[mine.parents[1:]].tolist()
        self.leaf_of[arms] = number[mine.leaf_of]
