"""New arms are counted in the log between refits: decisions go by it, say so in their settings, and replay."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from helpers.problems import topics
from helpers.running import small_bandit

from treetop.bandit.bandit import Bandit
from treetop.bandit.candidates import CandidatePolicy
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, PolicyConfig
from treetop.bandit.live_trials import LiveTrials, TrialCounter
from treetop.bandit.past_log import import_past
from treetop.bandit.past_values import PastColumns
from treetop.bandit.results import same_decision
from treetop.policy.budgeted import Budgeted
from treetop.policy.strategies import make_strategy
from treetop.policy.trial_counts import packed_counts, unpacked_counts

OLD, NEW = 200, 40


def make_shop(folder: Path, **parameters: float) -> Bandit:
    vectors = np.random.default_rng(0).normal(size=(OLD, 8)).astype(np.float32)
    config = Config(policy=PolicyConfig(parameters=parameters))
    shop = Bandit.create(folder, Catalogue(list(range(OLD)), vectors), config=config)
    for i in range(30):
        shop.reward(f"before-{i}", {shop.decide(vectors[i], f"before-{i}").arms[0]: 1.0})
    shop.refit()
    shop.add_arms(list(range(OLD, OLD + NEW)), vectors[:NEW] + 0.1)
    return shop


def visits(shop: Bandit, first: int, count: int, toward: int = NEW) -> None:
    rng = np.random.default_rng([first, 1])
    items = shop.snapshot.model.item_vectors
    assert items is not None
    for i in range(first, first + count):
        x = items[int(rng.integers(toward))] + 0.3 * rng.normal(size=8)
        shown = shop.decide(x.astype(np.float32), f"visit-{i}").arms
        shop.reward(f"visit-{i}", {arm: float(rng.random() < 0.3) for arm in shown})


def test_counts_are_those_of_the_log_and_every_decision_replays(tmp_path: Path) -> None:
    with make_shop(tmp_path / "shop") as shop:
        visits(shop, 0, 150)
        shop.refit()
        visits(shop, 150, 150)
        shown, texts = np.zeros(OLD + NEW, np.int64), list[str]()
        for i in range(300):
            event, again = shop.replay(f"visit-{i}")
            assert same_decision(event, again)
            text = json.loads(event.policy)["parameters"].get("trial_counts", "")
            for arm, count in zip(*unpacked_counts(text), strict=True):
                assert arm >= OLD
                assert count <= min(20, shown[arm])  # never ahead of the log
            if text not in texts[-1:]:
                texts.append(text)
                shown_then = shown.copy()
                counted = dict(zip(*(each.tolist() for each in unpacked_counts(text)), strict=True))
                if text and i < 150:  # and that far behind it at most
                    assert sum(counted.values()) == np.minimum(shown_then[list(counted)], 20).sum()
            np.add.at(shown, event.arms, 1)
        assert len(texts) > 5


def test_the_budget_is_shared_by_the_decisions_that_lead_to_new_arms(tmp_path: Path) -> None:
    """All draws together are charged the share of all rewards that the settings state, or less."""
    for budget in (0.01, 0.05):
        with make_shop(tmp_path / f"shop{budget}", new_arms_budget=budget) as shop:
            visits(shop, 0, 400, toward=OLD)
            expected, leading, charged, _, _ = shop.snapshot.model.engine.new_arm_spending()
            assert 0 < leading <= expected
            assert 0 < charged <= 1.1 * budget * expected
            text = shop.event("visit-399").event.policy
            given = json.loads(text)["parameters"]
            assert given["new_arms_budget"] == budget  # as the owner said it
            assert given["new_arms_factor"] > 0


def test_where_every_draw_is_dear_the_budget_is_spent_too(tmp_path: Path) -> None:
    """What is dear is so beside other draws: a slot spends less where it is, and a shop that has no others does not."""
    X, Y = topics()
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y)) as shop:
        for i in range(60):
            arms = shop.decide(X[i], f"before-{i}").arms
            shop.reward(f"before-{i}", {arm: float(Y[i, int(str(arm)[1:])]) for arm in arms})
        shop.refit()
        shop.add_arms(["n1", "n2", "n3"], vectors=X[:3])
        shown = {arm for i in range(400) for arm in shop.decide(X[i % 60], f"visit-{i}").arms}
        assert {"n1", "n2", "n3"} <= shown
        expected, leading, charged, _, part = shop.snapshot.model.engine.new_arm_spending()
        assert 0 < part < 0.5 * leading
        assert 0.008 * expected < charged < 0.011 * expected


def test_settings_without_a_budget_for_new_arms_stay(tmp_path: Path) -> None:
    with make_shop(tmp_path / "shop", new_arms_budget=0.0) as shop:
        before = shop.snapshot.policy()[1]
        visits(shop, 0, 60)
        assert shop.snapshot.policy()[1] == before
    counts = LiveTrials(packed_counts(np.array([3]), np.array([1])), 4.0)
    plain = PolicyConfig(strategy="igw")
    assert counts.applied(plain) is plain
    half = counts.applied(PolicyConfig(parameters={"new_arms_budget": 0.5}))
    strategy = make_strategy(half.strategy, half.parameters)
    assert isinstance(strategy, Budgeted)
    assert (strategy.new_arms_budget, strategy.new_arms_share) == (0.5, 1.0)


def test_a_process_that_opens_the_folder_counts_on(tmp_path: Path) -> None:
    with make_shop(tmp_path / "shop") as shop:
        visits(shop, 0, 100)
        shop.look_up_trials()
        here = unpacked_counts(shop.snapshot.trials.counts)
    with Bandit.open(tmp_path / "shop") as shop:
        shop.look_up_trials()
        arms, counts = unpacked_counts(shop.snapshot.trials.counts)
        assert set(here[0].tolist()) <= set(arms.tolist())
        known = dict(zip(arms.tolist(), counts.tolist(), strict=True))
        assert all(known[arm] >= count for arm, count in zip(*(each.tolist() for each in here), strict=True))


def test_models_without_new_arms_are_not_counted_for(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "tea", ["mint", "rose"]) as tea:
        tea.decide({})
        strategy = tea.snapshot.policy()[0].strategy
        assert TrialCounter().update(tea.log, tea.snapshot.model, strategy, 0.0) is None  # type: ignore[arg-type]
        assert replace(tea.snapshot.trials, factor=2.0).counts == ""


def test_the_settings_that_served_are_no_other_policy(tmp_path: Path) -> None:
    """What a bandit knew by then, a candidate with its strategy would have known as well: it is judged as it served."""
    with make_shop(tmp_path / "shop") as shop:
        visits(shop, 0, 150)
        served = PolicyConfig(**json.loads(shop.event("visit-149").event.policy))
    live = {name: served.parameters[name] for name in ("new_arms_factor", "trial_counts")}
    assert live["trial_counts"]
    for text in ("strategy=budgeted", "new_arms_budget=0.01", "budget=0.005"):
        parameters = CandidatePolicy.of(text).applied(served).parameters
        assert {name: parameters[name] for name in live} == live
    assert not CandidatePolicy.of("strategy=greedy").applied(served).parameters


def import_sixty(shop: Bandit, folder: Path, **more: str) -> None:
    """Sixty clicks on the first new arm, which another system has shown to one visitor."""
    np.save(folder / "visitors.npy", np.ones((1, 8), np.float32))
    row = {"item": str(OLD), "reward": "1", "visitor": "0"} | more
    past = folder / "past.csv"
    past.write_text(",".join(row) + "\n" + (",".join(row.values()) + "\n") * 60)
    roles = {name: "context" if name == "visitor" else name for name in row}
    columns = PastColumns.of(",".join(f"{role}={name}" for name, role in roles.items()))
    import_past(shop, past, columns, contexts=folder / "visitors.npy")


def test_what_another_system_has_shown_is_no_trial(tmp_path: Path) -> None:
    with make_shop(tmp_path / "shop") as shop:
        import_sixty(shop, tmp_path, time="2020-01-01T00:00:00")
        visits(shop, 0, 40)
        shop.look_up_trials()
        counted = dict(zip(*(each.tolist() for each in unpacked_counts(shop.snapshot.trials.counts)), strict=True))
        shown = sum(OLD in shop.event(f"visit-{i}").event.arms for i in range(40))
        assert counted
        assert counted.get(OLD, 0) <= shown


def shown_by(shop: Bandit, visits: int) -> dict[int, int]:
    """How often each new arm was shown in so many visits."""
    arms = np.concatenate([shop.event(f"visit-{i}").event.arms for i in range(visits)])
    found, counts = np.unique(arms[arms >= OLD], return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def counted(shop: Bandit) -> dict[int, int]:
    """How often each new arm was shown by what the next decision is made with."""
    pooled = shop.snapshot.model.pooled
    assert pooled is not None
    assert pooled.new_trials is not None
    found = {arm: int(n) for arm, n in enumerate(pooled.new_trials.tolist()) if n > 0}
    return found | dict(zip(*(each.tolist() for each in unpacked_counts(shop.snapshot.trials.counts)), strict=True))


def test_a_refit_counts_what_was_shown_and_not_what_was_rewarded(tmp_path: Path) -> None:
    """Most slots never get a reward where nothing is told but clicks."""
    with make_shop(tmp_path / "shop") as shop:
        for i in range(120):
            x = np.random.default_rng(i).normal(size=8).astype(np.float32)
            shown = shop.decide(x, f"visit-{i}", eligible=range(OLD, OLD + NEW)).arms
            if i % 10 == 0:
                shop.reward(f"visit-{i}", {shown[0]: 1.0})
        import_sixty(shop, tmp_path)
        expected = shown_by(shop, 120)
        assert sum(expected.values()) == 600
        for _ in range(2):  # neither forgotten nor counted twice
            shop.refit()
            assert counted(shop) == expected


def test_after_a_rollback_trials_are_counted_on_from_the_model_that_serves(tmp_path: Path) -> None:
    with make_shop(tmp_path / "shop") as shop:
        visits(shop, 0, 60)
        before = shop.refit().model
        visits(shop, 60, 60)
        shop.refit()
        visits(shop, 120, 60)
        shop.roll_back(before)
        shop.look_up_trials()
        expected = shown_by(shop, 180)
        assert {arm: min(n, 20) for arm, n in counted(shop).items()} == {arm: min(n, 20) for arm, n in expected.items()}
        visits(shop, 180, 40)
        shop.refit()
        assert counted(shop) == shown_by(shop, 220)


def test_arms_that_came_before_the_first_refit_are_counted_by_impressions_too(tmp_path: Path) -> None:
    """A bandit of nothing but ids has no counts of its own until then."""
    with Bandit.create(tmp_path / "tea", range(OLD)) as tea:
        tea.decide({})
        tea.add_arms(range(OLD, OLD + NEW))
        for i in range(60):
            shown = tea.decide({}, f"visit-{i}", eligible=range(OLD, OLD + NEW)).arms
            if i % 10 == 0:
                tea.reward(f"visit-{i}", {shown[0]: 1.0})
        assert tea.snapshot.model.pooled is None
        for _ in range(2):
            tea.refit()
            assert counted(tea) == shown_by(tea, 60)
