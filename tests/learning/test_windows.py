"""Which samples are still read, against a slow twin that looks at each of them; and sums that are carried on."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treetop.arrays import as_rows
from treetop.learning import windows
from treetop.learning.placement import VOTES
from treetop.learning.summed_rounds import SummedRounds
from treetop.model.feature_scale import PastValues, raised_scale
from treetop.records import Feedback

ARMS = 3


def needed(arm: list[int], reward: list[float], read: list[int], window: int) -> list[bool]:
    """Sample by sample, by counting those before and behind it."""
    found = []
    for i, its in enumerate(arm):
        behind = [j for j in range(i, len(arm)) if arm[j] == its]
        finds_behind = [j for j in behind if reward[j] > 0]
        finds_before = [j for j in range(i) if arm[j] == its and reward[j] > 0]
        right = reward[i] > 0 and (len(finds_behind) <= window or len(finds_before) < VOTES)
        found.append(len(behind) <= read[its] or right)
    return found


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(0, 30), st.lists(st.integers(0, 200), max_size=3))
def test_samples_that_are_read_are_those_of_the_twin(seed: int, n: int, window: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    arm, reward = rng.integers(0, ARMS, n), np.where(rng.random(n) < 0.5, 1.0, 0.0)
    read = rng.integers(0, 40, ARMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", window)
        asked = windows.Windows(np.bincount(arm, minlength=ARMS), np.bincount(arm[reward > 0], minlength=ARMS), read)
        ends = sorted({0, n, *(cut for cut in cuts if cut < n)})
        found = [one for a, b in pairwise(ends) for one in asked.needed(arm[a:b], reward[a:b]).tolist()]
    assert found == needed(arm.tolist(), reward.tolist(), read.tolist(), window)


def rounds(rng: np.random.Generator, n: int) -> Feedback:
    contexts = (rng.random((n, 5)) * (rng.random((n, 5)) < 0.6) * 3).astype(np.float32)
    rewards = np.where(rng.random((n, 2)) < 0.8, rng.random((n, 2)), np.nan)
    return Feedback(contexts, rng.integers(0, ARMS, (n, 2)), rng.integers(-1, 1, (n, 2)), rewards)


def test_sums_carried_on_are_sums_of_all() -> None:
    rng, scale = np.random.default_rng(3), np.full(5, 2.0, np.float32)
    first, second = rounds(rng, 40), rounds(rng, 30)
    none = SummedRounds.none(7, np.zeros(ARMS, np.bool_), scale)
    one, two = none.after(first + second), none.after(first)
    stored = SummedRounds.read(two.arrays(), two.numbers(), two.norms).continued(two.totals.late, scale).after(second)
    assert one.numbers() == stored.numbers()
    for name, array in one.arrays().items():
        assert array.tobytes() == stored.arrays()[name].tobytes(), name
    assert np.concatenate(one.norms).tobytes() == np.concatenate(stored.norms).tobytes()
    assert two.totals.rounds == 40  # what was summed up before stays as it was


def test_scales_rise_by_rows_that_are_gone_as_by_those_that_are_there() -> None:
    rng, scale = np.random.default_rng(4), np.full(5, 2.0, np.float32)
    rows = [as_rows((rng.random((n, 5)) * 4 * (rng.random((n, 5)) < 0.5)).astype(np.float32)) for n in (300, 200)]
    wanted = raised_scale(scale, rows)
    found = raised_scale(scale, rows[1:], PastValues.none(scale).after(scale, rows[:1]))
    assert wanted is not None
    assert found is not None
    assert found.tolist() == wanted.tolist()
    assert (wanted > scale).any()
