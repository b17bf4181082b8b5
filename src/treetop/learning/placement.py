"""What the history says of where arms live: an arm that no label tells of, where its rewards were found.

Until then it stands apart from the others. Routing knows nothing of such an arm, and leads to its leaf in some of its
contexts only: with enough rewards it moves to the hall, a leaf that every search ends with. All of it follows from the
tree before any arm moved (`Model.home`), the labels and the history, so that a refit knows nothing of those before it:
an arm whose rewards came late or were taken back is where it would be had they always been so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treetop.arrays import Bools, Floats, Ints, Longs
from treetop.learning.linear import by_group
from treetop.model.model import Model
from treetop.policy.search import Eligible, search
from treetop.records import Feedback
from treetop.tree.tree import Tree

VOTES, NEAR = 16, 5  # rewards that say where an arm belongs, and how many leaves are looked at for each
HALL, PROVEN = 64, 8  # arms that the hall holds at most, and rewards that it takes to get there


@dataclass(frozen=True, eq=False)
class Standing:
    """What was shown and what came of it, and which arms labels tell of."""

    feedback: Feedback
    told: Bools

    def earned(self) -> tuple[Ints, Longs]:
        """Arms that are not told of and the rounds of their rewards.

        >>> X, shown = np.ones((3, 1), np.float32), np.array([[0], [1], [1]])
        >>> Standing(Feedback(X, shown, None, [[1.0], [0.0], [1.0]]), np.array([True, False])).earned()
        (array([1], dtype=int32), array([2]))
        """
        t, slot = np.nonzero(np.nan_to_num(self.feedback.rewards) > 0)
        arm = self.feedback.arms[t, slot]
        new = ~self.told[arm]
        return arm[new], t[new]

    def settled(self, model: Model, hope: Floats) -> Model:
        """The model with the arms that are not told of where their rewards lead; without any, apart if they were.

        Apart, those of which the same is hoped stand together, so that draws go where there is most of it.
        """
        tree = model.tree if model.home is None else Tree(model.tree.parents, model.home)
        rooms = _rooms(tree, self.told)
        arm, t = self.earned()
        guests = self._guests(arm) if len(rooms) > 1 else arm[:0]
        alone = ~np.isin(arm, guests)
        routing = Model.unlearned(tree, model.route_rows, model.geometric)
        found = dict.fromkeys(guests.tolist(), int(rooms[0])) if len(guests) else {}
        found |= self._leaves(routing, arm[alone], t[alone])
        leaf_of = tree.leaf_of.copy()
        leaf_of[list(found)] = list(found.values())
        if len(rooms):
            apart = np.isin(tree.leaf_of, rooms)
            apart[list(found)] = False
            others = rooms[1:] if len(rooms) > 1 else rooms
            arms = np.flatnonzero(apart)
            arms = arms[np.argsort(-hope[arms], kind="stable")]
            leaf_of[arms] = others[np.arange(len(arms)) * len(others) // max(1, len(arms))]
        hall = _path(tree, int(rooms[0])) if len(rooms) > 1 else None
        if np.array_equal(leaf_of, model.tree.leaf_of):
            return replace(model, hall=hall)
        home = None if np.array_equal(leaf_of, tree.leaf_of) else tree.leaf_of
        return replace(model, tree=Tree(tree.parents, leaf_of), home=home, hall=hall)

    def _guests(self, arm: Ints) -> Ints:
        """The arms with the most rewards, as many as the hall holds; `arm` has each as often as it was rewarded."""
        many = np.bincount(arm, minlength=len(self.told))
        most = np.argsort(-many, kind="stable")[:HALL]
        return most[many[most] >= PROVEN].astype(np.int32)

    def _leaves(self, routing: Model, arm: Ints, t: Longs) -> dict[int, int]:
        """Arms and the leaf to which most of their first rewards lead, those of `arm` in round `t`."""
        if not (len(arm) and self.told.any()):
            return {}
        steady = Eligible.of(routing.tree, self.told)  # where the others are must not matter: they move
        start, order = by_group(arm, len(self.told))
        first = {a: t[order[start[a] : start[a + 1]][:VOTES]] for a in np.unique(arm).tolist()}
        rounds = np.unique(np.concatenate(list(first.values())))
        leaf = np.array([_leads_to(routing, self.feedback, i, steady) for i in rounds.tolist()])
        found = {}
        for a, mine in first.items():
            votes = leaf[np.searchsorted(rounds, mine)].tolist()
            found[a] = max(dict.fromkeys(votes), key=votes.count)
        return found


def _path(tree: Tree, leaf: int) -> Ints:
    """The nodes on the way to a leaf: the leaf first, without the root."""
    path = []
    while leaf > 0:
        path.append(leaf)
        leaf = int(tree.parents[leaf])
    return np.array(path, np.int32)


def _leads_to(routing: Model, feedback: Feedback, i: int, steady: Eligible) -> int:
    """The leaf with the best route of a round's context."""
    found = search(routing, feedback.contexts.row(i), NEAR, None, 1, steady)
    arms, route = found.id[~found.is_node], found.route[~found.is_node]
    return int(routing.tree.leaf_of[arms[route.argmax()]])


def _rooms(tree: Tree, told: Bools) -> Ints:
    """The leaves apart: those below children of the root that have no arm which is told of; none if no arm is."""
    if not told.any():
        return np.zeros(0, np.int32)
    top = np.arange(tree.n_nodes)
    while (deep := tree.parents[top] > 0).any():
        top[deep] = tree.parents[top[deep]]
    leaf = np.ones(tree.n_nodes, np.bool_)
    leaf[tree.parents[1:]] = False
    return np.flatnonzero(leaf & ~np.isin(top, top[tree.leaf_of[told]])).astype(np.int32)
