"""Exploration within a budget: what a decision may give up, by the model's own scores. Never draws.

docs/learner-formulas.md, "Exploration", has the formulas. `slot_probabilities` is what `src/core/explore.hpp` draws by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from treetop import _core
from treetop.arrays import Floats, Int64s, check_float, check_int
from treetop.policy.trial_counts import trial_counts
from treetop.records import Candidates

BUDGETED = 4  # as the core numbers it
RUNTIME_PARAMETERS = ("new_arms_factor", "trial_counts")  # parameters that a running bandit sets, not its owner
UNTIL_REFIT = 0.2  # rounds until the next refit, as a share of those before it
LITTLE = 0.005  # of the mean of the best scores: what a slot for a new arm costs that is near
DEAR = 0.2  # likewise: what a draw of a new arm may be charged until less is spent on such draws
EXACT = 64  # candidates that take from others for which slates are completed, to tell what they cost
ALIKE = 1e-9  # the least weight of a candidate: where none has any, all are alike
Bonus: TypeAlias = Callable[[Sequence[int]], Floats]  # what each candidate adds to a slate of some of them


@dataclass(frozen=True)
class Budgeted:
    """Shows the best, except for draws that cost at most a stated share of the reward. Not in the paper.

    - `budget`: the share of a decision's expected reward (its k best scores) that draws may give up
    - `evaluation_share`: on so many of the events every slot is drawn, so that the log can judge other policies: with
      `evaluation_floor` a uniform candidate, otherwise the best. This is paid from the budget
    - `new_arms_budget`: the share that may be given up for arms that were added, until each was shown
      `new_arm_trials` times; by what is expected of them without their own first rewards
    - `new_arms_factor`, `trial_counts`: what a running bandit knows of them by now: how many times that share this
      decision may give up, as others give up none, and how often each arm was shown (`trial_counts.py`)
    - `paying_budget`: the share that draws may give up at most where each is expected to bring more than it costs,
      while all of them have cost no more than what they found has earned and `budget`
    - `largest_chance`: the largest chance of a draw in one slot, where nothing is given up by it

    A draw takes a candidate that would not be shown otherwise, in proportion to its exploration value: what showing it
    brings later (`Candidates.exploration_value`, which treetop's learner fills in; without it all are alike).

    >>> one, value = np.ones(3), np.array([0.0, 1.0, 0.25])
    >>> three = Candidates(np.zeros(3, bool), np.arange(3), one, np.array([0.5, 0.0, 0.0]), value)
    >>> Budgeted(budget=0.1, evaluation_share=0.0).candidate_probabilities(three, n_seen=9).round(4)
    array([0.9 , 0.08, 0.02])
    """

    budget: float = 0.005
    evaluation_share: float = 0.002
    new_arms_budget: float = 0.01
    new_arm_trials: int = 20
    evaluation_floor: float = 0.5
    paying_budget: float = 0.1
    largest_chance: float = 0.9
    new_arms_factor: float = 1.0
    trial_counts: str = ""

    def __post_init__(self) -> None:
        for name in ("budget", "evaluation_share", "new_arms_budget", "evaluation_floor", "paying_budget"):
            check_float(name, getattr(self, name), 0, 1)
        check_float("largest_chance", self.largest_chance, 0, 1)
        check_float("new_arms_factor", self.new_arms_factor, 0, 1e6)
        check_int("new_arm_trials", self.new_arm_trials, 0, 10**9)
        if not isinstance(self.trial_counts, str):
            raise TypeError(f"trial_counts must be text, not {self.trial_counts!r}")
        trial_counts(self.trial_counts)  # which raises for what is none
        if (cost := self.evaluation_share * self.evaluation_floor) > self.budget:
            raise ValueError(
                f"evaluation_share {self.evaluation_share:g} times evaluation_floor {self.evaluation_floor:g} is "
                f"{cost:g}; it is paid from budget, {self.budget:g}"
            )

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        """Without exploration values all in play are alike.

        >>> Budgeted(budget=0.1, evaluation_share=0.0).probabilities(np.array([0.3, 0.0]), n_seen=9).round(4).tolist()
        [0.9, 0.1]
        """
        n, nothing = len(scores), np.zeros(len(scores), np.float32)
        arms, score = np.arange(n, dtype=np.int32), np.asarray(scores, np.float32)
        alike = Candidates(np.zeros(n, np.bool_), arms, np.ones(n), score, nothing)
        return self.candidate_probabilities(alike, n_seen)

    def candidate_probabilities(self, candidates: Candidates, n_seen: int) -> Floats:
        """Of a decision of one slot, which is drawn."""
        return self.slot_probabilities(candidates, (), k=1, explore=1)

    def slot_probabilities(
        self, candidates: Candidates, taken: Sequence[int], k: int, explore: int, bonus: Bonus | None = None
    ) -> Floats:
        """Of each candidate to fill the next slot, given those taken so far; whether the event evaluates is not known.
        With a `bonus` (`Policy.diversity`) it counts what each adds to the slots before it.

        >>> two = Candidates(np.zeros(2, bool), np.arange(2), np.ones(2), np.array([0.5, 0.0]), np.ones(2))
        >>> Budgeted(budget=0.5, evaluation_share=0.5).slot_probabilities(two, (), k=2, explore=1).tolist()
        [0.875, 0.125]
        """
        event = _Event.of(self, candidates, k, explore, bonus)
        evaluation, ordinary = self.evaluation_share, 1 - self.evaluation_share  # likelihoods of the slots so far
        for slot, place in enumerate(taken):
            even, drawn = event.even(taken[:slot]), event.drawn(taken[:slot])
            evaluation, ordinary = evaluation * even[place], ordinary * drawn[place]
        p: Floats = evaluation * event.even(taken) + ordinary * event.drawn(taken)
        return p / (evaluation + ordinary)

    def after(self, net: float) -> Budgeted:
        """With as much of the larger budget as can be spent until the next refit, by a fifth more rounds, if nothing is
        found: then all draws have cost `budget` of all rewards more than what they found has earned.

        `net` is `PooledState.exploration_net`.

        >>> [round(Budgeted(budget=0.005).after(net).paying_budget, 4) for net in (0.02, 0.0, -0.004, -0.006)]
        [0.1, 0.025, 0.005, 0.0]
        """
        return replace(self, paying_budget=min(self.paying_budget, max(0.0, (self.budget + net) / UNTIL_REFIT)))

    @property
    def new_arms_share(self) -> float:
        """The share of this decision's expected reward that may be given up for new arms.

        >>> Budgeted(new_arms_factor=2.0).new_arms_share
        0.02
        """
        return min(1.0, self.new_arms_budget * self.new_arms_factor)

    @property
    def trials(self) -> tuple[int, _core.TrialCounts | None]:
        """How often a new arm has to be shown, and how often each was by now.

        >>> Budgeted().trials
        (20, None)
        """
        return self.new_arm_trials, trial_counts(self.trial_counts)

    def native(self, n_seen: int) -> tuple[int, tuple[Any, ...]]:
        """What the core needs to draw the same.

        >>> Budgeted().native(n_seen=9)
        (4, (0.005, 0.002, 0.5, 0.01, 20, 0.1, 0.9))
        """
        numbers = (
            self.budget,
            self.evaluation_share,
            self.evaluation_floor,
            self.new_arms_share,
            self.new_arm_trials,
            self.paying_budget,
            self.largest_chance,
        )
        return BUDGETED, (numbers, trial_counts(self.trial_counts)) if self.trial_counts else numbers


@dataclass(frozen=True, eq=False)
class _Event:
    """A decision of `slots` slots, those from `greedy` on drawn."""

    strategy: Budgeted
    order: Int64s  # candidates, best first
    score: Floats  # floored at 0, as rewards are
    weight: Floats
    valued: bool  # whether any candidate has an exploration value
    new_share: Floats
    prior: Floats
    slots: int
    greedy: int
    bonus: Bonus | None

    @classmethod
    def of(cls, strategy: Budgeted, candidates: Candidates, k: int, explore: int, bonus: Bonus | None) -> _Event:
        score = np.maximum(candidates.score.astype(np.float64), 0)
        n, slots = len(score), min(k, len(score))
        order = np.argsort(-candidates.score, kind="stable").astype(np.int64)
        new = np.zeros(n) if candidates.new_share is None else candidates.new_share.astype(np.float64)
        weight = np.maximum(candidates.exploration_value.astype(np.float64), ALIKE)
        valued = bool((candidates.exploration_value > 0).any())
        prior = np.maximum(candidates.prior.astype(np.float64), 0)
        return cls(strategy, order, score, weight, valued, new, prior, slots, min(k - explore, slots), bonus)

    def _ranked(self, taken: Sequence[int]) -> tuple[Int64s, Floats]:
        """Those in play, first who fills the slots that are left if nothing is drawn; and what each is worth to these:
        its score, and what it adds when it is taken, others what they add to all of the former but the last."""
        open_ = self.order[~np.isin(self.order, list(taken))]
        if self.bonus is None:
            return open_, self.score
        first: list[int] = []
        worth = np.zeros(len(self.score))
        for _ in range(self.slots - len(taken)):
            worth[open_] = (self.score + self.bonus([*taken, *first]))[open_]
            first.append(int(open_[worth[open_].argmax()]))
            open_ = open_[open_ != first[-1]]
        return np.concatenate([np.array(first, np.int64), open_]), worth

    def _spending(self) -> tuple[float, float, float, float]:
        """What a drawn slot may cost by exploration, by exploration that pays, for new arms; the mean best score."""
        (order, worth), strategy, slots = self._ranked(()), self.strategy, self.slots
        best = worth[order[:slots]]
        rest = [worth[order[s:]].mean() for s in range(slots)]
        evaluation = strategy.evaluation_share * strategy.evaluation_floor * float((best - rest).sum())
        ordinary = (1 - strategy.evaluation_share) * (slots - self.greedy)
        shares = (strategy.budget, evaluation), (strategy.paying_budget, evaluation), (strategy.new_arms_share, 0.0)
        explore, paying, fresh = (max(0.0, share * float(best.sum()) - paid) / ordinary for share, paid in shares)
        return explore, paying, fresh, float(best.mean())

    def even(self, taken: Sequence[int]) -> Floats:
        """In an event that evaluates: the floor shared out among those in play, and the rest for the best."""
        p, in_play, floor = np.zeros(len(self.score)), self._ranked(taken)[0], self.strategy.evaluation_floor
        p[in_play] = floor / len(in_play)
        p[in_play[0]] += 1 - floor
        return p

    def drawn(self, taken: Sequence[int]) -> Floats:
        """In an ordinary event: by exploration values, by newness, and the rest for the best."""
        p, (in_play, worth) = np.zeros(len(self.score)), self._ranked(taken)
        p[in_play[0]] = 1
        if len(taken) < self.greedy or self.strategy.evaluation_share == 1:
            return p
        fit = self.slots - len(taken)  # the best of those in play are shown anyway, and not drawn
        others, cost = in_play[fit:], self._lost(taken, in_play, worth)
        explore, paying, fresh, mean = self._spending()
        weight = self.weight[others]
        costs, brings = float(weight @ cost[others]), float(weight @ weight)
        if self.valued and brings < costs:
            explore *= brings / costs
        elif self.valued and brings > 0:
            explore = max(explore, paying * (1 - costs / brings))
        draws = self._draws(others, self.weight, cost, explore)
        gap = np.maximum(0, np.sort(self.prior[in_play])[-fit] - self.prior)
        new, charge = self._new_weight(gap, LITTLE * mean), np.minimum(gap, cost)
        draws += (1 - draws.sum()) * self._draws(others, new, charge, fresh, DEAR * mean)
        p[in_play[0]] -= draws.sum()
        return p + draws

    def _lost(self, taken: Sequence[int], in_play: Int64s, worth: Floats) -> Floats:
        """What the slate is worth less if each is shown next and greedy slots complete it then. One that takes nothing
        from those that fit only drives out the last of them; so do all where more than EXACT take something."""
        fit = self.slots - len(taken)
        lost: Floats = worth[in_play[fit - 1]] - worth
        if self.bonus is None:
            return lost
        whole, now = float(worth[in_play[:fit]].sum()), self.score + self.bonus(taken)
        takes = [z for z in in_play[fit:].tolist() if worth[z] != now[z]]
        for z in takes if len(takes) <= EXACT else ():
            order, then = self._ranked([*taken, z])
            lost[z] = max(0.0, whole - now[z] - float(then[order[: fit - 1]].sum()))
        return lost

    def _new_weight(self, gap: Floats, little: float) -> Floats:
        """By the fourth power of the share of trials that are missing, where an arm is little below the others: by what
        is known without its own rewards, or a trial would end with the first bad luck."""
        near = np.exp(-gap / little) if little > 0 else (gap == 0).astype(np.float64)
        return np.asarray(self.new_share**4 * near)

    def _draws(self, others: Int64s, weight: Floats, cost: Floats, spend: float, dear: float = np.inf) -> Floats:
        """In proportion to the weights, as often as costs what may be spent, up to the largest chance; where a draw
        costs more than what is dear, that much less is spent."""
        q = np.zeros(len(weight))
        q[others] = weight[others]
        if q.sum() == 0:
            return q
        q /= q.sum()
        each, most = float(q @ cost), self.strategy.largest_chance
        spend *= dear / each if each > dear else 1.0
        return q * (most if spend >= most * each else spend / each)
