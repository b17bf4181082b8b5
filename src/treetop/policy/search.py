"""Context to effective arms: beam search (Algorithm 2) and adaptive search (Section 4). Never draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from treetop import _core
from treetop.arrays import Bools, Float32s, Floats, Int64s, Ints, Rows
from treetop.model.model import Model
from treetop.policy.eligibility import Eligible
from treetop.records import Candidates

# How often a new arm has to be shown, and counts that are newer than those of the model.
NewArmTrials: TypeAlias = tuple[int, _core.TrialCounts | None]


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """The effective arms of many contexts: row i has places start[i]:start[i + 1], single arms by id, then nodes by id.

    `log_route` is the log of the routing score; the other fields are those of `Candidates`, `components` (n, C) too.
    """

    start: Int64s
    is_node: Bools
    id: Ints
    log_route: Floats
    score: Float32s
    exploration_value: Float32s
    components: Float32s
    new_share: Float32s
    prior: Float32s


def search_batch(
    model: Model,
    x: Rows,
    beam: int,
    beta: float | None,
    wanted: int,
    eligible: Eligible,
    *,
    threads: int = 0,
    trials: NewArmTrials = (0, None),
) -> CandidateRows:
    """The effective arms of every context, in one call of the core; `eligible` is the same for all rows.

    An arm that was added counts as new until it was shown as often as `trials` say.

    >>> from treetop.arrays import as_rows
    >>> from treetop.policy.eligibility import EVERY_ARM
    >>> from treetop.tree.tree import Tree
    >>> X = Y = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> search_batch(model, as_rows(X), beam=1, beta=None, wanted=2, eligible=EVERY_ARM).start.tolist()
    [0, 3, 6, 9, 12]
    """
    limit = -1.0 if beta is None else beta
    found = model.engine.search(
        x.start,
        x.index,
        x.value,
        wanted,
        beam,
        limit,
        eligible.kind,
        eligible.positions,
        eligible.mask,
        threads,
        *trials,
    )
    rows = CandidateRows(*found)
    if not (finite := np.isfinite(rows.score)).all():
        raise ValueError(f"a score is {rows.score[~finite][0]}: the context is too large for the weights of the model")
    return rows


def search(
    model: Model,
    x: Rows,
    beam: int,
    beta: float | None,
    wanted: int,
    eligible: Eligible,
    *,
    trials: NewArmTrials = (0, None),
) -> Candidates:
    """The effective arms of one context, in canonical order; at least `wanted` where that many arms are eligible.

    >>> from treetop.arrays import as_rows
    >>> from treetop.policy.eligibility import EVERY_ARM
    >>> from treetop.tree.tree import Tree
    >>> X = Y = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> found = search(model, as_rows(X[0]), beam=1, beta=None, wanted=2, eligible=EVERY_ARM)
    >>> found.is_node.tolist()  # the two arms of the leaf that survives, and the other leaf as a whole
    [False, False, True]
    """
    found = search_batch(model, x, beam, beta, wanted, eligible, threads=1, trials=trials)
    columns = (found.is_node, found.id, np.exp(found.log_route), found.score, found.exploration_value)
    new = found.new_share if found.new_share.any() else None
    return Candidates(*columns, components=found.components, new_share=new, prior=found.prior)
