"""Export for analysts: Parquet (by pyarrow) with one row a slot, flat but for the components. It is not imported again.

Contexts are in the export of decisions, which has the same `position`. docs/segments.md has the columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treetop.log.base import Log
from treetop.log.blocks import Block
from treetop.log.segments.manifest import SegmentFolder
from treetop.log.segments.reading import all_blocks
from treetop.log.transfer import load_pyarrow

FORMAT, VERSION = "treetop-slots", 1
READ_STEP = 8192  # rounds read from the log at a time


def export_slots(
    log: Log,
    path: Path,
    segments: SegmentFolder | None = None,
    ids: Sequence[str | int] | None = None,
    progress: Callable[[int], None] = lambda rounds: None,
) -> int:
    """Writes a .parquet file with a row for every slot, which appears when it is complete; returns how many rows.

    Sealed rounds are read from `segments`; `ids` are the arms' own, by index.
    """
    if path.suffix != ".parquet":
        raise ValueError(f"{path} must end with .parquet: a row a slot is written as Parquet alone")
    arrow, parquet = load_pyarrow()
    position = log.counts().position
    schema = _schema(arrow, {FORMAT: json.dumps({"version": VERSION, "position": position}).encode()})
    part = path.with_name(path.name + ".part")
    rows = rounds = 0
    try:
        with part.open("wb") as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for block in _blocks(log, segments, position):
                writer.write_table(_table(arrow, schema, block, ids))
                rows, rounds = rows + len(block.arms), rounds + len(block)
                progress(rounds)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return rows


def _blocks(log: Log, segments: SegmentFolder | None, until: int) -> Iterator[Block]:
    if segments is None:
        return log.blocks(0, until, READ_STEP)
    return all_blocks(segments, log, until, READ_STEP)


def _table(arrow: Any, schema: Any, block: Block, ids: Sequence[str | int] | None) -> Any:
    rows, counts = block.rows, np.repeat(block.component_counts, block.slots)
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
    seen = np.asarray(block.reward_positions > 0)
    names = None if ids is None else [str(ids[arm]) for arm in block.arms.tolist()]
    columns = {
        "position": block.positions[rows],
        "time": block.times[rows],
        "epoch": block.epochs[rows],
        "tree": arrow.array(block.tree_ids, arrow.string()).take(arrow.array(block.trees[rows])),
        "slot": block.columns,
        "arm": block.arms,
        "arm_id": arrow.nulls(len(rows), arrow.string()) if names is None else arrow.array(names, arrow.string()),
        "node": arrow.array(block.nodes, mask=block.nodes < 0),
        "propensity": block.propensities,
        "score": block.scores,
        "explored": block.explored,
        "reward": arrow.array(block.rewards, mask=~seen),
        "reward_position": arrow.array(block.reward_positions, mask=~seen),
        "components": arrow.ListArray.from_arrays(arrow.array(ends), arrow.array(block.components)),
    }
    return arrow.table([columns[name] for name in schema.names], schema=schema)


def _schema(arrow: Any, metadata: dict[str, bytes]) -> Any:
    text, whole, index, real, single = (arrow.string(), arrow.int64(), arrow.int32(), arrow.float64(), arrow.float32())
    kinds = {
        "position": whole,
        "time": real,
        "epoch": whole,
        "tree": text,
        "slot": index,
        "arm": index,
        "arm_id": text,
        "node": index,
        "propensity": real,
        "score": single,
        "explored": arrow.bool_(),
        "reward": real,
        "reward_position": whole,
        "components": arrow.list_(single),
    }
    return arrow.schema(list(kinds.items()), metadata)
