"""What the history says of where arms live: an arm that no label tells of, where its rewards were found.

Until then it stands apart from the others, as does an arm that stopped earning what it used to. All of it follows from
the tree before any arm moved (`Model.home`), the labels and the history, so that a refit knows nothing of those before
it: an arm whose rewards came late or were taken back is where it would be had they always been so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treetop import _core
from treetop.learn import by_group
from treetop.model import Model
from treetop.search import Eligible, search
from treetop.tree import Tree
from treetop.types import Bools, Feedback, Ints, Longs

VOTES, NEAR = 16, 5  # rewards that say where an arm belongs, and how many leaves are looked at for each


@dataclass(frozen=True, eq=False)
class Standing:
    """`since` which round the rewards of each arm count, and whether it is `told` of: by labels that still hold.

    `counted` (rounds, slots): rewards that were observed and still count.
    """

    since: Longs
    told: Bools
    counted: Bools

    @classmethod
    def of(cls, feedback: Feedback, told: Bools) -> Standing:
        """Arms count from their last fall on, and one that fell is not told of any more.

        >>> X, shown = np.ones((60, 1), np.float32), np.zeros((60, 1), np.int32)
        >>> rewards = np.repeat([1.0, 0.0], 30)[:, None]  # an arm that earns, and then no more
        >>> Standing.of(Feedback(X, shown, None, rewards), told=np.ones(2, bool)).since.tolist()
        [30, 0]
        """
        t, slot = np.nonzero(feedback.observed & (feedback.nodes < 0))  # draws through nodes know nothing of the arm
        arm = feedback.arms[t, slot]
        start, order = by_group(arm, len(told))
        falls = _core.last_falls(start, np.ascontiguousarray(feedback.rewards[t, slot][order]))
        fell = np.flatnonzero(falls)
        since = np.zeros(len(told), np.int64)
        since[fell] = t[order[start[fell] + falls[fell]]]
        rounds = np.arange(len(feedback))[:, None]
        return cls(since, told & (since == 0), feedback.observed & (rounds >= since[np.maximum(feedback.arms, 0)]))

    def earned(self, feedback: Feedback) -> tuple[Ints, Longs]:
        """Arms that are not told of and the rounds of their rewards, as long as these count."""
        t, slot = np.nonzero(self.counted & (np.nan_to_num(feedback.rewards) > 0))
        arm = feedback.arms[t, slot]
        new = ~self.told[arm]
        return arm[new], t[new]

    def settled(self, model: Model, feedback: Feedback) -> Model:
        """The model with the arms that are not told of where their rewards lead; without any, apart if they fell."""
        tree = model.tree if model.home is None else Tree(model.tree.parents, model.home)
        rooms = _rooms(tree, self.told)
        found = self._found(Model.unlearned(tree, model.route_rows, model.geometric), feedback)
        leaf_of = tree.leaf_of.copy()
        leaf_of[list(found)] = list(found.values())
        if len(rooms):
            apart = ~self.told & (np.isin(tree.leaf_of, rooms) | (self.since > 0))
            apart[list(found)] = False
            trials = np.bincount(feedback.arms[self.counted], minlength=tree.n_arms)
            arms = np.flatnonzero(apart)
            arms = arms[np.argsort(trials[arms], kind="stable")]  # those tried least stand together
            leaf_of[arms] = rooms[np.arange(len(arms)) * len(rooms) // max(1, len(arms))]
        if np.array_equal(leaf_of, model.tree.leaf_of):
            return model
        home = None if np.array_equal(leaf_of, tree.leaf_of) else tree.leaf_of
        return replace(model, tree=Tree(tree.parents, leaf_of), home=home)

    def _found(self, routing: Model, feedback: Feedback) -> dict[int, int]:
        """Arms with a reward that are not told of, and the leaf to which most of their first ones lead."""
        arm, t = self.earned(feedback)
        if not (len(arm) and self.told.any()):
            return {}
        steady = Eligible.of(routing.tree, self.told)  # where the others are must not matter: they move
        start, order = by_group(arm, len(self.told))
        first = {a: t[order[start[a] : start[a + 1]][:VOTES]] for a in np.unique(arm).tolist()}
        rounds = np.unique(np.concatenate(list(first.values())))
        leaf = np.array([_leads_to(routing, feedback, i, steady) for i in rounds.tolist()])
        found = {}
        for a, mine in first.items():
            votes = leaf[np.searchsorted(rounds, mine)].tolist()
            found[a] = max(dict.fromkeys(votes), key=votes.count)
        return found


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
