"""Segments and deltas to files and back: a folder each, one `.npy` file a column, sizes and checksums beside them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Floats, Int64s, Ints
from treetop.errors import ModelFileError, SegmentError
from treetop.files import sync_folder
from treetop.log.blocks import Block, RewardRows, places
from treetop.log.origins import Origins
from treetop.log.segments.manifest import Delta, NormPiece, Segment, ShardPiece, Sums
from treetop.log.segments.schema import DELTA, MANIFEST, ORIGINS, SEGMENT
from treetop.model.storage import read_array, write_array, write_synced

Arrays = Mapping[str, NDArray[Any]]


def _write(folder: Path, arrays: Arrays, kinds: Mapping[str, str], about: Mapping[str, Any]) -> tuple[int, int]:
    """Writes arrays into a new folder, synced; their bytes, and the checksum of the folder's manifest."""
    folder.mkdir(mode=0o700)
    files = {name: write_array(folder / f"{name}.npy", arrays[name].astype(kinds[name], copy=False)) for name in kinds}
    text = json.dumps({**about, "files": files}, indent=1).encode() + b"\n"
    write_synced(folder / MANIFEST, text)
    sync_folder(folder)
    return sum(facts["bytes"] for facts in files.values()), zlib.crc32(text)


def _read(folder: Path, crc32: int, kinds: Mapping[str, str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of a folder, mapped, after sizes and checksums were compared; and what its manifest says."""
    about = _about(folder, crc32)
    kinds = {name: kind for name, kind in kinds.items() if name not in ORIGINS or name in about["files"]}
    try:
        return {name: read_array(folder / f"{name}.npy", about["files"][name], kinds[name]) for name in kinds}, about
    except ModelFileError as error:
        raise SegmentError(str(error)) from None


def _about(folder: Path, crc32: int) -> dict[str, Any]:
    """What the manifest of a folder says."""
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise SegmentError(f"{folder / MANIFEST} cannot be read: {error.strerror}") from None
    if zlib.crc32(text) != crc32:
        raise SegmentError(f"{folder / MANIFEST}: checksum differs from the one in {folder.parent / MANIFEST}")
    about: dict[str, Any] = json.loads(text)
    return about


def write_segment(folder: Path, name: str, block: Block, shards: tuple[Ints, int]) -> Segment:
    """Writes rounds as a segment; `shards` are the shard of each arm and how many shards there are."""
    shard_of, count = shards
    shard = shard_of[block.arms]
    order = np.argsort(shard, kind="stable")  # radix sort: shards are small numbers
    counts, origins = np.repeat(block.component_counts, block.slots), block.origins.compact()
    arrays: Arrays = {
        "position": block.positions,
        "time": block.times,
        "epoch": block.epochs,
        "tree": block.trees,
        "slots": block.slots,
        "component_count": block.component_counts,
        "context_start": block.start,
        "context_index": block.index,
        "context_value": block.value,
        "row": block.rows[order],
        "slot": block.columns[order],
        "arm": block.arms[order],
        "node": block.nodes[order],
        "propensity": block.propensities[order],
        "score": block.scores[order],
        "explored": block.explored[order],
        "reward": block.rewards[order],
        "reward_position": block.reward_positions[order],
        "component": _permuted(block.components, counts, order),
        "settings": origins.settings,
        "filter": origins.filters,
        "removals": origins.removals,
        "shard_start": np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(shard, minlength=count))]),
    }
    about = {"trees": block.tree_ids, "made": origins.made, "filters": origins.names}
    size, crc32 = _write(folder / name, arrays, {**SEGMENT, **ORIGINS}, about)
    ends = int(block.positions[0]), int(block.positions[-1])
    times = float(block.times.min()), float(block.times.max())
    return Segment(name, len(block), len(order), size, *ends, *times, crc32)


def read_segment(folder: Path, segment: Segment) -> Block:
    """The rounds of a segment, as they were written."""
    found, about = _read(folder / segment.name, segment.crc32, {**SEGMENT, **ORIGINS})
    slots, counts = found["slots"], found["component_count"]
    first = np.cumsum(slots) - slots
    place = first[found["row"]] + found["slot"]  # where the sample stands round by round
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    return Block(
        found["position"],
        found["time"],
        found["epoch"],
        found["tree"],
        slots,
        counts,
        found["context_start"],
        found["context_index"],
        found["context_value"],
        found["arm"][order],
        found["node"][order],
        found["propensity"][order],
        found["score"][order],
        found["explored"][order],
        found["reward"][order],
        found["reward_position"][order],
        _permuted(found["component"], counts[found["row"]], order),
        tuple(about["trees"]),
        _origins(found, about),
    )


def _origins(found: Arrays, about: Mapping[str, Any]) -> Origins:
    if not all(name in found for name in ORIGINS):
        return Origins.unsaid(len(found["position"]))
    made = tuple((epoch, model, tree, policy) for epoch, model, tree, policy in about["made"])
    return Origins(found["settings"], found["filter"], found["removals"], made, tuple(about["filters"]))


def _permuted(values: NDArray[Any], counts: Ints, order: Int64s) -> NDArray[Any]:
    """Lists of these lengths, one after the other, in another order."""
    if len(counts) and (counts == counts[0]).all():
        return values.reshape(len(counts), counts[0])[order].reshape(-1)
    first, chosen = np.cumsum(counts) - counts, counts[order]
    return values[np.repeat(first[order], chosen) + places(chosen)]


def write_delta(folder: Path, name: str, rewards: RewardRows) -> Delta:
    """Writes rewards that came after their rounds were sealed."""
    columns = (rewards.decisions, rewards.slots, rewards.values, rewards.positions)
    size, crc32 = _write(folder / name, dict(zip(DELTA, columns, strict=True)), DELTA, {})
    return Delta(name, len(rewards), size, crc32)


def read_deltas(folder: Path, deltas: tuple[Delta, ...]) -> RewardRows:
    """The rewards of deltas, in the order in which they were committed."""
    parts = [_read(folder / delta.name, delta.crc32, DELTA)[0] for delta in deltas]
    return RewardRows.join([RewardRows(*(found[name] for name in DELTA)) for found in parts])


def write_sums(folder: Path, name: str, arrays: Arrays, numbers: Mapping[str, Any]) -> tuple[int, int]:
    """Writes what rounds add up to; its bytes, and the checksum of the folder's manifest."""
    kinds = {name: str(array.dtype) for name, array in arrays.items()}
    return _write(folder / name, arrays, kinds, {"kinds": kinds, "numbers": dict(numbers)})


def read_sums(folder: Path, sums: Sums) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What rounds add up to, as it was written, but for norms."""
    kinds = _about(folder / sums.name, sums.crc32)["kinds"]
    found, about = _read(folder / sums.name, sums.crc32, kinds)
    return found, about["numbers"]


def write_norms(folder: Path, name: str, norms: Floats) -> NormPiece:
    """Writes the lengths of the contexts of some more rounds."""
    size, crc32 = _write(folder / name, {"norm": norms}, {"norm": "float64"}, {})
    return NormPiece(name, len(norms), size, crc32)


def read_norms(folder: Path, pieces: tuple[NormPiece, ...]) -> tuple[Floats, ...]:
    """The lengths of the contexts of all rounds that are summed up, mapped piece by piece."""
    return tuple(_read(folder / piece.name, piece.crc32, {"norm": "float64"})[0]["norm"] for piece in pieces)


def write_shards(folder: Path, name: str, shards: Ints) -> ShardPiece:
    """Writes the shards of some more arms."""
    size, crc32 = _write(folder / name, {"shard": shards}, {"shard": "int32"}, {})
    return ShardPiece(name, len(shards), size, crc32)


def read_shards(folder: Path, pieces: tuple[ShardPiece, ...]) -> Ints:
    """The shard of every arm that has one."""
    parts = [_read(folder / piece.name, piece.crc32, {"shard": "int32"})[0]["shard"] for piece in pieces]
    return np.concatenate([np.zeros(0, np.int32), *parts])
