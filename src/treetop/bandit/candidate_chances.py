"""How likely candidates were to show what a logged batch showed: what judging a log costs, wherever it is worked out.

Knows models by name and the arms of a bandit, but neither its log nor its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from treetop.arrays import Bools, Floats, Ints
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.logged_batches import ArmSets, LoggedBatch
from treetop.bandit.snapshot import tree_id
from treetop.evaluation.judged import Judged
from treetop.model.model import Model
from treetop.policy.policy import Policy
from treetop.policy.probability import NO_GROUPS, SlotChances, shared_chances
from treetop.tree.tree import Tree

MODELS = 8  # that are in memory at a time; their files are mapped
ANY_WEIGHT = 1e200  # the largest weight of rounds whose propensities say nothing about it: no control variates
HEIGHTS = 2  # cuts of the tree that are weighed by unless more are asked for: leaves, and the nodes above them


@dataclass(frozen=True, eq=False)
class Question:
    """A batch, and who is judged by it: `asked` are candidates by number, with their policies, by the model that they
    decide with.

    `lists` are the arms of the lists that the batch names; `kept`: the model that served it is still there; `served` is
    the policy that did.
    """

    batch: LoggedBatch
    lists: Mapping[str, Ints | None]
    asked: Mapping[str, list[tuple[int, Policy]]]
    served: Policy
    kept: bool


class Answering:
    """Answers questions, with models by name; `line` leads from scores to rewards, `heights` are weighed by."""

    def __init__(
        self, load: Callable[[str], Model], arms: ArmIndex, line: tuple[float, float], heights: int = HEIGHTS
    ) -> None:
        self.line, self.lists = line, dict[str, Ints | None]()
        self.model = lru_cache(MODELS)(load)
        self.tree = lru_cache(MODELS)(lambda name: tree_id(self.model(name).tree))
        self._cuts = lru_cache(MODELS)(lambda name: cuts(self.model(name).tree, heights))
        self._sets = lru_cache(MODELS)(lambda name: ArmSets(lambda n: self.lists.get(n), arms, self.model(name).tree))

    def answer(self, question: Question, add: Callable[[int, Callable[[], Judged]], object]) -> int:
        """Tells `add` the number of each candidate and what makes the batch as it sees it; how many rounds have other
        propensities than their model and settings give."""
        batch, kept, self.lists = question.batch, question.kept, dict(question.lists)
        served, exact = None, np.ones(len(batch), np.bool_)
        names = question.asked.keys() | ({batch.model} if kept else set())
        for name in sorted(names, key=lambda name: (name != batch.model, name)):
            mine = question.asked.get(name, [])
            same = kept and self.tree(name) == self.tree(batch.model)
            own = [question.served] if name == batch.model else []
            beside = (question.served, self.model(batch.model)) if same else None
            policies = [*own, *(policy for _, policy in mine)]
            found = self._chances(batch, policies, name, self._cuts(name) if same else NO_GROUPS, beside)
            if own:
                served = found.pop(0)
                exact = as_recorded(batch, served)
            for (i, _), chances in zip(mine, found, strict=True):
                largest = np.where(exact[:, None], chances.largest, ANY_WEIGHT)
                add(i, partial(judged_rounds, batch, replace(chances, largest=largest), served if same else None))
        return int((~exact).sum())

    def _chances(
        self, batch: LoggedBatch, policies: list[Policy], name: str, groups: Ints, served: tuple[Policy, Model] | None
    ) -> list[SlotChances]:
        """Of each policy, for as many of the slots as it has."""
        model, allowed = self.model(name), self._sets(name).of(batch.lists)
        arms = batch.arms[:, : max((policy.k for policy in policies), default=0)]
        known = np.minimum(arms, model.n_arms - 1).astype(np.int32)  # the model may be older than an arm
        shown = np.cumsum(arms != known, axis=1) == 0
        chances = shared_chances(policies, model, batch.x, known, allowed, groups, served)
        found = [c.head(min(policy.k, known.shape[1])) for c, policy in zip(chances, policies, strict=True)]
        return [
            replace(c.scaled(*self.line), probability=c.probability * shown[:, : c.probability.shape[1]]) for c in found
        ]


def as_recorded(batch: LoggedBatch, served: SlotChances) -> Bools:
    """(n,): whether recorded propensities are those that the model and settings give.

    >>> from treetop.arrays import Rows
    >>> from treetop.bandit.config import PolicyConfig
    >>> one, none = np.ones((1, 1)), np.zeros((1, 1, 0))
    >>> row = Rows(np.array([0, 0]), np.zeros(0, np.int32), np.zeros(0, np.float32), 3)
    >>> batch = LoggedBatch("000000", 0, PolicyConfig(), np.ones(1), [("", 0)], row, one.astype(int), 0.5 * one, one)
    >>> [as_recorded(batch, SlotChances(p * one, one, one, one, none, one, one)).tolist() for p in (0.5, 0.4)]
    [[True], [False]]
    """
    exact = np.isclose(served.probability, batch.propensities, rtol=1e-6, atol=0) | (batch.arms < 0)
    return np.asarray(exact.all(axis=1))


def cuts(tree: Tree, heights: int = HEIGHTS) -> Ints:
    """(heights, n_arms): the node of each arm at each height, its leaf first.

    >>> cuts(Tree(parents=[-1, 0, 0, 1], leaf_of=[3, 2]))
    array([[3, 2],
           [1, 0]], dtype=int32)
    """
    above = [tree.leaf_of]
    while len(above) < heights:
        above.append(np.maximum(tree.parents[above[-1]], 0))
    return np.stack(above).astype(np.int32)


def judged_rounds(batch: LoggedBatch, chances: SlotChances, served: SlotChances | None) -> Judged:
    """A batch as a candidate with these chances sees it; `served` are those under the policy that served.

    >>> from treetop.arrays import Rows
    >>> from treetop.bandit.config import PolicyConfig
    >>> one, none = np.ones((1, 1)), np.zeros((1, 1, 0))
    >>> row = Rows(np.array([0, 0]), np.zeros(0, np.int32), np.zeros(0, np.float32), 3)
    >>> batch = LoggedBatch("000000", 0, PolicyConfig(), np.ones(1), [("", 0)], row, one.astype(int), 0.5 * one, one)
    >>> judged_rounds(batch, SlotChances(one, one, one, one, none, one, one), None).prefix_weights()
    array([[2.]])
    """
    slots = chances.probability.shape[1]
    filled = batch.arms[:, :slots] >= 0
    rewards: Floats = np.nan_to_num(batch.rewards)
    ratio = _nothing(batch)[:, :slots]
    if served is not None and served.grouped.shape[2]:
        below = served.grouped[:, :slots]
        ratio = np.divide(chances.grouped, below, out=np.full_like(below, np.nan), where=below > 0)
        ratio = np.where(filled[:, :, None], ratio, 1.0)
    return Judged(
        np.where(filled, batch.propensities[:, :slots], 0.0),
        np.where(filled, chances.probability, 0.0),
        np.where(filled, rewards[:, :slots], 0.0),
        rewards.sum(axis=1),
        chances.score,
        chances.expected,
        ratio,
        filled,
        np.asarray((batch.arms >= 0).sum(axis=1), np.float64),
        chances.covered,
        chances.largest,
    )


def _nothing(batch: LoggedBatch) -> Floats:
    return np.zeros((*batch.arms.shape, 0))
