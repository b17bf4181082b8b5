"""What a run has shown and collected so far, and its curve. Knows neither policy nor model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from treetop.arrays import Bools, Float32s, Floats, Ints, Rows
from treetop.records import Feedback

CURVE_POINTS = 200


@dataclass(frozen=True, eq=False)
class History:
    """What was shown in the first `done` rounds and what came of it: all that is needed to go on from there.

    `rewards` are those of all slots; `observed` says which of them the learner has seen.

    >>> history = History.blank(horizon=3, k=2)
    >>> history.arms.shape, history.collected()
    ((3, 2), array([0., 0., 0.]))
    """

    arms: Ints
    nodes: Ints
    rewards: Float32s
    observed: Bools
    explored: Bools
    done: int = 0
    seconds: float = 0.0

    @classmethod
    def blank(cls, horizon: int, k: int) -> History:
        """Nothing shown yet, with room for all rounds."""
        shape = (horizon, k)
        nothing, unobserved = np.full(shape, -1, np.int32), np.zeros(shape, np.bool_)
        return cls(nothing, nothing.copy(), np.full(shape, np.nan, np.float32), unobserved, unobserved.copy())

    def head(self, n: int) -> History:
        """The first n rounds alone, sharing memory."""
        return History(
            self.arms[:n], self.nodes[:n], self.rewards[:n], self.observed[:n], self.explored[:n], n, self.seconds
        )

    def extended(self, horizon: int, k: int, refits: list[int]) -> History:
        """A history with room for `horizon` rounds that begins with these; it must end where an epoch ends."""
        if self.done not in refits or self.arms.shape != (self.done, k):
            raise ValueError(
                f"cannot go on after {self.done} rounds with arms of shape {self.arms.shape}: epochs end after "
                f"{refits} rounds, of {k} slots each"
            )
        longer = History.blank(horizon, k)
        for name in ("arms", "nodes", "rewards", "observed", "explored"):
            getattr(longer, name)[: self.done] = getattr(self, name)
        return replace(longer, done=self.done)

    def feedback(
        self, contexts: Rows, n: int, reward_range: tuple[float, float] | None, appeared: Ints | None = None
    ) -> Feedback:
        """The first n rounds as the learner knows them: NaN where a slot was not observed."""
        known = np.where(self.observed[:n], self.rewards[:n], np.float32(np.nan))
        return Feedback(contexts.head(n), self.arms[:n], self.nodes[:n], known, reward_range, appeared)

    def collected(self) -> Floats:
        """The reward of every round: that of all slots, observed or not."""
        return np.asarray(np.nansum(self.rewards, axis=1, dtype=np.float64))

    def checksum(self) -> str:
        """sha256 of what was shown and what it brought."""
        digest = hashlib.sha256()
        for array in (self.arms, self.nodes, self.rewards):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def curve(values: Floats, refits: list[int]) -> list[tuple[int, float]]:
    """A number a round at evenly spaced rounds, at every refit and at the end.

    >>> curve(np.array([1.0, 0.5, 0.25]), refits=[2])
    [(1, 1.0), (2, 0.5), (3, 0.25)]
    """
    n = len(values)
    at = np.unique([*np.linspace(1, n, min(n, CURVE_POINTS)).astype(int), *refits, n])
    return [(int(t), round(float(v), 6)) for t, v in zip(at, values[at - 1], strict=True)]
