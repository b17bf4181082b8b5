"""Decisions that a thread of the core begins ahead are the decisions of `decide`, whoever makes them in the end."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem

import treetop
from treetop import _core
from treetop.arrays import Rows, as_rows
from treetop.policy.eligibility import EVERY_ARM, Eligible
from treetop.records import Decision

FIELDS = ("arms", "nodes", "propensities", "scores", "explored")


def rows(problem: Problem, n: int) -> list[Rows]:
    return [as_rows(problem.X[i % problem.X.shape[0]]) for i in range(n)]


def begun(
    policy: treetop.Policy, model: treetop.Model, contexts: list[Rows], allowed: Eligible, ahead: _core.Ahead
) -> list[Callable[[], Decision]]:
    return [policy.begin(model, row, f"visit {i}", allowed, ahead) for i, row in enumerate(contexts)]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("order", ["first to last", "last to first", "later"])
def test_what_is_begun_is_what_decide_gives(problem: Problem, learned: treetop.Model, order: str, masked: bool) -> None:
    policy, contexts, ahead = treetop.Policy(k=7, explore=4), rows(problem, 300), _core.Ahead()
    allowed = Eligible.of(learned.tree, exclude=range(0, learned.n_arms, 3)) if masked else EVERY_ARM
    coming = begun(policy, learned, contexts, allowed, ahead)
    if order == "later":  # by now the thread has made most of them
        threading.Event().wait(0.05)
    numbers = range(299, -1, -1) if order == "last to first" else range(300)
    for i in numbers:
        found, wanted = coming[i](), policy.decide(learned, contexts[i], f"visit {i}", allowed)
        assert found.event_id == f"visit {i}"
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(found, field), getattr(wanted, field))


def test_one_by_one_and_what_goes_the_long_way(problem: Problem, learned: treetop.Model) -> None:
    """A single one does not wake the thread; arms that were not prepared are not for the core's short way."""
    policy, ahead = treetop.Policy(), _core.Ahead()
    for i, row in enumerate(rows(problem, 20)):
        for allowed in (EVERY_ARM, Eligible.listed(learned.tree, exclude=[0, i])):
            found = policy.begin(learned, row, f"visit {i}", allowed, ahead)()
            np.testing.assert_array_equal(found.arms, policy.decide(learned, row, f"visit {i}", allowed).arms)


@pytest.mark.parametrize("wait", [0.0, 0.05])
def test_an_error_is_that_of_its_own_decision(problem: Problem, learned: treetop.Model, wait: float) -> None:
    policy, contexts, ahead = treetop.Policy(), rows(problem, 40), _core.Ahead()
    fifth = contexts[5]
    contexts[5] = Rows(fifth.start, fifth.index, np.full(len(fifth.index), 3e38, np.float32), fifth.columns)
    coming = begun(policy, learned, contexts, EVERY_ARM, ahead)
    threading.Event().wait(wait)
    for i, decision in enumerate(coming):
        if i == 5:
            with pytest.raises(ValueError, match="context or weights are too large"):
                decision()
        else:
            assert len(decision().arms) == 5


def test_what_nobody_takes_is_dropped_and_does_no_harm(problem: Problem, learned: treetop.Model) -> None:
    policy, contexts = treetop.Policy(), rows(problem, 200)
    for _ in range(20):
        ahead = _core.Ahead()
        coming = begun(policy, learned, contexts, EVERY_ARM, ahead)
        coming[100]()
        del coming, ahead  # decisions keep the thread until the last of them is gone


def test_a_decision_is_taken_once(problem: Problem, learned: treetop.Model) -> None:
    coming = treetop.Policy().begin(learned, rows(problem, 1)[0], "visit", EVERY_ARM, _core.Ahead())
    coming()
    with pytest.raises(ValueError, match="was taken already"):
        coming()


def test_threads_may_take_what_another_has_begun(problem: Problem, learned: treetop.Model) -> None:
    policy, contexts, ahead = treetop.Policy(), rows(problem, 400), _core.Ahead()
    coming, found = begun(policy, learned, contexts, EVERY_ARM, ahead), dict[int, Any]()

    def take(first: int) -> None:
        for i in range(first, 400, 4):
            found[i] = coming[i]()

    threads = [threading.Thread(target=take, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, row in enumerate(contexts):
        np.testing.assert_array_equal(found[i].arms, policy.decide(learned, row, f"visit {i}").arms)
