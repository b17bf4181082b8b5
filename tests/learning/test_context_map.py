"""Contexts in a space of their own: the map to the items' space decides as its twin says, and rewards teach it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import reference_map
from helpers.problems import check_drawn_as_explained

from treetop import Bandit, Catalogue, Config, EpsilonGreedy, Feedback, Model, Policy, PolicyConfig, Pooled, Tree
from treetop.arrays import as_rows
from treetop.bandit.config import TreeConfig
from treetop.bandit.growth import grow
from treetop.bandit.results import same_decision
from treetop.errors import ModelFileError
from treetop.learning.context_map import STRENGTH, WIDEST, learned_map, rotation, with_learned_map
from treetop.learning.samples import Samples
from treetop.model.measure import Measure, first_map

ITEMS, DIMS, OWN, FIRST = 300, 6, 9, 2


def unit(rows: Any) -> Any:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


V = unit(np.random.default_rng(0).normal(size=(ITEMS, DIMS)))
TURN = np.linalg.qr(np.random.default_rng(1).normal(size=(OWN, OWN)))[0][:DIMS].astype(np.float32)  # items to contexts


def cold(metric: str = "cosine") -> Model:
    tree = Tree.from_vectors(V, 20, metric=metric)
    return Model.from_vectors(tree, V, metric, n_features=OWN + 3, first=FIRST, context_dims=OWN)


def visits(n: int, seed: int) -> tuple[Any, Any]:
    """Contexts, and the vectors that they have in the items' space."""
    rng = np.random.default_rng(seed)
    near = unit(V[rng.integers(0, ITEMS, n)] + 0.1 * rng.normal(size=(n, DIMS)))
    X = (3.0 * (rng.random((n, OWN + 3)) < 0.5)).astype(np.float32)
    X[:, FIRST : FIRST + OWN] = near @ TURN
    return X, near


def clicks(near: Any, arms: Any, seed: int) -> Any:
    p = 1 / (1 + np.exp(-(8 * np.einsum("nd,nkd->nk", near, V[arms]) - 6)))
    return (np.random.default_rng(seed).random(p.shape) < p).astype(np.float32)


def random_rounds(n: int, seed: int = 0, k: int = 5) -> Feedback:
    X, near = visits(n, seed)
    arms = np.random.default_rng(seed).random((n, ITEMS)).argsort(axis=1)[:, :k].astype(np.int32)
    return Feedback(X, arms, None, clicks(near, arms, seed))


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
def test_scores_and_routes_are_those_of_the_twin(metric: str) -> None:
    model = Pooled().learn(cold(metric), random_rounds(400))
    state, centres = model.pooled, {}
    assert state is not None
    assert state.measure_means is not None
    assert model.context_map is not None
    knots = np.linspace(*state.measure_range, len(state.measure_means))
    for node in range(1, model.tree.n_nodes):
        mean = V[model.tree.arms_below(node)].astype(float).sum(axis=0)
        centres[node] = mean / np.linalg.norm(mean)
    for x in visits(5, 9)[0]:
        own = x[FIRST : FIRST + OWN]
        found = Policy(k=3, explore=1, beam=3).explain(model, x)
        z = own.astype(float) @ model.context_map
        for i in np.flatnonzero(~found.is_node).tolist():
            value = reference_map.mapped_value(metric, model.context_map, own, V[found.id[i]])
            assert found.components[i, 2] == pytest.approx(np.interp(value, knots, state.measure_means), abs=1e-4)
        for i in np.flatnonzero(found.is_node).tolist():
            slack = max(0.0, 1 - centres[found.id[i]] @ z / np.linalg.norm(z))
            assert found.route[i] == pytest.approx(np.exp(-(slack**3)), abs=1e-3)


def test_the_map_is_bilinear_logistic_regression() -> None:
    rng = np.random.default_rng(3)
    contexts, items = unit(rng.normal(size=(40, 3))), unit(rng.normal(size=(30, 2)))
    row, arm = rng.integers(0, 40, 500), rng.integers(0, 30, 500)
    reward = (rng.random(500) < 1 / (1 + np.exp(-8 * contexts[row, 0] * items[arm, 1]))).astype(float)
    measure = Measure(metric="cosine", dims=2, context_dims=3)
    centre, _ = rotation(measure, contexts, items, row, arm, reward)
    turn = reference_map.nearest_rotation(contexts, items, row, arm, reward)
    np.testing.assert_allclose(centre / np.linalg.norm(centre), turn / np.linalg.norm(turn), atol=1e-5)
    found = learned_map(measure, contexts, items, row, arm, reward)
    want = reference_map.learned_map(contexts, items, row, arm, reward, 8.0, centre, STRENGTH)
    np.testing.assert_allclose(found, want, atol=0.02)


def test_rewards_teach_the_map_and_rounds_by_it_more() -> None:
    """Cold it finds nothing; after rounds at random most of what looking at all items by the truth brings."""
    X, near = visits(300, 77)
    truth = np.argsort(-(near @ V.T), axis=1)[:, :5]
    greedy = Policy(k=5, explore=0, beam=10)

    def earned(model: Model) -> float:
        return float(clicks(near, greedy.decide_batch(model, X, seed=0).arms, 5).sum(axis=1).mean())

    best = float(clicks(near, truth, 5).sum(axis=1).mean())
    start = cold()
    first = Pooled().learn(start, random_rounds(2000))
    assert earned(start) < 0.3 * best
    assert earned(first) > 0.7 * best
    again = Pooled().learn(first, random_rounds(2000))
    np.testing.assert_array_equal(again.context_map, first.context_map)  # the log alone says it, not what was before


def test_without_rewards_the_map_stays() -> None:
    model = cold()
    shown = random_rounds(50)
    nothing = Feedback(shown.contexts, shown.arms, None, np.zeros(shown.arms.shape))
    np.testing.assert_array_equal(Pooled().learn(model, nothing).context_map, first_map(model.measure or _never()))


def _never() -> Any:
    raise AssertionError("there is a measure")


def test_draws_have_the_propensities_that_are_explained() -> None:
    model = Pooled().learn(cold(), random_rounds(400))
    check_drawn_as_explained(Policy(k=1, explore=1, beam=2, strategy=EpsilonGreedy(0.5)), model, visits(1, 4)[0])


def test_a_model_keeps_its_map_on_disk(tmp_path: Path) -> None:
    model = Pooled().learn(cold(), random_rounds(400))
    model.save(tmp_path / "m")
    same = Model.load(tmp_path / "m")
    X, policy = visits(20, 8)[0], Policy(k=5, explore=2, beam=3)
    assert same_decision(policy.decide_batch(model, X, seed=1)[3], policy.decide_batch(same, X, seed=1)[3])
    (tmp_path / "m" / "context_map.npy").unlink()
    with pytest.raises(ModelFileError):
        Model.load(tmp_path / "m")


def test_new_arms_stand_beside_similar_ones() -> None:
    model = Pooled().learn(cold(), random_rounds(400))
    grown = grow(model, 3, 30, V[[5, 90, 200]])
    assert (grown.tree.leaf_of[ITEMS:] == grown.tree.leaf_of[[5, 90, 200]]).mean() > 0.5
    with pytest.raises(ValueError, match="arm vectors have 9 numbers; the items' have 6"):
        grow(model, 1, 30, np.ones((1, OWN)))


def test_wide_vectors_are_mapped_by_their_main_directions() -> None:
    rng = np.random.default_rng(0)
    wide = WIDEST + 40
    contexts, items = unit(rng.normal(size=(50, wide))), unit(rng.normal(size=(20, wide)))
    reward = (rng.random(200) < 0.5).astype(float)
    measure = Measure(metric="cosine", dims=wide, context_dims=wide)
    found = learned_map(measure, contexts, items, rng.integers(0, 50, 200), rng.integers(0, 20, 200), reward)
    assert found.shape == (wide, wide)
    assert np.linalg.matrix_rank(found.astype(float), 1e-6) <= WIDEST


def test_a_bandit_learns_the_map_from_a_past_log(tmp_path: Path) -> None:
    from treetop.bandit.past_log import import_past
    from treetop.bandit.past_values import PastColumns

    shown = random_rounds(1500, seed=6, k=1)
    np.save(tmp_path / "visitors.npy", visits(1500, 6)[0][:, FIRST : FIRST + OWN])
    lines = [f"{i},{shown.arms[i, 0]},{int(shown.rewards[i, 0])},{1 + i % 5}" for i in range(1500)]
    (tmp_path / "past.csv").write_text("\n".join(["visitor,item,clicked,position", *lines]))
    config = Config(policy=PolicyConfig(k=5, explore=0), tree=TreeConfig(max_leaf=20))
    with Bandit.create(tmp_path / "shop", Catalogue(vectors=V), features={"visitor": OWN}, config=config) as shop:
        columns = PastColumns.of("reward=clicked,context=visitor,position=position")
        import_past(shop, tmp_path / "past.csv", columns, contexts=tmp_path / "visitors.npy")
        shop.refit()
        X, near = visits(100, 78)
        arms = np.array([shop.decide({"visitor": x[FIRST : FIRST + OWN]}).arms for x in X])
        served = shop.decide({"visitor": X[0, FIRST : FIRST + OWN]}, "visit-1")
        assert same_decision(*shop.replay("visit-1"))
        assert len(served.arms) == 5
    assert clicks(near, arms, 5).mean() > 3 * clicks(near, random_rounds(100).arms, 5).mean()


def test_a_map_needs_a_measure_that_it_can_serve() -> None:
    with pytest.raises(ValueError, match="for cosine and inner_product, not for euclidean"):
        Measure(metric="euclidean", dims=2, context_dims=3)


def test_without_any_reward_left_the_first_map_is_back() -> None:
    """What was erased is forgotten, also if it was all that taught the map."""
    first, X = cold(), visits(20, 5)[0]
    learned = replace(first, context_map=-first.context_map)  # type: ignore[operator]
    row, arm = np.arange(20, dtype=np.int32), np.arange(20, dtype=np.int32)
    samples = Samples(as_rows(X), row, arm, np.zeros(20, np.float32), np.zeros(20), np.ones(20))
    again = with_learned_map(learned, samples, rewarded=False)
    np.testing.assert_array_equal(again.context_map, first_map(first.measure))  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.route_rows.value, first.route_rows.value)
