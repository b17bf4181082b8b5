"""The paper's learner over a history on disk: the model of `Linear.learn`, byte for byte, shard by shard of nodes and
arms. Knows no labels and no routing."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Fitted, Int64s, Rows
from treetop.learning.array_folder import ArrayFolder, joined, sliced
from treetop.learning.history import Each, History, Part, gathered, median_norm, stacked
from treetop.learning.linear import Linear
from treetop.learning.samples import by_group, scaled_down
from treetop.learning.shards import Resources, Shard, ranks, release_freed, renumbered, split
from treetop.model.model import Model
from treetop.model.prior import Prior, copyable


def learn_linear_streamed(learner: Linear, model: Model, history: History, work: Path, resources: Resources) -> Model:
    """The next model. `work` is a folder for what is handed over on disk, where the model's weights stay mapped; the
    history has its samples by node, too.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.learning.history import HistoryWriter
    >>> from treetop.records import Feedback
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, X)
    >>> shown = Feedback(X, arms=[[0], [0]], nodes=[[-1], [1]], rewards=[[1], [1]])
    >>> with TemporaryDirectory() as place:
    ...     writer = HistoryWriter(Path(place, "history"), columns=2, late=np.zeros(2, bool), nodes=True)
    ...     writer.add(shown)
    ...     found = learn_linear_streamed(Linear(), model, writer.done(shown), Path(place), Resources())
    ...     np.diff(found.reward_rows.start).tolist()  # weights of three nodes and two arms
    [0, 2, 0, 3, 0]
    """
    stage, nodes, members = ArrayFolder.new(work / "rewards"), model.tree.n_nodes, model.tree.n_nodes + model.n_arms
    counts = _counts(history, nodes, members)
    prior = None if model.prior is None else replace(model.prior, scale=1.0)
    if (before := copyable(model.reward_rows, model.prior, prior)) is not None:
        stage.put_rows("before", before)
    if prior is not None:
        stage.put_rows("prior", prior.rows)
    past = () if history.past is None else history.past.norms
    read = np.minimum(counts, learner.window) if learner.window else counts
    stage.put(gone=counts - read)
    stage.put_facts(
        parts=[asdict(part) for part in history.parts],
        nodes=nodes,
        columns=history.columns,
        ordinary=median_norm(Each(history.new_parts, lambda part: part.arrays["norm"], past)),
        solver={name: getattr(learner, name) for name in ("loss", "cost", "tolerance")},
    )
    sizes = resources.sizes(read, 0, history.context_bytes, 0)
    of_nodes, of_arms = (split(part, resources.shard_bytes) for part in (sizes[:nodes], sizes[nodes:]))
    ends = of_nodes + [(nodes + low, nodes + high) for low, high in of_arms]
    found = joined(resources.map(_solve_shard, stage.path, ends), "solved", stage, history.columns + 1)
    return replace(model, reward_rows=found, prior=prior, epoch=model.epoch + 1, n_seen=len(history), pooled=None)


def _counts(history: History, nodes: int, members: int) -> Int64s:
    """(members,): samples that are there of each node and arm."""
    counts = np.zeros(members, np.int64)
    for part in history.parts:
        counts += np.bincount(part.arrays["node"], minlength=members)
        counts[nodes:] += np.bincount(part.arrays["arm"], minlength=members - nodes)
    return counts


def _solve_shard(shard: Shard) -> str:
    """Solves the regressors of a shard's nodes, or of its arms; gives the folder that it wrote."""
    release_freed()
    stage = shard.stage
    facts = stage.facts()
    columns = facts["columns"]
    contexts, norms, group, row, target = _samples(stage, facts, shard.low, shard.high)
    before = stage.rows("before", columns + 1) if "before_start" in stage else None
    known: Rows | None = sliced(before, shard.low, shard.high) if isinstance(before, Fitted) else None
    prior = None
    if "prior_start" in stage:
        prior = Prior(stage.rows("prior", columns + 1).slice(shard.low, shard.high))
        target = (target - prior.scores(contexts, row, group)).astype(np.float32)
    start, order = by_group(group.astype(np.int32), shard.high - shard.low)
    problems = start, row[order].astype(np.int32), target[order]
    x = scaled_down(contexts, norms, facts["ordinary"])
    fitted = Linear(**facts["solver"], threads=shard.threads).solve(x, *problems, known, first=shard.low)
    solved = fitted if prior is None else prior.added(fitted, known)
    return shard.write(lambda out: out.put_rows("solved", solved))


def _samples(stage: ArrayFolder, facts: Any, low: int, high: int) -> tuple[Rows, Any, Any, Any, Any]:
    """Contexts and their norms; of every sample that the window has its node or arm, counted from `low`, the place of
    its context, and its reward."""
    gone, seen = np.array(stage["gone"][low:high]), np.zeros(high - low, np.int64)
    nodes, count = facts["nodes"], 0
    contexts, norms = [], [np.zeros(0)]
    found: list[tuple[Any, ...]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))]
    for part in (Part(**part) for part in facts["parts"]):
        samples = part.through(low, high) if low < nodes else part.samples(low - nodes, high - nodes)
        group = samples.arm.astype(np.int64) - (low if low < nodes else low - nodes)
        some = np.flatnonzero(ranks(group, seen) >= gone[group])
        rows, place = renumbered(samples.row, some)
        contexts.append(gathered(part.contexts, rows))
        norms.append(part.arrays["norm"][rows])
        found.append((group[some], count + place, samples.reward[some]))
        count += len(rows)
    group, row, target = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return stacked(contexts, facts["columns"]), np.concatenate(norms), group, row, target
