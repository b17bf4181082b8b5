"""Section 4's motivating example: few effective arms however many arms, and rewards that hardly differ below a node."""

import json

import numpy as np
import pytest
from helpers.commands import call
from helpers.reference import Floats

from treetop.paper.hierarchy import (
    BETAS,
    ETA,
    FAR,
    NEAR,
    SINGLE,
    adaptive,
    effective_arms,
    halving_tree,
    largest_spread,
)
from treetop.paper.reproduce import claims, reproduce
from treetop.paper.run_cache import RunCache
from treetop.report.sections import Section


@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 1), (100, 2), (1000, 3), (4096, 2)])
def test_the_tree_is_balanced_and_2_to_the_d_ary(n: int, d: int) -> None:
    points = np.random.default_rng(n).random((n, d))
    tree = halving_tree(points, max_leaf=5)
    sizes = tree.sizes[np.unique(tree.leaf_of)]
    assert sizes.max() <= 5
    assert sizes.max() - sizes.min() <= 2**d - 1
    children = np.bincount(tree.parents[1:], minlength=tree.n_nodes) if tree.n_nodes > 1 else np.zeros(1, int)
    assert set(children.tolist()) <= {0, 2**d}
    if d == 1 and n > 1:  # siblings are neighbouring stretches
        ordered = points[tree.arm_at, 0]
        for node in range(1, tree.n_nodes, 2):
            assert (
                ordered[tree.begin[node] : tree.end[node]].max()
                < ordered[tree.begin[node + 1] : tree.end[node + 1]].min()
            )


@pytest.mark.parametrize(("d", "first", "factor"), [(1, 500, 16), (2, 500, 16), (3, 2_000, 8)])
def test_effective_arms_grow_like_the_logarithm(d: int, first: int, factor: int) -> None:
    """Each time so many times as many arms, in trees whose leaves are alike; the square root would add 4 times as many,
    or 2.8 times."""
    sizes = [first, first * factor, first * factor**2]
    few, some, many = (effective_arms(arms, d, BETAS[d], contexts=100).mean() for arms in sizes)
    assert few < some < many < 4 * few
    assert many - some < 2 * (some - few)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("beta", [0.3, 0.6, 0.9])
def test_rewards_below_a_pruned_node_differ_by_the_bound_at_most(d: int, beta: float) -> None:
    bound = 2 * ETA * beta / (1 - beta)
    for arms in (500, 20_000):
        assert largest_spread(arms, d, beta) <= bound


def test_the_bound_holds_where_float32_cannot_tell_distances() -> None:
    """100,000 arms on a line: nodes of ten are a ten-thousandth wide."""
    spread, bound = largest_spread(100_000, 1, 0.5), 2 * ETA
    assert bound / 4 < spread <= bound


def test_a_larger_beta_prunes_more_and_differs_more() -> None:
    sizes = [effective_arms(4_000, 2, beta).mean() for beta in (0.4, 0.6, 0.8)]
    assert sizes[0] > sizes[1] > sizes[2]
    assert largest_spread(4_000, 2, 0.2) < largest_spread(4_000, 2, 0.9)


def near(points: Floats, x: float, beta: float) -> tuple[set[int], set[int]]:
    """Section 4 in float64: pruned nodes and single arms."""
    tree = halving_tree(points, 4)
    values = points.astype(np.float32).astype(float)[:, 0]
    pruned, single, waiting = set(), set(), [0]
    while waiting:
        node = waiting.pop()
        below = values[tree.arms_below(node)]
        centre = float(np.float32(below.mean()))
        if node and np.abs(below - below.mean()).max() <= beta * abs(float(np.float32(x)) - centre):
            pruned.add(node)
        elif (children := np.flatnonzero(tree.parents == node)).size:
            waiting += children.tolist()
        else:
            single |= set(tree.arms_below(node).tolist())
    return pruned, single


def test_near_contexts_are_told_apart() -> None:
    """The search is that of Section 4 although dot products in float32 are too coarse for these distances."""
    points = 1.0 + 1e-3 * np.sort(np.random.default_rng(0).random(2000))[:, None]
    contexts = 1.0 + 1e-3 * np.random.default_rng(1).random((40, 1))
    _, found = adaptive(points, contexts, 0.5, max_leaf=4)
    same = 0
    for i, x in enumerate(contexts[:, 0]):
        mine = slice(*found.start[i : i + 2])
        ids, nodes = found.id[mine], found.is_node[mine]
        pruned, single = near(points, float(x), 0.5)
        same += set(ids[nodes].tolist()) == pruned and set(ids[~nodes].tolist()) == single
    assert same >= 36  # a centre is rounded to float32, too


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> RunCache:
    return RunCache(("debian",), (0,), tmp_path_factory.mktemp("hierarchy"), quick=True)


@pytest.fixture(scope="module")
def reproduced(cache: RunCache) -> Section:
    (section,) = reproduce(cache, ["hierarchy"])
    return section


def test_the_illustrations_partition_the_arms(reproduced: Section) -> None:
    search, every, function = reproduced.panels
    assert [line.name for line in search.lines] == [NEAR, FAR, SINGLE]
    far = search.lines[1]
    covered = sum(b - a for a, b in zip(far.low, far.high, strict=True))
    assert 0.8 < covered < 1  # all but the leaves of the single arms around x
    assert search.lines[2].y
    assert not any(a < search.marks[0] < b for a, b in zip(far.low, far.high, strict=True))
    for panel in (every, function):
        rows: dict[float, float] = {}
        for line in panel.lines:
            for y, a, b in zip(line.y, line.low, line.high, strict=True):
                rows[y] = rows.get(y, 0.0) + b - a
        assert len(rows) == 64
        assert list(rows.values()) == pytest.approx([1.0] * 64)
    assert [line.style for line in function.lines] == [f"shade {i}" for i in range(8)]


def test_it_is_reproduced_by_name_and_not_with_all(cache: RunCache, reproduced: Section) -> None:
    assert (cache.out / "hierarchy.png").read_bytes().startswith(b"\x89PNG")
    assert reproduced.tables[0].markdown() in (cache.out / "hierarchy.md").read_text()
    assert all(row["spread"] <= row["bound"] for row in reproduced.data["rows"])
    assert list(json.loads((cache.out / "reproduce.json").read_text())["sections"]) == ["hierarchy"]
    assert {row[3] for row in claims(cache.out).rows} == {"not measured"}
    call("report", str(cache.out))
    assert "The hierarchy and adaptive search" in (cache.out / "report.html").read_text()
    with pytest.raises(ValueError, match=r"it must be one of tables, .*, hierarchy, all or claims"):
        reproduce(cache, ["figure"])
