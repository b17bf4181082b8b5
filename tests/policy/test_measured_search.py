"""The owner's measure in search and score: twins, exact propensities, and nothing changed where there is none."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.problems import check_drawn_as_explained
from helpers.reference import Effective, Floats, Measure, log_path, search
from helpers.strategies import Case, csr, engine, linear_cases, many, random_case
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import treetop
from treetop import _core
from treetop.arrays import as_rows
from treetop.learning.pooled import Pooled
from treetop.policy.eligibility import EVERY_ARM
from treetop.policy.search import search as native_search
from treetop.tree.vectors import METRICS

NOTHING = np.zeros(0, np.float32)


def measured_case(case: Case, metric: str, seed: int) -> Case:
    """The same case with routing rows that are centres of a stretch of the features."""
    columns = case.model.routing.shape[1]
    rng = np.random.default_rng(seed)
    first = int(rng.integers(0, columns - 1))
    dims = int(rng.integers(1, columns - first))
    routing = np.zeros_like(case.model.routing)
    routing[:, first : first + dims] = rng.normal(size=(len(routing), dims)).astype(np.float32)
    if metric == "euclidean":
        routing[:, -1] = -(routing[:, :-1] ** 2).sum(axis=1) / 2
    measure = Measure(metric, first, dims, float(rng.choice([0.5, 1.0, 4.0])))
    return replace(case, model=replace(case.model, routing=routing, measure=measure))


def native(case: Case, wanted: int, beam: int, beta: float) -> list[Effective]:
    made, measure = engine(case.model), case.model.measure
    assert measure is not None
    facts = METRICS.index(measure.metric), measure.first, measure.dims, measure.scale, True
    made.set_measure(*facts, NOTHING, NOTHING, (0.0, 1.0), measure.dims, NOTHING)
    positions = case.eligible.positions(case.model.tree)
    _, is_node, id, route, score, *_ = made.search(*csr(case.x), wanted, beam, beta, case.eligible.kind, positions)
    rows = zip(is_node.tolist(), id.tolist(), route.tolist(), score.tolist(), strict=True)
    return sorted(Effective(*row) for row in rows)


@many
@given(linear_cases, st.sampled_from(METRICS), st.integers(1, 8), st.integers(1, 6), st.integers(0, 2**32))
def test_routing_by_a_measure_is_its_twin(case: Case, metric: str, wanted: int, beam: int, seed: int) -> None:
    case = measured_case(case, metric, seed)
    apart = np.diff(sorted(log_path(case.model, node, case.x) for node in range(case.model.tree.n_nodes)))
    assume(((apart == 0) | (apart > 1e-4)).all())  # nearer ones may change places: the core has float32
    found = native(case, wanted, beam, -1.0)
    twin = search(case.model, case.x, case.eligible_arms, wanted, beam)
    assert [(e.is_node, e.id, e.score) for e in found] == [(e.is_node, e.id, e.score) for e in twin]
    np.testing.assert_allclose([e.route for e in found], [e.route for e in twin], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_most_random_cases_are_compared(metric: str) -> None:
    cases = [measured_case(random_case(seed, False), metric, seed) for seed in range(100)]
    wide = [case for case in cases if len(native(case, 1, 2, -1.0)) and case.model.tree.n_nodes > 8]
    assert len(wide) > 40
    assert any(e.is_node for case in wide for e in native(case, 1, 2, -1.0))


def vectors(n: int = 400, dims: int = 6, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    groups = rng.normal(size=(8, dims))[np.arange(n) % 8]
    return ((groups + 0.5 * rng.normal(size=(n, dims))) * rng.uniform(0.5, 1.5, (n, 1))).astype(np.float32)


def contexts(n: int, dims: int = 6, first: int = 2, columns: int = 11, seed: int = 1) -> Any:
    """A vector among other features, some of them large."""
    rng = np.random.default_rng(seed)
    X = 3.0 * (rng.random((n, columns)) < 0.3)
    X[:, first : first + dims] = vectors(n, dims) + 0.2 * rng.normal(size=(n, dims))
    return X.astype(np.float32)


def cold(metric: str) -> treetop.Model:
    V = vectors()
    return treetop.Model.from_vectors(
        treetop.Tree.from_vectors(V, 10, metric=metric), V, metric, n_features=11, first=2
    )


def learned(metric: str) -> tuple[treetop.Model, treetop.Feedback]:
    """After rounds in which items near the context were clicked."""
    model, X = cold(metric), contexts(300)
    policy = treetop.Policy(k=4, explore=2, beam=3, strategy=treetop.EpsilonGreedy(0.5))
    d = policy.decide_batch(model, X, seed=0)
    rng = np.random.default_rng(3)
    p = 0.1 + 0.6 * (d.arms % 8 == (np.arange(300) % 8)[:, None])
    feedback = treetop.Feedback.of(X, d, (rng.random(p.shape) < p).astype(np.float32))
    return Pooled().learn(model, feedback), feedback


def measure(metric: str, x: Floats, items: Floats) -> Floats:
    if metric == "euclidean":
        return np.asarray(-np.sqrt(((x - items) ** 2).sum(axis=1)))
    return np.asarray(items @ x / (np.linalg.norm(x) * np.linalg.norm(items, axis=1) if metric == "cosine" else 1.0))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("beam", [1, 3, 500])
def test_scores_are_the_sum_of_three_components(metric: str, beam: int) -> None:
    model, _ = learned(metric)
    state = model.pooled
    assert state is not None
    assert state.measure_means is not None
    assert model.engine.n_components == 3
    assert model.rewards.nnz
    low, high = state.measure_range
    knots = np.linspace(low, high, len(state.measure_means))
    for x in contexts(20, seed=5):
        c = native_search(model, as_rows(x), beam, None, 1, EVERY_ARM)
        value = measure(metric, x[2:8].astype(float), vectors().astype(float)[np.where(c.is_node, 0, c.id)])
        inside = (low <= value) & (value <= high)
        said = np.where(c.is_node, 0.0, np.interp(value, knots, state.measure_means))
        rows = np.where(c.is_node, c.id, model.tree.n_nodes + c.id)
        own = model.rewards[rows] @ np.append(x, 1.0)
        np.testing.assert_allclose(c.components[:, 1], own, atol=1e-5)
        np.testing.assert_allclose(c.components[inside | c.is_node, 2], said[inside | c.is_node], atol=2e-6)
        weights = np.where(c.is_node[:, None], [1.0, 1.0, 0.0], state.weights)
        np.testing.assert_allclose((c.components * weights).sum(axis=1), c.score, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_a_cold_model_ranks_by_the_measure(metric: str) -> None:
    """Every arm in play: the five best are those of the measure, in its order; also of far and of long contexts."""
    model, greedy = cold(metric), treetop.Policy(k=5, explore=0, beam=500, strategy=treetop.Greedy())
    for x in np.concatenate([contexts(20), 50 * contexts(5), 0.01 * contexts(5)]):
        value = measure(metric, x[2:8].astype(float), vectors().astype(float))
        np.testing.assert_allclose(np.sort(value)[::-1][:5], value[greedy.decide(model, x, "q").arms], rtol=1e-5)


def test_without_a_vector_a_context_is_decided_all_the_same() -> None:
    for metric in METRICS:
        x = np.zeros(11, np.float32)
        x[0] = 1.0
        decision = treetop.Policy(k=5, explore=2).decide(cold(metric), x, "q")
        assert len(decision.arms) == 5
        assert np.isfinite(decision.scores).all()


@pytest.mark.parametrize("metric", METRICS)
def test_propensities_stay_exact(metric: str) -> None:
    model, feedback = learned(metric)
    row = csr_matrix(contexts(1, seed=8))
    through = check_drawn_as_explained(treetop.Policy(k=1, explore=1, beam=2), model, row)
    assert 0 < through < 1
    for strategy in (treetop.Budgeted(), treetop.IGW(), treetop.EpsilonGreedy(0.4)):
        policy = treetop.Policy(k=4, explore=3, beam=2, strategy=strategy)
        X = contexts(60, seed=9)
        shown = policy.decide_batch(model, X, event_ids=range(60))
        assert (policy.probability_batch(model, X, shown.arms).slots == shown.propensities).all()
        one = policy.decide(model, X[7], 7)  # replayed alone
        assert np.array_equal(one.arms, shown.arms[7])
        assert np.array_equal(one.components, shown.components[7])
    assert feedback.components is not None
    assert feedback.components.shape == (300, 4, 3)


def test_eligible_arms_alone_are_measured() -> None:
    model, _ = learned("cosine")
    for eligible in ([5, 17, 200], np.arange(400) % 3 == 0):
        shown = treetop.Policy(k=3, explore=1, beam=2).decide_batch(model, contexts(20), seed=0, eligible=eligible)
        allowed = np.arange(400)[eligible]
        assert np.isin(shown.arms, allowed).all()


def test_instruction_sets_give_the_same_bytes(tmp_path: Any) -> None:
    """In processes of their own: the set is chosen once."""
    model, _ = learned("inner_product")
    model.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", contexts(50))
    code = (
        "import sys, numpy as np, treetop\n"
        "from treetop.tree.tree import Tree\n"
        "model, X = treetop.Model.load(sys.argv[1] + '/model'), np.load(sys.argv[1] + '/x.npy')\n"
        "shown = treetop.Policy(k=5, explore=2, beam=3).decide_batch(model, X, seed=0)\n"
        "tree = Tree.from_vectors(model.item_vectors, 10, metric='euclidean')\n"
        "print(shown.components.tobytes().hex(), shown.arms.tolist(), tree.leaf_of.tolist())\n"
    )
    said = set()
    for name in ("baseline", ""):
        environment = {**os.environ, "TREETOP_SIMD": name}
        run = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        said.add(run.stdout)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": 3}, r"kind is 3, outside \[0, 2\]"),
        ({"first": -1}, "the first column of the vector is -1"),
        ({"context_dims": 12}, "the dimensions of the vector is 12"),
        ({"context_dims": 5}, "0 numbers are no map from 5 to 6 dimensions"),
        ({"map": np.zeros(7, np.float32)}, "7 numbers are no map from 6 to 6 dimensions"),
        ({"scale": 0.0}, "the scale of the measure is 0"),
        ({"vectors": np.zeros(5, np.float32)}, "5 numbers are not vectors of 6 for 400 arms"),
        ({"means": NOTHING}, "the measure needs at least 2 means"),
        ({"means": np.array([0, np.nan], np.float32)}, "a mean of the measure is -?nan"),
        ({"range": (1.0, 1.0)}, "the range of the measure is"),
    ],
)
def test_the_core_refuses_what_cannot_be(change: dict[str, Any], message: str) -> None:
    model = cold("cosine")
    r, w = model.route_rows, model.reward_rows
    tree = model.tree.parents, model.tree.leaf_of
    made = _core.Engine(*tree, r.start, r.index, r.value, w.start, w.index, w.value, r.columns, False, 1)
    good = {"kind": 0, "first": 2, "dims": 6, "scale": 1.0, "routes": True, "range": (0.0, 1.0), "context_dims": 6}
    arrays = {"map": NOTHING, "vectors": vectors().reshape(-1), "means": np.array([0, 1], np.float32)}
    made.set_measure(**{**good, **arrays})
    with pytest.raises(ValueError, match=message):
        made.set_measure(**{**good, **arrays, **change})
