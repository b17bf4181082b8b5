"""The chance that a policy shows given arms, slot by slot given the slots before. Draws nothing.

The effective arms of a context part its eligible arms: an arm is one of them, or below exactly one pruned node. So the
arms of a decision say which effective arms were taken, and

    P(arm in slot s | slots before) = P(its effective arm | effective arms taken before) / (eligible arms below it)

which is what `decide` records, to the last bit; their product is the chance of the whole sequence. `Budgeted` does not
tell ordinary events from those that evaluate: its chances are those of both, weighed by how likely the slots before
are in each (docs/learner-formulas.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np

from treetop import _core
from treetop.arrays import Floats, Ints, Rows, as_indices
from treetop.model.model import Model
from treetop.policy.draws import draw_probabilities
from treetop.policy.eligibility import Eligible
from treetop.policy.search import search
from treetop.policy.strategies import is_native

NO_GROUPS = np.zeros(0, np.int32)
UNREACHABLE = -2


@dataclass(frozen=True, eq=False)
class SlateProbability:
    """The chance of a given sequence of arms: of each slot given the slots before it, and of the `whole`.

    >>> SlateProbability(np.array([1.0, 0.25]), 0.25).whole
    0.25
    """

    slots: Floats
    whole: float


@dataclass(frozen=True, eq=False)
class SlateProbabilities:
    """The same of many: `slots` (n, k), 0 in slots without an arm, and `whole` (n,).

    >>> SlateProbabilities(np.array([[1.0, 0.25]]), np.array([0.25])).slots.shape
    (1, 2)
    """

    slots: Floats
    whole: Floats


class PolicySettings(Protocol):
    """What a Policy says."""

    @property
    def k(self) -> int: ...
    @property
    def explore(self) -> int: ...
    @property
    def beam(self) -> int: ...
    @property
    def strategy(self) -> Any: ...
    @property
    def beta(self) -> float | None: ...
    @property
    def threads(self) -> int: ...
    @property
    def diversity(self) -> float: ...


@dataclass(frozen=True, eq=False)
class SlotChances:
    """What a policy would have done, slot by slot, where the slots before showed the given arms: (n, k) arrays.

    `probability` of the given arm; `nodes` through which it would come, -1 for an arm by itself, -2 for one that
    cannot be shown; `score` of its effective arm, cut to [0, 1], and `expected`, the mean of that over what the slot
    may show; `grouped` (n, k, D), the chance that the slot shows an arm of the same group. Beside a policy that served,
    `expected` leaves out what that cannot show, `covered` is the chance of what it can, and `largest` how many times as
    likely as there anything is at most; NaN without one. A slot after one of probability 0 is that of a decision that
    showed those arms all the same.
    """

    probability: Floats
    nodes: Ints
    score: Floats
    expected: Floats
    grouped: Floats
    covered: Floats
    largest: Floats

    def scaled(self, level: float, slope: float) -> SlotChances:
        """With level + slope * score for each score. `expected` has the level of what is covered alone."""
        covered = np.where(np.isnan(self.covered), 1.0, self.covered)
        return replace(self, score=level + slope * self.score, expected=level * covered + slope * self.expected)

    def head(self, slots: int) -> SlotChances:
        """Of the first slots."""
        return SlotChances(*(getattr(self, f.name)[:, :slots] for f in fields(self)))


def slot_chances(
    policy: PolicySettings, model: Model, x: Rows, arms: Ints, allowed: Eligible, groups: Ints = NO_GROUPS
) -> SlotChances:
    """Of arms (n, up to k), padded with -1. `groups` (D, n_arms) names a node above each arm, of D cuts of the tree.

    >>> from treetop.arrays import as_rows
    >>> from treetop.policy.eligibility import EVERY_ARM
    >>> from treetop.policy.policy import Policy
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> policy = Policy(k=2, explore=2, beam=1)  # nothing is known: uniform over two arms and a node of two arms
    >>> shown = policy.decide_batch(model, X, seed=0)
    >>> chances = slot_chances(policy, model, as_rows(X), shown.arms, EVERY_ARM)
    >>> bool((chances.probability == shown.propensities).all())
    True
    """
    return shared_chances([policy], model, x, arms, allowed, groups)[0]


def shared_chances(
    policies: Sequence[PolicySettings],
    model: Model,
    x: Rows,
    arms: Ints,
    allowed: Eligible,
    groups: Ints = NO_GROUPS,
    served: tuple[PolicySettings, Model] | None = None,
) -> list[SlotChances]:
    """`slot_chances` of several policies; those that search alike (k, beam and beta) share their searches.

    `served` is the policy that served, with its model, which must have the same tree. A policy of fewer slots than
    `arms` has 0 in the others.

    >>> from treetop.arrays import as_rows
    >>> from treetop.policy.eligibility import EVERY_ARM
    >>> from treetop.policy.policy import Policy
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(4, dtype=np.float32)
    >>> model, arms = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X), np.zeros((4, 1), np.int32)
    >>> policies = even, greedy = Policy(1, 1), Policy(1, 0)
    >>> found = shared_chances(policies, model, as_rows(X), arms, EVERY_ARM, served=(even, model))
    >>> [(float(each.probability[0, 0]), float(each.largest[0, 0])) for each in found]
    [(0.25, 1.0), (1.0, 4.0)]
    """
    found: dict[int, SlotChances] = {}
    native = [place for place, policy in enumerate(policies) if is_native(policy.strategy)]
    searched = None if served is None else _searches(served[0])  # those that search so come first: it is done already
    native.sort(key=lambda place: (_searches(policies[place]) != searched, _searches(policies[place])))
    if native:
        beside = None if served is None or not is_native(served[0].strategy) else served
        chances = _core.slot_probabilities(
            model.engine,
            x.start,
            x.index,
            x.value,
            np.ascontiguousarray(arms).reshape(-1),
            arms.shape[1],
            [_asked(policies[place], model) for place in native],
            allowed.kind,
            allowed.positions,
            allowed.start,
            policies[native[0]].threads,
            allowed.mask,
            np.ascontiguousarray(groups).reshape(-1),
            None if beside is None else beside[1].engine,
            [] if beside is None else [_asked(*beside)],
        )
        found |= {place: SlotChances(*each) for place, each in zip(native, chances, strict=True)}
    for place, policy in enumerate(policies):
        if place not in found:
            found[place] = _slowly(policy, model, x, arms, allowed, groups)
    return [found[place] for place in range(len(policies))]


def _searches(policy: PolicySettings) -> tuple[int, int, float]:
    return policy.k, policy.beam, -1.0 if policy.beta is None else policy.beta


def _asked(policy: PolicySettings, model: Model) -> tuple[Any, ...]:
    k, beam, beta = _searches(policy)
    return k, policy.explore, beam, beta, *policy.strategy.native(model.n_seen), policy.diversity


def given_arms(arms: Any, n: int, model: Model, k: int) -> Ints:
    """Arms (n, up to k) as the core takes them, checked; one sequence may be given as a plain list.

    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(4, dtype=np.float32)
    >>> given_arms([3, 1], 1, Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X), k=5)
    array([[3, 1]], dtype=int32)
    """
    array = np.asarray(arms)
    array = array[None, :] if array.ndim == 1 and n == 1 else array
    if array.ndim != 2 or len(array) != n:
        raise ValueError(f"arms have shape {array.shape}; {n} contexts need ({n}, slots)")
    if not 1 <= array.shape[1] <= k:
        raise ValueError(f"there are {array.shape[1]} arms a context; a decision of this policy has 1 to {k}")
    checked = as_indices(array, model.n_arms, "arm", low=-1)
    if ((checked[:, :-1] < 0) & (checked[:, 1:] >= 0)).any():
        row = int(np.argmax(((checked[:, :-1] < 0) & (checked[:, 1:] >= 0)).any(axis=1)))
        raise ValueError(f"row {row}: an arm after -1, which ends a sequence: {checked[row].tolist()}")
    return np.ascontiguousarray(checked)


def _slowly(policy: PolicySettings, model: Model, x: Rows, arms: Ints, allowed: Eligible, groups: Ints) -> SlotChances:
    """The same for a strategy written in Python, one context at a time."""
    cuts = groups.reshape(-1, model.n_arms)
    n, width = arms.shape
    out = SlotChances(
        *(np.zeros((n, width)), np.full((n, width), UNREACHABLE, np.int32)),
        *(np.zeros((n, width)), np.zeros((n, width)), np.zeros((n, width, len(cuts)))),
        *(np.full((n, width), np.nan), np.full((n, width), np.nan)),
    )
    for i in range(n):
        mine = allowed.row(i)
        found = search(model, x.row(i), policy.beam, policy.beta, policy.k, mine)
        below = [_shown_by(model, mine, bool(node), int(z)) for node, z in zip(found.is_node, found.id, strict=True)]
        in_play = list(range(len(found)))
        for s in range(min(width, policy.k, len(found))):
            if (arm := int(arms[i, s])) < 0:
                break
            some = found.take(in_play)
            p = np.zeros(len(in_play))
            if s < policy.k - policy.explore:
                p[np.argmax(some.score)] = 1
            else:
                p = draw_probabilities(policy.strategy, some, model.n_seen)
            out.expected[i, s] = p @ np.clip(some.score.astype(np.float64), 0, 1)
            for d, cut in enumerate(cuts):
                alike = cut == cut[arm]
                out.grouped[i, s, d] = sum(c * alike[below[z]].mean() for c, z in zip(p, in_play, strict=True))
            z = next((j for j, shows in enumerate(below) if arm in shows), None)
            if z is None:
                continue
            out.nodes[i, s] = found.id[z] if found.is_node[z] else -1
            out.score[i, s] = np.clip(found.score[z], 0, 1)
            if z in in_play:
                out.probability[i, s] = p[in_play.index(z)] / len(below[z])
                in_play.remove(z)
    return out


def _shown_by(model: Model, allowed: Eligible, is_node: bool, number: int) -> Ints:
    """The arms that an effective arm may show."""
    arms = model.tree.arms_below(number) if is_node else np.array([number], np.int32)
    places = model.tree.position_of[arms]
    if allowed.kind == 0:
        return arms
    if allowed.mask is not None:
        return arms[np.isin(places, allowed.mask.positions())]
    listed = np.isin(places, allowed.positions)
    return arms[listed if allowed.kind == 1 else ~listed]
