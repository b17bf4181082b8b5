"""Scores of the effective arms in play to probabilities over them. Knows nothing of trees, models or draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from treetop.arrays import Floats, check_float, check_int
from treetop.policy.budgeted import Budgeted
from treetop.records import Candidates

GREEDY, IGW_, BOLTZMANN, EPSILON = range(4)  # as the core numbers them
GAMMAS = ("experiments", "theorem1", "theorem2")
LARGEST = 1e100  # of a parameter: times any number of rounds and any gap it is still finite


@runtime_checkable
class Strategy(Protocol):
    """Anything that turns the scores of the effective arms in play into probabilities over them.

    One that wants more than scores also has `candidate_probabilities(candidates, n_seen)`, which is then asked instead.

    >>> class Uniform:
    ...     def probabilities(self, scores, n_seen):
    ...         return np.full(len(scores), 1 / len(scores))
    >>> isinstance(Uniform(), Strategy)
    True
    """

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        """Not negative, and 1 together: one for each score, after n_seen rounds of feedback."""
        ...


@runtime_checkable
class CandidateStrategy(Strategy, Protocol):
    """A strategy that wants to know more of the candidates in play than their scores.

    >>> isinstance(Budgeted(), CandidateStrategy), isinstance(Greedy(), CandidateStrategy)
    (True, False)
    >>> one = np.ones(1)
    >>> Budgeted().candidate_probabilities(Candidates(np.zeros(1, bool), np.arange(1), one, one, one), n_seen=9)
    array([1.])
    """

    def candidate_probabilities(self, candidates: Candidates, n_seen: int) -> Floats:
        """Not negative, and 1 together: one for each candidate, after n_seen rounds of feedback."""
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
        check_float("C", self.C, 0, LARGEST)
        if self.gamma not in GAMMAS:
            raise ValueError(f"gamma is {self.gamma!r}; it must be one of {', '.join(GAMMAS)}")
        if self.gamma == "experiments":
            return
        needed = ["functions", "delta", "horizon"] + (["epsilon"] if self.gamma == "theorem2" else [])
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"gamma={self.gamma!r} needs {', '.join(missing)}")
        check_float("c", self.c, 1e-12, 1)
        check_float("functions", self.functions, 1)
        check_float("delta", self.delta, 1e-300, 1)
        check_int("horizon", self.horizon, 1, 2**62)
        if self.gamma == "theorem2":
            check_float("epsilon", self.epsilon, 0, LARGEST)
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
        check_float("beta", self.beta, 0, LARGEST)

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
        check_float("epsilon", self.epsilon, 0, 1)

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        """epsilon / A' for each, and the rest for the best."""
        p = np.full(len(scores), self.epsilon / len(scores))
        p[scores.argmax()] += 1 - self.epsilon
        return p

    def native(self, n_seen: int) -> tuple[int, float]:
        """What the core needs to draw the same."""
        return EPSILON, self.epsilon


STRATEGIES: dict[str, type[Any]] = {
    "igw": IGW,
    "greedy": Greedy,
    "boltzmann": Boltzmann,
    "epsilon": EpsilonGreedy,
    "budgeted": Budgeted,
}


def make_strategy(name: str, parameters: Mapping[str, Any] | None = None) -> Strategy:
    """A strategy by its name in settings, on the command line and in config.toml.

    >>> make_strategy("igw", {"C": 2.0})
    IGW(C=2.0, gamma='experiments', c=1.0, functions=None, delta=None, horizon=None, epsilon=None)
    >>> make_strategy("greedy", {"C": 2.0})
    Traceback (most recent call last):
    ValueError: greedy has no 'C'; it has no parameters
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy is {name!r}; it must be one of {', '.join(STRATEGIES)}")
    given, known = parameters or {}, [f.name for f in fields(STRATEGIES[name])]
    if wrong := next((parameter for parameter in given if parameter not in known), None):
        raise ValueError(f"{name} has no {wrong!r}; it has {', '.join(known) or 'no parameters'}")
    made: Strategy = STRATEGIES[name](**given)
    return made


def is_native(strategy: object) -> bool:
    """Whether the core can draw for it: an instance of a class in STRATEGIES itself; a subclass may decide otherwise.

    >>> is_native(IGW()), is_native("mine")
    (True, False)
    """
    return type(strategy) in STRATEGIES.values() and "native" in vars(type(strategy))


def check_strategy(strategy: object, explore: int) -> None:
    """Refuses what is not a strategy, and the theorems' gamma with more than the one explore slot they cover.

    >>> check_strategy(IGW, explore=3)
    Traceback (most recent call last):
    TypeError: IGW is a class; the strategy is an instance of it: IGW()
    """
    if isinstance(strategy, type):
        raise TypeError(f"{strategy.__name__} is a class; the strategy is an instance of it: {strategy.__name__}()")
    if not callable(getattr(strategy, "probabilities", None)):
        raise TypeError(f"{strategy!r} is not a strategy: it has no probabilities(scores, n_seen)")
    if isinstance(strategy, IGW) and strategy.gamma != "experiments" and explore != 1:
        raise ValueError(f"gamma={strategy.gamma!r} is proved for explore=1, not for explore={explore}")
