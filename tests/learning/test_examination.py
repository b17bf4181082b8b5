"""Positions that are looked at less often: how often is estimated, and learning corrects for it where they are said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetop import Bandit, Catalogue, Config, Feedback, Greedy, Model, Policy, Pooled, Tree
from treetop.bandit.config import RewardConfig
from treetop.bandit.past_log import import_past
from treetop.bandit.past_values import PastColumns
from treetop.learning.examination import examined_factors

ITEMS, DIMS, K, EXAMINED = 200, 6, 5, 0.7


def unit(rows: Any) -> Any:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


V = unit(np.random.default_rng(0).normal(size=(ITEMS, DIMS)))
QUALITY = 0.8 * np.random.default_rng(1).normal(size=ITEMS)


def rounds(model: Model, n: int, seed: int, positions: bool) -> Feedback:
    """The best first, so that what stands at a position is no chance."""
    rng = np.random.default_rng(seed)
    X = unit(V[rng.integers(0, ITEMS, n)] + 0.2 * rng.normal(size=(n, DIMS)))
    d = Policy(k=K, explore=0, beam=10, strategy=Greedy()).decide_batch(model, X, seed=seed)
    p = 1 / (1 + np.exp(-(6 * np.einsum("nd,nkd->nk", X, V[d.arms]) - 4 + QUALITY[d.arms])))
    seen = Feedback.of(X, d, (rng.random(p.shape) < p * EXAMINED ** np.arange(K)).astype(np.float32))
    return replace(seen, positions=np.tile(np.arange(1, K + 1), (n, 1))) if positions else seen


def played(positions: bool) -> Model:
    model = Model.from_vectors(Tree.from_vectors(V, 20, metric="cosine"), V, "cosine")
    seen = rounds(model, 1500, 1, positions)
    for seed in (2, 3):
        model = Pooled().learn(model, seen)
        seen = seen + rounds(model, 1500, seed, positions)
    return Pooled().learn(model, seen)


def test_factors_are_found_and_learning_corrects_for_them() -> None:
    corrected, plain = played(True), played(False)
    assert corrected.pooled is not None
    assert plain.pooled is not None
    np.testing.assert_allclose(corrected.pooled.examined, EXAMINED ** np.arange(K), rtol=0.12)
    assert plain.pooled.examined == ()
    X = unit(V + 0.2 * np.random.default_rng(9).normal(size=V.shape))
    p = 1 / (1 + np.exp(-(6 * (X * V).sum(axis=1) - 4 + QUALITY)))

    def error(model: Model) -> float:
        said = [Policy(k=1, explore=0, beam=500).explain(model, x) for x in X]
        scores = [float(view.score[(view.id == i) & ~view.is_node][0]) for i, view in enumerate(said)]
        return float(np.abs(np.array(scores) - p).mean())

    assert error(corrected) < 0.7 * error(plain)


def test_the_factors_are_saved(tmp_path: Path) -> None:
    model = played(True)
    model.save(tmp_path / "m")
    loaded = Model.load(tmp_path / "m").pooled
    assert loaded is not None
    assert model.pooled is not None
    assert loaded.examined == pytest.approx(model.pooled.examined)


def test_a_past_log_says_positions_and_a_bandits_slots_if_asked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    position = 1 + np.arange(3000) % 3
    clicked = rng.random(3000) < 0.6 * 0.5 ** (position - 1)
    lines = [f"{rng.integers(8)},{int(c)},{p}" for c, p in zip(clicked, position, strict=True)]
    (tmp_path / "past.csv").write_text("\n".join(["item,reward,position", *lines]))
    config = Config(rewards=RewardConfig(positions=True))
    with Bandit.create(tmp_path / "tea", Catalogue(list(range(8))), features=["age"], config=config) as tea:
        import_past(tea, tmp_path / "past.csv", PastColumns.of("position=position"))
        tea.refit()
        state = tea.snapshot.model.pooled
        assert state is not None
        np.testing.assert_allclose(state.examined, [1, 0.5, 0.25], rtol=0.1)
        served = tea.decide({"age": 1.0}, "visit-1")
        tea.reward("visit-1", dict.fromkeys(served.arms, 0.0))
        tea.refit()
        assert tea.snapshot.model.pooled is not None
        assert len(tea.snapshot.model.pooled.examined) == 5


def test_histories_with_and_without_positions_add_up() -> None:
    with_ = Feedback([[1.0]], [[3, 4]], None, [[1, 0]], positions=[[2, 1]])
    without = Feedback([[1.0]], [[3]], None, [[1]])
    assert (with_ + without).positions.tolist() == [[2, 1], [0, 0]]
    assert (without + without).positions is None
    assert with_.head(1).positions.tolist() == [[2, 1]]
    with pytest.raises(ValueError, match=r"positions have shape \(1, 1\); the slots have \(1, 2\)"):
        replace(with_, positions=[[1]])


def test_losses_say_nothing_about_positions() -> None:
    position = np.tile([1, 2], 100)
    assert examined_factors(position, np.tile([0.5, -0.5], 100), np.ones(200)) == ()


def test_few_rewards_of_the_first_position_do_not_decide() -> None:
    """One click instead of the three that the other position leads to expect is no reason for a factor of 2."""
    reward = np.zeros(600)
    reward[:1] = reward[300:400] = 1
    position = np.repeat([1, 2], 300)
    few = position[np.r_[:10, 300:600]], reward[np.r_[:10, 300:600]], np.ones(310)
    assert examined_factors(*few)[1] < 1.3
    assert examined_factors(position, reward, np.ones(600))[1] == 2.0  # 300 slots say it


def test_a_log_that_ranks_its_best_first_says_how_often_positions_are_looked_at(tmp_path: Path) -> None:
    """Without vectors: eight items of different worth, the better ones higher more often than not."""
    rng, n, worth = np.random.default_rng(0), 4000, np.linspace(0.05, 0.75, 8)
    shown = np.argsort(-(worth + 0.15 * rng.normal(size=(n, 8))), axis=1)[:, :3]
    clicked = rng.random((n, 3)) < worth[shown] * 0.7 ** np.arange(3)
    assert clicked[:, 2].mean() / clicked[:, 0].mean() < 0.4  # what clicks alone say; 0.49 is so
    lines = [f"{arm},{int(c)},{1 + i % 3}" for i, (arm, c) in enumerate(zip(shown.flat, clicked.flat, strict=True))]
    (tmp_path / "past.csv").write_text("\n".join(["item,reward,position", *lines]))
    with Bandit.create(tmp_path / "tea", Catalogue(list(range(8))), features=["age"]) as tea:
        import_past(tea, tmp_path / "past.csv", PastColumns.of("position=position"))
        tea.refit()
        state = tea.snapshot.model.pooled
        assert state is not None
        np.testing.assert_allclose(state.examined, [1, 0.7, 0.49], rtol=0.08)
