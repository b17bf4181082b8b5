"""Records that travel along the path of a decision. Knows no algorithm."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from treetop.arrays import (
    INT32_MAX,
    Bools,
    Float32s,
    Floats,
    Ints,
    Matrix,
    Rows,
    as_components,
    as_float32s,
    as_indices,
    as_numbers,
    as_propensities,
    as_rows,
    check_rewards,
)
from treetop.display import SHOWN, html_table, make_frame

Some = TypeVar("Some", bound="Candidates")
# The fields of a slot, and what one of them is called in a table.
SLOTS = {"arms": "arm", "propensities": "propensity", "scores": "score", "explored": "explored", "nodes": "node"}


@dataclass(frozen=True, eq=False)
class Candidates:
    """The effective arms of one context: single arms by id, then nodes by id, so that the first of equals wins.

    `components` (n, C) are the terms of each score, which add up to it; C = 0 where a model has none.
    """

    is_node: Bools
    id: Ints
    route: Floats
    score: Float32s
    exploration_value: Float32s  # how much a draw prefers it: much where samples are few; 0 where no learner says it
    components: Any = field(default=None, kw_only=True)
    new_share: Float32s | None = field(default=None, kw_only=True)  # part of its arms' trials missing; None if none is
    prior: Any = field(default=None, kw_only=True)  # the score without what the rewards of the arm itself say

    def __post_init__(self) -> None:
        if self.components is None:
            object.__setattr__(self, "components", np.zeros((len(self.id), 0), np.float32))
        if self.prior is None:
            object.__setattr__(self, "prior", self.score)

    def __len__(self) -> int:
        return len(self.id)

    def take(self: Some, places: Any) -> Some:
        """Some of them, in the order given.

        >>> Candidates(np.zeros(2, bool), np.array([3, 7]), np.ones(2), np.ones(2), np.ones(2)).take([1]).id
        array([7])
        """
        some: dict[str, Any] = {name: None if each is None else each[places] for name, each in vars(self).items()}
        return replace(self, **some)


@dataclass(frozen=True, eq=False)
class Explanation(Candidates):
    """Every effective arm with its route, score and chance of being drawn first.

    >>> one = np.ones(1)
    >>> print(Explanation(np.array([False]), np.array([7]), one, np.array([0.5]), one, one))
    1 effective arms: 1 single, 0 nodes
                id      route     score    chance
    arm          7          1    0.5000   1.00000
    """

    probability: Floats

    def best(self, count: int) -> Explanation:
        """So many of them, in order: those that are drawn first most likely, then by score.

        >>> one = np.ones(2)
        >>> Explanation(one > 2, np.array([7, 8]), one, np.array([0.5, 0.7]), one, one / 2).best(1).id
        array([8])
        """
        return self.take(np.lexsort((-self.score, -self.probability))[:count])

    def __str__(self) -> str:
        best = self.best(20)
        lines = [f"{len(self)} effective arms: {int((~self.is_node).sum())} single, {int(self.is_node.sum())} nodes"]
        lines.append(f"{'':4} {'id':>9} {'route':>10} {'score':>9} {'chance':>9}")
        for is_node, *rest in zip(best.is_node, best.id, best.route, best.score, best.probability, strict=True):
            lines.append("{:4} {:>9} {:>10.3g} {:>9.4f} {:>9.5f}".format("node" if is_node else "arm", *rest))
        return "\n".join(lines + ([f"... and {len(self) - 20} more"] if len(self) > 20 else []))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        best = self.best(SHOWN)
        columns: dict[str, Any] = {"": np.where(best.is_node, "node", "arm").tolist()}
        for name in ("id", "route", "score", "probability"):
            columns[name] = getattr(best, name).tolist()
        return html_table(f"{len(self):,} effective arms", columns, len(self))


@dataclass(frozen=True, eq=False)
class Decision:
    """The slots of one event.

    `propensities` are exact, each given the slots before it; `explored` says which slots the strategy drew, with
    `Budgeted` only those of them that do not show the best in play; `nodes` is -1 for an arm chosen by itself, else
    the node it was drawn through. `components` (slots, C) are the terms of each score as the deciding model gave
    them; None stands for a model without (C = 0).

    >>> print(Decision("visit-1", 0, [3, 4], [1.0, 0.5], [0.2, 0.1], [False, True], [-1, 2]))
    decision visit-1 (epoch 0)
      1. arm 3        score +0.2000  propensity 1  greedy
      2. arm 4        score +0.1000  propensity 0.5  explored via node 2
    """

    event_id: str
    model_epoch: int
    arms: Ints
    propensities: Floats
    scores: Float32s
    explored: Bools
    nodes: Ints
    components: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.components is None:
            object.__setattr__(self, "components", np.zeros((len(self.arms), 0), np.float32))

    def __len__(self) -> int:
        return len(self.arms)

    def __str__(self) -> str:
        lines = [f"decision {self.event_id} (epoch {self.model_epoch})"]
        for s in range(len(self)):
            how = "explored" if self.explored[s] else "greedy"
            via = f" via node {self.nodes[s]}" if self.nodes[s] >= 0 else ""
            lines.append(
                f"  {s + 1}. arm {self.arms[s]:<8} score {self.scores[s]:+.4f}  "
                f"propensity {self.propensities[s]:.3g}  {how}{via}"
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        columns = {title: np.asarray(getattr(self, name)).tolist() for name, title in SLOTS.items()}
        return html_table(f"decision {self.event_id} (epoch {self.model_epoch})", columns)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Many decisions: the fields of Decision as (n, k) arrays; slots that could not be filled hold -1. `components` are
    (n, k, C), 0 in such slots.

    >>> two = np.array([[3, 4], [5, -1]])
    >>> shown = Decisions(None, 0, two, np.ones((2, 2)), np.zeros((2, 2)), two == 4, np.full((2, 2), -1))
    >>> len(shown), len(shown[1])
    (2, 1)
    """

    event_ids: tuple[str, ...] | None
    model_epoch: int
    arms: Ints
    propensities: Floats
    scores: Float32s
    explored: Bools
    nodes: Ints
    components: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.components is None:
            object.__setattr__(self, "components", np.zeros((*np.shape(self.arms), 0), np.float32))

    def __len__(self) -> int:
        return len(self.arms)

    def __repr__(self) -> str:
        n, k = self.arms.shape
        return f"Decisions({n:,} events, {k} slots, epoch {self.model_epoch})"

    def _repr_html_(self) -> str:
        columns: dict[str, Any] = {"event": [self[i].event_id for i in range(min(len(self), SHOWN))]}
        for slot in range(self.arms.shape[1]):
            columns[f"arm {slot + 1}"] = self.arms[:SHOWN, slot].tolist()
            columns[f"propensity {slot + 1}"] = self.propensities[:SHOWN, slot].tolist()
        return html_table(repr(self), columns, len(self))

    def to_frame(self, ids: Sequence[str | int] | None = None) -> Any:
        """A pandas.DataFrame with a row a filled slot; `ids` are the arms' own, such as `bandit.snapshot.arms.ids`.

        >>> arms, one = np.array([[1, 0], [1, -1]]), np.ones((2, 2))
        >>> shown = Decisions(("a", "b"), 0, arms, one / 2, one, one == 0, -arms // 2)
        >>> shown.to_frame(["mint", "rose"])[["event_id", "slot", "arm", "propensity"]].to_dict("split")["data"]
        [['a', 0, 'rose', 0.5], ['a', 1, 'mint', 0.5], ['b', 0, 'rose', 0.5]]
        """
        row, slot = np.nonzero(self.arms >= 0)
        columns: dict[str, Any] = {name: getattr(self, name)[row, slot] for name in SLOTS}
        if ids is not None:
            columns["arms"] = [ids[arm] for arm in columns["arms"].tolist()]
        events = row if self.event_ids is None else [self.event_ids[i] for i in row.tolist()]
        named = {SLOTS[name]: column for name, column in columns.items()}
        return make_frame({"event_id": events, "epoch": np.full(len(row), self.model_epoch), "slot": slot, **named})

    def __getitem__(self, i: int) -> Decision:
        i = range(len(self))[operator.index(i)]
        n = int((self.arms[i] >= 0).sum())
        name = self.event_ids[i] if self.event_ids else f"row {i}"
        return Decision(
            name,
            self.model_epoch,
            self.arms[i, :n],
            self.propensities[i, :n],
            self.scores[i, :n],
            self.explored[i, :n],
            self.nodes[i, :n],
            components=self.components[i, :n],
        )


@dataclass(frozen=True, eq=False)
class Feedback:
    """The whole history: contexts, what was shown (arms, and the nodes they were drawn through), and what came of it.

    A reward that is NaN was not observed; nodes may be None where no arm came through one; `reward_range=None` lifts
    the limits (for simulated unbounded rewards). `appeared` says before how many of the rounds each arm could not be
    shown yet, None where all could from the first on. `components` (n, k, C) are the terms of the scores as the
    deciding models gave them, NaN in slots where nobody knows, None if no slot has any. `positions` (n, k) say where a
    slot was on the screen, from 1 on, 0 where nobody knows; None if nothing says it. `propensities` (n, k) are those
    of the decisions, NaN where nobody knows, None if no slot has any. Histories add up: `history + today`.

    >>> monday = Feedback([[1.0, 0.0]], arms=[[3, 4]], nodes=[[-1, 2]], rewards=[[1.0, float("nan")]])
    >>> monday.observed
    array([[ True, False]])
    >>> monday + monday
    Feedback(2 rounds, 2 slots, 2 rewards observed)
    """

    contexts: Matrix
    arms: Any
    nodes: Any
    rewards: Any
    reward_range: tuple[float, float] | None = (0.0, 1.0)
    appeared: Any = None
    components: Any = None
    positions: Any = None
    propensities: Any = None

    def __post_init__(self) -> None:
        contexts = as_rows(self.contexts)
        through = np.full(np.shape(self.arms), -1) if self.nodes is None else self.nodes
        arms, nodes = (
            as_indices(np.atleast_2d(np.asarray(ids)), INT32_MAX, name, low=-1)
            for name, ids in (("arms", self.arms), ("nodes", through))
        )
        given: Any = self.rewards
        dense = given.toarray() if hasattr(given, "toarray") else given
        rewards = np.atleast_2d(as_numbers(dense, "rewards"))
        for name, array in (("arms", arms), ("nodes", nodes), ("rewards", rewards)):
            if array.ndim != 2 or array.shape != (len(contexts), arms.shape[-1]):
                raise ValueError(
                    f"{name} have shape {array.shape}; {len(contexts)} contexts and {arms.shape[-1]} slots need "
                    f"{(len(contexts), arms.shape[-1])}"
                )
        check_rewards(rewards, arms, self.reward_range)
        if self.components is not None:
            object.__setattr__(self, "components", as_components(self.components, arms))
        if self.positions is not None:
            positions = as_indices(self.positions, INT32_MAX, "positions")
            if positions.shape != arms.shape:
                raise ValueError(f"positions have shape {positions.shape}; the slots have {arms.shape}")
            object.__setattr__(self, "positions", positions.copy())
        if self.propensities is not None:
            object.__setattr__(self, "propensities", as_propensities(self.propensities, arms))
        if self.appeared is not None:
            appeared = as_indices(self.appeared, len(contexts) + 1, "rounds before arms appeared")
            if appeared.ndim != 1:
                raise ValueError(f"rounds before arms appeared have shape {appeared.shape}; there must be one an arm")
            object.__setattr__(self, "appeared", appeared.copy())
        rewards = as_float32s(rewards, "rewards")
        object.__setattr__(self, "contexts", contexts)
        for name, slots in (("arms", arms), ("nodes", nodes), ("rewards", rewards)):
            object.__setattr__(self, name, slots.copy())  # what was checked stays as it was

    def __len__(self) -> int:
        return len(self.contexts)

    @classmethod
    def of(cls, contexts: Matrix, shown: Decision | Decisions, rewards: Any) -> Feedback:
        """What came of decisions: one context and one row of rewards for each.

        >>> shown = Decision("q", 0, arms=[3, 4], propensities=[1, 0.5], scores=[0, 0], explored=[0, 1], nodes=[-1, 2])
        >>> Feedback.of([[1.0, 0.0]], shown, [[1.0, 0.0]])
        Feedback(1 rounds, 2 slots, 2 rewards observed)
        """
        count = shown.components.shape[-1]
        components = shown.components.reshape(-1, shown.components.shape[-2], count) if count else None
        propensities = np.atleast_2d(shown.propensities)
        return cls(contexts, shown.arms, shown.nodes, rewards, components=components, propensities=propensities)

    @classmethod
    def none(cls, features: int, k: int) -> Feedback:
        """No rounds at all.

        >>> Feedback.none(features=3, k=5)
        Feedback(0 rounds, 5 slots, 0 rewards observed)
        """
        empty = Rows(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), features)
        return cls(empty, np.zeros((0, k), np.int32), None, np.zeros((0, k), np.float32))

    @property
    def observed(self) -> Bools:
        return np.asarray(~np.isnan(self.rewards))

    def head(self, n: int) -> Feedback:
        """The first n rounds alone, as they are known now.

        >>> (Feedback.none(1, 2) + Feedback([[1.0]], [[3, 4]], None, [[1.0, 0.0]])).head(0)
        Feedback(0 rounds, 2 slots, 0 rewards observed)
        """
        appeared = None if self.appeared is None else np.minimum(self.appeared, n)
        slots = self.arms[:n], self.nodes[:n], self.rewards[:n]
        optional = self.components, self.positions, self.propensities
        known = (None if array is None else array[:n] for array in optional)
        return Feedback(self.contexts.head(n), *slots, self.reward_range, appeared, *known)

    def __add__(self, later: Feedback) -> Feedback:
        """Both histories, one after the other; the one with fewer slots is padded with slots that show nothing.

        Histories with different numbers of components raise ValueError.
        """
        if not isinstance(later, Feedback):
            return NotImplemented
        k = max(self.arms.shape[1], later.arms.shape[1])
        arms, nodes, rewards = (
            np.vstack([_padded(getattr(part, name), k, empty) for part in (self, later)])
            for name, empty in (("arms", -1), ("nodes", -1), ("rewards", np.nan))
        )
        contexts = sp.vstack([self.contexts.csr(), later.contexts.csr()], format="csr")
        limits = self.reward_range if self.reward_range == later.reward_range else None
        more = (self._optional(later, k, name, empty) for name, empty in (("positions", 0), ("propensities", np.nan)))
        return Feedback(
            contexts, arms, nodes, rewards, limits, self._appeared(later), self._components(later, k), *more
        )

    def _optional(self, later: Feedback, k: int, name: str, empty: float) -> NDArray[Any] | None:
        """An array of both histories, in k slots, `empty` for the one that has none."""
        given = [getattr(part, name) for part in (self, later)]
        if all(array is None for array in given):
            return None
        parts = zip((self, later), given, strict=True)
        return np.vstack([_padded(np.full(p.arms.shape, empty) if a is None else a, k, empty) for p, a in parts])

    def _components(self, later: Feedback, k: int) -> Float32s | None:
        """The components of both histories, in k slots; NaN for the one that has none."""
        counts = [part.components.shape[2] for part in (self, later) if part.components is not None]
        if not counts:
            return None
        if counts[0] != counts[-1]:
            raise ValueError(f"a history with {counts[0]} components cannot be joined with one with {counts[1]}")
        joined = np.full((len(self) + len(later), k, counts[0]), np.nan, np.float32)
        for part, first in ((self, 0), (later, len(self))):
            if part.components is not None:
                joined[first : first + len(part), : part.arms.shape[1]] = part.components
        return joined

    def _appeared(self, later: Feedback) -> Ints | None:
        """When arms appeared in both histories; one that only the later one knows of appeared there."""
        if self.appeared is None and later.appeared is None:
            return None
        count = max(len(part.appeared) for part in (self, later) if part.appeared is not None)
        first = np.zeros(count, np.int32) if self.appeared is None else self.appeared
        first = np.concatenate([first, np.full(count - len(first), len(self), np.int32)])
        then = np.zeros(count, np.int32) if later.appeared is None else later.appeared
        then = np.concatenate([then, np.zeros(count - len(then), np.int32)])
        return np.where(first < len(self), first, len(self) + then).astype(np.int32)

    def appeared_late(self, arms: int) -> Bools:
        """Which of so many arms appeared after the first round.

        >>> Feedback([[1.0]], arms=[[0]], nodes=None, rewards=[[1]], appeared=[0, 1]).appeared_late(3)
        array([False,  True, False])
        """
        late = np.zeros(arms, np.bool_)
        if self.appeared is not None:
            late[: len(self.appeared)] = self.appeared > 0
        return late

    def __repr__(self) -> str:
        rounds, slots, known = len(self), self.arms.shape[1], int(self.observed.sum())
        return f"Feedback({rounds:,} rounds, {slots} slots, {known:,} rewards observed)"


def _padded(array: NDArray[Any], k: int, empty: float) -> NDArray[Any]:
    return np.pad(array, ((0, 0), (0, k - array.shape[1])), constant_values=empty)
