"""The paper's search for C, beta and epsilon (Appendix "Hyper-parameter Tuning"): a plan, and the best of its records.

Runs are played one after another: deciding and refitting use all cores already, and share one copy of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings

DECADES = [float(f"1e{e}") for e in range(-7, 8)]
# Ten steps on the logarithmic scale are the fewest that meet the paper's 0.167 = 10^(-7/9).
SHARES = [float(f"{e:.4g}") for e in np.logspace(-7, 0, 10)]
PARAMETER = {"igw": "C", "boltzmann": "beta", "epsilon": "epsilon", "greedy": None}
FOUND = {"igw": 1.0, "boltzmann": 1.0, "epsilon": 0.167}  # the best of the paper's grids on eurlex-4k
GRIDS: dict[str, dict[str, list[float]]] = {
    "paper": {"igw": DECADES, "boltzmann": DECADES, "epsilon": SHARES},
    "small": {"igw": [0.01, 1.0, 100.0], "boltzmann": [0.1, 1.0, 10.0], "epsilon": [0.01, 0.1668, 1.0]},
}


@dataclass(frozen=True)
class Point:
    """One strategy with one value of its parameter: mean reward a round over all seeds, and the lowest and highest.

    `best` is the best of its strategy, with `tie` the first of several. `refits` are the fewest of its runs.
    """

    strategy: str
    parameters: dict[str, float]
    mean_reward: float
    low: float
    high: float
    seconds: float
    best: bool
    tie: bool = False
    refits: int = 0


def grid(strategy: str, size: str = "paper") -> list[dict[str, float]]:
    """The parameters to try; greedy has none and is played once.

    >>> grid("epsilon")[-2:], grid("igw", "small")
    ([{'epsilon': 0.1668}, {'epsilon': 1.0}], [{'C': 0.01}, {'C': 1.0}, {'C': 100.0}])
    """
    if strategy not in PARAMETER:
        raise ValueError(f"strategy is {strategy!r}; it must be one of {', '.join(PARAMETER)}")
    if size not in GRIDS:
        raise ValueError(f"grid is {size!r}; it must be one of {', '.join(GRIDS)}")
    name = PARAMETER[strategy]
    return [{}] if name is None else [{name: value} for value in GRIDS[size][strategy]]


def climb(strategy: str, score: Callable[[dict[str, float]], float], size: str = "paper") -> dict[str, float]:
    """The best of a grid by steps to the better neighbour, from the paper's own value; ties stay. If the greediest
    value of the grid is better than where that ends, it goes on from there: few rounds may not pay for exploring.

    With one peak it is that of the whole grid for four or five tries instead of fifteen.

    >>> climb("igw", lambda tried: -abs(tried["C"] - 100))
    {'C': 100.0}
    """
    values = grid(strategy, size)
    known: dict[int, float] = {}

    def at(i: int) -> float:
        if i not in known:
            known[i] = score(values[i]) if 0 <= i < len(values) else -np.inf
        return known[i]

    def up(here: int) -> int:
        while (best := max((here, here + 1, here - 1), key=at)) != here:
            here = best
        return here

    if (name := PARAMETER[strategy]) is None:
        return values[0]
    top = up(min(range(len(values)), key=lambda i: abs(values[i][name] - FOUND[strategy])))
    greediest = 0 if strategy == "epsilon" else len(values) - 1
    return values[top if at(greediest) <= at(top) else up(greediest)]


def plan(data: str, strategies: Sequence[str], size: str, seeds: Sequence[int], **common: Any) -> Plan:
    """Every point of the grid of every strategy, with settings in common.

    >>> len(plan("debian", ["igw", "greedy"], "paper", seeds=[0, 1]).runs())  # 15 values of C and one greedy, twice
    32
    """
    asked = [Settings(name, point, **common) for name in strategies for point in grid(name, size)]
    return Plan(data, tuple(asked), tuple(seeds))


def points(asked: Plan, records: Sequence[RunRecord]) -> list[Point]:
    """One point for each of the plan's settings, in their order; the best of each strategy is marked, and a tie.

    >>> from treetop.experiments.execute import execute
    >>> asked = plan("synthetic:arms=50,features=30,rows=200,init=100", ["igw"], "small", [0, 1], max_leaf=10)
    >>> sum(point.best for point in points(asked, execute(None, asked)))
    1
    """
    size = len(asked.settings)
    by_setting = [records[i::size] for i in range(size)]
    means = [float(np.mean([record.mean_reward for record in mine])) for mine in by_setting]
    own = [[means[j] for j, other in enumerate(asked.settings) if other.strategy == s.strategy] for s in asked.settings]
    best = {s.strategy: i for i, s in reversed(list(enumerate(asked.settings))) if means[i] == max(own[i])}
    return [
        _point(settings, by_setting[i], means[i], best[settings.strategy] == i, own[i].count(max(own[i])) > 1)
        for i, settings in enumerate(asked.settings)
    ]


def _point(settings: Settings, mine: Sequence[RunRecord], mean: float, best: bool, tie: bool) -> Point:
    rewards = [record.mean_reward for record in mine]
    seconds = round(sum(record.seconds for record in mine), 3)
    refits = min(len(record.settings["refits"]) for record in mine)
    tie = tie and best
    return Point(settings.strategy, settings.parameters, mean, min(rewards), max(rewards), seconds, best, tie, refits)


def summary(found: Sequence[Point]) -> dict[str, Any]:
    """What `treetop tune --json` prints of them.

    >>> point = Point("igw", {"C": 1.0}, mean_reward=0.8, low=0.7, high=0.9, seconds=1.0, best=True)
    >>> summary([point])["best"]
    {'igw': {'C': 1.0, 'mean_reward': 0.8, 'tie': False}}
    """
    best = {
        point.strategy: {**point.parameters, "mean_reward": point.mean_reward, "tie": point.tie}
        for point in found
        if point.best
    }
    return {"best": best, "points": [asdict(point) for point in found]}
