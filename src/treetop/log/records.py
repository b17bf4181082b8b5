"""What a log holds and returns: decisions, rewards, marks, samples. Knows nothing of files, servers or threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints, Rows, check_float, check_int
from treetop.log.keys import NO_KEYS, Keys, check_keys
from treetop.records import Decision, Feedback

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


@dataclass(frozen=True, eq=False)
class LoggedRounds:
    """A chunk of n decisions, in the order of their commits, with the rewards known at a mark.

    Contexts are compressed sparse rows (start, index, value). Slots are (n, k) arrays, padded with arm -1; a reward is
    NaN where none was known. `new` is False for a decision that an earlier reading returned and that appears again
    because it got rewards since. `components` are (n, k, C), C the most that one of these decisions has, and
    `component_counts` how many each has; the others are NaN. `replaced` are the rewards that an earlier reading
    returned and that these correct, NaN elsewhere; empty if there are none.
    """

    positions: Int64s
    times: Floats
    epochs: Int64s
    start: Int64s
    index: Ints
    value: Float32s
    arms: Ints
    nodes: Ints
    propensities: Floats
    scores: Float32s
    explored: Bools
    rewards: Floats
    new: Bools
    components: Float32s
    component_counts: Int64s
    replaced: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __len__(self) -> int:
        return len(self.positions)

    def feedback(self, columns: int) -> Feedback:
        """As Feedback for `refit`; the log does not know the number of features, `columns`."""
        return gather([self], columns)


def gather(
    chunks: Iterable[LoggedRounds],
    columns: int,
    since: Int64s | None = None,
    limits: tuple[float, float] = (0.0, 1.0),
    positions: bool = False,
) -> Feedback:
    """All chunks as one Feedback, each copied once. `since` is the epoch of the first model that knew each arm; rewards
    are scaled from `limits` to [0, 1], or to [-1, 1] and 0 to 0 where they may be negative (`learned_rewards`).

    A decision of another system has its positions as its one component; with `positions` the slots of the others are
    positions, too. Components are those of the newest decision of a model; decisions with another number of them count
    as without.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
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
    told = np.asarray(_stacked([p.rewards for p in parts], k, np.nan, np.float64), np.float64)
    rewards, reward_range = learned_rewards(told, limits)
    appeared = None
    if since is not None and since.any():
        epochs = np.concatenate([np.zeros(0, np.int64), *(p.epochs for p in parts)])
        newest = np.maximum.accumulate(epochs)  # an older model may be current again
        appeared = np.where(since > 0, np.searchsorted(newest, since), 0)
    contexts = Rows(np.cumsum(lengths), index, value, columns)
    components, places = _joined_components(parts, k), _positions(parts, arms, positions)
    return Feedback(contexts, arms, nodes, rewards, reward_range, appeared, components, places)


def _positions(parts: Sequence[LoggedRounds], arms: NDArray[np.generic], slots: bool) -> Ints | None:
    """(rounds, slots): the position of each slot from 1 on, 0 where nobody knows it; None if nothing says position."""
    counts = np.concatenate([np.zeros(0, np.int64), *(p.component_counts for p in parts)])
    if not slots and not (counts == PAST_COMPONENTS).any():
        return None
    found = np.zeros(arms.shape, np.int32)
    row = 0
    for p in parts:
        past = np.flatnonzero(p.component_counts == PAST_COMPONENTS)
        if len(past):
            given = p.components[past, :, 0]
            found[row + past, : given.shape[1]] = np.where(given >= 1, given, 0)  # NaN and 0 are unknown
        row += len(p)
    if slots:
        own = counts != PAST_COMPONENTS
        found[own] = np.arange(1, arms.shape[1] + 1)
    found[np.asarray(arms) == -1] = 0
    return found if found.any() else None


def learned_rewards(rewards: Floats, limits: tuple[float, float]) -> tuple[Floats, tuple[float, float]]:
    """Rewards within limits, as a learner takes them, and their range: what brings nothing is 0 and no find.

    >>> learned_rewards(np.array([-2.0, 0.0, 8.0, np.nan]), (-2.0, 8.0))
    (array([-0.25,  0.  ,  1.  ,   nan]), (-1.0, 1.0))
    """
    low, high = limits
    scaled = scaled_rewards(rewards, limits)
    if not low < 0 < high:
        return scaled, (0.0, 1.0)
    return np.clip((scaled + low / (high - low)) / learned_unit(limits), -1.0, 1.0), (-1.0, 1.0)


def learned_unit(limits: tuple[float, float]) -> float:
    """How much of the range of rewards is 1 for a learner.

    >>> learned_unit((-2.0, 8.0)), learned_unit((0.0, 8.0))
    (0.8, 1.0)
    """
    low, high = limits
    return max(-low, high) / (high - low) if low < 0 < high else 1.0


def score_line(limits: tuple[float, float]) -> tuple[float, float]:
    """What scores of 0 and 1 more are, as [low, high] is scaled to [0, 1]; none lies beyond.

    >>> score_line((-2.0, 8.0)), score_line((-8.0, 2.0)), score_line((-5.0, 0.0))
    ((0.2, 0.8), (0.8, 0.2), (0.0, 1.0))
    """
    low, high = limits
    return (-low / (high - low), high / (high - low)) if low < 0 < high else (0.0, 1.0)


def scaled_rewards(rewards: Floats, limits: tuple[float, float]) -> Floats:
    """Rewards within limits, as they are within [0, 1]; NaN stays. Raises ValueError for one beyond them.

    >>> scaled_rewards(np.array([-2.0, 8.0, np.nan]), (-2.0, 8.0))
    array([ 0.,  1., nan])
    """
    low, high = limits
    if (low, high) == (0.0, 1.0):
        return rewards
    if (beyond := (rewards < low) | (rewards > high)).any():
        raise ValueError(f"the log has a reward of {rewards[beyond][0]:g}; the settings say [{low:g}, {high:g}]")
    scaled: Floats = (rewards - low) / (high - low)
    return scaled


def _joined_components(parts: Sequence[LoggedRounds], k: int) -> Float32s | None:
    most = max((p.components.shape[2] for p in parts), default=0)
    if most == 0:
        return None
    joined = np.full((sum(map(len, parts)), k, most), np.nan, np.float32)
    row = 0
    for p in parts:
        joined[row : row + len(p), : p.components.shape[1], : p.components.shape[2]] = p.components
        row += len(p)
    counts = np.concatenate([p.component_counts for p in parts])
    if not (counts > PAST_COMPONENTS).any():
        return None
    newest = counts[counts > PAST_COMPONENTS][-1]
    joined[counts != newest] = np.nan
    return joined[:, :, :newest]


def _stacked(parts: list[NDArray[np.generic]], k: int, empty: float, kind: type) -> NDArray[np.generic]:
    out: NDArray[np.generic] = np.full((sum(map(len, parts)), k), empty, kind)
    row = 0
    for part in parts:
        out[row : row + len(part), : part.shape[1]] = part
        row += len(part)
    return out


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
