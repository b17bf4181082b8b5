"""Candidates judged by a bandit's log: against the truth, with lists of arms, added and removed arms, old models."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import settings, small_bandit

import treetop
from treetop import Bandit, CandidatePolicy, PolicyConfig, RewardConfig, evaluate
from treetop.bandit import evaluation, spread_tallies, visits
from treetop.bandit.candidate_chances import HEIGHTS
from treetop.bandit.config import LearnerConfig
from treetop.bandit.evaluation import GONE, TAUGHT, UNFIT, UNLISTED, UNREWARDED, _Reading
from treetop.bandit.logged_batches import FILTERS, batches
from treetop.bandit.past_log import import_past
from treetop.bandit.past_values import PastColumns
from treetop.bandit.policy_search import neighbours, search_policies
from treetop.evaluation.tallies import Tallies
from treetop.files import locked
from treetop.parallel import Machines

X, Y = topics(n=2000)
TRUTH = 0.8 * Y.toarray() + 0.05  # the chance of a click
EPSILON = {"epsilon": 0.5}


def make(folder: Path, strategy: str = "epsilon", k: int = 2, **parameters: Any) -> Bandit:
    given = parameters or (EPSILON if strategy == "epsilon" else {})
    policy = PolicyConfig(k=k, explore=k, beam=4, strategy=strategy, parameters=given)
    return Bandit.open(small_bandit(folder / "shop", X, Y, config=settings(policy=policy)))


def visit(bandit: Bandit, n: int, first: int = 0, rewards: bool = True, **request: Any) -> None:
    rng = np.random.default_rng(first)
    for i in range(first, first + n):
        row = 300 + i % 1700
        served = bandit.decide(X[row], f"visit-{i}", **request)
        if rewards:
            clicks = {arm: float(rng.random() < TRUTH[row, min(59, int(str(arm)[1:]))]) for arm in served.arms}
            bandit.reward(f"visit-{i}", clicks)


def true_value(bandit: Bandit, policy: treetop.Policy, n: int) -> float:
    """What a policy earns on average on the first n visits, by the truth and many draws."""
    rows = 300 + np.arange(n) % 1700
    found = []
    for seed in range(20):
        shown = policy.decide_batch(bandit.snapshot.model, X[rows], seed=seed)
        found.append(TRUTH[rows[:, None], shown.arms].sum(axis=1).mean())
    return float(np.mean(found))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Bandit:
    """4,000 visits; model 000000 decided them all."""
    bandit = make(tmp_path_factory.mktemp("evaluated"))
    visit(bandit, 4000)
    return bandit


def test_estimates_are_near_the_truth_and_intervals_hold_it(shop: Bandit) -> None:
    candidates = ["strategy=greedy", "explore=0", "strategy=epsilon,epsilon=0.1", "k=1", "beam=30"]
    found = evaluate(shop, candidates)
    assert found.rounds == 4000
    assert found.differing == 0
    base = shop.config.policy
    for result in found.candidates:
        policy = CandidatePolicy.of(result.name).applied(base).make_policy()
        truth = true_value(shop, policy, 4000)
        assert result.per_visit.low <= truth <= result.per_visit.high, result
        assert result.bernstein.low <= truth <= result.bernstein.high, result
        assert result.bernstein.high - result.bernstein.low > result.per_visit.high - result.per_visit.low
        assert result.per_visit.value == pytest.approx(truth, abs=0.12), result
        assert result.per_slot.value == pytest.approx(result.per_visit.value / policy.k)
        assert result.effective > 100
    greedy, without, fewer, one, _ = found.candidates
    assert greedy.verdict == without.verdict == fewer.verdict == "better"
    assert one.verdict == "worse"
    assert greedy.per_visit == without.per_visit
    served = true_value(shop, base.make_policy(), 4000)
    assert found.served.low <= served <= found.served.high


def test_fewer_slots_than_were_served(tmp_path: Path) -> None:
    """Four slots bring 0.9 each: one slot is 2.7 worse, which is more than its own slots could lose."""
    with make(tmp_path, k=4) as bandit:
        for i in range(600):
            bandit.reward(f"visit-{i}", dict.fromkeys(bandit.decide(X[i], f"visit-{i}").arms, 0.9))
        result = evaluate(bandit, ["k=1,explore=1"]).candidates[0]
    assert result.difference.low < -2.7 < result.difference.high < 0
    assert result.difference.value == pytest.approx(-2.7)
    assert result.served.low < 3.6 < result.served.high
    assert result.verdict == "worse"


def test_as_served_is_what_was_served(shop: Bandit) -> None:
    result = evaluate(shop, [{}]).candidates[0]
    assert result.name == "as served"
    assert result.effective == pytest.approx(4000)
    assert result.per_visit.value == pytest.approx(result.served.value)
    assert result.difference.value == pytest.approx(0, abs=1e-9)
    assert result.verdict == "the same: every visit was as likely under it"
    assert result.largest_weight == 1.0
    assert result.unsupported == pytest.approx(0, abs=1e-12)
    for name, (value, _) in result.others.items():
        if name.startswith(("ips", "snips")):
            assert value == pytest.approx(result.served.value), name
    assert not evaluate(shop, ["k=1"]).candidates[0].verdict.startswith("the same"), "a slot less is another policy"


def test_an_estimator_by_name(shop: Bandit) -> None:
    """Every name that a result lists can be asked for, and is the number that was listed."""
    base = evaluate(shop, ["strategy=greedy"]).candidates[0]
    assert base.estimator == "snips-slate"
    for name, (value, _) in base.others.items():
        result = evaluate(shop, ["strategy=greedy"], estimator=name).candidates[0]
        assert result.estimator == name
        assert result.per_visit.value == pytest.approx(value), name
        assert result.per_visit.low < value < result.per_visit.high
        assert result.difference.value == pytest.approx(value - result.served.value)
        assert any("biased" in note for note in result.notes) == ("nodes" in name or "offcem" in name)
        assert any("one look" in note for note in result.notes) == name.startswith(("dr", "offcem"))
    with pytest.raises(ValueError, match="estimator is 'mips'; there are ips-, snips-"):
        evaluate(shop, ["strategy=greedy"], estimator="mips")


def test_nodes_of_every_height_can_be_asked_for(tmp_path: Path) -> None:
    policy = PolicyConfig(k=2, explore=2, beam=4, strategy="epsilon", parameters=EPSILON)
    config = settings(policy=policy, learner=LearnerConfig("paper"))  # whose trees are not flattened
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y, config=config)) as bandit:
        visit(bandit, 200)
        top = bandit.snapshot.model.tree.depth - 1
        assert top >= HEIGHTS
        base = evaluate(bandit, ["strategy=greedy"], estimator="snips-slots").candidates[0]
        for kind in ("snips-nodes", "offcem"):
            high = evaluate(bandit, ["strategy=greedy"], estimator=f"{kind}-{top}").candidates[0]
            assert high.effective > base.effective, "weights of nodes vary less"
            with pytest.raises(ValueError, match=f"-{top + 1}'; the tree has {top + 1} levels"):
                evaluate(bandit, ["strategy=greedy"], estimator=f"{kind}-{top + 1}")


def test_what_the_log_cannot_show_is_counted(tmp_path: Path) -> None:
    """A greedy log says nothing of what a candidate draws beside the best."""
    with make(tmp_path, strategy="greedy", k=1) as bandit:
        visit(bandit, 200)
        result = evaluate(bandit, ["strategy=epsilon,epsilon=0.2"]).candidates[0]
        assert 0.1 < result.unsupported < 0.2
        assert 1 - result.unsupported == pytest.approx(result.mean_weight)
        assert result.largest_weight < 1
        bandit.config = replace(bandit.config, refit=replace(bandit.config.refit, keep=2, keep_gb=0.0))
        for _ in range(3):
            bandit.refit()
        assert "000000" not in bandit.folder.models()
        visit(bandit, 20, 200)
        again = evaluate(bandit, ["strategy=epsilon,epsilon=0.2"]).candidates[0]
        assert again.left_out == {GONE: 200}
        assert 0.1 < again.unsupported < 0.2


def test_a_notebook_shows_a_table(shop: Bandit) -> None:
    found = evaluate(shop, ["strategy=greedy", "beam=1"])
    greedy, narrow = found.candidates[0], replace(found.candidates[1], missing=0.2)
    assert (greedy.answered, narrow.answered) == (True, False)
    html = replace(found, candidates=(greedy, narrow))._repr_html_()
    visits = str(greedy.per_visit), narrow.described(narrow.per_visit)
    for part in ("4,000 visits", "strategy=greedy", greedy.verdict, *visits):
        assert part in html


def test_a_folder_a_stretch_and_a_bound(shop: Bandit) -> None:
    middle = shop.event("visit-2000").event.time
    late = evaluate(shop.folder.path, ["strategy=greedy"], since=middle)
    assert late.rounds == 2000
    whole = evaluate(shop, ["k=1,explore=0"]).candidates[0]
    bounded = evaluate(shop, ["k=1,explore=0"], weight_bound=200.0).candidates[0]
    assert bounded.per_visit.low >= 0
    assert whole.per_visit.value == pytest.approx(bounded.per_visit.value)
    assert evaluate(shop, ["beam=30"], confidence=0.5).candidates[0].per_visit.low > (
        evaluate(shop, ["beam=30"], confidence=0.99).candidates[0].per_visit.low
    )


def test_what_a_reward_may_depend_on_can_be_said(shop: Bandit) -> None:
    """Whole slates or slots, instead of what the rule would choose; both hold the truth."""
    base = shop.config.policy
    truth = true_value(shop, CandidatePolicy.of("explore=0").applied(base).make_policy(), 4000)
    for way in ("slate", "slots"):
        result = evaluate(shop, ["explore=0"], estimator=f"snips-{way}").candidates[0]
        assert (result.way, result.per_visit.low <= truth <= result.per_visit.high) == (way, True)
        assert {"dr-slots", "dr-slate", "controlled-slate"} <= result.others.keys()
        value, error = result.others["dr-slate"]
        assert abs(value - truth) < 5 * error


def test_threads_change_nothing(shop: Bandit) -> None:
    """To the last bit: every candidate is tallied in the order of the log."""
    candidates = ["strategy=greedy", "k=1", "beam=30"]
    one, four = (evaluate(shop, candidates, effort=treetop.Effort(threads=threads)) for threads in (1, 4))
    assert one.to_dict() == four.to_dict()
    assert one.rounds == 4000


def test_progress_is_told(shop: Bandit) -> None:
    told: list[tuple[int, int]] = []
    evaluate(shop, [], effort=treetop.Effort(progress=lambda done, total: told.append((done, total))))
    assert told[-1] == (4000, 4000)


def test_lists_of_arms_and_removed_arms(tmp_path: Path) -> None:
    """The chances of what served are computed again from the lists that each visit had: all of them are as recorded."""
    with make(tmp_path) as bandit:
        visit(bandit, 60)
        visit(bandit, 60, 60, eligible=[f"a{i}" for i in range(20)])
        visit(bandit, 60, 120, exclude=["a1", "a2"])
        bandit.remove_arms(["a3", "a7"])
        for i in range(40):
            visit(bandit, 1, 180 + i, eligible=[f"a{j}" for j in range(i, i + 12)])
        visit(bandit, 60, 220, k=4, explore=3)
        found = evaluate(bandit, ["strategy=greedy", {}])
        assert (found.rounds, found.differing) == (280, 0)
        assert found.candidates[1].effective == pytest.approx(280)
        assert found.candidates[1].mean_weight == pytest.approx(1)


def test_more_lists_of_arms_than_are_kept(tmp_path: Path) -> None:
    """Lists come again after they have left the cache, one batch with another, alone in their batch too."""
    with make(tmp_path) as bandit:
        lists = [[f"a{j % 60}" for j in (i, i + 7, i + 19, i + 20 + i // 60)] for i in range(FILTERS + 6)]
        for i in range(2 * len(lists)):
            visit(bandit, 1, i, eligible=lists[i % len(lists)])
        visit(bandit, 3, 2 * len(lists), k=1, eligible=lists[0])
        found = evaluate(bandit, ["strategy=greedy"])
        assert (found.rounds, found.differing) == (2 * len(lists) + 3, 0)


def test_lists_of_arms_that_are_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention deletes a list after its visits were read: these are left out, the others judged."""
    with make(tmp_path) as bandit:
        visit(bandit, 20, eligible=["a1", "a2", "a3"])
        visit(bandit, 30, 20, eligible=["a4", "a5", "a6"])
        visit(bandit, 40, 50)
        deleted, find = bandit.event("visit-0").event.eligible, bandit.log.eligible_set
        monkeypatch.setattr(bandit.log, "eligible_set", lambda name: None if name == deleted else find(name))
        found = evaluate(bandit, ["strategy=greedy"])
        assert (found.rounds, found.differing) == (70, 0)
        assert (found.candidates[0].rounds, found.candidates[0].left_out) == (70, {UNLISTED: 20})


def test_added_arms_and_models_that_learned(tmp_path: Path) -> None:
    with make(tmp_path) as bandit:
        visit(bandit, 100)
        bandit.refit()
        visit(bandit, 100, 100)
        bandit.add_arms(["a60"], vectors=X[:1])
        visit(bandit, 100, 200, eligible=["a60", "a1", "a2"])
        found = evaluate(bandit, [{}, "model=000001", "model=000000", "model=000002"])
        served, first, start, grown = found.candidates
        assert found.differing == 0
        assert (served.rounds, served.left_out) == (300, {})
        assert (first.rounds, first.left_out) == (200, {TAUGHT: 100})
        assert (start.rounds, start.left_out) == (300, {}), "the first model has learned from no visit"
        assert (grown.rounds, grown.left_out) == (100, {TAUGHT: 200})
        assert first.share < 1, "a model from before an arm was added cannot show it"


def test_models_that_are_not_kept(tmp_path: Path) -> None:
    with make(tmp_path) as bandit:
        bandit.config = replace(bandit.config, refit=replace(bandit.config.refit, keep_gb=0.0))
        for i in range(7):
            visit(bandit, 20, 20 * i)
            bandit.refit()
        kept = bandit.folder.models()
        assert "000000" not in kept
        result, named = evaluate(bandit, ["beam=30", f"model={kept[0]}"]).candidates
        assert result.left_out[GONE] > 0
        assert result.rounds + result.left_out[GONE] == 140
        assert named.left_out == {TAUGHT: 20 * int(kept[0])}
        with pytest.raises(ValueError, match="there is no model '000000'; kept are"):
            evaluate(bandit, ["model=000000"])


def test_rewards_that_are_missing(tmp_path: Path) -> None:
    with make(tmp_path) as bandit:
        visit(bandit, 30)
        visit(bandit, 10, 30, rewards=False)
        result = evaluate(bandit, ["strategy=greedy"]).candidates[0]
        assert (result.rounds, result.left_out) == (30, {UNREWARDED: 10})
        assert any("10 visits have no reward though reward_wait is over" in note for note in result.notes)
        (rounds,) = bandit.log.decided(bandit.log.summary().counts.position, 1000)
        whole = list(batches(rounds, X.shape[1], overdue=np.inf, default=0.0))
        assert sum(len(batch) for batch in whole) == 40
        assert not any(np.isnan(batch.rewards).any() for batch in whole)


@pytest.mark.parametrize(
    ("rewards", "left", "noted"),
    [
        (RewardConfig(), 10, True),
        (RewardConfig(reward_wait=3600), 10, False),
        (RewardConfig(default_reward=0.0), 0, False),
    ],
)
def test_silence_that_may_depend_on_what_was_shown_is_noted(
    tmp_path: Path, rewards: RewardConfig, left: int, noted: bool
) -> None:
    """Not while rewards may still come, and not if silence has a reward."""
    config = settings(policy=PolicyConfig(k=1, explore=1, strategy="epsilon", parameters=EPSILON), rewards=rewards)
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y, config=config)) as bandit:
        visit(bandit, 30)
        visit(bandit, 10, 30, rewards=False)
        result = evaluate(bandit, ["strategy=greedy"]).candidates[0]
        assert (result.rounds, result.left_out.get(UNREWARDED, 0)) == (40 - left, left)
        assert any("set default_reward" in note for note in result.notes) == noted


def test_nothing_to_judge_by(tmp_path: Path) -> None:
    with make(tmp_path, "greedy") as bandit:
        nothing = evaluate(bandit, ["beam=30"])
        assert nothing.candidates[0].verdict == "cannot tell: there are no rounds to judge it by"
        assert json.loads(json.dumps(nothing.to_dict()))["candidates"][0]["per_visit"]["value"] is None
        visit(bandit, 50)
        result = evaluate(bandit, ["strategy=epsilon,epsilon=1"]).candidates[0]
        assert result.verdict == "cannot tell: the log lacks 100% of it"
        assert any("effective rounds" in note for note in result.notes)
        assert result.mean_weight < 0.1
        assert result.per_visit.high > 1.5, "what was never shown may bring anything"


def test_parameters_are_those_of_the_strategy_that_served(shop: Bandit) -> None:
    found = evaluate(shop, ["epsilon=0.1", "strategy=epsilon,epsilon=0.1"])
    assert found.candidates[0].per_visit == found.candidates[1].per_visit
    with pytest.raises(ValueError, match="epsilon has no 'C'"):
        evaluate(shop, ["C=2"])


def test_visits_that_a_candidate_does_not_fit_are_left_out(tmp_path: Path) -> None:
    """Visits of another strategy, and of fewer slots: both are counted, the others judged."""
    with make(tmp_path) as bandit:
        visit(bandit, 40)
        visit(bandit, 10, 40, k=1)
        path = bandit.folder.path
    settings_file = path / "config.toml"
    text = settings_file.read_text()
    changed = text.replace('strategy = "epsilon"', 'strategy = "igw"').replace("epsilon = 0.5", "C = 1.0")
    assert changed != text
    settings_file.write_text(changed)
    with Bandit.open(path) as bandit:
        visit(bandit, 30, 50)
        two, parameter, both = evaluate(bandit, ["k=2", "C=2", "k=2,C=2"]).candidates
        assert (two.rounds, two.left_out) == (70, {UNFIT: 10})
        assert any("k is 2; the log has decisions of 1 slots" in note for note in two.notes)
        assert (parameter.rounds, parameter.left_out) == (30, {UNFIT: 50})
        assert any("epsilon has no 'C'" in note for note in parameter.notes)
        assert (both.rounds, both.left_out) == (30, {UNFIT: 50})
        wide, greedy = evaluate(bandit, ["k=9", "strategy=greedy"]).candidates
        assert (wide.rounds, wide.left_out) == (0, {UNFIT: 80})
        assert (greedy.rounds, greedy.left_out) == (80, {})
        with pytest.raises(ValueError, match="k is 9; the log has decisions of 2 slots"):
            evaluate(bandit, ["k=9"])
        for held_out in (0.3, 0.9):
            found = treetop.search_policies(bandit, held_out=held_out)
            assert found.searched.rounds + found.held_out.rounds == 80


def test_a_search_splits_the_visits_that_it_judges_and_not_those_of_another_system(tmp_path: Path) -> None:
    past = tmp_path / "past.csv"
    past.write_text("item,reward,time\n" + "".join(f"a{i % 60},1,{i + 1}\n" for i in range(400)))
    with make(tmp_path) as bandit:
        import_past(bandit, past, PastColumns.of("item=item,reward=reward,time=time"))
        with pytest.raises(ValueError, match="no visits with rewards"):
            search_policies(bandit)
        for i in range(100):
            bandit.reward(f"visit-{i}", {bandit.decide(X[i], f"visit-{i}").arms[0]: 1.0})
        found = search_policies(bandit)
        assert (found.searched.rounds, found.held_out.rounds) == (70, 30)


def test_a_search_chooses_by_one_stretch_and_confirms_by_the_other(shop: Bandit) -> None:
    found = treetop.search_policies(shop)
    assert (found.searched.rounds, found.held_out.rounds) == (2800, 1200)
    names = [candidate.name for candidate in found.searched.candidates]
    assert names == ["strategy=greedy", "explore=1", "beam=2", "beam=8", "beam=12", "epsilon=0.25", "epsilon=1.0"]
    lows = {candidate.name: candidate.difference.low for candidate in found.searched.candidates}
    assert found.chosen == max(lows, key=lambda name: lows[name])
    assert found.held_out.candidates[0].name == found.chosen
    assert found.held_out.candidates[0].verdict == "better"
    late = treetop.search_policies(shop.folder.path, since=shop.event("visit-2000").event.time, held_out=0.5)
    assert (late.searched.rounds, late.held_out.rounds) == (1000, 1000)


@pytest.mark.parametrize(
    ("served", "names"),
    [
        (PolicyConfig(k=2, explore=1, beam=10, strategy="greedy"), []),
        (PolicyConfig(k=2, explore=0, beam=10, strategy="igw"), ["explore=1"]),
        (PolicyConfig(k=2, explore=1, beam=10, strategy="igw"), ["strategy=greedy", "explore=2", "C=0.5", "C=2.0"]),
    ],
)
def test_neighbours_that_decide_alike_are_listed_once(served: PolicyConfig, names: list[str]) -> None:
    found = [candidate.name for candidate in neighbours(served)]
    assert [name for name in found if not name.startswith("beam")] == names


def test_more_exploration_than_slots_is_refused(shop: Bandit) -> None:
    assert shop.config.policy.k == 2
    for candidates in (["explore=5"], ["beam=8", "explore=5"]):
        with pytest.raises(ValueError, match=r"policy 'explore=5': explore is 5; it must lie in \[0, 2\]"):
            evaluate(shop, candidates)


def test_a_search_needs_visits(tmp_path: Path) -> None:
    with make(tmp_path) as bandit:
        with pytest.raises(ValueError, match="there are no visits with rewards to judge by"):
            treetop.search_policies(bandit)
        with pytest.raises(ValueError, match="held_out is 1"):
            treetop.search_policies(bandit, held_out=1.0)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("beam", "policy 'beam' has 'beam' in it; name=value"),
        ("beam=many", "beam is 'many'; a number is needed"),
        ("beam=3,beam=4", "has beam twice"),
        ("beam=0", "beam is 0; it must lie in"),
        ("strategy=best", "strategy is 'best'; it must be one of"),
        ("strategy=greedy,C=2", "greedy has no 'C'"),
        ("beem=30", "policy has 'beem'; it may have k, explore, beam"),
        ("explore=2,k=1", "explore is 2"),
        ("k=9,explore=1", "k is 9; the log has decisions of 2 slots"),
    ],
)
def test_wrong_candidates_are_refused(shop: Bandit, policy: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        evaluate(shop, [policy])


@pytest.mark.parametrize(("name", "value"), [("confidence", 0.2), ("confidence", 1.0), ("weight_bound", 0.5)])
def test_wrong_settings_are_refused(shop: Bandit, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        evaluate(shop, ["beam=30"], **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-8.0, 2.0), (-5.0, 0.0)])
def test_negative_rewards_with_partial_support(tmp_path: Path, low: float, high: float) -> None:
    """Only the best arm was shown, and always brought the least: nothing says that other arms bring more or less."""
    policy = PolicyConfig(k=1, explore=1, beam=4, strategy="epsilon", parameters={"epsilon": 0.0})
    config = settings(policy=policy, rewards=RewardConfig(low=low, high=high))
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y, config=config)) as bandit:
        for i in range(300):
            bandit.reward(f"visit-{i}", dict.fromkeys(bandit.decide(X[i], f"visit-{i}").arms, low))
        every, half = evaluate(bandit, ["epsilon=1.0", "epsilon=0.5"], weight_bound=2.0).candidates
        assert every.difference.low <= 0 <= every.difference.high
        assert every.verdict.startswith("cannot tell: the log lacks 9")
        least = low + 0.05 * (high - low)
        assert low <= half.per_visit.low < least, "what was shown brought the least"
        for result in evaluate(bandit, ["epsilon=1.0"]).candidates:
            assert result.verdict.startswith("cannot tell: the log lacks 9")
            assert all(np.isfinite([result.per_visit.low, result.per_visit.high]))
            assert result.others["controlled-slate"][0] < least


def test_rounds_with_wrong_propensities_have_no_control_variates(tmp_path: Path) -> None:
    """One recorded propensity of a thousandth says a weight that no control variate was made for."""
    with make(tmp_path, k=1) as bandit:
        visit(bandit, 300)
        whole = evaluate(bandit, ["explore=0"]).candidates[0]
        (rounds,) = bandit.log.decided(bandit.log.summary().counts.position, 1000)
        (batch,) = batches(rounds, X.shape[1], np.inf, None)
        reading = _Reading(bandit, [CandidatePolicy.of("explore=0")], np.inf, Tallies(1, threads=1), treetop.Effort())
        best = int(np.argmax(batch.propensities[:, 0]))
        batch.propensities[best, 0] *= 1e-3
        reading.judge(batch)
        result = reading.result(0, 0.95, None, None)
        assert reading.differing == 1
        assert result.per_visit.low > whole.per_visit.low - 0.1
        assert np.isfinite(result.per_visit.high)


def test_diversity_as_a_candidate_needs_categories(shop: Bandit) -> None:
    """As `decide` refuses it: such visits are left out, not judged without it."""
    with pytest.raises(ValueError, match="diversity needs a model that knows what its arms cover"):
        evaluate(shop, ["diversity=0.5"])
    found = evaluate(shop, ["diversity=0.5", "explore=0"]).candidates[0]
    assert (found.rounds, found.left_out) == (0, {UNFIT: 4000})


def test_what_tasks_find_is_what_one_pass_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several models, lists of arms, a filter, other slots and visits that fit no candidate, in many small waves."""
    monkeypatch.setattr(evaluation, "Machines", lambda ray: Machines(workers=2, pauses=()))  # threads, no cluster
    for module, name, value in ((spread_tallies, "CHUNK", 70), (spread_tallies, "WAVE", 3), (visits, "CHUNK", 50)):
        monkeypatch.setattr(module, name, value)
    with make(tmp_path) as bandit:
        visit(bandit, 300)
        bandit.refit()
        visit(bandit, 300, first=300)
        visit(bandit, 40, first=600, eligible=bandit.snapshot.arms.ids[:30])
        visit(bandit, 40, first=640, k=1)
        visit(bandit, 20, first=680, rewards=False)
        asked: Any = [bandit, ["strategy=greedy", "beam=2", "k=2", "model=000000", "epsilon=0.1"]]
        here = evaluate(*asked).to_dict()
        started = evaluate(*asked, effort=treetop.Effort(ray="auto")).to_dict()
        searched = search_policies(bandit).to_dict()
        assert search_policies(bandit, effort=treetop.Effort(ray="auto")).to_dict() == searched
        (tmp_path / "elsewhere").mkdir()
        evaluate(*asked, effort=treetop.Effort(ray="auto", folder=tmp_path / "elsewhere"))
    assert started == here
    assert here["rounds"] == 680
    assert not list(tmp_path.rglob(f"{spread_tallies.PREFIX}*"))


def test_folders_that_evaluations_left_are_deleted_and_one_in_use_is_not(
    shop: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "Machines", lambda ray: Machines(workers=1, pauses=()))
    left, used = (shop.folder.path / f"{spread_tallies.PREFIX}{name}" for name in ("left", "used"))
    for path in (left, used):
        path.mkdir()
        (path / "questions-0").touch()
    with locked(used / spread_tallies.LOCK):
        evaluate(shop, ["explore=0"], effort=treetop.Effort(ray="auto"))
        assert [path.name for path in shop.folder.path.glob(f"{spread_tallies.PREFIX}*")] == [used.name]
    spread_tallies.clear_evaluations(shop.folder.path)
    assert not used.exists()
