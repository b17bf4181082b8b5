"""Arms that join a model in use: a place each, no leaf too full, exact propensities, a chance at once."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.problems import Problem
from hypothesis import given, settings
from hypothesis import strategies as st

import treetop
from treetop.bandit.growth import grow
from treetop.bandit.places import ALIKE


def leaf_sizes(tree: treetop.Tree) -> list[int]:
    return [int(n) for n in np.bincount(tree.leaf_of, minlength=tree.n_nodes)]


@pytest.mark.parametrize("count", [1, 7, 60, 500])
@pytest.mark.parametrize("described", [False, True])
def test_no_leaf_is_too_full_and_old_arms_stay(
    learned: treetop.Model, problem: Problem, count: int, described: bool
) -> None:
    vectors = problem.X[np.arange(count) % problem.X.shape[0]] if described else None
    model = grow(learned, count, max_leaf=4, vectors=vectors)
    assert model.n_arms == learned.n_arms + count
    assert max(leaf_sizes(model.tree)) <= 4
    assert (model.tree.parents[: learned.tree.n_nodes] == learned.tree.parents).all()
    for arm in range(learned.n_arms):  # an old arm is where it was, or below
        node = model.tree.leaf_of[arm]
        while node >= learned.tree.n_nodes:
            node = model.tree.parents[node]
        assert node == learned.tree.leaf_of[arm]
    nodes = model.tree.n_nodes
    before, after = learned.rewards.toarray(), model.rewards.toarray()
    assert (after[nodes : nodes + learned.n_arms] == before[learned.tree.n_nodes :]).all()
    assert (after[nodes + learned.n_arms :] == 0).all()
    assert (after[: learned.tree.n_nodes] == before[: learned.tree.n_nodes]).all()


def test_an_arm_goes_to_the_leaf_that_its_vector_is_routed_to(learned: treetop.Model, problem: Problem) -> None:
    policy = treetop.Policy(k=1, explore=0, beam=10)
    for row in range(20):
        view = policy.explain(learned, problem.X[row])
        best = learned.tree.leaf_of[view.id[~view.is_node][view.route[~view.is_node].argmax()]]
        grown = grow(learned, 1, max_leaf=50, vectors=problem.X[row])
        assert grown.tree.leaf_of[-1] == best


def test_without_room_nearby_the_nearest_leaf_is_split(learned: treetop.Model, problem: Problem) -> None:
    full = max(leaf_sizes(learned.tree))
    before = grow(learned, 60 * full, max_leaf=full)  # many: every leaf is full or nearly so
    near = grow(before, 12, max_leaf=full, vectors=problem.X[[0] * 12])
    homes = {int(near.tree.leaf_of[a]) for a in range(before.n_arms, near.n_arms)}
    assert max(leaf_sizes(near.tree)) <= full
    assert len(homes) <= 12


def test_what_was_split_is_routed_as_the_whole_was(learned: treetop.Model, problem: Problem) -> None:
    """With a beam over everything the old arms keep their scores and routes to the last bit."""
    wide = treetop.Policy(k=1, explore=0, beam=10_000)
    grown = grow(learned, 300, max_leaf=4)
    for row in range(10):
        old, new = wide.explain(learned, problem.X[row]), wide.explain(grown, problem.X[row])
        assert (new.id[: learned.n_arms] == old.id).all()
        assert (new.score[: learned.n_arms] == old.score).all()
        np.testing.assert_allclose(new.route[: learned.n_arms], old.route, rtol=1e-6)
        assert (new.score[learned.n_arms :] == 0).all()


def leaves_alike(old: treetop.Model, tree: treetop.Tree) -> list[int]:
    """How many leaves each leaf of an old model has become; all of them have its score."""
    inner = set(tree.parents.tolist())
    count = dict.fromkeys(set(range(old.tree.n_nodes)) - set(old.tree.parents.tolist()), 0)
    for node in set(range(tree.n_nodes)) - inner:
        while node >= old.tree.n_nodes:
            node = int(tree.parents[node])
        count[node] += 1
    return list(count.values())


@pytest.mark.parametrize("calls", [1, 4])
def test_parts_of_one_leaf_do_not_crowd_the_beam(problem: Problem, calls: int) -> None:
    """Half of the arms have one vector, of the others nothing is known: the second filled up what the first split."""
    tree = treetop.Tree.from_vectors(problem.X[:120], max_leaf=4)
    rooms = treetop.Model.initial(tree, problem.X[:120], sp.identity(120, np.float32, "csr"))
    places = 8 * int((np.bincount(tree.parents[1:], minlength=tree.n_nodes) == 0).sum())
    late = (places - 120) // 2
    model, blank = rooms, np.zeros((late, problem.X.shape[1]), np.float32)
    blank[::2] = problem.X[0].toarray()
    for some in np.array_split(blank, calls):
        model = grow(model, len(some), max_leaf=8, vectors=some)
    assert max(leaf_sizes(model.tree)) <= 8
    assert max(leaves_alike(rooms, model.tree)) <= ALIKE  # there is room elsewhere
    policy = treetop.Policy(k=1, explore=0, beam=10)
    for row in range(20):
        before, after = policy.explain(rooms, problem.X[row]), policy.explain(model, problem.X[row])
        seen = set(before.id[~before.is_node].tolist()) & set(after.id[~after.is_node].tolist())
        assert len(seen) >= (~before.is_node).sum() / ALIKE


def test_many_arms_in_one_place_leave_the_tree_low() -> None:
    """Always the first part was split again: 600 arms made 150 levels."""
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    tree = treetop.Tree.from_vectors(vectors, max_leaf=4, metric="cosine")
    model = grow(treetop.Model.from_vectors(tree, vectors, "cosine"), 2000, max_leaf=4, vectors=vectors[[0] * 2000])
    assert max(leaf_sizes(model.tree)) <= 4
    assert model.tree.depth <= tree.depth + 12


def test_full_leaves_are_split_evenly(learned: treetop.Model) -> None:
    grown = grow(learned, 40 * learned.n_arms, max_leaf=4)
    parts = leaves_alike(learned, grown.tree)
    assert max(parts) - min(parts) <= 1


def test_geometric_routing_grows_too() -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    tree = treetop.Tree.from_vectors(vectors, max_leaf=4)
    model = grow(treetop.Model.from_vectors(tree, vectors), 30, max_leaf=4, vectors=vectors[:30] + 0.01)
    assert max(leaf_sizes(model.tree)) <= 4
    d = treetop.Policy(k=5, explore=3).decide_batch(model, vectors, seed=0)
    assert (d.arms >= 0).all()
    assert (d.propensities > 0).all()


def test_a_new_arm_has_a_chance_at_once_and_propensities_are_exact(learned: treetop.Model, problem: Problem) -> None:
    """Drawn frequencies of the new arms against the stated chances, over many events of one context."""
    model = grow(learned, 40, max_leaf=4)
    policy = treetop.Policy(k=1, explore=1, beam=3, strategy=treetop.IGW(C=0.01))
    view = policy.explain(model, problem.X[0])
    chance = np.zeros(model.n_arms)
    for is_node, id_, p in zip(view.is_node, view.id, view.probability, strict=True):
        below = model.tree.arms_below(int(id_)) if is_node else [id_]
        chance[below] += p / len(below)
    assert (chance > 0).all()
    n = 200_000
    d = policy.decide_batch(model, problem.X[np.zeros(n, int)], seed=1)
    drawn = np.bincount(d.arms[:, 0], minlength=model.n_arms)
    chi = ((drawn - n * chance) ** 2 / (n * chance)).sum()
    assert chi < model.n_arms + 6 * np.sqrt(2 * model.n_arms)
    np.testing.assert_allclose(d.propensities[:, 0], chance[d.arms[:, 0]], rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(arms=st.integers(1, 30), max_leaf=st.integers(2, 6), adds=st.lists(st.integers(1, 15), max_size=4))
def test_growing_again_and_again(arms: int, max_leaf: int, adds: list[int]) -> None:
    vectors = np.random.default_rng(arms).random((arms, 5)).astype(np.float32)
    tree = treetop.Tree.from_vectors(vectors, max_leaf=max_leaf)
    model = treetop.Model.from_vectors(tree, vectors)
    for count in adds:
        model = grow(model, count, max_leaf)
    assert model.n_arms == arms + sum(adds)
    assert max(leaf_sizes(model.tree)) <= max_leaf
    d = treetop.Policy(k=3, explore=2, beam=2).decide(model, vectors[0], event_id="x")
    assert len(set(d.arms.tolist())) == min(3, model.n_arms)


def test_leaves_of_one_arm() -> None:
    model = treetop.Model.from_weights(
        treetop.Tree(np.array([-1], np.int32), np.array([0], np.int32)), np.zeros((1, 3)), np.zeros((2, 3))
    )
    grown = grow(model, 5, max_leaf=1)
    assert sorted(leaf_sizes(grown.tree)) == [0] * (grown.tree.n_nodes - 6) + [1] * 6


def test_fifty_thousand_arms_at_once() -> None:
    """Would take an hour if every arm looked at all others."""
    vectors = np.random.default_rng(0).random((5_000, 4)).astype(np.float32)
    model = treetop.Model.from_vectors(treetop.Tree.from_vectors(vectors, max_leaf=10), vectors)
    grown = grow(model, 50_000, max_leaf=10)
    assert max(leaf_sizes(grown.tree)) <= 10


@pytest.mark.parametrize(
    ("count", "max_leaf", "vectors", "message"),
    [
        (0, 4, None, "count is 0; it must lie in [1"),
        (1, 0, None, "max_leaf is 0"),
        (2, 4, np.ones((1, 40)), "there are 1 vectors for 2 new arms"),
        (1, 4, np.ones((1, 3)), "arm vectors have 3 features; the model has 40"),
    ],
)
def test_bad_input(learned: treetop.Model, count: int, max_leaf: int, vectors: object, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        grow(learned, count, max_leaf, vectors)


@given(seed=st.integers(0, 2**31), steps=st.integers(1, 8))
def test_removed_arms_leave_their_room(seed: int, steps: int) -> None:
    """While as many arms go as come, leaves stay as full as they were, and the tree hardly grows."""
    rng, max_leaf = np.random.default_rng(seed), 4
    vectors = rng.normal(size=(32, 3)).astype(np.float32)
    model = treetop.Model.from_vectors(treetop.Tree.from_vectors(vectors, max_leaf=max_leaf), vectors)
    removed = np.zeros(32, np.bool_)
    for _ in range(steps):
        removed[rng.choice(np.flatnonzero(~removed), 8, replace=False)] = True
        plain = grow(model, 8, max_leaf).tree.n_nodes
        model = grow(model, 8, max_leaf, removed=removed)
        assert model.tree.n_nodes <= plain
        removed = np.concatenate([removed, np.zeros(8, np.bool_)])
        there = np.bincount(model.tree.leaf_of[~removed], minlength=model.tree.n_nodes)
        all_of = np.bincount(model.tree.leaf_of, minlength=model.tree.n_nodes)
        assert there.max() <= max_leaf
        assert all_of.max() <= 2 * max_leaf
    with pytest.raises(ValueError, match="flags say which"):
        grow(model, 1, max_leaf, removed=removed[:-1])
