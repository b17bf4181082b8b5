"""The default learner behind HTTP: budgeted's propensities are what is drawn, refits learn from the labels."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import Running, named, running, settings, small_bandit
from scipy.stats import chisquare

import treetop
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import PolicyConfig
from treetop.bandit.results import same_decision
from treetop.log.rounds import gather

X, Y = topics()
REWARDS = Y.toarray()
DRAWN, BATCH = 4000, 500


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = small_bandit(tmp_path_factory.mktemp("learner") / "shop", X, Y)
    with running(folder) as service:
        yield service


def asked(service: Running, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for first in range(0, len(requests), BATCH):
        answer = service.post("/v1/decide/batch", {"requests": requests[first : first + BATCH]})
        assert answer.status == 200
        found += [result["decision"] for result in answer.json["results"]]
    return found


def test_propensities_are_exact(tmp_path: Path) -> None:
    """One drawn slot: its propensity is the chance that `explain` states, and the share of draws agrees."""
    config = settings(policy=PolicyConfig(k=1, explore=1, beam=5))
    with running(small_bandit(tmp_path / "shop", X, Y, config=config)) as one_slot:
        check_propensities(one_slot)


def check_propensities(shop: Running) -> None:
    view = shop.post("/v1/explain", {"features": named(X, 5), "top": 1000}).json
    chance = {("arm", e["arm"]) if e["node"] is None else ("node", e["node"]): e for e in view["effective"]}
    requests = [{"event_id": f"p{i}", "features": named(X, 5)} for i in range(DRAWN)]
    slots = [decision["slots"][0] for decision in asked(shop, requests)]
    seen: Counter[Any] = Counter()
    for slot in slots:
        key = ("arm", slot["arm"]) if slot["via"] is None else ("node", slot["via"])
        stated = chance[key]
        assert slot["propensity"] == pytest.approx(stated["probability"] / stated["arms_below"], rel=1e-12)
        seen[key] += 1
    wanted = np.array([chance[key]["probability"] * DRAWN for key in chance])
    counts = np.array([seen[key] for key in chance])
    likely = wanted >= 5
    rest = [wanted[~likely].sum()], [counts[~likely].sum()]
    assert chisquare([*counts[likely], *rest[1]], [*wanted[likely], *rest[0]]).pvalue > 1e-4


def test_the_refit_process_learns_from_feedback_and_labels(shop: Running) -> None:
    with Bandit.open(shop.folder) as bandit:
        first = bandit.snapshot.model
    requests = [{"event_id": f"r{i}", "features": named(X, i)} for i in range(300)]
    decisions = asked(shop, requests)
    rewards = [
        {"event_id": d["event_id"], "rewards": {s["arm"]: float(REWARDS[i, int(s["arm"][1:])]) for s in d["slots"]}}
        for i, d in enumerate(decisions)
    ]
    assert shop.post("/v1/reward/batch", {"requests": rewards}).status == 200
    assert shop.post("/v1/refit", {}).status == 202
    shop.wait_for(lambda: shop.model_is("000001"))
    with Bandit.open(shop.folder) as bandit:
        seen = bandit.log.counts().decisions
        model = bandit.snapshot.model
        assert model.n_seen == seen
        assert first.pooled is not None
        assert model.pooled is not None
        assert int(model.pooled.sample_count.sum()) == int(first.pooled.sample_count.sum()) + 300 * 4
        history = feedback(bandit, seen)
        known = treetop.LabelSamples.of(first.tree, X[:300], Y[:300], beam=5)
        twin = treetop.refit(first, history, treetop.Pooled(label_samples=known))
        assert (model.rewards != twin.rewards).nnz == 0
        assert np.array_equal(model.pooled.means, twin.pooled.means)
        for event in ("r0", "r7", "r299"):
            assert same_decision(*bandit.replay(event))


def feedback(bandit: Bandit, rounds: int) -> treetop.Feedback:
    """All of the log."""
    mark = bandit.log.seal("test")
    found = gather(bandit.log.samples(mark), bandit.snapshot.model.n_features)
    assert len(found) == rounds
    return found


def test_the_service_says_which_strategy_decided(shop: Running, tmp_path: Path) -> None:
    asked(shop, [{"event_id": "s1", "features": named(X, 1)}])
    with Bandit.open(shop.folder) as bandit:
        assert '"strategy": "budgeted"' in bandit.event("s1").event.policy
