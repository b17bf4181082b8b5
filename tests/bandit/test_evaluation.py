"""Candidates judged by a bandit's log: against the truth, by every estimator, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.judged import EPSILON, X, Y, judged_bandit, true_value, visit
from helpers.running import settings, small_bandit

import treetop
from treetop import Bandit, CandidatePolicy, PolicyConfig, RewardConfig, evaluate
from treetop.bandit.candidate_chances import HEIGHTS
from treetop.bandit.config import LearnerConfig
from treetop.bandit.evaluation import UNFIT, _Reading
from treetop.bandit.logged_batches import batches
from treetop.evaluation.tallies import Tallies


def test_estimates_are_near_the_truth_and_intervals_hold_it(judged: Bandit) -> None:
    candidates = ["strategy=greedy", "explore=0", "strategy=epsilon,epsilon=0.1", "k=1", "beam=30"]
    found = evaluate(judged, candidates)
    assert found.rounds == 4000
    assert found.differing == 0
    base = judged.config.policy
    for result in found.candidates:
        policy = CandidatePolicy.of(result.name).applied(base).make_policy()
        truth = true_value(judged, policy, 4000)
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
    served = true_value(judged, base.make_policy(), 4000)
    assert found.served.low <= served <= found.served.high


def test_fewer_slots_than_were_served(tmp_path: Path) -> None:
    """Four slots bring 0.9 each: one slot is 2.7 worse, which is more than its own slots could lose."""
    with judged_bandit(tmp_path, k=4) as bandit:
        for i in range(600):
            bandit.reward(f"visit-{i}", dict.fromkeys(bandit.decide(X[i], f"visit-{i}").arms, 0.9))
        result = evaluate(bandit, ["k=1,explore=1"]).candidates[0]
    assert result.difference.low < -2.7 < result.difference.high < 0
    assert result.difference.value == pytest.approx(-2.7)
    assert result.served.low < 3.6 < result.served.high
    assert result.verdict == "worse"


def test_as_served_is_what_was_served(judged: Bandit) -> None:
    result = evaluate(judged, [{}]).candidates[0]
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
    assert not evaluate(judged, ["k=1"]).candidates[0].verdict.startswith("the same"), "a slot less is another policy"


def test_an_estimator_by_name(judged: Bandit) -> None:
    """Every name that a result lists can be asked for, and is the number that was listed."""
    base = evaluate(judged, ["strategy=greedy"]).candidates[0]
    assert base.estimator == "snips-slate"
    for name, (value, _) in base.others.items():
        result = evaluate(judged, ["strategy=greedy"], estimator=name).candidates[0]
        assert result.estimator == name
        assert result.per_visit.value == pytest.approx(value), name
        assert result.per_visit.low < value < result.per_visit.high
        assert result.difference.value == pytest.approx(value - result.served.value)
        assert any("biased" in note for note in result.notes) == ("nodes" in name or "offcem" in name)
        assert any("one look" in note for note in result.notes) == name.startswith(("dr", "offcem"))
    with pytest.raises(ValueError, match="estimator is 'mips'; there are ips-, snips-"):
        evaluate(judged, ["strategy=greedy"], estimator="mips")


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


def test_a_notebook_shows_a_table(judged: Bandit) -> None:
    found = evaluate(judged, ["strategy=greedy", "beam=1"])
    greedy, narrow = found.candidates[0], replace(found.candidates[1], missing=0.2)
    assert (greedy.answered, narrow.answered) == (True, False)
    html = replace(found, candidates=(greedy, narrow))._repr_html_()
    visits = str(greedy.per_visit), narrow.described(narrow.per_visit)
    for part in ("4,000 visits", "strategy=greedy", greedy.verdict, *visits):
        assert part in html


def test_a_folder_a_stretch_and_a_bound(judged: Bandit) -> None:
    middle = judged.event("visit-2000").event.time
    late = evaluate(judged.folder.path, ["strategy=greedy"], since=middle)
    assert late.rounds == 2000
    whole = evaluate(judged, ["k=1,explore=0"]).candidates[0]
    bounded = evaluate(judged, ["k=1,explore=0"], weight_bound=200.0).candidates[0]
    assert bounded.per_visit.low >= 0
    assert whole.per_visit.value == pytest.approx(bounded.per_visit.value)
    assert evaluate(judged, ["beam=30"], confidence=0.5).candidates[0].per_visit.low > (
        evaluate(judged, ["beam=30"], confidence=0.99).candidates[0].per_visit.low
    )


def test_what_a_reward_may_depend_on_can_be_said(judged: Bandit) -> None:
    """Whole slates or slots, instead of what the rule would choose; both hold the truth."""
    base = judged.config.policy
    truth = true_value(judged, CandidatePolicy.of("explore=0").applied(base).make_policy(), 4000)
    for way in ("slate", "slots"):
        result = evaluate(judged, ["explore=0"], estimator=f"snips-{way}").candidates[0]
        assert (result.way, result.per_visit.low <= truth <= result.per_visit.high) == (way, True)
        assert {"dr-slots", "dr-slate", "controlled-slate"} <= result.others.keys()
        value, error = result.others["dr-slate"]
        assert abs(value - truth) < 5 * error


def test_threads_change_nothing(judged: Bandit) -> None:
    """To the last bit: every candidate is tallied in the order of the log."""
    candidates = ["strategy=greedy", "k=1", "beam=30"]
    one, four = (evaluate(judged, candidates, effort=treetop.Effort(threads=threads)) for threads in (1, 4))
    assert one.to_dict() == four.to_dict()
    assert one.rounds == 4000


def test_progress_is_told(judged: Bandit) -> None:
    told: list[tuple[int, int]] = []
    evaluate(judged, [], effort=treetop.Effort(progress=lambda done, total: told.append((done, total))))
    assert told[-1] == (4000, 4000)


def test_parameters_are_those_of_the_strategy_that_served(judged: Bandit) -> None:
    found = evaluate(judged, ["epsilon=0.1", "strategy=epsilon,epsilon=0.1"])
    assert found.candidates[0].per_visit == found.candidates[1].per_visit
    with pytest.raises(ValueError, match="epsilon has no 'C'"):
        evaluate(judged, ["C=2"])


def test_more_exploration_than_slots_is_refused(judged: Bandit) -> None:
    assert judged.config.policy.k == 2
    for candidates in (["explore=5"], ["beam=8", "explore=5"]):
        with pytest.raises(ValueError, match=r"policy 'explore=5': explore is 5; it must lie in \[0, 2\]"):
            evaluate(judged, candidates)


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
def test_wrong_candidates_are_refused(judged: Bandit, policy: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        evaluate(judged, [policy])


@pytest.mark.parametrize(("name", "value"), [("confidence", 0.2), ("confidence", 1.0), ("weight_bound", 0.5)])
def test_wrong_settings_are_refused(judged: Bandit, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        evaluate(judged, ["beam=30"], **{name: value})  # type: ignore[arg-type]


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
    with judged_bandit(tmp_path, k=1) as bandit:
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


def test_diversity_as_a_candidate_needs_categories(judged: Bandit) -> None:
    """As `decide` refuses it: such visits are left out, not judged without it."""
    with pytest.raises(ValueError, match="diversity needs a model that knows what its arms cover"):
        evaluate(judged, ["diversity=0.5"])
    found = evaluate(judged, ["diversity=0.5", "explore=0"]).candidates[0]
    assert (found.rounds, found.left_out) == (0, {UNFIT: 4000})
