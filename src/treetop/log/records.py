"""What a log holds and returns: decisions, rewards, marks, samples. Knows nothing of files, servers or threads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from treetop.arrays import Float32s, Floats, Int64s, Ints, check_float, check_int
from treetop.log.keys import NO_KEYS, Keys, check_keys
from treetop.records import Decision

REQUEST_BYTES = 16  # length of a request's digest
DTYPES = {
    "index": np.dtype(np.int32),
    "value": np.dtype(np.float32),
    "arms": np.dtype(np.int32),
    "nodes": np.dtype(np.int32),
    "propensities": np.dtype(np.float64),
    "scores": np.dtype(np.float32),
    "explored": np.dtype(np.bool_),
    "components": np.dtype(np.float32),
}
LARGEST_REWARD = 1e9  # in size; a bandit's settings say what it takes
PAST_COMPONENTS = 1  # of a decision of another system: its position
ID_BYTES = 512  # longest event id, in UTF-8


@dataclass(frozen=True, eq=False, repr=False)
class Event(Decision):
    """A decision as it is logged: its slots in dense indices, and what it was decided from.

    `time` is in seconds since 1970. `request` is a digest of the request: the same event id with another request is a
    conflict. `index` and `value` are the context, as a sparse row. `model` is the name of the saved model that decided,
    `tree` the id of the tree that the nodes belong to, `policy` its settings as JSON. `eligible` is the name of the set
    of arms that the request listed, empty if it listed none; `removals` is how many arms had been removed. `keys` are
    what the request carried to find it by, should it have to be erased.
    """

    time: float
    request: bytes
    index: Ints
    value: Float32s
    model: str
    tree: str
    policy: str
    eligible: str = ""
    removals: int = 0
    keys: Keys = NO_KEYS


@dataclass(frozen=True)
class Reward:
    """The reward of one arm of an event, as it was told, and when it arrived; whether it may correct an earlier one."""

    event_id: str
    arm: int
    value: float
    time: float
    corrects: bool = False


@dataclass(frozen=True)
class ReplacedReward:
    """A reward that was told of a slot and corrected later; the log keeps both."""

    slot: int
    value: float
    time: float
    position: int


@dataclass(frozen=True, eq=False)
class StoredEvent:
    """A logged decision with the rewards of its slots and when they arrived: NaN where there is none yet.

    `replaced` are the rewards that were corrected, in the order in which they were told.
    """

    event: Event
    rewards: Floats
    times: Floats
    position: int
    replaced: tuple[ReplacedReward, ...] = ()


class Status(Enum):
    STORED = "stored"
    CORRECTED = "corrected"  # stored, and counts instead of the value before it
    SAME = "same"  # was stored before, with this value
    CONFLICT = "conflict"  # was stored before, with another value
    UNKNOWN = "unknown"  # no such event
    NOT_SHOWN = "not_shown"  # the event did not show this arm
    WITHHELD = "withheld"  # not stored because another reward of the event in the same call was refused


@dataclass(frozen=True)
class Outcome:
    """What happened to one reward; `stored` is the value in the log for its slot, if there is one."""

    status: Status
    stored: float | None = None

    @property
    def ok(self) -> bool:
        return self.status in (Status.STORED, Status.CORRECTED, Status.SAME)


@dataclass(frozen=True)
class Mark:
    """A boundary in the log: everything up to `position` lies before it, everything later after it, for ever."""

    name: str
    position: int
    time: float


@dataclass(frozen=True)
class Counts:
    """How much was ever logged; `forgotten` decisions of it, `forgotten_observed` with a reward, were deleted.

    Of the decisions that are left, `observed` have a reward; `pending` of their slots have none. `late` rewards arrived
    after a mark, for a decision before it. `position` is that of the newest entry.
    """

    position: int = 0
    decisions: int = 0
    slots: int = 0
    rewards: int = 0
    observed: int = 0
    pending: int = 0
    late: int = 0
    forgotten: int = 0
    forgotten_observed: int = 0

    @property
    def observed_ever(self) -> int:
        """Decisions that have or had a reward: never falls.

        >>> Counts(observed=7, forgotten_observed=3).observed_ever
        10
        """
        return self.observed + self.forgotten_observed


@dataclass(frozen=True, order=True)
class Stage:
    """A stage of a bandit's catalogue, which only grows: how many bytes of it counted, and a digest of these."""

    size: int
    digest: str


@dataclass(frozen=True)
class Owner:
    """Whose log it is: the bandit's id, and the stages of its catalogue that the log has seen, oldest first."""

    bandit: str
    lineage: tuple[Stage, ...]

    def __post_init__(self) -> None:
        sizes = [stage.size for stage in self.lineage]
        if not self.bandit or not self.bandit.isalnum() or not sizes or sizes != sorted({*sizes}):
            raise ValueError(f"{self.bandit!r} with catalogues of {sizes} bytes is no owner of a log")
        for stage in self.lineage:
            bytes.fromhex(stage.digest)

    @property
    def newest(self) -> Stage:
        return self.lineage[-1]


@dataclass(frozen=True)
class LogSummary:
    """The counts, marks and owner of a log at one moment: all of it but its entries."""

    counts: Counts
    marks: tuple[Mark, ...]
    owner: Owner | None = None


@dataclass(frozen=True, eq=False)
class Entry:
    """One decision for export and import, with the positions of its rewards (0: none) and its eligible set."""

    stored: StoredEvent
    reward_positions: Int64s
    arms: Ints | None = None


@dataclass(frozen=True)
class Restored:
    """How much an import wrote; `known` decisions were in the log before."""

    decisions: int
    rewards: int
    known: int


def check_event(event: Event) -> None:
    """Raises for an event that the log could not return as it is: wrong lengths, types or text.

    >>> from dataclasses import replace
    >>> two = {name: np.zeros(2, dtype) for name, dtype in DTYPES.items() if name != "components"}
    >>> event = Event("visit-1", 0, **two, time=0.0, request=bytes(16), model="000000", tree="", policy="{}")
    >>> check_event(event)
    >>> check_event(replace(event, nodes=np.zeros(1, np.int32)))
    Traceback (most recent call last):
    ValueError: event 'visit-1' has 2 arms and 1 nodes
    """
    check_id(event.event_id)
    if len(event.request) != REQUEST_BYTES:
        raise ValueError(
            f"request of event {event.event_id!r} has {len(event.request)} bytes; {REQUEST_BYTES} are needed"
        )
    for name, kind in DTYPES.items():
        if getattr(event, name).dtype != kind:
            raise TypeError(f"{name} of event {event.event_id!r} hold {getattr(event, name).dtype}; {kind} is needed")
    if len(event.index) != len(event.value):
        raise ValueError(f"event {event.event_id!r} has {len(event.index)} indices and {len(event.value)} values")
    k = len(event.arms)
    for name in ("nodes", "propensities", "scores", "explored", "components"):
        if len(getattr(event, name)) != k:
            raise ValueError(f"event {event.event_id!r} has {k} arms and {len(getattr(event, name))} {name}")
    if event.components.ndim != 2:
        shape = event.components.shape
        raise ValueError(f"components of event {event.event_id!r} have shape {shape}; ({k}, number of them) is needed")
    for name in ("model", "tree", "policy", "eligible"):
        if "\0" in getattr(event, name):
            raise ValueError(f"{name} of event {event.event_id!r} holds a zero character")
    check_float("time", event.time, -1e15, 1e15)
    check_int("removals", event.removals, 0)
    check_keys(event.keys)


def check_id(event_id: str) -> None:
    """Raises unless an event id is text of 1 to 512 bytes without a zero character.

    >>> check_id("")
    Traceback (most recent call last):
    ValueError: event id '' has 0 bytes; 1 to 512 are needed, none of them zero
    """
    if not isinstance(event_id, str):
        raise TypeError(f"event id must be text, not {event_id!r}")
    try:
        size = len(event_id.encode())
    except UnicodeEncodeError:
        raise ValueError(f"event id {event_id!r} is not valid text") from None
    if not 1 <= size <= ID_BYTES or "\0" in event_id:
        raise ValueError(f"event id {event_id[:40]!r} has {size} bytes; 1 to {ID_BYTES} are needed, none of them zero")
