"""Streams that change: arms that appear half-way, arms that swap rewards, labels of half of the arms only."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints, Rows
from treetop.data.datasets import Stream
from treetop.simulation.worlds import World

SCENARIOS = ("stationary", "new-arms", "drift", "half-init")
NEW_SHARE, SWAPPED_SHARE, UNLABELLED_SHARE = 0.2, 0.2, 0.5  # of the arms


@dataclass(frozen=True, eq=False)
class Scenario:
    """What changes in a stream at round `change`.

    `late` arms may not be shown before it; from it on an arm brings the rewards of its `partner`. Arms that are
    `unlabelled` have no label in the initialisation set. Each of the three is None where it does not apply.
    """

    change: int
    late: Bools | None = None
    partner: Ints | None = None
    unlabelled: Bools | None = None

    @classmethod
    def of(cls, name: str, arms: int, horizon: int, seed: int) -> Scenario | None:
        """By name; None if nothing changes.

        - new-arms: a fifth of the arms has no label in the initialisation set and appears half-way
        - drift: a fifth of the arms swaps rewards in pairs half-way
        - half-init: half of the arms has no label in the initialisation set

        >>> scenario = Scenario.of("new-arms", arms=100, horizon=400, seed=0)
        >>> int(scenario.late.sum()), int(scenario.eligible(0).sum()), scenario.eligible(200)
        (20, 80, None)
        """
        if name not in SCENARIOS:
            raise ValueError(f"scenario is {name!r}; it must be one of {', '.join(SCENARIOS)}")
        half, shuffled = horizon // 2, np.random.default_rng([seed, 5]).permutation(arms)
        if name == "drift":
            partner = np.arange(arms, dtype=np.int32)
            pairs = shuffled[: int(SWAPPED_SHARE * arms) // 2 * 2].reshape(-1, 2)
            partner[pairs[:, 0]], partner[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
            return cls(half, partner=partner)
        share = {"new-arms": NEW_SHARE, "half-init": UNLABELLED_SHARE}.get(name, 0.0)
        unlabelled = np.isin(np.arange(arms), shuffled[: int(share * arms)])
        if name == "stationary":
            return None
        return cls(half, late=unlabelled if name == "new-arms" else None, unlabelled=unlabelled)

    def eligible(self, first: int) -> Bools | None:
        """Which arms may be shown in rounds from `first` on; None for all."""
        return None if self.late is None or first >= self.change else ~self.late

    def appeared(self, rounds: int) -> Ints | None:
        """Before how many of the first `rounds` each arm could not be seen; None if all could.

        >>> Scenario.of("new-arms", arms=5, horizon=8, seed=0).appeared(6).max()
        np.int32(4)
        """
        return None if self.late is None else np.where(self.late, min(rounds, self.change), 0).astype(np.int32)

    def initial(self, stream: Stream) -> Stream:
        """The stream with the initialisation set that this scenario allows.

        >>> from treetop.data.datasets import load
        >>> stream = Stream.draw(load("synthetic:arms=9,rows=50,init=40"), init=40, horizon=5, seed=0)
        >>> half = Scenario.of("half-init", arms=9, horizon=5, seed=0)
        >>> bool(half.unlabelled[half.initial(stream).Y_init.index].any())
        False
        """
        if self.unlabelled is None:
            return stream
        Y = stream.Y_init
        kept = ~self.unlabelled[Y.index]
        counts = np.concatenate([[0], np.cumsum(kept)])
        return replace(stream, Y_init=Rows(counts[Y.start].astype(np.int64), Y.index[kept], Y.value[kept], Y.columns))


@dataclass(frozen=True, eq=False)
class SwappedRewards:
    """The rewards of another world, in which some arms swap theirs from the round of the scenario's change on."""

    world: World
    scenario: Scenario

    @property
    def reward_range(self) -> tuple[float, float] | None:
        return self.world.reward_range

    def rewards(self, rows: Int64s, arms: Ints, first: int) -> Float32s:
        partner, cut = self.scenario.partner, self.scenario.change - first
        if partner is not None and cut < len(arms):
            arms = arms.copy()
            later = arms[max(cut, 0) :]
            later[later >= 0] = partner[later[later >= 0]]
        return self.world.rewards(rows, arms, first)

    def regret(self, rows: Int64s, arms: Ints) -> Floats | None:
        """None: the true means of before the change are not those of after it."""
        return None
