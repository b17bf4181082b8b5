"""Any sequence of calls, on every kind of log and on a plain dict: the same answers, counts and samples."""

import math
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.logs import Twin, check_whole, event, same
from helpers.postgres import new_schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treetop.errors import EventConflict
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Event, Outcome, Reward

NAMES = [f"e{i}" for i in range(8)]
names = st.sampled_from(NAMES)
appends = st.lists(st.tuples(names, st.sampled_from(["", "", "", "other"])), min_size=1, max_size=4)
# Slot 9 is an arm that was not shown.
slots, values = st.sampled_from([0, 1, 2, 9]), st.sampled_from([0.0, 0.5, 0.5])
rewards = st.lists(st.tuples(names, slots, values, st.booleans()), max_size=5)
steps = st.one_of(
    st.tuples(st.just("append"), appends),
    st.tuples(st.just("reward"), rewards),
    st.tuples(st.just("reward"), rewards),
    st.tuples(st.just("seal"), st.sampled_from(["m1", "m2", "m3", "m4"])),
    st.tuples(st.just("forget"), st.sampled_from([1002.5, 1005.5])),
    st.tuples(st.just("open"), st.just(None)),
)


def made(name: str, request: str = "") -> Event:
    return event(name, request, k=2 + NAMES.index(name) % 2, time=1000.0 + NAMES.index(name))


def reward(name: str, slot: int, value: float, corrects: bool) -> Reward:
    arms = made(name).arms
    arm = int(arms[slot]) if slot < len(arms) else next(a for a in range(100) if a not in arms)
    return Reward(name, arm, value, 5.0, corrects)


def play(place: str, calls: list[tuple[str, Any]]) -> None:
    log, twin = open_log(place), Twin()
    try:
        for what, with_ in calls:
            if what == "open":
                log.close()
                log = open_log(place)
            else:
                _step(log, twin, what, with_)
        _compare(log, twin)
        check_whole(log)
    finally:
        log.close()


def _step(log: Log, twin: Twin, what: str, with_: Any) -> None:
    if what == "append":
        events = [made(*one) for one in with_]
        for answer, expected in zip(log.append(events), twin.append(events), strict=True):
            _same_answer(answer, expected)
    elif what == "reward":
        given = [reward(*one) for one in with_]
        outcomes: list[Outcome] = log.reward(given)
        assert outcomes == twin.reward(given)
    elif what == "seal":
        log.seal(with_)
        twin.seal(with_)
    else:
        assert log.forget(with_) == twin.forget(with_)
    found = asdict(log.counts())
    assert {name: found[name] for name in twin.counts()} == twin.counts()


def _same_answer(answer: Event | EventConflict, expected: Event | EventConflict) -> None:
    assert type(answer) is type(expected)
    one, two = (a.stored if isinstance(a, EventConflict) else a for a in (answer, expected))
    assert same(one, two)


def _compare(log: Log, twin: Twin) -> None:
    """Every mark, however old, and every pair of neighbouring marks."""
    for name in twin.marks:
        assert _read(log, twin, name) == _text(twin.samples(name))
    for since, until in pairwise(twin.marks):
        assert _read(log, twin, until, since) == _text(twin.samples(until, since))
    for name in NAMES:
        stored = log.event(name)
        assert (stored is not None) == (name in twin.events)
        if stored is not None:
            assert same(stored.event, twin.events[name])
            told = {slot: [value for value, _ in values] for slot, values in twin.rewards[name].items()}
            known = {s: v for s, v in enumerate(stored.rewards.tolist()) if not math.isnan(v)}
            assert known == {slot: values[-1] for slot, values in told.items()}
            assert [r.value for r in stored.replaced] == [
                value
                for value, _ in sorted(
                    (pair for values in twin.rewards[name].values() for pair in values[:-1]), key=lambda pair: pair[1]
                )
            ]


def _read(log: Log, twin: Twin, until: str, since: str | None = None) -> list[str]:
    upper, lower = log.mark(until), log.mark(since) if since else None
    assert upper is not None
    found = []
    for chunk in log.samples(upper, lower, size=3):
        for i in range(len(chunk)):
            arms = chunk.arms[i][chunk.arms[i] >= 0]
            name = next(n for n, e in twin.events.items() if np.array_equal(e.arms, arms))
            found.append((name, bool(chunk.new[i]), chunk.rewards[i, : len(arms)].tolist()))
    return _text(found)


def _text(found: list[tuple[str, bool, list[float]]]) -> list[str]:
    return [str(one) for one in found]  # as text, NaN equals NaN


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """A new place for every example."""
    if request.param == "postgres":
        server = request.getfixturevalue("server")
        return lambda: new_schema(server)
    numbers = iter(range(10**9))
    return lambda: str(tmp_path / f"{next(numbers)}.sqlite")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(steps, max_size=25))
def test_any_calls_give_what_a_dict_gives(places: Callable[[], str], calls: list[tuple[str, Any]]) -> None:
    play(places(), calls)


@pytest.mark.long
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(steps, max_size=60))
def test_any_calls_at_length(places: Callable[[], str], calls: list[tuple[str, Any]]) -> None:
    play(places(), calls)
