"""Intervals of live experiments: they hold at all times at once although visits of one unit are alike."""

import numpy as np
import pytest

from treetop.evaluation.live import LiveTotals, mixture_factor

BUCKETS, UNITS, LOOKS = 128, 400, 12


def play(seed: int, effect: float, rate: float) -> tuple[bool, bool, str]:
    """One experiment with looks on the way: whether every interval held the difference, whether the naive ones did."""
    rng = np.random.default_rng(seed)
    taste = rng.beta(0.5, 0.5 * (1 - rate) / rate, UNITS)  # units differ widely
    variant = rng.integers(0, 2, UNITS).astype(np.int32)
    bucket = rng.integers(0, BUCKETS, UNITS).astype(np.int32)
    totals = LiveTotals(("now", "new"), 0.0, BUCKETS)
    held, sums = True, np.zeros((2, 2))
    naive = True
    for look in range(LOOKS):
        who = rng.integers(0, UNITS, 500)
        times = np.full(500, float(look))
        rewards = (rng.random(500) < np.clip(taste[who] + effect * variant[who], 0, 1)).astype(float)
        totals.add_visits(times, variant[who], bucket[who], np.ones(500))
        totals.add_rewards(times, variant[who], bucket[who], rewards)
        sums += np.stack([np.bincount(variant[who], each, 2) for each in (np.ones(500), rewards)], axis=1)
        gap = totals.results("now", until=100.0)[1].difference
        assert gap is not None
        truth = float(np.mean(np.clip(taste + effect, 0, 1)) - np.mean(taste))
        held &= gap.low <= truth <= gap.high
        means = sums[:, 1] / sums[:, 0]
        half = 1.96 * np.sqrt((means * (1 - means) / sums[:, 0]).sum())
        naive &= abs(means[1] - means[0] - truth) <= half
    return held, naive, totals.results("now", until=100.0)[1].verdict


@pytest.mark.parametrize(("effect", "rate"), [(0.0, 0.3), (0.1, 0.3), (0.0, 0.02)])
def test_intervals_hold_at_every_look_though_visitors_come_again(effect: float, rate: float) -> None:
    found = [play(seed, effect, rate) for seed in range(150)]
    assert np.mean([held for held, _, _ in found]) >= 0.93
    assert np.mean([naive for _, naive, _ in found]) < 0.8  # visits are no independent trials
    wrong = [verdict for _, _, verdict in found if verdict == ("worse" if effect else "better")]
    assert len(wrong) <= 0.07 * len(found)


def test_what_differs_is_found_and_nothing_is_certain_without_rewards() -> None:
    rng, n = np.random.default_rng(0), 4000
    who, variant = rng.integers(0, BUCKETS, n).astype(np.int32), rng.integers(0, 2, n).astype(np.int32)
    totals = LiveTotals(("now", "new"), 0.0, BUCKETS)
    totals.add_visits(np.arange(n) / 10.0, variant, who, np.ones(n))
    silent = totals.results("now", until=n)
    assert [v.reward.value for v in silent] == [0, 0]
    assert silent[1].verdict.startswith("cannot tell yet")
    hits = (rng.random(n) < np.where(variant == 1, 0.5, 0.3)).astype(float)
    totals.add_rewards(np.arange(n) / 10.0, variant, who, hits)
    assert totals.results("now", until=n)[1].verdict == "better"
    assert totals.results("new", until=n)[1].verdict == "worse"
    history = totals.history(until=n)
    widths = [m.rewards[0].high - m.rewards[0].low for m in history if m.rewards[0] is not None]
    assert len(widths) > 20
    assert widths[-1] < widths[0] / 2
    assert history[-1].time == pytest.approx(n / 10, abs=5)


def test_stretches_become_longer_and_nothing_is_lost() -> None:
    totals = LiveTotals(("now", "new"), 0.0, 4)
    for day in range(50):
        totals.add_visits(np.array([86400.0 * day]), np.array([day % 2]), np.array([day % 4]), np.ones(1))
    assert totals.sums.sum() == 50
    assert sum(v.visits for v in totals.results("now", until=86400.0 * 60)) == 50
    assert sum(v.visits for v in totals.results("now", until=86400.0 * 25)) == pytest.approx(25, abs=2)


def test_the_factor_is_the_normal_mixtures() -> None:
    """Brownian motion crosses the boundary ever with chance alpha at most."""
    rng, steps = np.random.default_rng(1), 4000
    paths = np.cumsum(rng.normal(size=(800, steps)), axis=1)
    n = np.arange(1, steps + 1)
    bound = np.array([mixture_factor(float(t), 0.05) for t in n]) * np.sqrt(n)
    assert (np.abs(paths) > bound).any(axis=1).mean() <= 0.05
    assert mixture_factor(5000, 0.05) < 3.1
