"""The slow twin of budgeted exploration: every decision that can happen, of either kind of event, by enumeration.

It shares no code with the package. A slot's propensity is the probability of the slots up to it, over both kinds of
events, divided by that of the slots before it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from helpers.reference import Floats, Sequence


@dataclass(frozen=True)
class Twin:
    """Candidates in canonical order, a number of slots, and what may be spent."""

    score: Floats
    value: Floats
    new_share: Floats
    k: int
    explore: int
    budget: float
    evaluation_share: float = 0.0
    floor: float = 0.0
    new_arms_budget: float = 0.0
    paying_budget: float = 0.0
    most: float = 0.9
    prior: Floats | None = None  # scores of which the arms' own rewards know nothing; None: the scores

    def worth(self, taken: Sequence = ()) -> Floats:
        """What each candidate is worth to the slots that are left."""
        return np.maximum(self.score, 0)

    def slate_worth(self, slate: Sequence) -> float:
        return float(sum(self.worth()[i] for i in slate))

    def in_play(self, taken: Sequence) -> list[int]:
        return [i for i in range(len(self.score)) if i not in taken]

    def ranked(self, taken: Sequence) -> list[int]:
        return sorted(self.in_play(taken), key=lambda i: (-self.score[i], i))

    def others(self, taken: Sequence) -> list[int]:
        """Those that would not be shown if all slots that are left were greedy."""
        return sorted(self.ranked(taken)[self.slots - len(taken) :])

    @property
    def slots(self) -> int:
        return min(self.k, len(self.score))

    def expected(self) -> float:
        """The reward of the best slots, by the scores."""
        return self.slate_worth(tuple(self.ranked(())[: self.slots]))

    def evaluation_cost(self) -> float:
        """A bound of what an event that evaluates gives up."""
        order, worth = self.ranked(()), self.worth()
        gaps = [worth[order[s]] - np.mean([worth[i] for i in order[s:]]) for s in range(self.slots)]
        return self.floor * float(sum(gaps))

    def lost(self, taken: Sequence, i: int) -> float:
        """What showing i next gives up: the best that then fit, against the best that fitted before."""
        left = self.slots - len(taken)
        before = sum(self.worth()[j] for j in self.ranked(taken)[:left])
        after = sum(self.worth()[j] for j in self.ranked((*taken, i))[: left - 1])
        return float(before - after - self.worth()[i])

    def evaluating(self, taken: Sequence) -> Floats:
        p, in_play = np.zeros(len(self.score)), self.in_play(taken)
        p[in_play] = self.floor / len(in_play)
        p[self.ranked(taken)[0]] += 1 - self.floor
        return p

    def ordinary(self, taken: Sequence) -> Floats:
        p = np.zeros(len(self.score))
        p[self.ranked(taken)[0]] = 1
        if len(taken) < self.k - self.explore:
            return p
        left = self._add(p, taken, np.maximum(self.value, 1e-9), lambda cost: self._may_cost(taken, cost))
        gaps = [self._gap(taken, i) for i in range(len(self.score))]
        little = 0.005 * self.expected() / self.slots
        near = [1.0 if cost == 0 else np.exp(-cost / little) if little > 0 else 0.0 for cost in gaps]
        weight = np.array([share**4 * part for share, part in zip(self.new_share, near, strict=True)])
        drawn = self.others(taken)
        lost = [min(gap, self.lost(taken, i)) if i in drawn else 0.0 for i, gap in enumerate(gaps)]
        mean, all_ = self.expected() / self.slots, self.new_arms_budget * self.expected()
        self._add(p, taken, weight, lambda cost: all_ if cost <= 0.2 * mean else all_ * 0.2 * mean / cost, left, lost)
        return p

    def _gap(self, taken: Sequence, i: int) -> float:
        """What the last of the best that fit has more than i, if nothing is known of any arm's own rewards."""
        known = np.maximum(self.score if self.prior is None else self.prior, 0)
        best = sorted((float(known[j]) for j in self.in_play(taken)), reverse=True)
        return max(0.0, best[self.slots - len(taken) - 1] - float(known[i]))

    def _may_cost(self, taken: Sequence, cost: float) -> float:
        """Of all draws by exploration values, if one costs so much."""
        evaluation, value = self.evaluation_share * self.evaluation_cost(), np.maximum(self.value, 1e-9)
        others = self.others(taken)
        brings = sum(value[i] ** 2 for i in others) / sum(value[i] for i in others)
        usual, paying = (max(0.0, b * self.expected() - evaluation) for b in (self.budget, self.paying_budget))
        if not (self.value > 0).any():
            return usual
        return float(usual * brings / cost if brings < cost else max(usual, paying * (1 - cost / brings)))

    def _add(
        self,
        p: Floats,
        taken: Sequence,
        weight: Floats,
        may: Callable[[float], float],
        part: float = 1.0,
        lost: list[float] | None = None,
    ) -> float:
        """Moves chance from the best to draws by weight, so that they cost what they may in all drawn slots, or a part
        of it; and returns the chance that is left."""
        others, best = self.others(taken), self.ranked(taken)[0]
        total = sum(weight[i] for i in others)
        if total == 0:
            return 1.0
        cost = sum(weight[i] * (self.lost(taken, i) if lost is None else lost[i]) for i in others) / total
        drawn_slots = self.slots - min(self.k - self.explore, self.slots)
        each = may(cost) / (1 - self.evaluation_share) / drawn_slots
        rounding = 1e-15 if lost is None else 0.0  # of differences of sums
        chance = part * (self.most if self.most * cost <= each + rounding else each / cost)
        p[best] -= chance
        for i in others:
            p[i] += chance * weight[i] / total
        return 1 - chance

    def decisions(self) -> dict[Sequence, tuple[float, float]]:
        """Every sequence of slots, also unfinished ones, with its probability in either kind of event."""
        found: dict[Sequence, tuple[float, float]] = {(): (self.evaluation_share, 1 - self.evaluation_share)}
        grown: list[Sequence] = [()]
        for _ in range(self.slots):
            longer = []
            for taken in grown:
                evaluating, ordinary = self.evaluating(taken), self.ordinary(taken) if found[taken][1] > 0 else None
                for i in self.in_play(taken):
                    both = (
                        found[taken][0] * evaluating[i],
                        found[taken][1] * ordinary[i] if ordinary is not None else 0.0,
                    )
                    if sum(both) > 1e-300:
                        found[(*taken, i)] = both
                        longer.append((*taken, i))
            grown = longer
        return found

    def propensities(self, found: dict[Sequence, tuple[float, float]], decision: Sequence) -> list[float]:
        return [sum(found[decision[: s + 1]]) / sum(found[decision[:s]]) for s in range(len(decision))]

    def cost(self, found: dict[Sequence, tuple[float, float]]) -> float:
        """What the decisions give up on average."""
        whole = [(d, sum(p)) for d, p in found.items() if len(d) == self.slots]
        return float(sum(p * (self.expected() - self.slate_worth(d)) for d, p in whole))
