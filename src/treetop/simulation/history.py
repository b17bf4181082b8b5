"""What a run has shown and collected so far, and its curve. Knows neither policy nor model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Float32s, Floats, Ints, Rows
from treetop.records import Feedback

CURVE_POINTS = 200
ARRAYS = ("arms", "nodes", "propensities", "rewards", "observed", "explored", "greedy_rewards", "components")


@dataclass(frozen=True, eq=False)
class History:
    """What was shown in the first `done` rounds and what came of it: all that is needed to go on from there.

    `rewards` are those of all slots; `observed` says which of them the learner has seen. `greedy_rewards` are what the
    greedy slate of the same model would have brought, round by round. `components` (horizon, k, C) are the terms of the
    scores, NaN where the deciding model gave none; None as long as no model has given any.

    >>> history = History.blank(horizon=3, k=2)
    >>> history.arms.shape, history.collected(), history.exploration_cost()
    ((3, 2), array([0., 0., 0.]), 0.0)
    """

    arms: Ints
    nodes: Ints
    propensities: Float32s
    rewards: Float32s
    observed: Bools
    explored: Bools
    greedy_rewards: Floats
    done: int = 0
    seconds: float = 0.0
    components: Float32s | None = None

    @classmethod
    def blank(cls, horizon: int, k: int) -> History:
        """Nothing shown yet, with room for all rounds."""
        shape = (horizon, k)
        nothing, unobserved = np.full(shape, -1, np.int32), np.zeros(shape, np.bool_)
        unknown = np.full(shape, np.nan, np.float32)
        flags = unobserved, unobserved.copy()
        return cls(nothing, nothing.copy(), unknown, unknown.copy(), *flags, np.zeros(horizon))

    def head(self, n: int) -> History:
        """The first n rounds alone, sharing memory."""
        return History(**{name: array[:n] for name, array in self.arrays().items()}, done=n, seconds=self.seconds)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is kept of every round, by name."""
        return {name: array for name in ARRAYS if (array := getattr(self, name)) is not None}

    def extended(self, horizon: int, k: int, refits: list[int]) -> History:
        """A history with room for `horizon` rounds that begins with these; it must end where an epoch ends."""
        if self.done not in refits or self.arms.shape != (self.done, k):
            raise ValueError(
                f"cannot go on after {self.done} rounds with arms of shape {self.arms.shape}: epochs end after "
                f"{refits} rounds, of {k} slots each"
            )
        longer = History.blank(horizon, k)
        if self.components is not None:
            longer = longer.with_components(0, self.components)
        for name, array in self.arrays().items():
            getattr(longer, name)[: self.done] = array
        return replace(longer, done=self.done)

    def with_components(self, first: int, given: Float32s) -> History:
        """The same with the components (n, k, C) of the rounds from `first` on, sharing memory; itself if C is 0.

        >>> history = History.blank(horizon=3, k=1).with_components(2, np.full((1, 1, 2), 0.5, np.float32))
        >>> history.components[:, 0].tolist()
        [[nan, nan], [nan, nan], [0.5, 0.5]]
        """
        count = given.shape[2]
        if count == 0:
            return self
        kept = self.components
        if kept is None:
            kept = np.full((*self.arms.shape, count), np.nan, np.float32)
        if kept.shape[2] != count:
            raise ValueError(f"round {first} was decided with {count} components, those before with {kept.shape[2]}")
        kept[first : first + len(given)] = given
        return replace(self, components=kept)

    def feedback(
        self, contexts: Rows, n: int, reward_range: tuple[float, float] | None, appeared: Ints | None = None
    ) -> Feedback:
        """The first n rounds as the learner knows them: NaN where a slot was not observed."""
        known = np.where(self.observed[:n], self.rewards[:n], np.float32(np.nan))
        components = None if self.components is None else self.components[:n]
        slots = self.arms[:n], self.nodes[:n], known
        more = {"components": components, "propensities": self.propensities[:n]}
        return Feedback(contexts.head(n), *slots, reward_range, appeared, **more)

    def collected(self) -> Floats:
        """The reward of every round: that of all slots, observed or not."""
        return reward_sums(self.rewards)

    def exploration_cost(self) -> float:
        """What the greedy slates would have brought more than those that were shown, a round."""
        return float((self.greedy_rewards - self.collected()).mean())

    def finds(self) -> tuple[int, float]:
        """Arms whose first reward came from an explored slot, so that nobody would have shown them there, and what
        they have earned in later rounds.

        >>> history = History.blank(horizon=3, k=1)
        >>> history.arms[:], history.rewards[:], history.explored[:] = [[7], [7], [8]], 1.0, [[True], [False], [False]]
        >>> history.finds()  # arm 7, in the second round
        (1, 1.0)
        """
        t, slot = np.nonzero(np.nan_to_num(self.rewards) > 0)  # round by round
        arm, reward = self.arms[t, slot], self.rewards[t, slot].astype(np.float64)
        _, first, place = np.unique(arm, return_index=True, return_inverse=True)
        found = self.explored[t[first], slot[first]]
        later = found[place] & (t > t[first][place])
        return int(found.sum()), float(reward[later].sum())

    def checksum(self) -> str:
        """sha256 of what was shown and what it brought."""
        digest = hashlib.sha256()
        for array in (self.arms, self.nodes, self.rewards):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def reward_sums(rewards: Float32s) -> Floats:
    """What every round brought: (n, k) rewards to n sums, NaN where there is no arm.

    >>> reward_sums(np.array([[1.0, 0.5], [1.0, np.nan]], np.float32))
    array([1.5, 1. ])
    """
    return np.asarray(np.nansum(rewards, axis=1, dtype=np.float64))


def curve(values: Floats, refits: list[int]) -> list[tuple[int, float]]:
    """A number a round at evenly spaced rounds, at every refit and at the end.

    >>> curve(np.array([1.0, 0.5, 0.25]), refits=[2])
    [(1, 1.0), (2, 0.5), (3, 0.25)]
    """
    n = len(values)
    at = np.unique([*np.linspace(1, n, min(n, CURVE_POINTS)).astype(int), *refits, n])
    return [(int(t), round(float(v), 6)) for t, v in zip(at, values[at - 1], strict=True)]
