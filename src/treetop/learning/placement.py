"""Where arms without labels belong: in the leaf to which the contexts of their rewards lead.

Routing knows nothing of an arm that no label tells of. Until a draw through a node finds a reward of it, such an arm
stands with others of its kind below one child of the root (`Tree.from_labels_separated`). Where each
arm is follows from the tree before any moved (`PooledState.initial_leaf`), the labels and the whole history, so that a
refit knows nothing of those before it: rewards that came late or were corrected leave no trace of what they were.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from treetop.arrays import Bools, Floats, Int64s, Ints, Rows, as_rows
from treetop.learning.samples import by_group
from treetop.model.model import Model
from treetop.policy.eligibility import Eligible
from treetop.policy.search import search_batch
from treetop.records import Feedback
from treetop.tree.tree import Tree

VOTES = 16  # rewards of an arm, the first ones, that say where it belongs
BEAM = 5  # of the search that finds the leaf of each
BLOCK = 1024  # contexts that are searched at a time


def rewarded_unlabelled(feedback: Feedback, labelled: Bools) -> tuple[Ints, Int64s]:
    """Arms without labels and the rounds of their rewards.

    >>> X, shown = np.ones((3, 1), np.float32), np.array([[0], [1], [1]])
    >>> rewarded_unlabelled(Feedback(X, shown, None, [[1.0], [0.0], [1.0]]), np.array([True, False]))
    (array([1], dtype=int32), array([2]))
    """
    t, slot = np.nonzero(np.nan_to_num(feedback.rewards) > 0)
    arm = feedback.arms[t, slot]
    new = ~labelled[arm]
    return arm[new], t[new]


def placed(model: Model, feedback: Feedback, labelled: Bools, trial_value: Floats, vote: bool = True) -> Tree:
    """The model's tree with every arm without labels where its rewards lead; without any, where it was, or separate.

    Separate arms of like trial value stand together, so that draws go where there is most of it. Without `vote`
    rewards move nobody.

    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, 6, dtype=np.float32)  # nobody knows arms 4 and 5
    >>> model = Model.initial(Tree.from_labels_separated(X, Y, max_leaf=2), X, Y)
    >>> found = Feedback(X[:1], arms=[[4]], nodes=[[3]], rewards=[[1]])  # in context 0, that of arm 0
    >>> tree = placed(model, found, labelled=np.arange(6) < 4, trial_value=np.zeros(6))
    >>> bool(tree.leaf_of[4] == tree.leaf_of[0])
    True
    """
    votes = Votes(model, labelled)
    if vote:
        votes.add(*rewarded_unlabelled(feedback, labelled), feedback.contexts)
    return placed_by(votes, model, labelled, trial_value)


def placed_by(votes: Votes, model: Model, labelled: Bools, trial_value: Floats, rounds: int | None = None) -> Tree:
    """The same from votes, or from those of so many rounds, the first ones.

    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, 6, dtype=np.float32)  # nobody knows arms 4 and 5
    >>> model, labelled = Model.initial(Tree.from_labels_separated(X, Y, max_leaf=2), X, Y), np.arange(6) < 4
    >>> votes = Votes(model, labelled)
    >>> votes.add(np.array([4], np.int32), np.array([0]), as_rows(X[:1]), 0)  # rewarded in context 0, that of arm 0
    >>> tree = placed_by(votes, model, labelled, np.zeros(6))
    >>> bool(tree.leaf_of[4] == tree.leaf_of[0])
    True
    """
    tree = initial_tree(model)
    leaf_of = tree.leaf_of.copy()
    found = votes.leaves(rounds)
    leaf_of[list(found)] = list(found.values())
    leaves = separate_leaves(tree, labelled)
    if len(leaves):
        separate = np.isin(tree.leaf_of, leaves)
        separate[list(found)] = False
        arms = np.flatnonzero(separate)
        arms = arms[np.argsort(-trial_value[arms], kind="stable")]
        leaf_of[arms] = leaves[np.arange(len(arms)) * len(leaves) // max(1, len(arms))]
    return model.tree if np.array_equal(leaf_of, model.tree.leaf_of) else Tree(tree.parents, leaf_of)


def initial_tree(model: Model) -> Tree:
    """The tree before any arm moved.

    >>> X = Y = np.eye(2, dtype=np.float32)
    >>> initial_tree(Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)).leaf_of
    array([1, 2], dtype=int32)
    """
    initial = model.pooled.initial_leaf if model.pooled else None
    return model.tree if initial is None else Tree(model.tree.parents, initial)


class Votes:
    """The leaves to which the first VOTES rewards of each arm without labels lead, from a history in pieces.

    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, 6, dtype=np.float32)  # nobody knows arms 4 and 5
    >>> model = Model.initial(Tree.from_labels_separated(X, Y, max_leaf=2), X, Y)
    >>> votes = Votes(model, labelled=np.arange(6) < 4)
    >>> votes.add(np.array([4], np.int32), np.array([0]), as_rows(X))  # a reward of arm 4 in context 0, that of arm 0
    >>> votes.leaves() == {4: model.tree.leaf_of[0]}
    True
    """

    def __init__(self, model: Model, labelled: Bools) -> None:
        self.model, self._labelled = model, labelled
        self._given = np.zeros(len(labelled), np.int64)  # of each arm so far
        self._arm: list[Ints] = [np.zeros(0, np.int32)]
        self._round: list[Int64s] = [np.zeros(0, np.int64)]
        self._leaf: list[Ints] = [np.zeros(0, np.int32)]

    def add(self, arm: Ints, row: Int64s, contexts: Rows, first: int = 0) -> None:
        """Later rewards: arms without labels and the contexts of their rewards, which begin with round `first`."""
        if not (len(arm) and self._labelled.any()):
            return
        start, order = by_group(arm, len(self._labelled))
        rank = self._given[arm[order]] + np.arange(len(order)) - np.repeat(start[:-1], np.diff(start))
        new = np.sort(order[rank < VOTES])
        self._given += np.diff(start)
        rounds = np.unique(row[new])
        if len(rounds):
            leaf = _best_leaves(self._routing, contexts, rounds, self._labelled)
            self._arm.append(arm[new])
            self._round.append(first + row[new])
            self._leaf.append(leaf[np.searchsorted(rounds, row[new])])

    @cached_property
    def _routing(self) -> Model:
        """From before any reward."""
        model = self.model
        rows = model.learned_routing.base if model.learned_routing else model.route_rows
        return Model.unlearned(initial_tree(model), rows, model.geometric)

    def leaves(self, rounds: int | None = None) -> dict[int, int]:
        """Arms, and the leaf to which most of their first rewards lead; by the first rounds, or by all."""
        arm, at, leaf = np.concatenate(self._arm), np.concatenate(self._round), np.concatenate(self._leaf)
        within = np.ones(len(at), np.bool_) if rounds is None else at < rounds
        arm, leaf = arm[within], leaf[within]
        most = int(leaf.max(initial=0)) + 1
        pair, first, votes = np.unique(arm.astype(np.int64) * most + leaf, return_index=True, return_counts=True)
        pair = pair[np.lexsort((first, -votes, pair // most))]  # of as many votes, those that came first
        voted, best = np.unique(pair // most, return_index=True)
        return dict(zip(voted.tolist(), (pair[best] % most).tolist(), strict=True))


def _best_leaves(routing: Model, contexts: Rows, rounds: Int64s, labelled: Bools) -> Ints:
    """The leaf with the best route of each round's context, among those with labelled arms: the others move."""
    rows, eligible = contexts.csr(), Eligible.of(routing.tree, labelled)
    blocks = (as_rows(rows[rounds[a : a + BLOCK]]) for a in range(0, len(rounds), BLOCK))
    return np.concatenate([_block_leaves(routing, block, eligible) for block in blocks])


def _block_leaves(routing: Model, contexts: Rows, eligible: Eligible) -> Ints:
    found = search_batch(routing, contexts, BEAM, None, 1, eligible)
    route = np.where(found.is_node, -np.inf, found.log_route)
    best = np.maximum.reduceat(route, found.start[:-1])
    row = np.repeat(np.arange(len(contexts)), np.diff(found.start))
    _, first = np.unique(row[route == best[row]], return_index=True)
    return np.asarray(routing.tree.leaf_of[found.id[route == best[row]][first]])


def separate_leaves(tree: Tree, labelled: Bools) -> Ints:
    """The leaves below children of the root that have no labelled arm; none if no arm is labelled.

    >>> separate_leaves(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), np.array([True, False]))
    array([2], dtype=int32)
    """
    if not labelled.any():
        return np.zeros(0, np.int32)
    top = np.arange(tree.n_nodes)
    while (deep := tree.parents[top] > 0).any():
        top[deep] = tree.parents[top[deep]]
    leaf = np.ones(tree.n_nodes, np.bool_)
    leaf[tree.parents[1:]] = False
    return np.flatnonzero(leaf & ~np.isin(top, top[tree.leaf_of[labelled]])).astype(np.int32)
