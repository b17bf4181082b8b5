"""Contexts, slots and sets of arms as bytes, the same in every database. Knows nothing of SQL."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints
from treetop.log.records import Event

# Interleaved and little-endian: the concatenated bytes of many rows are the array of all of them.
PAIR = np.dtype([("index", "<i4"), ("value", "<f4")])
SLOT = np.dtype([("arm", "<i4"), ("node", "<i4"), ("score", "<f4"), ("propensity", "<f8"), ("explored", "u1")])


def pack_context(event: Event) -> bytes:
    pairs = np.empty(len(event.index), PAIR)
    pairs["index"], pairs["value"] = event.index, event.value
    return pairs.tobytes()


def pack_slots(event: Event) -> bytes:
    slots = np.empty(len(event.arms), SLOT)
    slots["arm"], slots["node"], slots["score"] = event.arms, event.nodes, event.scores
    slots["propensity"], slots["explored"] = event.propensities, event.explored
    return slots.tobytes()


def shown_arms(slots: bytes) -> list[int]:
    """The arms of a decision, slot by slot."""
    arms: list[int] = np.frombuffer(slots, SLOT)["arm"].tolist()
    return arms


def pack_set(arms: Ints) -> bytes:
    """A set of arms: differences of the sorted indices, compressed. A million consecutive arms take a few KB."""
    ordered = np.unique(np.asarray(arms, "<i4"))
    return zlib.compress(np.diff(ordered, prepend=ordered.dtype.type(0)).tobytes(), 1)


def unpack_set(packed: bytes) -> Ints:
    return np.cumsum(np.frombuffer(zlib.decompress(packed), "<i4"), dtype=np.int32)


def unpack_event(
    event_id: str,
    time: float,
    request: bytes,
    context: bytes,
    slots: bytes,
    settings: tuple[int, str, str, str],
    arms: tuple[str, int],
) -> Event:
    pairs, s = np.frombuffer(context, PAIR), np.frombuffer(slots, SLOT)
    epoch, model, tree, policy = settings
    return Event(
        event_id,
        epoch,
        arms=_copy(s["arm"], np.int32),
        propensities=_copy(s["propensity"], np.float64),
        scores=_copy(s["score"], np.float32),
        explored=_copy(s["explored"], np.bool_),
        nodes=_copy(s["node"], np.int32),
        time=time,
        request=bytes(request),
        index=_copy(pairs["index"], np.int32),
        value=_copy(pairs["value"], np.float32),
        model=model,
        tree=tree,
        policy=policy,
        eligible=arms[0],
        removals=arms[1],
    )


def _copy(field: NDArray[Any], kind: type) -> Any:
    return np.ascontiguousarray(field, kind)


@dataclass(frozen=True, eq=False)
class Contexts:
    """The contexts of many decisions as compressed sparse rows."""

    start: Int64s
    index: Ints
    value: Float32s


def unpack_contexts(packed: Sequence[bytes]) -> Contexts:
    pairs = np.frombuffer(b"".join(packed), PAIR)
    start = np.zeros(len(packed) + 1, np.int64)
    np.cumsum([len(p) // PAIR.itemsize for p in packed], out=start[1:])
    return Contexts(start, np.ascontiguousarray(pairs["index"], np.int32), np.ascontiguousarray(pairs["value"]))


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of many decisions as (n, k) arrays, padded with arm and node -1."""

    arms: Ints
    nodes: Ints
    propensities: Floats
    scores: Float32s
    explored: Bools


def unpack_slots(packed: Sequence[bytes]) -> Slots:
    lengths = np.array([len(p) // SLOT.itemsize for p in packed], np.int64)
    flat = np.frombuffer(b"".join(packed), SLOT)
    row = np.repeat(np.arange(len(packed)), lengths)
    column = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    table = np.zeros((len(packed), int(lengths.max(initial=0))), SLOT)
    table["arm"] = table["node"] = -1
    table[row, column] = flat
    return Slots(
        np.ascontiguousarray(table["arm"], np.int32),
        np.ascontiguousarray(table["node"], np.int32),
        np.ascontiguousarray(table["propensity"], np.float64),
        np.ascontiguousarray(table["score"], np.float32),
        np.ascontiguousarray(table["explored"], np.bool_),
    )
