"""Intervals against slow twins, and how often they hold: looked at once, at all times, and while means change."""

import numpy as np
import pytest
from helpers import reference_evaluation as slow
from helpers.strategies import few, seeds
from hypothesis import given

from treetop.arrays import Floats
from treetop.evaluation.bernstein import BernsteinSums
from treetop.evaluation.bets import EDGES, SMALLEST, Bets
from treetop.evaluation.interval import EVERY_STAKE, Moments, Stakes
from treetop.evaluation.tally import PLANS
from treetop.evaluation.tally import SHARES as CAP_SHARES

STAKES, SHARES = EVERY_STAKE.stakes, np.exp(EVERY_STAKE.log_shares).tolist()


def heavy(rng: np.random.Generator, n: int, p: float = 0.1, mean: float = 0.3) -> Floats:
    """Rewards of an arm with the given mean that a log shows with chance p, divided by it."""
    return np.asarray((rng.random(n) < p) * (rng.random(n) < mean) / p)


@pytest.mark.parametrize("plan", [EVERY_STAKE, *PLANS])
def test_the_stakes_share_out_one_capital(plan: Stakes) -> None:
    assert np.exp(plan.log_shares).sum() == pytest.approx(1)
    assert (plan.stakes > 0).all()
    assert plan.stakes.max() < 1, "all is never lost"
    assert sum(CAP_SHARES) == pytest.approx(1)


@few
@given(seeds)
def test_capital_is_that_of_the_twin_and_never_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.concatenate([heavy(rng, 40), rng.exponential(size=20), rng.random(20)])
    for mean in (0.05, 0.3, 0.9):
        lowest = -2 * SMALLEST  # rounding may take a value below 0
        exact = slow.log_capital(((values - lowest) / (mean - lowest)).tolist(), 1.0, STAKES.tolist(), SHARES)
        counted = Bets.of(values).log_capital(mean, 0.0)
        assert exact - 0.05 <= counted <= exact + 1e-9
        exact = slow.bernstein_log_capital(values.tolist(), mean, STAKES.tolist(), SHARES)
        assert BernsteinSums(0.0, 1.0).after(values).log_capital(mean) == pytest.approx(exact)


@few
@given(seeds)
def test_negative_values_and_other_scales(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = 10 * (rng.random(60) - 0.4)
    lowest = -4.0 * 1.05  # an edge may be 5 % below the lowest value
    scaled = (values - lowest) / (0.5 - lowest)
    exact = slow.log_capital(scaled.tolist(), 1.0, STAKES.tolist(), SHARES)
    assert Bets.of(values).log_capital(0.5, -4.0) == pytest.approx(exact, abs=0.05)


@few
@given(seeds)
def test_values_are_counted_as_by_the_twin(seed: int) -> None:
    """Of all sizes and both signs, on the edges themselves and beside them."""
    rng = np.random.default_rng(seed)
    some = rng.choice(EDGES[:-1], 20)
    wide = rng.choice([-1, 1], 40) * np.exp(rng.uniform(np.log(1e-9), np.log(5e8), 40))
    near = np.concatenate([np.nextafter(some[:10], np.inf), np.nextafter(some[10:], -np.inf).clip(EDGES[0])])
    values = np.concatenate([[0.0, -0.0, 1.0, 3e9], some, wide, near])
    rows = np.stack([values, values[::-1], 0.5 * values])
    for row, found in zip(rows, Bets.several(rows), strict=True):
        np.testing.assert_allclose(found.counts, slow.counted(row.tolist(), EDGES.tolist()), atol=1e-9)


def test_the_normal_interval_is_the_textbooks() -> None:
    values = np.random.default_rng(0).random(50)
    found = Moments.of(values).interval(0.95)
    assert (found.low, found.high) == pytest.approx(slow.normal_interval(values.tolist()), rel=1e-6)


def test_workers_and_days_are_merged_by_adding() -> None:
    rng = np.random.default_rng(0)
    values = heavy(rng, 3000)
    parts = [values[:1000], values[1000:1200], values[1200:]]
    whole, merged = Bets.of(values), sum(map(Bets.of, parts), Bets())
    assert merged.lower_bound(0, 1, 0.05) == pytest.approx(whole.lower_bound(0, 1, 0.05))
    sums = [BernsteinSums(0.0, 1.0).after(part) for part in parts]
    one = BernsteinSums(0.0, 1.0).after(values).lower_bound(0.05)
    assert (sums[0] + sums[1] + sums[2]).lower_bound(0.05) == pytest.approx(one, abs=0.01)
    with pytest.raises(ValueError, match="do not add up"):
        sums[0] + BernsteinSums(0.0, 2.0)


def test_bernstein_of_slates_of_several_slots_holds_at_any_time() -> None:
    """Rounds whose mean is above the unit of predictions: 2.4 of three slots, with weights of 0 and 2."""
    rng, failed = np.random.default_rng(2), 0
    for _ in range(200):
        values = 2 * (rng.random(1000) < 0.5) * (rng.random((3, 1000)) < 0.8).sum(axis=0)
        sums, missed = BernsteinSums(0.0, 1.0), False
        for part in np.split(values, 20):
            sums = sums.after(part)
            missed |= sums.log_capital(2.4) > np.log(20)
        failed += missed
        assert sums.lower_bound(0.05, most=3.0) > 1.9
    assert failed <= 16


def test_values_out_of_range() -> None:
    assert Bets.of(np.array([1e12])).counts[-1] == 1, "clipped down, which a lower bound allows"
    with pytest.raises(ValueError, match="bets take values from"):
        Bets.of(np.array([2 * EDGES[0]]))
    with pytest.raises(ValueError, match="it must be at least 0"):
        BernsteinSums(0.0, 1.0).after(np.array([-1.0]))


def test_it_hardly_ever_fails_at_any_time() -> None:
    """Looked at 30 times along the way, 400 times over; at 5 % at most 20 of them may fail, on average."""
    rng, failed = np.random.default_rng(1), {"bets": 0, "bernstein": 0}
    for _ in range(400):
        values = heavy(rng, 1500)
        bets, sums, worst = Bets(), BernsteinSums(0.0, 1.0), {"bets": False, "bernstein": False}
        for part in np.split(values, 30):
            bets, sums = bets + Bets.of(part), sums.after(part)
            worst["bets"] |= bets.log_capital(0.3, 0.0) > np.log(20)
            worst["bernstein"] |= sums.log_capital(0.3) > np.log(20)
        for name in failed:
            failed[name] += worst[name]
    assert max(failed.values()) <= 32


def test_it_holds_for_the_mean_of_means_that_change() -> None:
    """The mean falls from 0.5 to 0.1 half-way, as when another model serves."""
    rng, failed = np.random.default_rng(2), 0
    for _ in range(300):
        values = np.concatenate([heavy(rng, 500, mean=0.5), heavy(rng, 500, mean=0.1)])
        failed += Bets.of(values).log_capital(0.3, 0.0) > np.log(20)
    assert failed <= 26


def test_bets_are_narrower_than_bernstein_and_shrink() -> None:
    rng, widths = np.random.default_rng(3), []
    for n in (500, 5_000, 50_000):
        values = heavy(rng, n)
        bets, bernstein = Bets.of(values).lower_bound(0, 1, 0.025), BernsteinSums(0.0, 1.0).after(values)
        assert bernstein.lower_bound(0.025) <= bets <= 0.32
        widths.append(0.3 - bets)
    assert widths[0] > widths[1] > widths[2]


def test_bets_refuse_values_below_what_they_were_told() -> None:
    with pytest.raises(ValueError, match="these bets take values from -3 on"):
        Bets.of(np.array([-9.0, 1.0])).lower_bound(-3.0, 1.0, 0.05)
