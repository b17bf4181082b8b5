"""The comparisons against cases worked out by hand."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treetop.experiments.comparison import (
    LEVEL,
    Tally,
    bakeoff,
    band,
    exponent,
    half_width,
    outcomes,
    paired,
    ranks,
    tally,
    verdict,
)

SHARES = st.floats(0, 1)


def test_the_rule_by_hand() -> None:
    """p 0.5 against 0.4 over 100 rounds: error sqrt(0.25/100 + 0.24/100) = 0.07, z = 0.1/0.07 = 1.42857."""
    z = 0.1 / 0.07
    assert bakeoff(0.5, 0.4, 100) == pytest.approx(0.5 * math.erfc(z / math.sqrt(2)), abs=1e-12)
    assert bakeoff(0.5, 0.4, 100) == pytest.approx(0.07656, abs=1e-5)
    assert bakeoff(0.5, 0.4, 100, law="erf") == pytest.approx(1 - math.erf(z), abs=1e-12)


def test_the_two_readings_of_phi_differ_between_1386_and_1645_standard_errors() -> None:
    """The same 1.43 standard errors are a draw by the normal law, a win by the released code."""
    assert bakeoff(0.5, 0.4, 100) > LEVEL > bakeoff(0.5, 0.4, 100, law="erf")


@pytest.mark.parametrize(("n", "outcome"), [(132, 0), (133, 1)])
def test_the_edge_of_the_draw_band(n: int, outcome: int) -> None:
    """z = 0.1 / sqrt(0.49 / n) passes 1.644854 between n = 132 (1.6413) and n = 133 (1.6475)."""
    assert verdict(bakeoff(0.5, 0.4, n), bakeoff(0.4, 0.5, n)) == outcome


@given(SHARES, SHARES, st.integers(1, 10**7), st.sampled_from(["normal", "erf"]))
def test_a_wins_exactly_where_b_loses(a: float, b: float, n: int, law: str) -> None:
    there = verdict(bakeoff(a, b, n, law), bakeoff(b, a, n, law))
    back = verdict(bakeoff(b, a, n, law), bakeoff(a, b, n, law))
    assert there == -back
    assert there == 0 or (there > 0) == (a > b)


@given(SHARES, st.integers(1, 10**7))
def test_nothing_wins_over_itself(p: float, n: int) -> None:
    assert verdict(bakeoff(p, p, n), bakeoff(p, p, n)) == 0
    assert verdict(bakeoff(p, p, n, "erf"), bakeoff(p, p, n, "erf")) == 0


def test_certain_outcomes_have_no_error_to_divide_by() -> None:
    assert bakeoff(1, 0, 5) == 0
    assert bakeoff(0, 1, 5) == 1
    assert bakeoff(0, 0, 5) == bakeoff(1, 1, 5) == 1


def test_the_draw_band_narrows_with_the_rounds() -> None:
    p = [bakeoff(0.31, 0.30, n) for n in (100, 1_000, 10_000, 100_000)]
    assert p == sorted(p, reverse=True)
    assert p[0] > LEVEL > p[-1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bakeoff(1.2, 0.5, 10), r"p_a is 1.2; it must be finite and lie in \[0, 1\]"),
        (lambda: bakeoff(0.5, -0.1, 10), r"p_b is -0.1"),
        (lambda: bakeoff(0.5, 0.5, 0), r"n is 0; it must lie in \[1, "),
        (lambda: bakeoff(0.5, 0.5, 9, law="magic"), "law is 'magic'; it must be one of normal, erf"),
        (lambda: paired([1.0], [2.0]), "1 blocks; at least 2"),
        (lambda: paired([1.0, 2.0], [2.0]), r"shapes \(2,\) and \(1,\)"),
        (lambda: band([]), "0 curves"),
        (lambda: band([[(1, 1.0)], []]), r"2 curves of \[1, 0\] points"),
        (lambda: exponent([1, 2, 3], [1, 2]), r"shape \(3,\), regret of shape \(2,\)"),
        (lambda: exponent([1], [1]), "1 points in the second half"),
        (lambda: exponent([1, 2, 3], [1, -4, 2]), "regret -4 in the second half"),
        (lambda: half_width([1.0, 2.0], 1.5), "confidence is 1.5"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_numbers(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_paired_by_hand() -> None:
    """Differences 1, 2, 3: t = 2 sqrt(3) with 2 degrees of freedom, where P(T > t) = (1 - t / sqrt(2 + t^2)) / 2."""
    t = 2 * math.sqrt(3)
    assert paired([2, 4, 6], [1, 2, 3]) == pytest.approx((1 - t / math.sqrt(2 + t * t)) / 2, abs=1e-12)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=2, max_size=50))
def test_paired_is_symmetric(blocks: list[tuple[float, float]]) -> None:
    a, b = zip(*blocks, strict=True)
    assert verdict(paired(a, b), paired(b, a)) == -verdict(paired(b, a), paired(a, b))


def test_paired_sees_through_the_noise_that_both_runs_share() -> None:
    """Blocks differ by 0.2, a is always 0.005 better: the rule for independent runs needs far more rounds."""
    rng = np.random.default_rng(0)
    shared = 0.3 + 0.2 * rng.standard_normal(50)
    better = shared + 0.005 + 0.005 * rng.standard_normal(50)
    assert paired(better, shared) < 1e-4
    assert bakeoff(float(better.mean()), float(shared.mean()), 50 * 100) > LEVEL


def test_paired_errs_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    wrong = np.mean([paired(rng.normal(size=20), rng.normal(size=20)) < LEVEL for _ in range(2000)])
    assert 0.03 < wrong < 0.07


def test_equal_blocks_are_a_draw_and_a_constant_lead_is_a_win() -> None:
    assert paired([1, 2, 3], [1, 2, 3]) == 1
    assert paired([2, 3, 4], [1, 2, 3]) == 0
    assert paired([1, 2, 3], [2, 3, 4]) == 1


def test_a_matrix_of_three_strategies_on_two_datasets() -> None:
    first = {"igw": 0.40, "epsilon": 0.30, "greedy": 0.20}
    second = {"igw": 0.300, "epsilon": 0.301, "greedy": 0.20}
    votes = [
        outcomes(list(means), lambda a, b, m=means: bakeoff(m[a], m[b], 1000))  # type: ignore[misc]
        for means in (first, second)
    ]
    matrix = tally(votes)
    assert str(matrix["igw", "greedy"]) == "2W/0D/0L"
    assert str(matrix["igw", "epsilon"]) == "1W/1D/0L"
    assert str(matrix["epsilon", "igw"]) == "0W/1D/1L"
    for a, b in permutations(first, 2):
        there, back = matrix[a, b], matrix[b, a]
        assert (there.wins, there.draws, there.losses) == (back.losses, back.draws, back.wins)
        assert there.wins + there.draws + there.losses == 2


def test_tally_of_nothing_is_empty() -> None:
    assert tally([]) == {}
    assert str(Tally()) == "0W/0D/0L"


def test_a_band_is_the_mean_and_its_t_interval() -> None:
    """Values 1, 2, 3: mean 2, standard error 1 / sqrt(3), 97.5 % quantile with 2 degrees of freedom 4.302653."""
    found = band([[(10, 1.0), (20, 5.0)], [(10, 2.0), (20, 5.0)], [(10, 3.0), (20, 5.0)]])
    half = 4.302652729911275 / math.sqrt(3)
    assert found.rounds == (10, 20)
    assert found.mean == (2.0, 5.0)
    assert found.low == pytest.approx((2 - half, 5))
    assert found.high == pytest.approx((2 + half, 5))
    assert found.seeds == 3


def test_one_seed_has_no_width() -> None:
    found = band([[(1, 0.5), (2, 0.7)]])
    assert found.low == found.mean == found.high == (0.5, 0.7)


def test_curves_of_other_rounds_are_read_off_at_those_of_the_first() -> None:
    assert band([[(10, 1.0), (20, 1.0)], [(5, 0.0), (15, 2.0), (20, 3.0)]]).mean == (1.0, 2.0)


@pytest.mark.parametrize("power", [0.0, 0.5, 2 / 3, 1.0])
def test_exponents_of_known_curves(power: float) -> None:
    t = np.arange(1, 5000)
    assert exponent(t, 7 * t**power) == pytest.approx(power, abs=1e-9)


def test_the_first_half_of_a_curve_does_not_count() -> None:
    t = np.arange(1, 2001)
    assert exponent(t, np.where(t < 1000, t, 1000 * np.sqrt(t / 1000))) == pytest.approx(0.5, abs=1e-6)


def test_ranks() -> None:
    assert ranks({"a": 1.0, "b": 3.0, "c": 2.0}) == {"a": 3, "b": 1, "c": 2}
