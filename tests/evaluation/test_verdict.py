"""The rule that chooses how to weigh, verdicts, and what is said beside them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetop.evaluation.estimators import SLATE, SLOTS
from treetop.evaluation.interval import Interval
from treetop.evaluation.judged import Judged
from treetop.evaluation.picture import draw_results
from treetop.evaluation.snips import WeightSums
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import (
    NO_CHANCE,
    WIDER_THAN_NORMAL,
    WIDER_THAN_SLOTS,
    chosen_way,
    intervals,
    judge,
    verdict,
)


def rounds(n: int, logged: float, hit: float, miss: float = 0.1, nodes: float | None = None, seed: int = 0) -> Judged:
    """Each slot shows what the candidate would with chance `logged`: that brings `hit` on average, all else `miss`."""
    k = 2
    rng = np.random.default_rng(seed)
    same = rng.random((n, k)) < logged
    rewards = (rng.random((n, k)) < np.where(same, hit, miss)).astype(float)
    chance, nothing = np.where(same, logged, 1 - logged), np.zeros((n, k))
    ratio = np.full((n, k, 1), nodes) if nodes is not None else np.zeros((n, k, 0))
    return Judged(chance, same.astype(float), rewards, rewards.sum(axis=1), nothing, nothing, ratio, nothing == 0)


def test_the_rule_goes_by_effective_sizes() -> None:
    assert chosen_way(Tally.of(rounds(3000, 0.9, 0.5))) == (SLATE, True)
    assert chosen_way(Tally.of(rounds(600, 0.9, 0.5))) == (SLOTS, True), "too few for slates"
    assert chosen_way(Tally.of(rounds(600, 0.1, 0.5))) == (SLOTS, False)
    by_nodes = Tally.of(rounds(600, 0.1, 0.5, nodes=1.0))
    assert chosen_way(by_nodes) == (SLOTS, False), "nodes only if asked for"
    assert any("biased" in note for note in judge("c", by_nodes, {}, estimator="snips-nodes-0").notes)
    assert chosen_way(Tally()) == (SLOTS, False)


def test_slates_without_support_give_way_to_slots() -> None:
    """Half of the slates that the candidate shows were never logged: the other half weighs 0.5 on average."""
    judged = rounds(4000, 0.9, 0.5)
    half = Judged(**{**vars(judged), "target": judged.target * [1.0, 0.5]})
    assert chosen_way(Tally.of(half)) == (SLOTS, True)
    assert any("hardly ever shown" in note for note in judge("half", Tally.of(half), {}).notes)


def partly(covered: float, hit: float, n: int = 4000) -> Judged:
    """Of every slate the log can show this share, and shows it in half of the rounds; that brings `hit`, all else 0."""
    same = (np.random.default_rng(0).random((n, 1)) < 0.5).astype(float)
    rewards, one, nothing = same * hit, np.ones((n, 1)), np.zeros((n, 1))
    known = {"covered": covered * one, "largest": 2 * covered * one}
    return Judged(
        0.5 * one, covered * same, rewards, rewards[:, 0], nothing, nothing, np.zeros((n, 1, 0)), one > 0, **known
    )


def test_what_the_log_cannot_show_has_no_number() -> None:
    """The log can show half of it, which brings 0.4 as against 0.2: all of it brings from 0.2 to 0.7."""
    found = judge("half", Tally.of(partly(0.5, 0.4)), {})
    assert found.missing == pytest.approx(0.5, abs=0.03)
    assert not found.answered
    assert found.described(found.per_visit).startswith("not known [0.1")
    assert found.verdict == f"cannot tell: the log lacks {found.missing:.0%} of it", "more such visits would not tell"
    guess = f"if it earned like the rest: {found.per_visit.value:.3f} a visit, {found.difference.value:+.3f}"
    assert any(guess in note for note in found.notes)
    plain = judge("half", Tally.of(partly(0.5, 0.4)), {}, estimator="ips-slots")
    assert any(f"if it earned nothing: {plain.per_visit.value:.3f} a visit" in note for note in plain.notes)


def test_what_the_log_shows_may_tell_all_the_same() -> None:
    """With 85 % of what brings twice as much as was served it is better, whatever the rest brings."""
    found = judge("most", Tally.of(partly(0.85, 0.9)), {})
    assert (found.verdict, found.answered) == ("better", False)
    whole = judge("whole", Tally.of(partly(1.0, 0.9)), {})
    assert (whole.verdict, whole.answered) == ("better", True)
    assert whole.described(whole.per_visit) == str(whole.per_visit)
    few = judge("few", Tally.of(partly(1.0, 0.4, n=40)), {})
    assert few.verdict.startswith("cannot tell yet: about"), "all of it can be shown: more visits would tell"


def weighed(last: float, hit: float, n: int = 2000) -> Tally:
    """Three slots like those that were served, but for the weight of the last one."""
    rewards = (np.random.default_rng(0).random((n, 3)) < hit).astype(float)
    one = np.ones((n, 3))
    target, nothing = one * [1.0, 1.0, last], (0 * one, 0 * one, np.zeros((n, 3, 0)), one > 0)
    return Tally.of(Judged(one, target, rewards, rewards.sum(axis=1), *nothing))


def test_slates_that_the_log_hardly_showed_give_way_to_slots() -> None:
    """Weights of 0.98 say that slates of 2 % were never shown: they may bring anything in all slots, or in the last."""
    tally = weighed(0.98, 0.5)
    assert chosen_way(tally) == (SLOTS, True)
    found, slots = (intervals(tally, way, 0.95, by_rule=True)[0].width for way in (SLATE, SLOTS))
    assert found > WIDER_THAN_SLOTS * slots
    assert found > WIDER_THAN_NORMAL * tally.ways[SLATE].terms.interval(0.95).width
    assert chosen_way(weighed(1.0, 0.5)) == (SLATE, True)


def test_few_rewards_are_no_reason_to_assume_more() -> None:
    """Intervals of six clicks are wide, by slots as by slates."""
    tally = weighed(1.0, 0.001)
    found, normal = intervals(tally, SLATE, 0.95, by_rule=True)[0], tally.ways[SLATE].terms.interval(0.95)
    assert found.width > WIDER_THAN_NORMAL * normal.width
    assert chosen_way(tally) == (SLATE, True)


@pytest.mark.parametrize(
    ("hit", "miss", "says"), [(0.8, 0.1, "better"), (0.1, 0.9, "worse"), (0.101, 0.1, "cannot tell yet")]
)
def test_verdicts(hit: float, miss: float, says: str) -> None:
    found = judge("candidate", Tally.of(rounds(4000, 0.7, hit, miss)), {"why": 3})
    assert found.verdict.startswith(says)
    assert found.per_visit.low <= 2 * hit <= found.per_visit.high
    assert found.left_out == {"why": 3}
    assert found.per_slot.value == pytest.approx(found.per_visit.value / 2)


def test_slots_that_nothing_is_known_of_count_as_0_in_every_unit() -> None:
    """The second slot never shows what the candidate would: its estimate is that of the first."""
    judged = rounds(4000, 0.9, 0.5)
    blind = Tally.of(Judged(**{**vars(judged), "target": judged.target * [1.0, 0.0]}))
    plain = judge("blind", blind, {}, estimator="snips-slots")
    assert plain.per_visit.value == pytest.approx(0.5, abs=0.05)
    for low, high, nothing in ((-6.0, 4.0, 0.0), (1.0, 3.0, 1.0), (-4.0, -2.0, -2.0)):
        found = judge("blind", blind, {}, estimator="snips-slots", limits=(low, high))
        assert found.per_visit.value == pytest.approx(low + (high - low) * plain.per_visit.value + nothing)
        assert found.per_visit.low == pytest.approx(2 * low + (high - low) * plain.per_visit.low)
    for way in (SLOTS, SLATE):
        never = Tally.of(Judged(**{**vars(judged), "target": 0 * judged.target}))
        assert judge("never", never, {}, estimator=f"snips-{way}", limits=(-6.0, 4.0)).per_visit.value == pytest.approx(
            0
        )


def test_a_guess_of_more_visits_shrinks_as_they_come() -> None:
    assert verdict(1000, 0.1, Interval(-0.1, 0.3)) == "cannot tell yet: about 3,000 more visits"
    assert verdict(3000, 0.1, Interval(-0.01, 0.21)) == "cannot tell yet: about 630 more visits"
    assert verdict(100, 0.0, Interval(-1.0, 1.0)) == "cannot tell yet: more than 100,000 more visits"


def test_intervals_shrink_and_a_bound_narrows_them() -> None:
    few, many = (judge("c", Tally.of(rounds(n, 0.7, 0.3)), {}, estimator="snips-slots").per_visit for n in (500, 5000))
    assert many.high - many.low < 0.5 * (few.high - few.low)
    judged, bound = rounds(5000, 0.7, 0.3), 1 / 0.7**2
    bounded = judge("c", Tally.of(judged, bound), {}, estimator="snips-slots", weight_bound=bound)
    plain = judge("c", Tally.of(judged), {}, estimator="snips-slots")
    width: Any = lambda e: e.high - e.low  # noqa: E731
    assert width(bounded.per_visit) < width(plain.per_visit)
    assert width(bounded.difference) < width(plain.difference)
    assert bounded.per_visit.low <= 0.6 <= bounded.per_visit.high


@pytest.mark.parametrize("bound", [None, 1.0])
def test_a_candidate_with_fewer_slots_than_were_served(bound: float | None) -> None:
    """Four slots bring 0.9 each, the candidate has the first of them: the difference is far beyond its own slots."""
    n = 2000
    one, rewards = np.ones((n, 1)), np.full((n, 1), 0.9)
    rest = 0 * one, 0 * one, np.zeros((n, 1, 0)), one > 0
    judged = Judged(one, one, rewards, np.full(n, 3.6), *rest, served_slots=np.full(n, 4.0))
    halves = [Tally.of(judged.part(np.arange(n) % 2 == i), bound) for i in range(2)]
    found = judge("k=1", halves[0] + halves[1], {}, weight_bound=bound)
    assert found.difference.low < -2.7 < found.difference.high
    assert found.difference.high - found.difference.low < 0.5
    assert found.difference.value == pytest.approx(-2.7)
    assert found.served.low < 3.6 < found.served.high
    assert found.served.high - found.served.low < 0.5
    assert found.per_visit.low < 0.9 < found.per_visit.high <= 1
    assert found.verdict == "worse"
    with pytest.raises(ValueError, match="served_slots are needed"):
        Tally.of(Judged(one, one, rewards, np.full(n, 3.6), *rest))


def test_a_bound_that_weights_exceed_is_refused() -> None:
    """Bets with a wrong bound lose more than all they have: the interval was that of no knowledge, without a word."""
    tally = Tally.of(rounds(2000, 0.7, 0.3)) + Tally.of(rounds(10, 0.9, 0.3))
    for way, largest in ((SLATE, 1 / 0.7**2), (SLOTS, 1 / 0.7**2)):
        judge("c", tally, {}, estimator=f"snips-{way}", weight_bound=largest)
        with pytest.raises(ValueError, match=r"weight_bound is 2; c has a weight of 2\.04082"):
            judge("c", tally, {}, estimator=f"snips-{way}", weight_bound=2.0)


def test_what_is_wrong_is_said() -> None:
    judged = rounds(4000, 0.7, 0.3)
    wrong = Judged(**{**vars(judged), "logged": judged.logged / 2})
    assert any("and should be 1" in note for note in judge("c", Tally.of(wrong), {}).notes)
    with pytest.raises(ValueError, match="estimator is 'best'; there are ips-, snips- or controlled-"):
        judge("c", Tally.of(judged), {}, estimator="best")
    nothing = judge("c", Tally(), {})
    assert nothing.verdict == "cannot tell: there are no rounds to judge it by"
    assert math.isnan(nothing.per_visit.value)


@pytest.mark.parametrize("rare", [1e-4, 3e-3, 0.1])
def test_weights_that_are_right_are_called_so_however_skewed(rare: float) -> None:
    """Greedy against a log that seldom explores: 1 / (1 - rare), or 0. A log without a rare one seemed to be wrong."""
    flagged = 0
    for seed in range(200):
        explored = np.random.default_rng(seed).random((1000, 1)) < rare
        sums = WeightSums(1000, _columns(np.where(explored, 0.0, 1 / (1 - rare))))
        flagged += sums.excess > NO_CHANCE
        few = np.random.default_rng(seed).random((1000, 1)) < 1 - rare  # and the other way round: 1 / rare, or 0
        flagged += WeightSums(1000, _columns(np.where(few, 0.0, 1 / rare))).excess > NO_CHANCE
    assert flagged == 0


def test_weights_that_are_wrong_are_noticed_where_it_matters() -> None:
    for wrong, n, noticed in ((1.05, 4000, True), (1.001, 4000, False), (1.001, 10**6, False)):
        explored = np.random.default_rng(0).random((n, 1)) < 0.3
        one, chance = np.ones((n, 1)), np.where(explored, 0.3, 0.7) / wrong
        judged = Judged(
            chance,
            np.where(explored, 0.2, 0.8),
            0 * one,
            0 * one[:, 0],
            0 * one,
            0 * one,
            0 * one[:, :, None][:, :, :0],
            one > 0,
        )
        notes = judge("c", Tally.of(judged), {}).notes
        assert any("and should be 1" in note for note in notes) == noticed, (wrong, n)


def _columns(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    squares = (weights**2).sum()
    return np.array([[len(weights)], [weights.sum()], [squares], [0.0], [(weights > 0).sum()]], np.float64)


def test_a_picture(tmp_path: Path) -> None:
    results = [judge(str(hit), Tally.of(rounds(2000, 0.7, hit)), {}) for hit in (0.8, 0.1)]
    for name in ("results.png", "results.svg"):
        draw_results([*results, judge("none", Tally(), {})], results[0].served, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_a_bound_holds_for_every_slot_of_a_slate() -> None:
    """The last weight is 1, that of the first slot 4: control variates were made for the bound at both."""
    one = np.ones((2000, 2))
    chances = one * [0.25, 1.0], one * [1.0, 0.25]
    judged = Judged(*chances, 0 * one, np.zeros(2000), 0 * one, 0 * one, np.zeros((2000, 2, 0)), one > 0)
    with pytest.raises(ValueError, match="weight_bound is 2; c has a weight of 4"):
        judge("c", Tally.of(judged, 2.0), {}, estimator="snips-slate", weight_bound=2.0)
