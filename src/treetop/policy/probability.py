"""The chance that a policy shows given arms, slot by slot given the slots before. Draws nothing.

The effective arms of a context part its eligible arms: an arm is one of them, or below exactly one pruned node. So the
arms of a decision say which effective arms were taken, and

    P(arm in slot s | slots before) = P(its effective arm | effective arms taken before) / (eligible arms below it)

which is what `decide` records, to the last bit; their product is the chance of the whole sequence. `Budgeted` does not
tell ordinary events from those that evaluate: its chances are those of both, weighed by how likely the slots before
are in each (docs/learner.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class SlotChances:
    """What a policy would have done, slot by slot, where the slots before showed the given arms: (n, k) arrays.

    `probability` of the given arm; `nodes` through which it would come, -1 for an arm by itself, -2 for one that
    cannot be shown; `score` of its effective arm, and `expected`, the mean score of what the slot may show; `grouped`
    (n, k, D), the chance that the slot shows an arm of the same group. A slot after one of probability 0 is that of a
    decision that showed those arms all the same.
    """

    probability: Floats
    nodes: Ints
    score: Floats
    expected: Floats
    grouped: Floats


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
    policies: Sequence[PolicySettings], model: Model, x: Rows, arms: Ints, allowed: Eligible, groups: Ints = NO_GROUPS
) -> list[SlotChances]:
    """`slot_chances` of several policies; those that search alike (k, beam and beta) share their searches.

    >>> from treetop.arrays import as_rows
    >>> from treetop.policy.eligibility import EVERY_ARM
    >>> from treetop.policy.policy import Policy
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(4, dtype=np.float32)
    >>> model, arms = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X), np.zeros((4, 1), np.int32)
    >>> even, greedy = shared_chances([Policy(1, 1), Policy(1, 0)], model, as_rows(X), arms, EVERY_ARM)
    >>> even.probability[0], greedy.probability[0]
    (array([0.25]), array([1.]))
    """
    found: dict[int, SlotChances] = {}
    alike: dict[tuple[int, int, float, int], list[int]] = {}
    for place, policy in enumerate(policies):
        if is_native(policy.strategy):
            beta = -1.0 if policy.beta is None else policy.beta
            alike.setdefault((policy.k, policy.beam, beta, policy.threads), []).append(place)
        else:
            found[place] = _slowly(policy, model, x, arms, allowed, groups)
    for (k, beam, beta, threads), places in alike.items():
        ways = [(policies[i].explore, *policies[i].strategy.native(model.n_seen)) for i in places]
        chances = _core.slot_probabilities(
            model.engine,
            x.start,
            x.index,
            x.value,
            np.ascontiguousarray(arms).reshape(-1),
            arms.shape[1],
            k,
            beam,
            beta,
            ways,
            allowed.kind,
            allowed.positions,
            allowed.start,
            threads,
            allowed.mask,
            np.ascontiguousarray(groups).reshape(-1),
        )
        found |= {place: SlotChances(*each) for place, each in zip(places, chances, strict=True)}
    return [found[place] for place in range(len(policies))]


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
            out.expected[i, s] = p @ some.score.astype(np.float64)
            for d, cut in enumerate(cuts):
                alike = cut == cut[arm]
                out.grouped[i, s, d] = sum(c * alike[below[z]].mean() for c, z in zip(p, in_play, strict=True))
            z = next((j for j, shows in enumerate(below) if arm in shows), None)
            if z is None:
                continue
            out.nodes[i, s] = found.id[z] if found.is_node[z] else -1
            out.score[i, s] = found.score[z]
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
