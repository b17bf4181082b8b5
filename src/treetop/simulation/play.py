"""Bandit feedback from labelled data (Appendix "Implementation Details"): decide, reveal the chosen rewards, refit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from treetop.arrays import Bools
from treetop.data.datasets import Dataset, Stream, tree_seed
from treetop.effort import Effort
from treetop.learning.linear import Linear
from treetop.learning.refit import Learner, refit
from treetop.learning.schedule import Epochs
from treetop.model.model import Model
from treetop.policy.budgeted import Budgeted
from treetop.policy.strategies import Greedy
from treetop.records import Decisions, Feedback
from treetop.simulation.history import History, curve, reward_sums
from treetop.simulation.observation import All, Observer, uniforms
from treetop.simulation.scenario import Scenario, SwappedRewards
from treetop.simulation.worlds import Labels, World
from treetop.tree.tree import Tree

RunProgress = Callable[[int, float], None]  # rounds done, mean reward a round so far
BuildProgress = Callable[[str, int, int], object]  # what is built ("tree", "routing"), how much is done, of how much
BLOCK = 4096  # rounds decided in one call


@dataclass(frozen=True)
class TreeBuilding:
    """How the first tree is built: split by `kmeans` or `cocluster`, arms without a label in leaves of their own or
    not, flattened or not; the former are. `progress` is called while tree and routing are built.

    >>> TreeBuilding(split="cocluster").separate_unlabelled
    False
    """

    split: str = "kmeans"
    separate_unlabelled: bool = False
    flattened: bool = False
    progress: BuildProgress | None = None


@dataclass(frozen=True)
class Learning:
    """What learns and when: `learner` is Linear() if None; it refits at the ends of `epochs`, on all past feedback.

    >>> Learning(epochs=Epochs.doubling(64)).epochs.until(200)
    [64, 128]
    """

    learner: Learner | None = None
    epochs: Epochs = field(default_factory=lambda: Epochs.doubling(4096))


@dataclass(frozen=True)
class Environment:
    """What answers the decisions: `observer` says which slots the learner sees, `world` what they bring (the
    dataset's labels if None), `scenario` what changes half-way (see `Scenario.of`).

    >>> from treetop.simulation.observation import Cascade
    >>> Environment(observer=Cascade()).world is None
    True
    """

    observer: Observer = field(default_factory=All)
    world: World | None = None
    scenario: Scenario | None = None


@dataclass(frozen=True)
class Tracking:
    """Who follows a run, and from where it goes on. `name` is what the run calls its strategy.

    `progress` gets the rounds done and the mean reward so far. `save` gets the history after every epoch but the last;
    with that as `resume` the run goes on from there and ends the same, since a refit depends on the history alone.

    >>> Tracking("mine", progress=print).resume is None
    True
    """

    name: str = ""
    progress: RunProgress | None = None
    resume: History | None = None
    save: Callable[[History], None] | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """What one strategy collected: mean reward a round, the curve of it, and the history to look at.

    `seconds` are those of deciding, revealing and refitting; what the greedy slates to compare with took is left out.

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> played = run(*begin(data, init=100, horizon=200, max_leaf=10), Policy())
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

    @cached_property
    def exploration_cost(self) -> float:
        """What the greedy slates of the same models would have brought more, a round; 0 for the greedy strategy."""
        return self.history.exploration_cost()

    @cached_property
    def _finds(self) -> tuple[int, float]:
        return self.history.finds()

    @property
    def found_arms(self) -> int:
        """Arms whose first reward an explored slot has brought."""
        return self._finds[0]

    @property
    def found_reward(self) -> float:
        """What these arms have earned in later rounds, in all."""
        return self._finds[1]

    def summary(self) -> dict[str, Any]:
        """The part that goes into JSON."""
        return {name: getattr(self, name) for name in SUMMARY}


SUMMARY = (  # of a run in JSON
    "strategy",
    "seed",
    "mean_reward",
    "late_reward",
    "exploration_cost",
    "found_arms",
    "found_reward",
    "checkpoints",
    "seconds",
    "settings",
)


def begin(
    dataset: Dataset,
    init: int,
    horizon: int,
    max_leaf: int,
    seed: int = 0,
    scenario: Scenario | None = None,
    tree: TreeBuilding | None = None,
) -> tuple[Stream, Model]:
    """The shuffled stream, and the model of epoch 0: the initialisation set gives tree and routing, nothing else.

    >>> from treetop.data.datasets import load
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> stream, model = begin(data, init=100, horizon=150, max_leaf=10)
    >>> len(stream.rows), model.epoch
    (150, 0)
    """
    stream = Stream.draw(dataset, init, horizon, seed)
    if scenario:
        stream = scenario.initial(stream)
    return stream, first_model(stream, max_leaf, seed, tree)


def first_model(stream: Stream, max_leaf: int, seed: int = 0, tree: TreeBuilding | None = None) -> Model:
    """The model of epoch 0 for a stream: its initialisation set gives tree and routing, nothing else.

    >>> from treetop.data.datasets import load
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> stream = Stream.draw(data, init=100, horizon=100, seed=0, order="file")
    >>> first_model(stream, max_leaf=10).epoch
    0
    """
    tree = tree or TreeBuilding()
    progress: dict[str, Any] = {
        name: partial(tree.progress, name) if tree.progress else None for name in ("tree", "routing")
    }
    build = Tree.from_labels_flattened if tree.flattened else Tree.from_labels
    build = Tree.from_labels_separated if tree.separate_unlabelled else build
    built = build(
        stream.X_init,
        stream.Y_init,
        max_leaf=max_leaf,
        seed=tree_seed(seed),
        split=tree.split,
        effort=Effort(progress=progress["tree"]),
    )
    return Model.initial(built, stream.X_init, stream.Y_init, progress=progress["routing"])


def run(
    stream: Stream,
    model: Any,
    policy: Any,
    *,
    seed: int = 0,
    learning: Learning | None = None,
    environment: Environment | None = None,
    tracking: Tracking | None = None,
) -> Run:
    """Plays the whole stream with one policy, starting from `model`; refits at the epochs' ends on all past feedback.

    `policy` and `model` are Policy and Model, or FlatPolicy and FlatModel; `seed` is that of the draws. The same
    arguments give the same run. None stands for Learning(), Environment() and Tracking().

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> from treetop.simulation.observation import Cascade
    >>> data = load("synthetic:arms=50,features=30,rows=200,init=100")
    >>> stream, model = begin(data, init=100, horizon=200, max_leaf=10)
    >>> learning, environment = Learning(epochs=Epochs.doubling(64)), Environment(observer=Cascade())
    >>> played = run(stream, model, Policy(k=5, explore=3), learning=learning, environment=environment)
    >>> played.settings["refits"], bool(played.history.observed.all())
    ([64, 128], False)
    """
    learning, environment = learning or Learning(), environment or Environment()
    tracking = tracking or Tracking()
    resume, save = tracking.resume, tracking.save
    began = time.perf_counter() - (resume.seconds if resume else 0.0)
    horizon = len(stream.rows)
    refits = learning.epochs.until(horizon)
    past = resume.extended(horizon, policy.k, refits) if resume else History.blank(horizon, policy.k)
    if past.done:  # the model of the epochs that need not be played again
        model = replace(model, epoch=model.epoch + refits.index(past.done))
    world = _world(stream, environment)
    game = _Game(stream, policy, _greedy(policy), seed, environment, world, past, tracking.progress)
    for first, end in zip([0, *refits], [*refits, horizon], strict=True):
        if first < past.done:
            continue
        if first > 0:
            model = refit(model, game.feedback(first), learning.learner)
        past, beside = game.play(model, first, end)
        game, began = replace(game, past=past), began + beside
        if save and end < horizon:
            save(replace(past.head(end), seconds=time.perf_counter() - began))
    collected = past.collected()
    return Run(
        tracking.name or type(policy.strategy).__name__.lower(),
        seed,
        float(collected.sum()) / horizon,
        curve(np.cumsum(collected) / np.arange(1, horizon + 1), refits),
        round(time.perf_counter() - began, 3),
        _settings(policy, refits, learning.learner),
        model,
        replace(past, done=horizon),
        game.feedback(horizon),
    )


def _world(stream: Stream, environment: Environment) -> World:
    world = environment.world or Labels(stream.dataset.Y)
    return SwappedRewards(world, environment.scenario) if environment.scenario else world


def _greedy(policy: Any) -> Any:
    """The same policy without exploration; None if it is that already."""
    explores = policy.explore > 0 or isinstance(policy.strategy, Budgeted)  # which evaluates in every slot
    return replace(policy, strategy=Greedy()) if explores and type(policy.strategy) is not Greedy else None


@dataclass(frozen=True, eq=False)
class _Game:
    """One run under way: everything but the model, which changes from epoch to epoch."""

    stream: Stream
    policy: Any
    greedy: Any
    seed: int
    environment: Environment
    world: World
    past: History
    progress: RunProgress | None

    def feedback(self, n: int) -> Feedback:
        """What the learner knows of the first n rounds."""
        scenario = self.environment.scenario
        appeared = scenario.appeared(n) if scenario else None
        return self.past.feedback(self.stream.X, n, self.world.reward_range, appeared)

    def play(self, model: Any, first: int, end: int) -> tuple[History, float]:
        """Rounds first to end with one model: the history with them, and the seconds that greedy slates took beside."""
        past, scenario, slots = self.past, self.environment.scenario, np.arange(self.policy.k)
        change = scenario.change if scenario else first
        cuts = sorted({*range(first, end, BLOCK), *([change] if first < change < end else []), end})
        beside = 0.0
        for a, b in pairwise(cuts):
            d = self._decide(self.policy, model, a, b)
            rewards = self.world.rewards(self.stream.rows[a:b], d.arms, a)
            draws = uniforms("feedback", self.seed, a, np.broadcast_to(slots, rewards.shape))
            past.arms[a:b], past.nodes[a:b], past.explored[a:b] = d.arms, d.nodes, d.explored
            past.propensities[a:b], past.rewards[a:b] = d.propensities, rewards
            past = past.with_components(a, d.components)
            past.observed[a:b] = self.environment.observer.observed(rewards, draws) & ~np.isnan(rewards)
            beside += self._compare(model, a, b)
            if self.progress:
                self.progress(b, float(past.head(b).collected().sum()) / b)
        return past, beside

    def _decide(self, policy: Any, model: Any, a: int, b: int) -> Decisions:
        scenario = self.environment.scenario
        eligible = scenario.eligible(a) if scenario else None
        decided: Decisions = policy.decide_batch(
            model, self.stream.X.slice(a, b), seed=self.seed, first_row=a, eligible=eligible
        )
        return decided

    def _compare(self, model: Any, a: int, b: int) -> float:
        """Writes what the greedy slates of rounds a to b would have brought; the seconds that it took."""
        began, rewards = time.perf_counter(), self.past.rewards[a:b]
        if self.greedy is not None:
            greedy = self._decide(self.greedy, model, a, b)
            rewards = self.world.rewards(self.stream.rows[a:b], greedy.arms, a)
        self.past.greedy_rewards[a:b] = reward_sums(rewards)
        return time.perf_counter() - began


def _settings(policy: Any, refits: list[int], learner: Learner | None) -> dict[str, Any]:
    known: Any = learner or Linear()
    return {
        "k": policy.k,
        "explore": policy.explore,
        "beam": getattr(policy, "beam", None),
        "parameters": asdict(policy.strategy) if hasattr(policy.strategy, "__dataclass_fields__") else {},
        "loss": getattr(known, "loss", "squared"),
        "cost": known.cost,
        "refits": refits,
    }
