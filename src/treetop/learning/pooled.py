"""A learner that shares strength, beyond the paper: the mean reward by routing score, pooled over all arms, and a
regressor per arm for what that leaves unexplained.

An arm that was never tried is judged by where it stands in the beam, and labelled rows may serve as samples. Pruned
nodes get the mean reward of arms drawn through nodes; they have no regressors, so arms may move between refits: one
that no label tells of goes to where its rewards were found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Bools, Floats, Ints, Longs, Matrix, Rows, Singles, as_rows, real, whole
from treetop.learning.exploration_value import DRAWS, Hope
from treetop.learning.linear import Linear, by_group, check_fits
from treetop.learning.placement import Standing
from treetop.model.model import Model
from treetop.policy.search import Eligible, search
from treetop.records import Feedback
from treetop.tree.tree import Tree, labelled

KNOTS, WIDEST = 65, 4.0  # of the prior's means of arms, over the slack of a route; the core reads them the same way
UNPROVEN = 32  # contexts in which an arm that was found is taken to earn as any does there; its trials count less
STEPS = np.unique([0, *(1.1 ** np.arange(225)).astype(np.int64)])  # samples of an arm after which it is solved again


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled rows as samples of arms: those that routing leads to, with the label as the reward.

    Routing that was fitted on the same rows would flatter them: each row is routed by what was fitted on the other
    folds. `weight` is how many arms of a beam a sample stands for; 0 for a label that the beam missed.

    >>> from treetop.tree.tree import Tree
    >>> X, Y = np.tile(np.eye(4, dtype=np.float32), (8, 1)), np.tile(np.eye(4, dtype=np.float32), (8, 1))
    >>> tree = Tree.from_labels(X, Y, max_leaf=2)
    >>> known = Labelled.of(tree, X, Y, beam=1)
    >>> float(known.reward.sum()), len(known.contexts)
    (32.0, 32)
    >>> float(known.without(np.array([True, False, False, False])).reward.sum())  # arm 0 is gone
    24.0
    """

    contexts: Rows
    row: Ints
    arm: Ints
    reward: Singles
    route: Floats
    weight: Floats

    @classmethod
    def of(cls, tree: object, X: Matrix, Y: Matrix, beam: int = 10, folds: int = 2, negatives: int = 64, seed: int = 0
           ) -> Labelled:  # fmt: skip
        """From the rows a tree was made of; at most about `negatives` arms without the label are kept of a row."""
        contexts, labels = labelled(X, Y)
        beam = leaves(beam)
        whole("folds", folds, 2, max(2, labels.shape[0]))
        whole("negatives", negatives, 1)
        rng = np.random.default_rng(whole("seed", seed, 0))
        fold = rng.permutation(labels.shape[0]) % folds
        rows = contexts.csr()
        parts = []
        for f in range(folds):
            others, mine = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            if labels[others].nnz and len(mine):  # without a label there is no routing
                model = Model.initial(tree, rows[others], labels[others], tolerance=0.1)  # type: ignore[arg-type]
                parts += [_of_row(model, contexts, labels, int(i), beam, negatives, rng) for i in mine]
        columns = zip(*parts, strict=True) if parts else [[np.zeros(0)]] * 5  # one row has no others to be routed by
        row, arm, reward, route, weight = (np.concatenate(part) for part in columns)
        return cls(contexts, row.astype(np.int32), arm.astype(np.int32), reward.astype(np.float32), route, weight)

    def told(self, arms: int) -> Bools:
        """Which of so many arms have a label.

        >>> from treetop.tree.tree import Tree
        >>> X = Y = np.eye(2, dtype=np.float32)
        >>> Labelled.of(Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 2]), X, np.eye(2, 3), beam=1).told(3)
        array([ True,  True, False])
        """
        told = np.zeros(arms, np.bool_)
        told[self.arm[self.reward > 0]] = True
        return told

    def without(self, gone: Bools) -> Labelled:
        """The same without the samples of some arms, of which `gone` has one flag each."""
        if not gone.any():
            return self
        kept = ~gone[self.arm]
        return Labelled(
            self.contexts, self.row[kept], self.arm[kept], self.reward[kept], self.route[kept], self.weight[kept]
        )


def _of_row(
    model: Model, contexts: Rows, labels: sp.csr_matrix, i: int, beam: int, negatives: int, rng: np.random.Generator
) -> tuple[Floats, ...]:
    """Row number, arms, rewards, log routes and weights of one row."""
    x = contexts.row(i)
    found = search(model, x, beam, None, 1, Eligible.of(model.tree))
    mine = labels.indices[labels.indptr[i] : labels.indptr[i + 1]]
    led = found.id[~found.is_node]
    right = np.isin(led, mine)
    chance = min(1.0, negatives / max(1, int((~right).sum())))
    kept = right | (rng.random(len(led)) < chance)
    missed = np.setdiff1d(mine, led)
    arm = np.concatenate([led[kept], missed]).astype(np.int32)
    reward = np.concatenate([right[kept], np.ones(len(missed))])
    weight = np.concatenate([np.where(right[kept], 1.0, 1 / chance), np.zeros(len(missed))])
    route = model.engine.routes(x.start, x.index, x.value, arm, max(1, len(arm)), 1)[0] if len(arm) else np.zeros(0)
    return np.full(len(arm), float(i)), arm.astype(np.float64), reward, route, weight


@dataclass(eq=False)
class _Routed:
    """Log routes of all that was shown. Rounds of the last call are not routed again if the routing is the same."""

    last: tuple[Rows, Ints, tuple[int, ...], Floats] | None = None
    _to_leaves: tuple[Rows, Ints, Model] | None = None

    def of(self, model: Model, feedback: Feedback, threads: int) -> Floats:
        """(rounds, slots); NaN where nothing was shown."""
        routes = np.full(feedback.arms.shape, np.nan)
        old, moved = self._as_before(model, feedback)
        routes[: len(old)] = old
        again = moved[np.maximum(feedback.arms, 0)].any(axis=1)
        again[len(old) :] = True
        x, arms = as_rows(feedback.contexts.csr()[again]), feedback.arms[again]
        engine, places = (model.engine, arms) if "engine" in vars(model) else self._leaves(model, arms)
        routes[again] = engine.routes(x.start, x.index, x.value, places.reshape(-1), max(1, arms.shape[1]), threads)
        self.last = model.route_rows, model.tree.leaf_of, _digest(feedback, len(feedback)), routes
        return routes

    def _leaves(self, model: Model, arms: Ints) -> tuple[_core.Engine, Ints]:
        """The engine of a model that has the leaves for arms, which need not be made again if arms move; and these."""
        if self._to_leaves is None or self._to_leaves[0] is not model.route_rows:
            leaves = np.setdiff1d(np.arange(model.tree.n_nodes), model.tree.parents).astype(np.int32)
            routing = Model.unlearned(Tree(model.tree.parents, leaves), model.route_rows, model.geometric)
            self._to_leaves = model.route_rows, leaves, routing
        _, leaves, routing = self._to_leaves
        places = np.searchsorted(leaves, model.tree.leaf_of[np.maximum(arms, 0)])
        return routing.engine, np.where(arms < 0, -1, places).astype(np.int32)

    def _as_before(self, model: Model, feedback: Feedback) -> tuple[Floats, Bools]:
        """Routes of the first rounds as they were, and the arms that live elsewhere since."""
        leaf_of = model.tree.leaf_of
        if self.last is not None:
            routing, homes, digest, routes = self.last
            if (
                routing is model.route_rows
                and len(routes) <= len(feedback)
                and len(homes) == len(leaf_of)
                and digest == _digest(feedback, len(routes))
            ):
                return routes, homes != leaf_of
        return np.zeros((0, feedback.arms.shape[1])), np.zeros(len(leaf_of), np.bool_)


def _digest(feedback: Feedback, rounds: int) -> tuple[int, ...]:
    """Of the contexts and arms of the first rounds."""
    x = feedback.contexts.head(rounds)
    arrays = (x.start, x.index, x.value, feedback.arms[:rounds])
    sums = (_core.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8), 0) for array in arrays)
    return rounds, feedback.arms.shape[1], *sums


@dataclass(frozen=True)
class Pooled:
    """Expected reward = (mean reward of arms with that routing score) + (the arm's own linear function of [x; 1]).

    The arm's function is ridge regression of what the pooled mean leaves over, so that with few samples it stays near
    0. `known` adds labelled rows, which the first `window` new samples of an arm push out: at most that many samples
    of an arm count, the latest ones, so that what is forgotten is what an arm has seen enough of since.

    The pooled means are those of the labelled rows if there are any: they know of all arms of a beam, the rounds only
    of arms that were thought best, which makes arms without samples look several times better than they are. Without
    labelled rows the rounds must do, and their hope for untried arms is what finds the good ones.

    With labelled rows, arms that these do not tell of live apart until a draw through a node finds a reward of theirs
    (`Standing`). What such a draw is worth is measured (`Hope`).

    An arm is fitted again when it has a tenth more samples than when it last was, so that refits may come often.

    >>> from treetop.tree.tree import Tree
    >>> from treetop.learning.linear import refit
    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> monday = Feedback(X, arms=[[0], [1], [2], [3]], nodes=None, rewards=[[1], [1], [0], [float("nan")]])
    >>> refit(model, monday, Pooled()).trials.tolist()
    [1, 1, 1, 0]
    """

    cost: float = 1.0
    tolerance: float = 0.1
    window: int = 8192
    known: Labelled | None = None
    threads: int = 0
    _routed: _Routed = field(default_factory=lambda: _Routed(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        real("cost", self.cost, 1e-12, 1e12)
        real("tolerance", self.tolerance, 1e-12, 1e3)
        whole("window", self.window, 1)
        if not (self.known is None or isinstance(self.known, Labelled)):
            raise TypeError(f"known must be a Labelled, not {type(self.known).__name__}")
        self._solver()  # which refuses what it cannot take

    def _solver(self) -> Linear:
        return Linear(cost=self.cost, tolerance=self.tolerance, threads=self.threads)

    def learn(self, model: Model, feedback: Feedback, progress: Callable[[int, int], object] | None = None) -> Model:
        """The next model: prior, trials and the arms' regressors. What `refit` calls.

        >>> from treetop.tree.tree import Tree
        >>> X = Y = np.eye(2, dtype=np.float32)
        >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
        >>> Pooled().learn(model, Feedback(X, arms=[[0], [0]], nodes=None, rewards=[[1], [0]])).trials.tolist()
        [2, 0]
        """
        check_fits(feedback, model, moving=True)
        arms = model.n_arms
        standing = Standing(feedback, np.ones(arms, np.bool_) if self.known is None else self.known.told(arms))
        hope = Hope.of(feedback, standing.told)
        if self.known is not None:
            model = standing.settled(model, hope.of_arm)
        x, tree = feedback.contexts, model.tree
        routes = self._routed.of(model, feedback, self.threads)
        t, slot = np.nonzero(feedback.observed)
        arm, reward, route = feedback.arms[t, slot], feedback.rewards[t, slot], routes[t, slot]
        through = reward[feedback.nodes[t, slot] >= 0]
        contexts = x
        pooled = (t < pooled_rounds(len(feedback))).astype(np.float64)
        if (known := self.known) is not None:  # before the rounds, as it was
            contexts = as_rows(sp.vstack([known.contexts.csr(), x.csr()], format="csr"))
            t = np.concatenate([known.row, t + len(known.contexts)])
            arm, reward = np.concatenate([known.arm, arm]), np.concatenate([known.reward, reward])
            route, pooled = np.concatenate([known.route, route]), np.concatenate([known.weight, np.zeros(len(pooled))])
        slack = np.minimum(np.cbrt(-route), WIDEST)
        means = pooled_means(slack, reward, pooled)
        left = (reward - interpolate(means, slack)).astype(np.float32)
        trials = np.bincount(arm, minlength=arms)
        if known is not None:
            row, new = _unproven(known, model, np.unique(standing.earned()[0]))
            t, arm = np.concatenate([row, t]), np.concatenate([new, arm])
            left = np.concatenate([np.zeros(len(new), np.float32), left])
            trials[~standing.told] //= UNPROVEN
        start, order = by_group(tree.n_nodes + arm, tree.n_nodes + tree.n_arms)
        start, order = _in_steps(start, order, t >= len(contexts) - len(x))
        start, order = _latest(start, order, self.window)
        rewards = self._solver().solve(
            contexts, start, t.astype(np.int32)[order], left[order], before=model.reward_rows, progress=progress
        )
        of_nodes = through.sum() / (len(through) + DRAWS)
        return replace(
            model, reward_rows=rewards, epoch=model.epoch + 1, n_seen=len(feedback),
            prior=np.append(means, [of_nodes, hope.new]).astype(np.float32), trials=trials.astype(np.int32),
            hope=hope.of_arm.astype(np.float32),
        )  # fmt: skip


def _unproven(known: Labelled, model: Model, arms: Ints) -> tuple[Ints, Ints]:
    """Labelled rows that lead to where these arms live, as samples of nothing left over: (rows, arms).

    One reward that was found by chance would otherwise be expected of every context that leads there. All lead to the
    hall.
    """
    tree = model.tree
    start, order = by_group(tree.leaf_of[known.arm], tree.n_nodes)
    some: dict[int, Ints] = {}
    for leaf in np.unique(tree.leaf_of[arms]).tolist():
        rows = np.unique(known.row[order[start[leaf] : start[leaf + 1]]])
        if model.hall is not None and leaf == model.hall[0]:
            rows = np.arange(len(known.contexts), dtype=np.int32)
        few = min(len(rows), UNPROVEN)
        some[leaf] = rows[np.arange(few) * len(rows) // max(1, few)]
    row = [some[leaf] for leaf in tree.leaf_of[arms].tolist()]
    return np.concatenate([known.row[:0], *row]), np.repeat(arms, [len(rows) for rows in row]).astype(np.int32)


def leaves(beam: int) -> int:
    """How many leaves a beam ends with: a model with a prior has no regressors of nodes, and spends that on arms.

    The core has the same rule (`Prior::leaves`): labelled rows see as many arms as decisions do.

    >>> leaves(10)
    14
    """
    return beam * 7 // 5


def pooled_rounds(rounds: int) -> int:
    """How many rounds, the first ones, the pooled means are made of: they hold still until there are twice as many.

    Meanwhile what is left to explain of old samples is the same at every refit, and an arm without new ones keeps its
    weights to the bit. It depends on the number of rounds alone, so that a refit knows nothing of those before it.

    >>> pooled_rounds(0), pooled_rounds(1), pooled_rounds(1023), pooled_rounds(1024)
    (0, 1, 512, 1024)
    """
    return 1 << (rounds.bit_length() - 1) if rounds else 0


def interpolate(table: Floats, slack: Floats) -> Floats:
    """A table over evenly spaced slacks in [0, WIDEST], linear in between.

    >>> interpolate(np.array([1.0, 0.0]), np.array([1.0]))
    array([0.75])
    """
    return np.interp(slack, np.linspace(0, WIDEST, len(table)), table)


def pooled_means(slack: Floats, reward: Floats, weight: Floats) -> Floats:
    """Mean reward over slack at KNOTS places: each sample counts for the two places around it; never rising.

    >>> pooled_means(np.array([0.0, 0.0, 4.0]), np.array([1.0, 0.0, 0.0]), np.ones(3))[[0, -1]]
    array([0.5, 0. ])
    """
    place = slack / WIDEST * (KNOTS - 1)
    i = np.minimum(place.astype(np.int64), KNOTS - 2)
    part = place - i
    total, mass = np.zeros(KNOTS), np.zeros(KNOTS)
    for at, share in ((i, weight * (1 - part)), (i + 1, weight * part)):
        total += np.bincount(at, share * reward, KNOTS)
        mass += np.bincount(at, share, KNOTS)
    return _never_rising(total, mass)


def _never_rising(total: Floats, mass: Floats) -> Floats:
    """The weighted least-squares fit of means that never rise (pool adjacent violators); no data: as before it."""
    blocks: list[list[float]] = []  # total, mass, places
    for y, w in zip(total, mass, strict=True):
        blocks.append([y, w, 1])
        while len(blocks) > 1 and blocks[-1][1] * blocks[-2][0] <= blocks[-1][0] * blocks[-2][1]:
            y, w, n = blocks.pop()
            blocks[-1] = [blocks[-1][0] + y, blocks[-1][1] + w, blocks[-1][2] + n]
    return np.concatenate([np.full(int(n), y / w if w > 0 else 0.0) for y, w, n in blocks])


def _in_steps(start: Longs, order: Ints, new: Bools) -> tuple[Longs, Ints]:
    """Of the new samples of every group only the first ones, as many as there were when it last grew by a tenth.

    A group that has not grown by as much is the same as before and need not be solved again, however often there is a
    refit. `new` is of each sample; the others are kept.

    >>> start, order = np.array([0, 8]), np.arange(8, dtype=np.int32)
    >>> _in_steps(start, order, np.ones(8, bool))[1]
    array([0, 1, 2, 3, 4, 5, 6, 7], dtype=int32)
    >>> _in_steps(np.array([0, 12]), np.arange(12, dtype=np.int32), np.ones(12, bool))[0]  # the next step is 13
    array([ 0, 11])
    """
    fresh = new[order]
    rank = np.cumsum(fresh)
    before = np.concatenate([[0], rank])[start]
    kept = STEPS[np.searchsorted(STEPS, np.diff(before), side="right") - 1]
    group = np.repeat(np.arange(len(kept)), np.diff(start))
    keep = ~fresh | (rank - 1 - before[group] < kept[group])
    return np.concatenate([[0], np.cumsum(keep)])[start].astype(np.int64), order[keep]


def _latest(start: np.ndarray, order: Ints, window: int) -> tuple[np.ndarray, Ints]:
    """At most the last `window` samples of every group."""
    size = np.diff(start)
    if len(size) == 0 or size.max() <= window:
        return start, order
    kept = np.minimum(size, window)
    first = np.repeat(start[1:] - kept, kept)
    new = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    return new, order[first + np.arange(len(first)) - np.repeat(new[:-1], kept)]
