"""What another system has shown, from the owner's files into a bandit's log: all of a file or nothing of it.

A row is an item that was shown. It is read twice: once to check every line, once to write. In the log such a decision
has no model; its settings are {"imported": true, "positions": [...]}, with the position of each slot or null.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Rows, check_float
from treetop.bandit.bandit import Bandit
from treetop.data.tables import TableRow, read_table
from treetop.errors import UnknownArm
from treetop.log.records import Counts, Entry, Event, LogSummary, Restored, StoredEvent, check_id
from treetop.policy.policy import MAX_SLOTS

ROLES = ("item", "reward", "propensity", "position", "event", "time", "context")
CHUNK = 1024  # decisions written at a time
Line: TypeAlias = tuple[int, TableRow]


@dataclass(frozen=True)
class PastColumns:
    """Which columns of a past log are what.

    `item` is the id of what was shown, `reward` what it brought (empty: not observed), `propensity` the chance that it
    had (empty: unknown), `position` its place, from 1 on, `event` what the rows of one decision share, `time` when
    it was (seconds since 1970, or a date), `context` a mapping of features, or the row of its vector.
    `features` are columns that are features: of the same name if they hold numbers, and `column=value` if text.

    >>> PastColumns.of("item=sku,reward=clicked").reward
    'clicked'
    """

    item: str = "item"
    reward: str = "reward"
    propensity: str | None = None
    position: str | None = None
    event: str | None = None
    time: str | None = None
    context: str | None = None
    features: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, features: str = "") -> PastColumns:
        """From the command line's "item=sku,reward=clicked". Raises ValueError for what is none of the roles."""
        given: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            role, equals, column = part.partition("=")
            if role not in ROLES or not equals or not column or role in given:
                raise ValueError(f"{part!r} is not role=column, each once; the roles are {', '.join(ROLES)}")
            given[role] = column
        return cls(**given, features=tuple(filter(None, (name.strip() for name in features.split(",")))))

    def names(self) -> list[str]:
        roles = [getattr(self, role) for role in ROLES]
        return [name for name in (*roles, *self.features) if name is not None]


@dataclass
class PastSummary:
    """What a past log holds; `skipped` rows showed items that are not in the catalogue."""

    decisions: int = 0
    rewards: int = 0
    observed: int = 0
    slots: int = 0
    skipped: int = 0
    unknown_features: int = 0


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
        features = self.bandit.snapshot.model.n_features
        if self.vectors is not None:
            if self.columns.context is None or self.columns.features:
                raise ValueError(
                    "contexts in a file need context=COLUMN, which says what row each has, and no features"
                )
            if self.vectors.ndim != 2 or self.vectors.shape[1] != features:
                raise ValueError(f"contexts of shape {self.vectors.shape}; the bandit's have {features} features")
        self.digest = ""

    def check(self, progress: Callable[[int], object]) -> PastSummary:
        """Reads all of it and says what is in it. Raises ValueError that names the line of what is wrong."""
        found, digest, seen = PastSummary(), hashlib.blake2b(digest_size=8), set[str]()
        for event in self._decisions(found, digest):
            if event.stored.event.event_id in seen:
                raise ValueError(f"{self.path}: the rows of event {event.stored.event.event_id!r} are not together")
            seen.add(event.stored.event.event_id)
            found.decisions += 1
            if found.decisions % CHUNK == 0:
                progress(found.decisions)
        self.digest = digest.hexdigest()
        return found

    def chunks(self, progress: Callable[[int], object]) -> Iterator[list[Entry]]:
        """The decisions as the log takes them, after `check`."""
        chunk: list[Entry] = []
        done = 0
        for entry in self._decisions(PastSummary(), None):
            chunk.append(entry)
            if len(chunk) == CHUNK:
                yield chunk
                done += len(chunk)
                progress(done)
                chunk = []
        if chunk:
            yield chunk

    def _decisions(self, found: PastSummary, digest: Any) -> Iterator[Entry]:
        position = 0
        for number, (_, group) in enumerate(groupby(enumerate(read_table(self.path, self.columns.names())), self._key)):
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
        rewards = np.array([slot["reward"] for slot in slots])
        there = ~np.isnan(rewards)
        settings = {"imported": True, "positions": [slot["position"] for slot in slots]}
        event = Event(
            name,
            0,
            arms,
            np.array([slot["propensity"] for slot in slots]),
            np.zeros(len(arms), np.float32),
            np.zeros(len(arms), np.bool_),
            np.full(len(arms), -1, np.int32),
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

    def _slot(self, row: TableRow, found: PastSummary) -> dict[str, Any] | None:
        c, values, limits = self.columns, row.values, self.bandit.config.rewards
        try:
            arm = self.bandit.snapshot.arms.find([_required(values, c.item)]).item()
        except UnknownArm as error:
            if not self.skip_unknown:
                raise ValueError(f"{row.where}: {error}; --skip-unknown leaves such rows out") from None
            found.skipped += 1
            return None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{row.where}: {error}") from None
        reward = _number(row, c.reward, limits.low, limits.high)
        propensity = _number(row, c.propensity, 0.0, 1.0)
        position = _number(row, c.position, 1, 1e6)
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
            return check_float("time", float(given), -1e15, 1e15)
        except (ValueError, TypeError):
            pass
        try:
            found = given if isinstance(given, datetime) else datetime.fromisoformat(str(given).replace("Z", "+00:00"))
        except ValueError:
            raise ValueError(f"{row.where}: {given!r} is no time: seconds since 1970, or a date") from None
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()

    def _context(self, row: TableRow, found: PastSummary) -> Rows:
        c = self.columns
        given = None if c.context is None else row.values[c.context]
        try:
            if self.vectors is not None:
                at = float(_required(row.values, c.context or ""))
                if not (at.is_integer() and 0 <= at < len(self.vectors)):
                    raise ValueError(f"{c.context} is {at:g}; it must be a whole number in [0, {len(self.vectors)})")
                return self.bandit.row(np.asarray(self.vectors[int(at)], np.float32))
            if given is not None:
                given = json.loads(given) if isinstance(given, str) else given
                if not isinstance(given, Mapping):
                    return self.bandit.row(given)
            named = {name: value for name in c.features if (value := row.values[name]) is not None}
            named |= given or {}
            found.unknown_features += sum(
                name not in self.bandit.vocabulary.index for name in map(_feature, named.items())
            )
            return self.bandit.row({_feature(pair): _value(pair[1]) for pair in named.items()})
        except (ValueError, TypeError) as error:
            raise ValueError(f"{row.where}: {error}") from None


def _feature(pair: tuple[str, Any]) -> str:
    name, value = pair
    return name if _is_number(value) else f"{name}={value}"


def _value(value: Any) -> float:
    return float(value) if _is_number(value) else 1.0


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True


def _required(values: Mapping[str, Any], name: str) -> Any:
    if values[name] is None:
        raise ValueError(f"there is no {name!r}")
    return values[name]


def _number(row: TableRow, name: str | None, low: float, high: float) -> float | None:
    given = None if name is None else row.values[name]
    if given is None:
        return None
    try:
        return check_float(str(name), float(given), low, high)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{row.where}: {error}") from None


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
    try:
        vectors = None if contexts is None else np.load(contexts, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{contexts} is not a .npy file of numbers: {error}") from None
    reader = PastReader(bandit, path, columns, vectors, skip_unknown)
    found = reader.check(progress)
    if found.decisions == 0:
        raise ValueError(f"{path} shows nothing: there are no rows" + (" of known items" if found.skipped else ""))
    position = found.decisions + found.rewards
    counts = Counts(position, found.decisions, found.slots, found.rewards, found.observed)
    restored = bandit.log.restore(LogSummary(counts, (), bandit.log.owner()), reader.chunks(progress))
    bandit.folder.note("past log imported", file=path.name, decisions=restored.decisions, rewards=restored.rewards)
    return found, restored
