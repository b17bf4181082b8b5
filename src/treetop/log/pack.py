"""Contexts, slots and sets of arms as bytes, the same in every database. Knows nothing of SQL."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints
from treetop.log.keys import Keys
from treetop.log.records import Event

# Interleaved and little-endian: the concatenated bytes of many rows are the array of all of them.
PAIR = np.dtype([("index", "<i4"), ("value", "<f4")])
COMPONENT = np.dtype("<f4")
SLOT = np.dtype([("arm", "<i4"), ("node", "<i4"), ("score", "<f4"), ("propensity", "<f8"), ("explored", "u1")])


def pack_event(event: Event) -> tuple[bytes, bytes, bytes]:
    """Context, slots and components."""
    return pack_context(event), pack_slots(event), np.ascontiguousarray(event.components, COMPONENT).tobytes()


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
    packed: tuple[bytes, bytes, bytes],
    settings: tuple[int, str, str, str],
    rest: tuple[str, int, Keys],
) -> Event:
    context, slots, components = packed
    pairs, s = np.frombuffer(context, PAIR), np.frombuffer(slots, SLOT)
    count = len(components) // COMPONENT.itemsize // max(len(s), 1)
    epoch, model, tree, policy = settings
    return Event(
        event_id,
        epoch,
        arms=_copy(s["arm"], np.int32),
        propensities=_copy(s["propensity"], np.float64),
        scores=_copy(s["score"], np.float32),
        explored=_copy(s["explored"], np.bool_),
        nodes=_copy(s["node"], np.int32),
        components=np.frombuffer(components, COMPONENT).astype(np.float32).reshape(len(s), count),
        time=time,
        request=bytes(request),
        index=_copy(pairs["index"], np.int32),
        value=_copy(pairs["value"], np.float32),
        model=model,
        tree=tree,
        policy=policy,
        eligible=rest[0],
        removals=rest[1],
        keys=rest[2],
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


def slot_counts(packed: Sequence[bytes]) -> Int64s:
    """How many slots each of these decisions has."""
    return np.array([len(p) // SLOT.itemsize for p in packed], np.int64)


def _places(lengths: Int64s) -> tuple[Int64s, Int64s]:
    """Row and column of every slot of decisions that have so many."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


@dataclass(frozen=True, eq=False)
class Components:
    """The components of many decisions: (n, k, C), NaN where a decision has none; and how many each decision has."""

    values: Float32s
    counts: Int64s


def unpack_components(packed: Sequence[bytes], slots: Int64s) -> Components:
    """Of decisions that have so many slots."""
    counts = np.array([len(p) // COMPONENT.itemsize for p in packed], np.int64) // np.maximum(slots, 1)
    table = np.full((len(packed), slots.max(initial=0), counts.max(initial=0)), np.nan, np.float32)
    for count in np.unique(counts[counts > 0]).tolist():
        mine = np.flatnonzero(counts == count)
        row, column = _places(slots[mine])
        flat = np.frombuffer(b"".join(packed[i] for i in mine.tolist()), COMPONENT)
        table[mine[row], column, :count] = flat.reshape(-1, count)
    return Components(table, counts)


def unpack_slots(packed: Sequence[bytes]) -> Slots:
    lengths = slot_counts(packed)
    flat = np.frombuffer(b"".join(packed), SLOT)
    row, column = _places(lengths)
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
