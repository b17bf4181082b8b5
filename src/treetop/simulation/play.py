"""Bandit feedback from labelled data (Appendix "Implementation Details"): decide, reveal the chosen rewards, refit."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from treetop.arrays import Bools, Floats, Ints, Longs, Rows, Singles
from treetop.data.datasets import Dataset, Stream
from treetop.learning.linear import Epochs, Learner, Linear, refit
from treetop.model.model import Model
from treetop.records import Feedback
from treetop.simulation.observation import All, Observer, uniforms
from treetop.simulation.scenario import Scenario, Shifting
from treetop.tree.tree import Tree

Progress = Callable[[int, float], None]  # rounds done, mean reward a round so far
Building = Callable[[str, int, int], object]  # what is built, how much of it is done, how much there is
BLOCK = 4096
CURVE_POINTS = 200


class World(Protocol):
    """Where rewards come from; `reward_range` is what Feedback may hold, None for no limits."""

    @property
    def reward_range(self) -> tuple[float, float] | None: ...

    def rewards(self, rows: Longs, arms: Ints, first: int) -> Singles:
        """(n, k) rewards of the arms shown in rounds first, first + 1, ... for these rows of the dataset."""
        ...

    def regret(self, rows: Longs, arms: Ints) -> Floats | None:
        """What the best arms by true mean would have brought more, round by round; None where no means are known."""
        ...


class Labels:
    """The reward of any (row, arm) of a label matrix, by binary search in the sorted list of its entries."""

    reward_range = (0.0, 1.0)

    def __init__(self, Y: Rows) -> None:
        row = np.repeat(np.arange(len(Y), dtype=np.int64), np.diff(Y.start))
        self._keys = row * Y.columns + Y.index
        self._values, self._arms = Y.value, Y.columns

    def rewards(self, rows: Any, arms: Ints, first: int = 0) -> Singles:
        """(n, k) rewards of the arms shown for rows; 0 where there is no label, NaN where there is no arm."""
        wanted = np.asarray(rows, np.int64)[:, None] * self._arms + np.maximum(arms, 0)
        at = np.minimum(np.searchsorted(self._keys, wanted), max(0, len(self._keys) - 1))
        found = np.where(self._keys[at] == wanted, self._values[at], 0) if len(self._keys) else np.zeros(arms.shape)
        return np.where(arms >= 0, found, np.nan).astype(np.float32)

    def regret(self, rows: Longs, arms: Ints) -> Floats | None:
        return None


@dataclass(frozen=True, eq=False)
class History:
    """What was shown in the first `done` rounds and what came of it: all that is needed to go on from there.

    `rewards` are those of all slots; `observed` says which of them the learner has heard of.
    """

    arms: Ints
    nodes: Ints
    rewards: Singles
    observed: Bools
    explored: Bools
    done: int = 0
    seconds: float = 0.0

    @classmethod
    def blank(cls, horizon: int, k: int) -> History:
        shape = (horizon, k)
        return cls(
            np.full(shape, -1, np.int32),
            np.full(shape, -1, np.int32),
            np.full(shape, np.nan, np.float32),
            np.zeros(shape, np.bool_),
            np.zeros(shape, np.bool_),
        )

    def head(self, n: int) -> History:
        """The first n rounds alone, sharing memory."""
        return History(
            self.arms[:n], self.nodes[:n], self.rewards[:n], self.observed[:n], self.explored[:n], n, self.seconds
        )

    def learned_from(
        self, contexts: Rows, n: int, reward_range: tuple[float, float] | None, appeared: Ints | None = None
    ) -> Feedback:
        """The first n rounds as the learner knows them: NaN where a slot was not observed."""
        known = np.where(self.observed[:n], self.rewards[:n], np.float32(np.nan))
        return Feedback(contexts.head(n), self.arms[:n], self.nodes[:n], known, reward_range, appeared)

    def collected(self) -> Floats:
        """The reward of every round: that of all slots, observed or not."""
        return np.asarray(np.nansum(self.rewards, axis=1, dtype=np.float64))

    def checksum(self) -> str:
        """sha256 of what was shown and what it brought."""
        digest = hashlib.sha256()
        for array in (self.arms, self.nodes, self.rewards):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Run:
    """What one strategy collected: mean reward a round, the curve of it, and the history to look at.

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> played = run(*begin(data, init=100, horizon=200, max_leaf=10, seed=0), Policy(), name="igw")
    >>> played.rounds, played.history.arms.shape, played.summary()["strategy"]
    (200, (200, 5), 'igw')
    """

    strategy: str
    seed: int
    mean_reward: float
    checkpoints: list[tuple[int, float]]
    seconds: float
    settings: dict[str, Any]
    model: Any
    history: History
    feedback: Feedback

    @property
    def explored(self) -> Bools:
        return self.history.explored

    @property
    def rounds(self) -> int:
        return len(self.history.arms)

    @cached_property
    def late_reward(self) -> float:
        """Mean reward a round over the last fifth."""
        last = max(1, self.rounds // 5)
        return float(self.history.collected()[-last:].sum() / last)

    def summary(self) -> dict[str, Any]:
        """The part that goes into JSON."""
        names = ("strategy", "seed", "mean_reward", "checkpoints", "seconds", "settings")
        return {name: getattr(self, name) for name in names}


def begin(
    dataset: Dataset,
    init: int,
    horizon: int,
    max_leaf: int,
    seed: int,
    building: Building | None = None,
    scenario: Scenario | None = None,
    **tree: Any,
) -> tuple[Stream, Model]:
    """The shuffled stream, and the model of epoch 0: the initialisation set gives tree and routing, nothing else.

    >>> from treetop.data.datasets import load
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> stream, model = begin(data, init=100, horizon=150, max_leaf=10, seed=0)
    >>> len(stream.rows), model.epoch
    (150, 0)
    """
    stream = Stream.draw(dataset, init, horizon, seed)
    if scenario:
        stream = scenario.initial(stream)
    tree_seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
    shown: dict[str, Any] = {name: partial(building, name) if building else None for name in ("tree", "routing")}
    built = Tree.from_labels(
        stream.X_init, stream.Y_init, max_leaf=max_leaf, seed=tree_seed, progress=shown["tree"], **tree
    )
    return stream, Model.initial(built, stream.X_init, stream.Y_init, progress=shown["routing"])


def run(
    stream: Stream,
    model: Any,
    policy: Any,
    *,
    name: str = "",
    seed: int = 0,
    epochs: Epochs | None = None,
    regressor: Learner | None = None,
    progress: Progress | None = None,
    feedback: Observer | None = None,
    world: World | None = None,
    resume: History | None = None,
    save: Callable[[History], None] | None = None,
    scenario: Scenario | None = None,
) -> Run:
    """Plays the whole stream with one policy, starting from `model`; refits at the epochs' ends on all past feedback.

    `policy` and `model` are Policy and Model, or FlatPolicy and FlatModel. `feedback` says which slots are observed
    (all), `world` what they bring (the dataset's labels). `save` gets the history after every epoch but the last; with
    what it got as `resume`, the run goes on from there and ends the same: a refit knows nothing but the history.
    `scenario` says what changes half-way (see `Scenario.of`).

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> stream, model = begin(data, init=100, horizon=200, max_leaf=10, seed=0)
    >>> run(stream, model, Policy(k=5, explore=3), epochs=Epochs.doubling(64)).settings["refits"]
    [64, 128]
    """
    began = time.perf_counter() - (resume.seconds if resume else 0.0)
    horizon = len(stream.rows)
    refits = (epochs or Epochs.doubling(4096)).until(horizon)
    past = _continued(resume, horizon, policy.k, refits)
    if past.done:  # the model of the epochs that need not be played again
        model = replace(model, epoch=model.epoch + refits.index(past.done))
    rewards: World = world or Labels(stream.dataset.Y)
    if scenario:
        rewards = Shifting(rewards, scenario)
    game = _Game(stream, policy, seed, rewards, feedback or All(), past, progress, scenario)
    for first, end in zip([0, *refits], [*refits, horizon], strict=True):
        if first < past.done:
            continue
        if first > 0:
            seen = game.seen(first)
            model = refit(model, seen) if regressor is None else refit(model, seen, regressor)
        game.play(model, first, end)
        if save and end < horizon:
            save(replace(past.head(end), seconds=time.perf_counter() - began))
    collected = past.collected()
    return Run(
        name or type(policy.strategy).__name__.lower(),
        seed,
        float(collected.sum()) / horizon,
        curve(np.cumsum(collected) / np.arange(1, horizon + 1), refits),
        round(time.perf_counter() - began, 3),
        _settings(policy, refits, regressor),
        model,
        replace(past, done=horizon),
        game.seen(horizon),
    )


@dataclass(frozen=True, eq=False)
class _Game:
    """One run under way: everything but the model, which changes from epoch to epoch."""

    stream: Stream
    policy: Any
    seed: int
    world: World
    observer: Observer
    past: History
    progress: Progress | None
    scenario: Scenario | None = None

    def seen(self, n: int) -> Feedback:
        appeared = self.scenario.appeared(n) if self.scenario else None
        return self.past.learned_from(self.stream.X, n, self.world.reward_range, appeared)

    def play(self, model: Any, first: int, end: int) -> None:
        """Rounds first to end with one model, written to the history."""
        past, slots = self.past, np.arange(self.policy.k)
        change = self.scenario.change if self.scenario else first
        cuts = sorted({*range(first, end, BLOCK), *([change] if first < change < end else []), end})
        for a, b in pairwise(cuts):
            eligible = self.scenario.eligible(a) if self.scenario else None
            d = self.policy.decide_batch(
                model, self.stream.X.slice(a, b), seed=self.seed, first_row=a, eligible=eligible
            )
            rewards = self.world.rewards(self.stream.rows[a:b], d.arms, a)
            draws = uniforms("feedback", self.seed, a, np.broadcast_to(slots, rewards.shape))
            past.arms[a:b], past.nodes[a:b], past.explored[a:b] = d.arms, d.nodes, d.explored
            past.rewards[a:b] = rewards
            past.observed[a:b] = self.observer.observed(rewards, draws) & ~np.isnan(rewards)
            if self.progress:
                self.progress(b, float(past.head(b).collected().sum()) / b)


def _continued(resume: History | None, horizon: int, k: int, refits: list[int]) -> History:
    """A history of the whole horizon that begins with the rounds of `resume`."""
    past = History.blank(horizon, k)
    if resume is None:
        return past
    if resume.done not in refits or resume.arms.shape != (resume.done, k):
        raise ValueError(
            f"cannot go on after {resume.done} rounds with arms of shape {resume.arms.shape}: epochs end after "
            f"{refits} rounds, of {k} slots each"
        )
    for name in ("arms", "nodes", "rewards", "observed", "explored"):
        getattr(past, name)[: resume.done] = getattr(resume, name)
    return replace(past, done=resume.done)


def curve(values: Floats, refits: list[int]) -> list[tuple[int, float]]:
    """A number a round at evenly spaced rounds, at every refit and at the end.

    >>> curve(np.array([1.0, 0.5, 0.25]), refits=[2])
    [(1, 1.0), (2, 0.5), (3, 0.25)]
    """
    n = len(values)
    at = np.unique([*np.linspace(1, n, min(n, CURVE_POINTS)).astype(int), *refits, n])
    return [(int(t), round(float(v), 6)) for t, v in zip(at, values[at - 1], strict=True)]


def _settings(policy: Any, refits: list[int], regressor: Learner | None) -> dict[str, Any]:
    learner: Any = regressor or Linear()
    return {
        "k": policy.k,
        "explore": policy.explore,
        "beam": getattr(policy, "beam", None),
        "parameters": asdict(policy.strategy) if hasattr(policy.strategy, "__dataclass_fields__") else {},
        "loss": getattr(learner, "loss", "squared"),
        "cost": learner.cost,
        "refits": refits,
    }
