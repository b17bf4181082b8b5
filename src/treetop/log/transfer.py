"""Export and import of logs, as JSON lines or Parquet (by pyarrow). A file holds everything that a log holds.

A record is one decision with its context, slots and rewards, in the order of the log. Counts, marks and owner are in
the first line of a .jsonl file or in the metadata of a .parquet file; the last line of a .jsonl file has the number of
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from treetop.arrays import INT32_MAX, Float32s, Floats, Int64s, as_float32s, as_indices, check_float, check_int
from treetop.log.base import Log
from treetop.log.records import (
    LARGEST_REWARD,
    Counts,
    Entry,
    Event,
    LogSummary,
    Mark,
    Owner,
    ReplacedReward,
    Restored,
    StoredEvent,
    check_event,
)

FORMAT, VERSION = "treetop-log", 5
READABLE = (3, 4, 5)  # 3 has no keys, 4 no rewards that were corrected
CHUNK = 1024  # records
Progress = Callable[[int], None]
Check = Callable[[Owner | None], object]


class Head(msgspec.Struct, forbid_unknown_fields=True):
    """The part of a file that belongs to the whole log."""

    format: str
    version: int
    counts: Counts
    marks: list[Mark]
    owner: Owner | None = None


class Tail(msgspec.Struct, forbid_unknown_fields=True):
    """The last line of a .jsonl file: how many records come before it."""

    end: int


class Record(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One decision. Rewards are null where there are none; `eligible_arms` is given with the first use of its set.

    `components` has a list a slot; it is left out (null in Parquet) if the model that decided had no components, and so
    is `keys`, pairs of name and value, if the request carried none. `replaced` are rewards that were corrected: slot,
    value, time and position of each, in the order of the positions.
    """

    position: int
    event_id: str
    time: float
    request: str
    epoch: int
    model: str
    tree: str
    policy: str
    eligible: str
    removals: int
    eligible_arms: list[int] | None
    index: list[int]
    value: list[float]
    arms: list[int]
    nodes: list[int]
    propensities: list[float]
    scores: list[float]
    explored: list[bool]
    rewards: list[float | None]
    reward_times: list[float | None]
    reward_positions: list[int | None]
    components: list[list[float]] | None = None
    keys: list[tuple[str, str]] | None = None
    replaced: list[tuple[float, float, float, float]] | None = None


RECORDS = msgspec.json.Decoder(Record)


def export_log(log: Log, path: Path, progress: Progress = lambda n: None) -> int:
    """Writes a log to a .jsonl or .parquet file, which appears when it is complete; returns the number of decisions."""
    write = {".jsonl": _write_lines, ".parquet": _write_parquet}[form(path)]
    summary = log.summary()
    head = Head(FORMAT, VERSION, summary.counts, list(summary.marks), summary.owner)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            n = write(file, head, _counted(log.entries(summary, CHUNK), progress))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return n


def import_log(
    log: Log,
    path: Path,
    progress: Progress = lambda n: None,
    check: Check = lambda owner: None,
    limits: tuple[float, float] = (-LARGEST_REWARD, LARGEST_REWARD),
) -> Restored:
    """Adds all of a file to a log, or nothing of it. `check` may refuse it for the bandit that it is of; rewards beyond
    `limits` are refused."""
    read = {".jsonl": _read_lines, ".parquet": _read_parquet}[form(path)]
    with path.open("rb") as file:
        head, records = read(file, path)
        if head.format != FORMAT or head.version not in READABLE:
            raise ValueError(f"{path} is {head.format} {head.version}; {FORMAT} {VERSION} is needed")
        check(head.owner)
        chunks = _counted(_chunks(records, path, limits), progress)
        return log.restore(LogSummary(head.counts, tuple(head.marks), head.owner), chunks)


def form(path: Path) -> str:
    if path.suffix not in (".jsonl", ".parquet"):
        raise ValueError(f"{path} must end with .jsonl or .parquet")
    return path.suffix


def _counted(chunks: Iterable[list[Entry]], progress: Progress) -> Iterator[list[Entry]]:
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        progress(done)


def _chunks(records: Iterable[Record], path: Path, limits: tuple[float, float]) -> Iterator[list[Entry]]:
    chunk: list[Entry] = []
    for number, record in enumerate(records, 1):
        try:
            chunk.append(entry_of(record, limits))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{path}, record {number}: {error}") from None
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def record_of(entry: Entry) -> Record:
    stored, e = entry.stored, entry.stored.event
    known = entry.reward_positions != 0
    return Record(
        stored.position,
        e.event_id,
        e.time,
        e.request.hex(),
        e.model_epoch,
        e.model,
        e.tree,
        e.policy,
        e.eligible,
        e.removals,
        None if entry.arms is None else entry.arms.tolist(),
        e.index.tolist(),
        e.value.tolist(),
        e.arms.tolist(),
        e.nodes.tolist(),
        e.propensities.tolist(),
        e.scores.tolist(),
        e.explored.tolist(),
        _or_null(stored.rewards, known),
        _or_null(stored.times, known),
        _or_null(entry.reward_positions, known),
        e.components.tolist() if e.components.size else None,
        list(e.keys) or None,
        [(r.slot, r.value, r.time, r.position) for r in stored.replaced] or None,
    )


def _or_null(values: Any, known: Any) -> list[Any]:
    return [value if there else None for value, there in zip(values.tolist(), known.tolist(), strict=True)]


def entry_of(r: Record, limits: tuple[float, float] = (-LARGEST_REWARD, LARGEST_REWARD)) -> Entry:
    """The entry of a record. Everything is checked, since a file can hold anything."""
    index, arms = as_indices(r.index, INT32_MAX, "index"), as_indices(r.arms, INT32_MAX, "arm")
    if (np.diff(index) <= 0).any():
        raise ValueError("the context's indices do not rise")
    if len(np.unique(arms)) != len(arms):
        raise ValueError("an arm is shown twice")
    event = Event(
        r.event_id,
        r.epoch,
        arms,
        propensities=np.array([check_float("propensity", p, 0, 1) for p in r.propensities]),
        scores=_finite(r.scores, "score"),
        explored=np.array(r.explored, np.bool_),
        nodes=as_indices(r.nodes, INT32_MAX, "node", low=-1),
        components=_components(r),
        time=r.time,
        request=bytes.fromhex(r.request),
        index=index,
        value=_finite(r.value, "value"),
        model=r.model,
        tree=r.tree,
        policy=r.policy,
        eligible=r.eligible,
        removals=r.removals,
        keys=tuple(r.keys or ()),
    )
    check_event(event)
    sets = None if r.eligible_arms is None else as_indices(r.eligible_arms, INT32_MAX, "eligible arm")
    rewards, times, positions = _rewards(r, len(arms), limits)
    replaced = _replaced(r, positions, limits)
    return Entry(StoredEvent(event, rewards, times, r.position, replaced), positions, sets)


def _replaced(r: Record, counts: Int64s, limits: tuple[float, float]) -> tuple[ReplacedReward, ...]:
    """The rewards that were corrected; each lies before the one that counts, whose positions are given."""
    found: list[ReplacedReward] = []
    for entry in r.replaced or ():
        slot, value, time, position = entry
        if not (slot.is_integer() and position.is_integer() and 0 <= slot < len(counts)):
            raise ValueError(f"a corrected reward is {list(entry)}; slot, value, time and position are needed")
        last = found[-1].position if found else 0
        check_int("position of a corrected reward", int(position), last + 1, int(counts[int(slot)]) - 1)
        value, time = check_float("reward", value, *limits), check_float("reward time", time, -1e15, 1e15)
        found.append(ReplacedReward(int(slot), value, time, int(position)))
    return tuple(found)


def _rewards(r: Record, k: int, limits: tuple[float, float]) -> tuple[Floats, Floats, Int64s]:
    if not len(r.rewards) == len(r.reward_times) == len(r.reward_positions) == k:
        raise ValueError(f"{k} arms need as many rewards, reward_times and reward_positions")
    rewards, times, positions = np.full(k, np.nan), np.full(k, np.nan), np.zeros(k, np.int64)
    for slot, found in enumerate(zip(r.rewards, r.reward_times, r.reward_positions, strict=True)):
        value, time, position = found
        if value is not None and time is not None and position is not None:
            rewards[slot], times[slot] = (
                check_float("reward", value, *limits),
                check_float("reward time", time, -1e15, 1e15),
            )
            positions[slot] = check_int("reward position", position, 1, 2**62)
        elif found != (None, None, None):
            raise ValueError(f"slot {slot} has part of a reward: {found}")
    return rewards, times, positions


def _components(r: Record) -> Float32s | None:
    if r.components is None:
        return None
    if len(counts := {len(slot) for slot in r.components}) != 1:
        raise ValueError(f"slots have {sorted(counts)} components; every slot has as many")
    return _finite([value for slot in r.components for value in slot], "component").reshape(len(r.components), -1)


def _finite(values: list[float], what: str) -> Float32s:
    array = as_float32s(np.array(values, np.float64), what)
    if not np.isfinite(array).all():
        raise ValueError(f"{what} {array[~np.isfinite(array)][0]} is not finite")
    return array


def _write_lines(file: BinaryIO, head: Head, chunks: Iterable[list[Entry]]) -> int:
    file.write(msgspec.json.encode(head) + b"\n")
    n = 0
    for chunk in chunks:
        file.write(b"".join(msgspec.json.encode(record_of(entry)) + b"\n" for entry in chunk))
        n += len(chunk)
    file.write(msgspec.json.encode(Tail(n)) + b"\n")
    return n


def _read_lines(file: BinaryIO, path: Path) -> tuple[Head, Iterator[Record]]:
    try:
        head = msgspec.json.decode(file.readline(), type=Head)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not an exported log ({error}); another system's needs --columns") from None
    return head, _line_records(file, path)


def _line_records(file: BinaryIO, path: Path) -> Iterator[Record]:
    for n, line in enumerate(file):
        found = _parsed(line, f"{path}, record {n + 1}")
        if isinstance(found, Record):
            yield found
            continue
        if found.end != n:
            raise ValueError(f"{path} has {n} records; its last line says {found.end}")
        if any(line.strip() for line in file):
            raise ValueError(f"{path} goes on after the line that says how many records it has")
        return
    raise ValueError(f"{path} is cut off: its last line does not say how many records it has")


def _parsed(line: bytes, where: str) -> Record | Tail:
    try:
        return RECORDS.decode(line)
    except msgspec.DecodeError as error:
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(line, type=Tail)
        raise ValueError(f"{where}: {error}") from None


def _write_parquet(file: BinaryIO, head: Head, chunks: Iterable[list[Entry]]) -> int:
    arrow, parquet = load_pyarrow()
    schema = _parquet_schema(arrow, {FORMAT: msgspec.json.encode(head)})
    n = 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for chunk in chunks:
            rows = [msgspec.structs.asdict(record_of(entry)) for entry in chunk]
            writer.write_table(arrow.Table.from_pylist(rows, schema))
            n += len(chunk)
    return n


def _read_parquet(file: BinaryIO, path: Path) -> tuple[Head, Iterator[Record]]:
    arrow, parquet = load_pyarrow()
    try:
        source = parquet.ParquetFile(file)
        head = msgspec.json.decode(source.schema_arrow.metadata[FORMAT.encode()], type=Head)
    except (arrow.ArrowException, KeyError, TypeError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} is not an exported log ({error}); another system's needs --columns") from None
    return head, _parquet_records(source, path)


def _parquet_records(source: Any, path: Path) -> Iterator[Record]:
    n = 0
    for batch in source.iter_batches(CHUNK):
        for row in batch.to_pylist():
            n += 1
            try:
                yield msgspec.convert(row, Record)
            except msgspec.ValidationError as error:
                raise ValueError(f"{path}, record {n}: {error}") from None


def _parquet_schema(arrow: Any, metadata: dict[str, bytes]) -> Any:
    text, whole_, real_, single = arrow.string(), arrow.int64(), arrow.float64(), arrow.float32()
    ids = arrow.list_(arrow.int32())
    kinds = {
        "position": whole_,
        "event_id": text,
        "time": real_,
        "request": text,
        "epoch": whole_,
        "model": text,
        "tree": text,
        "policy": text,
        "eligible": text,
        "removals": whole_,
        "eligible_arms": ids,
        "index": ids,
        "value": arrow.list_(single),
        "arms": ids,
        "nodes": ids,
        "propensities": arrow.list_(real_),
        "scores": arrow.list_(single),
        "explored": arrow.list_(arrow.bool_()),
        "rewards": arrow.list_(real_),
        "reward_times": arrow.list_(real_),
        "reward_positions": arrow.list_(whole_),
        "components": arrow.list_(arrow.list_(single)),
        "keys": arrow.list_(arrow.list_(text)),
        "replaced": arrow.list_(arrow.list_(real_)),
    }
    return arrow.schema(list(kinds.items()), metadata)


def load_pyarrow() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet; raises ValueError with what to install if they are not there."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ValueError("Parquet needs pyarrow: pip install 'treetop-bandits[parquet]'") from None
    return pyarrow, pyarrow.parquet
