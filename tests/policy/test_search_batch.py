"""Many contexts searched in one call of the core: the effective arms of each, as a search for it alone finds them."""

import numpy as np
import pytest
from helpers.problems import Problem

import treetop
from treetop.arrays import as_rows
from treetop.policy.eligibility import EVERY_ARM, Eligible
from treetop.policy.search import search, search_batch


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("some", [False, True])
def test_a_batch_finds_what_single_searches_find(
    problem: Problem, learned: treetop.Model, threads: int, some: bool
) -> None:
    eligible = Eligible.of(learned.tree, np.arange(0, 60, 3)) if some else EVERY_ARM
    rows = as_rows(problem.X[:40])
    found = search_batch(learned, rows, 3, None, 2, eligible, threads=threads)
    assert found.start[0] == 0
    assert found.start[-1] == len(found.id)
    for i in range(40):
        alone, mine = search(learned, rows.row(i), 3, None, 2, eligible), slice(*found.start[i : i + 2])
        assert np.array_equal(alone.id, found.id[mine])
        assert np.array_equal(alone.is_node, found.is_node[mine])
        assert np.array_equal(alone.score, found.score[mine])
        assert np.array_equal(alone.route, np.exp(found.log_route[mine]))
        assert (np.diff(found.is_node[mine].astype(int)) >= 0).all()  # single arms before nodes


def test_no_contexts_have_no_effective_arms(learned: treetop.Model) -> None:
    found = search_batch(learned, as_rows(np.zeros((0, 40))), 3, None, 2, EVERY_ARM)
    assert (found.start.tolist(), len(found.id)) == ([0], 0)
