"""Scores to slots: k - r greedy, r drawn. Knows nothing of trees, models or time."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from treetop import _core
from treetop.arrays import Bools, Floats, Ints, Longs, as_numbers, real, whole
from treetop.records import Candidates

GREEDY, IGW_, BOLTZMANN, EPSILON, THRIFTY = range(5)
GAMMAS = ("experiments", "theorem1", "theorem2")
LARGEST = 1e100  # of a parameter: times any number of rounds and any gap it is still finite


@runtime_checkable
class Strategy(Protocol):
    """Anything that turns the scores of the effective arms in play into probabilities over them.

    >>> class Uniform:
    ...     def probabilities(self, scores, n_seen):
    ...         return np.full(len(scores), 1 / len(scores))
    >>> isinstance(Uniform(), Strategy)
    True
    """

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        """Not negative, and 1 together: one for each score, after n_seen rounds of feedback."""
        ...


@dataclass(frozen=True)
class Greedy:
    """Always the best; every slot is greedy.

    >>> Greedy().probabilities(np.array([0.1, 0.7]), n_seen=9)
    array([0., 1.])
    >>> Greedy().native(n_seen=9)  # the core's number for it, and its one parameter
    (0, 0.0)
    """

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        """All of it for the best score."""
        p = np.zeros(len(scores))
        p[scores.argmax()] = 1
        return p

    def native(self, n_seen: int) -> tuple[int, float]:
        """What the core needs to draw the same."""
        return GREEDY, 0.0


@dataclass(frozen=True)
class IGW:
    """Inverse gap weighting (Section 3.2): an arm's chance falls with its gap to the best arm in play.

    gamma is sqrt(C N A') as in the paper's experiments, or that of Theorem 1 or 2, which ask for the horizon T, the
    size of the function class |F|, delta, the observation probability c and (Theorem 2) the misspecification epsilon.

    >>> IGW(C=1.0).probabilities(np.array([0.5, 0.0]), n_seen=0)
    array([0.5, 0.5])
    >>> IGW(gamma="theorem1", horizon=10_000, functions=1e6, delta=0.05).probabilities(np.array([0.5, 0.0]), 10_000)
    array([0.50642689, 0.49357311])
    >>> IGW(C=2.0).rate(n_seen=100), IGW(C=2.0).native(n_seen=100)
    (200.0, (1, 200.0))
    """

    C: float = 1.0
    gamma: str = "experiments"
    c: float = 1.0
    functions: float | None = None
    delta: float | None = None
    horizon: int | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        real("C", self.C, 0, LARGEST)
        if self.gamma not in GAMMAS:
            raise ValueError(f"gamma is {self.gamma!r}; it must be one of {', '.join(GAMMAS)}")
        if self.gamma == "experiments":
            return
        needed = ["functions", "delta", "horizon"] + (["epsilon"] if self.gamma == "theorem2" else [])
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"gamma={self.gamma!r} needs {', '.join(missing)}")
        real("c", self.c, 1e-12, 1)
        real("functions", self.functions, 1)
        real("delta", self.delta, 1e-300, 1)
        whole("horizon", self.horizon, 1, 2**62)
        if self.gamma == "theorem2":
            real("epsilon", self.epsilon, 0, LARGEST)
        if self.functions == self.horizon == self.delta == 1:
            raise ValueError("functions, horizon and delta are all 1; log(functions horizon^3 / delta) must be above 0")

    def rate(self, n_seen: int) -> float:
        """gamma^2 / A': what the schedule says after n_seen rounds, before the number of arms in play is known."""
        if self.gamma == "experiments":
            return self.C * n_seen
        if n_seen == 0:
            return 0.0
        size, T, delta, epsilon = (float(v or 0) for v in (self.functions, self.horizon, self.delta, self.epsilon))
        log_term = math.log(size) + 3 * math.log(T) - math.log(delta)
        if self.gamma == "theorem1":
            return self.c * n_seen / (162 * log_term) / 32**2
        return self.c / (420 / n_seen * log_term + 2 * epsilon**2) / 32**2

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        """1 / (A' + gamma gap) for each, and the rest for the best."""
        gamma = math.sqrt(self.rate(n_seen) * len(scores))
        best = scores.argmax()
        p: Floats = 1 / (len(scores) + gamma * (scores[best] - scores))
        p[best] = 0
        p[best] = 1 - p.sum()
        return p

    def native(self, n_seen: int) -> tuple[int, float]:
        """What the core needs to draw the same."""
        return IGW_, self.rate(n_seen)


@dataclass(frozen=True)
class Boltzmann:
    """Proportional to exp(beta log(N) score) (Section 5; Cesa-Bianchi et al. 2017).

    >>> Boltzmann(beta=1.0).probabilities(np.array([1.0, 0.0]), n_seen=3)
    array([0.75, 0.25])
    >>> Boltzmann(beta=2.0).native(n_seen=1)
    (2, 0.0)
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        real("beta", self.beta, 0, LARGEST)

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        """A softmax of the scores, sharper with every round seen."""
        p: Floats = np.exp(self.native(n_seen)[1] * (scores - scores.max()))
        p /= p.sum()
        return p

    def native(self, n_seen: int) -> tuple[int, float]:
        """What the core needs to draw the same."""
        return BOLTZMANN, self.beta * math.log(max(n_seen, 1))


@dataclass(frozen=True)
class EpsilonGreedy:
    """The best with probability 1 - epsilon, otherwise any arm in play (Section 5).

    >>> EpsilonGreedy(epsilon=0.5).probabilities(np.array([0.2, 0.9]), n_seen=3)
    array([0.25, 0.75])
    >>> EpsilonGreedy(epsilon=0.5).native(n_seen=3)
    (3, 0.5)
    """

    epsilon: float = 0.167

    def __post_init__(self) -> None:
        real("epsilon", self.epsilon, 0, 1)

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        """epsilon / A' for each, and the rest for the best."""
        p = np.full(len(scores), self.epsilon / len(scores))
        p[scores.argmax()] += 1 - self.epsilon
        return p

    def native(self, n_seen: int) -> tuple[int, float]:
        """What the core needs to draw the same."""
        return EPSILON, self.epsilon


@dataclass(frozen=True)
class Thrifty:
    """The best, but for draws that cost less than they promise. Beyond the paper.

    A draw is in proportion to an arm's promise, which is what showing it brings later by what it teaches (see
    `Pooled`). Its chance is the fourth power of `zeal` times the promise over the cost, both as a draw has them on
    average, within 0.001 to 0.9: where the next best is worth little, as in the last slots of many a screen, there is
    room to try. Without a promise (a model of the faithful learner) a draw is rare, and all in play are alike.

    >>> promise = np.array([0.0, 0.2, 0.05])
    >>> Thrifty().probabilities(np.array([0.3, 0.0, 0.0]), n_seen=9, promise=promise).round(4)
    array([0.8969, 0.0825, 0.0206])
    """

    zeal: float = 1.0

    def __post_init__(self) -> None:
        real("zeal", self.zeal, 0, LARGEST)

    def probabilities(self, scores: Floats, n_seen: int, promise: Floats | None = None) -> Floats:
        """Of all in play; `promise` says what showing each of them brings later."""
        best = scores.argmax()
        promise = np.maximum(np.zeros(len(scores)) if promise is None else promise, 1e-9)
        drawn = promise / promise.sum()
        cost, gain = float(drawn @ (scores[best] - scores)), self.zeal * float(drawn @ promise)
        epsilon = 0.9 if gain >= cost else min(max((gain / cost) ** 4, 1e-3), 0.9)
        p: Floats = epsilon * drawn
        p[best] += 1 - epsilon
        return p

    def native(self, n_seen: int) -> tuple[int, float]:
        """What the core needs to know.

        >>> Thrifty(zeal=2.0).native(n_seen=9)
        (4, 2.0)
        """
        return THRIFTY, self.zeal


STRATEGIES: dict[str, type[Any]] = {
    "igw": IGW, "greedy": Greedy, "boltzmann": Boltzmann, "epsilon": EpsilonGreedy, "thrifty": Thrifty
}  # fmt: skip


def is_native(strategy: object) -> bool:
    """Whether the core knows the strategy; a subclass may have probabilities of its own, a named one no kernel.

    >>> is_native(IGW()), is_native("mine")
    (True, False)
    """
    return type(strategy) in STRATEGIES.values() and "native" in vars(type(strategy))


def check(strategy: object, explore: int) -> None:
    """Refuses what is not a strategy, and the theorems' gamma with more than the one explore slot they cover.

    >>> check(IGW, explore=3)
    Traceback (most recent call last):
    TypeError: IGW is a class; the strategy is an instance of it: IGW()
    """
    if isinstance(strategy, type):
        raise TypeError(f"{strategy.__name__} is a class; the strategy is an instance of it: {strategy.__name__}()")
    if not callable(getattr(strategy, "probabilities", None)):
        raise TypeError(f"{strategy!r} is not a strategy: it has no probabilities(scores, n_seen)")
    if isinstance(strategy, IGW) and strategy.gamma != "experiments" and explore != 1:
        raise ValueError(f"gamma={strategy.gamma!r} is proved for explore=1, not for explore={explore}")


def event_name(event_id: object) -> str:
    """An event id as text; whatever else could be turned into text is more likely a mistake than a name.

    >>> event_name("visit-1"), event_name(7)
    ('visit-1', '7')
    """
    if isinstance(event_id, str):
        return str(event_id)
    if isinstance(event_id, int | np.integer) and not isinstance(event_id, bool):
        return str(int(event_id))
    raise TypeError(f"an event id must be text or a whole number, not {event_id!r}")


def event_key(event_id: str) -> int:
    """Where an event's randomness comes from.

    >>> event_key("visit-1") == event_key("visit-1") != event_key("visit-2")
    True
    """
    return int.from_bytes(hashlib.blake2b(event_id.encode(), digest_size=8).digest(), "little", signed=True)


def batch_keys(
    n: int, seed: int | None, event_ids: Sequence[str | int] | None, first_row: int
) -> tuple[tuple[str, ...] | None, Longs]:
    """One key per row, from its event id or from (seed, row number); and the ids as text. Without either, new ids.

    >>> names, keys = batch_keys(3, seed=0, event_ids=None, first_row=0)
    >>> bool((batch_keys(2, 0, None, first_row=1)[1] == keys[1:]).all())
    True
    """
    first_row = whole("first_row", first_row, 0, 2**62)
    if event_ids is None and seed is None:
        batch = uuid.uuid4().hex
        event_ids = [f"{batch}-{first_row + i}" for i in range(n)]
    if event_ids is None:
        key = event_key(f"seed {whole('seed', seed, -(2**63), 2**64)}")
        return None, _core.row_keys(key, first_row, n)
    if seed is not None:
        raise ValueError("give either seed or event_ids, not both")
    if isinstance(event_ids, str | bytes):
        raise TypeError(f"event_ids is {event_ids!r}; it must be a list of event ids")
    names = tuple(event_name(event) for event in event_ids)
    if len(names) != n:
        raise ValueError(f"{len(names)} event ids for {n} contexts")
    return names, np.array([event_key(name) for name in names], np.int64)


def choose(
    candidates: Candidates, k: int, explore: int, strategy: Any, n_seen: int, key: int
) -> tuple[Ints, Floats, Bools]:
    """The slots of Algorithm 1, lines 8 to 14: which candidate, with what probability, and whether it was drawn.

    >>> ids, one = np.arange(3, dtype=np.int32), np.ones(3, np.float32)
    >>> three = Candidates(np.zeros(3, bool), ids, one, np.array([0, 2, 1], np.float32), one)
    >>> choose(three, k=2, explore=0, strategy=Greedy(), n_seen=0, key=1)[0]
    array([1, 2], dtype=int32)
    """
    if is_native(strategy):
        kind, rate = strategy.native(n_seen)
        return _core.choose(candidates.score, candidates.is_node, candidates.id, k, explore, kind, rate, key)
    return _choose_slowly(candidates, k, explore, lambda s: checked(strategy.probabilities(s, n_seen), len(s)), key)


def first_draw(strategy: Any, candidates: Candidates, n_seen: int) -> Floats:
    """The strategy's probabilities over all candidates, no slot taken yet.

    >>> one = np.ones(2)
    >>> two = Candidates(np.zeros(2, bool), np.arange(2), one, np.array([0.2, 0.9]), one)
    >>> first_draw(EpsilonGreedy(0.5), two, n_seen=3)
    array([0.25, 0.75])
    """
    scores = candidates.score.astype(np.float64)
    if type(strategy) is Thrifty:  # one of another kind is asked without, here as when it draws
        return checked(strategy.probabilities(scores, n_seen, candidates.promise.astype(np.float64)), len(scores))
    return checked(strategy.probabilities(scores, n_seen), len(scores))


def _choose_slowly(
    candidates: Candidates, k: int, explore: int, probabilities: Callable[[Floats], Floats], key: int
) -> tuple[Ints, Floats, Bools]:
    """The same for a strategy written in Python: greedy first, then one draw a slot by inversion."""
    scores = candidates.score.astype(np.float64)
    slots = min(k, len(scores))
    chosen = np.argsort(-scores, kind="stable")[: min(k - explore, slots)].tolist()
    probability = [1.0] * len(chosen)
    in_play = np.setdiff1d(np.arange(len(scores)), chosen)
    for slot in range(len(chosen), slots):
        p = probabilities(scores[in_play])
        ends = np.cumsum(p)
        place = int(np.searchsorted(ends, _core.uniform(key, slot) * ends[-1], side="right"))
        chosen.append(int(in_play[place]))
        probability.append(float(p[place]))
        in_play = np.delete(in_play, place)
    explored = np.arange(slots) >= k - explore
    return np.array(chosen, np.int32), np.array(probability), explored


def checked(p: object, n: int) -> Floats:
    """A user's probabilities, or an error that says what is wrong with them.

    >>> checked([0.25, 0.75], n=2)
    array([0.25, 0.75])
    """
    array = as_numbers(p, "the strategy's probabilities").astype(np.float64)
    if array.shape != (n,):
        raise ValueError(f"the strategy gave probabilities of shape {array.shape} for {n} arms in play")
    if not (array >= 0).all():
        raise ValueError(f"the strategy gave the probability {array[~(array >= 0)][0]}; it must be at least 0")
    if abs(array.sum() - 1) > 1e-6:
        raise ValueError(f"the strategy's probabilities sum to {array.sum()}; they must sum to 1")
    exact: Floats = array / array.sum()  # what is drawn with is what is stated
    return exact
