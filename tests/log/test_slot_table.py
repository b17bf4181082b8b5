"""A row a slot as Parquet: what DuckDB, pandas and pyarrow read is what the log holds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.sealing import fill, late, seal

from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.segments.manifest import SegmentFolder
from treetop.log.slot_table import export_slots

parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
IDS = [f"arm {i}" for i in range(1000)]


def expected(log: Log) -> list[dict[str, Any]]:
    """The slots of a log, one by one."""
    rows = []
    for chunk in log.entries(log.summary()):
        for entry in chunk:
            e = entry.stored.event
            for slot in range(len(e)):
                reward, node = entry.stored.rewards[slot], int(e.nodes[slot])
                rows.append(
                    {
                        "position": entry.stored.position,
                        "time": e.time,
                        "epoch": e.model_epoch,
                        "tree": e.tree,
                        "slot": slot,
                        "arm": int(e.arms[slot]),
                        "arm_id": IDS[int(e.arms[slot])],
                        "node": None if node < 0 else node,
                        "propensity": float(e.propensities[slot]),
                        "score": float(e.scores[slot]),
                        "explored": bool(e.explored[slot]),
                        "reward": None if np.isnan(reward) else float(reward),
                        "reward_position": int(entry.reward_positions[slot]) or None,
                        "components": e.components[slot].tolist(),
                    }
                )
    return rows


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    folder = SegmentFolder(tmp_path / "segments")
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log, range(40))
        seal(folder, log)
        late(log, range(0, 40, 3))
        wanted = expected(log)
        assert export_slots(log, tmp_path / "slots.parquet", folder, IDS) == len(wanted)
    return tmp_path / "slots.parquet", wanted


def test_every_slot_is_a_row(exported: tuple[Path, list[dict[str, Any]]]) -> None:
    table = parquet.read_table(exported[0])
    assert table.to_pylist() == exported[1]
    assert json.loads(table.schema.metadata[b"treetop-slots"])["version"] == 1


def test_a_log_without_segments_and_ids(tmp_path: Path) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        assert export_slots(log, tmp_path / "none.parquet") == 0
        fill(log, range(10))
        wanted = [{**row, "arm_id": None} for row in expected(log)]
        seen: list[int] = []
        export_slots(log, tmp_path / "slots.parquet", progress=seen.append)
        assert seen == [10]
        with pytest.raises(ValueError, match=r"slots.jsonl must end with .parquet"):
            export_slots(log, tmp_path / "slots.jsonl")
    assert parquet.read_table(tmp_path / "slots.parquet").to_pylist() == wanted


def test_pandas_reads_it(exported: tuple[Path, list[dict[str, Any]]]) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_parquet(exported[0])
    known = [row["reward"] for row in exported[1] if row["reward"] is not None]
    assert len(frame) == len(exported[1])
    assert frame["reward"].count() == len(known)
    assert frame["reward"].mean() == pytest.approx(np.mean(known))


def test_duckdb_reads_it(exported: tuple[Path, list[dict[str, Any]]]) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    shown = duckdb.sql(
        f"SELECT arm_id, count(*), avg(reward) FROM '{exported[0]}' GROUP BY arm_id ORDER BY count(*) DESC, arm_id"
    ).fetchall()
    arms = [row["arm_id"] for row in exported[1]]
    assert shown[0][1] == max(arms.count(arm) for arm in set(arms))
    longest = duckdb.sql(f"SELECT max(len(components)) FROM '{exported[0]}'").fetchall()[0][0]
    assert longest == max(len(row["components"]) for row in exported[1])
