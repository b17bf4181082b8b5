"""Section 4's motivating example: arms as points, a 2^d-ary hierarchy, adaptive search. Its illustrations, how many
effective arms there are as arms become more, and how much rewards differ below a pruned node."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treetop.arrays import Floats, Ints, as_rows, check_int
from treetop.model.model import Model
from treetop.paper.run_cache import RunCache
from treetop.policy.eligibility import EVERY_ARM
from treetop.policy.search import CandidateRows, search_batch
from treetop.report.sections import Line, Panel, Section, Table, number
from treetop.tree.tree import Tree

SIZES, QUICK_SIZES = (1_000, 8_000, 64_000, 512_000, 1_000_000), (1_000, 8_000, 64_000)  # arms
BETAS = {1: 0.5, 2: 0.7, 3: 0.8}  # by dimension; with a smaller one a thousand arms in space are all near
LEAF, CONTEXTS = 10, 200
ETA = 0.1  # of the rewards whose spread is measured
SHADES = 8  # of a function's values
DRAWN_ARMS, DRAWN_LEAF, DRAWN_BETA, DRAWN_CONTEXT = 64, 2, 0.5, 0.37  # of the illustrations


def halving_tree(points: Any, max_leaf: int = LEAF) -> Tree:
    """The balanced 2^d-ary hierarchy of points in d dimensions: a node is halved along every axis in turn.

    >>> halving_tree(np.linspace(0, 1, 8)[:, None], max_leaf=2).parents.tolist()
    [-1, 0, 0, 1, 1, 2, 2]
    """
    points = np.asarray(points, np.float64)
    n, d = points.shape
    check_int("max_leaf", max_leaf, 1)
    parents, group, first, nodes = [-1], np.zeros(n, np.int64), 0, 1
    while math.ceil(n / nodes) > max_leaf:
        for axis in range(d):
            order = np.lexsort((points[:, axis], group))
            begin = np.searchsorted(group[order], group[order])
            size = np.bincount(group, minlength=int(group.max()) + 1)[group[order]]
            upper = (np.arange(n) - begin) >= (size + 1) // 2
            group[order] = 2 * group[order] + upper
        parents += [first + i // 2**d for i in range(nodes * 2**d)]
        first, nodes = first + nodes, nodes * 2**d
    return Tree(np.array(parents, np.int32), (first + group).astype(np.int32))


def adaptive(points: Any, contexts: Any, beta: float, max_leaf: int = LEAF) -> tuple[Model, CandidateRows]:
    """The model of Section 4 on these points, and the effective arms of every context.

    >>> points = np.linspace(0, 1, 64)[:, None]
    >>> model, found = adaptive(points, [[0.2], [0.9]], beta=0.5, max_leaf=2)
    >>> bool((np.diff(found.start) < 64).all())
    True
    """
    model = Model.from_vectors(halving_tree(points, max_leaf), np.asarray(points, np.float32))
    return model, search_batch(model, as_rows(contexts), 1, beta, 1, EVERY_ARM)


def effective_arms(arms: int, d: int, beta: float, contexts: int = CONTEXTS, seed: int = 0) -> Floats:
    """(contexts,): |A_x| for contexts and arms that are uniform in the unit cube.

    >>> few, many = effective_arms(200, 1, 0.5).mean(), effective_arms(6400, 1, 0.5).mean()
    >>> bool(few < many < 3 * few)
    True
    """
    rng = np.random.default_rng([seed, d, arms])
    _, found = adaptive(rng.random((arms, d)), rng.random((contexts, d)), beta)
    return np.diff(found.start).astype(np.float64)


def largest_spread(arms: int, d: int, beta: float, seed: int = 0) -> float:
    """How much the rewards of arms below one pruned node differ at most, for r(x, a) = -eta log |x - a|.

    Their gradient is eta / |x - a|, as steep as the paper allows, so that 2 eta beta / (1 - beta) is the bound.

    >>> largest_spread(200, 1, beta=0.5) <= 2 * ETA * 0.5 / (1 - 0.5)
    True
    """
    rng = np.random.default_rng([seed, d, arms])
    points, contexts = rng.random((arms, d)), rng.random((50, d))
    model, found = adaptive(points, contexts, beta)
    points, contexts = points.astype(np.float32).astype(float), contexts.astype(np.float32).astype(float)
    largest = 0.0
    for i, x in enumerate(contexts):
        mine = slice(*found.start[i : i + 2])
        for node in found.id[mine][found.is_node[mine]].tolist():
            far = np.sqrt(((points[model.tree.arms_below(node)] - x) ** 2).sum(axis=1))
            largest = max(largest, ETA * float(np.log(far.max() / far.min())))
    return largest


def hierarchy(cache: RunCache) -> Section:
    """The section; it needs no dataset.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     found = hierarchy(RunCache(("debian",), (0,), Path(folder), quick=True))
    ...     [panel.kind for panel in found.panels], len(found.data["rows"])
    (['intervals', 'intervals', 'intervals'], 9)
    """
    rows = []
    for d, beta in BETAS.items():
        for arms in QUICK_SIZES if cache.quick else SIZES:
            bound = 2 * ETA * beta / (1 - beta)
            spread = largest_spread(arms, d, beta)
            mean = float(effective_arms(arms, d, beta).mean())
            rows.append({"d": d, "beta": beta, "arms": arms, "effective": mean, "spread": spread, "bound": bound})
    columns = ("d", "beta", "arms", "effective arms, mean", "for every doubling of arms", "spread", "bound")
    note = (
        f"Arms and contexts are uniform, leaves hold at most {LEAF} arms; {CONTEXTS} contexts. Spread: the largest "
        f"difference of rewards below one pruned node, for r = -{ETA} log |x - a|, of 50 contexts; bound: 2 eta beta / "
        "(1 - beta)."
    )
    return Section(
        "hierarchy",
        "The hierarchy and adaptive search (Section 4)",
        "Figure 1: (a) the search for one context: a node that is near is searched further, one that is far stands for "
        "all its arms; (b) the effective arms of every context. Figure 2: (c) a function f(x, a) that is constant on "
        "every effective arm, here the mean of exp(-5 |x - a|) over its arms.",
        (Table("", columns, tuple(_cells(rows, i) for i in range(len(rows))), note, left=0),),
        (_search_panel(), _decomposition_panel(), _constant_panel()),
        {"rows": rows},
        {"leaf": LEAF, "contexts": CONTEXTS, "eta": ETA},
    )


def _cells(rows: list[dict[str, Any]], i: int) -> tuple[str, ...]:
    row, growth = rows[i], "-"
    if i > 0 and rows[i - 1]["d"] == row["d"]:
        doublings = math.log2(row["arms"] / rows[i - 1]["arms"])
        growth = f"{(row['effective'] - rows[i - 1]['effective']) / doublings:+.1f}"
    return (
        str(row["d"]),
        f"{row['beta']:g}",
        f"{row['arms']:,}",
        f"{row['effective']:.1f}",
        growth,
        number(row["spread"]),
        number(row["bound"]),
    )


def _drawn() -> Floats:
    """Arms on a line, as the illustrations have them."""
    return np.sort(np.random.default_rng(4).random(DRAWN_ARMS))[:, None]


def _cells_of(tree: Tree, points: Floats) -> tuple[Floats, Floats]:
    """The stretch of the line that belongs to every node: cells of siblings meet half-way between their arms."""
    ordered = points[tree.arm_at, 0]
    edges = np.concatenate([[0.0], (ordered[1:] + ordered[:-1]) / 2, [1.0]])
    return edges[tree.begin], edges[tree.end]


def _lines(
    parts: dict[str, list[tuple[float, float, float]]], styles: dict[str, str] | None = None
) -> tuple[Line, ...]:
    """A line a kind of stretch: (row, low, high) each."""
    lines = []
    for name, found in parts.items():
        y, low, high = (
            tuple(float(v) for v in values) for values in (zip(*found, strict=True) if found else ((), (), ()))
        )
        lines.append(Line(name, (styles or {}).get(name, name), y, low=low, high=high))
    return tuple(lines)


NEAR, FAR, SINGLE = "near: searched further", "far: one effective arm", "single arm"


def _search_panel() -> Panel:
    points = _drawn()
    model, found = adaptive(points, [[DRAWN_CONTEXT]], DRAWN_BETA, DRAWN_LEAF)
    tree, (low, high) = model.tree, _cells_of(model.tree, points)
    pruned = set(found.id[found.is_node].tolist())
    levels: Ints = tree.levels()
    parts: dict[str, list[tuple[float, float, float]]] = {NEAR: [], FAR: [], SINGLE: []}
    searched = {0}
    for node in range(tree.n_nodes):
        if node in searched or (int(tree.parents[node]) in searched and node not in pruned):
            searched.add(node)
            parts[NEAR].append((float(levels[node]), low[node], high[node]))
        elif node in pruned:
            parts[FAR].append((float(levels[node]), low[node], high[node]))
    for arm in found.id[~found.is_node].tolist():
        parts[SINGLE].append((float(tree.depth + 1), points[arm, 0], points[arm, 0]))
    title = f"The search for x = {DRAWN_CONTEXT:g}, beta = {DRAWN_BETA:g}"
    return Panel(title, _lines(parts), "level", "intervals", ("arms",), (DRAWN_CONTEXT,))


def _decomposition_panel() -> Panel:
    points = _drawn()
    contexts = (np.arange(DRAWN_ARMS) + 0.5)[:, None] / DRAWN_ARMS
    model, found = adaptive(points, contexts, DRAWN_BETA, DRAWN_LEAF)
    low, high = _cells_of(model.tree, points)
    leaf = model.tree.leaf_of
    parts: dict[str, list[tuple[float, float, float]]] = {FAR: [], SINGLE: []}
    for i in range(len(contexts)):
        mine = slice(*found.start[i : i + 2])
        nodes, ids = found.is_node[mine], found.id[mine]
        parts[FAR] += [(float(i), low[node], high[node]) for node in ids[nodes].tolist()]
        parts[SINGLE] += [(float(i), low[node], high[node]) for node in sorted(set(leaf[ids[~nodes]].tolist()))]
    return Panel("Effective arms of every context", _lines(parts), "context x", "intervals", ("arms",))


def _constant_panel() -> Panel:
    """A function that is constant in the arm on every effective arm: the mean of exp(-5 |x - a|) over its arms."""
    points = _drawn()
    contexts = (np.arange(DRAWN_ARMS) + 0.5)[:, None] / DRAWN_ARMS
    model, found = adaptive(points, contexts, DRAWN_BETA, DRAWN_LEAF)
    tree, (low, high) = model.tree, _cells_of(model.tree, points)
    edges = np.concatenate([[0.0], (points[tree.arm_at, 0][1:] + points[tree.arm_at, 0][:-1]) / 2, [1.0]])
    names = [f"f up to {(i + 1) / SHADES:.2f}" for i in range(SHADES)]
    parts: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for i, x in enumerate(contexts[:, 0]):
        rewards = np.exp(-5 * np.abs(points[:, 0] - x))
        for j in range(found.start[i], found.start[i + 1]):
            at = int(found.id[j])
            if found.is_node[j]:
                value, stretch = float(rewards[tree.arms_below(at)].mean()), (low[at], high[at])
            else:
                place = int(tree.position_of[at])
                value, stretch = float(rewards[at]), (edges[place], edges[place + 1])
            parts[names[min(int(value * SHADES), SHADES - 1)]].append((float(i), *stretch))
    styles = {name: f"shade {i}" for i, name in enumerate(names)}
    return Panel("f(x, a), constant on every effective arm", _lines(parts, styles), "context x", "intervals", ("arms",))
