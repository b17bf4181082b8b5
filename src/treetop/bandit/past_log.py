"""What another system has shown, from the owner's files into a bandit's log: all of a file or nothing of it.

A row is an item that was shown. It is read twice: once to check every line, once to write. In the log such a decision
has no model; its settings are {"imported": true, "positions": [...]}, with the position of each slot or null, which is
also its one component, 0 for unknown: what learning reads.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Rows
from treetop.bandit.bandit import Bandit
from treetop.bandit.past_values import (
    PastColumns,
    feature_value,
    number_of,
    past_rows,
    read_contexts,
    required_of,
    seconds_of,
)
from treetop.bandit.vocabulary import VECTOR
from treetop.data.tables import TableRow
from treetop.errors import UnknownArm
from treetop.log.records import Counts, Entry, Event, LogSummary, Restored, StoredEvent, check_id
from treetop.policy.policy import MAX_SLOTS

CHUNK = 1024  # decisions written at a time
RANGE_HINT = "; --reward-range LOW,HIGH of treetop init, or low and high of [rewards] in config.toml, allow others"
Line: TypeAlias = tuple[int, TableRow]


@dataclass
class PastSummary:
    """What a past log holds, of how many items; `skipped` rows showed items that are not in the catalogue."""

    decisions: int = 0
    rewards: int = 0
    observed: int = 0
    slots: int = 0
    skipped: int = 0
    unknown_features: int = 0
    items: int = 0


@dataclass(eq=False)
class PastReader:
    """Reads a file as decisions of a bandit's arms and features."""

    bandit: Bandit
    path: Path
    columns: PastColumns
    vectors: NDArray[Any] | None = None  # a context a row
    skip_unknown: bool = False
    now: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        features = self.bandit.vocabulary.given
        self.part: str | None = None  # what the file's vectors are of a context; None: all of it
        measured = self.bandit.snapshot.model.measure is not None
        if measured and self.vectors is None and self.columns.context is None:
            raise ValueError(
                "items are compared with a vector that every context has, and nothing says where the log's are: name a "
                "file of them (--contexts) and the column of its rows (--context-key)"
            )
        if self.vectors is not None:
            if self.columns.context is None:
                raise ValueError("contexts in a file need context=COLUMN, which says what row each has")
            width = self.vectors.shape[1] if self.vectors.ndim == 2 else 0
            parts = [name for name, (_, dims) in self.bandit.vocabulary.vectors.items() if dims == width]
            if parts and (width < features or self.columns.features):
                self.part = VECTOR if VECTOR in parts else parts[0]
            elif width != features:
                raise ValueError(f"contexts of shape {self.vectors.shape}; the bandit's have {features} features")
            elif self.columns.features:
                raise ValueError("the contexts in the file have all features; none is left for columns")
        self.digest = ""

    def check(self, progress: Callable[[int], object]) -> PastSummary:
        """Reads all of it and says what is in it. Raises ValueError that names the line of what is wrong."""
        found, digest, seen = PastSummary(), hashlib.blake2b(digest_size=8), array("Q")
        was_shown = np.zeros(len(self.bandit.snapshot.arms), np.bool_)
        with closing(self._decisions(found, digest)) as decisions:
            for event in decisions:
                was_shown[event.stored.event.arms] = True
                if self.columns.event is not None:  # the others are numbered
                    seen.extend(_short(event.stored.event.event_id))
                found.decisions += 1
                if found.decisions % CHUNK == 0:
                    progress(found.decisions)
        if (twice := _twice(seen)) is not None:
            raise ValueError(f"{self.path}: the rows of event {self._named(twice)!r} are not together")
        self.digest = digest.hexdigest()
        found.items = int(was_shown.sum())
        return found

    def _named(self, short: tuple[int, ...]) -> str:
        """The event of these 16 bytes."""
        with closing(self._decisions(PastSummary(), None)) as decisions:
            names = (entry.stored.event.event_id for entry in decisions)
            return next(name for name in names if _short(name) == short)

    def chunks(self, progress: Callable[[int], object]) -> Iterator[list[Entry]]:
        """The decisions as the log takes them, after `check`."""
        chunk: list[Entry] = []
        done = 0
        with closing(self._decisions(PastSummary(), None)) as decisions:
            for entry in decisions:
                chunk.append(entry)
                if len(chunk) == CHUNK:
                    yield chunk
                    done += len(chunk)
                    progress(done)
                    chunk = []
        if chunk:
            yield chunk

    def _decisions(self, found: PastSummary, digest: Any) -> Generator[Entry, None, None]:
        position = 0
        with closing(past_rows(self.path, self.columns)) as table:
            for number, (_, group) in enumerate(groupby(enumerate(table), self._key)):
                rows = [row for _, row in group]
                if digest is not None:
                    digest.update(json.dumps([row.values for row in rows], default=str).encode())
                entry = self._entry(number, rows, position, found)
                if entry is not None:
                    position += 1 + int((entry.reward_positions > 0).sum())
                    yield entry

    def _key(self, line: Line) -> object:
        """What the rows of one decision share; without events each row is one."""
        number, row = line
        if self.columns.event is None:
            return number
        if row.values[self.columns.event] is None:
            raise ValueError(f"{row.where}: there is no {self.columns.event!r}")
        return row.values[self.columns.event]

    def _entry(self, number: int, rows: list[TableRow], position: int, found: PastSummary) -> Entry | None:
        slots = [slot for slot in (self._slot(row, found) for row in rows) if slot is not None]
        if not slots:
            return None
        if self.columns.position is not None:
            slots.sort(key=lambda slot: slot["position"] or 0)
        arms = np.array([slot["arm"] for slot in slots], np.int32)
        if len(set(arms.tolist())) < len(arms) or len(arms) > MAX_SLOTS:
            raise ValueError(f"{rows[0].where}: a decision shows each item once, and {MAX_SLOTS} at most")
        name = f"past-{self.digest}-{number}"
        if self.columns.event is not None:
            name = str(rows[0].values[self.columns.event])
            check_id(name)
        moment = self._time(rows[0])
        x = self._context(rows[0], found)
        self._check_same(rows)
        rewards = np.array([slot["reward"] for slot in slots])
        there = ~np.isnan(rewards)
        settings = {"imported": True, "positions": [slot["position"] for slot in slots]}
        positions = np.array([[slot["position"] or 0] for slot in slots], np.float32)
        event = Event(
            name,
            0,
            arms,
            np.array([slot["propensity"] for slot in slots]),
            np.zeros(len(arms), np.float32),
            np.zeros(len(arms), np.bool_),
            np.full(len(arms), -1, np.int32),
            components=positions,
            time=moment,
            request=hashlib.blake2b(x.index.tobytes() + x.value.tobytes() + arms.tobytes(), digest_size=16).digest(),
            index=x.index,
            value=x.value,
            model="",
            tree="",
            policy=json.dumps(settings),
        )
        found.rewards += int(there.sum())
        found.observed += bool(there.any())
        found.slots += len(arms)
        stored = StoredEvent(event, rewards, np.where(there, moment, np.nan), position + 1)
        return Entry(stored, np.where(there, position + 1 + np.cumsum(there), 0).astype(np.int64))

    def _check_same(self, rows: list[TableRow]) -> None:
        """Raises ValueError for rows of one event that do not have the same time and context."""
        c, first = self.columns, rows[0].values
        for name in filter(None, (c.time, c.context, *c.features)):
            if wrong := next((row for row in rows if row.values[name] != first[name]), None):
                raise ValueError(
                    f"{wrong.where}: {name} is {wrong.values[name]!r}; rows before it of the same event say "
                    f"{first[name]!r}"
                )

    def _slot(self, row: TableRow, found: PastSummary) -> dict[str, Any] | None:
        c, values, limits = self.columns, row.values, self.bandit.config.rewards
        try:
            arm = self.bandit.snapshot.arms.find([required_of(values, c.item)]).item()
        except UnknownArm as error:
            if not self.skip_unknown:
                raise ValueError(f"{row.where}: {error}; --skip-unknown leaves such rows out") from None
            found.skipped += 1
            return None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{row.where}: {error}") from None
        reward = number_of(row, c.reward, limits.low, limits.high, RANGE_HINT)
        propensity = number_of(row, c.propensity, 0.0, 1.0)
        position = number_of(row, c.position, 1, 1e6)
        if position is not None and position != int(position):
            raise ValueError(f"{row.where}: the position {position:g} is not a whole number")
        if propensity == 0.0:
            raise ValueError(f"{row.where}: the propensity is 0; what was shown had a chance")
        return {
            "arm": arm,
            "reward": np.nan if reward is None else reward,
            "propensity": propensity or 0.0,
            "position": None if position is None else int(position),
        }

    def _time(self, row: TableRow) -> float:
        given = None if self.columns.time is None else row.values[self.columns.time]
        if given is None:
            return self.now
        try:
            return seconds_of(given)
        except (ValueError, TypeError, OverflowError):
            raise ValueError(
                f"{row.where}: {given!r} is no time: seconds since 1970 (no milliseconds), or a date"
            ) from None

    def _context(self, row: TableRow, found: PastSummary) -> Rows:
        c = self.columns
        given = None if c.context is None else row.values[c.context]
        try:
            if self.vectors is not None:
                at = float(required_of(row.values, c.context or ""))
                if not (at.is_integer() and 0 <= at < len(self.vectors)):
                    raise ValueError(f"{c.context} is {at:g}; it must be a whole number in [0, {len(self.vectors)})")
                vector = np.asarray(self.vectors[int(at)], np.float32)
                if self.part is None:
                    return self.bandit.row(vector)
                given = {self.part: vector}
            elif given is not None:
                given = json.loads(given) if isinstance(given, str) else given
                if not isinstance(given, Mapping):
                    return self.bandit.row(given)
            named = {name: value for name in c.features if (value := row.values[name]) is not None}
            named |= given or {}
            vocabulary = self.bandit.vocabulary
            x, unknown = vocabulary.named(
                {name: feature_value(vocabulary, name, value) for name, value in named.items()}
            )
            found.unknown_features += unknown
            return x
        except (ValueError, TypeError) as error:
            raise ValueError(f"{row.where}: {error}") from None


def _short(name: str) -> tuple[int, ...]:
    """16 bytes that stand for the id of an event, as two numbers: of millions of ids no two have the same."""
    return struct.unpack("<QQ", hashlib.blake2b(name.encode(), digest_size=16).digest())


def _twice(seen: array[int]) -> tuple[int, ...] | None:
    """The first pair, in their own order, that is there more than once.

    >>> _twice(array("Q", [3, 1, 2, 2, 3, 1])), _twice(array("Q", [3, 1, 3, 2]))
    ((3, 1), None)
    """
    pairs = np.frombuffer(seen, np.uint64).reshape(-1, 2) if len(seen) else np.zeros((0, 2), np.uint64)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    same = np.flatnonzero((pairs[order[1:]] == pairs[order[:-1]]).all(axis=1))
    return tuple(pairs[order[same[0]]].tolist()) if len(same) else None


def import_past(
    bandit: Bandit,
    path: Path,
    columns: PastColumns,
    *,
    contexts: Path | None = None,
    skip_unknown: bool = False,
    progress: Callable[[int], object] = lambda decisions: None,
) -> tuple[PastSummary, Restored]:
    """Adds what another system has shown to a bandit's log, and says what it was. Raises ValueError naming the line.

    The same file again changes nothing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint", "rose"]) as tea:
    ...     _ = Path(place, "past.csv").write_text("item,clicked,place\\nmint,1,1\\nrose,0,3\\n")
    ...     columns = PastColumns.of("reward=clicked,position=place")
    ...     found, _ = import_past(tea, Path(place, "past.csv"), columns)
    ...     found.decisions, tea.refit().rewards, import_past(tea, Path(place, "past.csv"), columns)[1].known
    (2, 2, 2)
    """
    vectors = None if contexts is None else read_contexts(contexts)
    reader = PastReader(bandit, path, columns, vectors, skip_unknown)
    found = reader.check(progress)
    if found.decisions == 0:
        raise ValueError(f"{path} shows nothing: there are no rows" + (" of known items" if found.skipped else ""))
    position = found.decisions + found.rewards
    counts = Counts(position, found.decisions, found.slots, found.rewards, found.observed)
    restored = bandit.log.restore(LogSummary(counts, (), bandit.log.owner()), reader.chunks(progress))
    bandit.folder.note("past log imported", file=path.name, decisions=restored.decisions, rewards=restored.rewards)
    return found, restored
