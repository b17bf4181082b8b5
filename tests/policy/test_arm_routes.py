"""Routing that ends at the arm and scores that are weighted sums: native search and routes against their slow twin."""

from pathlib import Path

import numpy as np
import pytest
from helpers.reference import Effective, Floats, Model, Tree
from helpers.reference_pooled import Scored, components, cube_root, log_route, scored_search
from helpers.strategies import context, eighths, few, many, random_eligible, random_tree, seeds
from hypothesis import given
from hypothesis import strategies as st

import treetop
from treetop import _core
from treetop.arrays import as_rows
from treetop.learning.routes import Router
from treetop.model.learned_routing import LearnedRouting
from treetop.model.pooled_state import PooledState
from treetop.policy.eligibility import EVERY_ARM, Eligible
from treetop.policy.search import CandidateRows, search_batch

betas = st.sampled_from([None, None, 0.75, 0.3, 0.0])
TWO = (np.array([-1, 0, 0], np.int32), np.array([1, 2], np.int32))  # a root with two leaves of an arm each
CANDIDATES = ("start", "is_node", "id", "log_route", "score", "exploration_value", "components")


def random_scored(rng: np.random.Generator) -> Scored:
    """A random tree with arm routes but for one in four; weights of components of either sign."""
    tree = random_tree(rng)
    columns, density = int(rng.choice([2, 4, 8, 40, 300])), float(rng.choice([0.05, 0.3, 1.0]))
    rows = tree.n_nodes + (tree.n_arms if rng.random() < 0.75 else 0)
    routing = eighths(rng, rows, columns, density=density)
    rewards = eighths(rng, tree.n_nodes + tree.n_arms, columns, density=density)
    means = -np.sort(-rng.integers(0, 65, int(rng.choice([2, 5, 65]))) / 64.0)
    weights = tuple((rng.integers(-4, 13, 2) / 8.0).tolist())
    node_mean, path_weight = float(rng.integers(0, 9) / 8.0), float(rng.choice([0.0, 0.5, 1.0]))
    return Scored(Model(tree, routing, rewards), means, weights, node_mean, path_weight)


def packaged(scored: Scored) -> treetop.Model:
    tree, arms = scored.model.tree, scored.model.tree.n_arms
    state = PooledState(
        means=scored.means.astype(np.float32),
        sample_count=np.arange(arms, dtype=np.int32),
        trial_value=np.zeros(arms, np.float32),
        node_mean=scored.node_mean,
        weights=scored.weights,
    )
    routes, path_weight = as_rows(scored.model.routing), scored.path_weight
    learned = LearnedRouting(
        base=routes.head(tree.n_nodes), held_out=(routes, routes), digest=0, rounds=0, path_weight=path_weight
    )
    return treetop.Model(
        tree=treetop.Tree(tree.parents, tree.leaf_of),
        route_rows=routes,
        reward_rows=as_rows(scored.model.rewards),
        pooled=state,
        learned_routing=learned if scored.arm_routes else None,
    )


def effective(found: CandidateRows, row: int = 0) -> list[Effective]:
    here = slice(*found.start[row : row + 2])
    columns = (found.is_node[here], found.id[here], found.log_route[here], found.score[here])
    return [Effective(*e) for e in zip(*(column.tolist() for column in columns), strict=True)]


def same(found: list[Effective], twin: list[Effective]) -> None:
    """Exactly the same arms, nodes and routes; scores up to float32."""
    assert [(e.is_node, e.id, e.route) for e in found] == [(e.is_node, e.id, e.route) for e in twin]
    np.testing.assert_allclose([e.score for e in found], [e.score for e in twin], rtol=1e-5, atol=1e-5)


@many
@given(seeds, st.integers(1, 8), st.integers(1, 6), betas)
def test_a_search_is_its_twin(seed: int, wanted: int, beam: int, beta: float | None) -> None:
    """With all arms, some or all but some, prepared or listed."""
    rng = np.random.default_rng(seed)
    scored = random_scored(rng)
    model, tree = packaged(scored), scored.model.tree
    assert model.has_arm_routes == scored.arm_routes
    chosen = random_eligible(rng, tree)
    x = eighths(rng, model.n_features, density=0.7)
    asked = {0: {}, 1: {"eligible": list(chosen.listed)}, 2: {"exclude": list(chosen.listed)}}[chosen.kind]
    twin = scored_search(scored, x, chosen.arms(tree), wanted, beam, beta)
    for eligible in (Eligible.of(model.tree, **asked), Eligible.listed(model.tree, **asked)):
        found = search_batch(model, as_rows(x), beam, beta, wanted, eligible)
        same(effective(found), twin)
        said = [components(scored, e.is_node, e.id, x) for e in twin]
        np.testing.assert_allclose(found.components, np.array(said).reshape(-1, 2), rtol=1e-5, atol=1e-5)


@many
@given(seeds)
def test_routes_are_those_of_twin_and_router(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scored = random_scored(rng)
    model, tree = packaged(scored), scored.model.tree
    x = eighths(rng, 3, model.n_features, density=0.7)
    rows, arms = as_rows(x), np.append(rng.permutation(tree.n_arms), -1).astype(np.int32)
    twin = np.array([[log_route(scored, int(arm), one) for arm in arms[:-1]] for one in x])
    for threads in (1, 3):
        found = model.engine.routes(rows.start, rows.index, rows.value, np.tile(arms, 3), len(arms), threads)
        assert np.array_equal(found[:, :-1], twin)
        assert np.isnan(found[:, -1]).all()
    row, arm = np.repeat(np.arange(3), tree.n_arms), np.tile(arms[:-1], 3)
    router = Router.of(model.tree, model.route_rows, path_weight=model.path_weight)
    routed = router(rows, row, arm, model.tree.leaf_of)
    np.testing.assert_allclose(routed, twin.ravel(), rtol=1e-12)


@few
@given(seeds, st.integers(1, 4))
def test_many_contexts_and_threads_are_one_after_the_other(seed: int, beam: int) -> None:
    rng = np.random.default_rng(seed)
    model = packaged(random_scored(rng))
    rows = as_rows(eighths(rng, 5, model.n_features, density=0.7))
    one, three = (search_batch(model, rows, beam, None, 2, EVERY_ARM, threads=threads) for threads in (1, 3))
    assert all(getattr(one, name).tobytes() == getattr(three, name).tobytes() for name in CANDIDATES)
    for i in range(5):
        alone = search_batch(model, rows.row(i), beam, None, 2, EVERY_ARM)
        for name in CANDIDATES[1:]:
            assert np.array_equal(getattr(alone, name), getattr(one, name)[one.start[i] : one.start[i + 1]])


@pytest.mark.parametrize("layout", [True, False])
def test_saved_and_loaded_it_finds_the_same(tmp_path: Path, layout: bool) -> None:
    """From serving.bin, and from the arrays beside it."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        scored = random_scored(rng)
        model = packaged(scored)
        model.save(tmp_path / "m")
        again = treetop.Model.load(tmp_path / "m", layout=layout)
        assert ("layout" in vars(again)) == layout
        assert again.has_arm_routes == scored.arm_routes
        rows = as_rows(eighths(rng, 4, model.n_features, density=0.7))
        found, wanted = (search_batch(m, rows, 2, None, 3, EVERY_ARM) for m in (again, model))
        assert all(getattr(found, name).tobytes() == getattr(wanted, name).tobytes() for name in CANDIDATES)
        arms = np.tile(np.arange(model.n_arms, dtype=np.int32), 4)
        mine, its = (m.engine.routes(rows.start, rows.index, rows.value, arms, model.n_arms, 0) for m in (again, model))
        assert np.array_equal(mine, its)


@few
@given(seeds, st.integers(1, 6))
def test_greedy_decisions_take_the_best_scores_of_the_twin(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    scored = random_scored(rng)
    model, tree = packaged(scored), scored.model.tree
    x = eighths(rng, model.n_features, density=0.7)
    some = rng.permutation(tree.n_arms)[: rng.integers(1, tree.n_arms + 1)].tolist()
    left_out = some[: len(some) // 3]
    policy = treetop.Policy(k=k, explore=0, beam=2, strategy=treetop.Greedy())
    twin = scored_search(scored, x, set(some) - set(left_out), k, 2)
    best = sorted((e.score for e in twin), reverse=True)[:k]
    shown = policy.decide(model, x, event_id=seed, eligible=some, exclude=left_out)
    batch = policy.decide_batch(model, x[None], event_ids=[seed], eligible=some, exclude=left_out)[0]
    np.testing.assert_allclose(shown.scores, best, rtol=1e-5, atol=1e-5)
    assert set(shown.arms.tolist()) <= set(some) - set(left_out)
    assert np.array_equal(shown.arms, batch.arms)
    assert np.array_equal(shown.scores, batch.scores)


def test_by_hand() -> None:
    """Two leaves of log g -1 and -8; arms of -1, 0 and -8. The means fall from 1 by 1/4 a unit of slack."""
    tree = Tree(np.array([-1, 0, 0], np.int32), np.array([1, 1, 2], np.int32))
    routing = np.array([[0, 0], [0, 0], [0, -1], [0, 0], [0, 1], [0, -1]], float)
    rewards = np.array([[0, 0], [0, 0], [0, 0], [0, 1], [0, 0.5], [0, 0]], float)
    model = packaged(Scored(Model(tree, routing, rewards), np.linspace(1, 0, 5), (2.0, 0.5), 0.0))
    found = search_batch(model, as_rows([[0.0]]), 2, None, 1, EVERY_ARM)
    assert found.log_route.tolist() == [-1.0, 0.0, -8.0]  # the leaves' own do not count
    slack = np.cbrt([1.0, 0.0, 8.0])
    np.testing.assert_allclose(found.score, 2 * (1 - slack / 4) + 0.5 * np.array([1, 0.5, 0]), rtol=1e-6)


def test_pooled_means_are_the_same_to_the_last_bit() -> None:
    """One leaf of arms whose routing functions are constants, so that the route is known; 65,537 means tell it well."""
    rng = np.random.default_rng(0)
    any_size = 10 ** rng.uniform(-6, 3, 99)
    slack = np.concatenate([[0.0, 2.0**-23, 4.0, 1e9], rng.random(99), 4 * rng.random(499), any_size])
    bias = (1 - slack).astype(np.float32)
    n, means = len(bias), rng.random(65_537).astype(np.float32)
    routing = np.concatenate([np.zeros((2, 2), np.float32), np.stack([np.zeros(n, np.float32), bias], 1)])
    nothing = np.zeros(n, np.float32)
    model = treetop.Model(
        tree=treetop.Tree(np.array([-1, 0], np.int32), np.ones(n, np.int32)),
        route_rows=as_rows(routing),
        reward_rows=as_rows(np.zeros((2 + n, 2))),
        pooled=PooledState(means=means, sample_count=nothing.astype(np.int32), trial_value=nothing),
    )
    found = search_batch(model, as_rows([[0.0]]), 1, None, 1, EVERY_ARM)
    for arm, route, said in zip(found.id, found.log_route, found.components[:, 0], strict=True):
        missing = max(0.0, 1.0 - float(bias[arm]))
        assert route == -(missing * missing * missing)
        place = min(cube_root(-route), 4.0) / 4 * 65_536
        i = min(int(place), 65_535)
        assert said == means[i] + np.float32(place - i) * (means[i + 1] - means[i])


def test_the_twin_s_cube_root_is_one() -> None:
    for x in (0.0, 1.0, 8.0, 0.125, 1e-300, 1e300, *10 ** np.random.default_rng(0).uniform(-30, 9, 2000)):
        assert cube_root(float(x)) == pytest.approx(float(np.cbrt(x)), rel=1e-15)


def test_the_paper_s_scores_have_arm_routes_too(tmp_path: Path) -> None:
    """Without what treetop's learner adds, a score is what the arm's model says; the route ends at the arm."""
    scored = next(s for s in (random_scored(np.random.default_rng(i)) for i in range(9)) if s.arm_routes)
    full = packaged(scored)
    model = treetop.Model(tree=full.tree, route_rows=full.route_rows, reward_rows=full.reward_rows)
    x = eighths(np.random.default_rng(1), model.n_features)
    found = search_batch(model, as_rows(x), 99, None, 1, EVERY_ARM)
    assert found.log_route.tolist() == [log_route(scored, arm, x) for arm in range(model.n_arms)]
    assert np.array_equal(found.score, scored.model.rewards[model.tree.n_nodes :] @ np.append(x, 1.0))


def test_a_leaf_of_more_arms_than_half_of_what_16_bits_number() -> None:
    """Slots of a leaf's chunk are twice its arms: past 65,536 they are numbered by 32 bits."""
    arms, rng = 40_000, np.random.default_rng(0)
    routing, rewards = eighths(rng, 2 + arms, 5), eighths(rng, 2 + arms, 5)
    tree = treetop.Tree(np.array([-1, 0], np.int32), np.ones(arms, np.int32))
    model = treetop.Model(tree=tree, route_rows=as_rows(routing), reward_rows=as_rows(rewards))
    x = context(3, features=4)
    found = search_batch(model, as_rows(x), 1, None, 1, EVERY_ARM)
    products: Floats = routing @ np.append(x, 1.0)
    slack = np.maximum(0, 1 - products)
    assert np.array_equal(found.log_route, -(slack[2:] ** 3))  # the leaf's own does not count
    assert np.array_equal(found.score, rewards[2:] @ np.append(x, 1.0))


def test_a_layout_of_routing_down_to_the_leaf_is_not_one_down_to_the_arm() -> None:
    scored = next(s for s in (random_scored(np.random.default_rng(i)) for i in range(9)) if s.arm_routes)
    model = packaged(scored)
    leaves = treetop.Model(
        tree=model.tree, route_rows=model.route_rows.head(model.tree.n_nodes), reward_rows=model.reward_rows
    )
    for made, other in ((model, leaves), (leaves, model)):
        r = other.route_rows
        rows = other.tree.parents, other.tree.leaf_of, r.start, r.index, r.value
        with pytest.raises(ValueError, match="serving layout: made for another model"):
            _core.Engine(*rows, r.columns, False, made.engine.layout())


def test_routing_of_some_arms_is_refused() -> None:
    tree = treetop.Tree(*TWO)
    for rows in (2, 4, 6):
        with pytest.raises(ValueError, match=rf"routing have shape \({rows}, 2\); 3 nodes and 2 arms with 1 features"):
            treetop.Model.from_weights(tree, np.zeros((rows, 2)), np.zeros((5, 2)))
    with pytest.raises(ValueError, match="geometric routing has 5 rows; there are 3 nodes"):
        treetop.Model.from_weights(tree, np.zeros((5, 2)), np.zeros((5, 2)), geometric=True)


def test_an_arm_whose_routing_score_is_no_number_is_named() -> None:
    tree = treetop.Tree(*TWO)
    routing = np.zeros((5, 3))
    routing[4] = 3e38
    model = treetop.Model.from_weights(tree, routing, np.zeros((5, 3)))
    with pytest.raises(ValueError, match="the routing score of arm 1 is inf; context or weights are too large"):
        search_batch(model, as_rows([[3.0, 3.0]]), 2, None, 1, EVERY_ARM)
