"""Visits and rewards of an experiment, read from a log of either kind."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from helpers.logs import event

from treetop.log.base import Log
from treetop.log.connection import Connection
from treetop.log.decided import decided_rounds
from treetop.log.open import open_log
from treetop.log.records import Reward
from treetop.log.sql import SqlLog
from treetop.log.variant_rows import bucket_of


def test_rows_come_once_each_with_the_time_of_their_visit(place: str) -> None:
    policy = {"k": 3, "experiment": "beams"}
    with open_log(place) as log:
        events = []
        for i in range(10):
            said = {**policy, "variant": ("now", "wide")[i % 2]} if i < 8 else {"k": 3}
            keys = (("visitor", str(i // 2)),) if i < 6 else ()
            events.append(replace(event(i, k=3, time=100.0 + i), policy=json.dumps(said), keys=keys))
        events[7] = replace(events[7], policy=json.dumps({**policy, "experiment": "other", "variant": "now"}))
        log.append(events)
        middle = log.counts().position
        log.reward([Reward(events[i].event_id, int(events[i].arms[0]), 0.5, 900.0) for i in (0, 3, 9)])
        newest = log.counts().position
        visits, rewards = log.variant_rows("beams", "visitor", 0, middle)
        assert visits.names == ("now", "wide")
        assert sorted(visits.times.tolist()) == [100.0 + i for i in range(7)]
        assert visits.variants[visits.times == 101.0].tolist() == [1]
        assert visits.buckets[visits.times == 101.0].tolist() == [bucket_of("0")]
        assert visits.buckets[visits.times == 106.0].tolist() == [bucket_of(events[6].event_id)]  # a unit of its own
        assert len(rewards.times) == 0
        visits, rewards = log.variant_rows("beams", "visitor", middle, newest)
        assert len(visits.times) == 0
        assert sorted(zip(rewards.times.tolist(), rewards.values.tolist(), strict=True)) == [(100.0, 0.5), (103.0, 0.5)]
        nothing, _ = log.variant_rows("never", "visitor", 0, newest)
        assert nothing.names == ()
        assert log.has_key(("visitor", "2"))
        assert not log.has_key(("visitor", "7"))
        log.keep("note", b"x")
        assert not log.drop("note", b"y")  # it is another one by now
        assert log.kept("note") == b"x"
        assert log.drop("note", b"x")
        assert log.drop("note")
        assert log.kept("note") is None
        for name in ("b 1", "a 1", "a 2", "ab", "a 3"):
            log.keep(name, name.encode())
        assert log.kept_after("a ", "", 2) == [("a 1", b"a 1"), ("a 2", b"a 2")]
        assert log.kept_after("a ", "a 2", 2) == [("a 3", b"a 3")]
        later = [e.stored.event.event_id for chunk in log.entries(log.summary(), 4, after=4) for e in chunk]
        assert later == [e.event_id for e in events[4:]]


def test_a_correction_adds_the_difference(place: str) -> None:
    """A reward that is corrected counts once, with its last value, also where the stretches read end in between."""
    with open_log(place) as log:
        made = replace(event(0), policy=json.dumps({"experiment": "beams", "variant": "now"}))
        log.append([made])
        ends = [0]
        for value in (1.0, 0.25, 0.75):
            log.reward([Reward(made.event_id, int(made.arms[1]), value, 900.0, corrects=True)])
            ends.append(log.counts().position)
        told = [log.variant_rows("beams", "visitor", low, high)[1].values.sum() for low, high in pairwise(ends)]
        assert told == [1.0, -0.75, 0.5]
        assert log.variant_rows("beams", "visitor", 0, ends[-1])[1].values.sum() == 0.75
        for until, value in zip(ends[1:], (1.0, 0.25, 0.75), strict=True):
            assert next(decided_rounds(lambda: _unordered(log), until, 10)).rewards[0, 1] == value


@contextmanager
def _unordered(log: Log) -> Iterator[Connection]:
    """A database that returns the newest rows first unless it is asked for another order, as it may."""
    assert isinstance(log, SqlLog)
    with log.reading() as connection, pytest.MonkeyPatch.context() as patched:
        rows = connection.rows

        def backwards(sql: str, *values: Any) -> list[tuple[Any, ...]]:
            return list(rows(sql, *values))[:: 1 if "ORDER BY" in sql else -1]

        patched.setattr(connection, "rows", backwards)
        yield connection
