"""Records carry the components of scores: a default without any, histories that join, and mistakes that are named."""

from typing import Any

import numpy as np
import pytest

from treetop.arrays import Float32s
from treetop.records import Candidates, Decision, Decisions, Feedback

NAN = float("nan")


def decided(n: int = 2, k: int = 3, **other: Any) -> Decisions:
    arms = np.arange(n * k, dtype=np.int32).reshape(n, k)
    return Decisions(None, 0, arms, np.ones((n, k)), np.zeros((n, k), np.float32), arms < 0, arms * 0 - 1, **other)


def numbers(*shape: int) -> Float32s:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def candidates(n: int, **other: Any) -> Candidates:
    ones = np.ones(n, np.float32)
    return Candidates(np.zeros(n, bool), np.arange(n, dtype=np.int32), np.ones(n), ones, ones, **other)


def history(n: int = 2, k: int = 3, **other: Any) -> Feedback:
    return Feedback(np.ones((n, 2)), np.zeros((n, k), int), None, np.ones((n, k)), **other)


def test_records_without_components_have_none_of_them() -> None:
    one = Decision("q", 0, [3, 4], [1, 0.5], [0, 0], [0, 1], [-1, 2])  # type: ignore[arg-type]
    found = candidates(4)
    for record, shape in ((one, (2, 0)), (decided(), (2, 3, 0)), (decided()[1], (3, 0)), (found, (4, 0))):
        assert record.components.shape == shape
        assert record.components.dtype == np.float32
    assert found.take([2, 0]).components.shape == (2, 0)
    assert Feedback.of(np.ones((2, 2)), decided(), np.ones((2, 3))).components is None
    assert Feedback.of([[1.0, 0.0]], one, [[1, 1]]).components is None


def test_decisions_carry_their_components_to_feedback() -> None:
    given = numbers(2, 3, 2)
    shown = decided(components=given)
    assert np.array_equal(shown[1].components, given[1])
    feedback = Feedback.of(np.ones((2, 2)), shown, np.ones((2, 3)))
    assert np.array_equal(feedback.components, given)
    one = Feedback.of([[1.0, 0.0]], shown[1], np.ones((1, 3)))
    assert np.array_equal(one.components, given[1:])
    given[:] = 0  # what was checked stays as it was
    assert feedback.components.all()


def test_a_short_decision_has_components_for_its_slots_alone_and_feedback_none_for_the_others() -> None:
    given = numbers(2, 3, 2)
    shown = decided(components=given)
    shown.arms[1, 1:] = -1
    assert np.array_equal(shown[1].components, given[1, :1])
    rewards = np.where(shown.arms < 0, np.nan, 1.0)
    assert np.isnan(Feedback.of(np.ones((2, 2)), shown, rewards).components).any(axis=2).tolist() == [
        [False, False, False],
        [False, True, True],
    ]


def test_candidates_keep_their_components_when_some_are_taken() -> None:
    found = candidates(3, components=numbers(3, 2))
    assert found.take([2, 0]).components.tolist() == [[5, 6], [1, 2]]


def test_histories_join_where_one_side_knows_no_components() -> None:
    knows, knows_not = history(2, 3, components=numbers(2, 3, 2)), history(1, 4)
    for joined, rows in ((knows + knows_not, slice(0, 2)), (knows_not + knows, slice(1, 3))):
        assert joined.components.shape == (3, 4, 2)
        assert joined.components.dtype == np.float32
        assert np.array_equal(joined.components[rows, :3], numbers(2, 3, 2))
        assert np.isnan(joined.components).sum() == 3 * 4 * 2 - 2 * 3 * 2  # the slots of padding, and the other round
    twice = knows + knows
    assert np.array_equal(twice.components, np.concatenate([numbers(2, 3, 2)] * 2))
    assert (knows_not + knows_not).components is None
    again = joined + joined  # NaN may be given, too
    assert np.isnan(again.components).sum() == 2 * np.isnan(joined.components).sum()
    assert np.array_equal((Feedback.none(2, 3) + knows).components, numbers(2, 3, 2))


def test_histories_with_other_numbers_of_components_do_not_join() -> None:
    two, three = history(components=numbers(2, 3, 2)), history(components=numbers(2, 3, 3))
    with pytest.raises(ValueError, match="a history with 2 components cannot be joined with one with 3"):
        two + three
    with pytest.raises(ValueError, match="a history with 3 components cannot be joined with one with 2"):
        three + two


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((2, 3)), r"components have shape \(2, 3\); 2 contexts and 3 slots need \(2, 3, number of them\)"),
        (np.ones((2, 2, 2)), r"components have shape \(2, 2, 2\)"),
        (np.full((2, 3, 1), np.inf), "component 0 of round 0, slot 0 is inf; it must be finite, or NaN if unknown"),
        (np.full((2, 3, 1), 1e39), "components: value 1e\\+39 is beyond the limit"),
    ],
)
def test_components_that_cannot_be_meant_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        history(components=given)


def test_no_components_at_all_are_none() -> None:
    assert history(components=np.zeros((2, 3, 0))).components is None
    assert np.isnan(history(components=np.full((2, 3, 2), NAN)).components).all()


@pytest.mark.parametrize("n", [0, 1, 3, 5])
def test_the_head_of_a_history_is_its_first_rounds(n: int) -> None:
    """As they are known now: an arm that appears later has not appeared yet when they end."""
    whole = Feedback(
        np.diag([1.0, 2.0, 3.0, 4.0, 5.0]),
        np.arange(10).reshape(5, 2),
        np.full((5, 2), -1),
        np.linspace(-1, 2, 10).reshape(5, 2),
        (-1.0, 2.0),
        [0, 0, 1, 4],
        numbers(5, 2, 2),
    )
    head = whole.head(n)
    assert len(head) == n
    assert head.reward_range == (-1.0, 2.0)
    assert head.appeared is not None
    assert head.appeared.tolist() == [0, 0, min(1, n), min(4, n)]
    assert np.array_equal(head.contexts.csr().toarray(), whole.contexts.csr().toarray()[:n])
    for name in ("arms", "nodes", "rewards"):
        assert np.array_equal(getattr(head, name), getattr(whole, name)[:n])
    assert (
        head.components is None if whole.components is None else np.array_equal(head.components, whole.components[:n])
    )


def test_head_and_the_rest_are_the_whole() -> None:
    whole = history(4, 2, components=numbers(4, 2, 2))
    rest = Feedback(
        whole.contexts.slice(1, 4), whole.arms[1:], whole.nodes[1:], whole.rewards[1:], components=numbers(3, 2, 2)
    )
    joined = whole.head(1) + rest
    assert np.array_equal(joined.rewards, whole.rewards)
    assert history().head(1).components is None
    assert history().head(1).appeared is None


def test_histories_carry_propensities() -> None:
    shown = decided()
    feedback = Feedback.of(np.ones((2, 2)), shown, np.ones((2, 3)))
    assert np.array_equal(feedback.propensities, shown.propensities.astype(np.float32))
    assert np.array_equal(feedback.head(1).propensities, feedback.propensities[:1])
    without = Feedback(np.ones((1, 2)), [[0, 1]], None, [[1.0, 0.0]])
    both = feedback + without
    assert np.array_equal(both.propensities[:2], feedback.propensities)
    assert np.isnan(both.propensities[2:]).all()
    assert (without + without).propensities is None


@pytest.mark.parametrize(("given", "message"), [([[0.5]], r"shape \(1, 1\)"), ([[0.5, 1.5]], "slot 1 is 1.5")])
def test_propensities_that_do_not_fit_are_refused(given: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Feedback(np.ones((1, 2)), [[0, 1]], None, [[1.0, 0.0]], propensities=given)
