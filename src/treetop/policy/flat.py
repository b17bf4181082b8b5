"""Algorithm 1: top-k decisions over a plain list of arms, all of them scored. No tree, same strategies.

The scores come from `learning/flat.py`, or from whatever else has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from treetop.arrays import Arms, Bools, Float32s, Ints, Matrix, Rows, as_indices, as_rows, check_int
from treetop.policy.draws import batch_keys, choose, draw_probabilities, event_name, new_event_id
from treetop.policy.policy import MAX_SLOTS, one_row
from treetop.policy.strategies import IGW, Strategy, check_strategy
from treetop.records import Candidates, Decision, Decisions, Explanation


class ScoresAllArms(Protocol):
    """What FlatPolicy decides with: FlatModel, or anything like it."""

    @property
    def n_arms(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def n_seen(self) -> int: ...
    def scores(self, x: Rows) -> Float32s:
        """The estimated reward of every arm for every context: (n, n_arms)."""
        ...


@dataclass(frozen=True)
class FlatPolicy:
    """Algorithm 1: k - r arms by score, r drawn by the strategy among the others, over all arms.

    >>> from treetop.learning.flat import FlatModel
    >>> from treetop.records import Feedback
    >>> model = FlatModel(n_arms=4, n_features=2)
    >>> seen = Feedback([[1.0, 0.0]], arms=[[2]], nodes=[[-1]], rewards=[[1.0]])
    >>> FlatPolicy(k=1, explore=0).decide(model.refit(seen), [1.0, 0.0], event_id="q").arms
    array([2], dtype=int32)
    >>> FlatPolicy(k=1, explore=0).decide_batch(model, [[1.0, 0.0], [0.0, 1.0]], seed=0).arms.tolist()
    [[0], [0]]
    >>> FlatPolicy(k=1, explore=0).explain(model, [1.0, 0.0]).probability
    array([0.25, 0.25, 0.25, 0.25])
    """

    k: int = 5
    explore: int = 3
    strategy: Strategy = field(default_factory=IGW)

    def __post_init__(self) -> None:
        check_int("k", self.k, 1, MAX_SLOTS)
        check_int("explore", self.explore, 0, self.k)
        check_strategy(self.strategy, self.explore)

    def decide(
        self,
        model: ScoresAllArms,
        x: Matrix,
        event_id: str | int | None = None,
        eligible: Arms | None = None,
        exclude: Arms | None = None,
    ) -> Decision:
        """One decision; the same event id gives the same one again."""
        name = new_event_id() if event_id is None else event_name(event_id)
        row = one_row(x, _expect(model).n_features)
        return self.decide_batch(model, row, event_ids=[name], eligible=eligible, exclude=exclude)[0]

    def decide_batch(
        self,
        model: ScoresAllArms,
        X: Matrix,
        seed: int | None = None,
        event_ids: Sequence[str | int] | None = None,
        eligible: Arms | None = None,
        exclude: Arms | None = None,
        *,
        first_row: int = 0,
    ) -> Decisions:
        """One decision per row."""
        rows = as_rows(X, _expect(model).n_features)
        names, keys = batch_keys(len(rows), seed, event_ids, first_row)
        arms = _in_play(model, eligible, exclude)
        n, k = len(rows), self.k
        out = np.full((n, k), -1, np.int32)
        propensities, taken, drawn = np.zeros((n, k)), np.zeros((n, k), np.float32), np.zeros((n, k), np.bool_)
        scores = model.scores(rows)
        for i in range(n):
            found = _candidates(arms, scores[i])
            chosen, p, explored = choose(found, k, self.explore, self.strategy, model.n_seen, int(keys[i]))
            m = len(chosen)
            out[i, :m], propensities[i, :m], drawn[i, :m] = arms[chosen], p, explored
            taken[i, :m] = found.score[chosen]
        return Decisions(names, model.epoch, out, propensities, taken, drawn, np.full((n, k), -1, np.int32))

    def explain(
        self, model: ScoresAllArms, x: Matrix, eligible: Arms | None = None, exclude: Arms | None = None
    ) -> Explanation:
        """Every arm with its score and its chance under the strategy with no slot taken yet."""
        row = one_row(x, _expect(model).n_features)
        arms = _in_play(model, eligible, exclude)
        found = _candidates(arms, model.scores(row)[0])
        p = draw_probabilities(self.strategy, found, model.n_seen)
        return Explanation(found.is_node, found.id, found.route, found.score, found.exploration_value, p)


def _candidates(arms: Ints, scores: Float32s) -> Candidates:
    single: Bools = np.zeros(len(arms), np.bool_)
    nothing = np.zeros(len(arms), np.float32)
    return Candidates(single, arms, np.ones(len(arms)), np.ascontiguousarray(scores[arms]), nothing)


def _in_play(model: ScoresAllArms, eligible: Arms | None, exclude: Arms | None) -> Ints:
    allowed = np.ones(model.n_arms, np.bool_)
    if eligible is not None:
        allowed = _mask(model.n_arms, eligible, "eligible arm")
    if exclude is not None:
        allowed &= ~_mask(model.n_arms, exclude, "excluded arm")
    if not allowed.any():
        raise ValueError(f"none of the {model.n_arms} arms is eligible")
    return np.flatnonzero(allowed).astype(np.int32)


def _mask(n_arms: int, arms: Arms, what: str) -> Bools:
    array = np.asarray(list(arms) if isinstance(arms, set | frozenset) else arms)
    if array.ndim != 1:
        raise ValueError(f"{what}s must be a list of ids or a mask, not an array of shape {array.shape}")
    if array.dtype == np.bool_:
        if array.shape != (n_arms,):
            raise ValueError(f"the mask has shape {array.shape}; there are {n_arms} arms")
        return array.copy()
    mask = np.zeros(n_arms, np.bool_)
    mask[as_indices(array, n_arms, what)] = True
    return mask


def _expect(model: ScoresAllArms) -> ScoresAllArms:
    if not callable(getattr(model, "scores", None)):
        raise TypeError(f"FlatPolicy decides with a FlatModel, not with a {type(model).__name__}")
    return model
