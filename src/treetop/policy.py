"""Context to decision: search, score, explore. The one `decide` that library, simulator and service share."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treetop.explore import IGW, Strategy, batch_keys, check, checked, choose, event_key, event_name, is_native
from treetop.model import Model
from treetop.search import Eligible, search
from treetop.types import Decision, Decisions, Explanation, Matrix, Rows, as_rows, real, whole

MAX_SLOTS = 65_536


@dataclass(frozen=True)
class Policy:
    """How to decide: k slots, the last `explore` of them drawn by the strategy, over the effective arms of a search.

    `beam` nodes survive on each level (Algorithm 2); with `beta`, every node whose routing score exceeds it instead
    (the adaptive search of Section 4).
    """

    k: int = 5
    explore: int = 3
    beam: int = 10
    strategy: Strategy = field(default_factory=IGW)
    beta: float | None = None

    def __post_init__(self) -> None:
        whole("k", self.k, 1, MAX_SLOTS)
        whole("explore", self.explore, 0, self.k)
        whole("beam", self.beam, 1)
        if self.beta is not None:
            real("beta", self.beta, 0, 1)
        check(self.strategy, self.explore)

    def decide(
        self,
        model: Model,
        x: Matrix,
        event_id: str | int | None = None,
        eligible: ArrayLike | Eligible | None = None,
        exclude: ArrayLike | None = None,
    ) -> Decision:
        """One decision. The same event id, context, model and settings give the same decision again."""
        row = one_row(x, model.n_features)
        name = uuid.uuid4().hex if event_id is None else event_name(event_id)
        keys = np.array([event_key(name)], np.int64)
        allowed = _allowed(model, eligible, exclude, 1)
        arms, nodes, propensities, scores, explored = self._run(model, row, keys, allowed, 1)
        n = self.k if arms[0, -1] >= 0 else int((arms[0] >= 0).sum())
        return Decision(
            name, model.epoch, arms[0, :n], propensities[0, :n], scores[0, :n], explored[0, :n], nodes[0, :n]
        )

    def decide_batch(
        self,
        model: Model,
        X: Matrix,
        seed: int | None = None,
        event_ids: Sequence[str | int] | None = None,
        eligible: ArrayLike | Eligible | None = None,
        exclude: ArrayLike | None = None,
        *,
        first_row: int = 0,
        threads: int = 0,
    ) -> Decisions:
        """One decision per row, on all cores. Randomness comes from the event ids, or from (seed, row number).

        `first_row` numbers the rows from there, so that a batch cut into pieces decides the same. `eligible` is one set
        for all rows or a boolean mask with one row per context.
        """
        rows = as_rows(X, model.n_features)
        names, keys = batch_keys(len(rows), seed, event_ids, first_row)
        allowed = _allowed(model, eligible, exclude, len(rows))
        out = self._run(model, rows, keys, allowed, whole("threads", threads, 0, 4096))
        arms, nodes, propensities, scores, explored = out
        return Decisions(names, model.epoch, arms, propensities, scores, explored, nodes)

    def explain(
        self,
        model: Model,
        x: Matrix,
        eligible: ArrayLike | Eligible | None = None,
        exclude: ArrayLike | None = None,
    ) -> Explanation:
        """Every effective arm of a context: route, score, and its chance under the strategy with no slot taken yet."""
        allowed = _allowed(model, eligible, exclude, 1).row(0)
        found = search(model, one_row(x, model.n_features), self.beam, self.beta, self.k, allowed)
        p = checked(self.strategy.probabilities(found.score.astype(np.float64), model.n_seen), len(found))
        return Explanation(found.is_node, found.id, found.route, found.score, p)

    def _run(self, model: Model, x: Rows, keys: Any, allowed: Eligible, threads: int) -> tuple[Any, ...]:
        if not is_native(self.strategy):
            return self._run_slowly(model, x, keys, allowed)
        kind, rate = self.strategy.native(model.n_seen)  # type: ignore[attr-defined]
        return model.engine.decide(
            x.start, x.index, x.value, keys, self.k, self.explore, self.beam, -1.0 if self.beta is None else self.beta,
            kind, rate, allowed.kind, allowed.positions, allowed.start, threads,
        )  # fmt: skip

    def _run_slowly(self, model: Model, x: Rows, keys: Any, allowed: Eligible) -> tuple[Any, ...]:
        """The same path for a strategy written in Python, one context at a time."""
        n, k = len(x), self.k
        arms, nodes = np.full((n, k), -1, np.int32), np.full((n, k), -1, np.int32)
        propensities, scores = np.zeros((n, k)), np.zeros((n, k), np.float32)
        explored = np.zeros((n, k), np.bool_)
        for i in range(n):
            mine, key = allowed.row(i), int(keys[i])
            found = search(model, x.row(i), self.beam, self.beta, k, mine)
            chosen, p, drawn = choose(found, k, self.explore, self.strategy, model.n_seen, key)
            for slot, candidate in enumerate(chosen):
                arms[i, slot], below = found.id[candidate], 1
                if found.is_node[candidate]:
                    nodes[i, slot] = found.id[candidate]
                    arms[i, slot], below = model.engine.arm_below(
                        int(found.id[candidate]), key, slot, mine.kind, mine.positions
                    )
                propensities[i, slot] = p[slot] / below
            scores[i, : len(chosen)] = found.score[chosen]
            explored[i, : len(chosen)] = drawn
        return arms, nodes, propensities, scores, explored


def one_row(x: Matrix, n_features: int) -> Rows:
    row = as_rows(x, n_features)
    if len(row) != 1:
        raise ValueError(f"decide and explain take 1 context, not {len(row)}; decide_batch takes many")
    return row


def _allowed(model: Model, eligible: ArrayLike | Eligible | None, exclude: ArrayLike | None, contexts: int) -> Eligible:
    allowed = Eligible.of(model.tree, eligible, exclude)
    if len(allowed.start) and len(allowed.start) != contexts + 1:
        raise ValueError(f"the mask has {len(allowed.start) - 1} rows for {contexts} contexts")
    return allowed
