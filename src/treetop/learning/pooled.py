"""Treetop's own learner: arms share what is known of their routing score. docs/learner.md states it.

    score(x, arm) = pooled mean at the routing score of the arm + ridge regression of what that leaves over

An arm that was never tried is judged by where it stands in the beam, and labelled rows serve as samples. Pruned nodes
score the mean reward of arms that were drawn through nodes; they have no regressors, so arms may move between refits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from treetop.arrays import Bools, Float32s, Int64s, Ints, Rows, as_rows, check_float, check_int
from treetop.effort import Progress
from treetop.learning.arm_routing import with_arm_routes
from treetop.learning.arm_totals import ArmTotals
from treetop.learning.component_weights import FIRST, UNLABELLED_FIRST, component_weights
from treetop.learning.context_map import with_learned_map
from treetop.learning.examination import if_examined
from treetop.learning.label_samples import LabelSamples
from treetop.learning.linear import NO_THRESHOLDS, Linear
from treetop.learning.measured import Measured
from treetop.learning.part_scale import part_scale, scaled, unscaled_fit
from treetop.learning.placement import initial_tree, placed, rewarded_unlabelled
from treetop.learning.pooled_means import (
    KNOTS,
    first_fitted,
    interpolate,
    pooled_means,
    resampled,
    round_weights,
    slack,
)
from treetop.learning.prior_scale import scaled_prior
from treetop.learning.routes import RouteCache, routed_samples
from treetop.learning.routing_samples import thresholds
from treetop.learning.samples import (
    Samples,
    by_group,
    check_fits,
    context_norms,
    latest,
    latest_step,
    typical_square,
    without_outliers,
)
from treetop.learning.trials import Trials
from treetop.model.model import Model
from treetop.model.pooled_state import MEASURED_WEIGHTS, PooledState
from treetop.model.prior import Prior, copyable
from treetop.records import Feedback
from treetop.tree.tree import Tree

# How strongly samples pull on an arm's regressor, unless `cost` says it: little where labels have told of the arm.
LABELLED_COST, UNLABELLED_COST = 0.1, 1.0
MEASURED_COST = 0.005  # and least where the owner's measure tells most of the reward beforehand
# And where the owner's model does, for [x; 1] of length 1; its first weights.
PRIOR_COST, PRIOR_FIRST = 0.06, (1.0, 1.0)
# Pseudo-samples of residual 0 for an arm without labels that has rewards; also divides the counts of such arms.
ANCHORS = 32
NEGLIGIBLE = 0.002  # what the weights of regressors that are dropped change a score by, about; rewards are in [0, 1]
DRAWS = 3000  # weight of the guess that a draw through a node brings nothing, in draws


@dataclass(frozen=True)
class Mechanisms:
    """The learner's parts, each of which can be switched off to measure what it brings (`benchmarks/ablate.py`).

    - `pool`: scores start from the pooled mean at their routing score; off: from 0
    - `route_arms`: routing ends at the arm and learns from rounds; off: at the leaf, and stays as it was built
    - `learn_routing`: rounds teach routing; off: labels alone do
    - `own`: an arm has a regressor of its own; off: it counts nothing
    - `weigh`: the components are weighed by what they said beforehand, with labels or item vectors; off: by the first
      weights
    - `pool_rounds`: the pooled means are of labels and rounds together; off: of the labels alone where there are any
    - `move_arms`: an arm without labels goes to the leaf where its rewards were found
    - `growth`: an arm is fitted again when it has so many times the samples; 1: at every new sample

    >>> Pooled(mechanisms=Mechanisms(move_arms=False)).mechanisms.move_arms
    False
    """

    pool: bool = True
    route_arms: bool = True
    learn_routing: bool = True
    own: bool = True
    weigh: bool = True
    pool_rounds: bool = False
    move_arms: bool = True
    growth: float = 1.1

    def __post_init__(self) -> None:
        for name in ("pool", "route_arms", "learn_routing", "own", "weigh", "pool_rounds", "move_arms"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, not {getattr(self, name)!r}")
        check_float("growth", self.growth, 1, 1000)


@dataclass(frozen=True)
class Pooled:
    """Expected reward = (mean reward of arms with that routing score) + (the arm's own linear function of [x; 1]).

    The arm's function is ridge regression of what the pooled mean leaves over, so that with few samples it stays near
    0. At most the latest `window` samples of an arm count; `label_samples` come before all rounds.

    The pooled means are those of the label samples if there are any: these cover every arm that a beam finds. Rounds
    cover only arms that the policy chose, which earn more than others; means of rounds overrate untried arms.

    `vectors` are the parts of contexts that are vectors, each by its first column and how many it has.

    `route_cache` spares callers who refit one growing history again and again most of the routing; without one nothing
    is remembered, with one the models are the same.

    >>> from treetop.learning.refit import refit
    >>> from treetop.tree.tree import Tree
    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> monday = Feedback(X, arms=[[0], [1], [2], [3]], nodes=None, rewards=[[1], [1], [0], [float("nan")]])
    >>> refit(model, monday, Pooled()).pooled.sample_count
    array([1, 1, 1, 0], dtype=int32)
    """

    cost: float | None = None
    tolerance: float = 0.1
    window: int = 8192
    label_samples: LabelSamples | None = None
    mechanisms: Mechanisms = field(default_factory=Mechanisms)
    threads: int = 0
    vectors: tuple[tuple[int, int], ...] = ()
    route_cache: RouteCache | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.cost is not None:
            check_float("cost", self.cost, 1e-12, 1e12)
        check_float("tolerance", self.tolerance, 1e-12, 1e3)
        check_int("window", self.window, 1)
        if not (self.label_samples is None or isinstance(self.label_samples, LabelSamples)):
            raise TypeError(f"label_samples must be LabelSamples, not {type(self.label_samples).__name__}")
        self.solver()  # which refuses what it cannot take

    def solver(self, cost: float | None = None) -> Linear:
        """How the arms' regressors are fitted, with this cost unless the settings say one.

        >>> Pooled().solver().cost
        1.0
        """
        usual = UNLABELLED_COST if self.label_samples is None else LABELLED_COST
        return Linear(cost=self.cost or cost or usual, tolerance=self.tolerance, threads=self.threads)

    def learn(self, model: Model, feedback: Feedback, progress: Progress | None = None) -> Model:
        """The next model: what is pooled, and the arms' regressors. What `refit` calls.

        >>> from treetop.tree.tree import Tree
        >>> X = Y = np.eye(2, dtype=np.float32)
        >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
        >>> Pooled().learn(model, Feedback(X, arms=[[0], [0]], nodes=None, rewards=[[1], [0]])).pooled.sample_count
        array([2, 0], dtype=int32)
        """
        check_fits(feedback, model, any_tree=True)
        if self.label_samples is not None:
            self.label_samples.check_fits(model.n_arms, model.n_features)
        feedback, examined = if_examined(model, feedback)
        labelled = self.labelled(model.n_arms)
        totals = ArmTotals.of(feedback, model.n_arms)
        trials = Trials.of_totals(totals, labelled)
        model, initial_leaf = self._placed(model, feedback, labelled, trials)
        by_measure = model.measure is not None and model.measure.routes
        if (labels := self.label_samples) is not None and self.mechanisms.route_arms and not by_measure:
            place, taught = partial(self._place, model, labelled), self.mechanisms.learn_routing
            model = with_arm_routes(model, labels, feedback if taught else feedback.head(0), place, self.threads)
        samples, recent = self._samples(model, feedback)
        fitted = recent[samples.row]
        latest_ones = samples if fitted.all() else samples.take(fitted)
        model = with_learned_map(model, latest_ones, bool((samples.reward > 0).any()))
        slacks = slack(samples.log_route)
        measured = Measured.of(model, samples, fitted)
        left = samples.reward if measured is None else samples.reward - measured.said
        prior, said = scaled_prior(model, samples, slacks, left, fitted)
        left = left if said is None else left - said
        pool = self.mechanisms.pool and not by_measure  # then the measure itself says more than its routing
        means = pooled_means(slacks, left, samples.weight) if pool else np.zeros(KNOTS)
        residual = (left - interpolate(means, slacks)).astype(np.float32)
        count = np.bincount(samples.arm, minlength=model.n_arms)
        found = np.zeros(0, np.int32)
        if self.label_samples is not None:
            found = np.unique(rewarded_unlabelled(feedback, labelled)[0])
            count[~labelled] //= ANCHORS
        start, rows, targets = self._problems(model, samples, residual, found)
        problems = start, rows, targets
        rewards = self._regressors(model, samples.contexts, recent, problems, measured is not None, prior, progress)
        if prior is not None and prior.means is not None:
            means = means + prior.scale * resampled(prior.means)
        pooled = PooledState(
            means=means.astype(np.float32),
            node_mean=node_mean(totals),
            new_arm_value=float(np.float32(trials.new_value)),
            exploration_net=trials.net,
            sample_count=count.astype(np.int32),
            trial_value=trials.value.astype(np.float32),
            initial_leaf=initial_leaf,
            new_trials=trials.new_trials,
            weights=state_weights(self, feedback, measured, prior is not None),
            measure_means=measured.means if measured else None,
            measure_range=measured.range if measured else (0.0, 1.0),
            examined=examined,
        )
        return replace(
            model, reward_rows=rewards, prior=prior, epoch=model.epoch + 1, n_seen=len(feedback), pooled=pooled
        )

    def _regressors(
        self,
        model: Model,
        contexts: Rows,
        recent: Bools,
        problems: tuple[Int64s, Ints, Float32s],
        measured: bool,
        prior: Prior | None,
        progress: Progress | None,
    ) -> Rows:
        """The arms' regressors. Where contexts have parts, these are on one scale while they are fitted, that of the
        `recent` contexts."""
        some = contexts if recent.all() else as_rows(contexts.csr()[recent])
        scale = part_scale([some], self.vectors)
        contexts = without_outliers(contexts) if scale is None else without_outliers(scaled(contexts, scale), recent)
        before = copyable(model.reward_rows, model.prior, prior)
        before = before if scale is None else unscaled_fit(before, scale)
        cost = MEASURED_COST if measured else None
        if prior is not None and not measured:
            cost = PRIOR_COST / typical_square([context_norms(contexts)[recent]])
        found = self.solver(cost).solve(contexts, *problems, before, progress, self.negligible_weights(scale))
        found = found if scale is None else scaled(found, scale)
        return found if prior is None else prior.added(found, before)

    def negligible_weights(self, scale: Float32s | None = None) -> Float32s:
        """Regressors have no weights up to these, one a feature; judged by the labelled rows, on the scale of parts.
        Of a feature that no labelled row has nobody knows how large it is: its weights are kept.

        >>> Pooled().negligible_weights()  # without labels all are kept
        array([], dtype=float32)
        """
        if self.label_samples is None:
            return NO_THRESHOLDS
        labelled = self.label_samples.contexts
        found = thresholds(labelled if scale is None else scaled(labelled, scale), NEGLIGIBLE)
        found[:-1][np.bincount(labelled.index, minlength=labelled.columns) == 0] = 0
        return found

    def labelled(self, arms: int) -> Bools:
        """Which arms have labels; without label samples all count as if they had.

        >>> Pooled().labelled(2)
        array([ True,  True])
        """
        return np.ones(arms, np.bool_) if self.label_samples is None else self.label_samples.labelled_arms(arms)

    def _placed(self, model: Model, feedback: Feedback, labelled: Bools, trials: Trials) -> tuple[Model, Ints | None]:
        """The model with arms without labels where they belong, and the leaves before any moved, if any did.

        Routing by the owner's measure finds arms where their vectors are: none moves.
        """
        if self.label_samples is None or (model.measure is not None and model.measure.routes):
            return model, model.pooled.initial_leaf if model.pooled else None
        initial = initial_tree(model).leaf_of
        tree = placed(model, feedback, labelled, trials.value, vote=self.mechanisms.move_arms)
        moved = model if tree is model.tree else replace(model, tree=tree, pooled=None)
        return moved, None if np.array_equal(initial, tree.leaf_of) else initial

    def _place(self, model: Model, labelled: Bools, rounds: Feedback) -> Tree:
        """Where arms belong by some rounds alone."""
        return placed(model, rounds, labelled, np.zeros(model.n_arms), vote=self.mechanisms.move_arms)

    def _samples(self, model: Model, feedback: Feedback) -> tuple[Samples, Bools]:
        """Every observed reward, behind the label samples if there are any; and which of their contexts means, curves,
        scales and maps are fitted to."""
        labels, routes = routed_samples(model, self.label_samples, feedback, self.route_cache)
        t, slot = np.nonzero(feedback.observed)
        arm, reward, route = feedback.arms[t, slot], feedback.rewards[t, slot], routes[t, slot]
        weight = round_weights(t, len(feedback), None if labels is None else float(self.mechanisms.pool_rounds))
        rounds = Samples(feedback.contexts, t.astype(np.int32), arm, reward, route, weight)
        recent = np.arange(len(feedback)) >= first_fitted(len(feedback))
        if labels is None:
            return rounds, recent
        return labels + rounds, np.concatenate([np.ones(len(labels.contexts), np.bool_), recent])

    def _problems(
        self, model: Model, samples: Samples, residual: Float32s, found: Ints
    ) -> tuple[Int64s, Ints, Float32s]:
        """The regressions as the solver takes them: where each begins, rows of contexts, targets."""
        tree, labels = model.tree, self.label_samples
        anchor_row, anchor_arm = anchors(labels, model, found) if labels is not None else (found, found)
        rows_before = 0 if labels is None else len(labels.contexts)
        shown = (samples.row >= rows_before) | (samples.weight > 0)  # a label that no search finds is not shown either
        row, arm = np.concatenate([anchor_row, samples.row[shown]]), np.concatenate([anchor_arm, samples.arm[shown]])
        target = np.concatenate([np.zeros(len(anchor_arm), np.float32), residual[shown]])
        start, order = by_group(tree.n_nodes + arm, tree.n_nodes + tree.n_arms)
        is_round = row >= rows_before
        start, order = latest_step(start, order, is_round, self.mechanisms.growth)
        start, order = latest(start, order, self.window)
        return start, row[order], target[order]


def node_mean(totals: ArmTotals) -> float:
    """The mean reward of draws through nodes, with DRAWS more that brought nothing.

    >>> drawn = Feedback(np.ones((1, 1)), arms=[[0]], nodes=[[0]], rewards=[[1.0]])
    >>> round(1 / node_mean(ArmTotals.of(drawn, 1)))
    3001
    """
    return float(np.float32(totals.drawn_reward.sum() / (int(totals.drawn.sum()) + DRAWS)))


def state_weights(
    learner: Pooled, feedback: Feedback, measured: Measured | None, prior: bool = False
) -> tuple[float, ...]:
    """How much each component of a score counts.

    >>> state_weights(Pooled(), Feedback.none(1, 1), None) == UNLABELLED_FIRST  # without labels they stay
    True
    """
    labelled = learner.label_samples is not None and len(learner.label_samples) > 0
    first = MEASURED_WEIGHTS if measured is not None else FIRST if labelled else UNLABELLED_FIRST
    first = (*PRIOR_FIRST, *first[2:]) if prior else first
    if measured is not None and not measured.in_sample:
        feedback = _measured_again(feedback, measured)
    known = learner.label_samples is not None or measured is not None or prior
    pooled, own, *more = component_weights(feedback, first) if learner.mechanisms.weigh and known else first
    return pooled, own if learner.mechanisms.own else 0.0, *more


def _measured_again(feedback: Feedback, measured: Measured) -> Feedback:
    """The rounds with what the curve of now says in place of what an earlier one said.

    It has two numbers for all arms: having seen the rewards makes it no better a judge of them.
    """
    if feedback.components is None or feedback.components.shape[2] != len(MEASURED_WEIGHTS):
        return feedback
    components = feedback.components.copy()
    t, slot = np.nonzero(feedback.observed)
    components[t, slot, -1] = measured.said[len(measured.said) - len(t) :]
    return replace(feedback, components=components)


def anchors(labels: LabelSamples, model: Model, arms: Ints) -> tuple[Ints, Ints]:
    """Labelled rows that lead to the leaf of each of these arms, to be samples of a residual of 0: (rows, arms).

    One reward that was found by chance would otherwise be expected of every context that leads there.

    >>> X = Y = np.eye(2, dtype=np.float32)
    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 2])
    >>> labels = LabelSamples.of(tree, X, np.eye(2, 3), beam=1)
    >>> [part.tolist() for part in anchors(labels, Model.initial(tree, X, np.eye(2, 3)), np.array([2], np.int32))]
    [[0, 1], [2, 2]]
    """
    tree = model.tree
    asked = np.zeros(tree.n_nodes, np.bool_)
    asked[tree.leaf_of[arms]] = True
    leaf_of = tree.leaf_of[labels.arm]
    near = np.flatnonzero(asked[leaf_of])
    start, order = by_group(leaf_of[near], tree.n_nodes)
    some: dict[int, Ints] = {}
    for leaf in np.flatnonzero(asked).tolist():
        rows = np.unique(labels.row[near[order[start[leaf] : start[leaf + 1]]]])
        few = min(len(rows), ANCHORS)
        some[leaf] = rows[np.arange(few) * len(rows) // max(1, few)]
    row = [some[leaf] for leaf in tree.leaf_of[arms].tolist()]
    return np.concatenate([labels.row[:0], *row]), np.repeat(arms, [len(rows) for rows in row]).astype(np.int32)
