"""Native search against Algorithm 2 and the adaptive search of Section 4, exactly, on random trees."""

from typing import Any

import numpy as np
import pytest
from helpers.reference import Effective, Floats, Model, Tree, search
from helpers.strategies import (
    EVERY_ARM,
    Case,
    Eligible,
    balanced_model,
    cases,
    csr,
    engine,
    everyone,
    geometric_cases,
    linear_cases,
    many,
)
from hypothesis import given
from hypothesis import strategies as st

from treetop import _core

BEAM = -1.0  # a negative beta asks for beam search
betas = st.sampled_from([1.0, 0.75, 0.5, 0.3, 0.125, 0.0])


def native(case: Case, wanted: int, beam: int = 1, beta: float = BEAM) -> list[Effective]:
    """The effective arms of a case, in canonical order."""
    tree = case.model.tree
    positions = case.eligible.positions(tree)
    _, is_node, id, route, score, *_ = engine(case.model).search(
        *csr(case.x), wanted, beam, beta, case.eligible.kind, positions
    )
    rows = zip(is_node.tolist(), id.tolist(), route.tolist(), score.tolist(), strict=True)
    return sorted(Effective(*row) for row in rows)


def arms_of(found: list[Effective], tree: Tree) -> list[int]:
    """All arms behind effective arms, with repetitions if there are any."""
    return [arm for e in found for arm in (tree.arms_below(e.id) if e.is_node else [e.id])]


@many
@given(cases)
def test_layout_is_the_tree(case: Case) -> None:
    tree = case.model.tree
    begin, end, arm_at, position_of, depth = _core.layout(tree.parents, tree.leaf_of)
    assert depth == tree.depth
    for node in range(tree.n_nodes):
        assert sorted(arm_at[begin[node] : end[node]]) == tree.arms_below(node)
    assert (arm_at[position_of] == np.arange(tree.n_arms)).all()


@many
@given(linear_cases, st.integers(1, 8), st.integers(1, 6))
def test_beam_search_is_algorithm_2(case: Case, wanted: int, beam: int) -> None:
    assert native(case, wanted, beam) == search(case.model, case.x, case.eligible_arms, wanted, beam)


@many
@given(geometric_cases, st.integers(1, 8), st.integers(1, 6))
def test_geometric_beam_search_is_algorithm_2(case: Case, wanted: int, beam: int) -> None:
    found = native(case, wanted, beam)
    twin = search(case.model, case.x, case.eligible_arms, wanted, beam)
    assert [(e.is_node, e.id, e.score) for e in found] == [(e.is_node, e.id, e.score) for e in twin]
    np.testing.assert_allclose([e.route for e in found], [e.route for e in twin], rtol=1e-12)


@many
@given(geometric_cases, st.integers(1, 8), betas)
def test_adaptive_search_is_section_4(case: Case, wanted: int, beta: float) -> None:
    found = native(case, wanted, beta=beta)
    twin = search(case.model, case.x, case.eligible_arms, wanted, beta=beta)
    assert [(e.is_node, e.id, e.score) for e in found] == [(e.is_node, e.id, e.score) for e in twin]
    np.testing.assert_allclose([e.route for e in found], [e.route for e in twin], rtol=1e-12)


@many
@given(linear_cases, st.integers(1, 8), betas)
def test_adaptive_search_with_linear_routing(case: Case, wanted: int, beta: float) -> None:
    assert native(case, wanted, beta=beta) == search(case.model, case.x, case.eligible_arms, wanted, beta=beta)


@many
@given(cases, st.integers(1, 25), st.integers(1, 4), st.just(BEAM) | betas)
def test_effective_arms_partition_the_eligible_arms(case: Case, wanted: int, beam: int, beta: float) -> None:
    tree, eligible = case.model.tree, case.eligible_arms
    found = native(case, wanted, beam, beta)
    behind = arms_of(found, tree)
    assert len(behind) == len(set(behind))
    assert set(behind) >= eligible
    for e in found:
        assert eligible & set(tree.arms_below(e.id)) if e.is_node else e.id in eligible
    assert len(found) >= min(wanted, len(eligible)), "the search was not widened"


@many
@given(linear_cases, st.integers(1, 5))
def test_effective_arms_are_few(case: Case, beam: int) -> None:
    tree = case.model.tree
    bound = (tree.branching - 1) * beam * tree.depth + beam * tree.max_leaf  # Section 4, with D levels below the root
    assert len(native(case, 1, beam)) <= bound


@many
@given(linear_cases)
def test_beam_wider_than_every_level_gives_single_arms(case: Case) -> None:
    found = native(case, 1, beam=case.model.tree.n_nodes)
    assert [(e.is_node, e.id) for e in found] == [(False, arm) for arm in sorted(case.eligible_arms)]


@many
@given(cases, st.integers(1, 6))
def test_listing_all_arms_is_no_list(case: Case, beam: int) -> None:
    n_arms = case.model.tree.n_arms
    bare = native(everyone(case), 3, beam)
    for listed in (Eligible(1, tuple(range(n_arms))), Eligible(2, ())):
        assert native(Case(case.model, case.x, listed), 3, beam) == bare


@many
@given(cases, st.integers(1, 4))
def test_number_of_threads_is_invisible(case: Case, beam: int) -> None:
    none = np.empty(0, dtype=np.int32)
    one: Any = engine(case.model, 1).search(*csr(case.x), 1, beam, BEAM, 0, none)
    three: Any = engine(case.model, 3).search(*csr(case.x), 1, beam, BEAM, 0, none)
    for a, b in zip(one, three, strict=True):
        assert a.tobytes() == b.tobytes()


# -------------------- by hand, so that the twin errs not alone


def hand_model(routing: list[float], tree: Tree) -> Model:
    """Routing by the bias alone; the reward of node z is z, of arm a it is a / 8."""
    rewards = np.zeros((tree.n_nodes + tree.n_arms, 2))
    rewards[:, 1] = [*range(tree.n_nodes), *(np.arange(tree.n_arms) / 8)]
    return Model(tree, np.column_stack([np.zeros(tree.n_nodes), routing]), rewards)


def tree_of(parents: list[int], leaf_of: list[int]) -> Tree:
    return Tree(np.array(parents, dtype=np.int32), np.array(leaf_of, dtype=np.int32))


NO_CONTEXT: Floats = np.zeros(1)


def test_a_tree_by_hand() -> None:
    # root 0 -> 1 (leaf, arm 0), 2 -> 3 (arms 1, 2), 4 (arm 3). log g: -1, -1/8, -1/8, -8.
    tree = tree_of([-1, 0, 0, 2, 2], [1, 3, 3, 4])
    model = hand_model([0.0, 0.0, 0.5, 0.5, -1.0], tree)
    found = native(Case(model, NO_CONTEXT, EVERY_ARM), wanted=1, beam=1)
    assert found == [
        Effective(False, 1, -0.25, 0.125),
        Effective(False, 2, -0.25, 0.25),
        Effective(True, 1, -1.0, 1.0),
        Effective(True, 4, -8.125, 4.0),
    ]
    # With two places the early leaf keeps its own against node 4.
    found = native(Case(model, NO_CONTEXT, EVERY_ARM), wanted=1, beam=2)
    assert [(e.is_node, e.id) for e in found] == [(False, 0), (False, 1), (False, 2), (True, 4)]
    # Without arms 1 and 2 node 3 takes no place, and node 2 leads to node 4 alone.
    found = native(Case(model, NO_CONTEXT, Eligible(2, (1, 2))), wanted=1, beam=2)
    assert [(e.is_node, e.id) for e in found] == [(False, 0), (False, 3)]


def test_route_ties_go_to_the_lower_node() -> None:
    tree = tree_of([-1, 0, 0, 0], [3, 2, 1])
    found = native(Case(hand_model([0.0] * 4, tree), NO_CONTEXT, EVERY_ARM), wanted=1, beam=1)
    assert [(e.is_node, e.id) for e in found] == [(False, 2), (True, 2), (True, 3)]


@pytest.mark.parametrize(("wanted", "arms", "nodes"), [(5, 1, 4), (6, 2, 4), (7, 4, 4), (8, 4, 4), (9, 8, 0)])
def test_widening_doubles_the_beam(wanted: int, arms: int, nodes: int) -> None:
    # Eight leaves of one arm, two under each of four nodes: beam 1 finds 1 arm and 4 nodes, 2 finds 2 and 4, 4 finds 4
    # and 4, 8 all 8 arms.
    tree = tree_of([-1, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [5, 6, 7, 8, 9, 10, 11, 12])
    found = native(Case(hand_model([0.0] * 13, tree), NO_CONTEXT, EVERY_ARM), wanted, beam=1)
    assert [e.is_node for e in found] == [False] * arms + [True] * nodes


def test_radius_zero_is_far_until_nothing_else_helps() -> None:
    """Regression: 64 halvings of beta must not overflow the beam that is doubled beside them."""
    tree = tree_of([-1, 0, 0], [1, 1, 2])
    model = Model(tree, np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), np.zeros((6, 2)), geometric=True)
    two = native(Case(model, NO_CONTEXT, EVERY_ARM), wanted=2, beta=0.5)
    assert [(e.is_node, e.id) for e in two] == [(True, 1), (True, 2)]
    three = native(Case(model, NO_CONTEXT, EVERY_ARM), wanted=3, beta=0.5)
    assert [(e.is_node, e.id) for e in three] == [(False, 0), (False, 1), (False, 2)]


def test_search_on_a_larger_tree() -> None:
    """Past the sizes that hypothesis draws: 4-ary, 341 nodes, 768 arms, 40 features."""
    model = balanced_model(5, features=40, branching=4, depth=4)
    rng = np.random.default_rng(6)
    for beam in (1, 2, 7, 30):
        x = np.where(rng.random(40) < 0.2, rng.integers(-8, 9, 40) / 8.0, 0.0)
        listed = tuple(np.flatnonzero(rng.random(model.tree.n_arms) < 0.3).tolist())
        case = Case(model, x, Eligible(1, listed))
        assert native(case, 5, beam) == search(model, x, set(listed), 5, beam)
