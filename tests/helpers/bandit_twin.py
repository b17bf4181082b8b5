"""What a bandit should know and decide, in dicts, lists and slow loops: the twin of tests/bandit/test_stateful.py.

It searches the tree again (`reference`, `reference_pooled`), scores what it finds in float64, and computes the
propensities of a decision slot by slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers import budgeted, reference, reference_pooled


@dataclass
class Twin:
    """Every arm that there ever was, in the order of its index, and what happened to it."""

    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    sets: dict[str, set[str]] = field(default_factory=lambda: {"sale": set(), "new": set()})
    rewards: dict[str, dict[str, float]] = field(default_factory=dict)  # that count, by event
    told: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # all rewards of a slot
    shown: dict[str, list[str]] = field(default_factory=dict)
    visitor: dict[str, str] = field(default_factory=dict)  # of an event

    def meets(self, arm: str, name: str, condition: Any) -> bool:
        if name == "sets":
            return arm in self.sets[condition]
        value = self.values[arm][name]
        if value is None:
            return False
        if name == "category":
            return bool(value == condition or value.startswith(f"{condition} > "))
        if isinstance(condition, dict):
            ((operator, limit),) = condition.items()
            return bool(value <= limit) if operator == "<=" else bool(value > limit)
        return value in condition if isinstance(condition, list) else bool(value == condition)

    def seen(self, visitor: str, arm: str) -> int:
        return sum(arm in arms for event, arms in self.shown.items() if self.visitor[event] == visitor)

    def eligible(
        self, where: dict[str, Any], eligible: list[str] | None, exclude: list[str], visitor: str, cap: int
    ) -> set[str]:
        return {
            arm
            for arm in self.values
            if arm not in self.removed
            and arm not in exclude
            and (eligible is None or arm in eligible)
            and all(self.meets(arm, name, condition) for name, condition in where.items())
            and not (visitor and self.seen(visitor, arm) >= cap)
        }

    def reward(self, event: str, arm: str, value: float) -> None:
        """Another value replaces the one before; one that was told before changes nothing."""
        told = self.told.setdefault((event, arm), [])
        if value not in told:
            told.append(value)
            self.rewards[event][arm] = value


class CachedTree(reference.Tree):
    """The reference's tree, whose answers are kept: a search asks for the same ones again and again."""

    def __init__(self, parents: Any, leaf_of: Any) -> None:
        super().__init__(parents, leaf_of)
        kept: dict[str, list[list[int]]] = {"below": [[] for _ in parents], "steps": []}
        kept["steps"] = [super(CachedTree, self).path(node) for node in range(len(parents))]
        for arm, leaf in enumerate(leaf_of):
            for node in kept["steps"][int(leaf)]:
                kept["below"][node].append(arm)
        kept["kids"] = [np.flatnonzero(parents == node).tolist() for node in range(len(parents))]
        object.__setattr__(self, "kept", kept)

    def children(self, node: int) -> list[int]:
        return self.__dict__["kept"]["kids"][node]  # type: ignore[no-any-return]

    def path(self, node: int) -> list[int]:
        return self.__dict__["kept"]["steps"][node]  # type: ignore[no-any-return]

    def arms_below(self, node: int) -> list[int]:
        return self.__dict__["kept"]["below"][node]  # type: ignore[no-any-return]


def effective_arms(model: Any, x: Any, eligible: set[int], k: int, beam: int) -> list[reference.Effective]:
    """What a search of this model finds, with routes and scores, all of it computed anew."""
    tree = CachedTree(model.tree.parents, model.tree.leaf_of)
    routing = model.route_rows.csr().toarray().astype(np.float64)
    slow = reference.Model(tree, routing, model.rewards.toarray().astype(np.float64), model.geometric)
    row = np.asarray(x, np.float32).astype(np.float64)
    pooled = model.pooled
    if pooled is None:
        return reference.search(slow, row, eligible, k, beam)
    means = np.asarray(pooled.means, np.float64)
    scored = reference_pooled.Scored(slow, means, tuple(pooled.weights[:2]), pooled.node_mean, model.path_weight)
    return reference_pooled.scored_search(scored, row, eligible, k, beam)


def check_effective(view: Any, expected: list[reference.Effective]) -> None:
    """The same arms and nodes, with the same scores."""
    found = [(bool(node), int(z)) for node, z in zip(view.is_node, view.id, strict=True)]
    assert found == [(e.is_node, e.id) for e in expected]
    np.testing.assert_allclose(view.score, [e.score for e in expected], rtol=1e-4, atol=2e-5)


def slot_chances(policy: Any, model: Any, view: Any, chosen: list[int]) -> list[float]:
    """The chance of each slot of a decision, given those before it, over the effective arms of a view."""
    if type(policy.strategy).__name__ == "Budgeted":
        return _budgeted(policy, model, view, tuple(chosen))
    out, left = [], list(range(len(view)))
    for place, i in enumerate(chosen):
        best = min(left, key=lambda j: (-view.score[j], j))
        chances = {best: 1.0}
        if place >= policy.k - policy.explore:
            n = len(left)
            gamma = np.sqrt(policy.strategy.C * model.n_seen * n)
            chances = {j: 1 / (n + gamma * float(view.score[best] - view.score[j])) for j in left if j != best}
            chances[best] = 1 - sum(chances.values())
        out.append(chances.get(i, 0.0))
        left.remove(i)
    return out


def _budgeted(policy: Any, model: Any, view: Any, chosen: tuple[int, ...]) -> list[float]:
    strategy = policy.strategy.after(model.pooled.exploration_net if model.pooled else 0.0)
    twin = budgeted.Twin(
        view.score.astype(float),
        view.exploration_value.astype(float),
        np.zeros(len(view)) if view.new_share is None else view.new_share.astype(float),
        policy.k,
        policy.explore,
        strategy.budget,
        strategy.evaluation_share,
        strategy.evaluation_floor,
        strategy.new_arms_share,  # what running experience has made of the budget
        strategy.paying_budget,
        strategy.largest_chance,
        view.prior.astype(float),
    )
    kinds, out = (strategy.evaluation_share, 1 - strategy.evaluation_share), []
    for place, i in enumerate(chosen):
        taken = chosen[:place]
        grown = kinds[0] * twin.evaluating(taken)[i], kinds[1] * twin.ordinary(taken)[i] if kinds[1] > 0 else 0.0
        out.append(sum(grown) / sum(kinds))
        kinds = grown
    return out
