"""Logged rounds as the learner takes them: columns, joined and scaled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints, Rows
from treetop.log.records import PAST_COMPONENTS
from treetop.records import Feedback


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
    more = _joined_components(parts, k), _positions(parts, arms, positions), _propensities(parts, k)
    return Feedback(contexts, arms, nodes, rewards, reward_range, appeared, *more)


def _propensities(parts: Sequence[LoggedRounds], k: int) -> NDArray[np.generic]:
    """(rounds, slots): those of decisions of a model; NaN where another system decided."""
    own = [np.where((p.component_counts != PAST_COMPONENTS)[:, None], p.propensities, np.nan) for p in parts]
    return _stacked(own, k, np.nan, np.float32)


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
