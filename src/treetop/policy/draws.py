"""The one place that draws: candidates to slots, k - r greedy, r by the strategy, randomness by key. Sees no tree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from treetop import _core
from treetop.arrays import Bools, Floats, Int64s, Ints, as_numbers, check_int
from treetop.policy.strategies import is_native
from treetop.records import Candidates


def event_name(event_id: object) -> str:
    """An event id as text; whatever else could be turned into text is probably a mistake.

    >>> event_name("visit-1"), event_name(7)
    ('visit-1', '7')
    """
    if isinstance(event_id, str):
        return str(event_id)
    if isinstance(event_id, int | np.integer) and not isinstance(event_id, bool):
        return str(int(event_id))
    raise TypeError(f"an event id must be text or a whole number, not {event_id!r}")


random_bytes = os.urandom  # where new ids come from; the tests replace it, so that they draw the same on every run


def new_event_id() -> str:
    """An id for an event whose caller gave none.

    >>> len(new_event_id())
    32
    """
    return random_bytes(16).hex()


def event_key(event_id: str) -> int:
    """The 64-bit seed of an event: a hash of its id.

    >>> event_key("visit-1") == event_key("visit-1") != event_key("visit-2")
    True
    """
    return int.from_bytes(hashlib.blake2b(event_id.encode(), digest_size=8).digest(), "little", signed=True)


def batch_keys(
    n: int, seed: int | None, event_ids: Sequence[str | int] | None, first_row: int
) -> tuple[tuple[str, ...] | None, Int64s]:
    """One key per row, from its event id or from (seed, row number); and the ids as text. Without either, new ids.

    >>> names, keys = batch_keys(3, seed=0, event_ids=None, first_row=0)
    >>> bool((batch_keys(2, 0, None, first_row=1)[1] == keys[1:]).all())
    True
    """
    first_row = check_int("first_row", first_row, 0, 2**62)
    if event_ids is None and seed is None:
        batch = new_event_id()
        event_ids = [f"{batch}-{first_row + i}" for i in range(n)]
    if event_ids is None:
        key = event_key(f"seed {check_int('seed', seed, -(2**63), 2**64)}")
        return None, _core.row_keys(key, first_row, n)
    if seed is not None:
        raise ValueError("give either seed or event_ids, not both")
    if isinstance(event_ids, str | bytes):
        raise TypeError(f"event_ids is {event_ids!r}; it must be a list of event ids")
    names = tuple(event_name(event) for event in event_ids)
    if len(names) != n:
        raise ValueError(f"{len(names)} event ids for {n} contexts")
    return names, np.array([event_key(name) for name in names], np.int64)


def choose(
    candidates: Candidates, k: int, explore: int, strategy: Any, n_seen: int, key: int
) -> tuple[Ints, Floats, Bools]:
    """The slots of Algorithm 1, lines 8 to 14: which candidate, with what probability, and whether it was drawn.

    >>> from treetop.policy.strategies import Greedy
    >>> ids, one = np.arange(3, dtype=np.int32), np.ones(3, np.float32)
    >>> three = Candidates(np.zeros(3, bool), ids, one, np.array([0, 2, 1], np.float32), one)
    >>> choose(three, k=2, explore=0, strategy=Greedy(), n_seen=0, key=1)[0]
    array([1, 2], dtype=int32)
    """
    if is_native(strategy):
        kind, rate = strategy.native(n_seen)
        known = candidates.score, candidates.is_node, candidates.id
        more = candidates.exploration_value, candidates.new_share, candidates.prior
        return _core.choose(*known, k, explore, kind, rate, key, *more)
    return _choose_slowly(candidates, k, explore, strategy, n_seen, key)


def _choose_slowly(
    candidates: Candidates, k: int, explore: int, strategy: Any, n_seen: int, key: int
) -> tuple[Ints, Floats, Bools]:
    """The same for a strategy written in Python: greedy first, then one draw a slot by inversion."""
    scores = candidates.score.astype(np.float64)
    slots = min(k, len(scores))
    chosen = np.argsort(-scores, kind="stable")[: min(k - explore, slots)].tolist()
    probability = [1.0] * len(chosen)
    in_play = np.setdiff1d(np.arange(len(scores)), chosen)
    for slot in range(len(chosen), slots):
        p = draw_probabilities(strategy, candidates.take(in_play), n_seen)
        ends = np.cumsum(p)
        place = int(np.searchsorted(ends, _core.uniform(key, slot) * ends[-1], side="right"))
        chosen.append(int(in_play[place]))
        probability.append(float(p[place]))
        in_play = np.delete(in_play, place)
    explored = np.arange(slots) >= k - explore
    return np.array(chosen, np.int32), np.array(probability), explored


def draw_probabilities(strategy: Any, candidates: Candidates, n_seen: int) -> Floats:
    """What the strategy says of the candidates in play: by all it may know of them if it asks for that, else by scores.

    >>> from treetop.policy.strategies import EpsilonGreedy
    >>> one = np.ones(2)
    >>> two = Candidates(np.zeros(2, bool), np.arange(2), one, np.array([0.2, 0.9]), one)
    >>> draw_probabilities(EpsilonGreedy(0.5), two, n_seen=3)
    array([0.25, 0.75])
    """
    if _asks_for_candidates(strategy):
        return check_probabilities(strategy.candidate_probabilities(candidates, n_seen), len(candidates))
    return check_probabilities(strategy.probabilities(candidates.score.astype(np.float64), n_seen), len(candidates))


def _asks_for_candidates(strategy: Any) -> bool:
    """Whether it has `candidate_probabilities`, and no `probabilities` of a subclass that is meant to replace it."""
    if not callable(getattr(strategy, "candidate_probabilities", None)):
        return False
    methods = {"probabilities", "candidate_probabilities"}
    own = next((kind for kind in type(strategy).__mro__ if methods & vars(kind).keys()), None)
    return own is None or "candidate_probabilities" in vars(own)


def check_probabilities(p: object, n: int) -> Floats:
    """A user's probabilities, or an error that says what is wrong with them.

    >>> check_probabilities([0.25, 0.75], n=2)
    array([0.25, 0.75])
    """
    array = as_numbers(p, "the strategy's probabilities").astype(np.float64)
    if array.shape != (n,):
        raise ValueError(f"the strategy gave probabilities of shape {array.shape} for {n} arms in play")
    if not (array >= 0).all():
        raise ValueError(f"the strategy gave the probability {array[~(array >= 0)][0]}; it must be at least 0")
    if abs(array.sum() - 1) > 1e-6:
        raise ValueError(f"the strategy's probabilities sum to {array.sum()}; they must sum to 1")
    exact: Floats = array / array.sum()  # what is drawn with is what is stated
    return exact
