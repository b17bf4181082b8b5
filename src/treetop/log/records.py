"""What a log holds and answers: decisions, rewards, marks, samples. Knows nothing of files, servers or threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Floats, Ints, Longs, Rows, Singles, real
from treetop.records import Feedback

REQUEST = 16  # bytes of a request's digest
ARRAYS = [
    ("index", np.dtype(np.int32)), ("value", np.dtype(np.float32)), ("arms", np.dtype(np.int32)),
    ("nodes", np.dtype(np.int32)), ("propensities", np.dtype(np.float64)), ("scores", np.dtype(np.float32)),
    ("explored", np.dtype(np.bool_)),
]  # fmt: skip
ID_BYTES = 512  # an event id in UTF-8 is at most this long


@dataclass(frozen=True, eq=False)
class Event:
    """One decision as it is logged, in dense indices of the catalogue.

    `request` is a digest of what was asked: the same id with another request is a conflict. Node numbers belong to
    `tree`; `model` is the saved model that decided; `policy` is JSON; `eligible` is the fingerprint of the eligible
    set, empty for all arms.
    """

    event_id: str
    time: float
    request: bytes
    index: Ints
    value: Singles
    arms: Ints
    nodes: Ints
    propensities: Floats
    scores: Singles
    explored: Bools
    epoch: int
    model: str
    tree: str
    policy: str
    eligible: str = ""

    def __len__(self) -> int:
        return len(self.arms)


@dataclass(frozen=True)
class Reward:
    """What came of one arm of an event: a value in [0, 1], and when it was heard of."""

    event_id: str
    arm: int
    value: float
    time: float


@dataclass(frozen=True, eq=False)
class Stored:
    """A logged decision with what is known of its slots: NaN where no reward has come yet."""

    event: Event
    rewards: Floats
    times: Floats
    position: int


class Status(Enum):
    STORED = "stored"
    SAME = "same"  # there already, with this value
    CONFLICT = "conflict"  # there already, with another value
    UNKNOWN = "unknown"  # no such event
    NOT_SHOWN = "not_shown"  # the event did not show this arm
    WITHHELD = "withheld"  # nothing wrong with it, but with another reward of the same event in the same call


@dataclass(frozen=True)
class Outcome:
    """What became of one reward; `stored` is the value that the log holds for its slot, if it holds one."""

    status: Status
    stored: float | None = None

    @property
    def ok(self) -> bool:
        return self.status in (Status.STORED, Status.SAME)


@dataclass(frozen=True)
class Mark:
    """A boundary in the log: all decisions and rewards up to `position`, and none after, for ever."""

    name: str
    position: int
    time: float


@dataclass(frozen=True)
class Counts:
    """How much was ever logged, and how much of it retention took away again (`forgotten` decisions).

    `observed` decisions have a reward; `pending` slots of the decisions still there have none; `late` rewards came
    after a mark that their decision was before. `position` is that of the newest entry.
    """

    position: int = 0
    decisions: int = 0
    slots: int = 0
    rewards: int = 0
    observed: int = 0
    pending: int = 0
    late: int = 0
    forgotten: int = 0


@dataclass(frozen=True)
class Snapshot:
    """What a whole log is at one moment, besides its entries."""

    counts: Counts
    marks: tuple[Mark, ...]


@dataclass(frozen=True, eq=False)
class Entry:
    """One decision on its way from log to log: with the positions of its rewards (0: none), and its eligible set."""

    stored: Stored
    reward_positions: Longs
    arms: Ints | None = None


@dataclass(frozen=True)
class Restored:
    """What an import wrote, and how many decisions were there already."""

    decisions: int
    rewards: int
    known: int


@dataclass(frozen=True, eq=False)
class Samples:
    """Some decisions, in the order in which they were committed, with the rewards known at a mark.

    Contexts are compressed sparse rows; slots are (n, k) arrays, padded with arm -1; a reward is NaN where none was
    known. `new` is False for a decision that an earlier reading has had, and that comes again with newer rewards.
    """

    positions: Longs
    times: Floats
    epochs: Longs
    start: Longs
    index: Ints
    value: Singles
    arms: Ints
    nodes: Ints
    propensities: Floats
    scores: Singles
    explored: Bools
    rewards: Floats
    new: Bools

    def __len__(self) -> int:
        return len(self.positions)

    def feedback(self, columns: int) -> Feedback:
        """The same for `refit`, with the number of features that the log does not know."""
        return Feedback(Rows(self.start, self.index, self.value, columns), self.arms, self.nodes, self.rewards)


def gather(chunks: Iterable[Samples], columns: int, since: Longs | None = None) -> Feedback:
    """All chunks as one Feedback, each copied once. `since` has the epoch of the first model that had each arm.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", vectors=np.eye(4)) as tea:
    ...     for visit in ("visit-1", "visit-2"):
    ...         tea.reward(visit, {tea.decide(np.ones(4), visit, k=2).arms[0]: 1.0})
    ...     gather(tea.log.samples(tea.log.seal("today")), columns=4).rewards
    array([[ 1., nan],
           [ 1., nan]], dtype=float32)
    """
    parts = list(chunks)
    highest = max((int(p.index.max()) for p in parts if len(p.index)), default=-1)
    if highest >= columns:
        raise ValueError(f"the log has feature {highest}; there are {columns} features")
    k = max((p.arms.shape[1] for p in parts), default=0)
    lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(p.start) for p in parts)])
    index = np.concatenate([np.zeros(0, np.int32), *(p.index for p in parts)])
    value = np.concatenate([np.zeros(0, np.float32), *(p.value for p in parts)])
    arms, nodes = (_stacked([getattr(p, name) for p in parts], k, -1, np.int32) for name in ("arms", "nodes"))
    rewards = _stacked([p.rewards for p in parts], k, np.nan, np.float64)
    appeared = None
    if since is not None and since.any():
        epochs = np.concatenate([np.zeros(0, np.int64), *(p.epochs for p in parts)])
        newest = np.maximum.accumulate(epochs)  # an older model may be current again
        appeared = np.where(since > 0, np.searchsorted(newest, since), 0)
    return Feedback(Rows(np.cumsum(lengths), index, value, columns), arms, nodes, rewards, appeared=appeared)


def _stacked(parts: list[NDArray[np.generic]], k: int, empty: float, kind: type) -> NDArray[np.generic]:
    out: NDArray[np.generic] = np.full((sum(map(len, parts)), k), empty, kind)
    row = 0
    for part in parts:
        out[row : row + len(part), : part.shape[1]] = part
        row += len(part)
    return out


def check_event(event: Event) -> None:
    """Refuses what the log could not give back as it is: lengths, types and names. Values are the decider's own."""
    check_id(event.event_id)
    if len(event.request) != REQUEST:
        raise ValueError(f"request of event {event.event_id!r} has {len(event.request)} bytes; {REQUEST} are needed")
    for name, kind in ARRAYS:
        if getattr(event, name).dtype != kind:
            raise TypeError(f"{name} of event {event.event_id!r} hold {getattr(event, name).dtype}; {kind} is needed")
    if len(event.index) != len(event.value):
        raise ValueError(f"event {event.event_id!r} has {len(event.index)} indices and {len(event.value)} values")
    k = len(event.arms)
    for name in ("nodes", "propensities", "scores", "explored"):
        if len(getattr(event, name)) != k:
            raise ValueError(f"event {event.event_id!r} has {k} arms and {len(getattr(event, name))} {name}")
    for name in ("model", "tree", "policy", "eligible"):
        if "\0" in getattr(event, name):
            raise ValueError(f"{name} of event {event.event_id!r} holds a zero character")
    real("time", event.time, -1e15, 1e15)


def check_id(event_id: str) -> None:
    """An event id is text of 1 to 512 bytes, without a zero character."""
    if not isinstance(event_id, str):
        raise TypeError(f"event id must be text, not {event_id!r}")
    try:
        size = len(event_id.encode())
    except UnicodeEncodeError:
        raise ValueError(f"event id {event_id!r} is not valid text") from None
    if not 1 <= size <= ID_BYTES or "\0" in event_id:
        raise ValueError(f"event id {event_id[:40]!r} has {size} bytes; 1 to {ID_BYTES} are needed, none of them zero")
