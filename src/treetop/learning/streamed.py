"""Treetop's learner over a history on disk: the model of `Pooled.learn`, byte for byte, in memory that does not grow
with the rounds.

What has no need of contexts is added up while the history is written (`ArmTotals`). Contexts are read part by part, to
be routed, and shard by shard, where functions of nodes and arms are fitted from them.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Bools, Fitted, Float32s, Floats, Int64s, Rows
from treetop.learning.array_folder import ArrayFolder, joined, sliced
from treetop.learning.context_map import map_bytes
from treetop.learning.history import Each, History, Part, gathered, median_norm, stacked
from treetop.learning.label_samples import LabelSamples
from treetop.learning.linear import Linear
from treetop.learning.part_scale import BLOCK, part_scale, scaled, unscaled_fit
from treetop.learning.placement import Votes, initial_tree, placed_by
from treetop.learning.pooled import ANCHORS, MEASURED_COST, PRIOR_COST, Pooled, anchors, node_mean, state_weights
from treetop.learning.pooled_means import KNOTS, MeanSums, interpolate, resampled, slack
from treetop.learning.routes import RouteCache, fold_routes, routed_samples
from treetop.learning.samples import by_group, context_norms, latest, reached_step, scaled_down, typical_square
from treetop.learning.shards import SAMPLE_BYTES, Resources, Shard, ranks, release_freed, renumbered, split
from treetop.learning.streamed_owner import Pieces, Told, told, with_streamed_map
from treetop.learning.streamed_routing import with_streamed_routes
from treetop.learning.trials import Trials
from treetop.model.model import Model
from treetop.model.pooled_state import PooledState
from treetop.model.prior import Prior, copyable
from treetop.records import Feedback

ARM_BYTES = 250  # that a refit keeps of an arm


def held_bytes(history: History, labels: LabelSamples | None, model: Model) -> float:
    """About what a refit holds however small its shards are: labels, what is kept of an arm, its largest part, and what
    a map between two spaces is learned from.

    >>> from treetop.learning.history import ArmTotals
    >>> from treetop.tree.tree import Tree
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), np.eye(2), np.eye(2))
    >>> held_bytes(History((), 2, ArmTotals.none(np.zeros(1000, bool)), Feedback.none(2, 1)), None, model)
    250000.0
    """
    arms, context = len(history.totals.shown), history.context_bytes
    part = max((part.rounds * (context + part.slots * SAMPLE_BYTES) for part in history.parts), default=0.0)
    known = 0 if labels is None else len(labels.arm) * SAMPLE_BYTES + len(labels.contexts.value) * 8
    samples = int(history.totals.shown.sum()) + (0 if labels is None else len(labels))
    return float(arms * ARM_BYTES + part + known + map_bytes(model, samples, int(history.totals.finds.sum())))


def learn_streamed(learner: Pooled, model: Model, history: History, work: Path, resources: Resources) -> Model:
    """The next model. `work` is a folder for what is handed over on disk, where the model's weights stay mapped.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.learning.history import HistoryWriter
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, X)
    >>> shown = Feedback(X, arms=[[0], [0]], nodes=None, rewards=[[1], [0]])
    >>> with TemporaryDirectory() as place:
    ...     writer = HistoryWriter(Path(place, "history"), columns=2, late=np.zeros(2, bool))
    ...     writer.add(shown)
    ...     learn_streamed(Pooled(), model, writer.done(shown), Path(place), Resources()).pooled.sample_count
    array([2, 0], dtype=int32)
    """
    totals = history.totals
    labels, labelled = learner.label_samples, learner.labelled(model.n_arms)
    by_measure = model.measure is not None and model.measure.routes
    moves = labels is not None and not by_measure
    votes = _votes(learner, model, history, labelled) if moves else Votes(model, labelled)
    trials = Trials.of_totals(totals, labelled, _lost(history, votes, labelled) if moves else None)
    initial_leaf = model.pooled.initial_leaf if model.pooled else None
    if labels is not None and moves:
        initial, tree = initial_tree(model).leaf_of, placed_by(votes, model, labelled, trials.value)
        model = model if tree is model.tree else replace(model, tree=tree, pooled=None)
        initial_leaf = None if np.array_equal(initial, tree.leaf_of) else initial
        if learner.mechanisms.route_arms:
            nothing, taught, start = np.zeros(model.n_arms), learner.mechanisms.learn_routing, model
            rounds = history if taught else History((), history.columns, type(totals).none(totals.late), history.recent)

            def place(first: int) -> Any:
                return placed_by(votes, start, labelled, nothing, first)

            model = with_streamed_routes(model, labels, rounds, place, work, resources)
    pool = learner.mechanisms.pool and not by_measure  # as in memory
    if pool or (model.prior is not None and model.prior.means is not None):
        labels = _routed(learner, model, history, work)
    model = with_streamed_map(model, labels, history, work / "vectors")
    pieces = Pieces(labels, history, learner.mechanisms.pool_rounds)
    known = told(model, pieces, work / "told")
    means = _means(pieces, known) if pool else np.zeros(KNOTS)
    rewards = _regressors(learner, model, pieces, known, labelled, means, work, resources)
    prior = known.prior
    if prior is not None and prior.means is not None:
        means = means + prior.scale * resampled(prior.means)
    count = totals.shown + (0 if labels is None else np.bincount(labels.arm, minlength=model.n_arms))
    if labels is not None:
        count[~labelled] //= ANCHORS
    pooled = PooledState(
        means=means.astype(np.float32),
        node_mean=node_mean(totals),
        new_arm_value=float(np.float32(trials.new_value)),
        exploration_net=trials.net,
        sample_count=count.astype(np.int32),
        trial_value=trials.value.astype(np.float32),
        initial_leaf=initial_leaf,
        new_trials=trials.new_trials,
        weights=state_weights(learner, history.recent, known.measured, prior is not None),
        measure_means=known.measured.means if known.measured else None,
        measure_range=known.measured.range if known.measured else (0.0, 1.0),
        examined=history.examined,
    )
    return replace(model, reward_rows=rewards, prior=prior, epoch=model.epoch + 1, n_seen=len(history), pooled=pooled)


def _votes(learner: Pooled, model: Model, history: History, labelled: Bools) -> Votes:
    votes = Votes(model, labelled)
    if learner.mechanisms.move_arms and not labelled.all():
        for part in history.parts:
            samples = part.samples(0, model.n_arms)
            new = np.flatnonzero((samples.reward > 0) & ~labelled[samples.arm])
            new = new[np.argsort(samples.row[new], kind="stable")]
            votes.add(samples.arm[new], samples.row[new].astype(np.int64), part.contexts, part.first)
    return votes


def _lost(history: History, votes: Votes, labelled: Bools) -> Bools | None:
    """Arms without labels all of whose rewarded rounds were deleted; None if none can be."""
    if history.past is None:
        return None
    lost = (history.totals.finds > 0) & ~labelled
    lost[list(votes.leaves())] = False
    return lost


def _routed(learner: Pooled, model: Model, history: History, work: Path) -> LabelSamples | None:
    """The label samples with their routes; writes the route of each reward beside the history."""
    cache = RouteCache(folder=work / "routers")
    nothing = Feedback.none(history.columns, 1)
    labels, _ = routed_samples(model, learner.label_samples, nothing, cache)
    routers = cache.prepared(model)
    fitted = model.learned_routing.rounds if model.learned_routing else 0
    for part in history.parts:
        samples = part.samples(0, model.n_arms)
        fold = np.where(np.arange(part.rounds) < fitted - part.first, part.arrays["fold"], len(routers) - 1)
        order = np.argsort(part.arrays["place"], kind="stable")
        row, arm = samples.row[order], samples.arm[order]
        route = np.empty(len(order))
        route[order] = fold_routes(routers, model.tree.leaf_of, part.contexts, fold, row, arm)
        part.arrays.put(slack=slack(route))
    return labels


def _means(pieces: Pieces, known: Told) -> Floats:
    """The pooled means of what the owner's measure and model leave over."""
    sums, labels, history = MeanSums(), pieces.labels, pieces.history
    if labels is not None:
        sums.add(slack(labels.log_route), known.left, labels.weight)
    for part in history.fitted if labels is None or pieces.pool_rounds else ():
        if (piece := pieces.of_part(part)).weight.any():
            left = piece.reward if "left" not in part.arrays else part.arrays["left"][piece.order]
            sums.add(part.arrays["slack"][piece.order], left, piece.weight)
    return sums.means()


def _regressors(
    learner: Pooled,
    model: Model,
    pieces: Pieces,
    known: Told,
    labelled: Bools,
    means: Floats,
    work: Path,
    resources: Resources,
) -> Fitted:
    """The arms' regressors of what the means leave over, shard by shard."""
    stage, history, labels, nodes = ArrayFolder.new(work / "rewards"), pieces.history, pieces.labels, model.tree.n_nodes
    totals, columns = history.totals, history.columns
    scale, norms = _norms(learner, pieces, stage)
    kept = reached_step(totals.shown, learner.mechanisms.growth)
    taken, label_count, rows = np.minimum(kept, learner.window), np.zeros(model.n_arms, np.int64), 0
    if labels is not None:
        shown = labels.weight > 0  # a label that no search finds is not shown either
        start, order = by_group(labels.arm[shown], model.n_arms)
        residual = (known.left - interpolate(means, slack(labels.log_route))).astype(np.float32)
        stage.put(label_start=start, label_row=labels.row[shown][order], label_target=residual[shown][order])
        stage.put_rows("labelled", labels.contexts)
        anchored = _put_anchors(stage, labels, model, (totals.finds > 0) & ~labelled)
        label_count, rows = np.diff(start) + anchored, len(labels.contexts)
    ordinary = median_norm(norms)
    solver = learner.solver(_cost(pieces, known, stage, scale, ordinary))
    stage.put(kept=kept, means=means, negligible=learner.negligible_weights(scale))
    stage.put(gone=totals.shown - _there(history, model.n_arms))
    if (before := copyable(model.reward_rows, model.prior, known.prior)) is not None:
        stage.put_rows("before", before)
    if known.prior is not None:
        stage.put_rows("prior", known.prior.rows)
    stage.put_facts(
        parts=[asdict(part) for part in history.parts],
        nodes=nodes,
        columns=columns,
        ordinary=ordinary,
        window=learner.window,
        solver={name: getattr(solver, name) for name in ("loss", "cost", "tolerance")},
        prior_scale=known.prior.scale if known.prior is not None else 0.0,
    )
    sizes = resources.sizes(taken, label_count, history.context_bytes, rows)
    ends = [(nodes + low, nodes + high) for low, high in split(sizes, resources.shard_bytes)]
    found = resources.map(_solve_shard, stage.path, [(0, nodes), *ends])
    return joined(found, "solved", stage, columns + 1)


def _norms(learner: Pooled, pieces: Pieces, stage: ArrayFolder) -> tuple[Float32s | None, Each[Floats]]:
    """The scale of parts of contexts, if there is one, and the lengths on it of contexts that tell which are outliers;
    writes those of all."""
    history, labels = pieces.history, pieces.labels
    known = () if labels is None else (labels.contexts,)
    scale = part_scale(Each(history.fitted, partial(_fitted_contexts, history), known), learner.vectors)
    of_labels = tuple(_lengths(rows, scale) for rows in known)
    if of_labels:
        stage.put(label_norm=of_labels[0])
    if scale is None:
        past = () if history.past is None else history.past.norms
        return None, Each(history.new_parts, lambda part: part.arrays["norm"], (*of_labels, *past))
    stage.put(scale=scale)
    for part in history.parts:
        part.arrays.put(scaled_norm=_lengths(part.contexts, scale))
    return scale, Each(history.fitted, lambda part: part.arrays["scaled_norm"][history.fitted_from(part) :], of_labels)


def _fitted_contexts(history: History, part: Part) -> Rows:
    return part.contexts.slice(history.fitted_from(part), part.rounds)


def _cost(pieces: Pieces, known: Told, stage: ArrayFolder, scale: Float32s | None, ordinary: float) -> float | None:
    """How strongly samples pull on regressors where the owner's measure or model has a say; None: as usual."""
    if known.measured is not None:
        return MEASURED_COST
    if known.prior is None:
        return None
    name, labels, history = "norm" if scale is None else "scaled_norm", pieces.labels, pieces.history
    of_labels = () if labels is None else (_lengths(labels.contexts, scale, stage["label_norm"], ordinary),)

    def lengths(part: Part) -> Floats:
        norms = part.arrays[name][history.fitted_from(part) :]
        return _lengths(_fitted_contexts(history, part), scale, norms, ordinary)

    return PRIOR_COST / typical_square(Each(history.fitted, lengths, of_labels))


def _lengths(contexts: Rows, scale: Float32s | None, norms: Any = None, ordinary: float = 0.0) -> Floats:
    """The length of each context on the scale of its parts; with these norms, outliers scaled down. Few are copied at
    a time."""
    found = [np.zeros(0)]
    for low in range(0, len(contexts), BLOCK):
        some = slice(low, min(low + BLOCK, len(contexts)))
        rows = contexts.slice(some.start, some.stop)
        rows = rows if scale is None else scaled(rows, scale)
        found.append(context_norms(rows if norms is None else scaled_down(rows, norms[some], ordinary)))
    return np.concatenate(found)


def _there(history: History, arms: int) -> Int64s:
    """(arms,): samples of each arm that are there; those that are gone were older."""
    if history.past is None:
        return history.totals.shown
    counts: Int64s = np.zeros(arms, np.int64)
    for part in history.parts:
        counts += np.bincount(part.arrays["arm"], minlength=arms)
    return counts


def _put_anchors(stage: ArrayFolder, labels: LabelSamples, model: Model, found: Bools) -> Int64s:
    """Writes the anchors of the leaves of some arms, which these arms share; how many each arm has."""
    leaf_of, nodes = model.tree.leaf_of, model.tree.n_nodes
    _, first = np.unique(leaf_of[found], return_index=True)
    row, arm = anchors(labels, model, np.flatnonzero(found)[first].astype(np.int32))  # of one arm a leaf
    start, order = by_group(leaf_of[arm], nodes)
    leaf = np.where(found, leaf_of, -1).astype(np.int32)
    stage.put(anchor_start=start, anchor_row=row[order], anchor_leaf=leaf)
    return np.where(found, np.diff(start)[leaf_of], 0)


def _labels_of(stage: ArrayFolder, low: int, high: int) -> tuple[Int64s, Any, Any]:
    """Arm, labelled row and target of what is known of arms before any round: anchors, then label samples."""
    leaf = np.asarray(stage["anchor_leaf"][low:high])
    found, starts = np.flatnonzero(leaf >= 0), np.asarray(stage["anchor_start"])
    first = starts[leaf[found]]
    count = starts[leaf[found] + 1] - first
    place = np.arange(int(count.sum())) + np.repeat(first - (np.cumsum(count) - count), count)
    start = stage["label_start"]
    a, b = int(start[low]), int(start[high])
    arm = np.repeat(low + found, count), np.repeat(np.arange(low, high), np.diff(start[low : high + 1]))
    target = np.zeros(len(place), np.float32), stage["label_target"][a:b]
    return (
        np.concatenate(arm),
        np.concatenate([stage["anchor_row"][place], stage["label_row"][a:b]]),
        np.concatenate(target),
    )


def _solve_shard(shard: Shard) -> str:
    """Solves the regressors of a shard's arms; gives the folder that it wrote."""
    release_freed()
    stage = shard.stage
    facts = stage.facts()
    columns, nodes = facts["columns"], facts["nodes"]
    low, high = max(0, shard.low - nodes), max(0, shard.high - nodes)
    contexts, norms, arm, row, target = _round_samples(stage, facts, low, high)
    if "label_start" in stage:
        label_arm, label_row, label_target = _labels_of(stage, low, high)
        rows, place = np.unique(label_row, return_inverse=True)
        x = gathered(stage.rows("labelled", columns), rows)
        contexts, norms = [x, *contexts], [stage["label_norm"][rows], *norms]
        arm, target = np.concatenate([label_arm, arm]), np.concatenate([label_target, target])
        row = np.concatenate([place, len(rows) + row])
    x, scale = stacked(contexts, columns), np.array(stage["scale"]) if "scale" in stage else None
    x = scaled_down(x if scale is None else scaled(x, scale), np.concatenate([np.zeros(0), *norms]), facts["ordinary"])
    start, order = by_group((arm - low).astype(np.int32), shard.high - shard.low)  # nodes have no samples
    start, order = latest(start, order, facts["window"])
    solver = Linear(**facts["solver"], threads=shard.threads)
    before = stage.rows("before", columns + 1) if "before_start" in stage else None
    copied: Rows | None = sliced(before, shard.low, shard.high) if isinstance(before, Fitted) else None
    copied = copied if scale is None else unscaled_fit(copied, scale)
    problems = start, row[order].astype(np.int32), target[order].astype(np.float32)
    fitted = solver.solve(x, *problems, copied, thresholds=np.array(stage["negligible"]), first=shard.low)
    fitted = fitted if scale is None else scaled(fitted, scale)
    if "prior_start" in stage:
        prior = Prior(stage.rows("prior", columns + 1).slice(shard.low, shard.high), scale=facts["prior_scale"])
        fitted = prior.added(fitted, copied)
    return shard.write(lambda out: out.put_rows("solved", fitted))


def _round_samples(stage: ArrayFolder, facts: Any, low: int, high: int) -> tuple[list[Any], list[Any], Any, Any, Any]:
    """Contexts and their norms, and of every sample its arm, the place of its context, and what the means leave over.

    Of an arm with more samples than its step says the later ones wait; of the others the latest `window` count.
    """
    kept = np.array(stage["kept"][low:high])
    means, seen = np.asarray(stage["means"]), np.array(stage["gone"][low:high])
    found: list[tuple[Any, ...]] = []
    contexts, norms, count = [], [], 0
    for part in (Part(**part) for part in facts["parts"]):
        samples = part.samples(low, high)
        at = samples.arm - np.int32(low)
        rank = ranks(at, seen)
        some = np.flatnonzero((rank < kept[at]) & (rank >= kept[at] - facts["window"]))
        if len(some) == 0:
            continue
        rows, place = renumbered(samples.row, some)
        contexts.append(gathered(part.contexts, rows))
        arrays, own = part.arrays, samples.first + some
        norms.append(arrays["scaled_norm" if "scale" in stage else "norm"][rows])
        residual = arrays["left"][own] if "left" in arrays else samples.reward[some]
        if "slack" in arrays:
            residual = residual - interpolate(means, arrays["slack"][own])
        found.append((samples.arm[some].astype(np.int64), count + place, residual.astype(np.float32)))
        count += len(rows)
    none = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
    arm, row, target = (np.concatenate(columns) for columns in zip(none, *found, strict=True))
    return contexts, norms, arm, row, target
