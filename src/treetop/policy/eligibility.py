"""Which arms a request may see. Knows the tree's positions, nothing of contexts or scores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from treetop import _core
from treetop.arrays import Arms, Int64s, Ints, as_indices
from treetop.tree.tree import Tree

ALL, ONLY, EXCEPT = 0, 1, 2  # kinds of Eligible, as the core numbers them

NOTHING = np.zeros(0, np.int32)

NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Eligible:
    """The arms a request may see, as sorted tree positions: all, only the listed ones, or all except those.

    Prepared once with `Eligible.of`, it has a bit per position and a count per node (`mask`), so that any number of
    decisions on the same tree cost hardly more than without it. With `start`, one list per row of a batch. Where there
    is a mask, it alone says which arms those are; `positions` may be empty.
    """

    kind: int = ALL
    positions: Ints = field(default_factory=lambda: NOTHING)
    start: Int64s = field(default_factory=lambda: NO_ROWS)
    arm_at: Ints = field(default_factory=lambda: NOTHING)  # the tree's: what the positions mean
    mask: _core.Mask | None = None

    @classmethod
    def of(cls, tree: Tree, eligible: Arms | Eligible | None = None, exclude: Arms | None = None) -> Eligible:
        """From ids or a boolean mask (one row per context in a batch: a two-dimensional mask) and ids to leave out.

        >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1])
        >>> Eligible.of(tree, eligible=[0, 1]).positions
        array([0, 2], dtype=int32)
        """
        listed = cls.listed(tree, eligible, exclude)
        if listed.kind == ALL or len(listed.start) or listed.mask is not None:
            return listed
        mask = _core.Mask(tree.begin, tree.end, listed.positions, tree.n_arms, listed.kind == ONLY)
        return replace(listed, mask=mask)

    @classmethod
    def listed(cls, tree: Tree, eligible: Arms | Eligible | None = None, exclude: Arms | None = None) -> Eligible:
        """The same without the preparation, for a single decision.

        >>> Eligible.listed(Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1]), eligible=[0, 1]).positions
        array([0, 2], dtype=int32)
        """
        if isinstance(eligible, Eligible):
            if exclude is not None:
                raise ValueError("exclude cannot be added to a prepared Eligible; prepare it with the exclusion")
            foreign = eligible.kind != ALL and eligible.arm_at is not tree.arm_at
            if foreign and not np.array_equal(eligible.arm_at, tree.arm_at):
                raise ValueError(f"this Eligible was not prepared for {tree}; Eligible.of(tree, ...) does that")
            return eligible
        if eligible is None and exclude is None:
            return EVERY_ARM
        banned = _positions(tree, exclude, "excluded arm")
        if eligible is None:
            return cls(EXCEPT, banned, arm_at=tree.arm_at)
        if isinstance(eligible, set | frozenset):
            eligible = list(eligible)
        mask = eligible if hasattr(eligible, "ndim") else np.asarray(eligible)
        if mask.ndim == 2:
            return cls._per_row(tree, np.asarray(mask), banned)
        only = np.setdiff1d(_positions(tree, eligible, "eligible arm"), banned, assume_unique=True)
        return cls(ONLY, only, arm_at=tree.arm_at)

    def row(self, i: int) -> Eligible:
        """What row i of a batch may see.

        >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1])
        >>> Eligible.of(tree, eligible=np.array([[True, False, False], [True, True, True]])).row(1).positions
        array([0, 1, 2], dtype=int32)
        """
        if len(self.start) == 0:
            return self
        return Eligible(self.kind, self.positions[self.start[i] : self.start[i + 1]], arm_at=self.arm_at)

    def count(self, n_arms: int) -> int:
        """How many of a tree's `n_arms` arms a request may see.

        >>> Eligible.of(Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1]), exclude=[0]).count(3)
        2
        """
        if self.mask is not None:
            return self.mask.total
        return {ALL: n_arms, ONLY: len(self.positions), EXCEPT: n_arms - len(self.positions)}[self.kind]

    def is_empty(self, n_arms: int) -> bool:
        """Whether a request may see none of a tree's `n_arms` arms.

        >>> Eligible(ONLY).is_empty(3), EVERY_ARM.is_empty(3)
        (True, False)
        """
        return self.mask.empty if self.mask is not None else self.count(n_arms) == 0

    def count_below(self, tree: Tree, node: int) -> int:
        """How many of the arms below a node a request may see.

        >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1])
        >>> [Eligible.of(tree, exclude=[0]).count_below(tree, node) for node in range(3)]
        [2, 1, 1]
        """
        first, end = int(tree.begin[node]), int(tree.end[node])
        if self.mask is not None:
            return self.mask.count(first, end)
        if self.kind == ALL:
            return end - first
        listed = int(np.diff(np.searchsorted(self.positions, [first, end]))[0])
        return listed if self.kind == ONLY else end - first - listed

    @classmethod
    def _per_row(cls, tree: Tree, mask: np.ndarray[Any, Any], banned: Ints) -> Eligible:
        if mask.dtype != np.bool_ or mask.shape[1] != tree.n_arms:
            raise ValueError(
                f"a mask per row must be boolean of shape (n, {tree.n_arms}), not {mask.dtype} of shape {mask.shape}"
            )
        ordered = mask[:, tree.arm_at]
        ordered[:, banned] = False
        row, position = np.nonzero(ordered)
        start = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(mask)))])
        return cls(ONLY, position.astype(np.int32), start.astype(np.int64), tree.arm_at)


EVERY_ARM = Eligible()


def _positions(tree: Tree, arms: Arms | None, what: str) -> Ints:
    if arms is None:
        return NOTHING
    if isinstance(arms, set | frozenset):
        arms = list(arms)
    array = np.asarray(arms)
    if array.ndim != 1:
        raise ValueError(f"{what}s must be a list of ids or a mask, not an array of shape {array.shape}")
    if array.dtype == np.bool_:
        if len(array) != tree.n_arms:
            raise ValueError(f"the mask has {len(array)} entries; the tree has {tree.n_arms} arms")
        return np.flatnonzero(array[tree.arm_at]).astype(np.int32)
    return np.unique(tree.position_of[as_indices(array, tree.n_arms, what)])
