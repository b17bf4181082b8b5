"""A tree over vectors on many machines: its top levels here, what is below each of their nodes as a task.

All leaves have one depth and every node above them the same number of children, so that a node's number follows from
its level and its position there.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treetop import _core
from treetop.arrays import Ints, Rows, as_rows, map_array
from treetop.effort import Effort, Progress
from treetop.parallel import Machines, map_shards, write_piece

TASKS = 64  # nodes, at least, below which the tree is built elsewhere, if it is deep enough
WHOLE = 0, 0, -1  # what is built: level and position of its root, and as many levels as are needed


@dataclass(frozen=True)
class TreeSettings:
    """How nodes are split, in the order in which the core takes it."""

    branching: int
    max_leaf: int
    cocluster: bool
    iterations: int
    seed: int

    def nodes_above(self, level: int) -> int:
        """How many nodes are above a level, which is the number of its first node.

        >>> [TreeSettings(2, 10, False, 20, 0).nodes_above(level) for level in range(4)]
        [0, 1, 3, 7]
        """
        return int((self.branching**level - 1) // (self.branching - 1))

    def depth(self, arms: int) -> int:
        """How many levels there are below the root.

        >>> TreeSettings(2, 10, False, 20, 0).depth(41)
        3
        """
        found = 0
        while arms > self.max_leaf:
            arms, found = -(-arms // self.branching), found + 1
        return found

    def build(
        self, rows: Rows, threads: int, progress: Progress | None = None, extent: tuple[int, int, int] = WHOLE
    ) -> tuple[Ints, Ints]:
        """Parents and leaves, of the whole tree or of an `extent`: so many levels, the last number, of what is below
        the node at a level and a position of it, which has these arms.

        >>> from treetop.arrays import as_rows
        >>> TreeSettings(2, 1, False, 20, 0).build(as_rows(np.eye(4)), threads=1, extent=(0, 0, 1))[0].tolist()
        [-1, 0, 0]
        """
        vectors = rows.start, rows.index, rows.value, rows.columns
        sizes, how = (self.branching, self.max_leaf), (self.iterations, self.seed, threads)
        return _core.build_hierarchy(*vectors, *sizes, self.cocluster, *how, progress, *extent)


@dataclass(frozen=True)
class Subtree:
    """What is below one node, as a task gets it: the folder has all vectors, and the arms by their node."""

    folder: str
    position: int
    level: int
    levels: int
    columns: int
    settings: TreeSettings
    threads: int


def _build_subtree(part: Subtree) -> str:
    """Builds what is below a node; writes the place of each of its arms among its leaves, and gives the path."""
    folder = Path(part.folder)
    start = map_array(folder / "first.npy")
    arms = np.asarray(map_array(folder / "arms.npy")[int(start[part.position]) : int(start[part.position + 1])])
    rows, index, value = (map_array(folder / f"{name}.npy") for name in ("start", "index", "value"))
    vectors = Rows(rows, index, value, part.columns)
    some = as_rows(vectors.csr()[arms])
    _, leaf = part.settings.build(some, part.threads, extent=(part.level, part.position, part.levels))
    place = leaf - np.int32(part.settings.nodes_above(part.levels))
    return str(write_piece(folder / f"{part.position}.npy", lambda file: np.save(file, place)))


def build_spread(rows: Rows, settings: TreeSettings, effort: Effort) -> tuple[Ints, Ints]:
    """Parents and leaves of the tree of `settings.build`, with the help of the cluster of an effort.

    >>> rows, how = as_rows(np.eye(300, dtype=np.float32)), TreeSettings(2, 2, False, 20, seed=7)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = build_spread(rows, how, Effort(folder=folder))  # no cluster: threads
    >>> [(a == b).all().item() for a, b in zip(found, how.build(rows, threads=1), strict=True)]
    [True, True]
    """
    arms, depth, top = len(rows), settings.depth(len(rows)), 0
    while top < depth and settings.branching**top < TASKS:
        top += 1

    def tell(done: int, total: int, levels: int, before: int = 0) -> None:
        if effort.progress is not None:
            effort.progress(arms * before + arms * levels * done // max(1, total), arms * depth)

    _, node = settings.build(rows, effort.threads, lambda done, total: tell(done, total, top), (0, 0, top))
    machines, count = Machines(effort.ray), settings.branching**top
    node = node - np.int32(settings.nodes_above(top))
    with tempfile.TemporaryDirectory(prefix="tree-", dir=effort.folder) as place:
        folder = Path(place).resolve()
        first = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=count))])
        arrays = {"first": first, "arms": np.argsort(node, kind="stable").astype(np.int32)}
        for name, array in {**arrays, "start": rows.start, "index": rows.index, "value": rows.value}.items():
            np.save(folder / f"{name}.npy", array)
        of_all = top, depth - top, rows.columns, settings, machines.threads
        parts = [Subtree(str(folder), position, *of_all) for position in range(count)]
        pieces = map_shards(_build_subtree, parts, machines, lambda done, total: tell(done, total, depth - top, top))
        leaf_of, leaves = np.empty(arms, np.int32), settings.branching ** (depth - top)
        for position, piece in enumerate(pieces):
            mine = arrays["arms"][first[position] : first[position + 1]]
            leaf_of[mine] = np.load(piece) + settings.nodes_above(depth) + position * leaves
    parents = (np.arange(settings.nodes_above(depth + 1), dtype=np.int32) - 1) // settings.branching
    return parents.astype(np.int32), leaf_of
