"""A refit by shards where items have vectors, where contexts have vectors among their parts, and where the owner has a
model: the bytes of the learner in memory, whatever the parts and the shards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.owners import FEATURES, PARTS, labels, rounds, same, streamed, vector_model

from treetop import Pooled
from treetop.learning import context_map, measured, prior_scale, streamed_owner
from treetop.learning.pooled import Mechanisms
from treetop.model import measure as measure_module
from treetop.model.prior import Prior


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks end in the middle of parts, and parts in the middle of blocks."""
    for module in (measure_module, streamed_owner):
        monkeypatch.setattr(module, "PAIRS", 64)
    for module in (measured, prior_scale):
        monkeypatch.setattr(module, "BLOCK", 100)
    for module in (context_map, streamed_owner):
        monkeypatch.setattr(module, "LATEST", 500)


@pytest.mark.parametrize(("parts", "memory"), [(1, 1e9), (9, 1e9), (4, 2e4)])
@pytest.mark.parametrize("metric", ["cosine", "inner_product", "euclidean"])
def test_items_with_vectors(metric: str, parts: int, memory: float, tmp_path: Path) -> None:
    learner, feedback, model = Pooled(vectors=PARTS, window=40), rounds(700), vector_model(metric)
    found = streamed(model, feedback, learner, tmp_path / "work", parts, memory)
    same(found, learner.learn(model, feedback))
    assert found.pooled is not None
    assert found.pooled.measure_means is not None
    assert found.reward_rows.value.any()


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
@pytest.mark.parametrize("n", [5, 400])
def test_contexts_in_a_space_of_their_own(metric: str, n: int, tmp_path: Path) -> None:
    learner, feedback, model = Pooled(vectors=PARTS), rounds(n), vector_model(metric, own_space=True)
    found = streamed(model, feedback, learner, tmp_path / "work", 3)
    same(found, learner.learn(model, feedback))
    assert not np.array_equal(found.context_map, model.context_map)  # type: ignore[arg-type]


def test_wide_vectors_that_lie_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wider than the map is learned in, and more of them than are dense in memory at a time."""
    monkeypatch.setattr(context_map, "WIDEST", 4)
    monkeypatch.setattr(streamed_owner, "VECTORS", 16)
    learner, feedback, model = Pooled(vectors=PARTS), rounds(300), vector_model("cosine", own_space=True)
    same(streamed(model, feedback, learner, tmp_path / "work", 3), learner.learn(model, feedback))


@pytest.mark.parametrize("pool_rounds", [False, True])
@pytest.mark.parametrize("kind", ["routes", "mapped", "does not route"])
def test_labels_beside_vectors(kind: str, pool_rounds: bool, tmp_path: Path) -> None:
    model = vector_model("cosine", kind == "mapped", kind != "does not route")
    learner = Pooled(label_samples=labels(), vectors=PARTS, mechanisms=Mechanisms(pool_rounds=pool_rounds))
    feedback = rounds(300)
    same(streamed(model, feedback, learner, tmp_path / "work", 4), learner.learn(model, feedback))


def test_vectors_that_do_not_route_without_labels(tmp_path: Path) -> None:
    learner, feedback, model = Pooled(), rounds(300), vector_model("inner_product", routes=False)
    same(streamed(model, feedback, learner, tmp_path / "work", 4), learner.learn(model, feedback))


@pytest.mark.parametrize("known", [True, False], ids=["labels", "cold"])
def test_parts_of_contexts_that_are_vectors(known: bool, tmp_path: Path) -> None:
    model = vector_model("cosine", routes=False)
    model = replace(model, measure=None, item_vectors=None)
    learner, feedback = Pooled(label_samples=labels() if known else None, vectors=PARTS), rounds(500, 2)
    found = streamed(model, feedback, learner, tmp_path / "work", 5, 5e4)
    same(found, learner.learn(model, feedback))
    without = replace(learner, vectors=()).learn(model, feedback)
    assert found.reward_rows.value.tobytes() != without.reward_rows.value.tobytes()


@pytest.mark.parametrize("parts", [(), PARTS], ids=["plain", "parts"])
@pytest.mark.parametrize("means", [False, True])
@pytest.mark.parametrize("vectors", [False, True])
def test_an_owners_model(vectors: bool, means: bool, parts: Any, tmp_path: Path) -> None:
    model, rng = vector_model("cosine", routes=False), np.random.default_rng(3)
    model = model if vectors else replace(model, measure=None, item_vectors=None)
    rows = replace(model.reward_rows, **_weights(rng, len(model.reward_rows)))
    model = replace(
        model, reward_rows=rows, prior=Prior(rows, np.linspace(1, 0, 9, dtype=np.float32) if means else None)
    )
    learner, feedback = Pooled(vectors=parts), rounds(400, 3 if vectors else 2)
    found = streamed(model, feedback, learner, tmp_path / "work", 4, 5e4)
    same(found, learner.learn(model, feedback))
    assert found.prior is not None
    assert found.prior.scale != 1.0


def _weights(rng: Any, rows: int) -> dict[str, Any]:
    start = np.arange(rows + 1, dtype=np.int64) * 2
    index = np.tile(np.array([1, FEATURES], np.int32), rows)
    return {"start": start, "index": index, "value": rng.normal(size=2 * rows).astype(np.float32)}


@pytest.mark.parametrize("kind", ["vectors", "mapped", "prior"])
def test_a_chain_of_refits_is_one_refit(kind: str, tmp_path: Path) -> None:
    """And functions without new samples keep their bytes."""
    model = vector_model("cosine", kind == "mapped", kind != "prior")
    if kind == "prior":
        rows = replace(model.reward_rows, **_weights(np.random.default_rng(3), len(model.reward_rows)))
        model = replace(model, measure=None, item_vectors=None, reward_rows=rows, prior=Prior(rows))
    learner, feedback = Pooled(vectors=PARTS), rounds(500, 2 if kind == "prior" else 3)
    chained = in_memory = model
    for i, n in enumerate((200, 203, 500, 500)):
        chained = streamed(chained, feedback.head(n), learner, tmp_path / f"chain-{i}", 3, 5e4)
        in_memory = learner.learn(in_memory, feedback.head(n))
        same(chained, in_memory)
