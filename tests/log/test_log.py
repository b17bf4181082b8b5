"""One battery for every kind of log: what is acknowledged is there, once, and marks hold still."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.logs import arm, event, joined, same, same_samples

from treetop.errors import EventConflict
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Counts, Event, Outcome, Reward
from treetop.log.rounds import gather


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [o.status.value for o in outcomes]


def test_a_decision_comes_back_as_it_was(log: Log, place: str) -> None:
    e = event("a", k=5, time=1234.5678901234)
    assert log.append([e])[0] is e
    for opened in (log, open_log(place)):
        stored = opened.event("a")
        assert stored is not None
        assert same(stored.event, e)
        assert np.isnan(stored.rewards).all()
        assert stored.rewards.shape == (5,)
    opened.close()
    assert log.event("b") is None


@pytest.mark.parametrize("k", [0, 1, 200])
def test_any_number_of_slots_and_an_empty_context(log: Log, k: int) -> None:
    e = event("wide", k=k, index=np.zeros(0, np.int32), value=np.zeros(0, np.float32))
    log.append([e])
    stored = log.event("wide")
    assert stored is not None
    assert same(stored.event, e)
    (chunk,) = log.samples(log.seal("m"))
    assert chunk.arms.shape == (1, k)


def test_the_same_id_again_gives_the_stored_decision(log: Log) -> None:
    first = event("a")
    log.append([first])
    again = replace(event("a"), time=5.0, arms=first.arms + 1)
    answer = log.append([again, event("b")])
    assert isinstance(answer[0], Event)
    assert same(answer[0], first)
    assert answer[1] is not answer[0]
    assert log.counts().decisions == 2


def test_the_same_id_for_another_request_is_a_conflict_and_the_rest_is_written(log: Log) -> None:
    first = event("a")
    log.append([first])
    other, b = event("a", request="other"), event("b")
    conflict, written = log.append([other, b])
    assert isinstance(conflict, EventConflict)
    assert same(conflict.stored, first)
    assert "'a'" in str(conflict)
    assert written is b
    assert log.event("b") is not None


def test_the_same_id_twice_in_one_call(log: Log) -> None:
    first, again, other = event("a"), event("a"), event("a", request="other")
    answers = log.append([first, again, other])
    assert answers[0] is first
    assert answers[1] is first
    assert isinstance(answers[2], EventConflict)
    assert log.counts().decisions == 1


def test_rewards_come_late_in_parts_again_and_in_any_order(log: Log) -> None:
    a, b = event("a"), event("b")
    log.append([a, b])
    assert statuses(log.reward([Reward("b", arm(b, 2), 0.25, 7.0)])) == ["stored"]
    assert statuses(log.reward([Reward("a", arm(a, 1), 1.0, 8.0), Reward("b", arm(b, 0), 0.0, 9.0)])) == ["stored"] * 2
    assert statuses(log.reward([Reward("b", arm(b, 2), 0.25, 99.0)])) == ["same"]
    stored = log.event("b")
    assert stored is not None
    assert stored.rewards.tolist()[::2] == [0.0, 0.25]
    assert math.isnan(stored.rewards[1])
    assert stored.times.tolist()[::2] == [9.0, 7.0]
    counts = log.counts()
    assert (counts.rewards, counts.observed, counts.pending) == (3, 2, 3)


def test_what_is_wrong_with_a_reward_is_said_and_its_siblings_are_held_back(log: Log) -> None:
    a, b = event("a"), event("b")
    log.append([a, b])
    log.reward([Reward("a", arm(a, 0), 1.0, 1.0)])
    strange = next(n for n in range(1000) if n not in a.arms)
    found = log.reward(
        [
            Reward("a", arm(a, 0), 0.5, 2.0),
            Reward("a", arm(a, 1), 0.5, 2.0),
            Reward("b", arm(b, 0), 0.5, 2.0),
            Reward("c", 1, 0.5, 2.0),
            Reward("a", arm(a, 0), 1.0, 2.0),
            Reward("a", strange, 1.0, 2.0),
        ]
    )
    assert statuses(found) == ["conflict", "withheld", "stored", "unknown", "same", "not_shown"]
    assert found[0].stored == 1.0
    assert log.counts().rewards == 2


def test_a_reward_is_corrected_where_that_is_allowed_and_both_stay(log: Log) -> None:
    a = event("a")
    log.append([a])

    def tell(value: float, time: float, corrects: bool = True) -> list[str]:
        return statuses(log.reward([Reward("a", arm(a, 0), value, time, corrects)]))

    assert [tell(0.0, 1.0), tell(1.0, 2.0), tell(0.5, 3.0, corrects=False)] == [["stored"], ["corrected"], ["conflict"]]
    assert tell(0.0, 4.0) == ["same"]  # told again by who was not answered: it does not undo the correction
    stored = log.event("a")
    assert stored is not None
    assert (stored.rewards[0], stored.times[0]) == (1.0, 2.0)
    assert [(r.slot, r.value, r.time) for r in stored.replaced] == [(0, 0.0, 1.0)]
    counts = log.counts()
    assert (counts.rewards, counts.observed, counts.pending) == (1, 1, 2)
    assert log.forget(2e9) == 1
    assert log.counts().pending == 0


def test_a_call_that_contradicts_itself_stores_nothing(log: Log) -> None:
    a = event("a")
    log.append([a])
    twice = [Reward("a", arm(a, 0), v, 1.0) for v in (0.5, 0.5, 0.75)]
    assert statuses(log.reward(twice)) == ["withheld", "withheld", "conflict"]
    assert statuses(log.reward(twice[:2])) == ["stored", "same"]


def test_bad_arguments_are_refused_before_anything_is_written(log: Log) -> None:
    good = event("good")
    for bad, error in [
        (event(""), "0 bytes"),
        (event("x" * 513), "513 bytes"),
        (event("zero\0"), "none of them zero"),
        (replace(event("r"), request=b"short"), "5 bytes; 16"),
        (replace(event("s"), scores=np.zeros(2, np.float32)), "3 arms and 2 scores"),
        (replace(event("v"), value=np.zeros(99, np.float32)), "99 values"),
        (replace(event("t"), time=math.nan), "time is nan"),
        (replace(event("e"), eligible="unknown"), "'unknown', not among"),
    ]:
        with pytest.raises(ValueError, match=error):
            log.append([good, bad])
    with pytest.raises(TypeError, match="arms of event 'wide' hold int64; int32"):
        log.append([event("wide", arms=np.arange(3) + 2**40)])
    for value in (-2e9, 2e9, math.nan):
        with pytest.raises(ValueError, match="reward is"):
            log.reward([Reward("good", 1, value, 1.0)])
    with pytest.raises(ValueError, match="arm is -1"):
        log.reward([Reward("good", -1, 1.0, 1.0)])
    with pytest.raises(TypeError, match="must be text"):
        log.reward([Reward(7, 1, 1.0, 1.0)])  # type: ignore[arg-type]
    assert log.counts() == Counts()


def test_eligible_sets_are_stored_once_under_their_fingerprint(log: Log) -> None:
    some = np.array([5, 2, 900_000], np.int32)
    for name in ("a", "b"):
        log.append([event(name, eligible="f1")], {"f1": some})
    log.append([event("c", eligible="all")], {"all": np.arange(1_000_000, dtype=np.int32), "f1": some})
    found = log.eligible_set("f1")
    assert found is not None
    assert found.tolist() == [2, 5, 900_000]
    every = log.eligible_set("all")
    assert every is not None
    assert every.dtype == np.int32
    assert len(every) == 1_000_000
    assert log.eligible_set("none") is None
    log.append([event("a", "another request", eligible="f2")], {"f2": some})
    assert log.eligible_set("f2") is None  # nothing that was written names it


def test_a_mark_gives_the_same_samples_for_ever(log: Log) -> None:
    events = [event(i, k=1 + i % 4) for i in range(50)]
    log.append(events)
    log.reward([Reward(e.event_id, arm(e, 0), 1.0, 1.0) for e in events[::2]])
    mark = log.seal("first")
    then = list(log.samples(mark, size=7))
    log.append([event(i) for i in range(50, 80)])
    log.reward([Reward(e.event_id, arm(e, 0), 0.5, 2.0) for e in events[1::2]])
    assert log.seal("first") == mark
    assert log.mark("first") == mark
    assert log.mark("second") is None
    assert same_samples(then, log.samples(mark))
    assert len(joined(then)["positions"]) == 50
    assert int((~np.isnan(joined(then)["rewards"])).sum()) == 25
    assert log.counts().late == 25
    assert [m.name for m in log.marks()] == ["first"]


def test_from_mark_to_mark_every_reward_is_read_once(log: Log) -> None:
    events = [event(i) for i in range(30)]
    marks, seen = [log.seal("m0")], {}
    for part in range(3):
        log.append(events[10 * part : 10 * part + 10])
        log.reward([Reward(e.event_id, arm(e, part), 0.5, 1.0) for e in events[: 10 * part + 10 : 2]])
        marks.append(log.seal(f"m{part + 1}"))
    for since, until in pairwise(marks):
        for chunk in log.samples(until, since, size=3):
            assert (np.diff(chunk.positions) > 0).all()
            for row, slot in np.argwhere(~np.isnan(chunk.rewards)):
                key = (int(chunk.positions[row]), int(slot))
                assert key not in seen
                seen[key] = bool(chunk.new[row])
    whole = joined(log.samples(marks[-1]))
    assert len(seen) == int((~np.isnan(whole["rewards"])).sum()) == 5 + 10 + 15
    assert sum(seen.values()) == 15


def test_samples_are_what_refit_takes(log: Log) -> None:
    a, b = event("a", k=2), event("b", k=4)
    log.append([a, b])
    log.reward([Reward("b", arm(b, 3), 0.75, 1.0)])
    feedback = gather(log.samples(log.seal("m"), size=1), 500)
    assert feedback.arms.tolist() == [[*a.arms, -1, -1], b.arms.tolist()]
    assert feedback.nodes.tolist() == [[*a.nodes, -1, -1], b.nodes.tolist()]
    assert feedback.rewards[1, 3] == 0.75
    assert feedback.observed.sum() == 1
    assert feedback.contexts.row(1).index.tolist() == b.index.tolist()
    (chunk,) = log.samples(log.seal("m"))
    assert np.array_equal(chunk.feedback(500).rewards, feedback.rewards, equal_nan=True)
    if len(b.index):
        with pytest.raises(ValueError, match="there are 1 features"):
            gather(log.samples(log.seal("m")), 1)
    assert len(gather([], 500)) == 0


def test_nodes_of_another_tree_are_lost_and_its_arms_kept(log: Log) -> None:
    old, new = event("old", tree="t1", model_epoch=3), event("new", tree="t2", model_epoch=4)
    log.append([old, new])
    (chunk,) = log.samples(log.seal("m"), tree="t2")
    assert chunk.nodes.tolist() == [[-1, -1, -1], new.nodes.tolist()]
    assert chunk.arms.tolist() == [old.arms.tolist(), new.arms.tolist()]
    assert chunk.epochs.tolist() == [3, 4]


def test_a_default_reward_counts_once_the_wait_is_over(log: Log) -> None:
    mark = log.seal("now")
    old, young = event("old", k=2, time=mark.time - 100), event("young", k=3, time=mark.time - 10)
    log.append([old, young])
    log.reward([Reward("old", arm(old, 1), 1.0, mark.time)])
    mark = replace(log.seal("later"), time=mark.time)
    (plain,) = log.samples(mark)
    assert np.isnan(plain.rewards).sum() == 5
    (filled,) = log.samples(mark, wait=60, default=0.0)
    assert filled.rewards[0].tolist()[:2] == [0.0, 1.0]
    assert np.isnan(filled.rewards[0, 2])  # padding is no slot
    assert np.isnan(filled.rewards[1]).all()
    with pytest.raises(ValueError, match="since a mark"):
        log.samples(mark, mark, default=0.0)
    with pytest.raises(ValueError, match="default is 2"):
        log.samples(mark, default=2e9)


def test_recent_decisions_come_newest_first(log: Log) -> None:
    events = [event(i) for i in range(10)]
    log.append(events)
    log.reward([Reward("event-9", arm(events[9], 1), 0.5, 3.0)])
    found = log.recent(3)
    assert [s.event.event_id for s in found] == ["event-9", "event-8", "event-7"]
    assert found[0].rewards[1] == 0.5
    assert log.recent(0) == []
