"""Means, curves, scales and maps are fitted to the latest rounds, regressors to all that windows have: the same from
disk as in memory, and rounds that nothing reads may be gone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.owners import ARMS, PARTS, contexts, labels, same, vector_model
from helpers.owners import rounds as played
from helpers.owners import streamed as streamed_from

from treetop import Feedback, Model, Pooled
from treetop.arrays import as_rows
from treetop.learning import component_weights, context_map, pooled_means, streamed_owner
from treetop.learning.pooled_means import first_fitted, pooled_rounds
from treetop.model import measure as measure_module
from treetop.model.prior import Prior

FITTED, RECENT, N = 128, 100, 700


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled_means, "FITTED", FITTED)
    monkeypatch.setattr(component_weights, "RECENT", RECENT)
    for module in (measure_module, streamed_owner):
        monkeypatch.setattr(module, "PAIRS", 64)
    for module in (context_map, streamed_owner):
        monkeypatch.setattr(module, "LATEST", 300)


def case(kind: str) -> tuple[Model, Pooled, Feedback]:
    """A model and a learner whose curves, scales or maps rounds teach, and rounds whose size and rewards change."""
    model = vector_model("inner_product" if kind == "vectors" else "cosine", kind == "mapped", kind in VECTORS)
    if kind not in (*VECTORS, "vectors that do not route"):
        model = replace(model, measure=None, item_vectors=None)
    if "owner" in kind:
        rng, rows = np.random.default_rng(3), len(model.reward_rows)
        index, value = np.tile(np.int32(1), rows), rng.normal(size=rows).astype(np.float32)
        own = replace(model.reward_rows, start=np.arange(rows + 1), index=index, value=value)
        means = np.linspace(1, 0, 9, dtype=np.float32) if "means" in kind else None
        model = replace(model, reward_rows=own, prior=Prior(own, means))
    known = labels() if "label" in kind else None
    learner = Pooled(window=10, vectors=PARTS if "parts" in kind or kind in VECTORS else (), label_samples=known)
    components = 3 if model.measure is not None else 2
    feedback = played(N, components)
    larger = np.linspace(1, 6, N)[:, None]  # contexts grow, and rewards become rarer
    X = (feedback.contexts.csr().toarray() * larger).astype(np.float32)
    rewards = np.where(np.random.default_rng(4).random(feedback.rewards.shape) * larger > 2, 0, feedback.rewards)
    rewards = np.where(np.isnan(feedback.rewards), np.nan, rewards)
    return model, learner, Feedback(X, feedback.arms, feedback.nodes, rewards, components=feedback.components)


VECTORS = ("vectors", "mapped")
KINDS = [
    *VECTORS,
    "vectors that do not route",
    "parts",
    "parts and labels",
    "cold",
    "an owner's model",
    "an owner's means and parts",
]


def streamed(model: Model, feedback: Feedback, learner: Pooled, work: Path, parts: int) -> Model:
    last = slice(max(0, len(feedback) - RECENT), None)
    arms, nodes, rewards = (getattr(feedback, name)[last] for name in ("arms", "nodes", "rewards"))
    recent = Feedback(feedback.contexts.csr()[last], arms, nodes, rewards, components=feedback.components[last])
    return streamed_from(model, feedback, learner, work, parts, 1e5, recent)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [200, 333, N])
def test_the_bytes_are_those_of_a_refit_in_memory(kind: str, n: int, tmp_path: Path) -> None:
    model, learner, feedback = case(kind)
    same(streamed(model, feedback.head(n), learner, tmp_path / "work", 5), learner.learn(model, feedback.head(n)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "label" not in kind])
def test_it_is_the_latest_rounds_that_they_are_fitted_to(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below twice FITTED rounds nothing is different from before; beyond it, it is."""
    model, learner, feedback = case(kind)
    found = [learner.learn(model, feedback.head(n)) for n in (2 * FITTED - 1, N)]
    monkeypatch.setattr(pooled_means, "FITTED", 1 << 20)
    whole = [learner.learn(model, feedback.head(n)) for n in (2 * FITTED - 1, N)]
    same(found[0], whole[0])
    with pytest.raises(AssertionError):
        same(found[1], whole[1])


def test_the_rounds_that_are_fitted_to_never_fall_and_change_seldom() -> None:
    found = [(first_fitted(n), pooled_rounds(n)) for n in range(10 * FITTED)]
    assert found == sorted(found)
    assert len(set(found)) == 8 + 9  # 0, 1, 2, 4 ... 64, then every 128
    for n in (0, 1, 77, FITTED, 2 * FITTED - 1, 2 * FITTED, 7 * FITTED + 5):
        first, end = first_fitted(n), pooled_rounds(n)
        assert 0 <= first <= end <= n <= max(2 * end, first + 2 * FITTED - 1)


@pytest.mark.parametrize(
    ("metric", "mapped"), [(m, mapped) for m in ("cosine", "inner_product") for mapped in (0, 1)] + [("euclidean", 0)]
)
def test_a_pair_that_is_measured_alone_has_the_same_bits_wherever_it_stands(metric: str, mapped: int) -> None:
    model, rng = vector_model(metric, bool(mapped)), np.random.default_rng(8)
    measure, items = model.measure, model.item_vectors
    assert measure is not None
    assert items is not None
    X = as_rows(contexts(300, 5))
    row, arm = rng.integers(0, 300, 500), rng.integers(0, ARMS, 500).astype(np.int32)
    every = measure.values(X, items, row, arm, model.context_map, alone=True)
    for some in (np.arange(1), np.arange(7, 90), rng.permutation(500)[:131]):
        mine = measure.values(X, items, row[some], arm[some], model.context_map, alone=True)
        assert mine.tobytes() == every[some].tobytes()
    np.testing.assert_allclose(every, measure.values(X, items, row, arm, model.context_map), rtol=1e-12, atol=1e-12)
