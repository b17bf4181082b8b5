"""Whether a refit may serve: judged on rounds that taught neither it nor the model that serves. Publishes nothing.

The rounds since the model that serves was fitted are new to it. A refit that has learned from the older half of them is
judged on the newer half, in two ways. What would it have earned, by the weights of its slates or slots, against what
was served (`evaluation`)? And how well does it foresee the rewards of what was shown, by squared error? It is a clear
loser if the interval of the first lies below 0, or if its error is more than 5 % larger, by an interval too. Both
intervals bet, and each spends half of what may go wrong. Whatever cannot be told counts as not worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from treetop.arrays import Floats, Ints
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.candidate_chances import ANY_WEIGHT, as_recorded, judged_rounds
from treetop.bandit.config import Config, RewardConfig
from treetop.bandit.logged_batches import CHUNK, ArmSets, LoggedBatch, batches
from treetop.bandit.snapshot import tree_id
from treetop.evaluation.bets import Bets
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import CandidateResult, judge
from treetop.learning.saturation import slot_factors
from treetop.log.base import Log
from treetop.log.records import Mark
from treetop.log.rounds import learned_unit, score_line
from treetop.model.model import Model
from treetop.policy.probability import SlotChances, shared_chances

CONFIDENCE = 0.95
MARGIN = 0.05  # by how much larger an error may be, in relation to that of the model that serves
LEAST = 100  # rounds with rewards: fewer judge nothing


@dataclass(frozen=True)
class Judgement:
    """What the newest rounds say about a refit; `loses` is why it must not serve, empty if nothing speaks against it.

    `error` and `served_error` are mean squared errors of what scores foresee of rewards, for what was shown.

    >>> Judgement(rounds=0).loses
    ''
    """

    rounds: int
    loses: str = ""
    reward: CandidateResult | None = None
    error: float = float("nan")
    served_error: float = float("nan")


@dataclass(frozen=True)
class Stretch:
    """Rounds of a log behind one position and up to another."""

    after: int
    until: int


def newest_stretch(log: Log, fitted: float, mark: Mark) -> Stretch:
    """The newer half of the rounds that came after the refit of a time, up to a mark; empty if there are too few.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     for visit in range(4):
    ...         _ = tea.decide(np.ones(4))
    ...     newest_stretch(tea.log, 0.0, tea.log.seal("today"))
    Stretch(after=2, until=5)
    """
    marks = [found for found in log.summary().marks if found.time <= fitted]
    first = max((found.position for found in marks), default=0)
    new = log.positions_between(first + 1, mark.position)
    return Stretch(int(new[len(new) // 2 - 1]) if len(new) > 1 else mark.position, mark.position)


def judge_refit(
    log: Log,
    stretch: Stretch,
    models: tuple[Model, Model],
    arms: ArmIndex,
    sets: Callable[[str], Ints | None],
    config: Config,
    overdue: float,
) -> Judgement:
    """Judges the second of two models, which serves nowhere yet, against the first on a stretch of the log.

    Slots without a reward have the default one if their decision was made before `overdue`; rounds without any are left
    out. `sets` gives the arms of logged filters by name.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     for visit in range(9):
    ...         tea.reward(f"visit-{visit}", {tea.decide(np.ones(4), f"visit-{visit}", k=1).arms[0]: 1.0})
    ...     stretch, now = newest_stretch(tea.log, 0.0, tea.log.seal("today")), tea.snapshot
    ...     judge_refit(tea.log, stretch, (now.model, now.model), now.arms, tea.logged_sets(), tea.config, 0.0)
    Judgement(rounds=5, loses='', reward=None, error=nan, served_error=nan)
    """
    rewards = config.rewards
    reading = _Reading(models, arms, sets, rewards)
    for chunk in log.decided(stretch.until, CHUNK, stretch.after):
        for batch in batches(chunk, models[0].n_features, overdue, rewards.default_reward, rewards.limits):
            if batch.model:  # otherwise another system decided
                reading.add(batch)
    return reading.judgement()


class _Reading:
    """Adds up what batches say about two models."""

    def __init__(
        self, models: tuple[Model, Model], arms: ArmIndex, sets: Callable[[str], Ints | None], rewards: RewardConfig
    ) -> None:
        self.models, self.find_set = models, sets
        self.one_tree = tree_id(models[0].tree) == tree_id(models[1].tree)
        self.nothing, self.limits = rewards.nothing, rewards.limits
        self.lists: Mapping[str, Ints | None] = {}
        self.sets = tuple(ArmSets(lambda name: self.lists.get(name), arms, model.tree) for model in models)
        self.tally, self.worse = Tally(), Bets()
        self.errors, self.slots = np.zeros(2), 0  # sums of squared errors, and over how many slots

    def add(self, batch: LoggedBatch) -> None:
        seen = ~np.isnan(batch.rewards).all(axis=1)
        self.lists = {name: self.find_set(name) for name, _ in set(batch.lists) if name}
        listed = [not name or self.lists[name] is not None for name, _ in batch.lists]
        batch = batch.part(np.asarray(seen & np.array(listed, np.bool_)))
        if len(batch) == 0:
            return
        served, chances = (self._chances(batch, which) for which in (0, 1))
        exact = as_recorded(batch, served)[:, None]  # what else decided, say before arms were added, has other chances
        chances = replace(chances, largest=np.where(exact, chances.largest, ANY_WEIGHT))
        known = ~np.isnan(batch.rewards)
        silent = ~known & (batch.arms >= 0)
        self.tally = self.tally.after(
            judged_rounds(
                replace(batch, rewards=np.where(silent, self.nothing, batch.rewards)),
                chances.scaled(*score_line(self.limits)),
                None,
            )
        )
        foreseen = [self._foreseen(found, batch.arms, which) for which, found in enumerate((served, chances))]
        squares = [np.where(known, (each - np.nan_to_num(batch.rewards)) ** 2, 0.0) for each in foreseen]
        self.errors += [float(each.sum()) for each in squares]
        self.slots += int(known.sum())
        before, after = (each.sum(axis=1) / known.sum(axis=1) for each in squares)
        self.worse += Bets.of(after - (1 + MARGIN) * before)

    def _chances(self, batch: LoggedBatch, which: int) -> SlotChances:
        model = self.models[which]
        known = np.minimum(batch.arms, model.n_arms - 1).astype(np.int32)  # the model may be older than an arm
        shown = np.cumsum(batch.arms != known, axis=1) == 0
        policy, allowed = batch.policy.make_policy(), self.sets[which].of(batch.lists)
        beside = (policy, self.models[0]) if self.one_tree else None
        found = shared_chances([policy], model, batch.x, known, allowed, served=beside)[0]
        return replace(found, probability=found.probability * shown)

    def _foreseen(self, chances: SlotChances, arms: Ints, which: int) -> Floats:
        """(n, k): the rewards that scores foresee where slots stand, and below those above them, in [0, 1]."""
        pooled, coverage = self.models[which].pooled, self.models[which].coverage
        slots, score = np.arange(arms.shape[1]), chances.score
        if coverage is not None and coverage.saturation > 0:
            score = score * slot_factors(coverage, np.where(arms < len(coverage), arms, -1), score)
        factors = np.array(pooled.examined if pooled is not None and pooled.examined else (1.0,))
        looked_at = factors[np.minimum(slots, len(factors) - 1)]
        level = score_line(self.limits)[0]
        return np.asarray(np.clip(level + learned_unit(self.limits) * score * looked_at, 0, 1))

    def judgement(self) -> Judgement:
        if self.tally.rounds < LEAST:
            return Judgement(self.tally.rounds)
        confidence = (1 + CONFIDENCE) / 2
        reward = judge("the refit", self.tally, {}, confidence, limits=self.limits)
        span = self.limits[1] - self.limits[0]
        served_error, error = (float(each) for each in span**2 * self.errors / self.slots)
        reasons = []
        if reward.verdict == "worse":
            reasons.append(
                f"it would have brought {reward.per_visit} a visit, {reward.difference.value:+.3f} "
                f"[{reward.difference.low:+.3f}, {reward.difference.high:+.3f}] against what was served"
            )
        if self.worse.lower_bound(-1 - MARGIN, 1.0, 1 - confidence) > 0:
            reasons.append(f"its squared error is {error:.4f}, that of the model that serves {served_error:.4f}")
        said = f"on the newest {self.tally.rounds:,} rounds " + "; ".join(reasons) if reasons else ""
        return Judgement(self.tally.rounds, said, reward, error, served_error)
