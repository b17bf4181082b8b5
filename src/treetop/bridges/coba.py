"""coba: a learner that its experiments run beside their own, and environments made of labelled rows and of logs.

coba asks for no base class, so nothing of it is imported. An action is an arm: actions that are equal are the same arm,
whichever round they come in, and those of a round are the eligible arms.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Rows, check_float, check_int
from treetop.bandit.bandit import Bandit
from treetop.bandit.growth import grow
from treetop.data.datasets import Dataset
from treetop.learning.linear import Linear
from treetop.learning.refit import Learner, refit
from treetop.log.records import StoredEvent
from treetop.model.model import Model
from treetop.policy.policy import Policy
from treetop.policy.strategies import IGW, Strategy
from treetop.records import Feedback
from treetop.tree.tree import Tree

MAX_LEAF = 1000  # arms; up to so many, every one is scored


class CobaLearner:
    """A learner for `coba.Experiment`: one slot, drawn by a strategy, with its exact probability.

    Contexts may be None, a number, text, a sequence or a mapping; names are hashed to `columns` columns, places in a
    sequence keep theirs. Rewards lie in `reward_range`. The model is refitted on the whole history after `first`
    rounds, and whenever that has grown by `factor`.

    >>> learner = CobaLearner(first=8, seed=1)
    >>> for visit in range(64):
    ...     action, probability = learner.predict([visit % 2], ["mint", "rose"])
    ...     learner.learn([visit % 2], action, float(action == ["mint", "rose"][visit % 2]), probability)
    >>> learner.score([0], ["mint", "rose"], "mint") > 0.75
    True
    >>> learner.params["family"]
    'treetop'
    """

    def __init__(
        self,
        strategy: Strategy | None = None,
        learner: Learner | None = None,
        columns: int = 4096,
        reward_range: tuple[float, float] = (0.0, 1.0),
        first: int = 32,
        factor: float = 1.2,
        seed: int = 0,
    ) -> None:
        self.strategy, self.learner = IGW() if strategy is None else strategy, Linear() if learner is None else learner
        self.columns, self.seed = check_int("columns", columns, 1), check_int("seed", seed, 0)
        self.low, self.high = (check_float("a limit of rewards", limit, -1e30) for limit in reward_range)
        if not self.low < self.high:
            raise ValueError(f"the range of rewards is from {self.low:g} to {self.high:g}; the second must be larger")
        self.next, self.factor = check_int("first", first, 1), check_float("factor", factor, 1, 1e6)
        self.policy = Policy(k=1, explore=1, strategy=self.strategy)
        self.model: Model | None = None
        self.arms: dict[Any, int] = {}
        self.rounds = 0
        self.history: list[tuple[Rows, int, float]] = []

    @property
    def params(self) -> dict[str, Any]:
        """What coba's table of learners says of it."""
        return {"family": "treetop", "strategy": repr(self.strategy), "learner": type(self.learner).__name__}

    def predict(self, context: Any, actions: Sequence[Any]) -> tuple[Any, float]:
        """An action and the chance that it had."""
        model, eligible = self._with_arms(actions)
        self.rounds += 1
        shown = self.policy.decide(model, self._row(context), f"{self.seed}-{self.rounds}", eligible)
        return actions[eligible.index(int(shown.arms[0]))], float(shown.propensities[0])

    def score(self, context: Any, actions: Sequence[Any], action: Any) -> float:
        """The chance of an action."""
        model, eligible = self._with_arms(actions)
        return self.policy.probability(model, self._row(context), [self.arms[_key(action)]], eligible).whole

    def learn(self, context: Any, action: Any, reward: float, probability: float, **others: Any) -> None:
        """Takes in what came of an action; refits when it is time to."""
        model, _ = self._with_arms([action])
        if not self.low <= reward <= self.high:
            raise ValueError(f"reward {reward:g} is outside [{self.low:g}, {self.high:g}]; see reward_range")
        scaled = (reward - self.low) / (self.high - self.low)
        self.history.append((self._row(context), self.arms[_key(action)], scaled))
        if len(self.history) >= self.next:
            self.next = max(self.next + 1, math.ceil(self.next * self.factor))
            self.model = refit(model, self._feedback(), self.learner)

    def _feedback(self) -> Feedback:
        contexts = sp.vstack([row.csr() for row, _, _ in self.history], format="csr")
        arms = np.array([[arm] for _, arm, _ in self.history], np.int32)
        return Feedback(contexts, arms, None, np.array([[reward] for _, _, reward in self.history]))

    def _with_arms(self, actions: Sequence[Any]) -> tuple[Model, list[int]]:
        """The model, with an arm for every action, and the arms of these."""
        found = [self.arms.setdefault(_key(action), len(self.arms)) for action in actions]
        if self.model is None:
            leaves = -(-len(self.arms) // MAX_LEAF)
            parents = [-1] if leaves == 1 else [-1, *[0] * leaves]
            below = np.arange(len(self.arms)) // MAX_LEAF + (leaves > 1)
            tree = Tree(np.array(parents, np.int32), below.astype(np.int32))
            nothing = np.zeros(0, np.float32)
            self.model = Model.unlearned(
                tree, Rows(np.zeros(tree.n_nodes + 1, np.int64), nothing.astype(np.int32), nothing, self.columns + 1)
            )
        elif len(self.arms) > self.model.n_arms:
            self.model = grow(self.model, len(self.arms) - self.model.n_arms, MAX_LEAF)
        return self.model, found

    def _row(self, context: Any) -> Rows:
        found: dict[int, float] = {}
        for name, value in _features(context, ""):
            column = name if isinstance(name, int) else zlib.crc32(name.encode())
            found[column % self.columns] = found.get(column % self.columns, 0.0) + value
        at = sorted(found)
        start, values = np.array([0, len(at)], np.int64), np.array([found[i] for i in at], np.float32)
        return Rows(start, np.array(at, np.int32), values, self.columns)


def _features(value: Any, name: str) -> Iterator[tuple[int | str, float]]:
    """The features of a context; a place in its outermost sequence is a column."""
    if isinstance(value, str):
        yield f"{name}={value}", 1.0
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _features(inner, f"{name}.{key}")
    elif hasattr(value, "__len__"):
        for i, inner in enumerate(value):
            plain = not name and isinstance(inner, int | float | np.number)
            if plain:
                yield i, float(inner)
            else:
                yield from _features(inner, f"{name}[{i}]")
    elif value is not None:
        yield name, float(value)


def _key(action: Any) -> Any:
    """What makes actions equal: features may come as lists or dicts, which cannot be looked up."""
    if isinstance(action, Mapping):
        return tuple(sorted((name, _key(value)) for name, value in action.items()))
    return action if isinstance(action, str) or not hasattr(action, "__len__") else tuple(map(_key, action))


class ActionRewards:
    """The rewards of a round by action, as coba asks for them; 0 for those that have none.

    >>> ActionRewards({"mint": 1.0})("mint"), ActionRewards({"mint": 1.0})("rose")
    (1.0, 0.0)
    """

    def __init__(self, rewards: Mapping[Any, float]) -> None:
        self.rewards = dict(rewards)

    def __call__(self, action: Any) -> float:
        return float(self.rewards.get(action, 0.0))


class CobaEnvironment:
    """Labelled rows as an environment: a round a row, in a shuffled order; every reward is known.

    Actions are the `arms` that most rows have, since coba lists all of them in every round; rows without any of them
    are left out.

    >>> data = Dataset("tea", np.eye(3), [[1, 0, 0], [0, 0, 1], [1, 1, 0]], arm_names=("mint", "rose", "oolong"))
    >>> rounds = list(CobaEnvironment(data, arms=1).read())
    >>> [(one["actions"], one["rewards"]("mint")) for one in rounds]
    [(['mint'], 1.0), (['mint'], 1.0)]
    """

    def __init__(self, data: Dataset, arms: int = 100, rounds: int | None = None, seed: int = 0) -> None:
        self.data, self.arms = data, check_int("arms", arms, 1)
        self.rounds = None if rounds is None else check_int("rounds", rounds, 1)
        self.seed = check_int("seed", seed, 0)

    @property
    def params(self) -> dict[str, Any]:
        """What coba's table of environments says of it."""
        return {"env_type": "treetop", "arms": self.arms, "seed": self.seed}

    def read(self) -> Iterator[dict[str, Any]]:
        """The rounds, the same every time."""
        X, Y = self.data.X.csr(), self.data.Y.csr()
        arm_names, features = self.data.arm_names, self.data.feature_names
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        chosen = np.sort(np.argsort(-counts, kind="stable")[: self.arms])
        labels = sp.csr_matrix(Y[:, chosen])
        rows = np.flatnonzero(np.diff(labels.indptr))
        rows = np.random.default_rng(self.seed).permutation(rows)[: self.rounds]
        names = [str(arm) if arm_names is None else arm_names[arm] for arm in chosen.tolist()]
        for row in rows.tolist():
            a, b = labels.indptr[row], labels.indptr[row + 1]
            found = {names[i]: float(v) for i, v in zip(labels.indices[a:b], labels.data[a:b], strict=True)}
            a, b = X.indptr[row], X.indptr[row + 1]
            values = zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)
            context = {str(i) if features is None else features[i]: value for i, value in values}
            yield {"context": context, "actions": names, "rewards": ActionRewards(found)}


class CobaLog:
    """A bandit's log as an environment of logged rounds, one an observed slot, for coba's off-policy evaluators.

    The actions of a slot are the arms of the catalogue that the slots before it left, or those that the request listed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Bandit.create(f"{folder}/tea", ["mint", "rose"], np.eye(2), np.eye(2)) as tea:
    ...         tea.reward("visit-1", {tea.decide([1, 0], "visit-1", k=1).arms[0]: 1.0})
    ...         [(one["context"], one["actions"], one["reward"]) for one in CobaLog(tea).read()]
    [({'0': 1.0}, ['mint', 'rose'], 1.0)]
    """

    def __init__(self, bandit: Bandit) -> None:
        self.bandit = bandit

    @property
    def params(self) -> dict[str, Any]:
        """What coba's table of environments says of it."""
        return {"env_type": "treetop log", "folder": str(self.bandit.folder.path)}

    def read(self) -> Iterator[dict[str, Any]]:
        """The rounds of the log so far, oldest first."""
        summary = self.bandit.log.summary()
        self.bandit.refresh()  # so that all arms of the rounds up to now are known
        for chunk in self.bandit.log.entries(summary):
            for entry in chunk:
                yield from self._rounds(entry.stored)

    def _rounds(self, stored: StoredEvent) -> Iterator[dict[str, Any]]:
        event, arms, name = stored.event, self.bandit.snapshot.arms, self.bandit.vocabulary.name
        values = zip(event.index.tolist(), event.value.tolist(), strict=True)
        context = {name(column): value for column, value in values}
        allowed = arms.removed_after(event.removals) == 0
        allowed &= arms.epochs() <= event.model_epoch
        if event.eligible:
            listed = self.bandit.log.eligible_set(event.eligible)
            if listed is None:
                raise ValueError(f"the set of arms of event {event.event_id!r} is not in the log any more")
            inside = np.isin(np.arange(len(arms)), listed)
            allowed &= inside if event.eligible[0] == "+" else ~inside
        for slot, arm in enumerate(event.arms.tolist()):
            if not np.isnan(stored.rewards[slot]):
                yield {
                    "context": context,
                    "actions": [str(arms.ids[i]) for i in np.flatnonzero(allowed)],
                    "action": str(arms.ids[arm]),
                    "reward": float(stored.rewards[slot]),
                    "probability": float(event.propensities[slot]),
                }
            allowed[arm] = False
