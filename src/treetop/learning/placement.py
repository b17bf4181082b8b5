"""What the history says of where arms live: an arm that no label tells of, where its rewards were found.

Until then it stands apart from the others, as does an arm that stopped earning what it used to. Routing knows nothing
of such an arm, and leads to its leaf in some of its contexts only: with enough rewards it moves to the hall, a leaf
that every search ends with. All of it follows from the tree before any arm moved (`Model.home`), the labels and the
history, so that a refit knows nothing of those before it: an arm whose rewards came late or were taken back is where it
would be had they always been so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treetop import _core
from treetop.arrays import Bools, Floats, Ints, Longs
from treetop.learning.linear import by_group
from treetop.model.model import Model
from treetop.policy.search import Eligible, search
from treetop.records import Feedback
from treetop.tree.tree import Tree

VOTES, NEAR = 16, 5  # rewards that say where an arm belongs, and how many leaves are looked at for each
HALL, PROVEN = 64, 8  # arms that the hall holds at most, and rewards that it takes to get there


@dataclass(frozen=True)
class Heir:
    """An arm that brings what the fallen one did that it is the heir `of`, and not any more what it did until then."""

    of: int
    arm: int


@dataclass(frozen=True, eq=False)
class Standing:
    """`since` which round the rewards of each arm count, and whether it is `told` of: `labelled`, and that still holds.

    `counted` (rounds, slots): rewards that were observed and still count. `passed`: the arm that the labels of each arm
    tell of, itself unless it fell; -1 for none.
    """

    since: Longs
    told: Bools
    counted: Bools
    labelled: Bools
    passed: Ints

    @classmethod
    def of(cls, feedback: Feedback, labelled: Bools) -> Standing:
        """Arms count from their last fall on, and one that fell is not told of any more.

        >>> X, shown = np.ones((60, 1), np.float32), np.zeros((60, 1), np.int32)
        >>> rewards = np.repeat([1.0, 0.0], 30)[:, None]  # an arm that earns, and then no more
        >>> Standing.of(Feedback(X, shown, None, rewards), np.ones(2, bool)).since.tolist()
        [30, 0]
        """
        t, slot = np.nonzero(feedback.observed & (feedback.nodes < 0))  # draws through nodes know nothing of the arm
        arm = feedback.arms[t, slot]
        start, order = by_group(arm, len(labelled))
        falls = _core.last_falls(start, np.ascontiguousarray(feedback.rewards[t, slot][order]))
        fell = np.flatnonzero(falls)
        return cls.steady(feedback, labelled).anew(feedback, fell, t[order[start[fell] + falls[fell]]])

    @classmethod
    def steady(cls, feedback: Feedback, labelled: Bools) -> Standing:
        """All arms are as they always were.

        >>> Standing.steady(Feedback.none(features=1, k=1), np.ones(2, bool)).passed
        array([0, 1], dtype=int32)
        """
        n = len(labelled)
        return cls(np.zeros(n, np.int64), labelled, feedback.observed, labelled, np.arange(n, dtype=np.int32))

    def anew(self, feedback: Feedback, arms: Ints | Longs, since: Longs) -> Standing:
        """The same, but what was known of these arms before round `since` is not true any more.

        >>> feedback = Feedback(np.ones((3, 1)), [[0], [1], [1]], None, [[1.0], [1.0], [1.0]])
        >>> Standing.of(feedback, np.ones(2, bool)).anew(feedback, np.array([1]), np.array([2])).counted.ravel()
        array([ True, False,  True])
        """
        if not len(arms):
            return self
        begins, told, passed = self.since.copy(), self.told.copy(), self.passed.copy()
        begins[arms], told[arms], passed[arms] = since, False, -1
        return Standing(begins, told, _counted(feedback, begins), self.labelled, passed)

    def inherited(self, feedback: Feedback, heirs: list[Heir]) -> tuple[Feedback, Standing]:
        """The history and standing in which heirs are what fallen arms were: rewards and labels are passed on.

        >>> feedback = Feedback(np.ones((3, 1)), [[0], [0], [1]], None, [[1.0], [0.0], [1.0]])
        >>> fell = Standing.of(feedback, np.array([True, False])).anew(feedback, np.array([0]), np.array([1]))
        >>> passed, standing = fell.inherited(feedback, [Heir(of=0, arm=1)])
        >>> passed.arms.ravel(), standing.told, standing.passed
        (array([1, 0, 1], dtype=int32), array([False,  True]), array([ 1, -1], dtype=int32))
        """
        if not heirs:
            return feedback, self
        begins, told, passed = self.since.copy(), self.told.copy(), self.passed.copy()
        shown, rewards, rounds = feedback.arms.copy(), feedback.rewards.copy(), np.arange(len(feedback))[:, None]
        for heir in heirs:  # what they were themselves is over
            over = max(self.since[heir.of], self.since[heir.arm])
            rewards[(feedback.arms == heir.arm) & (rounds < over)] = np.nan
            passed[heir.arm] = -1
        for heir in heirs:
            before = (feedback.arms == heir.of) & (rounds < self.since[heir.of])
            shown[before], rewards[before] = heir.arm, feedback.rewards[before]
            begins[heir.arm], told[heir.arm], passed[heir.of] = 0, self.labelled[heir.of], heir.arm
        feedback = replace(feedback, arms=shown, rewards=rewards)
        return feedback, Standing(begins, told, _counted(feedback, begins), self.labelled, passed)

    def earned(self, feedback: Feedback) -> tuple[Ints, Longs]:
        """Arms that are not told of and the rounds of their rewards, as long as these count."""
        t, slot = np.nonzero(self.counted & (np.nan_to_num(feedback.rewards) > 0))
        arm = feedback.arms[t, slot]
        new = ~self.told[arm]
        return arm[new], t[new]

    def settled(self, model: Model, feedback: Feedback, hope: Floats) -> Model:
        """The model with the arms that are not told of where their rewards lead; without any, apart if they fell.

        Apart, those of which the same is hoped stand together, so that draws go where there is most of it.
        """
        tree = model.tree if model.home is None else Tree(model.tree.parents, model.home)
        rooms = _rooms(tree, self.labelled)
        arm, t = self.earned(feedback)
        guests = self._guests(arm) if len(rooms) > 1 else arm[:0]
        alone = ~np.isin(arm, guests)
        routing = Model.unlearned(tree, model.route_rows, model.geometric)
        found = dict.fromkeys(guests.tolist(), int(rooms[0])) if len(guests) else {}
        found |= self._leaves(routing, feedback, arm[alone], t[alone])
        leaf_of = tree.leaf_of.copy()
        leaf_of[list(found)] = list(found.values())
        passed = np.flatnonzero(self.labelled & (self.passed >= 0))
        leaf_of[self.passed[passed]] = tree.leaf_of[passed]
        if len(rooms):
            apart = ~self.told & (np.isin(tree.leaf_of, rooms) | (self.since > 0))
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

    def _leaves(self, routing: Model, feedback: Feedback, arm: Ints, t: Longs) -> dict[int, int]:
        """Arms and the leaf to which most of their first rewards lead, those of `arm` in round `t`."""
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


def _counted(feedback: Feedback, begins: Longs) -> Bools:
    """(rounds, slots): what was observed of arms since the rounds in which they begin to count."""
    return np.asarray(feedback.observed & (np.arange(len(feedback))[:, None] >= begins[np.maximum(feedback.arms, 0)]))


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
