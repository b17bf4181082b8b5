"""The components of scores in a bandit: logged with each decision, replayed, read by the next refit."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.in_memory import logged_feedback
from helpers.problems import topics

import treetop
from treetop.bandit import model_changes, promotion
from treetop.bandit.bandit import Bandit
from treetop.bandit.results import same_decision

X, Y = topics()


@pytest.fixture
def bandit(tmp_path: Path, place: str) -> Iterator[Bandit]:
    """One with treetop's learner, in each kind of log."""
    Bandit.create(tmp_path / "shop", X=X[:300], Y=Y[:300]).close()
    with Bandit.open(tmp_path / "shop", place) as opened:
        yield opened


def weighted(model: treetop.Model, components: Any, is_node: Any) -> Any:
    """Scores by their components; those of nodes are plain sums."""
    assert model.pooled is not None
    return (components * np.where(is_node[:, None], 1.0, model.pooled.weights)).sum(axis=1)


def decided(bandit: Bandit, rounds: range) -> list[Any]:
    for i in rounds:
        bandit.decide(X[i], event_id=f"e{i}")
    return [bandit.event(f"e{i}").event for i in rounds]


def test_decisions_are_logged_with_their_components(bandit: Bandit) -> None:
    model = bandit.snapshot.model
    policy = bandit.snapshot.policy()[0]
    for i, event in enumerate(decided(bandit, range(20))):
        assert np.array_equal(event.components, policy.decide(model, X[i], f"e{i}").components)
        assert event.components.shape == (len(event), 2)
        np.testing.assert_allclose(weighted(model, event.components, event.nodes >= 0), event.scores, atol=1e-6)


def test_a_replay_compares_them(bandit: Bandit) -> None:
    decided(bandit, range(5))
    logged, again = bandit.replay("e3")
    assert same_decision(logged, again)
    for other in (np.nextafter(again.components, np.float32(9)), again.components[:, :1], None):
        assert not same_decision(logged, replace(again, components=other))


def test_the_next_refit_reads_them(bandit: Bandit, monkeypatch: pytest.MonkeyPatch) -> None:
    events = decided(bandit, range(30))
    bandit.reward("e7", {bandit.served(events[7]).arms[0]: 1.0})
    now = bandit.snapshot
    feedback = logged_feedback(bandit.log, bandit.log.seal("now"), now.model, now.arms, bandit.config)
    assert np.array_equal(feedback.components, [event.components for event in events])
    seen: list[treetop.Feedback] = []
    fit = promotion.streamed_fit

    def noted(base: Any, history: Any, *other: Any) -> Any:
        seen.append(history.recent)
        return fit(base, history, *other)

    monkeypatch.setattr(model_changes, "streamed_fit", noted)
    bandit.refit()
    assert np.array_equal(seen[0].components, feedback.components)


def test_answers_stay_small(bandit: Bandit) -> None:
    served = bandit.decide(X[0], event_id="e0")
    assert not hasattr(served.slots[0], "components")
    view = bandit.explain(X[0])
    score = weighted(bandit.snapshot.model, view.components, view.is_node)
    np.testing.assert_allclose(score, view.score, atol=1e-6)
