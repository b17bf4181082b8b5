"""What arms cover: categories, or directions of their vectors. `Policy.diversity` gives a bonus for covering much.

    bonus = diversity * sum over groups g of (1 - prod over the slate of (1 - share of arm in g))

It is monotone and submodular: an arm adds what the arms above it have left uncovered, so that taking the best slot by
slot comes within 1 - 1/e of the best slate (Nemhauser, Wolsey and Fisher 1978; coverage as in El-Arini et al. 2009).

With `saturation`, which learning/saturation.py learns, arms of one group also take from each other's rewards:

    reward of a slot = score * prod over groups g of (1 - share * (1 - prod over slots above (1 - saturation * share *
    score)))

which adds up to (1 - prod of (1 - saturation * score)) / saturation for the arms of one group: submodular again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treetop.arrays import Float32s, Floats, Int64s, Ints, Matrix, as_rows, check_float, check_int
from treetop.tree.tree import Tree

DIRECTIONS = 16
SAMPLE = 20_000  # vectors that directions are found from
NAMES = ("start", "group", "share")


@dataclass(frozen=True, eq=False)
class Coverage:
    """Which of `groups` groups each arm covers, and how much of each, in [0, 1]: rows of arms, as sparse rows are.
    `saturation` is which part of what the others of its group earn an arm takes, if it earns 1.

    >>> Coverage.of_categories(["tea", "tea", "coffee", None]).shares().tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """

    start: Int64s
    group: Ints
    share: Float32s
    groups: int
    saturation: float = 0.0

    @classmethod
    def of_categories(cls, categories: Sequence[Hashable | None]) -> Coverage:
        """An arm covers its category; one that has none covers nothing."""
        number: dict[Hashable, int] = {}
        group = [number.setdefault(name, len(number)) for name in categories if name is not None]
        has = np.array([name is not None for name in categories], np.int64)
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(has)])
        return cls(start, np.array(group, np.int32), np.ones(len(group), np.float32), max(1, len(number)))

    @classmethod
    def of_vectors(cls, vectors: Matrix, directions: int = DIRECTIONS, seed: int = 0) -> Coverage:
        """An arm covers each of the main directions of all vectors by the squared cosine of its own to it.

        >>> Coverage.of_vectors(np.eye(3), directions=3).shares().sum(axis=1).round(3).tolist()
        [1.0, 1.0, 1.0]
        """
        rows = as_rows(vectors, what="vectors").csr()
        d = min(check_int("directions", directions, 1, 1024), rows.shape[1])
        some = np.random.default_rng(seed).permutation(rows.shape[0])[:SAMPLE]
        products = np.asarray((rows[some].T @ rows[some]).todense(), np.float64)
        main = np.linalg.eigh(products)[1][:, ::-1][:, :d]
        length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1), np.float64))
        share = (np.asarray(rows @ main) / np.maximum(length, 1e-30)) ** 2
        n = rows.shape[0]
        start = np.arange(n + 1, dtype=np.int64) * d
        group = np.tile(np.arange(d, dtype=np.int32), n)
        return cls(start, group, np.clip(share, 0, 1).astype(np.float32).ravel(), d)

    def __len__(self) -> int:
        return len(self.start) - 1

    def check_fits(self, arms: int) -> None:
        """Raises ValueError unless there is a row for each of so many arms, with shares in [0, 1].

        >>> Coverage.of_categories(["tea"]).check_fits(2)
        Traceback (most recent call last):
        ValueError: coverage of 1 arms does not fit a model of 2
        """
        check_float("saturation", self.saturation, 0, 1)
        if len(self) != arms:
            raise ValueError(f"coverage of {len(self)} arms does not fit a model of {arms}")
        rises = self.start[0] == 0 and (np.diff(self.start) >= 0).all() and self.start[-1] == len(self.group)
        if not rises or len(self.group) != len(self.share):
            raise ValueError(f"coverage has {len(self.group)} groups and {len(self.share)} shares in uneven rows")
        if len(self.share) and not (self.share.min() >= 0 and self.share.max() <= 1):
            raise ValueError(f"coverage has shares from {self.share.min():g} to {self.share.max():g}; [0, 1] is needed")
        if len(self.group) and not (self.group.min() >= 0 and self.group.max() < self.groups):
            raise ValueError(f"coverage has a group {self.group.max()}; there are {self.groups}")

    def shares(self) -> Floats:
        """(n_arms, groups), dense: for small catalogues."""
        table = np.zeros((len(self), self.groups))
        np.add.at(table, (np.repeat(np.arange(len(self)), np.diff(self.start)), self.group), self.share)
        return table

    def grown(self, tree: Tree, beside: Sequence[Sequence[int]] | None = None) -> Coverage:
        """With the arms that a larger tree has more. A new one covers what the old ones that it belongs to (`beside`,
        such as those of its category) do on average; if there are none, what those of its leaf do.

        >>> two, tree = Coverage.of_categories(["tea", "jam"]), Tree(parents=[-1, 0], leaf_of=[1, 1, 1, 1])
        >>> two.grown(tree, beside=[[1], []]).shares().tolist()[2:]
        [[0.0, 1.0], [0.5, 0.5]]
        """
        old = len(self)
        lists: dict[int, Any] = {}  # many arms share one list, such as that of their category
        which = [-1 - leaf for leaf in tree.leaf_of[old:].tolist()]  # those of a leaf are below 0
        for i, arms in enumerate(beside or ()):
            if len(arms):
                which[i] = id(arms)
                lists[id(arms)] = arms
        for leaf in {-1 - mine for mine in which if mine < 0}:
            below = tree.arms_below(leaf)
            lists[-1 - leaf] = below[below < old]
        means = self.means(list(lists.values()))
        row = {mine: i for i, mine in enumerate(lists)}
        new = means.of(np.array([row[mine] for mine in which], np.int64))
        start = np.concatenate([self.start, self.start[-1] + new.start[1:]])
        group, share = (np.concatenate([getattr(self, name), getattr(new, name)]) for name in ("group", "share"))
        return replace(self, start=start, group=group, share=share)

    def of(self, arms: Int64s) -> Coverage:
        """That of some arms, in their order.

        >>> Coverage.of_categories(["tea", "jam"]).of(np.array([1, 1, 0])).shares().tolist()
        [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
        """
        length = self.start[arms + 1] - self.start[arms]
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
        there = np.repeat(self.start[arms] - start[:-1], length) + np.arange(start[-1])
        return replace(self, start=start, group=self.group[there], share=self.share[there])

    def means(self, lists: Sequence[Sequence[int] | Ints]) -> Coverage:
        """What the arms of each list cover on average, a row a list.

        >>> Coverage.of_categories(["tea", "tea", "jam"]).means([[0, 2], [1]]).shares().tolist()
        [[0.5, 0.5], [1.0, 0.0]]
        """
        sizes = np.array([len(arms) for arms in lists], np.int64)
        listed = np.concatenate([np.zeros(0, np.int64), *(np.asarray(arms, np.int64) for arms in lists)])
        each = self.of(listed)
        row = np.repeat(np.repeat(np.arange(len(lists)), sizes), np.diff(each.start))
        keys, at = np.unique(row * self.groups + each.group, return_inverse=True)
        share = np.bincount(at, each.share, len(keys)) / sizes[keys // self.groups]
        start = np.searchsorted(keys, np.arange(len(lists) + 1) * self.groups)
        group = (keys % self.groups).astype(np.int32)
        return replace(self, start=start.astype(np.int64), group=group, share=share.astype(np.float32))


def load_coverage(arrays: dict[str, Any], groups: int | None, saturation: float = 0.0) -> Coverage | None:
    """What a saved model has of it.

    >>> load_coverage({}, None) is None
    True
    """
    if groups is None:
        return None
    start, group, share = (arrays[f"coverage_{name}"] for name in NAMES)
    return Coverage(start, group, share, check_int("coverage", groups, 1), saturation)
