"""Items with vectors, an owner's model, contexts with parts and bandits without labels: what windows have forgotten
leaves their segments, too, and no model changes by it. The windows are tiny here, so that they bite."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tiny_windows import ARMS, CONFIG, FEATURES, X, Y, files, forget, manifest, use_tiny_windows, visits

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import LearnerConfig
from treetop.learning import pooled_means

V = np.random.default_rng(1).normal(size=(ARMS, FEATURES)).astype(np.float32)
PARTS = {"taste": FEATURES - 1, "age": None}
KINDS = ["same space", "other space", "vectors and labels", "parts", "parts without labels", "owner's model", "cold"]


def made(folder: Path, kind: str) -> Bandit:
    config = CONFIG
    if kind in ("same space", "other space"):
        items = Catalogue(range(ARMS), vectors=V, same_space=kind == "same space")
        return Bandit.create(folder, items, config=config)
    if kind == "vectors and labels":
        return Bandit.create(folder, Catalogue(range(ARMS), vectors=V), X, Y, config=config)
    if kind == "owner's model":
        return Bandit.create(folder, model=owners_model(), config=config)
    if kind not in ("parts", "labels"):
        config = replace(CONFIG, learner=LearnerConfig(label_samples=False))
    return Bandit.create(folder, range(ARMS), X, Y, features=PARTS if "parts" in kind else None, config=config)


def owners_model() -> Any:
    from treetop import Model, Tree

    tree = Tree.from_labels(X, Y, max_leaf=4)
    rng = np.random.default_rng(2)
    routing, rewards = rng.normal(size=(tree.n_nodes, FEATURES + 1)), rng.normal(size=(tree.n_arms, FEATURES + 1))
    weights = np.vstack([np.zeros((tree.n_nodes, FEATURES + 1)), rewards])
    return Model.from_weights(tree, routing, weights)


@pytest.fixture(autouse=True)
def tiny_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    use_tiny_windows(monkeypatch)


def refitted(folder: Path) -> dict[str, bytes]:
    with Bandit.open(folder) as bandit:
        found = files(bandit, bandit.refit().model)
        assert not [entry for entry in bandit.folder.history() if entry["kind"] == "segments not used"]
        return found


@pytest.fixture(params=KINDS)
def twins(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The same bandit after two refits, with all samples in its segments and with those alone that are still read."""
    with made(tmp_path / "shop", request.param) as bandit, monkeypatch.context() as patch:
        visits(bandit, 0, 250)
        patch.setattr("treetop.bandit.model_changes.forget_old_samples", lambda *_: False)
        bandit.refit()
        visits(bandit, 250, 350)
    whole, shop = Path(shutil.copytree(tmp_path / "shop", tmp_path / "whole")), tmp_path / "shop"
    with Bandit.open(shop) as bandit:
        bandit.refit()
        visits(bandit, 600, 150)
    with monkeypatch.context() as patch:
        patch.setattr("treetop.bandit.model_changes.forget_old_samples", lambda *_: False)
        with Bandit.open(whole) as bandit:
            bandit.refit()
            visits(bandit, 600, 150)
    return whole, shop


def test_samples_that_nothing_reads_leave_the_segments_and_no_model_changes(twins: tuple[Path, Path]) -> None:
    whole, shop = twins
    with Bandit.open(shop) as bandit, Bandit.open(whole) as other:
        compact, full = manifest(bandit), manifest(other)
        assert compact.sums is not None
        assert full.sums is None
        assert sum(s.samples for s in compact.segments) < 0.7 * sum(s.samples for s in full.segments)
        assert compact.rounds < full.rounds  # contexts went, too
    wanted = refitted(whole)
    assert refitted(shop) == wanted
    for folder in twins:
        with Bandit.open(folder) as bandit:
            visits(bandit, 750, 200)
    assert refitted(shop) == refitted(whole)
    with Bandit.open(shop) as bandit:
        found = manifest(bandit)
        assert found.sums is not None
        assert len(found.sums.steps) > 1


@pytest.mark.parametrize("kind", ["labels", "same space", "parts without labels", "owner's model"])
def test_retention_of_what_windows_had_forgotten_changes_no_byte(kind: str, tmp_path: Path) -> None:
    """The first 300 rounds show two arms again and again: nothing reads any of the first 250."""
    with made(tmp_path / "shop", kind) as bandit:
        for i in range(450):
            served = bandit.decide(X[i % 40], f"visit-{i}", k=2, eligible=[0, 1] if i < 300 else None)
            bandit.reward(f"visit-{i}", {arm: float((i + j) % 3 == 0) for j, arm in enumerate(served.arms)})
            if i == 20:
                bandit.refit()
        bandit.refit()
        before = bandit.event("visit-250").event.time
        assert manifest(bandit).summed > 0
    kept = Path(shutil.copytree(tmp_path / "shop", tmp_path / "kept"))
    for folder in (tmp_path / "shop", kept):
        with Bandit.open(folder) as bandit:
            visits(bandit, 450, 50)
    with Bandit.open(tmp_path / "shop") as bandit:
        assert forget(bandit, before) == 250
    wanted = refitted(kept)
    assert refitted(tmp_path / "shop") == wanted
    with Bandit.open(tmp_path / "shop") as bandit:
        assert bandit.snapshot.model.n_seen == 500


def test_labels_that_are_learned_no_more_leave_the_means_to_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routing that was fitted beside labels stays; the means are fitted to rounds from then on, which must be there."""
    monkeypatch.setattr(pooled_means, "FITTED", 256)
    whole, shop = tmp_path / "whole", tmp_path / "shop"
    with made(whole, "labels") as bandit, monkeypatch.context() as patch:
        patch.setattr("treetop.bandit.model_changes.forget_old_samples", lambda *_: False)
        for first, count in ((0, 250), (250, 440)):
            visits(bandit, first, count)
            bandit.refit()
    config = (whole / "config.toml").read_text()
    (whole / "config.toml").write_text(config.replace("label_samples = true", "label_samples = false"))
    shutil.copytree(whole, shop)
    with monkeypatch.context() as patch, Bandit.open(whole) as bandit:
        patch.setattr("treetop.bandit.model_changes.forget_old_samples", lambda *_: False)
        visits(bandit, 690, 10)
        bandit.refit()
    with Bandit.open(shop) as bandit:
        visits(bandit, 690, 10)
        bandit.refit()
        assert manifest(bandit).sums is not None
    assert refitted(shop) == refitted(whole)
