"""How often new arms have been shown since the last refit, and what of their budget a decision may spend now.

Counted in the log, so that all processes count alike. What a decision was made with stands in its settings: the log
alone replays it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treetop.arrays import Floats, Int64s, Ints
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.config import PolicyConfig
from treetop.log.base import Log
from treetop.model.model import Model
from treetop.policy.budgeted import RUNTIME_PARAMETERS, Budgeted
from treetop.policy.strategies import make_strategy
from treetop.policy.trial_counts import packed_counts

EVERY = 16  # decisions until the log is looked at again
STEP = 2000  # decisions read at once: the rest waits for the next look
LEAST = 16  # trials that are worth other settings,
PART = 1 / 8  # and as a part of the arms that are counted: settings are as long as these are many
MOST = 4.0  # times the budget: what decisions may spend on average, and all of them by the scores themselves
SOON = 0.05  # what was not spent is, in as many more decisions as this part of those so far
OTHER = 2.0  # times more or less that a decision may spend: worth other settings


@dataclass(frozen=True)
class LiveTrials:
    """Counts of trials by now, as text, and how many times `new_arms_budget` a decision that leads to new arms may
    spend, as others lead to none.

    >>> now = LiveTrials(packed_counts(np.array([3]), np.array([1])), 2.0)
    >>> now.applied(PolicyConfig()).parameters["new_arms_factor"]
    2.0
    """

    counts: str = ""
    factor: float = 1.0

    def applied(self, config: PolicyConfig) -> PolicyConfig:
        """Settings with these; as they are if they have no budget for new arms."""
        strategy = make_strategy(config.strategy, config.parameters)
        if self == LiveTrials() or not isinstance(strategy, Budgeted) or strategy.new_arms_budget == 0:
            return config
        now = dict(zip(RUNTIME_PARAMETERS, (round(self.factor, 6), self.counts), strict=True))
        return replace(config, parameters={**config.parameters, **now})


class TrialCounter:
    """Reads the tail of a log. Not thread-safe, but for `due`."""

    def __init__(self) -> None:
        self._decisions = 0
        self._model: Model | None = None
        self._since = -1.0  # when the counts of the model end, which these continue
        self._position = 0  # in the log
        self._first = 0  # arms from here on may be new
        self._base: Int64s = np.zeros(0, np.int64)  # their trials by the model, -1: it is not new
        self._counts: Int64s = np.zeros(0, np.int64)  # since
        self._unsaid = 0  # trials that are in no settings yet
        self._said = 0  # arms that are
        self._share = 1.0  # of the budget, as last said
        self._missing = False  # whether any arm misses trials
        self._before: Floats = np.zeros(5)  # expected and spent with earlier models since then, see `_sums`

    def due(self) -> bool:
        """To be asked at every decision: whether it is time for `update`.

        >>> counter = TrialCounter()
        >>> sum(counter.due() for _ in range(20))
        5
        """
        self._decisions += 1
        return self._decisions >= EVERY

    def update(self, log: Log, model: Model, strategy: Budgeted, since: float) -> LiveTrials | None:
        """What decisions are to be made with from now on, None if that has hardly changed. `since` is when the counts
        of the model end; `strategy` is that of the settings."""
        trials, budget = strategy.new_arm_trials, strategy.new_arms_budget
        if model is not self._model:
            self._begin(log, model, since)
        self._decisions = 0
        missing = (self._base >= 0) & (self._base < trials)
        self._missing = bool(missing.any())
        if not self._missing:
            return None
        positions, times, arms = log.impressions(self._position, STEP)
        if len(positions):
            self._position, arms = int(positions.max()), arms[times >= self._since]
            mine = arms[(arms >= self._first) & (arms < self._first + len(self._base))] - self._first
            self._unsaid += int((missing & (self._base + self._counts < trials))[mine].sum())
            self._counts += np.bincount(mine, minlength=len(self._counts))
        factor = self._factor(budget)
        as_before = self._share / OTHER <= factor <= self._share * OTHER and self._share > 0
        if self._unsaid < max(LEAST, PART * self._said) and as_before:
            return None
        there = np.flatnonzero(missing & (self._counts > 0))
        now = np.minimum(self._base[there] + self._counts[there], trials)
        self._unsaid, self._said = 0, len(there)
        text = packed_counts((self._first + there).astype(np.int32), now.astype(np.int32))
        self._share = factor
        return LiveTrials(text, self._share)

    def _begin(self, log: Log, model: Model, since: float) -> None:
        """Goes on with another model."""
        self._before = self._sums() if self._missing else np.zeros(5)
        shown = None if model.pooled is None else model.pooled.new_trials
        new = np.zeros(0, np.int64) if shown is None else np.flatnonzero(shown >= 0)
        first = int(new[0]) if len(new) else model.n_arms
        if since != self._since or first != self._first:
            self._position, self._counts = log.position_before(since) if len(new) else 0, np.zeros(0, np.int64)
        self._model, self._since, self._first = model, since, first
        self._base = np.zeros(0, np.int64) if shown is None else shown[first:].astype(np.int64)
        kept = self._counts[: len(self._base)]
        self._counts = np.concatenate([kept, np.zeros(len(self._base) - len(kept), np.int64)])
        self._unsaid, self._said, self._share = int(self._counts.sum()), 0, 1.0

    def _sums(self) -> Floats:
        """Since an arm misses trials: what decisions were expected to bring, those that lead to new arms, what was
        charged for these, what that cost by the scores, and the second times the part that is spent, as dear draws
        spend less."""
        return self._before if self._model is None else self._before + self._model.engine.new_arm_spending()

    def _factor(self, budget: float) -> float:
        """The budget is a share of all expected rewards; only the decisions that lead to new arms spend it, and what
        they have left of it they spend later. Of the part of their rewards that they spend at a factor of 1 that is
        (B + (B - spent) / SOON) / part, B = budget * expected: where all draws are dear, none is.
        """
        expected, leading, charged, cost, part = self._sums()
        spent = max(charged, cost / MOST)
        if part <= 0 or budget <= 0:
            return 1.0
        most = MOST * leading / part
        return float(np.clip((expected + (expected - spent / budget) / SOON) / part, 0.0, most))


def trials_until(log: Log, model: Model, arms: ArmIndex, since: float, until: float) -> Ints | None:
    """How often each arm was shown that is new in a model: as often as it says, and in the log between two times.

    A model that was never taught says nothing: then arms that were added are new, and all of the log counts. None if
    none is new. The others have -1. A learner counts rewards, and most slots may never get one.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint", "rose"]) as tea:
    ...     tea.add_arms(["jam"])
    ...     _ = [tea.decide({}, eligible=["jam"]) for _ in range(3)]
    ...     trials_until(tea.log, tea.snapshot.model, tea.snapshot.arms, 0.0, 1e12)
    array([-1, -1,  3], dtype=int32)
    """
    if model.pooled is not None:
        shown = model.pooled.new_trials
    elif arms.added:
        shown, since = np.where(np.arange(model.n_arms) < arms.added[0][0], -1, 0).astype(np.int32), -np.inf
    else:
        shown = None
    if shown is None:
        return None
    counts, position = np.zeros(len(shown), np.int64), log.position_before(since)
    while True:
        positions, times, seen = log.impressions(position, STEP)
        if not len(positions):
            return np.where(shown >= 0, shown + counts, -1).astype(np.int32)
        position = int(positions.max())
        mine = seen[(times >= since) & (times < until) & (seen >= 0) & (seen < len(shown))]
        counts += np.bincount(mine, minlength=len(counts))
