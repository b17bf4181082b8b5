"""Routing learned from a history on disk, shard by shard: the same, byte for byte, as `arm_routing` makes in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Fitted, Int64s, Rows
from treetop.learning.arm_routing import NO_ROUNDS, TOLERANCES, RoutingDigest, fold_of, rounds_for_routing, with_learned
from treetop.learning.array_folder import ArrayFolder, joined, sliced
from treetop.learning.history import History, Part, gathered, stacked
from treetop.learning.label_samples import LabelSamples
from treetop.learning.routing_samples import WINDOW, LabelledRows, RoutingFit, nodes_above, thresholds, unknown_rows
from treetop.learning.shards import SHARED_BYTES, Resources, Shard, ranks, release_freed, renumbered, split
from treetop.model.learned_routing import FOLDS
from treetop.model.model import Model
from treetop.tree.tree import Tree


def with_streamed_routes(
    model: Model, labels: LabelSamples, history: History, place: Callable[[int], Tree], work: Path, resources: Resources
) -> Model:
    """As `with_arm_routes`; `place` says where arms belong by so many of the rounds, the first ones.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.learning.history import HistoryWriter
    >>> from treetop.records import Feedback
    >>> X = Y = np.tile(np.eye(4, dtype=np.float32), (8, 1))
    >>> tree = Tree.from_labels(X, Y, max_leaf=2)
    >>> model, labels = Model.initial(tree, X, Y), LabelSamples.of(tree, X, Y)
    >>> with TemporaryDirectory() as place:
    ...     writer = HistoryWriter(Path(place, "history"), columns=4, late=np.zeros(4, bool))
    ...     history, work = writer.done(Feedback.none(4, 1)), Path(place)
    ...     learned = with_streamed_routes(model, labels, history, lambda rounds: tree, work, Resources())
    ...     len(learned.route_rows) == tree.n_nodes + tree.n_arms
    True
    """
    if model.geometric:
        return model
    rounds, past = rounds_for_routing(len(labels.contexts), len(history)), model.learned_routing
    digest = _digest(model.tree, labels, history, rounds)
    if past is not None and past.digest == digest:
        return model
    base = past.base if past is not None else model.route_rows.head(model.tree.n_nodes)
    before = (*past.held_out, model.route_rows) if past is not None else ()
    stage = ArrayFolder.new(work / "routing")
    tree = place(rounds)
    counts = _counts(history, tree, rounds, stage)
    labelled, family = _put_labels(stage, tree, labels)
    stage.put_rows("unknown", unknown_rows(base, tree.n_arms))
    for i, rows in enumerate(before):
        stage.put_rows(f"before_{i}", rows)
    nodes, columns = tree.n_nodes, history.columns
    facts = {"nodes": nodes, "members": nodes + tree.n_arms, "rounds": rounds, "columns": columns}
    stage.put_facts(parts=[asdict(part) for part in history.parts], before=len(before), **facts)
    taken = np.minimum(counts, WINDOW)
    sizes = resources.sizes(taken, labelled, history.context_bytes, len(labels.contexts), SHARED_BYTES, family)
    of_nodes, of_arms = (split(part, resources.shard_bytes) for part in (sizes[:nodes], sizes[nodes:]))
    pieces = resources.map(_fit_shard, stage.path, of_nodes + [(nodes + low, nodes + high) for low, high in of_arms])
    fitted = [joined(pieces, f"fitted_{i}", stage, columns + 1) for i in range(FOLDS + 1)]
    return with_learned(model, base, fitted, digest, rounds)


def _digest(tree: Tree, labels: LabelSamples, history: History, rounds: int) -> int:
    past: tuple[int, ...] = NO_ROUNDS
    more: tuple[int, ...] = ()
    if history.past is not None:
        summed = history.past.totals.rounds
        past, more = history.past.checksums, (rounds,) if rounds < summed else ()  # of which they say nothing then
    digest = RoutingDigest(tree, labels, past, more)
    for part, some in _first(history, rounds):
        if part.summed:
            continue
        arrays, contexts = part.arrays, part.contexts.head(some)
        within = np.flatnonzero(arrays["place"] < some * part.slots)
        within = within[np.argsort(arrays["place"][within])]
        digest.add(contexts, arrays["place"][within] // part.slots, arrays["arm"][within], arrays["reward"][within])
    return digest.value()


def _first(history: History, rounds: int) -> list[tuple[Part, int]]:
    """The parts of the first rounds, and how many of their rounds belong to these."""
    return [(part, min(part.rounds, rounds - part.first)) for part in history.parts if part.first < rounds]


def _counts(history: History, tree: Tree, rounds: int, stage: ArrayFolder) -> Int64s:
    """(members,): how many samples of rounds each function has.

    Writes the pairs of a node and a round in which something was found below it beside each part of the history.
    """
    members = tree.n_nodes + tree.n_arms
    counts = np.zeros(members, np.int64)
    right = np.zeros(members, np.bool_)
    for part, some in _first(history, rounds):
        samples = part.samples(0, tree.n_arms)
        within = samples.row < some
        arm, row, found = samples.arm[within], samples.row[within], samples.reward[within] > 0
        node, pair_row = nodes_above(tree, arm[found], row[found].astype(np.int64))
        part.arrays.put(pair_node=node.astype(np.int32), pair_row=pair_row.astype(np.int32))
        right[np.concatenate([node, tree.n_nodes + arm[found]])] = True
        for group in (node, tree.n_nodes + arm):
            counts += np.bincount(group, minlength=members)
    stage.put(counts=counts, right=right)
    return counts


def _put_labels(stage: ArrayFolder, tree: Tree, labels: LabelSamples) -> tuple[Int64s, Int64s]:
    """Writes what the labelled rows say, by node and arm; how many samples of them each function has, and how many
    functions have the same ones."""
    right, arms = labels.reward > 0, tree.n_arms
    ones = np.ones(int(right.sum()), np.float32)
    Y = sp.csr_matrix((ones, (labels.row[right], labels.arm[right])), shape=(len(labels.contexts), arms))
    known = LabelledRows.of(tree, Y)
    stage.put(**{f"label_{name}": array for name, array in vars(known).items()})
    stage.put(label_fold=fold_of(labels.contexts).astype(np.uint8))
    stage.put(thresholds=thresholds(labels.contexts))
    stage.put_rows("labelled", labels.contexts)
    taught = ((np.diff(known.right_start) > 0) | stage["right"]) & (known.above >= 0)
    family = np.bincount(known.above[taught], minlength=tree.n_nodes)[np.maximum(known.above, 0)]
    return np.where(taught, known.counts(), 0), np.maximum(1, family)


def _fit_shard(shard: Shard) -> str:
    """Fits the functions of a shard's nodes, or of its arms; gives the folder that it wrote."""
    release_freed()
    stage, low, high = shard.stage, shard.low, shard.high
    facts = stage.facts()
    columns = facts["columns"]
    contexts, folds, member, row, positive = _round_samples(stage, facts, low, high)
    known = LabelledRows(**{field.name: stage[f"label_{field.name}"] for field in fields(LabelledRows)})
    labelled = known.problems(low, high, member, row, positive)
    rows, place = np.unique(labelled.shared_row, return_inverse=True)
    x = stacked([gathered(stage.rows("labelled", columns), rows), *contexts], columns)
    fold = np.concatenate([stage["label_fold"][rows], *folds]) == 1
    problems = replace(
        labelled,
        shared_row=place.astype(np.int32),
        right_row=np.searchsorted(rows, labelled.right_row).astype(np.int32),
        row=(len(rows) + labelled.row).astype(np.int32),
    )
    past = [stage.rows(f"before_{i}", columns + 1) for i in range(facts["before"])]
    same = [rows for rows in past if isinstance(rows, Fitted) and len(rows) == facts["members"]]
    before = [sliced(rows, low, high) for rows in same] if len(same) == FOLDS + 1 else None
    fit = RoutingFit(TOLERANCES, np.asarray(stage["thresholds"]), shard.threads)
    unknown = stage.rows("unknown", columns + 1).slice(low, high)

    def fill(out: ArrayFolder) -> None:
        for i, fitted in enumerate(fit(x, problems, fold, unknown, before)):
            out.put_rows(f"fitted_{i}", fitted)

    return shard.write(fill)


def _round_samples(stage: ArrayFolder, facts: Any, low: int, high: int) -> tuple[list[Rows], list[Any], Any, Any, Any]:
    """Contexts and their folds; of every sample its node or arm, the place of its context, and whether it is right."""
    left = np.array(stage["counts"][low:high]) - WINDOW  # samples, the first ones, that the window has left behind
    seen = np.zeros_like(left)
    found: list[tuple[Any, ...]] = []
    contexts, folds, count = [], [], 0
    for part in (Part(**part) for part in facts["parts"]):
        if part.first >= facts["rounds"]:
            break
        group, row, positive = _entries(part, facts["nodes"], low, high)
        within = row < facts["rounds"] - part.first
        group, row, positive = group[within], row[within], positive[within]
        some = np.ones(len(group), np.bool_)
        if left.max(initial=0) > 0:
            some = ranks(group - low, seen) >= left[group - low]
        if not some.any():
            continue
        rows, place = renumbered(row, some)
        contexts.append(gathered(part.contexts, rows))
        folds.append(part.arrays["fold"][rows])
        found.append((group[some], count + place, positive[some]))
        count += len(rows)
    none = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_)
    group, row, positive = (np.concatenate(columns) for columns in zip(none, *found, strict=True))
    return contexts, folds, group, row, positive


def _entries(part: Part, nodes: int, low: int, high: int) -> tuple[Any, Any, Any]:
    """The samples of nodes or arms from low to high in a part: node or arm, round of the part, whether it is right."""
    if low >= nodes:
        samples = part.samples(low - nodes, high - nodes)
        return nodes + samples.arm.astype(np.int64), samples.row, samples.reward > 0
    node = part.arrays["pair_node"]
    first, end = np.searchsorted(node, [low, high]).tolist()
    row = part.arrays["pair_row"][first:end]
    return node[first:end].astype(np.int64), row, np.ones(len(row), np.bool_)
