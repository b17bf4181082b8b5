"""Prepared masks decide as their lists do; contexts in order take the quick way and decide the same."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.problems import Problem
from helpers.strategies import ALL, ONLY, Case, cases, csr, engine, many
from hypothesis import given
from hypothesis import strategies as st

import treetop
from treetop import _core

NOBODY, ONE_LIST = np.empty(0, np.int32), np.empty(0, np.int64)
HEADER, DIRECTORY = 128, 32  # bytes of the header and of an entry
CHECKSUM, DIRECTORY_CHECKSUM = 124, 68  # where they are in the header


@many
@given(cases, st.integers(1, 6))
def test_a_mask_is_its_list(case: Case, beam: int) -> None:
    tree, serving = case.model.tree, engine(case.model)
    begin, end = _core.layout(tree.parents, tree.leaf_of)[:2]
    kind, positions = case.eligible.kind, case.eligible.positions(tree)
    mask = _core.Mask(begin, end, positions, tree.n_arms, kind == ONLY)
    for node in range(tree.n_nodes):
        ends = int(begin[node]), int(end[node])
        assert mask.below(node, *ends) == mask.count(*ends) == len(set(tree.arms_below(node)) & case.eligible_arms)
    counting = _core.Mask.filtered(tree.n_arms, tree.n_nodes, [], mask, None, NOBODY)  # counts when it is asked
    ways: Any = (kind, positions, None), (ALL, NOBODY, mask), (ALL, NOBODY, counting)
    a, b, e = (serving.search(*csr(case.x), 4, beam, -1.0, *way) for way in ways)
    key = np.array([7], np.int64)
    c, d, f = (
        serving.decide(*csr(case.x), key, 4, 2, beam, -1.0, 1, 3.0, kind, listed, ONE_LIST, 1, mask)
        for kind, listed, mask in ways
    )
    pairs: list[Any] = [
        *zip(a, b, strict=True),
        *zip(a, e, strict=True),
        *zip(c, d, strict=True),
        *zip(c, f, strict=True),
    ]
    assert all(one.tobytes() == other.tobytes() for one, other in pairs)
    for node in (n for n in range(tree.n_nodes) if mask.below(n, int(begin[n]), int(end[n]))):
        for number in range(5):
            assert len({serving.arm_below(node, number, 0, *way) for way in ways}) == 1


def test_masks_over_many_words() -> None:
    """Past the sizes of the random trees: ranks and picks across strides of 512 positions."""
    parents, leaf_of = np.array([-1, 0, 0], np.int32), np.repeat([1, 2], [1700, 1300]).astype(np.int32)
    begin, end = _core.layout(parents, leaf_of)[:2]
    no_weights = (np.zeros(4, np.int64), NOBODY, np.empty(0, np.float32))
    no_rewards = (np.zeros(3004, np.int64), NOBODY, np.empty(0, np.float32))
    serving = _core.Engine(parents, leaf_of, *no_weights, *no_rewards, 2, False, 1)
    listed = np.flatnonzero(np.random.default_rng(0).random(3000) < 0.3).astype(np.int32)
    for kind in (1, 2):
        mask = _core.Mask(begin, end, listed, 3000, kind == ONLY)
        for node in range(3):
            for key in range(300):
                plain = serving.arm_below(node, key, 1, kind, listed)
                assert serving.arm_below(node, key, 1, ALL, NOBODY, mask) == plain


def test_a_mask_of_another_tree_is_refused(problem: Problem, learned: treetop.Model) -> None:
    tree = problem.tree
    other = _core.Mask(tree.begin[:3].copy(), tree.end[:3].copy(), np.array([1], np.int32), tree.n_arms, True)
    x = treetop.arrays.as_rows(problem.X[0])
    with pytest.raises(ValueError, match="the mask is for 60 arms and 3 nodes, the model has 60 and"):
        learned.engine.search(x.start, x.index, x.value, 1, 1, -1.0, ALL, NOBODY, other)
    for wrong, why in (([60], "position 60 is outside"), ([-1], "position -1 is outside"), ([3, 3], "rise strictly")):
        with pytest.raises(ValueError, match=why):
            _core.Mask(tree.begin, tree.end, np.array(wrong, np.int32), 60, True)


# -------------------- quick and long way


def test_the_quick_way_decides_like_the_long_one(problem: Problem, learned: treetop.Model) -> None:
    policy = treetop.Policy()
    for i in range(20):
        x = problem.X[i]
        assert x.nnz > 1
        backwards = sp.csr_matrix((x.data[::-1].copy(), x.indices[::-1].copy(), x.indptr), shape=x.shape)
        ways = (x, sp.csr_array(x), treetop.arrays.as_rows(x), backwards, x.astype(np.float64), x.toarray(), x.tocoo())
        some = treetop.Eligible.of(problem.tree, range(0, 60, 2))
        for allowed in (None, some):
            first, *others = (policy.decide(learned, way, event_id=i, eligible=allowed) for way in ways)
            for other in others:
                for name in ("arms", "propensities", "scores", "explored", "nodes"):
                    np.testing.assert_array_equal(getattr(first, name), getattr(other, name))


@pytest.mark.parametrize("share", [0.5, 0.01, 0.0])
def test_a_filter_that_is_computed_as_it_is_asked_for(share: float) -> None:
    """By single bits, by words and from the sets that are kept: always those that meet all conditions."""
    arms, rng = 20_000, np.random.default_rng(0)
    order, flags = rng.permutation(arms).astype(np.int32)[:19_000], rng.permutation(arms).astype(np.int32)
    number = _core.SortedPositions(order, np.linspace(0, len(order), 9).astype(np.int64)[1:], arms)
    flag = _core.SortedPositions(flags, np.array([5000, arms]), arms)
    first = 137
    last = first + int(share * len(order))
    ranges = np.array([first, last] if share else [], np.int64)
    base = _core.Mask(
        np.zeros(1, np.int32), np.full(1, arms, np.int32), np.arange(0, arms, 7, dtype=np.int32), arms, False
    )
    for conditions, mask, expected in (
        ([(number, ranges)], None, {*order[first:last].tolist()}),
        (
            [(number, ranges), (flag, np.array([5000, arms]))],
            None,
            {*order[first:last].tolist()} & {*flags[5000:].tolist()},
        ),
        ([(flag, np.array([0, 5000]))], base, {*flags[:5000].tolist()} - {*range(0, arms, 7)}),
        # Several ranges, one of them empty; few bits are left for the conditions after the first.
        ([(number, [3, 3, 10, 900, 18_000, 19_000])], None, {*order[10:900].tolist(), *order[18_000:].tolist()}),
        (
            [(flag, [0, 5000]), (number, [3, 3, 10, 900, 18_000, 19_000]), (flag, [4000, 9000])],
            base,
            ({*order[10:900].tolist(), *order[18_000:].tolist()} & {*flags[4000:5000].tolist()}) - {*range(0, arms, 7)},
        ),
    ):

        def fresh(conditions: Any = conditions, mask: Any = mask) -> Any:
            return _core.Mask.filtered(arms, 1, conditions, mask, None, NOBODY)

        assert fresh().empty == (not expected)
        assert fresh().positions().tolist() == sorted(expected)
        assert fresh().total == len(expected)
        asked = fresh()
        for begin, width in zip(rng.integers(0, arms - 2000, 60).tolist(), [1, 5, 70, 300, 1900] * 12, strict=True):
            wanted = len(expected & {*range(begin, begin + width)})
            assert fresh().count(begin, begin + width) == asked.count(begin, begin + width) == wanted


def test_places_of_values_in_an_order() -> None:
    values = np.array([-np.inf, 1.0, 1.0, 2.5, 7.0])
    order, cuts = np.arange(5, dtype=np.int32), np.array([5])
    sorted_positions = _core.SortedPositions(order, cuts, 5, values)
    for value in (-1e300, 1.0, 1.5, 2.5, 7.0, 8.0):
        assert sorted_positions.below(value, False) == np.searchsorted(values, value, "left")
        assert sorted_positions.below(value, True) == np.searchsorted(values, value, "right")
    with pytest.raises(ValueError, match="positions without values have none below 1"):
        _core.SortedPositions(order, cuts, 5).below(1.0, False)
    with pytest.raises(ValueError, match="4 values for 5 positions"):
        _core.SortedPositions(order, cuts, 5, values[1:])
    with pytest.raises(ValueError, match="values must not fall"):
        _core.SortedPositions(order, cuts, 5, values[::-1].copy())
